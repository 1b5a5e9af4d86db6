import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.CloseableIterator;

/**
 * Iceberg's own planner, timed inside the JVM.
 *
 * <p>Compiled at run time by Janino, so there are no lambdas and no inferred types.
 */
public class Planner {
  private final Map<String, Table> tables = new HashMap<String, Table>();
  private final HadoopFileIO io = new HadoopFileIO(new Configuration());

  /** Creates a planner. The properties are for its FileIO. */
  public Planner(Map properties) {
    io.initialize(properties);
  }

  /** Returns a line "files nanoseconds" for each plan. None starts after the limit. */
  public String plan(String location, String filter, int most, double limitSeconds)
      throws Exception {
    Table table = table(location);
    StringBuilder said = new StringBuilder();
    long until = System.nanoTime() + (long) (limitSeconds * 1e9);
    for (int at = 0; at < most && (at == 0 || System.nanoTime() < until); at++) {
      long began = System.nanoTime();
      long files = planned(table, filter);
      said.append(files).append(' ').append(System.nanoTime() - began).append('\n');
    }
    return said.toString();
  }

  private long planned(Table table, String filter) throws Exception {
    TableScan scan = table.newScan();
    if (filter != null) {
      scan = (TableScan) scan.filter(ExpressionParser.fromJson(filter));
    }
    long files = 0;
    CloseableIterable tasks = scan.planFiles();
    try {
      CloseableIterator each = tasks.iterator();
      while (each.hasNext()) {
        each.next();
        files++;
      }
      each.close();
    } finally {
      tasks.close();
    }
    return files;
  }

  private Table table(String location) {
    Table table = (Table) tables.get(location);
    if (table == null) {
      table = new BaseTable(new StaticTableOperations(location, io), location);
      tables.put(location, table);
    }
    return table;
  }
}

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFiles;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Iceberg's Java client as writers: threads of one JVM, each with its own catalog and table.
 *
 * <p>Compiled at run time by Janino, so there are no lambdas and no inferred types.
 */
public class Writers {
  private final List<RESTCatalog> catalogs = new ArrayList<RESTCatalog>();
  private final Map<String, String> properties;
  private final Object conf;

  public Writers(Map properties) {
    this.properties = properties;
    this.conf = new org.apache.hadoop.conf.Configuration();
  }

  /** Returns a line for each commit: "ended took" in nanoseconds, or "failed reason". */
  public String run(
      List tables,
      String namespace,
      String operation,
      double seconds,
      int most,
      long first,
      long step,
      int files,
      String treeFolder,
      long treeFiles)
      throws Exception {
    CountDownLatch ready = new CountDownLatch(tables.size());
    CountDownLatch go = new CountDownLatch(1);
    long[] began = new long[1];
    List<Work> works = new ArrayList<Work>();
    for (int index = 0; index < tables.size(); index++) {
      String[] names = ((String) tables.get(index)).split(",");
      Work work = new Work();
      work.tables = new Table[names.length];
      for (int at = 0; at < names.length; at++) {
        work.tables[at] = catalog(index).loadTable(TableIdentifier.of(namespace, names[at]));
      }
      work.index = index;
      work.operation = operation;
      work.seconds = seconds;
      work.most = most;
      work.first = first;
      work.step = step;
      work.files = files;
      work.tree = treeFolder + "/data-" + treeFiles;
      work.ready = ready;
      work.go = go;
      work.began = began;
      works.add(work);
      work.start();
    }
    ready.await();
    began[0] = System.nanoTime();
    go.countDown();
    StringBuilder said = new StringBuilder();
    for (int index = 0; index < works.size(); index++) {
      Work work = (Work) works.get(index);
      work.join();
      said.append(work.said);
    }
    return said.toString();
  }

  private RESTCatalog catalog(int index) {
    while (catalogs.size() <= index) {
      RESTCatalog catalog = new RESTCatalog();
      catalog.setConf((org.apache.hadoop.conf.Configuration) conf);
      catalog.initialize("bench", properties);
      catalogs.add(catalog);
    }
    return (RESTCatalog) catalogs.get(index);
  }

  public static class Work extends Thread {
    Table[] tables;
    int index;
    String operation;
    double seconds;
    int most;
    long first;
    long step;
    int files;
    String tree;
    CountDownLatch ready;
    CountDownLatch go;
    long[] began;
    StringBuilder said = new StringBuilder();

    public void run() {
      ready.countDown();
      try {
        go.await();
      } catch (InterruptedException e) {
        throw new RuntimeException(e);
      }
      long limit = began[0] + (long) (seconds * 1e9);
      for (int at = 0; at < most; at++) {
        long number = first + at * step;
        Table table = tables[at % tables.length];
        List<DataFile> added = operation.equals("append") ? described(table, number) : null;
        long started = System.nanoTime();
        if (at > 0 && started >= limit) {
          return;
        }
        try {
          commit(table, number, added);
          long ended = System.nanoTime();
          said.append(ended - began[0]).append(' ').append(ended - started).append('\n');
        } catch (Exception e) {
          said.append("failed ").append(String.valueOf(e).replace('\n', ' ')).append('\n');
          table.refresh();
        }
      }
    }

    private void commit(Table table, long number, List<DataFile> added) {
      if (added != null) {
        AppendFiles append = table.newFastAppend();
        for (int at = 0; at < added.size(); at++) {
          append.appendFile((DataFile) added.get(at));
        }
        append.commit();
        return;
      }
      DeleteFiles delete = table.newDelete();
      if (operation.equals("delete by path")) {
        delete.deleteFile(Writers.path(tree, number, 0));
      } else {
        delete.deleteFromRowFilter(Expressions.equal("part", Integer.valueOf((int) number)));
      }
      delete.commit();
    }

    private List<DataFile> described(Table table, long number) {
      List<DataFile> added = new ArrayList<DataFile>();
      for (int at = 0; at < files; at++) {
        added.add(Writers.described(table, number + at, index));
      }
      return added;
    }
  }

  static DataFile described(Table table, long number, int writer) {
    int partition = (int) (number % 100);
    Map<Integer, Long> sizes = new HashMap<Integer, Long>();
    Map<Integer, Long> counts = new HashMap<Integer, Long>();
    Map<Integer, Long> nulls = new HashMap<Integer, Long>();
    Map<Integer, Long> nans = new HashMap<Integer, Long>();
    Map<Integer, ByteBuffer> lower = new HashMap<Integer, ByteBuffer>();
    Map<Integer, ByteBuffer> upper = new HashMap<Integer, ByteBuffer>();
    for (int column = 1; column <= 10; column++) {
      Integer id = Integer.valueOf(column);
      sizes.put(id, Long.valueOf(6000));
      counts.put(id, Long.valueOf(1000));
      nulls.put(id, Long.valueOf(0));
      long value = mixed(number, column) >>> 24;
      long more = value + (mixed(number, column + 20) >>> 28);
      if (column == 1) {
        lower.put(id, bound(Types.IntegerType.get(), Integer.valueOf(partition)));
        upper.put(id, bound(Types.IntegerType.get(), Integer.valueOf(partition)));
      } else if (column == 7 || column == 8) {
        nans.put(id, Long.valueOf(0));
        lower.put(id, bound(Types.DoubleType.get(), Double.valueOf(value / 1000.0)));
        upper.put(id, bound(Types.DoubleType.get(), Double.valueOf(more / 1000.0)));
      } else if (column == 9) {
        lower.put(id, bound(Types.StringType.get(), hex("a", mixed(number, 9))));
        upper.put(id, bound(Types.StringType.get(), hex("z", mixed(number, 29))));
      } else {
        lower.put(id, bound(Types.LongType.get(), Long.valueOf(value)));
        upper.put(id, bound(Types.LongType.get(), Long.valueOf(more)));
      }
    }
    List<String> values = new ArrayList<String>();
    values.add(String.valueOf(partition));
    List<Long> offsets = new ArrayList<Long>();
    offsets.add(Long.valueOf(4));
    return DataFiles.builder(table.spec())
        .withPath(path(table.location() + "/data", number, writer))
        .withFormat(FileFormat.PARQUET)
        .withFileSizeInBytes(64000 + number % 1000)
        .withPartitionValues(values)
        .withMetrics(
            new Metrics(Long.valueOf(1000), sizes, counts, nulls, nans, lower, upper))
        .withSplitOffsets(offsets)
        .build();
  }

  private static ByteBuffer bound(Type type, Object value) {
    return Conversions.toByteBuffer(type, value);
  }

  private static String hex(String first, long value) {
    String digits = Long.toHexString(value);
    while (digits.length() < 15) {
      digits = "0" + digits;
    }
    return (first + digits).substring(0, 16);
  }

  /** Returns the same path as `file_path` in files.py. */
  static String path(String folder, long number, int writer) {
    StringBuilder path = new StringBuilder(folder);
    path.append('/').append(padded(String.valueOf(writer), 3));
    path.append('-').append(padded(String.valueOf(number), 10)).append('-');
    path.append(padded(Long.toHexString(mixed(number, 11)), 16));
    path.append(padded(Long.toHexString(mixed(number, 12)), 16));
    while (path.length() < 112) {
      path.append('a');
    }
    return path.append(".parquet").toString();
  }

  private static String padded(String digits, int width) {
    StringBuilder padded = new StringBuilder();
    for (int at = digits.length(); at < width; at++) {
      padded.append('0');
    }
    return padded.append(digits).toString();
  }

  static long mixed(long number, int column) {
    long mixed = (number * 31L + column) * 0x9E3779B97F4A7C15L;
    mixed = (mixed ^ (mixed >>> 29)) * 0xBF58476D1CE4E5B9L;
    return (mixed ^ (mixed >>> 32)) >>> 1;
  }
}

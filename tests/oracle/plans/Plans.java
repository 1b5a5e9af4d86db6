import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.ContentFileParser;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.IncrementalAppendScan;
import org.apache.iceberg.LocationProviders;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.TableOperations;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.expressions.Binder;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.ExpressionParser;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;
import org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.util.SnapshotUtil;

/**
 * Plans scans with Iceberg's library, many in one call, and writes snapshots for it to plan.
 *
 * <p>Compiled at run time by Janino, so there are no lambdas and no inferred types.
 */
public class Plans {
  private final ObjectMapper mapper = new ObjectMapper();
  private final FileIO io = new HadoopFileIO(new Configuration());
  // Planned in place: a plan of a few files never waits for a thread.
  private final ExecutorService inPlace = MoreExecutors.newDirectExecutorService();

  /** The table at a metadata file. Every snapshot gets a branch: scans of branches use the table's schema. */
  public Table open(String location) {
    TableMetadata metadata = TableMetadataParser.read(io, location);
    TableMetadata.Builder builder = TableMetadata.buildFrom(metadata);
    for (Iterator it = metadata.snapshots().iterator(); it.hasNext(); ) {
      long id = ((Snapshot) it.next()).snapshotId();
      builder.setRef("at-" + id, SnapshotRef.branchBuilder(id).build());
    }
    return new BaseTable(
        new StaticTableOperations(builder.discardChanges().build(), io), "planned");
  }

  /** One answer for each scan of a list: its tasks, or what was thrown. */
  public String plan(Table table, String scans) throws Exception {
    ArrayNode answers = mapper.createArrayNode();
    for (Iterator it = mapper.readTree(scans).elements(); it.hasNext(); ) {
      JsonNode scan = (JsonNode) it.next();
      ObjectNode answer = mapper.createObjectNode();
      try {
        tasks(table, scan, answer.putArray("tasks"));
      } catch (RuntimeException thrown) {
        answer.remove("tasks");
        answer.put("error", thrown.getClass().getSimpleName());
        answer.put("message", String.valueOf(thrown.getMessage()));
      }
      answers.add(answer);
    }
    return mapper.writeValueAsString(answers);
  }

  /** Bound to a schema, each expression of a list; negations are pushed down. */
  public String bound(Table table, String expressions) throws Exception {
    ArrayNode answers = mapper.createArrayNode();
    for (Iterator it = mapper.readTree(expressions).elements(); it.hasNext(); ) {
      JsonNode item = (JsonNode) it.next();
      Schema schema = schemaOf(table, item);
      boolean caseSensitive = item.get("case-sensitive").asBoolean();
      ObjectNode answer = mapper.createObjectNode();
      try {
        Expression expression = parsed(item.get("expression"), schema, caseSensitive);
        answer.set("bound", boundJson(expression, schema, caseSensitive));
      } catch (RuntimeException thrown) {
        answer.put("error", thrown.getClass().getSimpleName());
        answer.put("message", String.valueOf(thrown.getMessage()));
      }
      answers.add(answer);
    }
    return mapper.writeValueAsString(answers);
  }

  private Schema schemaOf(Table table, JsonNode scan) {
    boolean ofSnapshot = scan.get("use-snapshot-schema").asBoolean();
    return ofSnapshot && scan.hasNonNull("snapshot-id")
        ? SnapshotUtil.schemaFor(table, Long.valueOf(scan.get("snapshot-id").asLong()).longValue())
        : table.schema();
  }

  /**
   * As a REST server reads it, without the schema; where that does not bind, typed by the schema: a
   * binary literal can be told by its column alone.
   */
  private Expression parsed(JsonNode node, Schema schema, boolean caseSensitive) {
    Expression plain = ExpressionParser.fromJson(node);
    try {
      Binder.bind(schema.asStruct(), Expressions.rewriteNot(plain), caseSensitive);
      return plain;
    } catch (RuntimeException refused) {
      try {
        Expression typed = ExpressionParser.fromJson(node.toString(), schema);
        Binder.bind(schema.asStruct(), Expressions.rewriteNot(typed), caseSensitive);
        return typed;
      } catch (RuntimeException again) {
        throw refused;
      }
    }
  }

  private JsonNode boundJson(Expression expression, Schema schema, boolean caseSensitive)
      throws Exception {
    Expression bound =
        Binder.bind(schema.asStruct(), Expressions.rewriteNot(expression), caseSensitive);
    return mapper.readTree(ExpressionParser.toJson(bound));
  }

  private void tasks(Table table, JsonNode scan, ArrayNode tasks) throws Exception {
    Schema schema = schemaOf(table, scan);
    boolean caseSensitive = scan.get("case-sensitive").asBoolean();
    Expression filter = parsed(scan.get("filter"), schema, caseSensitive);
    CloseableIterable planned = planned(table, scan, filter, caseSensitive);
    try {
      for (Iterator it = planned.iterator(); it.hasNext(); ) {
        FileScanTask task = (FileScanTask) it.next();
        ObjectNode node = tasks.addObject();
        node.put("path", task.file().location());
        ArrayNode deletes = node.putArray("deletes");
        for (Iterator each = task.deletes().iterator(); each.hasNext(); ) {
          DeleteFile delete = (DeleteFile) each.next();
          ArrayNode key = deletes.addArray();
          key.add(delete.location());
          key.add(delete.contentOffset());
        }
        node.set("residual", boundJson(task.residual(), schema, caseSensitive));
      }
    } finally {
      planned.close();
    }
  }

  private CloseableIterable planned(
      Table table, JsonNode scan, Expression filter, boolean caseSensitive) {
    if (scan.hasNonNull("end-snapshot-id")) {
      IncrementalAppendScan appended = table.newIncrementalAppendScan();
      appended = (IncrementalAppendScan) appended.planWith(inPlace);
      appended = (IncrementalAppendScan) appended.filter(filter);
      appended = (IncrementalAppendScan) appended.caseSensitive(caseSensitive);
      appended =
          (IncrementalAppendScan) appended.toSnapshot(scan.get("end-snapshot-id").asLong());
      if (scan.hasNonNull("start-snapshot-id")) {
        long start = scan.get("start-snapshot-id").asLong();
        appended = (IncrementalAppendScan) appended.fromSnapshotExclusive(start);
      }
      return appended.planFiles();
    }
    TableScan current = table.newScan();
    current = (TableScan) current.planWith(inPlace);
    if (scan.hasNonNull("snapshot-id")) {
      long id = scan.get("snapshot-id").asLong();
      current =
          scan.get("use-snapshot-schema").asBoolean()
              ? current.useSnapshot(id)
              : current.useRef("at-" + id);
    }
    current = (TableScan) current.caseSensitive(caseSensitive);
    return ((TableScan) current.filter(filter)).planFiles();
  }

  /** Commits files to a branch of the table at a metadata file; gives the next metadata file. */
  public String write(String location, String branch, String data, String deletes)
      throws Exception {
    Written operations = new Written(io, TableMetadataParser.read(io, location));
    Table table = new BaseTable(operations, "written");
    List added = files(data, table.specs());
    List deleted = files(deletes, table.specs());
    if (deleted.isEmpty()) {
      AppendFiles append = (AppendFiles) table.newAppend().toBranch(branch);
      for (int at = 0; at < added.size(); at++) {
        append.appendFile((DataFile) added.get(at));
      }
      append.commit();
    } else {
      RowDelta delta = (RowDelta) table.newRowDelta().toBranch(branch);
      for (int at = 0; at < added.size(); at++) {
        delta.addRows((DataFile) added.get(at));
      }
      for (int at = 0; at < deleted.size(); at++) {
        delta.addDeletes((DeleteFile) deleted.get(at));
      }
      delta.commit();
    }
    return operations.current().metadataFileLocation();
  }

  private List files(String documents, Map specs) throws Exception {
    List found = new ArrayList();
    for (Iterator it = mapper.readTree(documents).elements(); it.hasNext(); ) {
      found.add(file((ObjectNode) it.next(), specs));
    }
    return found;
  }

  /** Partition values that are not finite have no JSON: they come as text. */
  private ContentFile file(ObjectNode document, Map specs) {
    JsonNode partition = document.get("partition");
    ArrayNode finite = document.putArray("partition");
    for (int at = 0; at < partition.size(); at++) {
      finite.add((JsonNode) (notFinite((JsonNode) partition.get(at)) == null ? (JsonNode) partition.get(at) : null));
    }
    ContentFile file = ContentFileParser.fromJson(document, specs);
    PartitionSpec spec = (PartitionSpec) specs.get(Integer.valueOf(file.specId()));
    for (int at = 0; at < partition.size(); at++) {
      Double value = notFinite((JsonNode) partition.get(at));
      if (value != null) {
        boolean isFloat = spec.javaClasses()[at] == Float.class;
        Object own = isFloat ? (Object) Float.valueOf(value.floatValue()) : (Object) value;
        file.partition().set(at, own);
      }
    }
    return file;
  }

  private Double notFinite(JsonNode value) {
    String text = value.isTextual() ? value.asText() : "";
    if (text.equals("nan")) {
      return Double.valueOf(Double.NaN);
    } else if (text.equals("inf")) {
      return Double.valueOf(Double.POSITIVE_INFINITY);
    }
    return text.equals("-inf") ? Double.valueOf(Double.NEGATIVE_INFINITY) : null;
  }

  /** A table of files alone: each commit writes its metadata beside the last. */
  static class Written implements TableOperations {
    private final FileIO io;
    private TableMetadata current;

    Written(FileIO io, TableMetadata current) {
      this.io = io;
      this.current = current;
    }

    public TableMetadata current() {
      return current;
    }

    public TableMetadata refresh() {
      return current;
    }

    public void commit(TableMetadata base, TableMetadata metadata) {
      String next = metadataFileLocation(java.util.UUID.randomUUID() + ".metadata.json");
      TableMetadataParser.overwrite(metadata, io.newOutputFile(next));
      this.current = TableMetadataParser.read(io, next);
    }

    public FileIO io() {
      return io;
    }

    public String metadataFileLocation(String name) {
      return current.location() + "/metadata/" + name;
    }

    public LocationProvider locationProvider() {
      return LocationProviders.locationsFor(current.location(), current.properties());
    }
  }
}

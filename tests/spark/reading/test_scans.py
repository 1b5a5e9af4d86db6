"""Both readers return the same rows for a scan, which reads one snapshot in one schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile, EqualityDeleteFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import storage_of
from frazil.datafiles.reading.scan_tasks import ScanTask, task_of
from frazil.datafiles.reading.task_reader import read_task
from frazil.spark.core.context import Context, Settings
from frazil.spark.reading import catalog_entries, frame_scans, jar_reader
from frazil.spark.schema.spark_types import spark_schema
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.expressions import Expression
from frazil.wire.filter_builders import bucket, col

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDRESS = ("_file", "_pos", "_spec_id")
LINEAGE = ("_row_id", "_last_updated_sequence_number")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Readers:
    """A table of this test and both readers."""

    spark: SparkSession
    client: Client
    jar: Context
    own: Context
    stock: str
    namespace: str

    @property
    def name(self) -> str:
        """Return the table's name in stock Spark."""
        return f"{self.stock}.{self.namespace}.t"

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.format(t=self.name))

    def table(self) -> Table:
        return self.client.load_table(f"{self.namespace}.t")

    def same(self, table: Table, **options: Any) -> Rows:
        """Return the rows after checking that both readers agree."""
        found = rows(frame_scans.scan(self.own, table, **options))
        assert found == rows(frame_scans.scan(self.jar, table, **options))
        return found

    def stock_rows(self, select: str = "*", where: str = "true") -> Rows:
        return rows(self.spark.sql(f"SELECT {select} FROM {self.name} WHERE {where}"))


def rows(frame: DataFrame) -> Rows:
    return [plain(row) for row in sorted(map(tuple, frame.collect()), key=repr)]


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace NaN by a text, because NaN is not equal to itself."""
    return tuple("NaN" if value != value else value for value in row)


@pytest.fixture
def readers(
    spark: SparkSession, client: Client, server_url: str, stock: str, namespace: str
) -> Readers:
    def context(reader: str) -> Context:
        return Context(spark, client, Settings(reader=reader), server_url)

    return Readers(spark, client, context("jar"), context("own"), stock, namespace)


# --- deletes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_position_deletes_and_odd_partitions(readers: Readers, version: int) -> None:
    """Version 2 uses position delete files, version 3 uses deletion vectors."""
    readers.sql(
        "CREATE TABLE {t} (id BIGINT, name STRING, size DOUBLE) USING iceberg"
        " PARTITIONED BY (name) TBLPROPERTIES"
        f" ('format-version'='{version}', 'write.delete.mode'='merge-on-read')",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id,"
        " element_at(array('plain', 'a b', 'ü%/=', NULL), cast(id % 4 + 1 as int)),"
        " CASE WHEN id < 4 THEN double('nan') ELSE id / 2 END FROM range(20)",
        "DELETE FROM {t} WHERE id IN (1, 4, 7, 8)",
    )
    table = readers.table()
    metadata = (*ADDRESS, *(LINEAGE if version == 3 else ()))
    found = readers.same(table, metadata_columns=metadata)
    assert found == readers.stock_rows(f"*, {', '.join(metadata)}")
    assert len(found) == 16
    tasks = tasks_of(table)
    assert {row[3] for row in found} == set(tasks)
    # Files without deletes and with plain paths are read by the JVM, which must also report
    # `_file`.
    filter = (col("size") > 4) & (col("name") != "a b")
    found = readers.same(table, filter=filter, columns=["id"], metadata_columns=ADDRESS)
    where = "size > 4 AND NOT isnan(size) AND NOT name <=> 'a b'"
    assert found == readers.stock_rows(f"id, {', '.join(ADDRESS)}", where)
    assert arrow_rows(table) == readers.stock_rows("id, name, _file, _pos")


def tasks_of(table: Table) -> dict[str, ScanTask]:
    """Plan every file of a table."""
    plan = table.plan(use_snapshot_schema=False, sequence_numbers=True)
    return {task.data_file.file_path: task_of(task) for task in plan.tasks}


def arrow_rows(table: Table) -> Rows:
    """Return what executors read, without Spark."""
    columns = StructType(table.schema.fields[:2])
    found: Rows = []
    for task in tasks_of(table).values():
        for batch in read_task(
            task,
            PortableTable.of(table),
            storage_of(table.config),
            columns,
            metadata_columns=("_file", "_pos"),
        ):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return sorted(found, key=repr)


def test_equality_deletes_apply_to_what_was_there_before(readers: Readers) -> None:
    readers.sql(
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg"
        " TBLPROPERTIES ('format-version'='2')",
        "INSERT INTO {t} VALUES (1, 'a'), (2, NULL), (2, 'b'), (3, NULL)",
    )
    table = readers.table()
    keys = pa.schema([field("id", pa.int64(), 1), field("name", pa.string(), 2)])
    path = write(table, pa.table({"id": [2, 1], "name": [None, "z"]}, keys))
    deletes = EqualityDeleteFile.from_parquet(path, table, columns=["id", "name"])
    table.row_delta(add_deletes=[deletes])
    readers.sql("INSERT INTO {t} VALUES (2, NULL)")
    table = readers.table()
    assert readers.same(table) == [(1, "a"), (2, "b"), (2, None), (3, None)]
    assert readers.same(table, columns=["id"], filter=col("name").is_null()) == [(2,), (3,)]


def field(name: str, type_: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(field_id)})


def write(table: Table, rows: pa.Table, name: str = "written") -> str:
    """Write a Parquet file into the table's folder."""
    path = Path(table.location.removeprefix("file://"), "data", f"{name}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return f"file://{path}"


# --- schemas --------------------------------------------------------------------------------------


def test_columns_are_those_of_their_ids_whatever_they_are_called(readers: Readers) -> None:
    readers.sql(
        "CREATE TABLE {t} (id INT, a BIGINT, b STRING, p STRUCT<x: INT, y: STRING>, f FLOAT)"
        " USING iceberg PARTITIONED BY (truncate(10, id)) TBLPROPERTIES"
        " ('format-version'='2', 'write.delete.mode'='merge-on-read')",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, id * 10, 'old',"
        " named_struct('x', id, 'y', 'w'), id FROM range(6)",
    )
    old = readers.table()
    readers.sql(
        "ALTER TABLE {t} RENAME COLUMN a TO c",
        "ALTER TABLE {t} ADD COLUMN a STRING",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
        "ALTER TABLE {t} RENAME COLUMN p.x TO z",
        "ALTER TABLE {t} ADD COLUMN p.x STRING",
        "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, c)",
        "ALTER TABLE {t} DROP COLUMN b",
        "ALTER TABLE {t} ADD COLUMN b BIGINT",
    )
    table = readers.table()
    # Right after the change, no snapshot uses the new schema.
    expected = readers.stock_rows()
    assert readers.same(table) == expected
    assert readers.same(table, snapshot_id=table.head(), schema=table.schema) == expected
    for filter in (col("a").is_null(), col("b").is_null(), col("c") >= 20, col("p.z") == 1):
        found = readers.same(table, filter=filter, columns=["id", "c"], schema=table.schema)
        assert len(found) == {"c": 4, "p.z": 1}.get(name_of(filter), 6)
        assert found == readers.same(
            table, filter=filter, columns=["id", "c"], snapshot_id=old.head(), schema=table.schema
        )
    # Spark pushes its own filters down to the scan; they must not refer to the wrong columns.
    for context in (readers.jar, readers.own):
        frame = frame_scans.scan(context, table, snapshot_id=table.head(), schema=table.schema)
        assert frame.where("a IS NULL AND b IS NULL AND p.x IS NULL AND c > 0").count() == 5
    # A scan of the old snapshot uses its own column names.
    filter = (col("a") > 10) & (col("b") == "old")
    found = readers.same(
        table, snapshot_id=old.head(), filter=filter, columns=["id", "a", "b", "f"]
    )
    assert found == [(number, number * 10, "old", float(number)) for number in range(2, 6)]
    readers.sql(
        "INSERT INTO {t} VALUES (10, 7, named_struct('z', 1, 'y', 'v', 'x', 'u'), 1.5, 'text', 9)",
        "DELETE FROM {t} WHERE c = 30",
    )
    table = readers.table()
    assert readers.same(table, metadata_columns=ADDRESS) == readers.stock_rows(
        f"*, {', '.join(ADDRESS)}"
    )
    assert readers.same(table, filter=col("a") == "text", columns=["id"]) == [(10,)]


def test_an_old_partition_by_a_column_that_is_gone(readers: Readers) -> None:
    readers.sql(
        "CREATE TABLE {t} (id BIGINT, day DATE) USING iceberg PARTITIONED BY (day)",
        "INSERT INTO {t} VALUES (1, DATE'2026-05-01')",
    )
    old = readers.table()
    readers.sql("ALTER TABLE {t} DROP PARTITION FIELD day", "ALTER TABLE {t} DROP COLUMN day")
    table = readers.table()
    assert readers.same(table) == [(1,)]
    filter = col("day") == "2026-05-01"
    found = frame_scans.scan(readers.own, table, snapshot_id=old.head(), filter=filter)
    assert rows(found) == [(1, date(2026, 5, 1))]
    # Iceberg's runtime no longer knows the type of the partitions.
    with pytest.raises(BadRequest, match="column day, which was dropped"):
        frame_scans.scan(readers.jar, table, snapshot_id=old.head())


def name_of(expression: Expression) -> str:
    name: str = expression.to_json()["term"]
    return name


def test_types_that_only_arrow_or_only_the_jar_reads(readers: Readers) -> None:
    columns = {
        "id": "long",
        "token": "uuid",
        "four": "fixed[4]",
        "price": "decimal(20, 3)",
        "local": "timestamp",
        "instant": "timestamptz",
        "kind": "string",
    }
    fields = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(columns.items(), start=1)
    ]
    fields[-1] |= {"initial-default": "plain", "write-default": "plain"}
    inner = {"type": "struct", "fields": [{**fields[0], "id": 11, "name": "x"}]}
    nested = {"type": "list", "element-id": 10, "element-required": False, "element": inner}
    fields.append({"id": 9, "name": "points", "required": False, "type": nested})
    table = readers.client.create_table(
        f"{readers.namespace}.t",
        {"type": "struct", "fields": fields},
        properties={"format-version": "3"},
    )
    readers.sql(
        "INSERT INTO {t} VALUES (1, '00000000-0000-0000-0000-0000000000ff', X'01020304', 1.5,"
        " TIMESTAMP_NTZ'2026-05-01 01:02:03.000004', TIMESTAMP'1960-05-01 01:02:03.000004', 'odd',"
        " array(named_struct('x', 1), NULL)), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    short = pa.table({"id": [3]}, pa.schema([field("id", pa.int64(), 1)]))
    readers.table().append_files([write(table, short)])
    table = readers.table()
    found = readers.same(table)
    assert found == readers.stock_rows()
    assert [(row[0], row[6]) for row in found] == [(1, "odd"), (2, None), (3, "plain")]
    assert found[0][1] == "00000000-0000-0000-0000-0000000000ff"
    filter = col("token") == "00000000-0000-0000-0000-0000000000ff"
    assert readers.same(table, filter=filter, columns=["id"]) == [(1,)]
    assert readers.same(table, filter=col("kind") == "plain", columns=["id"]) == [(3,)]


def test_nested_columns_through_the_jvm(readers: Readers, caplog: pytest.LogCaptureFixture) -> None:
    readers.sql(
        "CREATE TABLE {t} (id BIGINT COMMENT 'the key', p STRUCT<x: INT, y: STRING>,"
        " l ARRAY<STRUCT<q: INT>>, m MAP<STRING, STRUCT<v: FLOAT>>) USING iceberg",
        "INSERT INTO {t} VALUES (1, named_struct('x', 1, 'y', 'a'), array(named_struct('q', 2)),"
        " map('k', named_struct('v', float(3)))), (2, NULL, array(), NULL)",
        "ALTER TABLE {t} RENAME COLUMN p.x TO z",
        "ALTER TABLE {t} ADD COLUMN l.element.r STRING AFTER q",
        "ALTER TABLE {t} ALTER COLUMN m.value.v TYPE DOUBLE",
    )
    table = readers.table()
    with caplog.at_level(logging.INFO, "frazil.spark"):
        frame = frame_scans.scan(readers.own, table)
    assert "files through the JVM, 0 through Arrow" in caplog.text
    # Field ids are internal to the reader and must not reach code that writes the frame elsewhere.
    assert frame.schema == spark_schema(table.schema)
    assert frame.schema == frame_scans.scan(readers.jar, table).schema
    assert readers.same(table) == readers.stock_rows()
    filter = col("p.z").not_null()
    assert readers.same(table, filter=filter, columns=["l"]) == [([Row(q=2, r=None)],)]


def test_a_type_that_the_jar_cannot_read_is_read_by_us(
    readers: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    fields = [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "at", "required": False, "type": "timestamp_ns"},
    ]
    table = readers.client.create_table(
        f"{readers.namespace}.t",
        {"type": "struct", "fields": fields},
        properties={"format-version": "3"},
    )
    schema = pa.schema(
        [replace_nullable(field("id", pa.int64(), 1)), field("at", pa.timestamp("ns"), 2)]
    )
    table.append_files([write(table, pa.table({"id": [1], "at": [1_500]}, schema))])
    table = readers.table()
    auto = replace(readers.jar, settings=Settings())
    with caplog.at_level(logging.DEBUG, "frazil.spark"):
        assert rows(frame_scans.scan(auto, table)) == [(1, datetime(1970, 1, 1, 0, 0, 0, 1))]
    assert "column at, which has the type timestamp_ns" in caplog.text
    with pytest.raises(BadRequest, match="`jar` was requested, but Iceberg's runtime cannot read"):
        frame_scans.scan(readers.jar, table)


def replace_nullable(required: pa.Field) -> pa.Field:
    return required.with_nullable(False)


def test_files_without_ids_are_read_by_the_name_mapping(readers: Readers) -> None:
    readers.sql(
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES"
        " ('schema.name-mapping.default'="
        '\'[{{"field-id": 1, "names": ["key"]}}, {{"field-id": 2, "names": ["name"]}}]\')'
    )
    table = readers.table()
    path = write(table, pa.table({"name": ["a", "b"], "key": [1, 2]}))
    table.append_files([DataFile.from_parquet(path, table)])
    assert readers.same(readers.table()) == [(1, "a"), (2, "b")]


# --- moments --------------------------------------------------------------------------------------


def test_snapshots_refs_and_what_was_appended(readers: Readers) -> None:
    readers.sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    empty = readers.table()
    for context in (readers.jar, readers.own):
        frame = frame_scans.scan(context, empty, metadata_columns=("_file", "_pos"))
        assert frame.columns == ["id", "_file", "_pos"]
        assert frame.collect() == []
    readers.sql("INSERT INTO {t} VALUES (1)")
    first = readers.table()
    first.create_tag("before")
    readers.sql(
        "ALTER TABLE {t} ADD COLUMN name STRING",
        "INSERT INTO {t} VALUES (2, 'b')",
        "DELETE FROM {t} WHERE id = 1",
        "INSERT INTO {t} VALUES (3, 'c')",
    )
    table = readers.table()
    table.create_branch("audit", first.head())
    table = readers.table()
    found = scan_of(readers, table)
    assert found() == [(2, "b"), (3, "c")]
    assert found(snapshot=first.head()) == [(1,)]
    assert found(ref="before") == [(1,)]
    assert found(ref="audit") == [(1, None)]
    assert found(ref="main") == [(2, "b"), (3, "c")]
    assert found(from_snapshot=first.head()) == [(2, "b"), (3, "c")]
    assert found(from_snapshot=first.head(), to_snapshot=first.head()) == []
    assert found(to_snapshot=first.head()) == [(1, None)]
    with pytest.raises(NotFound, match="no branch or tag nothing; its refs: audit, before, main"):
        found(ref="nothing")
    with pytest.raises(BadRequest, match="one of snapshot, timestamp and ref"):
        found(ref="before", snapshot=first.head())


def test_the_snapshot_of_a_moment(readers: Readers) -> None:
    readers.sql("CREATE TABLE {t} (id BIGINT) USING iceberg", "INSERT INTO {t} VALUES (1)")
    first = readers.table()
    readers.sql("INSERT INTO {t} VALUES (2)")
    table = readers.table()
    at_ms = first.snapshots[0].timestamp_ms
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    # The session's time zone is UTC, so texts and local times are in UTC too.
    local, text = moment.replace(tzinfo=None), f"{moment:%Y-%m-%d %H:%M:%S.%f}"
    for timestamp in (at_ms, moment, local, text):
        frame = frame_scans.scan_of(readers.own, table, timestamp=timestamp)
        assert rows(frame) == [(1,)]
    assert scan_of(readers, table)(timestamp=moment + timedelta(days=1)) == [(1,), (2,)]
    with pytest.raises(NotFound, match="had no snapshot at"):
        frame_scans.scan_of(readers.own, table, timestamp=moment - timedelta(days=1))
    with pytest.raises(BadRequest, match="not a timestamp"):
        frame_scans.scan_of(readers.own, table, timestamp="yesterday or so")


def scan_of(readers: Readers, table: Table) -> Callable[..., Rows]:
    """Return a function that runs a user's scan and checks that the readers agree."""

    def found(**options: Any) -> Rows:
        contexts = [readers.own]
        if options.keys() != {"to_snapshot"}:
            contexts.append(readers.jar)
        first, *others = (
            rows(frame_scans.scan_of(context, table, **options)) for context in contexts
        )
        assert all(other == first for other in others)
        return first

    return found


def test_a_frame_keeps_its_snapshot(readers: Readers) -> None:
    readers.sql("CREATE TABLE {t} (id BIGINT) USING iceberg", "INSERT INTO {t} VALUES (1)")
    table = readers.table()
    frames = [frame_scans.scan(context, table) for context in (readers.jar, readers.own)]
    readers.sql("INSERT INTO {t} VALUES (2)")
    assert [rows(frame) for frame in frames] == [[(1,)], [(1,)]]
    assert readers.same(readers.table()) == [(1,), (2,)]


# --- what is asked for ----------------------------------------------------------------------------


def test_conditions_in_all_their_forms(readers: Readers) -> None:
    readers.sql(
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg PARTITIONED BY (bucket(4, id))",
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, NULL)",
    )
    table = readers.table()
    found = scan_of(readers, table)
    conditions = ("ID > 1 AND name IS NOT NULL", F.col("name") == "b", col("id") == 2)
    for condition in conditions:
        assert found(filter=condition) == [(2, "b")]
        assert found(filter=condition, columns=["NAME"]) == [("b",)]
        assert found(filter=condition, columns=[], metadata_columns=["_spec_id"]) == [(0,)]
    assert found(filter="length(name) = 1", columns=["id"]) == [(1,), (2,)]
    # An inexact scan only prunes files; it does not test transforms on single rows.
    for context in (readers.jar, readers.own):
        chosen = [
            frame_scans.scan(context, table, filter=bucket(4, "id") == 0, exact=exact)
            for exact in (True, False)
        ]
        exact, inexact = map(rows, chosen)
        assert set(exact) <= set(inexact)
        assert [row[0] for row in exact] == [1, 2]
    with pytest.raises(BadRequest, match="has no column nobody; it has id, name"):
        found(columns=["nobody"])
    with pytest.raises(BadRequest, match="_row_id exists since format version 3"):
        found(metadata_columns=["_row_id"])
    with pytest.raises(BadRequest, match="metadata column _partition"):
        found(metadata_columns=["_partition"])


def test_names_that_need_quotes(readers: Readers) -> None:
    outer = f"{readers.namespace} x"
    readers.client.create_namespace((outer,))
    readers.client.create_namespace((outer, "in.ner"))
    fields = [{"id": 1, "name": "a.`b", "required": False, "type": "long"}]
    schema = {"type": "struct", "fields": fields}
    name = (outer, "in.ner", "t-1 `q`")
    table = readers.client.create_table(name, schema)
    data = pa.table({"a.`b": [1, 2]}, pa.schema([field("a.`b", pa.int64(), 1)]))
    table.append_files([write(table, data, "x [1] {2} ü%20")])
    table = readers.client.load_table(name)
    found = readers.same(table, filter=col("a.`b") > 1, metadata_columns=["_file"])
    assert found == [(2, next(iter(tasks_of(table))))]
    assert readers.same(table) == [(1,), (2,)]


# --- who reads ------------------------------------------------------------------------------------


def test_without_the_jar_we_read_and_say_so_once(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    readers.sql("CREATE TABLE {t} (id BIGINT) USING iceberg", "INSERT INTO {t} VALUES (1)")
    table = readers.table()
    monkeypatch.setattr(catalog_entries, "CATALOG_CLASS", "org.example.Nobody")
    # A different address gets its own catalog entry, as in a session without the jar.
    elsewhere = replace(readers.jar, settings=Settings(), uri=f"{readers.jar.uri}/")
    with caplog.at_level(logging.INFO, "frazil.spark"):
        assert rows(frame_scans.scan(elsewhere, table)) == [(1,)]
        assert rows(frame_scans.scan(elsewhere, table)) == [(1,)]
    said = [record.getMessage() for record in caplog.records if "reads go" in record.getMessage()]
    (only,) = said
    assert only.startswith("reads go through our own reader: Iceberg's runtime is not on")
    with pytest.raises(BadRequest, match="the reader `jar` was requested"):
        frame_scans.scan(replace(elsewhere, settings=Settings(reader="jar")), table)


def test_the_entry_of_the_jar_has_no_cache(readers: Readers) -> None:
    context = replace(readers.jar, properties={"header.X-Test": "1"})
    readers.sql("CREATE TABLE {t} (id BIGINT) USING iceberg")
    name = jar_reader.full_name(context, readers.table()).split(".")[0].strip("`")
    key = f"spark.sql.catalog.{name}"
    settings: Mapping[str, str | None] = {
        part: readers.spark.conf.get(f"{key}.{part}")
        for part in ("type", "uri", "cache-enabled", "header.X-Test")
    }
    assert settings == {
        "type": "rest",
        "uri": context.uri,
        "cache-enabled": "false",
        "header.X-Test": "1",
    }
    assert jar_reader.full_name(context, readers.table()).endswith(f"`.`{readers.namespace}`.`t`")

"""Spark's own readers and writers work on our tables through `format("frazil")`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.row_partitions import Partitioner, transformed
from frazil.spark.schema.spark_types import spark_schema
from frazil.spark.streams import source_writers
from frazil.spark.streams.source_options import SourceOptions, source_options
from frazil.spark.streams.source_writers import TableStreamWriter, TableWriter
from frazil.values.transforms import apply, parse_transform
from frazil.values.type_json import parse_struct
from frazil.values.types import Type
from frazil.wire.errors import BadRequest, CommitStateUnknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.client.catalog_client import Client

MANY_TYPES = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "i", "type": "int", "required": False},
        {"id": 2, "name": "l", "type": "long", "required": False},
        {"id": 3, "name": "d", "type": "date", "required": False},
        {"id": 4, "name": "ts", "type": "timestamp", "required": False},
        {"id": 5, "name": "tz", "type": "timestamptz", "required": False},
        {"id": 6, "name": "s", "type": "string", "required": False},
        {"id": 7, "name": "b", "type": "binary", "required": False},
        {"id": 8, "name": "dec", "type": "decimal(9, 2)", "required": False},
        {"id": 9, "name": "u", "type": "uuid", "required": False},
        {"id": 10, "name": "f", "type": "fixed[3]", "required": False},
        {"id": 11, "name": "ns", "type": "timestamp_ns", "required": False},
        {
            "id": 12,
            "name": "inner",
            "required": False,
            "type": {
                "type": "struct",
                "fields": [{"id": 13, "name": "x", "type": "long", "required": False}],
            },
        },
    ],
}


# --- transforms of Arrow columns ------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1)
MOMENTS = [datetime(2026, 5, 1, 13, 30, 1, 5), datetime(1969, 12, 31, 23, 59, 59, 1), EPOCH, None]


def internal(type_: Type, value: Any) -> Any:
    """Return the value in the form of `frazil.values`, computed independently of that code."""
    name = str(type_)
    if value is None:
        return None
    if name == "date":
        return (value - date(1970, 1, 1)).days
    if name.startswith("timestamp"):
        since = value.replace(tzinfo=None) - EPOCH
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return micros * 1000 if name.endswith("_ns") else micros
    return UUID(value) if name == "uuid" else value


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [0, 1, -1, 34, 2**31 - 1, -(2**31) + 5, None]),
    "l": (pa.int64(), [0, 34, -7, 2**63 - 1, -(2**63) + 20, None]),
    "d": (pa.date32(), [date(2017, 11, 16), date(1969, 12, 31), date(1, 1, 1), None]),
    "ts": (pa.timestamp("us"), MOMENTS),
    "tz": (pa.timestamp("us", "UTC"), [m and m.replace(tzinfo=UTC) for m in MOMENTS]),
    "ns": (pa.timestamp("us"), MOMENTS),
    "s": (pa.string(), ["iceberg", "", "ä€😀x", "abcdefgh", None]),
    "b": (pa.binary(), [b"\x00\x01\x02\x03", b"", b"abcdefgh", None]),
    "dec": (pa.decimal128(9, 2), [Decimal("14.20"), Decimal("-0.05"), Decimal("0.00"), None]),
    "u": (pa.string(), ["f79c3e09-677c-4bbd-a479-3f349cb785e7", None]),
    "f": (pa.binary(), [b"abc", b"\x00\x00\x00", None]),
}
SCHEMA = parse_struct(MANY_TYPES, "schema")
TYPES = {field.name: field.type for field in SCHEMA.fields}


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        (name, transform)
        for name in VALUES
        for transform in ("bucket[16]", "truncate[3]", "year", "month", "day", "hour")
        if parse_transform(transform).accepts(TYPES[name])
    ],
)
def test_columns_are_transformed_as_values_are(name: str, transform: str) -> None:
    arrow_type, values = VALUES[name]
    parsed, type_ = parse_transform(transform), TYPES[name]
    found = transformed(parsed, type_, pa.array(values, arrow_type)).to_pylist()
    expected = [apply(parsed, type_, internal(type_, value)) for value in values]
    if transform == "day":
        found = [None if one is None else (one - date(1970, 1, 1)).days for one in found]
    assert found == expected


def test_a_partitioner_finds_nested_and_dropped_sources() -> None:
    spec = {
        "spec-id": 0,
        "fields": [
            {"source-id": 13, "field-id": 1000, "name": "x_bucket", "transform": "bucket[4]"},
            {"source-id": 99, "field-id": 1001, "name": "gone", "transform": "void"},
            {"source-id": 6, "field-id": 1002, "name": "s", "transform": "identity"},
        ],
    }
    metadata = {
        "schemas": [MANY_TYPES],
        "current-schema-id": 0,
        "partition-specs": [spec],
        "default-spec-id": 0,
    }
    rows = pa.record_batch(
        {
            "inner": pa.array([{"x": 34}, None, {"x": None}]),
            "s": pa.array(["a", None, "b"]),
        }
    )
    found = Partitioner(PortableTable("t", metadata, {}))(rows)
    bucket = apply(parse_transform("bucket[4]"), TYPES["l"], 34)
    assert found.column("_partition_0").to_pylist() == [bucket, None, None]
    assert found.column("_partition_1").to_pylist() == [None, None, None]
    assert found.column("_partition_2").to_pylist() == ["a", None, "b"]


# --- options --------------------------------------------------------------------------------------


def test_options_are_read_in_any_case_and_defaults_give_way() -> None:
    found = source_options(
        {"Table": "ns.t", "SNAPSHOT-ID": "7", "columns": "a, b", "s3.endpoint": "http://e"},
        {"uri": "http://c", "token": "k", "columns": "z"},
    )
    assert (found.uri, found.table, found.snapshot_id) == ("http://c", "ns.t", 7)
    assert found.columns == ("a", "b")
    assert found.properties == {"token": "k", "s3.endpoint": "http://e"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uri": "u"}, "name the table"),
        ({"table": "t"}, "name the catalog"),
        ({"uri": "u", "table": "n.t", "snapshots-id": "7"}, "no option snapshots-id"),
        ({"uri": "u", "table": "n.t", "snapshot-id": "x"}, "snapshot-id: 'x'"),
        ({"uri": "u", "table": "n.t", "as-of-timestamp": "noon"}, "as-of-timestamp: 'noon'"),
        ({"uri": "u", "table": "n.t", "overwrite-mode": "all"}, "static, dynamic"),
        ({"uri": "u", "table": "[1"}, "list of names"),
    ],
    ids=["table", "uri", "unknown", "number", "moment", "choice", "list"],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        source_options(options, {})


# --- through Spark --------------------------------------------------------------------------------

ROWS = [(1, "a", date(2026, 5, 1)), (2, "b", date(2026, 6, 2)), (3, None, None)]
SHOP = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "item", "type": "string", "required": False},
        {"id": 3, "name": "day", "type": "date", "required": False},
    ],
}
BY_BUCKET = {
    "spec-id": 0,
    "fields": [
        {"source-id": 1, "field-id": 1000, "name": "id_bucket", "transform": "bucket[4]"},
        {"source-id": 3, "field-id": 1001, "name": "month", "transform": "month"},
    ],
}


@pytest.fixture
def table(client: Client, namespace: str) -> str:
    """Create an empty partitioned table."""
    client.create_table(f"{namespace}.t", SHOP, partition_spec=BY_BUCKET)
    return f"{namespace}.t"


@pytest.fixture
def source_spark(spark: SparkSession, server_url: str) -> SparkSession:
    from frazil.spark.streams.data_source import register

    # `type` stands in configurations of catalogs, and is no option of the source.
    register(spark, server_url, {"type": "rest", "s3.region": "eu-1"})
    return spark


def frame(spark: SparkSession, rows: list[tuple[Any, ...]] = ROWS) -> DataFrame:
    return spark.createDataFrame(rows, "id long, item string, day date")


def read(spark: SparkSession, table: str, **options: str) -> list[tuple[Any, ...]]:
    found = spark.read.format("frazil").options(**options).load(table).collect()
    return sorted(map(tuple, found), key=str)


def live_files(client: Client, table: str) -> list[str]:
    return sorted(file.file_path for file in client.load_table(table).plan().files)


def written_files(client: Client, table: str) -> list[str]:
    """Return the files in the table's data folder."""
    from frazil.datafiles.reading.file_storage import Storage

    return Storage().list(f"{client.load_table(table).location}/data")


def test_frames_are_appended_overwritten_and_read(
    source_spark: SparkSession, client: Client, table: str
) -> None:
    writer = frame(source_spark).write.format("frazil").option("snapshot-property.by", "test")
    writer.mode("append").save(table)
    first = client.load_table(table).snapshot("main")
    assert (first.operation, first.summary["by"]) == ("append", "test")
    assert read(source_spark, table) == sorted(ROWS, key=str)
    assert live_files(client, table) == written_files(client, table)

    frame(source_spark, [(4, "d", None)]).write.format("frazil").mode("overwrite").save(table)
    assert read(source_spark, table) == [(4, "d", None)]
    assert read(source_spark, table, **{"snapshot-id": str(first.snapshot_id)}) == sorted(
        ROWS, key=str
    )
    assert read(source_spark, table, columns="item,id") == [("d", 4)]
    narrow = source_spark.read.format("frazil").schema("item string").load(table)
    assert narrow.collect() == [("d",)]


def test_only_the_frames_partitions_are_replaced_on_request(
    source_spark: SparkSession, client: Client, table: str
) -> None:
    frame(source_spark).write.format("frazil").mode("append").save(table)
    writer = frame(source_spark, [(1, "new", date(2026, 5, 9))]).write.format("frazil")
    writer.option("overwrite-mode", "dynamic").mode("overwrite").save(table)
    assert read(source_spark, table) == sorted([(1, "new", date(2026, 5, 9)), *ROWS[1:]], key=str)


def test_a_frame_shows_the_same_rows_to_every_query(source_spark: SparkSession, table: str) -> None:
    """The plan of one query must not make the next query miss rows."""
    frame(source_spark).write.format("frazil").mode("append").save(table)
    found = source_spark.read.format("frazil").load(table)
    frame(source_spark, [(2, "later", None)]).write.format("frazil").mode("append").save(table)
    assert found.where("id = 2 and item like 'b%'").collect() == [ROWS[1]]
    assert found.where("day > date '2026-05-01' or id = 1").count() == 2


def test_what_does_not_fit_is_refused_before_a_file_is_written(
    source_spark: SparkSession, client: Client, table: str
) -> None:
    wrong = source_spark.createDataFrame([("1", 2.0)], "id string, other double")
    with pytest.raises(Exception, match=r"column id has the type string.*column other is not in"):
        wrong.write.format("frazil").mode("append").save(table)
    assert written_files(client, table) == []
    # Only the rows reveal that a required value is null, but the task's files are still removed.
    null = frame(source_spark, [(5, "x", None), (None, "y", None)]).coalesce(1)
    with pytest.raises(Exception, match="column id is required, but has nulls"):
        null.write.format("frazil").mode("append").save(table)
    assert written_files(client, table) == []
    assert read(source_spark, table) == []


def test_a_refused_commit_leaves_no_file(
    source_spark: SparkSession, client: Client, table: str
) -> None:
    writer = frame(source_spark).write.format("frazil").option("snapshot-property.added-records", 1)
    with pytest.raises(Exception, match="added-records"):
        writer.mode("append").save(table)
    assert written_files(client, table) == []


# --- commits and aborts, as Spark calls them ------------------------------------------------------

SPARK_SCHEMA = spark_schema(parse_struct(SHOP, "schema"))
BATCH: dict[str, list[Any]] = {"id": [1, 2], "item": ["a", None], "day": [date(2026, 5, 1), None]}


def options_for(server_url: str, table: str, **others: str) -> SourceOptions:
    return source_options({"table": table, **others}, {"uri": server_url})


def batches() -> Iterator[pa.RecordBatch]:
    types = [pa.int64(), pa.string(), pa.date32()]
    columns = [pa.array(values, type_) for values, type_ in zip(BATCH.values(), types, strict=True)]
    yield pa.record_batch(columns, names=list(BATCH))


def test_an_abort_behind_a_commit_of_unknown_outcome_keeps_the_files(
    server_url: str, client: Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any) -> Any:
        raise CommitStateUnknown("no answer")

    writer = TableWriter(options_for(server_url, table), SPARK_SCHEMA, overwrite=False)
    message = writer.write(batches())
    monkeypatch.setattr(TableWriter, "_submit", unknown)
    with pytest.raises(CommitStateUnknown):
        writer.commit([message])
    writer.abort([message])
    assert len(written_files(client, table)) == 2


@pytest.mark.parametrize("is_shown", [True, False], ids=["by-history", "by-catalog"])
def test_an_epoch_that_comes_again_is_committed_once(
    server_url: str,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    is_shown: bool,
) -> None:
    ids = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}
    monkeypatch.setattr(source_writers, "task_settings", lambda *_: ids)
    if not is_shown:
        monkeypatch.setattr(source_writers, "is_committed", lambda *_: False)
    for _ in range(2):
        # Spark creates a writer in each process and for each run of the query.
        writing = TableStreamWriter(options_for(server_url, table), SPARK_SCHEMA, False)
        message = writing.write(batches())
        committing = TableStreamWriter(options_for(server_url, table), SPARK_SCHEMA, False)
        committing.commit([message], 0)
    assert len(client.history(table)) == 1
    assert live_files(client, table) == written_files(client, table)
    committing.commit([], 1)
    assert len(client.history(table)) == 1


def test_an_abort_of_failed_tasks_removes_what_others_have_written(
    server_url: str, client: Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = TableWriter(options_for(server_url, table), SPARK_SCHEMA, overwrite=False)
    batch.abort([batch.write(batches()), None])
    assert written_files(client, table) == []
    monkeypatch.setattr(source_writers, "task_settings", lambda *_: {"streaming.sql.batchId": "0"})
    stream = TableStreamWriter(options_for(server_url, table), SPARK_SCHEMA, False)
    message = stream.write(batches())
    stream.abort([message], 0)
    assert len(written_files(client, table)) == 2
    stream.abort([message, None], 0)
    assert written_files(client, table) == []


def test_a_stream_that_is_not_known_leaves_no_file(
    server_url: str, client: Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_writers, "task_settings", lambda *_: {"streaming.sql.batchId": "0"})
    writer = TableStreamWriter(options_for(server_url, table), SPARK_SCHEMA, False)
    with pytest.raises(BadRequest, match="stream-id"):
        writer.commit([writer.write(batches())], 0)
    assert written_files(client, table) == []

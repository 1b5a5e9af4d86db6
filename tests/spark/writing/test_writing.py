"""Both engines write the files that Iceberg requires, with the requested sizes and properties."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frazil.client.catalog_client import Client
from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing import rolling_file
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.write_properties import BloomFilter, delete_file_options, file_options
from frazil.spark.core.borrowed_settings import PARQUET_SETTINGS, session_settings
from frazil.spark.core.context import Context, Settings
from frazil.spark.executor.file_tasks import write_task
from frazil.spark.writing import jvm_writer
from frazil.spark.writing.distribution import ADVISORY_SIZE, layout_of, shuffle_settings
from frazil.spark.writing.frame_writer import WriteOptions, write_rows
from frazil.spark.writing.jvm_writer import objections
from frazil.spark.writing.write_commit import WriteFolder, new_folder
from frazil.wire.errors import BadRequest
from tests.support.spark_facts import facts, order_json, schema_json, spec_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = ["jvm", "arrow"]


def _batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def _write(
    table: PortableTable, tmp_path: Path, batches: Sequence[pa.RecordBatch], **options: Any
) -> list[DataFile]:
    lineage = options.pop("lineage", False)
    writer = ArrowFileWriter(
        table,
        Storage(),
        str(tmp_path / "w"),
        "00000-0-x",
        options=file_options(table.properties, **options),
        lineage=lineage,
    )
    for batch in batches:
        writer.write(batch)
    return [msgspec.json.decode(one, type=DataFile) for one in writer.close()]


def _values(file: DataFile) -> tuple[Any, ...]:
    assert isinstance(file.partition, tuple)
    return file.partition


# --- properties ---------------------------------------------------------------------------------


def test_properties_say_how_files_are_written() -> None:
    properties = {
        "write.target-file-size-bytes": "1000",
        "write.parquet.compression-codec": "GZIP",
        "write.parquet.compression-level": "5",
        "write.parquet.row-group-size-bytes": "99",
        "write.parquet.page-version": "v2",
        "write.delete.parquet.compression-codec": "none",
        "write.parquet.bloom-filter-enabled.column.a.b": "true",
        "write.parquet.bloom-filter-fpp.column.a.b": "0.05",
        "write.parquet.bloom-filter-enabled.column.c": "false",
        "write.parquet.stats-enabled.column.c": "false",
    }
    options = file_options(properties, target_file_size_bytes=7)
    assert (options.target_file_size_bytes, options.codec, options.compression_level) == (
        7,
        "gzip",
        5,
    )
    assert (options.row_group_size_bytes, options.page_version) == (99, "v2")
    assert [(one.column, one.fpp) for one in options.bloom_filters] == [("a.b", 0.05)]
    assert options.without_statistics == ("c",)
    assert delete_file_options(properties)["compression"] == "none"
    assert delete_file_options({})["compression"] == "zstd"
    assert file_options({}).target_file_size_bytes == 512 << 20


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.parquet.compression-codec", "zipp"),
        ("write.parquet.row-group-size-bytes", "-1"),
        ("write.target-file-size-bytes", "big"),
        ("write.parquet.bloom-filter-fpp.column.x", "1.5"),
        ("write.parquet.bloom-filter-enabled.column.x", "yes"),
        ("write.parquet.page-version", "v3"),
        ("write.parquet.compression-level", "high"),
    ],
)
def test_a_property_that_cannot_be_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BadRequest, match=name):
        file_options({name: text})


def test_a_bloom_filter_does_not_outgrow_its_limit() -> None:
    wanted = BloomFilter(column="x", fpp=0.01, ndv=None, max_bytes=1 << 20)
    assert wanted.distinct_values(1000) == 1000
    assert 800_000 < wanted.distinct_values(10**9) < 900_000
    assert BloomFilter(column="x", fpp=0.01, ndv=5, max_bytes=64).distinct_values(10**9) == 5


@pytest.mark.parametrize(
    ("spec", "order", "properties", "command", "expected"),
    [
        ([], [], {}, "write", "none"),
        ([(1, "identity", "p")], [], {}, "write", "hash"),
        ([(1, "void", "p")], [], {}, "write", "none"),
        ([(1, "identity", "p")], [(1, "identity", "asc", "nulls-first")], {}, "write", "range"),
        ([(1, "identity", "p")], [(1, "identity", "asc", "nulls-first")], {}, "merge", "hash"),
        ([], [], {"write.distribution-mode": "hash"}, "write", "none"),
        ([], [], {"write.distribution-mode": "range"}, "write", "none"),
        ([(1, "identity", "p")], [], {"write.distribution-mode": "NONE"}, "write", "none"),
        ([(1, "identity", "p")], [], {"write.update.distribution-mode": "none"}, "update", "none"),
    ],
)
def test_rows_are_distributed_as_iceberg_does(
    spec: Any, order: Any, properties: dict[str, str], command: str, expected: str
) -> None:
    table = facts("/t", {"id": "long"}, spec, order, properties)
    assert layout_of(table, None, command).mode == expected


def test_a_distribution_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"'some' is none of none, hash, range"):
        layout_of(facts("/t", {"id": "long"}), "some")


# --- the Arrow writer, without Spark --------------------------------------------------------------


def test_rows_go_to_a_file_for_each_partition_with_metrics_of_their_own(tmp_path: Path) -> None:
    table = facts(str(tmp_path), {"id!": "long", "x": "double"}, [(1, "truncate[10]", "b")])
    batches = [
        _batch(id=[1, 11, 12], x=[0.5, math.nan, None], _partition_0=[0, 10, 10]),
        _batch(id=[4], x=[math.nan], _partition_0=[0]),
    ]
    files = _write(table, tmp_path, batches, sort_order_id=3)
    first, second = sorted(files, key=_values)
    assert (first.partition, second.partition) == ((0,), (10,))
    assert first.file_path.startswith(f"{tmp_path}/w/b=0/00000-0-x-")
    assert [first.record_count, second.record_count] == [2, 2]
    assert first.sort_order_id == 3
    assert first.nan_value_counts is not None
    assert second.null_value_counts is not None
    assert first.nan_value_counts.get(2) == 1
    assert second.null_value_counts.get(2) == 1
    # The footer must give a reader the same metrics that the writer reported.
    for file in files:
        again = DataFile.from_parquet(
            file.file_path, table, partition=_values(file), sort_order_id=3
        )
        assert again == file


def test_files_are_rolled_by_bytes(tmp_path: Path) -> None:
    import numpy as np

    table = facts(str(tmp_path), {"id": "long", "s": "string"})
    noise = np.random.default_rng(1)
    batches = [
        _batch(
            id=noise.integers(0, 2**62, 5000),
            s=[f"{value:x}" for value in noise.integers(0, 2**62, 5000)],
        )
        for _ in range(8)
    ]
    target = 100_000
    files = _write(table, tmp_path, batches, target_file_size_bytes=target)
    sizes = [Path(file.file_path).stat().st_size for file in files]
    assert sizes == [file.file_size_in_bytes for file in files]
    assert len(files) > 3
    assert all(0.85 * target < size < 1.15 * target for size in sizes[:-1]), sizes
    found = [value for file in files for value in pq.read_table(file.file_path)["id"].to_pylist()]
    assert found == [value for batch in batches for value in batch.column("id").to_pylist()]


def test_row_groups_end_at_their_size(tmp_path: Path) -> None:
    table = facts(
        str(tmp_path), {"id": "long"}, properties={"write.parquet.row-group-size-bytes": "8000"}
    )
    (file,) = _write(table, tmp_path, [_batch(id=list(range(5000)))])
    metadata = pq.read_metadata(file.file_path)
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == (
        [1000] * 5
    )
    assert file.split_offsets is not None
    assert len(file.split_offsets) == 5


def test_partitions_in_any_order_are_not_held_open_without_a_limit(tmp_path: Path) -> None:
    table = facts(
        str(tmp_path),
        {"id": "long"},
        [(1, "identity", "id")],
        properties={"write.parquet.row-group-size-bytes": "100"},
    )
    batch = _batch(id=[1, 2, 3, 1, 2, 3], _partition_0=[1, 2, 3, 1, 2, 3])
    files = _write(table, tmp_path, [batch] * 20)
    assert sum(file.record_count for file in files) == 120
    for file in files:
        assert set(pq.read_table(file.file_path, partitioning=None)["id"].to_pylist()) == set(
            file.partition
        )


def test_dictionaries_and_bloom_filters_are_where_they_pay(tmp_path: Path) -> None:
    table = facts(
        str(tmp_path),
        {"few": "string", "many": "string", "said": "long"},
        properties={
            "write.parquet.bloom-filter-enabled.column.many": "true",
            "write.parquet.dict-encoding-enabled.column.said": "false",
            "write.parquet.stats-enabled.column.few": "false",
            "write.parquet.compression-codec": "snappy",
        },
    )
    rows = 3000
    (file,) = _write(
        table,
        tmp_path,
        [
            _batch(
                few=["a", "b", "c"] * (rows // 3),
                many=[f"{n}" for n in range(rows)],
                said=[1] * rows,
            )
        ],
    )
    group = pq.read_metadata(file.file_path).row_group(0)
    columns = [group.column(at) for at in range(3)]
    assert [column.has_dictionary_page for column in columns] == [True, False, False]
    assert [column.is_stats_set for column in columns] == [False, True, True]
    assert {column.compression for column in columns} == {"SNAPPY"}
    assert [column.bloom_filter_offset is not None for column in columns] == [False, True, False]


def test_bloom_filters_that_pyarrow_cannot_write_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling_file, "has_option", lambda name: False)
    wanted = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    table = facts(str(tmp_path), {"id": "long"}, properties=wanted)
    with pytest.raises(BadRequest, match=r"remove the table's write\.parquet\.bloom-filter"):
        _write(table, tmp_path, [_batch(id=[1])])


def test_every_type_is_written_with_ids_at_every_level(tmp_path: Path) -> None:
    inner = {"id": 12, "name": "x", "required": False, "type": "float"}
    table = facts(
        str(tmp_path),
        {
            "u": "uuid",
            "f": "fixed[3]",
            "n": "timestamptz_ns",
            "d": "decimal(9, 2)",
            "l": {
                "type": "list",
                "element-id": 10,
                "element-required": False,
                "element": {"type": "struct", "fields": [inner]},
            },
            "m": {
                "type": "map",
                "key-id": 20,
                "key": "string",
                "value-id": 21,
                "value-required": False,
                "value": "int",
            },
        },
        [(1, "identity", "u"), (3, "identity", "n")],
        format_version=3,
    )
    text, at = "f79c3e09-677c-4bbd-a479-3f349cb785e7", datetime(2026, 5, 1, tzinfo=UTC)
    batch = pa.record_batch(
        [
            pa.array([text]),
            pa.array([b"abc"]),
            pa.array([at], pa.timestamp("us", "UTC")),
            pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
            pa.array([[{"x": 0.5}, None]], pa.list_(pa.struct([("x", pa.float32())]))),
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            pa.array([text]),
            pa.array([at], pa.timestamp("us", "UTC")),
        ],
        names=["u", "f", "n", "d", "l", "m", "_partition_0", "_partition_1"],
    )
    (file,) = _write(table, tmp_path, [batch])
    assert file.partition == (text, "2026-05-01T00:00:00.000000000+00:00")
    schema = pq.ParquetFile(file.file_path).schema
    shown = [(schema.column(at).path, schema.column(at).physical_type) for at in range(7)]
    assert shown == [
        ("u", "FIXED_LEN_BYTE_ARRAY"),
        ("f", "FIXED_LEN_BYTE_ARRAY"),
        ("n", "INT64"),
        ("d", "INT32"),
        ("l.list.element.x", "FLOAT"),
        ("m.key_value.key", "BYTE_ARRAY"),
        ("m.key_value.value", "INT32"),
    ]
    assert file.column_sizes is not None
    assert set(file.column_sizes.keys) == {1, 2, 3, 4, 12, 20, 21}
    assert pq.read_table(file.file_path, partitioning=None)["u"].to_pylist() == [UUID(text)]


def test_no_rows_give_no_file_and_a_failure_leaves_none(tmp_path: Path) -> None:
    table = facts(str(tmp_path), {"id!": "long"})
    empty = pa.record_batch({"id": pa.array([], pa.int64())})
    assert _write(table, tmp_path, [empty]) == []
    task = write_task(table, Storage(), str(tmp_path / "w"), file_options({}), False)
    good, bad = _batch(id=[1, 2]), _batch(id=pa.array([None], pa.int64()))
    with pytest.raises(BadRequest, match="column id is required"):
        list(task([good, bad]))
    small = file_options({}, target_file_size_bytes=1)
    task = write_task(table, Storage(), str(tmp_path / "w"), small, False)

    def broken() -> Any:
        yield good
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError, match="the source is gone"):
        list(task(broken()))
    assert Storage().list(str(tmp_path)) == []


@pytest.mark.process
def test_a_task_loads_no_pandas(tmp_path: Path) -> None:
    """An import of pandas, which Spark Connect installs, takes longer than a small task."""
    program = """
import sys
import pyarrow as pa
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark.executor.file_tasks import write_task
from tests.support.spark_facts import facts
folder = sys.argv[1]
table = facts(folder, {"id": "long", "x": "double"}, [(1, "identity", "id")])
numbers = pa.py_buffer(bytes([0] * 8 + [1] * 8 + [0] * 8))
ids, x = (pa.Array.from_buffers(one, 3, [None, numbers]) for one in (pa.int64(), pa.float64()))
batch = pa.RecordBatch.from_arrays([ids, x, ids], names=["id", "x", "_partition_0"])
(found,) = write_task(table, Storage(), folder, file_options({}), False)([batch])
print(found.num_rows, "pandas" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["2", "False"], done.stderr


def test_lineage_is_two_more_columns(tmp_path: Path) -> None:
    table = facts(str(tmp_path), {"id": "long"}, format_version=3)
    batch = _batch(
        id=[1, 2],
        _row_id=pa.array([7, None], pa.int64()),
        _last_updated_sequence_number=pa.array([3, None], pa.int64()),
    )
    (file,) = _write(table, tmp_path, [batch], lineage=True)
    schema = pq.read_schema(file.file_path)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in schema]
    assert ids == [1, 2147483540, 2147483539]
    assert file.value_counts is not None
    assert file.value_counts.keys == (1,)


# --- the choice of an engine ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "properties", "location", "expected"),
    [
        ({"a": "long", "b": "string", "c": "unknown"}, {}, "/t", None),
        ({"a": "uuid"}, {}, "/t", "column a is of type uuid"),
        ({"a": "timestamp_ns"}, {}, "file:///t", "column a is of type timestamp_ns"),
        ({"a": "int"}, {}, "s3://b/t", "s3://b/t is not a local file system"),
        ({"a": "int"}, {"write.target-file-size-bytes": "9"}, "/t", "a file size in bytes is"),
        ({"a": "int"}, {"write.parquet.compression-codec": "brotli"}, "/t", "brotli"),
        ({"a": "int"}, {"write.parquet.stats-enabled.column.a": "false"}, "/t", "no statistics"),
    ],
)
def test_sparks_writer_is_taken_where_nothing_speaks_against_it(
    columns: dict[str, str], properties: dict[str, str], location: str, expected: str | None
) -> None:
    table = facts(location, columns, properties=properties)
    found = objections(table, location, file_options(properties), is_sized=False)
    if expected is None:
        assert found == []
    else:
        (objection,) = found
        assert expected in objection.reason


# --- with Spark and the catalog -------------------------------------------------------------------

COLUMNS = {
    "id!": "long",
    "ts": "timestamptz",
    "at": "timestamp",
    "s": "string",
    "x": "double",
    "p": "decimal(12, 2)",
    "day": "date",
    "raw": "binary",
    "ok": "boolean",
    "small": "float",
}


@pytest.fixture
def context(spark: SparkSession, client: Client, server_url: str) -> Context:
    return Context(spark, client, Settings(), server_url)


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return (
        spark.range(count)
        .selectExpr(
            "id",
            "timestamp_micros(id * 40000000000 - 100000000001) AS ts",
            "cast(timestamp_micros(id * 7) AS timestamp_ntz) AS at",
            "element_at(array('a', 'é/=', '', null, '~'), cast(id % 5 AS int) + 1) AS s",
            "IF(id = 3, double('NaN'), id / 3) AS x",
            "cast(id - 5 AS decimal(12, 2)) / 4 AS p",
            "date_add(date'1969-12-30', cast(id % 3 AS int)) AS day",
            "unhex(hex(id)) AS raw",
            "id % 2 = 0 AS ok",
            "cast(id AS float) AS small",
        )
        .selectExpr("* EXCEPT (p)", "cast(p AS decimal(12, 2)) AS p")
        .select(*(name.rstrip("!") for name in COLUMNS))
    )


def _table(
    client: Client, namespace: str, spec: Any = (), order: Any = (), **properties: str
) -> Table:
    return client.create_table(
        f"{namespace}.t_{uuid4().hex[:6]}",
        schema_json(COLUMNS),
        partition_spec=spec_json(*spec),
        write_order=order_json(*order) if order else None,
        properties=properties,
    )


def _read(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    tables = [
        pq.read_table(file.file_path.removeprefix("file://"), partitioning=None) for file in files
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def _key(row: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by a value that is equal to itself."""
    return {name: repr(value) if isinstance(value, float) else value for name, value in row.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_files_of_a_partitioned_and_sorted_table_are_right_and_taken_by_the_catalog(
    engine: str, context: Context, namespace: str
) -> None:
    spec = [(2, "day", "ts_day"), (4, "identity", "s"), (1, "bucket[2]", "id_bucket")]
    order = [(5, "identity", "desc", "nulls-last")]
    table = _table(context.client, namespace, spec, order)
    frame = _rows(context.spark, 40)
    folder = new_folder(context, table)
    options = WriteOptions(engine=engine, distribution="hash")
    files = write_rows(context, table, frame, folder, options)
    assert {file.sort_order_id for file in files} == {1}
    assert len({file.partition for file in files}) == len(files)
    expected = [_key(row.asDict()) for row in frame.orderBy("id").collect()]
    for row in expected:
        row["ts"] = row["ts"].replace(tzinfo=UTC)
    assert [_key(row) for row in _read(files)] == expected
    for file in files:
        schema = pq.read_schema(file.file_path.removeprefix("file://"))
        ids = [int(field.metadata[b"PARQUET:field_id"]) for field in schema]
        assert ids == list(range(1, len(COLUMNS) + 1))
        values = pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)
        sizes = [math.inf if math.isnan(x) else x for x in values["x"].to_pylist()]
        assert sizes == sorted(sizes, reverse=True)
        assert set(values["s"].to_pylist()) == {_values(file)[1]}
        days = {one.date() for one in values["ts"].to_pylist()}
        assert days == {date.fromisoformat(_values(file)[0])}
    context.client.append_files(str(table), files)
    folder.keep_only([file.file_path for file in files])
    plan = context.client.load_table(str(table)).plan("s = 'a' and id = 5")
    assert sum(task.data_file.record_count for task in plan.tasks) >= 1
    assert len(plan.tasks) < len(files)
    assert folder.storage.list(folder.location) == sorted(file.file_path for file in files)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_frame_without_rows_gives_no_file(engine: str, context: Context, namespace: str) -> None:
    for spec in ([], [(2, "day", "ts_day")]):
        table = _table(context.client, namespace, spec)
        folder = new_folder(context, table)
        frame = _rows(context.spark, 0)
        assert write_rows(context, table, frame, folder, WriteOptions(engine=engine)) == ()
        visible = [
            path
            for path in folder.storage.list(folder.location)
            if not path.rpartition("/")[2].startswith(".")
        ]
        assert visible == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_task_that_fails_leaves_no_file(engine: str, context: Context, namespace: str) -> None:
    table = _table(context.client, namespace)
    folder = new_folder(context, table)
    frame = _rows(context.spark, 10).selectExpr(
        "assert_true(id < 9, 'row nine is bad') AS checked", "*"
    )
    frame = frame.selectExpr("IF(checked IS NULL, id, 0) AS id", "* EXCEPT (checked, id)")
    with pytest.raises(Exception, match="row nine is bad"):
        write_rows(context, table, frame.coalesce(1), folder, WriteOptions(engine=engine))
    assert folder.storage.list(folder.location) == []


def test_bytes_are_met_where_they_are_asked_for(
    context: Context, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(context.client, namespace)
    frame = _rows(context.spark, 20_000)
    with caplog.at_level(logging.INFO, logger="frazil.spark"):
        options = WriteOptions(target_file_size_bytes=100_000)
        files = write_rows(context, table, frame.coalesce(1), new_folder(context, table), options)
    assert "a file size in bytes is asked for" in caplog.text
    sizes = [file.file_size_in_bytes for file in files]
    assert len(sizes) > 2
    assert all(80_000 < size < 120_000 for size in sizes[:-1]), sizes
    assert sum(file.record_count for file in files) == 20_000


def test_the_choice_is_logged_and_can_be_forced(
    context: Context, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = _table(context.client, namespace)
    frame = _rows(context.spark, 3)
    with caplog.at_level(logging.INFO, logger="frazil.spark"):
        (file, *_) = write_rows(context, table, frame, new_folder(context, table))
    assert "written by Spark's Parquet writer: its types are flat" in caplog.text
    created = pq.read_metadata(file.file_path.removeprefix("file://")).created_by
    assert created.startswith("parquet-mr")
    assert context.spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    nested = context.client.create_table(
        f"{namespace}.nested", schema_json({"u": "uuid", "f": "fixed[2]"})
    )
    with pytest.raises(BadRequest, match=r"column u is of type uuid; column f is of type fixed"):
        folder = new_folder(context, nested)
        write_rows(context, nested, frame, folder, WriteOptions(engine="jvm"))
    with pytest.raises(BadRequest, match="'fast' is none of"):
        write_rows(context, table, frame, folder, WriteOptions(engine="fast"))


def test_files_that_are_not_seen_from_here_are_no_empty_write(
    context: Context, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(context.client, namespace)
    folder = new_folder(context, table)
    elsewhere = WriteFolder(f"{folder.location}-elsewhere", folder.storage)
    monkeypatch.setattr(jvm_writer, "WriteFolder", lambda location, storage: elsewhere)
    with pytest.raises(BadRequest, match="it is not seen from here"):
        write_rows(context, table, _rows(context.spark, 1), folder, WriteOptions(engine="jvm"))


def test_properties_reach_sparks_writer(context: Context, namespace: str) -> None:
    table = _table(
        context.client,
        namespace,
        **{
            "write.parquet.compression-codec": "gzip",
            "write.parquet.bloom-filter-enabled.column.s": "true",
            "write.parquet.dict-encoding-enabled.column.ok": "false",
            "write.parquet.dict-encoding-enabled.column.s": "false",
        },
    )
    frame = _rows(context.spark, 100).coalesce(1)
    folder = new_folder(context, table)
    (file,) = write_rows(context, table, frame, folder, WriteOptions(engine="jvm"))
    group = pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(len(COLUMNS))}
    assert {column.compression for column in columns.values()} == {"GZIP"}
    assert [name for name, one in columns.items() if one.bloom_filter_offset is not None] == ["s"]
    assert not columns["s"].has_dictionary_page
    assert columns["day"].has_dictionary_page


def test_the_sessions_settings_are_given_back_by_the_last_of_many_writers(
    spark: SparkSession,
) -> None:
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    with session_settings(spark, PARQUET_SETTINGS):
        with session_settings(spark, PARQUET_SETTINGS):
            assert spark.conf.get(name) == "TIMESTAMP_MICROS"
        assert spark.conf.get(name) == "TIMESTAMP_MICROS"
    assert spark.conf.get(name) == before
    with session_settings(spark, {"spark.frazil.never-set": "1"}):
        assert spark.conf.get("spark.frazil.never-set") == "1"
    assert spark.conf.get("spark.frazil.never-set", None) is None


def test_tasks_get_as_much_as_makes_a_file() -> None:
    (found,) = shuffle_settings(facts("/t", {"id": "long"}), "zstd").values()
    assert found == str(384 << 20)
    table = facts("/t", {"id": "long"}, properties={ADVISORY_SIZE: "1000"})
    assert list(shuffle_settings(table, "zstd").values()) == ["1000"]
    wrong = facts("/t", {"id": "long"}, properties={ADVISORY_SIZE: "much"})
    with pytest.raises(BadRequest, match=f"{ADVISORY_SIZE}: 'much' is not a positive whole"):
        shuffle_settings(wrong, "zstd")


@pytest.mark.parametrize("engine", ENGINES)
def test_values_too_long_for_a_folder_are_partitions_too(
    engine: str, context: Context, namespace: str
) -> None:
    table = _table(context.client, namespace, [(4, "identity", "s"), (8, "truncate[150]", "r")])
    frame = _rows(context.spark, 4).selectExpr(
        "* EXCEPT (s, raw)",
        "repeat(cast(id % 2 AS string), 300) AS s",
        "cast(repeat('x', 200) AS binary) AS raw",
    )
    folder = new_folder(context, table)
    files = write_rows(context, table, frame, folder, WriteOptions(engine=engine))
    assert {file.partition for file in files} == {
        ("0" * 300, b"x".hex() * 150),
        ("1" * 300, b"x".hex() * 150),
    }
    context.client.append_files(str(table), files)


def test_a_folder_may_take_two_writes(context: Context, namespace: str) -> None:
    table = _table(context.client, namespace)
    folder = WriteFolder(new_folder(context, table).location, Storage())
    for _ in range(2):
        files = write_rows(context, table, _rows(context.spark, 5), folder)
        assert sum(file.record_count for file in files) == 5

"""All ways to run a MERGE with a small source give the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as fn

from frazil.datafiles.arrow.metadata_columns import FILE
from frazil.spark.rows import merge_frames, merge_statement
from frazil.spark.rows.changed_rows import FileCodes
from frazil.spark.rows.merge_frames import CHOSEN, MATCHED_ROW
from frazil.spark.rows.merge_statement import upserted_rows
from frazil.spark.writing import staging
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.wire.errors import BadRequest, FrazilError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from frazil.spark.session import Session
    from frazil.spark.table import SparkTable

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
        {"id": 3, "name": "at", "required": False, "type": "timestamptz"},
        {"id": 4, "name": "amount", "required": False, "type": "decimal(9, 2)"},
        {"id": 5, "name": "name", "required": False, "type": "string"},
    ],
}
BY_DAY = [{"source-id": 3, "field-id": 1000, "name": "at_day", "transform": "day"}]
BY_BUCKET = [
    {"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"},
    {"source-id": 5, "field-id": 1001, "name": "n", "transform": "truncate[2]"},
]


def rows_of(spark: SparkSession, first: int, last: int, name: str) -> DataFrame:
    return spark.range(first, last).selectExpr(
        "id",
        "date'2026-05-01' + int(id % 3) AS day",
        "timestamp'2026-05-01 23:30:00' + make_dt_interval(int(id % 4)) AS at",
        "cast(id / 7 AS decimal(9, 2)) AS amount",
        f"concat('{name}', id) AS name",
    )


FULL = pytest.mark.full
ONE_TABLE = pytest.mark.parametrize("table", ["by day"], indirect=True)


@pytest.fixture(
    params=["by day", pytest.param("by bucket", marks=FULL), pytest.param("flat", marks=FULL)]
)
def table(request: pytest.FixtureRequest, session: Session, namespace: str) -> SparkTable:
    fields = {"by day": BY_DAY, "by bucket": BY_BUCKET, "flat": []}[request.param]
    session.client.create_table(
        f"{namespace}.t",
        SCHEMA,
        partition_spec={"spec-id": 0, "fields": fields},
        properties={"format-version": "3", "write.merge.mode": "merge-on-read"},
    )
    return session.table(f"{namespace}.t")


Way = Callable[[pytest.MonkeyPatch], WriteOptions]


def _by_the_driver(_: pytest.MonkeyPatch) -> WriteOptions:
    return WriteOptions()


def _by_spark_and_driver(patch: pytest.MonkeyPatch) -> WriteOptions:
    patch.setattr(merge_frames.MergeFrames, "upserted_columns", lambda self: None)
    return WriteOptions()


def _by_jvm(_: pytest.MonkeyPatch) -> WriteOptions:
    return WriteOptions(engine="jvm")


def _by_arrow(_: pytest.MonkeyPatch) -> WriteOptions:
    return WriteOptions(engine="arrow")


def _unseen(patch: pytest.MonkeyPatch) -> WriteOptions:
    patch.setattr(merge_statement, "MAX_COLLECTED_ROWS", 0)
    return WriteOptions()


def _with_paths(patch: pytest.MonkeyPatch) -> WriteOptions:
    patch.setattr(FileCodes, "of", lambda paths: FileCodes(None))
    return WriteOptions()


def _large(patch: pytest.MonkeyPatch) -> WriteOptions:
    patch.setattr(staging, "SMALL_BYTES", 0)
    return WriteOptions()


WAYS = [
    _by_the_driver,
    _by_spark_and_driver,
    _by_jvm,
    _by_arrow,
    _unseen,
    _with_paths,
    _large,
]


def test_every_way_gives_the_same_rows(
    table: SparkTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(rows_of(spark, 0, 40, "old"))
    base = table.load().head()
    assert base is not None
    source = rows_of(spark, 30, 50, "new").repartition(3)
    found = {}
    for way in WAYS:
        with monkeypatch.context() as patch:
            result = (
                table.merge(source, "target.id = source.id")
                .when_matched_delete("source.id = 31")
                .when_matched_update_all("source.id <> 32")
                .when_not_matched_insert_all()
                .execute(options=way(patch))
            )
        assert (result.rows_deleted, result.rows_written) == (9, 18), way.__name__
        columns = ("_row_id", "_last_updated_sequence_number")
        rows = table.scan(metadata_columns=columns).orderBy("id").collect()
        found[way.__name__] = [row[:-2] for row in rows]
        ids = {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in rows}
        assert all(ids[key][0] < 40 for key in range(40) if key != 31), way.__name__
        assert len({one for one, _ in ids.values()}) == len(ids)
        assert len({ids[key][1] for key in range(30)} & {ids[33][1], ids[45][1]}) == 0
        table.context.client.rollback(table.identifier, base)
    first = found.pop(WAYS[0].__name__)
    assert [row[0] for row in first] == [key for key in range(50) if key != 31]
    assert [row[4] for row in first if row[0] in (30, 32, 45)] == ["new30", "old32", "new45"]
    for name, rows in found.items():
        assert rows == first, name


@ONE_TABLE
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_every_way_refuses_the_same(
    table: SparkTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    table.append(rows_of(spark, 0, 10, "old"))
    head = table.load().head()
    options = way(monkeypatch)
    twice = rows_of(spark, 5, 8, "new").unionByName(rows_of(spark, 5, 6, "again"))
    upsert = table.merge(twice, "target.id = source.id").when_matched_update_all()
    with pytest.raises(BadRequest, match="matched by more than one row"):
        upsert.when_not_matched_insert_all().execute(options=options)
    nothing = rows_of(spark, 20, 22, "new").selectExpr("nullif(id, 21) AS id", "* except (id)")
    insert = table.merge(nothing, "target.id = source.id").when_not_matched_insert_all()
    with pytest.raises(Exception, match="column id is required"):
        insert.execute(options=options)
    assert table.load().head() == head


@ONE_TABLE
def test_rows_that_are_few_but_large_are_not_brought_here(
    table: SparkTable, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_statement, "SMALL_BYTES", 1 << 20)

    def brought(*_: object, **__: object) -> None:
        raise AssertionError("they are too large")

    monkeypatch.setattr(merge_statement, "write_here", brought)
    large = rows_of(spark, 0, 3, "new").withColumn("name", fn.expr("repeat('x', 1 << 20)"))
    merge = table.merge(large, "target.id = source.id").when_matched_update_all()
    result = merge.when_not_matched_insert_all().execute()
    assert result.rows_written == 3
    assert [len(row["name"]) for row in table.scan().collect()] == [1 << 20] * 3


@ONE_TABLE
def test_a_source_row_may_update_many_rows(table: SparkTable, spark: SparkSession) -> None:
    table.append(rows_of(spark, 0, 12, "old"))
    source = rows_of(spark, 0, 1, "new")
    result = (
        table.merge(source, "target.day = source.day")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert (result.rows_deleted, result.rows_written) == (4, 4)
    assert [row["name"] for row in table.scan("id = 0").collect()] == ["new0"] * 4


@ONE_TABLE
def test_a_merge_may_come_to_write_nothing(table: SparkTable, spark: SparkSession) -> None:
    table.append(rows_of(spark, 0, 4, "old"))
    merge = table.merge(rows_of(spark, 1, 3, "new"), "target.id = source.id").when_matched_delete()
    result = merge.when_not_matched_insert_all().execute()
    assert (result.rows_deleted, result.rows_written) == (2, 0)
    assert sorted(row["name"] for row in table.scan().collect()) == ["old0", "old3"]


@ONE_TABLE
def test_the_first_rows_of_a_table_may_come_from_a_merge(
    table: SparkTable, spark: SparkSession
) -> None:
    merge = table.merge(rows_of(spark, 0, 3, "new"), "target.id = source.id")
    result = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.rows_deleted, result.rows_written) == (0, 3)
    assert sorted(row["name"] for row in table.scan().collect()) == ["new0", "new1", "new2"]


# --- parts ----------------------------------------------------------------------------------------


def test_rows_are_those_that_a_plain_loop_gives() -> None:
    chance = random.Random(7)
    for _ in range(200):
        count = chance.randrange(8)
        numbers = chance.sample(range(100), count)
        matches = [
            (chance.choice(numbers), chance.randrange(4), chance.randrange(1000))
            for _ in range(chance.randrange(8) if numbers else 0)
        ]
        updates = chance.sample(range(1, 4), 2)
        source = pa.table({"id": pa.array([number * 10 for number in numbers], pa.int64())})
        told = pa.table(
            {
                name: pa.array([one[at] for one in matches], pa.int64())
                for at, name in enumerate((MATCHED_ROW, CHOSEN, "_row_id"))
            }
        )
        given = pa.chunked_array([numbers], pa.int64())
        found = upserted_rows(source, given, told, updates, lineage=True)
        matched = {one[0] for one in matches}
        wanted: list[tuple[int, int | None]] = [
            (number * 10, row_id) for number, chosen, row_id in matches if chosen in updates
        ]
        wanted += [(number * 10, None) for number in numbers if number not in matched]
        rows = found.select(["id", "_row_id"]).to_pylist()
        assert sorted(((row["id"], row["_row_id"]) for row in rows), key=str) == sorted(
            wanted, key=str
        )
        assert found.column("_last_updated_sequence_number").null_count == len(wanted)


def test_codes_are_the_same_in_spark_and_here(spark: SparkSession) -> None:
    paths = ["s3://b/ä b%20c/1.parquet", "file:/tmp/x", "file:///tmp/日本.parquet"]
    codes = FileCodes.of(paths)
    frame = spark.createDataFrame(
        [(path, at) for at, path in enumerate(paths)], f"{FILE} string, n int"
    )
    coded = frame.select(codes.code(fn.col(FILE)).alias(FILE), "n").orderBy("n")
    assert codes.paths(coded.toArrow().column(0).combine_chunks()).to_pylist() == paths
    assert [tuple(row) for row in codes.with_paths(coded, FILE).orderBy("n").collect()] == [
        (path, at) for at, path in enumerate(paths)
    ]
    with pytest.raises(FrazilError, match="missing in the catalog's plan"):
        codes.paths(pa.array([1], pa.int64()))


def test_two_paths_of_one_code_are_sent_as_they_are(spark: SparkSession) -> None:
    paths = ["plumless", "buckeroo"]
    codes = FileCodes.of(paths)
    frame = spark.createDataFrame([(path,) for path in paths], f"{FILE} string")
    coded = frame.select(codes.code(fn.col(FILE)).alias(FILE))
    assert codes.paths(coded.toArrow().column(0).combine_chunks()).to_pylist() == paths
    assert codes.with_paths(coded, FILE) is coded

"""The core works on every kind of Spark: classic and Connect, all supported versions.

`test_connect` runs this file against a Spark Connect server. `make test-spark-versions` runs it
in environments with other versions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from frazil.client.catalog_client import Client
from frazil.client.declare.partition_terms import partition_spec
from frazil.spark import connect
from frazil.spark.core.progress import is_classic
from frazil.spark.schema.spark_types import iceberg_schema, spark_schema
from frazil.spark.session import Session
from frazil.spark.table import SparkTable
from frazil.values.type_json import struct_to_json
from frazil.wire.errors import BadRequest
from tests.support.spark import runtime_settings

pytestmark = pytest.mark.core

READERS = ["jar", "own"] if runtime_settings() else ["own"]
MODES = ["copy-on-write", "merge-on-read"]
ORDERS = "id BIGINT, day DATE, item STRING, cents INT"
START = [
    (number, date(2026, 5, 1 + number % 3), f"item {number}", number * 10) for number in range(12)
]


@pytest.fixture(params=READERS)
def core(request: pytest.FixtureRequest, spark: SparkSession, server_url: str) -> Iterator[Session]:
    """Return a session for both readers, or only for ours if Iceberg's runtime is absent."""
    with connect(spark, server_url, reader=request.param) as session:
        yield session


def new_table(session: Session, name: str, columns: str, *terms: str, **properties: str) -> None:
    empty = session.spark.createDataFrame([], columns)
    schema = iceberg_schema(empty.schema)
    session.client.create_table(
        name,
        struct_to_json(schema),
        partition_spec=partition_spec(schema, terms),
        properties={key.replace("_", "."): value for key, value in properties.items()},
    )


def orders(session: Session, namespace: str, mode: str, version: str = "3") -> SparkTable:
    """Create a table with twelve rows on three days that uses this mode for row changes."""
    name = f"{namespace}.orders"
    new_table(session, name, ORDERS, "day")
    properties = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}
    session.client.set_properties(name, {"format-version": version, **properties})
    table = session.table(name)
    table.append(session.spark.createDataFrame(START, ORDERS))
    return table


def rows(table: SparkTable, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.scan(**options).collect())


def delete_files(table: SparkTable) -> int:
    return int(table.load().snapshot("main").summary.get("total-delete-files", "0"))


def test_this_is_the_kind_of_spark_that_was_asked_for(spark: SparkSession) -> None:
    assert is_classic(spark) == ("SPARK_REMOTE" not in os.environ)


def test_frames_come_back_as_they_were_written(core: Session, namespace: str) -> None:
    columns = (
        "id BIGINT, day DATE, at TIMESTAMP, plain TIMESTAMP_NTZ, price DECIMAL(9, 2), ok BOOLEAN,"
        " ratio DOUBLE, raw BINARY, tags ARRAY<STRING>, counts MAP<STRING, INT>,"
        " place STRUCT<city: STRING, zip: INT>"
    )
    new_table(core, f"{namespace}.t", columns, "bucket(4, id)")
    table = core.table(f"{namespace}.t")
    when = datetime(2026, 5, 1, 12, 30, 15, 123456)
    nested = (["a", "b"], {"x": 1}, ("Oslo", 150))
    values = [
        (1, date(2026, 5, 1), when, when, Decimal("1.25"), True, 0.5, bytearray(b"\x00"), *nested),
        (2, *[None] * 10),
    ]
    done = table.append(core.spark.createDataFrame(values, columns))
    assert (done.operation, done.rows_written) == ("append", 2)
    frame = table.scan()
    assert frame.schema.jsonValue() == spark_schema(table.load().schema).jsonValue()
    found = sorted(frame.collect(), key=lambda row: row.id)
    assert [tuple(row) for row in found] == values


def test_a_scan_is_pruned_filtered_and_pinned(core: Session, namespace: str) -> None:
    table = orders(core, namespace, "copy-on-write")
    first = table.load().snapshot("main")
    table.append(core.spark.createDataFrame([(100, date(2026, 5, 9), "late", 1)], ORDERS))
    wanted = [(row[0], row[3]) for row in START if row[1] == date(2026, 5, 2) and row[3] > 40]
    assert (
        rows(table, filter="day = DATE'2026-05-02' AND cents > 40", columns=["id", "cents"])
        == wanted
    )
    assert len(rows(table)) == len(START) + 1
    assert rows(table, snapshot=first.snapshot_id) == START
    assert rows(table, from_snapshot=first.snapshot_id, columns=["id"]) == [(100,)]


def test_plain_spark_sql_knows_the_catalog(core: Session, namespace: str) -> None:
    table, name = orders(core, namespace, "copy-on-write"), f"lake_{uuid4().hex[:8]}"
    connect(core.spark, core.context.uri, client=core.client, sql_catalog=name)
    query = f"SELECT * FROM {name}.{table}"
    if runtime_settings():
        assert core.spark.sql(query).count() == len(START)
        return
    with pytest.raises(Exception, match=r"Write session\.sql"):
        core.spark.sql(query).count()


def test_metadata_tables_are_read(core: Session, namespace: str) -> None:
    table = orders(core, namespace, "merge-on-read")
    table.delete("id IN (1, 4)")
    core.sql(f"COMMENT ON TABLE {table} IS 'some'")

    def found(query: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in core.sql(query.format(table)).collect())

    assert [row[0] for row in found("SELECT content FROM {}.files")] == [0, 0, 0, 1]
    assert found("SELECT pos, spec_id FROM {}.position_deletes") == [(0, 0), (1, 0)]
    counts = found(
        "SELECT partition.day, record_count, position_delete_record_count FROM {}.partitions"
    )
    assert counts == [(date(2026, 5, day), 4, 2 if day == 2 else 0) for day in (1, 2, 3)]
    assert found("SELECT max(readable_metrics.cents.upper_bound) FROM {}.all_data_files") == [
        (110,)
    ]
    assert len(found("SELECT * FROM {}.metadata_log_entries")) >= 4


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_deleted_and_updated(core: Session, namespace: str, mode: str) -> None:
    table = orders(core, namespace, mode)
    done = table.delete("id % 4 = 1")
    assert (done.mode, done.rows_deleted) == (mode, 3)
    done = table.update({"cents": "cents + 1", "item": "upper(item)"}, "id IN (2, 3)")
    assert (done.mode, done.rows_written) == (mode, 2)
    left = [row for row in START if row[0] % 4 != 1]
    changed = {2, 3}
    assert rows(table) == [
        (row[0], row[1], row[2].upper(), row[3] + 1) if row[0] in changed else row for row in left
    ]
    assert (delete_files(table) > 0) == (mode == "merge-on-read")


def test_a_whole_partition_is_deleted_without_reading_it(core: Session, namespace: str) -> None:
    table = orders(core, namespace, "copy-on-write")
    assert table.delete("day = DATE'2026-05-01'").mode == "metadata"
    assert rows(table) == [row for row in START if row[1] != date(2026, 5, 1)]


@pytest.mark.parametrize(("mode", "version"), [("copy-on-write", "2"), ("merge-on-read", "3")])
def test_a_merge_has_every_clause(core: Session, namespace: str, mode: str, version: str) -> None:
    table = orders(core, namespace, mode, version)
    news = [(0, "gone", 0), (1, "new", 7), (5, "new", 8), (50, "added", 9)]
    source = core.spark.createDataFrame(news, "id BIGINT, item STRING, cents INT")
    done = (
        table.merge(source, "target.id = source.id")
        .when_matched_delete("source.item = 'gone'")
        .when_matched_update({"cents": "target.cents + source.cents"})
        .when_not_matched_insert(
            {"id": "source.id", "day": "DATE'2026-05-01'", "item": "source.item"}
        )
        .when_not_matched_by_source_delete("target.id = 11")
        .execute()
    )
    assert done.mode == mode
    expected: dict[int, tuple[Any, ...]] = {row[0]: row for row in START if row[0] not in (0, 11)}
    for key, cents in ((1, 7), (5, 8)):
        expected[key] = (*expected[key][:3], expected[key][3] + cents)
    expected[50] = (50, date(2026, 5, 1), "added", None)
    assert rows(table) == sorted(expected.values())
    assert (delete_files(table) > 0) == (mode == "merge-on-read")


def test_partitions_and_tables_are_overwritten(core: Session, namespace: str) -> None:
    table = orders(core, namespace, "copy-on-write")
    second = [(70, date(2026, 5, 2), "only", 1)]
    table.overwrite_partitions(core.spark.createDataFrame(second, ORDERS))
    assert rows(table) == [row for row in START if row[1] != date(2026, 5, 2)] + second
    table.overwrite(core.spark.createDataFrame(second, ORDERS))
    assert rows(table) == second


@pytest.mark.parametrize("sort_order", [None, "item DESC"])
def test_files_are_rewritten(core: Session, namespace: str, sort_order: str | None) -> None:
    table = orders(core, namespace, "merge-on-read")
    table.append(core.spark.createDataFrame([(12, date(2026, 5, 1), "item 12", 0)], ORDERS))
    table.delete("id = 3")
    before = rows(table, metadata_columns=["_row_id"])
    options = {"frazil.engine": "spark", "rewrite-all": "true", "target-file-size-bytes": "2000"}
    result = core.rewrite_data_files(
        str(table.identifier),
        sort_order=sort_order,
        options={**options, "max-file-size-bytes": "3000"},
    )
    assert result.engine == "spark"
    assert result.rewritten_data_files_count == 4
    assert rows(table, metadata_columns=["_row_id"]) == before
    assert delete_files(table) == 0


def test_statements(core: Session, namespace: str, client: Client) -> None:
    name = f"{namespace}.t"
    core.sql(f"CREATE TABLE {name} (id BIGINT, n INT) TBLPROPERTIES ('format-version' = '3')")
    core.sql(f"INSERT INTO {name} VALUES (1, 10), (2, 20), (3, 30)")
    core.sql(f"DELETE FROM {name} WHERE id = 2")
    core.sql(f"UPDATE {name} SET n = n + 1 WHERE id = 3")
    core.sql(
        f"MERGE INTO {name} AS t USING (SELECT 1 AS id, 100 AS n UNION ALL SELECT 4, 40) AS s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.n = s.n"
        " WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)"
    )
    found = core.sql(f"SELECT id, n FROM {name} ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, 100), (3, 31), (4, 40)]
    assert len(client.load_table(name).snapshots) == 4


@pytest.mark.parametrize(
    ("core", "upsert"),
    [
        (READERS[0], None),
        (READERS[-1], "equality-deletes"),
        *((reader, "deletion-vectors") for reader in READERS),
    ],
    indirect=["core"],
)
def test_a_stream_is_written(
    core: Session, namespace: str, tmp_path: Path, upsert: str | None
) -> None:
    """On Connect, the server's Python writes the epochs."""
    table = orders(core, namespace, "merge-on-read")
    files, checkpoint = str(tmp_path / "files"), str(tmp_path / "checkpoint")
    batches = [[(3, START[3][1], "new 3", 1), (20, START[2][1], "new 20", 2)]]
    batches.append([(20, START[2][1], "newer 20", 3)])
    for batch in batches:
        core.spark.createDataFrame(batch, ORDERS).write.mode("append").parquet(files)
        kind = {"mode": "append"} if upsert is None else {"mode": "upsert", "upsert": upsert}
        query = table.write_stream(
            core.spark.readStream.schema(ORDERS).parquet(files),
            keys=None if upsert is None else ["id", "day"],
            checkpoint_location=checkpoint,
            trigger="availableNow",
            **kind,
        )
        query.awaitTermination()
    found = rows(table)
    if upsert is None:
        assert found == sorted([*START, *batches[0], *batches[1]])
    else:
        assert found == sorted([*(row for row in START if row[0] != 3), batches[0][0], *batches[1]])


def test_a_limited_stream_is_read_to_its_end(core: Session, namespace: str, tmp_path: Path) -> None:
    """A source without limits in Spark's interface refuses them, since Spark runs one batch."""
    table = orders(core, namespace, "copy-on-write")
    new_table(core, f"{namespace}.copy", ORDERS)
    copy = core.table(f"{namespace}.copy")
    is_own = core.context.settings.reader == "own"
    if is_own and find_spec("pyspark.sql.streaming.datasource") is None:
        with pytest.raises(BadRequest, match="max_files"):
            table.read_stream(max_files=1)
        return
    query = copy.write_stream(
        table.read_stream(max_files=1),
        checkpoint_location=str(tmp_path / "checkpoint"),
        trigger="availableNow",
    )
    query.awaitTermination()
    assert rows(copy) == START
    assert len(copy.load().snapshots) == 3


def test_nothing_reached_for_the_jvm_beside_connect(spark: SparkSession) -> None:
    """Only a terminal's display loads the one module with features for classic Spark."""
    assert "frazil.spark.core.stage_bars" not in sys.modules or is_classic(spark)


def test_views_and_temporary_views_show_the_rows_of_now(core: Session, namespace: str) -> None:
    table = orders(core, namespace, "merge-on-read")
    core.sql(f"CREATE VIEW {namespace}.v (number, item) AS SELECT id, item FROM {table}")
    core.sql(f"CREATE OR REPLACE TEMPORARY VIEW few AS SELECT number FROM {namespace}.v")
    core.sql(f"DELETE FROM {table} WHERE id > 1")
    for view in (f"{namespace}.v", "few"):
        rows = core.sql(f"SELECT number FROM {view} ORDER BY number").collect()
        assert [row[0] for row in rows] == [0, 1]
    with pytest.raises(BadRequest, match=f"the query of view {namespace}.w fails"):
        core.sql(f"CREATE VIEW {namespace}.w AS SELECT nope FROM {table}")
    core.sql("DROP VIEW few")

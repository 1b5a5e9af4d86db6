"""Stock Spark with Iceberg's runtime jar: procedures, run by CALL."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from tests.stock_clients.stock import operations, pyiceberg_ids, spark_column, spark_rows
from tests.support.server import RunningServer


@pytest.fixture
def table(sql: SparkSession, namespace: str) -> str:
    """Create a table with ids 1, 2 and 3, each in its own snapshot and file."""
    sql.sql("CREATE TABLE t (id BIGINT) USING iceberg")
    for number in (1, 2, 3):
        sql.sql(f"INSERT INTO t VALUES ({number})")
    return f"{namespace}.t"


def snapshots(sql: SparkSession, table: str) -> list[int]:
    return spark_column(sql, f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at")


def ids(sql: SparkSession, table: str) -> list[int]:
    return spark_column(sql, f"SELECT id FROM {table} ORDER BY id")


def test_snapshots_are_rolled_back_set_and_picked(sql: SparkSession, table: str) -> None:
    first, second, third = snapshots(sql, table)
    assert spark_rows(sql, f"CALL system.rollback_to_snapshot('{table}', {first})") == [
        (third, first)
    ]
    assert ids(sql, table) == [1]
    sql.sql(f"CALL system.cherrypick_snapshot('{table}', {second})")
    assert ids(sql, table) == [1, 2]
    sql.sql(f"CALL system.rollback_to_snapshot('{table}', {first})")
    sql.sql(f"INSERT INTO {table} VALUES (10)")
    sql.sql(f"CALL system.cherrypick_snapshot('{table}', {second})")
    assert ids(sql, table) == [1, 2, 10], "picked onto another head: applied again"
    sql.sql(f"CALL system.set_current_snapshot('{table}', {third})")
    assert ids(sql, table) == [1, 2, 3]
    assert [row[0] for row in spark_rows(sql, f"CALL system.ancestors_of('{table}')")] == [
        third,
        second,
        first,
    ]
    (at,) = spark_column(
        sql, f"SELECT committed_at FROM {table}.snapshots WHERE snapshot_id = {second}"
    )
    sql.sql(f"CALL system.rollback_to_timestamp('{table}', TIMESTAMP '{at.isoformat(' ')}')")
    assert ids(sql, table) == [1]


def test_data_files_and_manifests_are_rewritten(
    sql: SparkSession, table: str, iceberg: Catalog
) -> None:
    sql.sql(f"DELETE FROM {table} WHERE id = 2")
    result = spark_rows(
        sql,
        f"CALL system.rewrite_data_files(table => '{table}',"
        " options => map('rewrite-all', 'true'))",
    )
    assert result[0][:2] == (2, 1)
    assert spark_column(sql, f"SELECT count(*) FROM {table}.files") == [1]
    assert ids(sql, table) == [1, 3]
    sql.sql(f"INSERT INTO {table} VALUES (4)")
    assert spark_rows(sql, f"CALL system.rewrite_manifests('{table}')")[0][1] == 1
    loaded = iceberg.load_table(table)
    assert operations(loaded)[-3:] == ["replace", "append", "replace"]
    assert pyiceberg_ids(loaded) == [1, 3, 4]


def test_position_deletes_are_rewritten(sql: SparkSession, namespace: str) -> None:
    sql.sql(
        "CREATE TABLE t (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    sql.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ id FROM range(10)")
    for number in (3, 5):
        sql.sql(f"DELETE FROM t WHERE id = {number}")
    rewrite = (
        f"CALL system.rewrite_position_delete_files(table => '{namespace}.t',"
        " options => map('rewrite-all', 'true'))"
    )
    assert spark_rows(sql, rewrite)[0][:2] == (1, 1)
    assert spark_column(sql, f"SELECT count(*) FROM {namespace}.t.delete_files") == [1]
    assert ids(sql, f"{namespace}.t") == [0, 1, 2, 4, 6, 7, 8, 9]


def test_snapshots_expire_and_orphans_are_found(
    sql: SparkSession, table: str, iceberg: Catalog
) -> None:
    sql.sql(f"INSERT OVERWRITE {table} VALUES (9)")
    location = iceberg.load_table(table).location()
    folder = Path(location.removeprefix("file://"))
    expire = (
        f"CALL system.expire_snapshots(table => '{table}', retain_last => 1,"
        " older_than => TIMESTAMP '2099-01-01')"
    )
    ((deleted_data_files, *_),) = spark_rows(sql, expire)
    assert deleted_data_files == 3
    assert len(list(folder.rglob("*.parquet"))) == 1
    loaded = iceberg.load_table(table)
    assert len(loaded.snapshots()) == 1
    assert len(loaded.history()) == 1
    assert ids(sql, table) == [9]

    orphan = folder / "data" / "orphan.parquet"
    orphan.write_bytes(b"left behind")
    week_ago = time.time() - 7 * 24 * 60 * 60
    for path in folder.rglob("*"):
        os.utime(path, (week_ago, week_ago))
    find = f"CALL system.remove_orphan_files(table => '{table}', dry_run => true)"
    found = spark_column(sql, find)
    assert [Path(path).name for path in found] == ["orphan.parquet"], "and nothing of the table"
    assert orphan.exists()


def test_branch_is_fast_forwarded(sql: SparkSession, table: str) -> None:
    sql.sql("ALTER TABLE t CREATE BRANCH audit")
    sql.sql(f"INSERT INTO {table}.branch_audit VALUES (4)")
    assert ids(sql, table) == [1, 2, 3]
    sql.sql(f"CALL system.fast_forward('{table}', 'main', 'audit')")
    assert ids(sql, table) == [1, 2, 3, 4]


def test_files_are_added_and_a_table_registered(
    sql: SparkSession, iceberg: Catalog, namespace: str, catalog_server: RunningServer
) -> None:
    folder = catalog_server.warehouse / f"imported-{namespace}"
    frame = sql.range(10).selectExpr("id", "CAST(id % 2 AS INT) AS part")
    frame.write.partitionBy("part").parquet(str(folder))
    sql.sql("CREATE TABLE t (id BIGINT, part INT) USING iceberg PARTITIONED BY (part)")
    sql.sql(
        f"CALL system.add_files(table => '{namespace}.t', source_table => '`parquet`.`{folder}`')"
    )
    assert ids(sql, f"{namespace}.t") == list(range(10))

    location = iceberg.load_table((namespace, "t")).metadata_location
    sql.sql("DROP TABLE t")
    register = (
        f"CALL system.register_table(table => '{namespace}.again', metadata_file => '{location}')"
    )
    assert spark_rows(sql, register)[0][1] == 10
    assert ids(sql, f"{namespace}.again") == list(range(10))
    assert spark_column(sql, "SELECT count(*) FROM again WHERE part = 1") == [5]


def test_statistics_are_computed(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql("CREATE TABLE t (id BIGINT, part INT) USING iceberg PARTITIONED BY (part)")
    sql.sql("INSERT INTO t SELECT id, CAST(id % 2 AS INT) FROM range(10)")
    sql.sql(f"CALL system.compute_table_stats('{namespace}.t')")
    sql.sql(f"CALL system.compute_partition_stats('{namespace}.t')")
    metadata = iceberg.load_table((namespace, "t")).metadata
    (statistics,) = metadata.statistics
    assert {blob.properties["ndv"] for blob in statistics.blob_metadata if blob.properties} == {
        "10",
        "2",
    }
    (partition_statistics,) = metadata.partition_statistics
    assert partition_statistics.snapshot_id == metadata.current_snapshot_id


def test_a_spark_table_is_snapshotted_into_the_catalog(
    sql: SparkSession, spark_catalog: str, namespace: str
) -> None:
    source = f"spark_catalog.default.src_{namespace}"
    sql.sql(f"CREATE TABLE {source} (id BIGINT) USING parquet")
    sql.sql(f"INSERT INTO {source} VALUES (5), (6)")
    sql.sql(f"CALL system.snapshot('{source}', '{spark_catalog}.{namespace}.copy')")
    assert ids(sql, f"{namespace}.copy") == [5, 6]
    sql.sql("INSERT INTO copy VALUES (7)")
    assert ids(sql, f"{namespace}.copy") == [5, 6, 7]
    assert ids(sql, source) == [5, 6]
    sql.sql(f"DROP TABLE {source}")


def test_changes_are_shown_as_rows(sql: SparkSession, table: str) -> None:
    sql.sql(f"DELETE FROM {table} WHERE id = 2")
    sql.sql(f"CALL system.create_changelog_view(table => '{table}', changelog_view => 'changes')")
    changes = spark_rows(sql, "SELECT id, _change_type FROM changes ORDER BY _change_ordinal")
    assert changes == [(1, "INSERT"), (2, "INSERT"), (3, "INSERT"), (2, "DELETE")]
    sql.catalog.dropTempView("changes")

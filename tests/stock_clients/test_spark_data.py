"""Stock Spark with Iceberg's runtime jar: rows, time travel, branches and tags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from tests.stock_clients.stock import operations, sequence_numbers, spark_column, spark_rows
from tests.support.server import RunningServer
from tests.support.spark import add_catalog

COPY_ON_WRITE = "copy-on-write"
MERGE_ON_READ = "merge-on-read"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.mark.parametrize(
    ("version", "mode", "delete_files"),
    [(2, COPY_ON_WRITE, set()), (2, MERGE_ON_READ, {"PARQUET"}), (3, MERGE_ON_READ, {"PUFFIN"})],
    ids=["v2-copy-on-write", "v2-merge-on-read", "v3-deletion-vectors"],
)
def test_delete_update_and_merge(
    sql: SparkSession,
    iceberg: Catalog,
    namespace: str,
    version: int,
    mode: str,
    delete_files: set[str],
) -> None:
    modes = ", ".join(f"'write.{kind}.mode' = '{mode}'" for kind in ("delete", "update", "merge"))
    sql.sql(
        f"CREATE TABLE t (id BIGINT, name STRING) USING iceberg PARTITIONED BY (bucket(2, id))"
        f" TBLPROPERTIES ('format-version' = '{version}', {modes})"
    )
    sql.sql("INSERT INTO t SELECT id, 'x' FROM range(10)")
    sql.sql("DELETE FROM t WHERE id IN (1, 2)")
    sql.sql("UPDATE t SET name = 'u' WHERE id = 3")
    sql.sql(
        "MERGE INTO t USING"
        " (SELECT * FROM VALUES (3, 'm'), (4, 'gone'), (99, 'new') AS s(id, name)) AS s"
        " ON t.id = s.id"
        " WHEN MATCHED AND s.name = 'gone' THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET name = s.name"
        " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
    )
    rows = [(0, "x"), (3, "m"), *((number, "x") for number in range(5, 10)), (99, "new")]
    assert spark_rows(sql, "SELECT * FROM t ORDER BY id") == rows
    formats = spark_column(sql, f"SELECT file_format FROM {namespace}.t.delete_files")
    assert set(formats) == delete_files

    table = iceberg.load_table((namespace, "t"))
    kinds = operations(table)
    assert kinds[0] == "append"
    assert kinds[1] == ("overwrite" if mode == COPY_ON_WRITE else "delete")
    assert kinds[2:] == ["overwrite", "overwrite"]
    assert list(sequence_numbers(table)) == [1, 2, 3, 4]
    if version == 3:
        lineage = spark_rows(
            sql, "SELECT id, _row_id, _last_updated_sequence_number FROM t WHERE id IN (0, 3)"
        )
        by_id = {row[0]: row[1:] for row in lineage}
        assert by_id[0][1] == 1
        assert by_id[3][1] == 4
        assert by_id[0][0] != by_id[3][0]
        next_row_id = table.metadata.next_row_id  # type: ignore[union-attr]
        assert next_row_id is not None
        assert next_row_id > 10


def test_insert_overwrite(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql("CREATE TABLE t (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part)")
    sql.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    sql.sql("INSERT OVERWRITE t PARTITION (part = 'a') VALUES (10)")
    assert spark_rows(sql, "SELECT * FROM t ORDER BY id") == [(2, "b"), (3, "c"), (10, "a")]
    with setting(sql, "spark.sql.sources.partitionOverwriteMode", "dynamic"):
        sql.sql("INSERT OVERWRITE t VALUES (20, 'b'), (40, 'd')")
    rows = [(3, "c"), (10, "a"), (20, "b"), (40, "d")]
    assert spark_rows(sql, "SELECT * FROM t ORDER BY id") == rows
    sql.sql("INSERT OVERWRITE t VALUES (5, 'e')")
    assert spark_rows(sql, "SELECT * FROM t") == [(5, "e")]
    sql.sql("TRUNCATE TABLE t")
    assert spark_rows(sql, "SELECT * FROM t") == []
    table = iceberg.load_table((namespace, "t"))
    assert operations(table) == ["append", "overwrite", "overwrite", "overwrite", "delete"]


def test_dataframes_are_written_and_schemas_merged(sql: SparkSession, namespace: str) -> None:
    name = f"{namespace}.t"
    frame = sql.createDataFrame([(1, "a"), (2, "b")], "id BIGINT, name STRING")
    frame.writeTo(name).using("iceberg").tableProperty(
        "write.spark.accept-any-schema", "true"
    ).create()
    wider = sql.createDataFrame([(3, "c", 1.5)], "id BIGINT, name STRING, size DOUBLE")
    wider.writeTo(name).option("mergeSchema", "true").append()
    frame.where("id = 1").writeTo(name).overwritePartitions()
    assert spark_rows(sql, "SELECT * FROM t") == [(1, "a", None)]
    assert spark_column(sql, f"SELECT count(*) FROM {name}.snapshots") == [3]


def test_time_travel_branches_and_tags(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql("CREATE TABLE t (id BIGINT) USING iceberg")
    for number in (1, 2, 3):
        sql.sql(f"INSERT INTO t VALUES ({number})")
    history = spark_rows(
        sql, f"SELECT snapshot_id, made_current_at FROM {namespace}.t.history ORDER BY 2"
    )
    for count, (snapshot_id, made_current_at) in enumerate(history, 1):
        by_id = f"SELECT count(*) FROM t VERSION AS OF {snapshot_id}"
        assert spark_column(sql, by_id) == [count]
        by_time = f"SELECT count(*) FROM t TIMESTAMP AS OF '{made_current_at.isoformat(' ')}'"
        assert spark_column(sql, by_time) == [count]

    second = history[1][0]
    sql.sql(
        f"ALTER TABLE t CREATE BRANCH audit AS OF VERSION {second}"
        " RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 DAYS"
    )
    sql.sql(f"ALTER TABLE t CREATE TAG v2 AS OF VERSION {second} RETAIN 5 DAYS")
    sql.sql(f"INSERT INTO {namespace}.t.branch_audit VALUES (100)")
    sql.sql(f"DELETE FROM {namespace}.t.branch_audit WHERE id = 1")
    assert spark_column(sql, "SELECT id FROM t VERSION AS OF 'audit' ORDER BY id") == [2, 100]
    assert spark_column(sql, "SELECT id FROM t VERSION AS OF 'v2' ORDER BY id") == [1, 2]
    assert spark_column(sql, "SELECT id FROM t ORDER BY id") == [1, 2, 3]

    refs = iceberg.load_table((namespace, "t")).refs()
    day_ms = 24 * 60 * 60 * 1000
    audit = refs["audit"]
    assert audit.max_ref_age_ms == 7 * day_ms
    assert audit.min_snapshots_to_keep == 2
    assert audit.max_snapshot_age_ms == 3 * day_ms
    assert refs["v2"].max_ref_age_ms == 5 * day_ms

    sql.sql(f"ALTER TABLE t CREATE OR REPLACE TAG v2 AS OF VERSION {history[0][0]}")
    sql.sql("ALTER TABLE t DROP BRANCH audit")
    refs = iceberg.load_table((namespace, "t")).refs()
    assert set(refs) == {"main", "v2"}
    assert refs["v2"].snapshot_id == history[0][0]


def test_only_snapshots_of_refs_are_loaded(
    sql: SparkSession, catalog_server: RunningServer, iceberg: Catalog, namespace: str
) -> None:
    """The client loads the rest of the history on demand."""
    lazy = f"lazy_{namespace}"
    add_catalog(sql, lazy, catalog_server.url, **{"snapshot-loading-mode": "REFS"})
    sql.sql("CREATE TABLE t (id BIGINT) USING iceberg")
    for number in (1, 2, 3):
        sql.sql(f"INSERT INTO t VALUES ({number})")
    table = f"{lazy}.{namespace}.t"
    sql.sql(f"INSERT INTO {table} VALUES (4)")
    assert spark_column(sql, f"SELECT id FROM {table} ORDER BY id") == [1, 2, 3, 4]
    history = f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at"
    first, *others = spark_column(sql, history)
    assert len(others) == 3
    assert spark_column(sql, f"SELECT id FROM {table} VERSION AS OF {first}") == [1]
    loaded = iceberg.load_table((namespace, "t"))
    assert len(loaded.snapshots()) == 4, "an append with part of the history keeps all of it"
    assert len(loaded.history()) == 4


def test_write_audit_publish(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql("CREATE TABLE t (id BIGINT) USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true')")
    sql.sql("INSERT INTO t VALUES (1)")
    with setting(sql, "spark.wap.id", "night-1"):
        sql.sql("INSERT INTO t VALUES (2)")
    assert spark_column(sql, "SELECT id FROM t") == [1]
    assert len(iceberg.load_table((namespace, "t")).snapshots()) == 2, "staged, not on main"
    sql.sql("INSERT INTO t VALUES (3)")

    sql.sql(f"CALL system.publish_changes('{namespace}.t', 'night-1')")
    assert spark_column(sql, "SELECT id FROM t ORDER BY id") == [1, 2, 3]
    head = iceberg.load_table((namespace, "t")).current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["published-wap-id"] == "night-1"
    with pytest.raises(Exception, match="Duplicate request to cherry pick wap id"):
        sql.sql(f"CALL system.publish_changes('{namespace}.t', 'night-1')")

    with setting(sql, "spark.wap.branch", "audit"):
        sql.sql("INSERT INTO t VALUES (4)")
        assert spark_column(sql, "SELECT count(*) FROM t") == [4]
    assert spark_column(sql, "SELECT count(*) FROM t") == [3]
    sql.sql(f"CALL system.fast_forward('{namespace}.t', 'main', 'audit')")
    assert spark_column(sql, "SELECT count(*) FROM t") == [4]


def test_version_3_variant_and_upgrade(sql: SparkSession, namespace: str) -> None:
    sql.sql("CREATE TABLE t (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    sql.sql("INSERT INTO t VALUES (1), (2)")
    sql.sql("ALTER TABLE t SET TBLPROPERTIES ('format-version' = '3')")
    sql.sql("ALTER TABLE t ADD COLUMN v VARIANT")
    sql.sql("""INSERT INTO t SELECT 3, parse_json('{"a": 7}')""")
    query = "SELECT id, variant_get(v, '$.a', 'int') FROM t ORDER BY id"
    assert spark_rows(sql, query) == [(1, None), (2, None), (3, 7)]
    row_ids = spark_column(sql, "SELECT _row_id FROM t")
    assert sorted(row_ids) == [0, 1, 2], "files from before the upgrade get row ids as well"


def test_metadata_tables(sql: SparkSession, namespace: str) -> None:
    sql.sql("CREATE TABLE t (id BIGINT, part INT) USING iceberg PARTITIONED BY (part)")
    sql.sql("INSERT INTO t SELECT id, CAST(id % 2 AS INT) FROM range(4)")
    sql.sql("DELETE FROM t WHERE part = 0")
    counts = {
        "snapshots": 2,
        "history": 2,
        "files": 1,
        "data_files": 1,
        "delete_files": 0,
        "partitions": 1,
        "refs": 1,
        "metadata_log_entries": 3,
    }
    for name, count in counts.items():
        found = spark_column(sql, f"SELECT count(*) FROM {namespace}.t.{name}")
        assert found == [count], name
    for name in ("entries", "all_data_files", "manifests", "all_manifests", "all_files"):
        assert spark_column(sql, f"SELECT count(*) > 0 FROM {namespace}.t.{name}") == [True], name
    assert spark_column(sql, f"SELECT record_count FROM {namespace}.t.partitions") == [2]

"""Stock Spark with Iceberg's runtime jar: DDL, views and namespaces in SQL."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.sorting import SortDirection
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.stock_clients.stock import operations, spark_column, spark_rows


def test_table_is_created_and_altered(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql(
        "CREATE TABLE t (id INT NOT NULL COMMENT 'the key', name STRING, at TIMESTAMP,"
        " price DECIMAL(9, 2)) USING iceberg PARTITIONED BY (bucket(4, id))"
        " COMMENT 'a table' TBLPROPERTIES ('a' = 'b', 'c' = 'd')"
    )
    sql.sql("INSERT INTO t VALUES (1, 'a', TIMESTAMP '2024-01-01', 1.5)")
    for statement in (
        "ADD COLUMNS (place STRUCT<city: STRING, zip: STRING>, gone ARRAY<INT>)",
        "ADD COLUMN place.country STRING AFTER city",
        "RENAME COLUMN name TO title",
        "ALTER COLUMN title FIRST",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN price TYPE DECIMAL(12, 2)",
        "ALTER COLUMN title COMMENT 'shown'",
        "DROP COLUMN gone",
        "SET IDENTIFIER FIELDS id",
        "ADD PARTITION FIELD days(at) AS day",
        "REPLACE PARTITION FIELD bucket(4, id) WITH bucket(8, id)",
        "DROP PARTITION FIELD day",
        "WRITE ORDERED BY id DESC NULLS LAST",
        "SET TBLPROPERTIES ('e' = 'f')",
        "UNSET TBLPROPERTIES ('a')",
    ):
        sql.sql(f"ALTER TABLE t {statement}")
    sql.sql("INSERT INTO t (id, title) VALUES (2, 'b')")
    assert spark_rows(sql, "SELECT * FROM t ORDER BY id") == [
        ("a", 1, datetime(2024, 1, 1), Decimal("1.50"), None),
        ("b", 2, None, None, None),
    ]

    table = iceberg.load_table((namespace, "t"))
    names = [field.name for field in table.schema().fields]
    assert names == ["title", "id", "at", "price", "place"]
    assert str(table.schema().find_type("place")).count("string") == 3
    assert table.schema().identifier_field_ids == [1]
    assert table.schema().find_field("id").doc == "the key"
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[8]"]
    assert sorted(table.specs()) == [0, 1, 2, 3]
    assert table.sort_order().fields[0].direction is SortDirection.DESC
    properties = table.properties
    wanted = {"a": None, "c": "d", "e": "f", "comment": "a table"}
    assert {name: properties.get(name) for name in wanted} == wanted
    assert len(table.metadata.metadata_log) == 17, "one file for each statement"


def test_every_type_is_written_and_read_back(
    sql: SparkSession, iceberg: Catalog, namespace: str
) -> None:
    sql.sql(
        "CREATE TABLE t (b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(38, 9),"
        " day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, s STRING, raw BINARY, list ARRAY<STRING>,"
        " map MAP<STRING, INT>, struct STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>)"
    )
    sql.sql(
        "INSERT INTO t VALUES (true, -5, 9223372036854775807, 1.5, -2.25, 12345.123456789,"
        " DATE '1969-12-31', TIMESTAMP '2024-02-29 12:30:00Z', TIMESTAMP_NTZ '2024-02-29 12:30:00',"
        " 'fräzil ❄', X'00FF', array('a', NULL), map('k', 1),"
        " named_struct('a', 1, 'b', array(named_struct('c', 'x'))))"
    )
    (row,) = iceberg.load_table((namespace, "t")).scan().to_arrow().to_pylist()
    at = row.pop("at")
    assert at.timestamp() == 1709209800
    assert list(row.values()) == [
        True,
        -5,
        2**63 - 1,
        1.5,
        -2.25,
        Decimal("12345.123456789"),
        date(1969, 12, 31),
        datetime(2024, 2, 29, 12, 30),
        "fräzil ❄",
        b"\x00\xff",
        ["a", None],
        [("k", 1)],
        {"a": 1, "b": [{"c": "x"}]},
    ]
    assert spark_rows(sql, "SELECT s, struct.b[0].c, map['k'] FROM t") == [("fräzil ❄", "x", 1)]


def test_table_from_a_query_is_replaced(
    sql: SparkSession, iceberg: Catalog, namespace: str
) -> None:
    sql.sql(
        "CREATE TABLE t USING iceberg PARTITIONED BY (part)"
        " AS SELECT id, id % 2 AS part FROM range(10)"
    )
    first = iceberg.load_table((namespace, "t"))
    sql.sql("REPLACE TABLE t USING iceberg TBLPROPERTIES ('a' = 'b') AS SELECT 1 AS x, 'y' AS y")
    sql.sql("CREATE OR REPLACE TABLE t USING iceberg AS SELECT 2 AS x")
    sql.sql("CREATE OR REPLACE TABLE other USING iceberg AS SELECT 3 AS x")
    assert spark_rows(sql, "SELECT * FROM t") == [(2,)]
    assert spark_rows(sql, "SELECT * FROM other") == [(3,)]

    table = iceberg.load_table((namespace, "t"))
    assert table.metadata.table_uuid == first.metadata.table_uuid, "replaced, not made anew"
    assert table.location() == first.location()
    assert operations(table) == ["append", "overwrite", "overwrite"]
    assert len(table.history()) == 3, "time travel still finds what was replaced"
    head = table.current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id is None
    (old,) = (found for found in table.snapshots() if found.sequence_number == 1)
    assert spark_rows(sql, f"SELECT count(*) FROM t VERSION AS OF {old.snapshot_id}") == [(10,)]


def test_table_is_renamed_and_dropped(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql("CREATE TABLE t USING iceberg AS SELECT 1 AS id")
    sql.sql(f"ALTER TABLE t RENAME TO {namespace}.renamed")
    assert spark_column(sql, "SELECT id FROM renamed") == [1]
    assert [row[1] for row in spark_rows(sql, "SHOW TABLES")] == ["renamed"]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql.sql("SELECT * FROM t")

    folder = Path(iceberg.load_table((namespace, "renamed")).location().removeprefix("file://"))
    sql.sql("DELETE FROM renamed WHERE id = 1")
    sql.sql("ALTER TABLE renamed SET TBLPROPERTIES ('frazil.gc.quarantine-ms' = '0')")
    sql.sql("DROP TABLE renamed PURGE")
    assert not iceberg.table_exists((namespace, "renamed"))
    assert [path for path in folder.rglob("*") if path.is_file()] == []

    sql.sql("CREATE TABLE kept USING iceberg AS SELECT 1 AS id")
    folder = Path(iceberg.load_table((namespace, "kept")).location().removeprefix("file://"))
    sql.sql("DROP TABLE kept")
    assert list(folder.rglob("*.parquet")), "dropped without PURGE: the files stay"


def test_names_that_look_like_metadata_tables(
    sql: SparkSession, iceberg: Catalog, namespace: str
) -> None:
    """If `ns.files` does not exist, Java's client requests a table `ns` in the empty namespace."""
    for name in ("files", "history", "`with.dot and/slash`"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql.sql(f"SELECT * FROM {namespace}.{name}")
        sql.sql(f"CREATE TABLE {namespace}.{name} (id BIGINT) USING iceberg")
        sql.sql(f"INSERT INTO {namespace}.{name} VALUES (1)")
        assert spark_rows(sql, f"SELECT * FROM {namespace}.{name}") == [(1,)]
    assert iceberg.table_exists((namespace, "with.dot and/slash"))
    assert spark_column(sql, f"SELECT record_count FROM {namespace}.files.files") == [1]


def test_namespaces(
    sql: SparkSession, spark_catalog: str, iceberg: Catalog, namespace: str
) -> None:
    inner = f"{spark_catalog}.{namespace}.inner"
    sql.sql(f"CREATE NAMESPACE {inner} COMMENT 'the inner one'")
    sql.sql(f"ALTER NAMESPACE {inner} SET PROPERTIES ('k' = 'v')")
    described = {row[0]: row[1] for row in spark_rows(sql, f"DESCRIBE NAMESPACE EXTENDED {inner}")}
    assert described["Comment"] == "the inner one"
    assert "(k,v)" in described["Properties"]
    shown = spark_column(sql, f"SHOW NAMESPACES IN {spark_catalog}.{namespace}")
    assert shown == [f"{namespace}.inner"]
    sql.sql(f"CREATE TABLE {inner}.t (id INT) USING iceberg")
    with pytest.raises(Exception, match="not empty"):
        sql.sql(f"DROP NAMESPACE {inner}")
    sql.sql(f"DROP TABLE {inner}.t")
    sql.sql(f"DROP NAMESPACE {inner}")
    assert iceberg.list_namespaces(namespace) == []


def test_views(sql: SparkSession, iceberg: Catalog, namespace: str) -> None:
    sql.sql("CREATE TABLE t USING iceberg AS SELECT id, CAST(id AS STRING) AS name FROM range(5)")
    sql.sql("CREATE VIEW v COMMENT 'few' AS SELECT id FROM t WHERE id > 2")
    assert spark_column(sql, "SELECT id FROM v ORDER BY id") == [3, 4]
    with pytest.raises(AnalysisException, match="already exists"):
        sql.sql("CREATE VIEW v AS SELECT 1 AS x")
    sql.sql(
        "CREATE OR REPLACE VIEW v (number COMMENT 'the id', name) TBLPROPERTIES ('k' = 'v')"
        " AS SELECT id, name FROM t WHERE id > 3"
    )
    assert spark_rows(sql, "SELECT number, name FROM v") == [(4, "4")]
    sql.sql("ALTER VIEW v SET TBLPROPERTIES ('q' = 'r')")
    sql.sql("ALTER VIEW v UNSET TBLPROPERTIES ('k')")
    with pytest.raises(AnalysisException, match="Use CREATE OR REPLACE VIEW instead"):
        sql.sql("ALTER VIEW v AS SELECT 1 AS x")
    sql.sql("CREATE OR REPLACE VIEW v AS SELECT id AS number, name FROM t WHERE id = 0")
    assert spark_rows(sql, "SELECT * FROM v") == [(0, "0")]
    sql.sql(f"ALTER VIEW v RENAME TO {namespace}.w")
    # Other tests leave temporary views in the session, which SHOW VIEWS lists too.
    shown = spark_rows(sql, "SHOW VIEWS")
    assert [name for _, name, is_temporary in shown if not is_temporary] == ["w"]
    properties = {row[0]: row[1] for row in spark_rows(sql, "SHOW TBLPROPERTIES w")}
    assert (properties.get("k"), properties["q"]) == (None, "r")

    view = iceberg.load_view((namespace, "w"))
    assert [found.version_id for found in view.history()] == [1, 2, 3]
    text = view.sql_for("spark")
    assert text is not None
    assert re.sub(r"\s+", " ", text.sql) == "SELECT id AS number, name FROM t WHERE id = 0"
    assert view.current_version().default_namespace == (namespace,)
    with pytest.raises(AnalysisException):
        sql.sql("CREATE TABLE w (id INT) USING iceberg")
    sql.sql("DROP VIEW w")
    assert not iceberg.view_exists((namespace, "w"))
    sql.sql("DROP VIEW IF EXISTS w")


def test_what_spark_declines_itself(sql: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="does not support column default value"):
        sql.sql(
            "CREATE TABLE t (id INT DEFAULT 5) USING iceberg TBLPROPERTIES ('format-version' = '3')"
        )
    sql.sql("CREATE TABLE t (id INT) USING iceberg")
    with pytest.raises(AnalysisException, match="ANALYZE TABLE is not supported for v2 tables"):
        sql.sql("ANALYZE TABLE t COMPUTE STATISTICS")


def test_what_the_server_refuses_is_shown_in_its_words(sql: SparkSession, namespace: str) -> None:
    with pytest.raises(Exception, match="outside the warehouse"):
        sql.sql("CREATE TABLE t (id INT) USING iceberg LOCATION 'file:///somewhere/else'")
    sql.sql("CREATE TABLE t (id INT) USING iceberg")
    with pytest.raises(Exception, match="Cannot change column type"):
        sql.sql("ALTER TABLE t ALTER COLUMN id TYPE STRING")
    with pytest.raises(Exception, match="Namespace does not exist: no_such_namespace"):
        sql.sql("CREATE TABLE no_such_namespace.t (id INT) USING iceberg")

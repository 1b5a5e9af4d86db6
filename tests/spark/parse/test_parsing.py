"""The parser handles all statements; these tests need neither Spark nor a server."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from frazil.client.declare.column_definitions import ColumnDefinition
from frazil.client.declare.type_text import parse_type, type_text
from frazil.spark.parse.parsed_statements import (
    AddColumns,
    AlterColumn,
    AlterNamespace,
    AlterTable,
    CallStatement,
    CreateNamespace,
    CreateRef,
    CreateTable,
    DeleteStatement,
    DescribeNamespace,
    DescribeTable,
    DropColumns,
    DropNamespace,
    DropRef,
    DropTable,
    IdentifierFields,
    InsertStatement,
    MergeClause,
    MergeStatement,
    PartitionChange,
    QueryStatement,
    RenameColumn,
    RenameTable,
    SetLocation,
    SetProperties,
    ShowCreateTable,
    ShowNamespaces,
    ShowProperties,
    ShowTables,
    TruncateStatement,
    UnsetProperties,
    UpdateStatement,
    UseStatement,
    WriteOrder,
)
from frazil.spark.parse.sql_literals import bind, literal_of
from frazil.spark.parse.statement_parser import parse
from frazil.values.types import (
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    DecimalType,
    FixedType,
    ListType,
    MapType,
    StructType,
    Type,
)
from frazil.wire.errors import BadRequest

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1, 2)",
        "TABLE ns.t",
        "FROM ns.t SELECT id",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "EXPLAIN FORMATTED SELECT 1",
    ],
)
def test_query(text: str) -> None:
    assert parse(f"{text} ;\n") == QueryStatement(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO ns.t SELECT 1", InsertStatement(target=("ns", "t"), query="SELECT 1")),
        ("INSERT INTO TABLE t (SELECT 1)", InsertStatement(target=("t",), query="(SELECT 1)")),
        (
            "INSERT INTO ns.t (a, `b c`) VALUES (1, 'x;y')",
            InsertStatement(target=("ns", "t"), query="VALUES (1, 'x;y')", columns=("a", "b c")),
        ),
        (
            "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
            InsertStatement(target=("t",), query="WITH a AS (SELECT 1) SELECT * FROM a"),
        ),
        (
            "INSERT INTO t BY NAME SELECT 1 a",
            InsertStatement(target=("t",), query="SELECT 1 a", by_name=True),
        ),
        (
            "INSERT OVERWRITE TABLE t PARTITION (p = DATE '2026-01-01', q) SELECT 1",
            InsertStatement(
                target=("t",),
                query="SELECT 1",
                overwrite=True,
                partition=(("p", "DATE '2026-01-01'"), ("q", None)),
            ),
        ),
        (
            "INSERT INTO t REPLACE WHERE a > (SELECT 1) AND b = 2 SELECT * FROM x",
            InsertStatement(
                target=("t",), query="SELECT * FROM x", replace_where="a > (SELECT 1) AND b = 2"
            ),
        ),
        (
            "INSERT WITH SCHEMA EVOLUTION INTO t SELECT 1",
            InsertStatement(target=("t",), query="SELECT 1", merge_schema=True),
        ),
        ("DELETE FROM t", DeleteStatement(("t",))),
        (
            "delete from ns.`t u` as x where x.id in (select id from y) -- all",
            DeleteStatement(("ns", "t u"), "x", "x.id in (select id from y)"),
        ),
        (
            "UPDATE t x SET a = CASE WHEN b THEN 1 ELSE 2 END, s.y = f(1, 2) WHERE a.where > 1",
            UpdateStatement(
                ("t",),
                ((("a",), "CASE WHEN b THEN 1 ELSE 2 END"), (("s", "y"), "f(1, 2)")),
                "x",
                "a.where > 1",
            ),
        ),
        ("TRUNCATE TABLE ns.t", TruncateStatement(("ns", "t"))),
    ],
)
def test_rows(text: str, expected: object) -> None:
    assert parse(text) == expected


def test_merge_with_every_clause() -> None:
    found = parse(
        """MERGE INTO ns.t AS t USING (SELECT * FROM ns.u) s
        ON t.id = s.id AND CASE WHEN t.a THEN 1 END = 1
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.a = s.a, b = t.b + 1
        WHEN NOT MATCHED BY TARGET AND s.op <> 'd' THEN
          INSERT (id, a) VALUES (s.id, coalesce(s.a, 0))
        WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.x > 3 THEN UPDATE SET x = 0
        WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    )
    assert found == MergeStatement(
        target=("ns", "t"),
        source="(SELECT * FROM ns.u) s",
        source_alias="s",
        on="t.id = s.id AND CASE WHEN t.a THEN 1 END = 1",
        alias="t",
        clauses=(
            MergeClause("matched", "delete", "s.op = 'd'"),
            MergeClause("matched", "update", None, ((("t", "a"), "s.a"), (("b",), "t.b + 1"))),
            MergeClause(
                "not matched",
                "insert",
                "s.op <> 'd'",
                ((("id",), "s.id"), (("a",), "coalesce(s.a, 0)")),
            ),
            MergeClause("not matched", "insert"),
            MergeClause("not matched by source", "update", "t.x > 3", ((("x",), "0"),)),
            MergeClause("not matched by source", "delete"),
        ),
    )


@pytest.mark.parametrize(
    ("source", "alias"),
    [
        ("ns.src", "src"),
        ("ns.src AS q", "q"),
        ("ns.src q", "q"),
        ("ns.src VERSION AS OF 3 q", "q"),
        ("ns.src TIMESTAMP AS OF '2026-01-01'", "src"),
        ("(SELECT 1 id) AS q", "q"),
    ],
)
def test_merge_source(source: str, alias: str) -> None:
    found = parse(f"MERGE INTO t USING {source} ON t.id = {alias}.id WHEN MATCHED THEN DELETE")
    assert isinstance(found, MergeStatement)
    assert (found.source, found.source_alias) == (source, alias)


def test_create_table() -> None:
    found = parse(
        """CREATE TABLE IF NOT EXISTS a.b (
          id BIGINT NOT NULL COMMENT 'the key',
          s STRUCT<x: ARRAY<MAP<INT, STRING>>, y: INT NOT NULL>,
          d DECIMAL(10, 2) DEFAULT 1.5 COMMENT 'price')
        USING iceberg PARTITIONED BY (days(ts), bucket(16, id))
        TBLPROPERTIES ('format-version' = '3', write.target-file-size-bytes = 5)
        LOCATION 's3://x' COMMENT 'hi'""".replace("write.target-file-size-bytes", "a.b")
    )
    assert found == CreateTable(
        name=("a", "b"),
        columns=(
            ColumnDefinition(("id",), "BIGINT", required=True, comment="the key"),
            ColumnDefinition(("s",), "STRUCT<x: ARRAY<MAP<INT, STRING>>, y: INT NOT NULL>"),
            ColumnDefinition(("d",), "DECIMAL(10, 2)", comment="price", default="1.5"),
        ),
        partitioned_by=("days(ts)", "bucket(16, id)"),
        properties={"format-version": "3", "a.b": "5"},
        location="s3://x",
        comment="hi",
        if_not_exists=True,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE TABLE t USING frazil AS SELECT 1 AS a",
            CreateTable(name=("t",), query="SELECT 1 AS a"),
        ),
        (
            "CREATE OR REPLACE TABLE t PARTITIONED BY (a) AS SELECT 1 AS a",
            CreateTable(name=("t",), query="SELECT 1 AS a", partitioned_by=("a",), replace=True),
        ),
        (
            "REPLACE TABLE t AS SELECT 1 AS a",
            CreateTable(name=("t",), query="SELECT 1 AS a", replace=True, create=False),
        ),
        ("DROP TABLE IF EXISTS a.b PURGE", DropTable(("a", "b"), True, True)),
        (
            "CREATE SCHEMA IF NOT EXISTS a.b COMMENT 'c' WITH DBPROPERTIES ('k' = 'v')",
            CreateNamespace(("a", "b"), True, {"comment": "c", "k": "v"}),
        ),
        ("ALTER DATABASE a SET PROPERTIES ('k' = 'v')", AlterNamespace(("a",), {"k": "v"})),
        (
            "ALTER NAMESPACE a UNSET PROPERTIES ('k')",
            AlterNamespace(("a",), {}, ("k",)),
        ),
        ("DROP NAMESPACE IF EXISTS a CASCADE", DropNamespace(("a",), True, True)),
        ("USE a.b", UseStatement(("a", "b"))),
        ("USE DATABASE a", UseStatement(("a",))),
        ("SHOW TABLES", ShowTables()),
        ("SHOW TABLES IN a.b LIKE 'x*'", ShowTables(("a", "b"), "x*")),
        ("SHOW DATABASES", ShowNamespaces()),
        ("SHOW NAMESPACES FROM a 'b|c'", ShowNamespaces(("a",), "b|c")),
        ("SHOW TBLPROPERTIES t ('k')", ShowProperties(("t",), "k")),
        ("SHOW CREATE TABLE a.b", ShowCreateTable(("a", "b"))),
        ("DESCRIBE a.b", DescribeTable(("a", "b"))),
        ("DESC TABLE EXTENDED a.b", DescribeTable(("a", "b"), True)),
        ("DESCRIBE NAMESPACE a", DescribeNamespace(("a",))),
    ],
)
def test_definitions(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "ADD COLUMNS (x INT COMMENT 'c' AFTER y, s.z STRING FIRST)",
            AddColumns(
                (
                    ColumnDefinition(("x",), "INT", comment="c", position=("after", "y")),
                    ColumnDefinition(("s", "z"), "STRING", position=("first", None)),
                )
            ),
        ),
        (
            "ADD COLUMN x INT DEFAULT 7",
            AddColumns((ColumnDefinition(("x",), "INT", default="7"),)),
        ),
        ("DROP COLUMN IF EXISTS x, s.y", DropColumns((("x",), ("s", "y")), True)),
        ("DROP COLUMNS (x, y)", DropColumns((("x",), ("y",)))),
        ("RENAME COLUMN s.x TO y", RenameColumn(("s", "x"), "y")),
        ("RENAME TO ns.u", RenameTable(("ns", "u"))),
        ("ALTER COLUMN x TYPE BIGINT", AlterColumn(("x",), type="BIGINT")),
        ("ALTER COLUMN x COMMENT 'c'", AlterColumn(("x",), comment="c")),
        ("ALTER x SET NOT NULL", AlterColumn(("x",), required=True)),
        ("ALTER COLUMN x DROP NOT NULL", AlterColumn(("x",), required=False)),
        ("ALTER COLUMN x AFTER y", AlterColumn(("x",), position=("after", "y"))),
        ("ALTER COLUMN x SET DEFAULT 1 + 1", AlterColumn(("x",), default="1 + 1")),
        ("ALTER COLUMN x DROP DEFAULT", AlterColumn(("x",), drop_default=True)),
        (
            "CHANGE COLUMN x x BIGINT COMMENT 'c' FIRST",
            AlterColumn(("x",), type="BIGINT", comment="c", position=("first", None)),
        ),
        ("SET TBLPROPERTIES ('a' = 'b')", SetProperties({"a": "b"})),
        ("UNSET TBLPROPERTIES IF EXISTS ('a', 'b')", UnsetProperties(("a", "b"))),
        ("SET LOCATION 's3://y'", SetLocation("s3://y")),
        (
            "ADD PARTITION FIELD bucket(16, id) AS shard",
            PartitionChange(added="bucket(16, id)", name="shard"),
        ),
        ("DROP PARTITION FIELD days(ts)", PartitionChange(dropped="days(ts)")),
        (
            "REPLACE PARTITION FIELD ts_day WITH hours(ts)",
            PartitionChange("ts_day", "hours(ts)"),
        ),
        (
            "WRITE ORDERED BY x DESC NULLS LAST, bucket(4, y)",
            WriteOrder(("x DESC NULLS LAST", "bucket(4, y)"), "range"),
        ),
        ("WRITE LOCALLY ORDERED BY (x, y)", WriteOrder(("x", "y"))),
        ("WRITE DISTRIBUTED BY PARTITION", WriteOrder((), "hash")),
        (
            "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY x",
            WriteOrder(("x",), "hash"),
        ),
        ("WRITE UNORDERED", WriteOrder((), "none")),
        ("SET IDENTIFIER FIELDS x, s.y", IdentifierFields((("x",), ("s", "y")))),
        ("DROP IDENTIFIER FIELDS x", IdentifierFields((("x",),), drop=True)),
        (
            "CREATE BRANCH IF NOT EXISTS b AS OF VERSION 3 RETAIN 7 DAYS "
            "WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 HOURS",
            CreateRef(
                kind="branch",
                name="b",
                snapshot_id=3,
                if_not_exists=True,
                max_ref_age_ms=7 * DAY_MS,
                min_snapshots_to_keep=2,
                max_snapshot_age_ms=3 * 3_600_000,
            ),
        ),
        (
            "CREATE OR REPLACE TAG b RETAIN 1 DAYS",
            CreateRef(kind="tag", name="b", replace=True, max_ref_age_ms=DAY_MS),
        ),
        ("REPLACE BRANCH b", CreateRef(kind="branch", name="b", replace=True, create=False)),
        (
            "CREATE BRANCH b WITH SNAPSHOT RETENTION 5 MINUTES",
            CreateRef(kind="branch", name="b", max_snapshot_age_ms=300_000),
        ),
        ("DROP TAG IF EXISTS b", DropRef("tag", "b", True)),
    ],
)
def test_alter_table(text: str, expected: object) -> None:
    assert parse(f"ALTER TABLE ns.t {text}") == AlterTable(("ns", "t"), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CALL frazil.system.rollback_to_snapshot('a.b', 7)",
            CallStatement("rollback_to_snapshot", ("'a.b'", "7")),
        ),
        (
            "CALL system.fast_forward(table => 'a', Branch => 'main', to => concat('x', 'y'))",
            CallStatement(
                "fast_forward", (), {"table": "'a'", "branch": "'main'", "to": "concat('x', 'y')"}
            ),
        ),
        (
            "CALL publish_changes('a', wap_id => 'w')",
            CallStatement("publish_changes", ("'a'",), {"wap_id": "'w'"}),
        ),
    ],
)
def test_call(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("OPTIMIZE t", "MERGE"),
        ("SELECT 1; SELECT 2", "semicolon"),
        ("SELECT 'abc", "without an end"),
        ("ALTER TABLE t FOO", "ADD COLUMN"),
        ("DELETE FROM t WHERE", "ends where a condition"),
        ("UPDATE t WHERE a = 1", "SET"),
        ("MERGE INTO t USING s ON t.id = s.id", "WHEN"),
        ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "1 values"),
        ("CREATE TABLE t (a INT) USING parquet", "USING iceberg"),
        ("CREATE TABLE t (a INT) AS SELECT 1", "listed"),
        ("INSERT INTO t (a", "parentheses|\\)"),
        ("CALL other.f(1)", "system.f"),
        ("CALL system.f(a => 1, 2)", "name => value"),
        ("TRUNCATE TABLE t PARTITION (a = 1)", "DELETE"),
    ],
)
def test_errors_say_what_would_be_right(text: str, part: str) -> None:
    with pytest.raises(BadRequest, match=part):
        parse(text)


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bigint", LONG),
        ("SMALLINT", INT),
        ("varchar(20)", STRING),
        ("decimal", DecimalType(10, 0)),
        ("DECIMAL(12, 3)", DecimalType(12, 3)),
        ("timestamp", TIMESTAMPTZ),
        ("timestamp_ntz", TIMESTAMP),
        ("uuid", UUID),
        ("fixed(16)", FixedType(16)),
    ],
)
def test_type(text: str, expected: Type) -> None:
    assert parse_type(text) == expected


def test_nested_type() -> None:
    found = parse_type("STRUCT<a: ARRAY<MAP<STRING,INT>>, `b c` BIGINT NOT NULL COMMENT 'd'>")
    assert isinstance(found, StructType)
    first, second = found.fields
    assert isinstance(first.type, ListType)
    assert isinstance(first.type.element.type, MapType)
    assert (second.name, second.type, second.required, second.doc) == ("b c", LONG, True, "d")
    assert parse_type(type_text(found)) == found


def test_what_timestamp_is_depends_on_the_session() -> None:
    assert parse_type("array<timestamp>", timestamp=TIMESTAMP) == parse_type("array<timestamp_ntz>")


@pytest.mark.parametrize(
    "text", ["interval day", "decimal(50, 2)", "array<int", "struct<a>", "x y"]
)
def test_no_type(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_type(text)


# --- parameters -----------------------------------------------------------------------------------


def test_named_parameters() -> None:
    text = "UPDATE t SET s = :s, d = ':d' WHERE id = :id AND v:path > 1"
    found = bind(text, {"s": "it's", "id": 7})
    assert found == "UPDATE t SET s = 'it\\'s', d = ':d' WHERE id = 7 AND v:path > 1"


def test_positional_parameters() -> None:
    assert bind("DELETE FROM t WHERE a = ? AND b = ?", [1, None]) == (
        "DELETE FROM t WHERE a = 1 AND b = NULL"
    )


@pytest.mark.parametrize(
    ("text", "args"),
    [("DELETE FROM t WHERE a = :b", {"a": 1}), ("DELETE FROM t WHERE a = ?", [1, 2])],
)
def test_parameters_that_do_not_fit(text: str, args: Any) -> None:
    with pytest.raises(BadRequest):
        bind(text, args)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, "TRUE"),
        (2**40, "1099511627776L"),
        (Decimal("1.50"), "1.50BD"),
        (date(2026, 5, 1), "DATE'2026-05-01'"),
        (datetime(2026, 5, 1, 2, 3, tzinfo=UTC), "TIMESTAMP_LTZ'2026-05-01 02:03:00+00:00'"),
        (datetime(2026, 5, 1), "TIMESTAMP_NTZ'2026-05-01 00:00:00'"),
        (b"\x1f", "X'1f'"),
        ([1, "a"], "array(1, 'a')"),
        ("a\\'b", "'a\\\\\\'b'"),
    ],
)
def test_literal(value: Any, expected: str) -> None:
    assert literal_of(value, "x") == expected

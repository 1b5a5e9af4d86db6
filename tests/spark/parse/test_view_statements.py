"""The parser handles all statements about views."""

from __future__ import annotations

import pytest

from frazil.spark.parse.parsed_statements import (
    AlterView,
    CreateTemporaryView,
    CreateView,
    DropView,
    RenameTable,
    SetProperties,
    ShowViews,
    SparkStatement,
    UnsetProperties,
    ViewColumn,
    ViewQuery,
)
from frazil.spark.parse.statement_parser import parse
from frazil.wire.errors import BadRequest

USING_CSV = "CREATE TEMPORARY VIEW v (a INT) USING csv OPTIONS (path '/x')"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE VIEW ns.v AS SELECT 1 AS id -- end;",
            CreateView(name=("ns", "v"), query="SELECT 1 AS id"),
        ),
        (
            "create or replace view `a.b`.v (x COMMENT 'first', `y z`) TBLPROPERTIES (a.b = 1) "
            "COMMENT 'all' AS WITH q AS (SELECT 1) SELECT * FROM q;",
            CreateView(
                name=("a.b", "v"),
                query="WITH q AS (SELECT 1) SELECT * FROM q",
                columns=(ViewColumn("x", "first"), ViewColumn("y z")),
                comment="all",
                properties={"a.b": "1"},
                replace=True,
            ),
        ),
        (
            "CREATE VIEW IF NOT EXISTS v AS (VALUES (1))",
            CreateView(name=("v",), query="(VALUES (1))", if_not_exists=True),
        ),
        (
            "CREATE TEMP VIEW v (a) COMMENT 'kept by Spark' AS SELECT 1",
            CreateTemporaryView(name="v", query="SELECT 1", columns=(ViewColumn("a"),)),
        ),
        (
            "CREATE OR REPLACE GLOBAL TEMPORARY VIEW v AS TABLE ns.t",
            CreateTemporaryView(name="v", query="TABLE ns.t", replace=True, is_global=True),
        ),
        (USING_CSV, SparkStatement(USING_CSV)),
        (
            "CREATE TEMPORARY FUNCTION f AS 'a.B'",
            SparkStatement("CREATE TEMPORARY FUNCTION f AS 'a.B'"),
        ),
        ("DROP VIEW IF EXISTS ns.v", DropView(("ns", "v"), if_exists=True)),
        ("DROP VIEW v", DropView(("v",))),
        ("SHOW VIEWS", ShowViews()),
        ("SHOW VIEWS IN a.b LIKE 'x*'", ShowViews(("a", "b"), "x*")),
        ("SHOW VIEWS FROM a 'x'", ShowViews(("a",), "x")),
        ("ALTER VIEW ns.v AS SELECT 2", AlterView(("ns", "v"), ViewQuery("SELECT 2"))),
        ("ALTER VIEW v RENAME TO ns.w", AlterView(("v",), RenameTable(("ns", "w")))),
        (
            "ALTER VIEW v SET TBLPROPERTIES (a = 'b')",
            AlterView(("v",), SetProperties({"a": "b"})),
        ),
        (
            "ALTER VIEW v UNSET TBLPROPERTIES IF EXISTS (a, 'b')",
            AlterView(("v",), UnsetProperties(("a", "b"), if_exists=True)),
        ),
    ],
)
def test_statements(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW v", "AS"),
        ("CREATE VIEW v AS", "a query"),
        ("CREATE VIEW v (a INT) AS SELECT 1", r"expected \)"),
        ("CREATE GLOBAL VIEW v AS SELECT 1", "expected TEMPORARY"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "either OR REPLACE or IF NOT"),
        ("CREATE TEMP VIEW IF NOT EXISTS v AS SELECT 1", "OR REPLACE TEMPORARY VIEW"),
        ("CREATE VIEW v COMMENT 'a' COMMENT 'b' AS SELECT 1", "COMMENT is given twice"),
        ("ALTER VIEW v ADD COLUMN x INT", "expected AS, RENAME TO"),
        ("DROP VIEW v w", "the end of the statement"),
    ],
)
def test_errors_say_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse(text)

"""The parser finds the tables that a query names and can replace them in its text."""

from __future__ import annotations

import pytest

from frazil.spark.parse.sql_tokens import apply_edits, position_before
from frazil.spark.parse.table_references import needs_of, references, replaced, table_edits


def _names(text: str) -> list[str]:
    return [".".join(found.name) for found in references(text)]


def _rewritten(text: str, *names: str) -> str:
    """Replace the tables in the text by `names`, in their order."""
    return replaced(text, dict(zip(references(text), names, strict=True)))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM ns.a, ns.b x JOIN ns.c ON a.id = c.id", ["ns.a", "ns.b", "ns.c"]),
        ("SELECT * FROM a FULL OUTER JOIN b ON x = y, c LEFT SEMI JOIN d ON e", list("abcd")),
        ("WITH q AS (SELECT * FROM ns.t), r(x) AS (SELECT * FROM q) SELECT * FROM q, r", ["ns.t"]),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", ["t"]),
        ("WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n FROM r) SELECT * FROM r", []),
        ("SELECT (SELECT max(id) FROM ns.u) FROM (SELECT * FROM ns.v) w", ["ns.u", "ns.v"]),
        ("SELECT * FROM (ns.a JOIN ns.b ON a.x = b.x) JOIN (SELECT 1) d", ["ns.a", "ns.b"]),
        ("SELECT extract(day FROM ts), trim(both 'x' FROM y) FROM ns.t", ["ns.t"]),
        ("SELECT a IS DISTINCT FROM b, c FROM ns.t WHERE d IS NOT DISTINCT FROM e", ["ns.t"]),
        ("SELECT * FROM range(3) r JOIN ns.t ON r.id = t.id", ["ns.t"]),
        ("SELECT a FROM x UNION ALL SELECT b FROM y ORDER BY a, b", ["x", "y"]),
        ("SELECT * FROM ns.t LATERAL VIEW explode(x) e AS y, z", ["ns.t"]),
        ("SELECT * FROM ns.t, LATERAL (SELECT * FROM ns.u WHERE u.id = t.id)", ["ns.t", "ns.u"]),
        ("SELECT * FROM VALUES (1), (2) AS v", []),
        ("SELECT * FROM f(TABLE(ns.t))", ["ns.t"]),
        ("TABLE ns.t", ["ns.t"]),
        ("FROM ns.t SELECT a, b", ["ns.t"]),
        ("FROM ns.t |> WHERE a > 1 |> SELECT a, b", ["ns.t"]),
        (
            "id IN (SELECT id FROM ns.t) AND EXISTS (SELECT 1 FROM ns.u, ns.v)",
            ["ns.t", "ns.u", "ns.v"],
        ),
        ("SELECT 'FROM ns.x' -- FROM ns.y\n FROM ns.`z`", ["ns.z"]),
        ("SELECT t.from, t.join FROM ns.t", ["ns.t"]),
        ("SELECT * FROM stream.t JOIN values.u", ["stream.t", "values.u"]),
    ],
)
def test_tables_that_a_query_names(text: str, names: list[str]) -> None:
    assert _names(text) == names


@pytest.mark.parametrize(
    ("text", "version", "timestamp"),
    [
        ("SELECT * FROM t VERSION AS OF 3", 3, None),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 'audit' x", "audit", None),
        ("SELECT * FROM t TIMESTAMP AS OF '2026-01-01' WHERE a", None, "'2026-01-01'"),
        (
            "SELECT * FROM t FOR SYSTEM_TIME AS OF current_timestamp() - INTERVAL 1 DAY x",
            None,
            "current_timestamp() - INTERVAL 1 DAY",
        ),
        (
            "SELECT * FROM t TIMESTAMP AS OF TIMESTAMP '2026-01-01' - INTERVAL '2' HOURS",
            None,
            "TIMESTAMP '2026-01-01' - INTERVAL '2' HOURS",
        ),
    ],
)
def test_time_travel(text: str, version: object, timestamp: str | None) -> None:
    (found,) = references(text)
    assert (found.version, found.timestamp) == (version, timestamp)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT t.id FROM ns.t", "SELECT t.id FROM v AS `t`"),
        ("SELECT x.id FROM ns.t x WHERE 1 = 1", "SELECT x.id FROM v x WHERE 1 = 1"),
        ("SELECT x.id FROM ns.t AS x", "SELECT x.id FROM v AS x"),
        ("SELECT * FROM ns.t VERSION AS OF 3", "SELECT * FROM v AS `t`"),
        (
            "SELECT ns.t.id, ns.t.* FROM ns.t WHERE NS.T.id > 1",
            "SELECT `t`.id, `t`.* FROM v AS `t` WHERE `t`.id > 1",
        ),
        (
            "SELECT * FROM ns.t TABLESAMPLE (5 PERCENT) REPEATABLE (1)",
            "SELECT * FROM v TABLESAMPLE (5 PERCENT) REPEATABLE (1) AS `t`",
        ),
        ("TABLE ns.t", "TABLE v"),
        (
            "SELECT /*+ BROADCAST(t) */ '{x}' FROM ns.t -- {y}",
            "SELECT /*+ BROADCAST(t) */ '{x}' FROM v AS `t` -- {y}",
        ),
        (
            "SELECT * FROM ns.t PIVOT (sum(x) FOR y IN (1))",
            "SELECT * FROM v AS `t` PIVOT (sum(x) FOR y IN (1))",
        ),
    ],
)
def test_only_the_names_are_replaced(text: str, expected: str) -> None:
    assert _rewritten(text, "v") == expected


@pytest.mark.parametrize("name", ["v", "a_long_name_of_a_view"])
def test_positions_in_the_edited_text_are_found_in_the_original(name: str) -> None:
    text = """SELECT x FROM ns.t VERSION
AS OF 3 WHERE x > ns.t.y
  AND other = 1"""
    edits = table_edits(text, {references(text)[0]: name}, {})
    lines = apply_edits(text, edits).split("\n")
    for word in ("x FROM", "WHERE", "x >", "y\n", "AND", "other"):
        line = next(number for number, line in enumerate(lines, 1) if word in f"{line}\n")
        column = f"{lines[line - 1]}\n".index(word)
        expected = text.index(word)
        before = text[:expected].split("\n")
        found = position_before(text, edits, line, column)
        assert found == (len(before), len(before[-1])), word
    # Anything inside a new name is where the old one began.
    assert position_before(text, edits, 1, 14 + len(name) - 1) == (1, 14)


def test_tables_that_are_not_replaced_stay_as_they_are() -> None:
    text = "SELECT * FROM ns.t JOIN other.u ON t.id = other.u.id"
    first, _ = references(text)
    assert replaced(text, {first: "v"}) == (
        "SELECT * FROM v AS `t` JOIN other.u ON t.id = other.u.id"
    )


# --- what a query can need ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SELECT b FROM t WHERE a = 1", ["a", "b"]),
        ("SELECT A.B FROM t AS a", ["a", "b"]),
        ("SELECT count(*) FROM t", ["a"]),
        ("SELECT b * 2 FROM t ORDER BY c", ["b", "c"]),
        ("SELECT b FROM t JOIN u USING (c)", ["b", "c"]),
        ('SELECT "c" FROM t', ["c"]),
        ("SELECT * FROM t", None),
        ("SELECT b, t.* FROM t", None),
        ("SELECT struct(*) FROM t", None),
        ("SELECT b FROM (FROM t)", None),
        ("SELECT b FROM t NATURAL JOIN u", None),
        ("SELECT b FROM t PIVOT (sum(b) FOR c IN (1))", None),
        ("SELECT IDENTIFIER(:name) FROM t", None),
        ("TABLE t", None),
    ],
)
def test_columns_that_a_query_can_need(text: str, columns: list[str] | None) -> None:
    assert needs_of(text, references(text)).columns(["a", "b", "c"]) == columns


@pytest.mark.parametrize(
    ("text", "where", "alias"),
    [
        (
            "SELECT f(a, (b)) FROM ns.t WHERE a = 1 AND b IN (1) ORDER BY c",
            "a = 1 AND b IN (1)",
            "t",
        ),
        ("SELECT * FROM ns.t VERSION AS OF 3 AS x WHERE x.a = 1", "x.a = 1", "x"),
        ("SELECT extract(day FROM a) FROM t x WHERE a > 1 GROUP BY 1", "a > 1", "x"),
        ("SELECT * FROM t", None, None),
        ("SELECT * FROM range(3) r LEFT JOIN t WHERE t.a IS NULL", None, None),
        ("SELECT * FROM range(3), t WHERE t.a = 1", None, None),
        ("SELECT * FROM t, range(3) WHERE t.a = 1", None, None),
        ("SELECT * FROM t WHERE a = (SELECT 1)", None, None),
        ("SELECT * FROM t WHERE a = 1 UNION ALL SELECT 1", None, None),
        ("SELECT * FROM t TABLESAMPLE (5 ROWS) WHERE a = 1", None, None),
        ("SELECT * FROM t LATERAL VIEW explode(b) e AS a WHERE a = 1", None, None),
        ("WITH q AS (SELECT 1) SELECT * FROM t WHERE a = 1", None, None),
    ],
)
def test_the_condition_of_a_query_of_one_table(
    text: str, where: str | None, alias: str | None
) -> None:
    needs = needs_of(text, references(text))
    assert (needs.where, needs.alias) == (where, alias)

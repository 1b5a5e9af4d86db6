"""Parse what is neither a query, a change of rows nor a definition: COMMENT ON, SHOW COLUMNS, etc.

Statements that cannot be about tables of the catalog go to Spark unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from frazil.spark.parse.parsed_statements import (
    CommentOn,
    DescribeColumn,
    DescribeTable,
    QueryStatement,
    ShowColumns,
    ShowCurrentNamespace,
    SparkStatement,
    TableCommand,
)
from frazil.spark.parse.sql_tokens import Cursor

SessionStatement: TypeAlias = (
    CommentOn
    | DescribeColumn
    | DescribeTable
    | QueryStatement
    | ShowColumns
    | ShowCurrentNamespace
    | SparkStatement
    | TableCommand
)

_SETTING: Final = re.compile(
    r"(?>\s+|--[^\n]*\n|/\*(?>.*?\*/))*+(RESET\b|SET\b(?!\s+VAR(IABLE)?\b))",
    re.IGNORECASE | re.DOTALL,
)
"""SET and RESET, whose values may have any characters. SET VARIABLE has an expression."""
_OF_SPARK: Final = frozenset({"ADD", "LIST", "CLEAR", "EXECUTE"})
"""First words of statements that are not about tables."""
_SHOWN_BY_SPARK: Final = frozenset(
    {"CATALOGS", "COLLATIONS", "FUNCTIONS", "USER", "SYSTEM", "ALL", "VARIABLES", "PROCEDURES"}
)
_DESCRIBED_BY_SPARK: Final = frozenset({"FUNCTION", "CATALOG", "PROCEDURE"})
_NAMESPACE: Final = ("NAMESPACE", "DATABASE", "SCHEMA")
_QUERY_WORDS: Final = ("QUERY", "SELECT", "WITH", "FROM", "VALUES")
_TABLE_COMMANDS: Final = (
    ("ANALYZE", "TABLE"),
    ("SHOW", "PARTITIONS"),
    ("CACHE", "TABLE"),
    ("CACHE", "LAZY", "TABLE"),
    ("UNCACHE", "TABLE"),
    ("UNCACHE", "TABLE", "IF", "EXISTS"),
    ("REFRESH", "TABLE"),
    ("REFRESH",),
    ("MSCK", "REPAIR", "TABLE"),
    ("REPAIR", "TABLE"),
)


def setting_statement(text: str) -> SparkStatement | None:
    """Return SET or RESET, which are not read as tokens; None for other statements."""
    return SparkStatement(text) if _SETTING.match(text) else None


def session_parser(cursor: Cursor) -> Callable[[Cursor], SessionStatement] | None:
    """Return the parser of such a statement; None if it is another one."""
    first = cursor.word()
    if first in _OF_SPARK or cursor.at("ANALYZE", "TABLES") or _is_function(cursor):
        return _unchanged
    if first in ("SET", "DECLARE"):
        return _as_query
    if first == "COMMENT":
        return _comment
    if first == "SHOW":
        return _show(cursor)
    if first in ("DESCRIBE", "DESC"):
        return _describe(cursor)
    if any(cursor.at(*words) for words in _TABLE_COMMANDS):
        has_query = any(token.word == "SELECT" for token in cursor.tokens)
        return _unchanged if first == "CACHE" and has_query else _table_command
    return None


def _is_function(cursor: Cursor) -> bool:
    """Return whether the statement creates or drops a function or a variable of Spark."""
    if cursor.word() not in ("CREATE", "DROP"):
        return False
    ahead = 3 if cursor.at("CREATE", "OR", "REPLACE") else 1
    if cursor.word(ahead) in ("TEMPORARY", "TEMP"):
        ahead += 1
    return cursor.word(ahead) in ("FUNCTION", "VARIABLE", "VAR")


def _unchanged(cursor: Cursor) -> SparkStatement:
    cursor.position = len(cursor.tokens)
    return SparkStatement(cursor.text)


def _as_query(cursor: Cursor) -> QueryStatement:
    """Return a statement whose queries may read tables of the catalog."""
    cursor.position = len(cursor.tokens)
    return QueryStatement(cursor.text[: cursor.tokens[-1].end])


def _comment(cursor: Cursor) -> CommentOn:
    cursor.expect("COMMENT", "ON")
    if cursor.accept_one(*_NAMESPACE):
        kind = "namespace"
    elif cursor.accept("TABLE"):
        kind = "table"
    else:
        cursor.fail("TABLE or NAMESPACE (ALTER TABLE … ALTER COLUMN … COMMENT is for columns)")
    name = cursor.name(f"a {kind}")
    cursor.expect("IS")
    comment = "" if cursor.accept("NULL") else cursor.string("a comment in quotes, or NULL")
    return CommentOn(kind, name, comment)


def _show(cursor: Cursor) -> Callable[[Cursor], SessionStatement] | None:
    if cursor.word(1) == "COLUMNS":
        return _show_columns
    if cursor.word(1) == "PARTITIONS":
        return _table_command
    if cursor.word(1) == "CURRENT":
        return _current_namespace
    return _unchanged if cursor.word(1) in _SHOWN_BY_SPARK else None


def _show_columns(cursor: Cursor) -> ShowColumns:
    cursor.expect("SHOW", "COLUMNS")
    if not cursor.accept_one("IN", "FROM"):
        cursor.fail("IN or FROM")
    name = cursor.name("a table")
    namespace = cursor.name("a namespace") if cursor.accept_one("IN", "FROM") else ()
    if (
        namespace
        and len(name) > 1
        and tuple(map(str.lower, name[:-1])) != tuple(map(str.lower, namespace))
    ):
        cursor.fail(f"the namespace once: the table is called {'.'.join(name)} already")
    return ShowColumns((*namespace, name[-1]) if namespace else name)


def _current_namespace(cursor: Cursor) -> ShowCurrentNamespace:
    cursor.expect("SHOW", "CURRENT")
    if not cursor.accept_one(*_NAMESPACE):
        cursor.fail("NAMESPACE")
    return ShowCurrentNamespace()


def _describe(cursor: Cursor) -> Callable[[Cursor], SessionStatement] | None:
    if cursor.word(1) in _DESCRIBED_BY_SPARK:
        return _unchanged
    if cursor.word(1) in _QUERY_WORDS and cursor.word(2) not in ("", "."):
        return _as_query
    return None if cursor.word(1) in _NAMESPACE else _describe_table


def _describe_table(cursor: Cursor) -> DescribeTable | DescribeColumn:
    cursor.take()
    cursor.accept("TABLE")
    extended = cursor.accept_one("EXTENDED", "FORMATTED") is not None and not cursor.at_end
    name = cursor.name("a table")
    if cursor.at("PARTITION"):
        cursor.fail("the end of the statement: Spark describes no partitions of such tables")
    if cursor.at_end:
        return DescribeTable(name, extended)
    return DescribeColumn(name, cursor.name("a column"))


def _table_command(cursor: Cursor) -> TableCommand:
    words = max((words for words in _TABLE_COMMANDS if cursor.at(*words)), key=len)
    cursor.expect(*words)
    command = " ".join(word for word in words if word not in ("LAZY", "IF", "EXISTS"))
    name = cursor.name("a table")
    cursor.position = len(cursor.tokens)
    return TableCommand(command, name)

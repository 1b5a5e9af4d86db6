"""Parse what is neither a query, a change of rows nor a definition: SHOW, DESCRIBE, USE, etc.

Statements that cannot be about tables of the catalog go to Spark unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.ddl_parser import NAMESPACE
from frazil.spark.parse.sql_tokens import Cursor, Name

Parser: TypeAlias = Callable[[Cursor], sql.ParsedStatement]

_SETTING: Final = re.compile(
    r"(?>\s+|--[^\n]*\n|/\*(?>.*?\*/))*+(RESET\b|SET\b(?!\s+VAR(IABLE)?\b))",
    re.IGNORECASE | re.DOTALL,
)
"""SET and RESET, whose values may have any characters. SET VARIABLE has an expression."""
_OF_SPARK: Final = frozenset({"ADD", "LIST", "CLEAR", "EXECUTE"})
"""First words of statements that are not about tables."""
_DESCRIBED: Final = frozenset({"FUNCTION", "CATALOG", "PROCEDURE"})
_OF_SPARK_AFTER: Final = {
    "ANALYZE": frozenset({"TABLES"}),
    "SHOW": frozenset(
        {"CATALOGS", "COLLATIONS", "FUNCTIONS", "USER", "SYSTEM", "ALL", "VARIABLES", "PROCEDURES"}
    ),
    "DESCRIBE": _DESCRIBED,
    "DESC": _DESCRIBED,
}
"""Second words of such statements."""
_NAMESPACES: Final = ("NAMESPACES", "DATABASES", "SCHEMAS")
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


def setting_statement(text: str) -> sql.SparkStatement | None:
    """Return SET or RESET, which are not read as tokens; None for other statements."""
    return sql.SparkStatement(text) if _SETTING.match(text) else None


def spark_parser(cursor: Cursor) -> Parser | None:
    """Return the parser of what Spark runs or only its own tables have; None for all else."""
    first, second = cursor.word(), cursor.word(1)
    is_of_spark = first in _OF_SPARK or second in _OF_SPARK_AFTER.get(first, ())
    if is_of_spark or _is_function(cursor):
        return _unchanged
    describes_query = second in _QUERY_WORDS and cursor.word(2) not in ("", ".")
    if first in ("SET", "DECLARE") or (first in ("DESCRIBE", "DESC") and describes_query):
        return _as_query
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


def _unchanged(cursor: Cursor) -> sql.SparkStatement:
    cursor.position = len(cursor.tokens)
    return sql.SparkStatement(cursor.text)


def _as_query(cursor: Cursor) -> sql.QueryStatement:
    """Return a statement whose queries may read tables of the catalog."""
    cursor.position = len(cursor.tokens)
    return sql.QueryStatement(cursor.text[: cursor.tokens[-1].end])


def parse_comment(cursor: Cursor) -> sql.CommentOn:
    """Parse COMMENT ON."""
    cursor.expect("COMMENT", "ON")
    if cursor.accept_one(*NAMESPACE):
        kind = "namespace"
    elif cursor.accept("TABLE"):
        kind = "table"
    else:
        cursor.fail("TABLE or NAMESPACE (ALTER TABLE … ALTER COLUMN … COMMENT is for columns)")
    name = cursor.name(f"a {kind}")
    cursor.expect("IS")
    comment = "" if cursor.accept("NULL") else cursor.string("a comment in quotes, or NULL")
    return sql.CommentOn(kind, name, comment)


def parse_show(cursor: Cursor) -> sql.ParsedStatement:
    """Parse SHOW."""
    cursor.expect("SHOW")
    if cursor.accept("COLUMNS"):
        return _show_columns(cursor)
    if cursor.accept("CURRENT"):
        if not cursor.accept_one(*NAMESPACE):
            cursor.fail("NAMESPACE")
        return sql.ShowCurrentNamespace()
    if cursor.accept("VIEWS"):
        return sql.ShowViews(_parent_namespace(cursor), _pattern(cursor))
    if cursor.accept("TABLES"):
        return sql.ShowTables(_parent_namespace(cursor), _pattern(cursor))
    if cursor.accept("TABLE", "EXTENDED"):
        namespace = _parent_namespace(cursor)
        if not cursor.at("LIKE"):
            cursor.fail("LIKE and a pattern")
        return sql.ShowTables(namespace, _pattern(cursor), extended=True)
    if cursor.accept_one(*_NAMESPACES):
        return sql.ShowNamespaces(_parent_namespace(cursor), _pattern(cursor))
    if cursor.accept("CREATE", "TABLE"):
        return sql.ShowCreateTable(cursor.name("a table"))
    if not cursor.accept("TBLPROPERTIES"):
        cursor.fail(
            "TABLES, TABLE EXTENDED, NAMESPACES, VIEWS, COLUMNS, TBLPROPERTIES or CREATE TABLE"
        )
    name = cursor.name("a table")
    key = None
    if cursor.accept("("):
        key = cursor.property_key()
        cursor.expect(")")
    return sql.ShowProperties(name, key)


def _show_columns(cursor: Cursor) -> sql.ShowColumns:
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
    return sql.ShowColumns((*namespace, name[-1]) if namespace else name)


def _parent_namespace(cursor: Cursor) -> Name | None:
    return cursor.name("a namespace") if cursor.accept_one("FROM", "IN") else None


def _pattern(cursor: Cursor) -> str | None:
    if cursor.accept("LIKE") or cursor.at_string:
        return cursor.string("a pattern in quotes")
    return None


def parse_describe(cursor: Cursor) -> sql.ParsedStatement:
    """Parse DESCRIBE."""
    cursor.take()
    if cursor.accept_one(*NAMESPACE):
        cursor.accept("EXTENDED")
        return sql.DescribeNamespace(cursor.name("a namespace"))
    cursor.accept("TABLE")
    extended = cursor.accept_one("EXTENDED", "FORMATTED") is not None and not cursor.at_end
    name = cursor.name("a table")
    if cursor.at("PARTITION"):
        cursor.fail("the end of the statement: Spark describes no partitions of such tables")
    if cursor.at_end:
        return sql.DescribeTable(name, extended)
    return sql.DescribeColumn(name, cursor.name("a column"))


def parse_use(cursor: Cursor) -> sql.UseStatement:
    """Parse USE with a namespace."""
    cursor.expect("USE")
    cursor.accept_one(*NAMESPACE)
    return sql.UseStatement(cursor.name("a namespace"))


def _table_command(cursor: Cursor) -> sql.TableCommand:
    words = max((words for words in _TABLE_COMMANDS if cursor.at(*words)), key=len)
    cursor.expect(*words)
    command = " ".join(word for word in words if word not in ("LAZY", "IF", "EXISTS"))
    name = cursor.name("a table")
    cursor.position = len(cursor.tokens)
    return sql.TableCommand(command, name)

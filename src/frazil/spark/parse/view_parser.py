"""Parse CREATE, ALTER, DROP and SHOW of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from frazil.spark.parse.parsed_statements import (
    AlterView,
    CreateTemporaryView,
    CreateView,
    DropView,
    RenameTable,
    SetProperties,
    ShowViews,
    SparkStatement,
    UnsetViewProperties,
    ViewColumn,
    ViewQuery,
)
from frazil.spark.parse.property_lists import parse_properties, parse_property_keys
from frazil.spark.parse.sql_tokens import Cursor
from frazil.wire.errors import BadRequest

ViewStatement: TypeAlias = (
    CreateView | CreateTemporaryView | AlterView | DropView | ShowViews | SparkStatement
)


def view_parser(cursor: Cursor) -> Callable[[Cursor], ViewStatement] | None:
    """Return the parser of a statement about views; None if it is about something else."""
    if cursor.at("DROP", "VIEW"):
        return _drop
    if cursor.at("ALTER", "VIEW"):
        return _alter
    if cursor.at("SHOW", "VIEWS"):
        return _show
    ahead = 3 if cursor.at("CREATE", "OR", "REPLACE") else 1
    while cursor.word(ahead) in ("GLOBAL", "TEMP", "TEMPORARY"):
        ahead += 1
    return _create if cursor.at("CREATE") and cursor.word(ahead) == "VIEW" else None


# --- CREATE ---------------------------------------------------------------------------------------


def _create(cursor: Cursor) -> ViewStatement:
    cursor.expect("CREATE")
    replace = cursor.accept("OR", "REPLACE")
    is_global = cursor.accept("GLOBAL")
    is_temporary = cursor.accept_one("TEMPORARY", "TEMP") is not None
    if is_global and not is_temporary:
        cursor.fail("TEMPORARY")
    cursor.expect("VIEW")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if is_temporary:
        if if_not_exists:
            raise BadRequest(
                "CREATE TEMPORARY VIEW IF NOT EXISTS is no statement of Spark: write CREATE OR "
                "REPLACE TEMPORARY VIEW"
            )
        return _create_temporary(cursor, replace, is_global)
    if if_not_exists and replace:
        raise BadRequest("CREATE VIEW: write either OR REPLACE or IF NOT EXISTS")
    name = cursor.name("a view")
    columns = _columns(cursor)
    clauses = _clauses(cursor)
    query = _query(cursor)
    return CreateView(
        name=name,
        query=query,
        columns=columns,
        if_not_exists=if_not_exists,
        replace=replace,
        **clauses,
    )


def _create_temporary(cursor: Cursor, replace: bool, is_global: bool) -> ViewStatement:
    name = cursor.identifier("a view's name without a namespace")
    if "USING" in (cursor.word(), _word_after_parentheses(cursor)):
        # The view of a data source concerns no table of the catalog.
        cursor.rest("a data source")
        return SparkStatement(cursor.text)
    columns = _columns(cursor)
    _clauses(cursor)
    return CreateTemporaryView(
        name=name, query=_query(cursor), columns=columns, replace=replace, is_global=is_global
    )


def _word_after_parentheses(cursor: Cursor) -> str:
    if not cursor.at("("):
        return ""
    start = cursor.position
    cursor.skip_enclosed()
    word = cursor.word()
    cursor.position = start
    return word


def _columns(cursor: Cursor) -> tuple[ViewColumn, ...]:
    return cursor.parenthesized(lambda: _column(cursor)) if cursor.at("(") else ()


def _column(cursor: Cursor) -> ViewColumn:
    name = cursor.identifier("a column")
    comment = cursor.string("a comment in quotes") if cursor.accept("COMMENT") else None
    return ViewColumn(name, comment)


def _clauses(cursor: Cursor) -> dict[str, Any]:
    """Parse the clauses between the columns and the query, in any order."""
    clauses: dict[str, Any] = {}
    while (word := cursor.accept_one("COMMENT", "TBLPROPERTIES")) is not None:
        key = "comment" if word == "COMMENT" else "properties"
        if key in clauses:
            raise BadRequest(f"CREATE VIEW: {word} is given twice")
        comment = cursor.string("a comment in quotes") if word == "COMMENT" else None
        clauses[key] = parse_properties(cursor) if comment is None else comment
    return clauses


def _query(cursor: Cursor) -> str:
    cursor.expect("AS")
    return cursor.rest("a query")


# --- ALTER, DROP, SHOW ----------------------------------------------------------------------------


def _alter(cursor: Cursor) -> AlterView:
    cursor.expect("ALTER", "VIEW")
    name = cursor.name("a view")
    if cursor.accept("RENAME", "TO"):
        return AlterView(name, RenameTable(cursor.name("the new name")))
    if cursor.accept("SET", "TBLPROPERTIES"):
        return AlterView(name, SetProperties(parse_properties(cursor)))
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept("IF", "EXISTS")
        return AlterView(name, UnsetViewProperties(parse_property_keys(cursor), if_exists))
    cursor.accept("AS")
    if cursor.word() not in ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "("):
        cursor.fail("AS, RENAME TO, SET TBLPROPERTIES or UNSET TBLPROPERTIES")
    return AlterView(name, ViewQuery(cursor.rest("a query")))


def _drop(cursor: Cursor) -> DropView:
    cursor.expect("DROP", "VIEW")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropView(cursor.name("a view"), if_exists)


def _show(cursor: Cursor) -> ShowViews:
    cursor.expect("SHOW", "VIEWS")
    namespace = cursor.name("a namespace") if cursor.accept_one("FROM", "IN") else None
    pattern = None
    if cursor.accept("LIKE") or cursor.at_string:
        pattern = cursor.string("a pattern in quotes")
    return ShowViews(namespace, pattern)

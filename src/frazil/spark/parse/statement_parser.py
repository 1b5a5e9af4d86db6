"""Parse a statement: queries, CALL and the statements that change rows.

`ddl_parser` parses definitions, and `session_parser` the statements that show something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.ddl_parser import (
    parse_alter,
    parse_create,
    parse_drop,
)
from frazil.spark.parse.session_parser import (
    Parser,
    parse_comment,
    parse_describe,
    parse_show,
    parse_use,
    setting_statement,
    spark_parser,
)
from frazil.spark.parse.sql_tokens import Cursor, Name
from frazil.spark.parse.table_references import references
from frazil.wire.errors import BadRequest

_QUERY_WORDS: Final = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE"})
_EXPLAIN_WORDS: Final = frozenset({"EXPLAIN", "EXTENDED", "CODEGEN", "COST", "FORMATTED"})
_INSERT_QUERY_WORDS: Final = ("SELECT", "VALUES", "WITH", "FROM", "TABLE")
KNOWN: Final = (
    "SELECT (also WITH, VALUES, TABLE), INSERT INTO, INSERT OVERWRITE, DELETE, UPDATE, MERGE, "
    "TRUNCATE TABLE, CREATE TABLE, CREATE TABLE … AS, REPLACE TABLE, ALTER TABLE, DROP TABLE, "
    "CREATE / ALTER / DROP VIEW, SHOW VIEWS, "
    "CREATE / ALTER / DROP NAMESPACE, USE, SHOW TABLES, SHOW NAMESPACES, SHOW TBLPROPERTIES, "
    "SHOW CREATE TABLE, SHOW COLUMNS, DESCRIBE, COMMENT ON, EXPLAIN SELECT, CALL, and SET, RESET "
    "and others that Spark runs"
)


def parse(text: str) -> sql.ParsedStatement:
    """Parse one statement; raise BadRequest that says what is expected where it fails."""
    setting = setting_statement(text)
    if setting is not None:
        return setting
    cursor = Cursor(text)
    first = cursor.peek()
    if first is None:
        raise BadRequest("the statement is empty")
    if first.word == "WITH":
        return _parse_with(cursor)
    if first.word in _QUERY_WORDS or (first.word == "EXPLAIN" and _explains_query(cursor)):
        return _query(cursor)
    parser = spark_parser(cursor) or _PARSERS.get(first.word)
    if parser is None:
        raise BadRequest(
            f"{first.text}: not a statement that is known here; known statements are {KNOWN}. "
            "Use spark.sql for statements that do not concern tables of the catalog"
        )
    statement = parser(cursor)
    cursor.end()
    return statement


# --- queries --------------------------------------------------------------------------------------


def _query(cursor: Cursor) -> sql.QueryStatement:
    """Return the query without the semicolon."""
    return sql.QueryStatement(cursor.text[: cursor.tokens[-1].end])


def _explains_query(cursor: Cursor) -> bool:
    words = (token.word for token in cursor.tokens)
    return next((word for word in words if word not in _EXPLAIN_WORDS), "") in (
        _QUERY_WORDS | {"WITH"}
    )


def _parse_with(cursor: Cursor) -> sql.ParsedStatement:
    """Parse WITH, which may begin a query or an INSERT."""
    while (token := cursor.peek()) is not None:
        if token.word == "(":
            cursor.skip_enclosed()
        elif token.word == "INSERT":
            return _parse_insert(cursor, cursor.cut(0, cursor.position))
        elif token.word in _QUERY_WORDS:
            break
        else:
            cursor.take()
    return _query(cursor)


# --- INSERT, DELETE, UPDATE, TRUNCATE -------------------------------------------------------------


def _parse_insert(cursor: Cursor, with_clause: str = "") -> sql.InsertStatement:
    """Parse INSERT. `with_clause` is the WITH clause before it; it becomes part of the query."""
    cursor.expect("INSERT")
    merge_schema = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = cursor.accept("OVERWRITE")
    if not overwrite:
        cursor.expect("INTO")
    cursor.accept("TABLE")
    target = cursor.name("a table")
    partition: tuple[tuple[str, str | None], ...] = ()
    if cursor.accept("PARTITION"):
        partition = cursor.parenthesized(lambda: _partition_value(cursor))
    columns: tuple[str, ...] = ()
    by_name = cursor.accept("BY", "NAME")
    replace_where = None
    if not overwrite and cursor.accept("REPLACE", "WHERE"):
        replace_where = cursor.until("a condition", *_INSERT_QUERY_WORDS)
    elif not by_name and cursor.at("(") and not _at_query_in_parentheses(cursor):
        columns = cursor.parenthesized(lambda: cursor.identifier("a column"))
    query = cursor.rest("a query or VALUES")
    return sql.InsertStatement(
        target=target,
        query=f"{with_clause} {query}" if with_clause else query,
        columns=columns,
        by_name=by_name,
        overwrite=overwrite,
        partition=partition,
        replace_where=replace_where,
        merge_schema=merge_schema,
    )


def _at_query_in_parentheses(cursor: Cursor) -> bool:
    ahead = 0
    while cursor.word(ahead) == "(":
        ahead += 1
    return cursor.word(ahead) in _INSERT_QUERY_WORDS


def _partition_value(cursor: Cursor) -> tuple[str, str | None]:
    column = cursor.identifier("a partition column")
    return column, cursor.until("a value", ",") if cursor.accept("=") else None


def _parse_delete(cursor: Cursor) -> sql.DeleteStatement:
    cursor.expect("DELETE", "FROM")
    target = cursor.name("a table")
    alias = _alias(cursor, "WHERE")
    where = cursor.rest("a condition") if cursor.accept("WHERE") else None
    return sql.DeleteStatement(target, alias, where)


def _parse_update(cursor: Cursor) -> sql.UpdateStatement:
    cursor.expect("UPDATE")
    target = cursor.name("a table")
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    assignments = _assignments(cursor, "WHERE")
    where = cursor.rest("a condition") if cursor.accept("WHERE") else None
    return sql.UpdateStatement(target, assignments, alias, where)


def _parse_truncate(cursor: Cursor) -> sql.TruncateStatement:
    cursor.expect("TRUNCATE", "TABLE")
    target = cursor.name("a table")
    if cursor.at("PARTITION"):
        cursor.fail("the end of the statement (use DELETE … WHERE to empty a partition)")
    return sql.TruncateStatement(target)


def _assignments(cursor: Cursor, stop_word: str) -> sql.Assignments:
    def assignment() -> tuple[Name, str]:
        column = cursor.name("a column")
        cursor.expect("=")
        return column, cursor.until("a value", ",", stop_word)

    return cursor.comma_list(assignment)


def _alias(cursor: Cursor, next_word: str) -> str | None:
    if cursor.accept("AS"):
        return cursor.identifier("an alias")
    if cursor.at_end or cursor.at(next_word):
        return None
    return cursor.identifier("an alias")


# --- MERGE ----------------------------------------------------------------------------------------


def _parse_merge(cursor: Cursor) -> sql.MergeStatement:
    cursor.expect("MERGE")
    merge_schema = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = cursor.name("a table")
    alias = _alias(cursor, "USING")
    cursor.expect("USING")
    source, source_alias = _merge_source(cursor)
    cursor.expect("ON")
    on = cursor.until("a condition", "WHEN")
    clauses = []
    while cursor.accept("WHEN"):
        clauses.append(_merge_clause(cursor))
    if not clauses:
        cursor.fail("WHEN")
    return sql.MergeStatement(target, source, source_alias, on, tuple(clauses), alias, merge_schema)


def _merge_source(cursor: Cursor) -> tuple[str, str]:
    """Return the text of the source and the name that the statement calls it."""
    is_query = cursor.at("(")
    text = cursor.until("a table or a query", "ON")
    last = cursor.tokens[cursor.position - 1]
    if is_query:
        return text, last.value if last.is_name else "source"
    tables = references(text, relation=True)
    if not tables:
        raise BadRequest(f"USING {text}: a function must stand in a query: (SELECT * FROM {text})")
    table = tables[0]
    return text, last.value if table.alias_at is None and last.is_name else table.name[-1]


def _merge_clause(cursor: Cursor) -> sql.MergeClause:
    if cursor.accept("MATCHED"):
        kind = sql.MATCHED
    else:
        cursor.expect("NOT", "MATCHED")
        kind = sql.BY_SOURCE if cursor.accept("BY", "SOURCE") else sql.NOT_MATCHED
        if kind is sql.NOT_MATCHED:
            cursor.accept("BY", "TARGET")
    condition = cursor.until("a condition", "THEN") if cursor.accept("AND") else None
    cursor.expect("THEN")
    if kind is sql.NOT_MATCHED:
        cursor.expect("INSERT")
        return sql.MergeClause(kind, "insert", condition, _inserted_values(cursor))
    if cursor.accept("DELETE"):
        return sql.MergeClause(kind, "delete", condition)
    cursor.expect("UPDATE", "SET")
    if kind is sql.MATCHED and cursor.accept("*"):
        return sql.MergeClause(kind, "update", condition)
    return sql.MergeClause(kind, "update", condition, _assignments(cursor, "WHEN"))


def _inserted_values(cursor: Cursor) -> sql.Assignments | None:
    if cursor.accept("*"):
        return None
    columns = cursor.parenthesized(lambda: cursor.name("a column"))
    cursor.expect("VALUES")
    values = cursor.parenthesized(lambda: cursor.until("a value", ","))
    if len(values) != len(columns):
        cursor.fail(f"{len(columns)} values, one for each column, not {len(values)}")
    return tuple(zip(columns, values, strict=True))


# --- CALL -----------------------------------------------------------------------------------------


def _parse_call(cursor: Cursor) -> sql.CallStatement:
    cursor.expect("CALL")
    name = cursor.name("a procedure")
    if len(name) > 1 and name[-2].lower() != "system":
        raise BadRequest(f"{'.'.join(name)}: procedures are called as system.{name[-1]}(…)")
    cursor.expect("(")
    positional: list[str] = []
    named: dict[str, str] = {}
    while not cursor.at(")"):
        if cursor.word(1) == "=>":
            key = cursor.identifier("an argument").lower()
            cursor.take()
            if key in named:
                raise BadRequest(f"{name[-1]}: {key} is given twice")
            named[key] = cursor.until("a value", ",")
        elif named:
            cursor.fail("name => value, as the arguments before it")
        else:
            positional.append(cursor.until("a value", ","))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return sql.CallStatement(name[-1].lower(), tuple(positional), named)


_PARSERS: Final[Mapping[str, Parser]] = {
    "INSERT": _parse_insert,
    "DELETE": _parse_delete,
    "UPDATE": _parse_update,
    "MERGE": _parse_merge,
    "TRUNCATE": _parse_truncate,
    "CREATE": parse_create,
    "REPLACE": parse_create,
    "DROP": parse_drop,
    "ALTER": parse_alter,
    "COMMENT": parse_comment,
    "SHOW": parse_show,
    "USE": parse_use,
    "DESCRIBE": parse_describe,
    "DESC": parse_describe,
    "CALL": _parse_call,
}

"""The text of a statement, parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from frazil.spark.parse.alter_parsing import parse_alter
from frazil.spark.parse.ddl_parser import (
    parse_create,
    parse_describe,
    parse_drop,
    parse_show,
    parse_use,
)
from frazil.spark.parse.parsed_statements import (
    Assignments,
    CallStatement,
    DeleteStatement,
    InsertStatement,
    MergeClause,
    MergeStatement,
    ParsedStatement,
    QueryStatement,
    TruncateStatement,
    UpdateStatement,
)
from frazil.spark.parse.sql_tokens import Cursor, Name
from frazil.spark.parse.table_references import references
from frazil.wire.errors import BadRequest

MATCHED = "matched"
NOT_MATCHED = "not matched"
BY_SOURCE = "not matched by source"


def parse_insert(cursor: Cursor, common: str = "") -> InsertStatement:
    """`common`: the WITH … that stood in front of INSERT."""
    cursor.expect("INSERT")
    merge_schema = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrite = cursor.accept("OVERWRITE")
    if not overwrite:
        cursor.expect("INTO")
    cursor.accept("TABLE")
    target = cursor.name("a table")
    partition = _partition(cursor) if cursor.accept("PARTITION") else ()
    columns: tuple[str, ...] = ()
    by_name = cursor.accept("BY", "NAME")
    replace_where = None
    if not overwrite and cursor.accept("REPLACE", "WHERE"):
        replace_where = cursor.until("a condition", "SELECT", "VALUES", "WITH", "FROM", "TABLE")
    elif not by_name and cursor.at("(") and not _is_query(cursor):
        columns = _columns(cursor)
    query = cursor.rest("a query or VALUES")
    return InsertStatement(
        target=target,
        query=f"{common} {query}" if common else query,
        columns=columns,
        by_name=by_name,
        overwrite=overwrite,
        partition=partition,
        replace_where=replace_where,
        merge_schema=merge_schema,
    )


def _is_query(cursor: Cursor) -> bool:
    ahead = 0
    while (token := cursor.peek(ahead)) is not None and token.word == "(":
        ahead += 1
    return token is not None and token.word in ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


def _partition(cursor: Cursor) -> tuple[tuple[str, str | None], ...]:
    cursor.expect("(")
    found: list[tuple[str, str | None]] = []
    while True:
        column = cursor.identifier("a partition column")
        value = cursor.until("a value", ",") if cursor.accept("=") else None
        found.append((column, value))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(found)


def _columns(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    found = [cursor.identifier("a column")]
    while cursor.accept(","):
        found.append(cursor.identifier("a column"))
    cursor.expect(")")
    return tuple(found)


def parse_delete(cursor: Cursor) -> DeleteStatement:
    cursor.expect("DELETE", "FROM")
    target = cursor.name("a table")
    alias = _alias(cursor, "WHERE")
    where = cursor.rest("a condition") if cursor.accept("WHERE") else None
    cursor.end()
    return DeleteStatement(target, alias, where)


def parse_update(cursor: Cursor) -> UpdateStatement:
    cursor.expect("UPDATE")
    target = cursor.name("a table")
    alias = _alias(cursor, "SET")
    cursor.expect("SET")
    assignments = _assignments(cursor, "WHERE")
    where = cursor.rest("a condition") if cursor.accept("WHERE") else None
    cursor.end()
    return UpdateStatement(target, assignments, alias, where)


def parse_truncate(cursor: Cursor) -> TruncateStatement:
    cursor.expect("TRUNCATE", "TABLE")
    target = cursor.name("a table")
    if cursor.at("PARTITION"):
        cursor.fail("the end of the statement (to empty a partition use DELETE … WHERE)")
    cursor.end()
    return TruncateStatement(target)


def parse_merge(cursor: Cursor) -> MergeStatement:
    cursor.expect("MERGE")
    merge_schema = cursor.accept("WITH", "SCHEMA", "EVOLUTION")
    cursor.expect("INTO")
    target = cursor.name("a table")
    alias = _alias(cursor, "USING")
    cursor.expect("USING")
    source, source_alias = _source(cursor)
    cursor.expect("ON")
    on = cursor.until("a condition", "WHEN")
    clauses = []
    while cursor.accept("WHEN"):
        clauses.append(_clause(cursor))
    if not clauses:
        cursor.fail("WHEN")
    cursor.end()
    return MergeStatement(target, source, source_alias, on, tuple(clauses), alias, merge_schema)


def _source(cursor: Cursor) -> tuple[str, str]:
    """The text, and by which name the statement knows it."""
    query = cursor.at("(")
    text = cursor.until("a table or a query", "ON")
    last = cursor.tokens[cursor.position - 1]
    if query:
        return text, last.value if last.is_name else "source"
    (found, *_) = references(text, relation=True) or (None,)
    if found is None:
        raise BadRequest(f"USING {text}: a function must stand in a query: (SELECT * FROM {text})")
    return text, last.value if found.alias_at is None and last.is_name else found.name[-1]


def _clause(cursor: Cursor) -> MergeClause:
    if cursor.accept("MATCHED"):
        kind = MATCHED
    else:
        cursor.expect("NOT", "MATCHED")
        kind = BY_SOURCE if cursor.accept("BY", "SOURCE") else NOT_MATCHED
        if kind is NOT_MATCHED:
            cursor.accept("BY", "TARGET")
    condition = cursor.until("a condition", "THEN") if cursor.accept("AND") else None
    cursor.expect("THEN")
    if kind is NOT_MATCHED:
        cursor.expect("INSERT")
        return MergeClause(kind, "insert", condition, _inserted(cursor))
    if cursor.accept("DELETE"):
        return MergeClause(kind, "delete", condition)
    cursor.expect("UPDATE", "SET")
    if kind is MATCHED and cursor.accept("*"):
        return MergeClause(kind, "update", condition)
    return MergeClause(kind, "update", condition, _assignments(cursor, "WHEN"))


def _inserted(cursor: Cursor) -> Assignments | None:
    if cursor.accept("*"):
        return None
    cursor.expect("(")
    columns = [cursor.name("a column")]
    while cursor.accept(","):
        columns.append(cursor.name("a column"))
    cursor.expect(")")
    cursor.expect("VALUES")
    cursor.expect("(")
    values = [cursor.until("a value", ",")]
    while cursor.accept(","):
        values.append(cursor.until("a value", ","))
    if len(values) != len(columns):
        cursor.fail(f"{len(columns)} values, one for each column, not {len(values)}")
    cursor.expect(")")
    return tuple(zip(columns, values, strict=True))


def _assignments(cursor: Cursor, stop: str) -> Assignments:
    found: list[tuple[Name, str]] = []
    while True:
        column = cursor.name("a column")
        cursor.expect("=")
        found.append((column, cursor.until("a value", ",", stop)))
        if not cursor.accept(","):
            return tuple(found)


def _alias(cursor: Cursor, before: str) -> str | None:
    if cursor.accept("AS"):
        return cursor.identifier("an alias")
    if cursor.at_end or cursor.at(before):
        return None
    return cursor.identifier("an alias")


_QUERIES: Final = frozenset({"SELECT", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE"})
KNOWN: Final = (
    "SELECT (also WITH, VALUES, TABLE), INSERT INTO, INSERT OVERWRITE, DELETE, UPDATE, MERGE, "
    "TRUNCATE TABLE, CREATE TABLE, CREATE TABLE … AS, REPLACE TABLE, ALTER TABLE, DROP TABLE, "
    "CREATE / ALTER / DROP NAMESPACE, USE, SHOW TABLES, SHOW NAMESPACES, SHOW TBLPROPERTIES, "
    "SHOW CREATE TABLE, DESCRIBE, EXPLAIN SELECT, CALL"
)


def parse(text: str) -> ParsedStatement:
    cursor = Cursor(text)
    first = cursor.peek()
    if first is None:
        raise BadRequest("the statement is empty")
    if first.word == "WITH":
        return _with(cursor)
    if first.word in _QUERIES or (first.word == "EXPLAIN" and _explains_query(cursor)):
        return QueryStatement(_text(cursor))
    parser = _PARSERS.get(first.word)
    if parser is None:
        raise BadRequest(
            f"{first.text}: not a statement that is known here; there are {KNOWN}. "
            "What does not concern the catalog's tables is for spark.sql"
        )
    return parser(cursor)


def _explains_query(cursor: Cursor) -> bool:
    words = {"EXPLAIN", "EXTENDED", "CODEGEN", "COST", "FORMATTED"}
    place = next((at for at, token in enumerate(cursor.tokens) if token.word not in words), None)
    return place is not None and cursor.tokens[place].word in _QUERIES | {"WITH"}


def _text(cursor: Cursor) -> str:
    """Without the semicolon."""
    return cursor.text[: cursor.tokens[-1].end]


def _with(cursor: Cursor) -> ParsedStatement:
    """Common table expressions may stand in front of a query and of INSERT."""
    while (token := cursor.peek()) is not None:
        if token.word == "(":
            cursor.skip_enclosed()
        elif token.word == "INSERT":
            return parse_insert(cursor, cursor.cut(0, cursor.position))
        elif token.word in _QUERIES:
            break
        else:
            cursor.take()
    return QueryStatement(_text(cursor))


def parse_call(cursor: Cursor) -> CallStatement:
    cursor.expect("CALL")
    name = cursor.name("a procedure")
    if len(name) > 1 and name[-2].lower() != "system":
        raise BadRequest(f"{'.'.join(name)}: procedures are called as system.{name[-1]}(…)")
    cursor.expect("(")
    positional: list[str] = []
    named: dict[str, str] = {}
    while not cursor.at(")"):
        following = cursor.peek(1)
        if following is not None and following.word == "=>":
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
    cursor.end()
    return CallStatement(name[-1].lower(), tuple(positional), named)


_PARSERS: Final[Mapping[str, Callable[[Cursor], ParsedStatement]]] = {
    "INSERT": parse_insert,
    "DELETE": parse_delete,
    "UPDATE": parse_update,
    "MERGE": parse_merge,
    "TRUNCATE": parse_truncate,
    "CREATE": parse_create,
    "REPLACE": parse_create,
    "DROP": parse_drop,
    "ALTER": parse_alter,
    "SHOW": parse_show,
    "USE": parse_use,
    "DESCRIBE": parse_describe,
    "DESC": parse_describe,
    "CALL": parse_call,
}

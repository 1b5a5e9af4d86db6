"""CREATE, DROP, SHOW, DESCRIBE and USE."""

from __future__ import annotations

from typing import Any, Final

from frazil.spark.parse.parsed_statements import (
    ColumnDefinition,
    CreateNamespace,
    CreateTable,
    DescribeNamespace,
    DescribeTable,
    DropNamespace,
    DropTable,
    ParsedStatement,
    ShowCreateTable,
    ShowNamespaces,
    ShowProperties,
    ShowTables,
    UseStatement,
)
from frazil.spark.parse.sql_tokens import Cursor, Kind, Name
from frazil.wire.errors import BadRequest

_PROVIDERS: Final = frozenset({"iceberg", "frazil"})
_NAMESPACE: Final = ("NAMESPACE", "DATABASE", "SCHEMA")
_NAMESPACES: Final = ("NAMESPACES", "DATABASES", "SCHEMAS")


def parse_create(cursor: Cursor) -> ParsedStatement:
    replace = False
    create = cursor.accept("CREATE")
    if create:
        replace = cursor.accept("OR", "REPLACE")
    else:
        cursor.expect("REPLACE")
        replace = True
    if not replace and cursor.accept_one(*_NAMESPACE):
        return _create_namespace(cursor)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE" if replace else "TABLE, NAMESPACE, DATABASE or SCHEMA")
    if_not_exists = not replace and cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a table")
    columns = parse_columns(cursor) if cursor.at("(") else ()
    clauses = _table_clauses(cursor)
    query = None
    if cursor.accept("AS") or cursor.at("SELECT") or cursor.at("WITH"):
        query = cursor.rest("a query")
    cursor.end()
    if query is not None and columns:
        raise BadRequest(f"{'.'.join(name)}: AS gives the columns, so they cannot be listed too")
    return CreateTable(
        name=name,
        columns=columns,
        query=query,
        if_not_exists=if_not_exists,
        replace=replace,
        create=create,
        **clauses,
    )


def _table_clauses(cursor: Cursor) -> dict[str, Any]:
    """In any order, each once."""
    found: dict[str, Any] = {}

    def put(key: str, value: object) -> None:
        if key in found:
            raise BadRequest(f"CREATE TABLE: {key.replace('_', ' ')} is given twice")
        found[key] = value

    while True:
        if cursor.accept("USING"):
            _provider(cursor)
        elif cursor.accept("PARTITIONED", "BY"):
            put("partitioned_by", terms(cursor))
        elif cursor.accept("TBLPROPERTIES") or cursor.accept("OPTIONS"):
            put("properties", parse_properties(cursor))
        elif cursor.accept("LOCATION"):
            put("location", cursor.string("a location in quotes"))
        elif cursor.accept("COMMENT"):
            put("comment", cursor.string("a comment in quotes"))
        elif cursor.at("CLUSTERED", "BY") or cursor.at("CLUSTER", "BY"):
            cursor.fail("PARTITIONED BY (bucket(n, column))")
        else:
            return found


def _provider(cursor: Cursor) -> None:
    provider = cursor.identifier("a format")
    if provider.lower() not in _PROVIDERS:
        raise BadRequest(f"USING {provider}: tables of this catalog are Iceberg's: USING iceberg")


def terms(cursor: Cursor) -> tuple[str, ...]:
    """Terms in parentheses, such as `(day(ts), bucket(16, id))`."""
    cursor.expect("(")
    found = [cursor.until("a column or a transform", ",")]
    while cursor.accept(","):
        found.append(cursor.until("a column or a transform", ","))
    cursor.expect(")")
    return tuple(found)


def parse_columns(cursor: Cursor) -> tuple[ColumnDefinition, ...]:
    cursor.expect("(")
    found = [parse_column(cursor)]
    while cursor.accept(","):
        found.append(parse_column(cursor))
    cursor.expect(")")
    return tuple(found)


def parse_column(cursor: Cursor) -> ColumnDefinition:
    """`name type [NOT NULL] [COMMENT '…'] [DEFAULT …] [FIRST | AFTER name]`"""
    name = cursor.name("a column")
    found: dict[str, Any] = {"type": type_text(cursor)}
    while True:
        if cursor.accept("NOT", "NULL"):
            found["required"] = True
        elif cursor.accept("COMMENT"):
            found["comment"] = cursor.string("a comment in quotes")
        elif cursor.accept("DEFAULT"):
            found["default"] = cursor.until("a value", "NOT", "COMMENT", "FIRST", "AFTER", ",")
        elif (place := parse_position(cursor)) is not None:
            found["position"] = place
        elif cursor.at("GENERATED"):
            cursor.fail("a column that is not generated: Iceberg has no such columns")
        else:
            return ColumnDefinition(name, **found)


def parse_position(cursor: Cursor) -> tuple[str, str | None] | None:
    if cursor.accept("FIRST"):
        return ("first", None)
    if cursor.accept("AFTER"):
        return ("after", cursor.identifier("a column"))
    return None


def type_text(cursor: Cursor) -> str:
    """A type, whose angle brackets may hold commas."""
    first = cursor.position
    cursor.identifier("a type")
    if cursor.at("("):
        cursor.skip_enclosed()
    elif cursor.at("<") or cursor.at("<>"):
        _skip_angles(cursor)
    return cursor.cut(first, cursor.position)


def _skip_angles(cursor: Cursor) -> None:
    depth = 0
    while True:
        token = cursor.take()
        if token.kind is Kind.SYMBOL:
            depth += token.text.count("<") - token.text.count(">")
        if depth <= 0:
            return


def parse_properties(cursor: Cursor) -> dict[str, str]:
    """`('key' = 'value', key.with.dots = 7)`"""
    cursor.expect("(")
    found: dict[str, str] = {}
    while True:
        key = parse_key(cursor)
        cursor.accept("=")
        token = cursor.peek()
        if token is not None and token.kind is Kind.STRING:
            found[key] = cursor.string()
        elif token is not None and token.kind in (Kind.NUMBER, Kind.WORD):
            found[key] = cursor.take().text
        else:
            cursor.fail("a value")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return found


def parse_key(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is not None and token.kind is Kind.STRING:
        return cursor.string()
    return ".".join(cursor.name("a property"))


def parse_keys(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    found = [parse_key(cursor)]
    while cursor.accept(","):
        found.append(parse_key(cursor))
    cursor.expect(")")
    return tuple(found)


def _create_namespace(cursor: Cursor) -> CreateNamespace:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a namespace")
    properties: dict[str, str] = {}
    while not cursor.at_end:
        if cursor.accept("COMMENT"):
            properties["comment"] = cursor.string("a comment in quotes")
        elif cursor.accept("LOCATION"):
            properties["location"] = cursor.string("a location in quotes")
        elif cursor.accept("WITH"):
            if not (cursor.accept("DBPROPERTIES") or cursor.accept("PROPERTIES")):
                cursor.fail("PROPERTIES")
            properties.update(parse_properties(cursor))
        else:
            cursor.fail("COMMENT, LOCATION or WITH PROPERTIES")
    return CreateNamespace(name, if_not_exists, properties)


def parse_drop(cursor: Cursor) -> ParsedStatement:
    cursor.expect("DROP")
    if cursor.accept_one(*_NAMESPACE):
        if_exists = cursor.accept("IF", "EXISTS")
        namespace = cursor.name("a namespace")
        cascade = cursor.accept("CASCADE")
        if not cascade:
            cursor.accept("RESTRICT")
        cursor.end()
        return DropNamespace(namespace, if_exists, cascade)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE, NAMESPACE, DATABASE or SCHEMA")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name("a table")
    purge = cursor.accept("PURGE")
    cursor.end()
    return DropTable(name, if_exists, purge)


def parse_show(cursor: Cursor) -> ParsedStatement:
    cursor.expect("SHOW")
    found: ParsedStatement
    if cursor.accept("TABLES"):
        found = ShowTables(_inside(cursor), _pattern(cursor))
    elif cursor.accept_one(*_NAMESPACES):
        found = ShowNamespaces(_inside(cursor), _pattern(cursor))
    elif cursor.accept("TBLPROPERTIES"):
        name = cursor.name("a table")
        key = None
        if cursor.accept("("):
            key = parse_key(cursor)
            cursor.expect(")")
        found = ShowProperties(name, key)
    elif cursor.accept("CREATE", "TABLE"):
        found = ShowCreateTable(cursor.name("a table"))
    else:
        cursor.fail("TABLES, NAMESPACES, TBLPROPERTIES or CREATE TABLE")
    cursor.end()
    return found


def _inside(cursor: Cursor) -> Name | None:
    if cursor.accept("FROM") or cursor.accept("IN"):
        return cursor.name("a namespace")
    return None


def _pattern(cursor: Cursor) -> str | None:
    like = cursor.accept("LIKE")
    token = cursor.peek()
    if like or (token is not None and token.kind is Kind.STRING):
        return cursor.string("a pattern in quotes")
    return None


def parse_describe(cursor: Cursor) -> ParsedStatement:
    if not cursor.accept("DESC"):
        cursor.expect("DESCRIBE")
    if cursor.accept_one(*_NAMESPACE):
        cursor.accept("EXTENDED")
        namespace = cursor.name("a namespace")
        cursor.end()
        return DescribeNamespace(namespace)
    cursor.accept("TABLE")
    extended = (cursor.accept("EXTENDED") or cursor.accept("FORMATTED")) and not cursor.at_end
    name = cursor.name("a table")
    cursor.end()
    return DescribeTable(name, extended)


def parse_use(cursor: Cursor) -> UseStatement:
    cursor.expect("USE")
    cursor.accept_one(*_NAMESPACE)
    name = cursor.name("a namespace")
    cursor.end()
    return UseStatement(name)

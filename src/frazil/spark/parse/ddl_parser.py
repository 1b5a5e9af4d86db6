"""Parse CREATE, ALTER, DROP, SHOW, DESCRIBE and USE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from frazil.client.declare.column_definitions import (
    read_column,
    read_columns,
    read_position,
    read_type_text,
)
from frazil.spark.parse.parsed_statements import (
    AddColumns,
    AlterColumn,
    AlterNamespace,
    AlterTable,
    CreateNamespace,
    CreateRef,
    CreateTable,
    DescribeNamespace,
    DropColumns,
    DropNamespace,
    DropRef,
    DropTable,
    IdentifierFields,
    ParsedStatement,
    PartitionChange,
    RenameColumn,
    RenameTable,
    SetLocation,
    SetProperties,
    ShowCreateTable,
    ShowNamespaces,
    ShowProperties,
    ShowTables,
    TableChange,
    UnsetProperties,
    UseStatement,
    WriteOrder,
)
from frazil.spark.parse.property_lists import (
    parse_properties,
    parse_property_key,
    parse_property_keys,
)
from frazil.spark.parse.sql_tokens import Cursor, Name
from frazil.wire.errors import BadRequest

_PROVIDERS: Final = frozenset({"iceberg", "frazil"})
_NAMESPACE: Final = ("NAMESPACE", "DATABASE", "SCHEMA")
_NAMESPACES: Final = ("NAMESPACES", "DATABASES", "SCHEMAS")
_PLURAL_UNITS_MS: Final = {"MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_UNITS_MS: Final = {**_PLURAL_UNITS_MS, **{name[:-1]: ms for name, ms in _PLURAL_UNITS_MS.items()}}
_TERM: Final = "a column or a transform"
_FIELD: Final = "a column, a transform or a partition field"
KNOWN_CHANGES: Final = (
    "ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN, RENAME TO, SET TBLPROPERTIES, "
    "UNSET TBLPROPERTIES, SET LOCATION, ADD / DROP / REPLACE PARTITION FIELD, WRITE ORDERED BY, "
    "WRITE DISTRIBUTED BY PARTITION, WRITE UNORDERED, SET / DROP IDENTIFIER FIELDS, "
    "CREATE / REPLACE / DROP BRANCH and TAG"
)


# --- CREATE ---------------------------------------------------------------------------------------


def parse_create(cursor: Cursor) -> ParsedStatement:
    """Parse CREATE TABLE, REPLACE TABLE and CREATE NAMESPACE."""
    create = cursor.accept("CREATE")
    if create:
        replace = cursor.accept("OR", "REPLACE")
    else:
        cursor.expect("REPLACE")
        replace = True
    if not replace and cursor.accept_one(*_NAMESPACE):
        return _create_namespace(cursor)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE or VIEW" if replace else "TABLE, VIEW, NAMESPACE, DATABASE or SCHEMA")
    if_not_exists = not replace and cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a table")
    columns = read_columns(cursor) if cursor.at("(") else ()
    clauses = _table_clauses(cursor)
    query = None
    if cursor.accept("AS") or cursor.at("SELECT") or cursor.at("WITH"):
        query = cursor.rest("a query")
    if query is not None and columns:
        raise BadRequest(
            f"{'.'.join(name)}: the query defines the columns, so they cannot be listed too"
        )
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
    """Parse the clauses after the columns: any order, each at most once."""
    clauses: dict[str, Any] = {}

    def put(key: str, value: object) -> None:
        if key in clauses:
            raise BadRequest(f"CREATE TABLE: {key.replace('_', ' ')} is given twice")
        clauses[key] = value

    while True:
        if cursor.accept("USING"):
            _check_provider(cursor)
        elif cursor.accept("PARTITIONED", "BY"):
            put("partitioned_by", cursor.parenthesized(lambda: cursor.until(_TERM, ",")))
        elif cursor.accept_one("TBLPROPERTIES", "OPTIONS"):
            put("properties", parse_properties(cursor))
        elif cursor.accept("LOCATION"):
            put("location", cursor.string("a location in quotes"))
        elif cursor.accept("COMMENT"):
            put("comment", cursor.string("a comment in quotes"))
        elif cursor.at("CLUSTERED", "BY") or cursor.at("CLUSTER", "BY"):
            cursor.fail("PARTITIONED BY (bucket(n, column))")
        else:
            return clauses


def _check_provider(cursor: Cursor) -> None:
    provider = cursor.identifier("a format")
    if provider.lower() not in _PROVIDERS:
        raise BadRequest(
            f"USING {provider}: this catalog has only Iceberg tables; write USING iceberg"
        )


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
            _expect_properties(cursor)
            properties.update(parse_properties(cursor))
        else:
            cursor.fail("COMMENT, LOCATION or WITH PROPERTIES")
    return CreateNamespace(name, if_not_exists, properties)


# --- properties -----------------------------------------------------------------------------------


def _expect_properties(cursor: Cursor) -> None:
    if not cursor.accept_one("PROPERTIES", "DBPROPERTIES"):
        cursor.fail("PROPERTIES")


# --- DROP, SHOW, DESCRIBE, USE --------------------------------------------------------------------


def parse_drop(cursor: Cursor) -> ParsedStatement:
    """Parse DROP TABLE and DROP NAMESPACE."""
    cursor.expect("DROP")
    if cursor.accept_one(*_NAMESPACE):
        if_exists = cursor.accept("IF", "EXISTS")
        namespace = cursor.name("a namespace")
        behavior = cursor.accept_one("CASCADE", "RESTRICT")
        return DropNamespace(namespace, if_exists, cascade=behavior == "CASCADE")
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE, VIEW, NAMESPACE, DATABASE or SCHEMA")
    if_exists = cursor.accept("IF", "EXISTS")
    return DropTable(cursor.name("a table"), if_exists, purge=cursor.accept("PURGE"))


def parse_show(cursor: Cursor) -> ParsedStatement:
    """Parse SHOW TABLES, NAMESPACES, TBLPROPERTIES and CREATE TABLE."""
    cursor.expect("SHOW")
    if cursor.accept("TABLES"):
        return ShowTables(_parent_namespace(cursor), _pattern(cursor))
    if cursor.accept("TABLE", "EXTENDED"):
        namespace = _parent_namespace(cursor)
        if not cursor.at("LIKE"):
            cursor.fail("LIKE and a pattern")
        return ShowTables(namespace, _pattern(cursor), extended=True)
    if cursor.accept_one(*_NAMESPACES):
        return ShowNamespaces(_parent_namespace(cursor), _pattern(cursor))
    if cursor.accept("CREATE", "TABLE"):
        return ShowCreateTable(cursor.name("a table"))
    if not cursor.accept("TBLPROPERTIES"):
        cursor.fail(
            "TABLES, TABLE EXTENDED, NAMESPACES, VIEWS, COLUMNS, TBLPROPERTIES or CREATE TABLE"
        )
    name = cursor.name("a table")
    key = None
    if cursor.accept("("):
        key = parse_property_key(cursor)
        cursor.expect(")")
    return ShowProperties(name, key)


def _parent_namespace(cursor: Cursor) -> Name | None:
    return cursor.name("a namespace") if cursor.accept_one("FROM", "IN") else None


def _pattern(cursor: Cursor) -> str | None:
    if cursor.accept("LIKE") or cursor.at_string:
        return cursor.string("a pattern in quotes")
    return None


def parse_describe(cursor: Cursor) -> ParsedStatement:
    """Parse DESCRIBE NAMESPACE."""
    if not cursor.accept("DESC"):
        cursor.expect("DESCRIBE")
    if not cursor.accept_one(*_NAMESPACE):
        cursor.fail("NAMESPACE")
    cursor.accept("EXTENDED")
    return DescribeNamespace(cursor.name("a namespace"))


def parse_use(cursor: Cursor) -> UseStatement:
    """Parse USE with a namespace."""
    cursor.expect("USE")
    cursor.accept_one(*_NAMESPACE)
    return UseStatement(cursor.name("a namespace"))


# --- ALTER ----------------------------------------------------------------------------------------


def parse_alter(cursor: Cursor) -> ParsedStatement:
    """Parse ALTER TABLE and ALTER NAMESPACE."""
    cursor.expect("ALTER")
    if cursor.accept_one(*_NAMESPACE):
        return _alter_namespace(cursor)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE or NAMESPACE")
    name = cursor.name("a table")
    parser = _CHANGES.get(cursor.word())
    if parser is None:
        cursor.fail(f"one of {KNOWN_CHANGES}")
    cursor.take()
    return AlterTable(name, parser(cursor))


def _alter_namespace(cursor: Cursor) -> AlterNamespace:
    name = cursor.name("a namespace")
    if cursor.accept("UNSET"):
        _expect_properties(cursor)
        cursor.accept("IF", "EXISTS")
        return AlterNamespace(name, removals=parse_property_keys(cursor))
    cursor.expect("SET")
    if cursor.accept("LOCATION"):
        return AlterNamespace(name, {"location": cursor.string("a location in quotes")})
    _expect_properties(cursor)
    return AlterNamespace(name, parse_properties(cursor))


def _add(cursor: Cursor) -> TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        return PartitionChange(added=cursor.until(_TERM, "AS"), name=_field_name(cursor))
    cursor.accept_one("COLUMNS", "COLUMN")
    if cursor.at("("):
        return AddColumns(read_columns(cursor))
    return AddColumns(cursor.comma_list(lambda: read_column(cursor)))


def _drop(cursor: Cursor) -> TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        return PartitionChange(dropped=cursor.rest(_FIELD))
    if cursor.accept("IDENTIFIER", "FIELDS"):
        return IdentifierFields(_column_names(cursor), drop=True)
    kind = cursor.accept_one("BRANCH", "TAG")
    if kind is not None:
        if_exists = cursor.accept("IF", "EXISTS")
        return DropRef(kind.lower(), cursor.identifier(f"a {kind.lower()}"), if_exists)
    if not cursor.accept_one("COLUMNS", "COLUMN"):
        cursor.fail("COLUMN, PARTITION FIELD, IDENTIFIER FIELDS, BRANCH or TAG")
    if_exists = cursor.accept("IF", "EXISTS")
    if cursor.at("("):
        return DropColumns(cursor.parenthesized(lambda: cursor.name("a column")), if_exists)
    return DropColumns(_column_names(cursor), if_exists)


def _column_names(cursor: Cursor) -> tuple[Name, ...]:
    return cursor.comma_list(lambda: cursor.name("a column"))


def _field_name(cursor: Cursor) -> str | None:
    return cursor.identifier("a name for the field") if cursor.accept("AS") else None


def _rename(cursor: Cursor) -> TableChange:
    if cursor.accept("TO"):
        return RenameTable(cursor.name("a table"))
    cursor.expect("COLUMN")
    column = cursor.name("a column")
    cursor.expect("TO")
    return RenameColumn(column, cursor.identifier("the column's new name"))


def _alter_column(cursor: Cursor) -> TableChange:
    cursor.accept("COLUMN")
    column = cursor.name("a column")
    if cursor.accept("SET", "NOT", "NULL"):
        return AlterColumn(column, required=True)
    if cursor.accept("DROP", "NOT", "NULL"):
        return AlterColumn(column, required=False)
    if cursor.accept("DROP", "DEFAULT"):
        return AlterColumn(column, drop_default=True)
    if cursor.accept("SET", "DEFAULT"):
        return AlterColumn(column, default=cursor.rest("a value"))
    if cursor.accept("COMMENT"):
        return AlterColumn(column, comment=cursor.string("a comment in quotes"))
    position = read_position(cursor)
    if position is not None:
        return AlterColumn(column, position=position)
    if not cursor.accept("TYPE"):
        cursor.fail("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT, FIRST or AFTER")
    return AlterColumn(column, type=read_type_text(cursor))


def _change_column(cursor: Cursor) -> TableChange:
    """Parse Hive's `CHANGE [COLUMN] name new_name type …`. Spark does not allow a new name."""
    cursor.accept("COLUMN")
    column = cursor.name("a column")
    definition = read_column(cursor)
    if definition.name != column[-1:]:
        raise BadRequest("CHANGE COLUMN does not rename: use RENAME COLUMN … TO …")
    return AlterColumn(column, definition.type, definition.comment, position=definition.position)


def _set(cursor: Cursor) -> TableChange:
    if cursor.accept("TBLPROPERTIES"):
        return SetProperties(parse_properties(cursor))
    if cursor.accept("LOCATION"):
        return SetLocation(cursor.string("a location in quotes"))
    if cursor.accept("IDENTIFIER", "FIELDS"):
        return IdentifierFields(_column_names(cursor))
    cursor.fail("TBLPROPERTIES, LOCATION or IDENTIFIER FIELDS")


def _unset(cursor: Cursor) -> TableChange:
    cursor.expect("TBLPROPERTIES")
    cursor.accept("IF", "EXISTS")
    return UnsetProperties(parse_property_keys(cursor))


def _create(cursor: Cursor) -> TableChange:
    return _ref(cursor, create=True, replace=cursor.accept("OR", "REPLACE"))


def _replace(cursor: Cursor) -> TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        dropped = cursor.until(_FIELD, "WITH")
        cursor.expect("WITH")
        return PartitionChange(dropped, cursor.until(_TERM, "AS"), _field_name(cursor))
    return _ref(cursor, create=False, replace=True)


def _ref(cursor: Cursor, *, create: bool, replace: bool) -> CreateRef:
    kind = cursor.accept_one("BRANCH", "TAG")
    if kind is None:
        cursor.fail("BRANCH or TAG")
    options: dict[str, Any] = {"kind": kind.lower(), "create": create, "replace": replace}
    options["if_not_exists"] = not replace and cursor.accept("IF", "NOT", "EXISTS")
    options["name"] = cursor.identifier(f"a {kind.lower()}")
    if cursor.accept("AS", "OF", "VERSION"):
        options["snapshot_id"] = cursor.whole_number("a snapshot ID")
    if cursor.accept("RETAIN"):
        options["max_ref_age_ms"] = _age_ms(cursor, cursor.whole_number())
    if kind == "BRANCH" and cursor.accept("WITH", "SNAPSHOT", "RETENTION"):
        number: int | None = cursor.whole_number()
        if cursor.accept("SNAPSHOTS"):
            options["min_snapshots_to_keep"] = number
            number = None if cursor.at_end else cursor.whole_number()
        if number is not None:
            options["max_snapshot_age_ms"] = _age_ms(cursor, number)
    return CreateRef(**options)


def _age_ms(cursor: Cursor, number: int) -> int:
    unit_ms = _UNITS_MS.get(cursor.word())
    if unit_ms is None:
        cursor.fail("DAYS, HOURS or MINUTES")
    cursor.take()
    return number * unit_ms


def _write(cursor: Cursor) -> WriteOrder:
    """Parse WRITE as Iceberg's extensions define it.

    ORDERED BY sorts all tasks by ranges. LOCALLY ORDERED BY leaves the distribution unchanged.
    DISTRIBUTED BY PARTITION brings the rows of a partition together.
    """
    ordered_by: tuple[str, ...] | None = None
    by_partition = locally = False
    while not cursor.at_end:
        if cursor.accept("DISTRIBUTED", "BY", "PARTITION"):
            by_partition = True
        elif cursor.accept("UNORDERED"):
            ordered_by = ()
        else:
            locally = cursor.accept("LOCALLY")
            cursor.expect("ORDERED", "BY")
            ordered_by = _order(cursor)
    if by_partition:
        return WriteOrder(ordered_by or (), "hash")
    if ordered_by is None:
        cursor.fail("ORDERED BY, DISTRIBUTED BY PARTITION or UNORDERED")
    if locally:
        return WriteOrder(ordered_by)
    return WriteOrder(ordered_by, "range" if ordered_by else "none")


def _order(cursor: Cursor) -> tuple[str, ...]:
    def term() -> str:
        return cursor.until(_TERM, ",", "DISTRIBUTED", "LOCALLY", "UNORDERED")

    return cursor.parenthesized(term) if cursor.at("(") else cursor.comma_list(term)


_CHANGES: Final[Mapping[str, Callable[[Cursor], TableChange]]] = {
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "ALTER": _alter_column,
    "CHANGE": _change_column,
    "SET": _set,
    "UNSET": _unset,
    "CREATE": _create,
    "REPLACE": _replace,
    "WRITE": _write,
}

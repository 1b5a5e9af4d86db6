"""Parse CREATE, ALTER and DROP of tables, views and namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from frazil.client.declare.column_definitions import (
    read_column,
    read_columns,
    read_position,
    read_type_text,
)
from frazil.spark.parse import parsed_statements as sql
from frazil.spark.parse.sql_tokens import Cursor, Name
from frazil.wire.errors import BadRequest

_PROVIDERS: Final = frozenset({"iceberg", "frazil"})
NAMESPACE: Final = ("NAMESPACE", "DATABASE", "SCHEMA")
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


def parse_create(cursor: Cursor) -> sql.ParsedStatement:
    """Parse CREATE and REPLACE."""
    create = cursor.accept("CREATE")
    if create:
        replace = cursor.accept("OR", "REPLACE")
    else:
        cursor.expect("REPLACE")
        replace = True
    if create and _at_view(cursor):
        return _create_view(cursor, replace)
    if not replace and cursor.accept_one(*NAMESPACE):
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
    return sql.CreateTable(
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
            put("properties", cursor.properties())
        elif cursor.accept("LOCATION"):
            put("location", _location(cursor))
        elif cursor.accept("COMMENT"):
            put("comment", _comment(cursor))
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


def _create_namespace(cursor: Cursor) -> sql.CreateNamespace:
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.name("a namespace")
    properties: dict[str, str] = {}
    while not cursor.at_end:
        if cursor.accept("COMMENT"):
            properties["comment"] = _comment(cursor)
        elif cursor.accept("LOCATION"):
            properties["location"] = _location(cursor)
        elif cursor.accept("WITH"):
            _expect_properties(cursor)
            properties.update(cursor.properties())
        else:
            cursor.fail("COMMENT, LOCATION or WITH PROPERTIES")
    return sql.CreateNamespace(name, if_not_exists, properties)


def _comment(cursor: Cursor) -> str:
    return cursor.string("a comment in quotes")


def _location(cursor: Cursor) -> str:
    return cursor.string("a location in quotes")


def _expect_properties(cursor: Cursor) -> None:
    if not cursor.accept_one("PROPERTIES", "DBPROPERTIES"):
        cursor.fail("PROPERTIES")


# --- CREATE VIEW ----------------------------------------------------------------------------------


def _at_view(cursor: Cursor) -> bool:
    ahead = 0
    while cursor.word(ahead) in ("GLOBAL", "TEMP", "TEMPORARY"):
        ahead += 1
    return cursor.word(ahead) == "VIEW"


def _create_view(cursor: Cursor, replace: bool) -> sql.ParsedStatement:
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
    return sql.CreateView(
        name=cursor.name("a view"),
        columns=_view_columns(cursor),
        **_view_clauses(cursor),
        query=_view_query(cursor),
        if_not_exists=if_not_exists,
        replace=replace,
    )


def _create_temporary(cursor: Cursor, replace: bool, is_global: bool) -> sql.ParsedStatement:
    name = cursor.identifier("a view's name without a namespace")
    if "USING" in (cursor.word(), _word_after_parentheses(cursor)):
        # The view of a data source concerns no table of the catalog.
        cursor.rest("a data source")
        return sql.SparkStatement(cursor.text)
    columns = _view_columns(cursor)
    _view_clauses(cursor)
    query = _view_query(cursor)
    return sql.CreateTemporaryView(
        name=name, query=query, columns=columns, replace=replace, is_global=is_global
    )


def _word_after_parentheses(cursor: Cursor) -> str:
    if not cursor.at("("):
        return ""
    start = cursor.position
    cursor.skip_enclosed()
    word = cursor.word()
    cursor.position = start
    return word


def _view_columns(cursor: Cursor) -> tuple[sql.ViewColumn, ...]:
    def column() -> sql.ViewColumn:
        name = cursor.identifier("a column")
        return sql.ViewColumn(name, _comment(cursor) if cursor.accept("COMMENT") else None)

    return cursor.parenthesized(column) if cursor.at("(") else ()


def _view_clauses(cursor: Cursor) -> dict[str, Any]:
    """Parse the clauses between the columns and the query, in any order."""
    clauses: dict[str, Any] = {}
    while (word := cursor.accept_one("COMMENT", "TBLPROPERTIES")) is not None:
        key = "comment" if word == "COMMENT" else "properties"
        if key in clauses:
            raise BadRequest(f"CREATE VIEW: {word} is given twice")
        clauses[key] = _comment(cursor) if word == "COMMENT" else cursor.properties()
    return clauses


def _view_query(cursor: Cursor) -> str:
    cursor.expect("AS")
    return cursor.rest("a query")


# --- DROP -----------------------------------------------------------------------------------------


def parse_drop(cursor: Cursor) -> sql.ParsedStatement:
    """Parse DROP."""
    cursor.expect("DROP")
    if cursor.accept("VIEW"):
        if_exists = cursor.accept("IF", "EXISTS")
        return sql.DropView(cursor.name("a view"), if_exists)
    if cursor.accept_one(*NAMESPACE):
        if_exists = cursor.accept("IF", "EXISTS")
        namespace = cursor.name("a namespace")
        behavior = cursor.accept_one("CASCADE", "RESTRICT")
        return sql.DropNamespace(namespace, if_exists, cascade=behavior == "CASCADE")
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE, VIEW, NAMESPACE, DATABASE or SCHEMA")
    if_exists = cursor.accept("IF", "EXISTS")
    return sql.DropTable(cursor.name("a table"), if_exists, purge=cursor.accept("PURGE"))


# --- ALTER ----------------------------------------------------------------------------------------


def parse_alter(cursor: Cursor) -> sql.ParsedStatement:
    """Parse ALTER."""
    cursor.expect("ALTER")
    if cursor.accept("VIEW"):
        return _alter_view(cursor)
    if cursor.accept_one(*NAMESPACE):
        return _alter_namespace(cursor)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE or NAMESPACE")
    name = cursor.name("a table")
    parser = _CHANGES.get(cursor.word())
    if parser is None:
        cursor.fail(f"one of {KNOWN_CHANGES}")
    cursor.take()
    return sql.AlterTable(name, parser(cursor))


def _alter_namespace(cursor: Cursor) -> sql.AlterNamespace:
    name = cursor.name("a namespace")
    if cursor.accept("UNSET"):
        _expect_properties(cursor)
        cursor.accept("IF", "EXISTS")
        return sql.AlterNamespace(name, removals=cursor.property_keys())
    cursor.expect("SET")
    if cursor.accept("LOCATION"):
        return sql.AlterNamespace(name, {"location": _location(cursor)})
    _expect_properties(cursor)
    return sql.AlterNamespace(name, cursor.properties())


def _alter_view(cursor: Cursor) -> sql.AlterView:
    name = cursor.name("a view")
    if cursor.accept("RENAME", "TO"):
        return sql.AlterView(name, sql.RenameTable(cursor.name("the new name")))
    if cursor.accept("SET", "TBLPROPERTIES"):
        return sql.AlterView(name, sql.SetProperties(cursor.properties()))
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        if_exists = cursor.accept("IF", "EXISTS")
        return sql.AlterView(name, sql.UnsetProperties(cursor.property_keys(), if_exists))
    cursor.accept("AS")
    if cursor.word() not in ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "("):
        cursor.fail("AS, RENAME TO, SET TBLPROPERTIES or UNSET TBLPROPERTIES")
    return sql.AlterView(name, sql.ViewQuery(cursor.rest("a query")))


def _add(cursor: Cursor) -> sql.TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        return sql.PartitionChange(added=cursor.until(_TERM, "AS"), name=_field_name(cursor))
    cursor.accept_one("COLUMNS", "COLUMN")
    if cursor.at("("):
        return sql.AddColumns(read_columns(cursor))
    return sql.AddColumns(cursor.comma_list(lambda: read_column(cursor)))


def _drop(cursor: Cursor) -> sql.TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        return sql.PartitionChange(dropped=cursor.rest(_FIELD))
    if cursor.accept("IDENTIFIER", "FIELDS"):
        return sql.IdentifierFields(_column_names(cursor), drop=True)
    kind = cursor.accept_one("BRANCH", "TAG")
    if kind is not None:
        if_exists = cursor.accept("IF", "EXISTS")
        return sql.DropRef(kind.lower(), cursor.identifier(f"a {kind.lower()}"), if_exists)
    if not cursor.accept_one("COLUMNS", "COLUMN"):
        cursor.fail("COLUMN, PARTITION FIELD, IDENTIFIER FIELDS, BRANCH or TAG")
    if_exists = cursor.accept("IF", "EXISTS")
    if cursor.at("("):
        return sql.DropColumns(cursor.parenthesized(lambda: cursor.name("a column")), if_exists)
    return sql.DropColumns(_column_names(cursor), if_exists)


def _column_names(cursor: Cursor) -> tuple[Name, ...]:
    return cursor.comma_list(lambda: cursor.name("a column"))


def _field_name(cursor: Cursor) -> str | None:
    return cursor.identifier("a name for the field") if cursor.accept("AS") else None


def _rename(cursor: Cursor) -> sql.TableChange:
    if cursor.accept("TO"):
        return sql.RenameTable(cursor.name("a table"))
    cursor.expect("COLUMN")
    column = cursor.name("a column")
    cursor.expect("TO")
    return sql.RenameColumn(column, cursor.identifier("the column's new name"))


def _alter_column(cursor: Cursor) -> sql.TableChange:
    cursor.accept("COLUMN")
    column = cursor.name("a column")
    if cursor.accept("SET", "NOT", "NULL"):
        return sql.AlterColumn(column, required=True)
    if cursor.accept("DROP", "NOT", "NULL"):
        return sql.AlterColumn(column, required=False)
    if cursor.accept("DROP", "DEFAULT"):
        return sql.AlterColumn(column, drop_default=True)
    if cursor.accept("SET", "DEFAULT"):
        return sql.AlterColumn(column, default=cursor.rest("a value"))
    if cursor.accept("COMMENT"):
        return sql.AlterColumn(column, comment=_comment(cursor))
    position = read_position(cursor)
    if position is not None:
        return sql.AlterColumn(column, position=position)
    if not cursor.accept("TYPE"):
        cursor.fail("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT, FIRST or AFTER")
    return sql.AlterColumn(column, type=read_type_text(cursor))


def _change_column(cursor: Cursor) -> sql.TableChange:
    """Parse Hive's `CHANGE [COLUMN] name new_name type …`. Spark does not allow a new name."""
    cursor.accept("COLUMN")
    column = cursor.name("a column")
    definition = read_column(cursor)
    if definition.name != column[-1:]:
        raise BadRequest("CHANGE COLUMN does not rename: use RENAME COLUMN … TO …")
    return sql.AlterColumn(
        column, definition.type, definition.comment, position=definition.position
    )


def _set(cursor: Cursor) -> sql.TableChange:
    if cursor.accept("TBLPROPERTIES"):
        return sql.SetProperties(cursor.properties())
    if cursor.accept("LOCATION"):
        return sql.SetLocation(_location(cursor))
    if cursor.accept("IDENTIFIER", "FIELDS"):
        return sql.IdentifierFields(_column_names(cursor))
    cursor.fail("TBLPROPERTIES, LOCATION or IDENTIFIER FIELDS")


def _unset(cursor: Cursor) -> sql.TableChange:
    cursor.expect("TBLPROPERTIES")
    cursor.accept("IF", "EXISTS")
    return sql.UnsetProperties(cursor.property_keys())


def _create(cursor: Cursor) -> sql.TableChange:
    return _ref(cursor, create=True, replace=cursor.accept("OR", "REPLACE"))


def _replace(cursor: Cursor) -> sql.TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        dropped = cursor.until(_FIELD, "WITH")
        cursor.expect("WITH")
        return sql.PartitionChange(dropped, cursor.until(_TERM, "AS"), _field_name(cursor))
    return _ref(cursor, create=False, replace=True)


def _ref(cursor: Cursor, *, create: bool, replace: bool) -> sql.CreateRef:
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
    return sql.CreateRef(**options)


def _age_ms(cursor: Cursor, number: int) -> int:
    unit_ms = _UNITS_MS.get(cursor.word())
    if unit_ms is None:
        cursor.fail("DAYS, HOURS or MINUTES")
    cursor.take()
    return number * unit_ms


def _write(cursor: Cursor) -> sql.WriteOrder:
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
        return sql.WriteOrder(ordered_by or (), "hash")
    if ordered_by is None:
        cursor.fail("ORDERED BY, DISTRIBUTED BY PARTITION or UNORDERED")
    if locally:
        return sql.WriteOrder(ordered_by)
    return sql.WriteOrder(ordered_by, "range" if ordered_by else "none")


def _order(cursor: Cursor) -> tuple[str, ...]:
    def term() -> str:
        return cursor.until(_TERM, ",", "DISTRIBUTED", "LOCALLY", "UNORDERED")

    return cursor.parenthesized(term) if cursor.at("(") else cursor.comma_list(term)


_CHANGES: Final[Mapping[str, Callable[[Cursor], sql.TableChange]]] = {
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

"""ALTER TABLE and ALTER NAMESPACE."""

from __future__ import annotations

from typing import Any, Final

from frazil.spark.parse.ddl_parser import (
    parse_column,
    parse_columns,
    parse_keys,
    parse_position,
    parse_properties,
    type_text,
)
from frazil.spark.parse.parsed_statements import (
    AddColumns,
    AddPartitionField,
    AlterColumn,
    AlterNamespace,
    AlterTable,
    ColumnDefinition,
    CreateRef,
    DropColumns,
    DropIdentifierFields,
    DropPartitionField,
    DropRef,
    ParsedStatement,
    RenameColumn,
    RenameTable,
    ReplacePartitionField,
    SetIdentifierFields,
    SetLocation,
    SetProperties,
    TableChange,
    UnsetProperties,
    WriteOrder,
)
from frazil.spark.parse.sql_tokens import Cursor, Name
from frazil.wire.errors import BadRequest

_UNIT_MS: Final = {"MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
_UNITS: Final = {**_UNIT_MS, **{name[:-1]: ms for name, ms in _UNIT_MS.items()}}
KNOWN_CHANGES: Final = (
    "ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN, RENAME TO, SET TBLPROPERTIES, "
    "UNSET TBLPROPERTIES, SET LOCATION, ADD / DROP / REPLACE PARTITION FIELD, WRITE ORDERED BY, "
    "WRITE DISTRIBUTED BY PARTITION, WRITE UNORDERED, SET / DROP IDENTIFIER FIELDS, "
    "CREATE / REPLACE / DROP BRANCH and TAG"
)


def parse_alter(cursor: Cursor) -> ParsedStatement:
    cursor.expect("ALTER")
    if cursor.accept_one("NAMESPACE", "DATABASE", "SCHEMA"):
        return _alter_namespace(cursor)
    if not cursor.accept("TABLE"):
        cursor.fail("TABLE or NAMESPACE")
    name = cursor.name("a table")
    change = _change(cursor)
    cursor.end()
    return AlterTable(name, change)


def _alter_namespace(cursor: Cursor) -> AlterNamespace:
    name = cursor.name("a namespace")
    if cursor.accept("UNSET"):
        _properties_word(cursor)
        cursor.accept("IF", "EXISTS")
        removals = parse_keys(cursor)
        cursor.end()
        return AlterNamespace(name, removals=removals)
    cursor.expect("SET")
    if cursor.accept("LOCATION"):
        updates = {"location": cursor.string("a location in quotes")}
    else:
        _properties_word(cursor)
        updates = parse_properties(cursor)
    cursor.end()
    return AlterNamespace(name, updates)


def _properties_word(cursor: Cursor) -> None:
    if not cursor.accept_one("PROPERTIES", "DBPROPERTIES"):
        cursor.fail("PROPERTIES")


def _change(cursor: Cursor) -> TableChange:
    token = cursor.peek()
    parser = None if token is None else _CHANGES.get(token.word)
    if parser is None:
        cursor.fail(f"one of {KNOWN_CHANGES}")
    cursor.take()
    found: TableChange = parser(cursor)
    return found


def _add(cursor: Cursor) -> TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        term = cursor.until("a column or a transform", "AS")
        return AddPartitionField(term, _named(cursor))
    cursor.accept_one("COLUMNS", "COLUMN")
    if cursor.at("("):
        return AddColumns(parse_columns(cursor))
    found = [parse_column(cursor)]
    while cursor.accept(","):
        found.append(parse_column(cursor))
    return AddColumns(tuple(found))


def _drop(cursor: Cursor) -> TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        return DropPartitionField(cursor.rest("a column, a transform or a partition field"))
    if cursor.accept("IDENTIFIER", "FIELDS"):
        return DropIdentifierFields(_names(cursor))
    kind = cursor.accept_one("BRANCH", "TAG")
    if kind is not None:
        if_exists = cursor.accept("IF", "EXISTS")
        return DropRef(kind.lower(), cursor.identifier(f"a {kind.lower()}"), if_exists)
    if not (cursor.accept("COLUMNS") or cursor.accept("COLUMN")):
        cursor.fail("COLUMN, PARTITION FIELD, IDENTIFIER FIELDS, BRANCH or TAG")
    if_exists = cursor.accept("IF", "EXISTS")
    enclosed = cursor.accept("(")
    columns = _names(cursor)
    if enclosed:
        cursor.expect(")")
    return DropColumns(columns, if_exists)


def _names(cursor: Cursor) -> tuple[Name, ...]:
    found = [cursor.name("a column")]
    while cursor.accept(","):
        found.append(cursor.name("a column"))
    return tuple(found)


def _named(cursor: Cursor) -> str | None:
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
    place = parse_position(cursor)
    if place is not None:
        return AlterColumn(column, position=place)
    if not cursor.accept("TYPE"):
        cursor.fail("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT, FIRST or AFTER")
    return AlterColumn(column, type=type_text(cursor))


def _change_column(cursor: Cursor) -> TableChange:
    """Hive's form: `CHANGE [COLUMN] name new_name type …`; a new name is not allowed in Spark."""
    cursor.accept("COLUMN")
    column = cursor.name("a column")
    given: ColumnDefinition = parse_column(cursor)
    if given.name != column[-1:]:
        raise BadRequest("CHANGE COLUMN does not rename: use RENAME COLUMN … TO …")
    return AlterColumn(column, given.type, given.comment, position=given.position)


def _set(cursor: Cursor) -> TableChange:
    if cursor.accept("TBLPROPERTIES"):
        return SetProperties(parse_properties(cursor))
    if cursor.accept("LOCATION"):
        return SetLocation(cursor.string("a location in quotes"))
    if cursor.accept("IDENTIFIER", "FIELDS"):
        return SetIdentifierFields(_names(cursor))
    cursor.fail("TBLPROPERTIES, LOCATION or IDENTIFIER FIELDS")


def _unset(cursor: Cursor) -> TableChange:
    cursor.expect("TBLPROPERTIES")
    if_exists = cursor.accept("IF", "EXISTS")
    return UnsetProperties(parse_keys(cursor), if_exists)


def _create(cursor: Cursor) -> TableChange:
    return _ref(cursor, create=True, replace=cursor.accept("OR", "REPLACE"))


def _replace(cursor: Cursor) -> TableChange:
    if cursor.accept("PARTITION", "FIELD"):
        old = cursor.until("a column, a transform or a partition field", "WITH")
        cursor.expect("WITH")
        term = cursor.until("a column or a transform", "AS")
        return ReplacePartitionField(old, term, _named(cursor))
    return _ref(cursor, create=False, replace=True)


def _ref(cursor: Cursor, *, create: bool, replace: bool) -> CreateRef:
    kind = cursor.accept_one("BRANCH", "TAG")
    if kind is None:
        cursor.fail("BRANCH or TAG")
    found: dict[str, Any] = {"kind": kind.lower(), "create": create, "replace": replace}
    found["if_not_exists"] = not replace and cursor.accept("IF", "NOT", "EXISTS")
    found["name"] = cursor.identifier(f"a {kind.lower()}")
    if cursor.accept("AS", "OF", "VERSION"):
        found["snapshot_id"] = cursor.whole_number("a snapshot's id")
    if cursor.accept("RETAIN"):
        found["max_ref_age_ms"] = _age_ms(cursor, cursor.whole_number())
    if kind == "BRANCH" and cursor.accept("WITH", "SNAPSHOT", "RETENTION"):
        number = cursor.whole_number()
        if cursor.accept("SNAPSHOTS"):
            found["min_snapshots_to_keep"] = number
            number = -1 if cursor.at_end else cursor.whole_number()
        if number >= 0:
            found["max_snapshot_age_ms"] = _age_ms(cursor, number)
    return CreateRef(**found)


def _age_ms(cursor: Cursor, number: int) -> int:
    token = cursor.peek()
    unit = None if token is None else _UNITS.get(token.word)
    if unit is None:
        cursor.fail("DAYS, HOURS or MINUTES")
    cursor.take()
    return number * unit


def _write(cursor: Cursor) -> WriteOrder:
    """As Iceberg's extensions mean it: an order over all tasks sorts by ranges, a LOCAL one leaves
    the distribution as it is, DISTRIBUTED BY PARTITION brings rows of a partition together."""
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
    enclosed = cursor.accept("(")
    found = [_order_term(cursor)]
    while cursor.accept(","):
        found.append(_order_term(cursor))
    if enclosed:
        cursor.expect(")")
    return tuple(found)


def _order_term(cursor: Cursor) -> str:
    return cursor.until("a column or a transform", ",", "DISTRIBUTED", "LOCALLY", "UNORDERED")


_CHANGES: Final = {
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

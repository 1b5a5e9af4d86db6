"""Columns as text: `id bigint not null, place struct<city: string> comment 'where'`.

SQL's CREATE TABLE and ADD COLUMNS are read by the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from frazil.client.declare.schema_editor import Position
from frazil.client.declare.text_cursor import Kind, Name, TextCursor
from frazil.client.declare.type_text import parse_type
from frazil.values import types
from frazil.values.field_ids import NO_ID, struct_with_ids
from frazil.values.literal_values import OutOfRange, literal_value
from frazil.values.single_value import InvalidValue
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import Predicate
from frazil.wire.filter_builders import value_json
from frazil.wire.filter_text import parse_filter


@dataclass(frozen=True)
class ColumnDefinition:
    """A column of a new table, or a new column."""

    name: Name
    type: str
    """The text of the type."""
    required: bool = False
    comment: str | None = None
    default: str | None = None
    position: Position | None = None
    """`("first", None)` or `("after", name)`."""


# --- parsing ------------------------------------------------------------------------------------


def parse_columns(text: str) -> tuple[ColumnDefinition, ...]:
    """Parse definitions with commas between them, in parentheses or without."""
    cursor = TextCursor(text)
    if cursor.at("("):
        columns = read_columns(cursor)
    else:
        columns = cursor.comma_list(lambda: read_column(cursor))
    cursor.end()
    return columns


def read_columns(cursor: TextCursor) -> tuple[ColumnDefinition, ...]:
    return cursor.parenthesized(lambda: read_column(cursor))


def read_column(cursor: TextCursor) -> ColumnDefinition:
    """Parse `name type [NOT NULL] [COMMENT '…'] [DEFAULT …] [FIRST | AFTER name]`."""
    name = cursor.name("a column")
    options: dict[str, Any] = {"type": read_type_text(cursor)}
    while True:
        if cursor.accept("NOT", "NULL"):
            options["required"] = True
        elif cursor.accept("COMMENT"):
            options["comment"] = cursor.string("a comment in quotes")
        elif cursor.accept("DEFAULT"):
            options["default"] = cursor.until("a value", "NOT", "COMMENT", "FIRST", "AFTER", ",")
        elif (position := read_position(cursor)) is not None:
            options["position"] = position
        elif cursor.at("GENERATED"):
            cursor.fail("a column that is not generated: Iceberg has no such columns")
        else:
            return ColumnDefinition(name, **options)


def read_position(cursor: TextCursor) -> tuple[str, str | None] | None:
    if cursor.accept("FIRST"):
        return ("first", None)
    if cursor.accept("AFTER"):
        return ("after", cursor.identifier("a column"))
    return None


def read_type_text(cursor: TextCursor) -> str:
    """Read a type and return its text. Commas may stand between angle brackets."""
    first = cursor.position
    cursor.identifier("a type")
    if cursor.at("(") or cursor.at("["):
        cursor.skip_enclosed()
    elif cursor.at("<") or cursor.at("<>"):
        _skip_angle_brackets(cursor)
    return cursor.cut(first, cursor.position)


def _skip_angle_brackets(cursor: TextCursor) -> None:
    depth = 0
    while True:
        token = cursor.take()
        if token.kind is Kind.SYMBOL:
            depth += token.text.count("<") - token.text.count(">")
        if depth <= 0:
            return


# --- fields ---------------------------------------------------------------------------------------


def schema_of_text(columns: str | Mapping[str, str]) -> types.StructType:
    """Return the schema that a text, or a mapping from names to types, defines; IDs begin at 1."""
    fields = tuple(map(_top_level_field, definitions_of(columns)))
    if not fields:
        raise BadRequest("schema: a table needs at least one column")
    return struct_with_ids(types.StructType(fields))


def definitions_of(columns: str | Mapping[str, str]) -> tuple[ColumnDefinition, ...]:
    """Parse the definitions in a text, or of names, which may then have any characters."""
    if isinstance(columns, str):
        return parse_columns(columns)
    for name, text in columns.items():
        if not isinstance(text, str):
            raise BadRequest(
                f"schema: column {name}: give the type as a str, such as 'long not null'"
            )
    return tuple(replace(definition_of(text), name=(name,)) for name, text in columns.items())


def definition_of(text: str) -> ColumnDefinition:
    """Parse a definition without its name, such as `long not null`."""
    cursor = TextCursor(f"_ {text}")
    definition = read_column(cursor)
    cursor.end()
    return definition


def _top_level_field(definition: ColumnDefinition) -> types.NestedField:
    name = ".".join(definition.name)
    if len(definition.name) > 1:
        raise BadRequest(f"column {name}: write the struct as a type, or the name in backticks")
    if definition.position is not None:
        raise BadRequest(f"column {name}: columns of a new table are in the order of the text")
    field = field_of(definition)
    # Spec, "Default values": only rows from before a column was added need an initial default.
    return replace(field, initial_default=None)


def field_of(definition: ColumnDefinition) -> types.NestedField:
    """Return the column without IDs; as in Iceberg, `timestamp` has no time zone."""
    name = ".".join(definition.name)
    type_ = column_type(definition.type)
    field = types.NestedField(
        NO_ID, definition.name[-1], type_, definition.required, definition.comment
    )
    if definition.default is None:
        return field
    return with_default(field, default_of_text(name, type_, definition.default))


def column_type(text: str) -> types.Type:
    """Parse a type as the client writes it."""
    return parse_type(text, timestamp=types.TIMESTAMP)


def with_default(field: types.NestedField, value: Any) -> types.NestedField:
    """Return a new column with a default for existing rows and for new rows without a value."""
    return replace(field, initial_default=value, write_default=value)


def default_of_text(name: str, type_: types.Type, text: str) -> Any:
    """Return the internal value of a literal such as `5`, `'text'` or `DATE '2026-05-01'`."""
    if text.upper() == "NULL":
        return None
    predicate = parse_filter(f"x = {text}")
    if not isinstance(predicate, Predicate) or len(predicate.values) != 1:
        raise BadRequest(f"column {name}: the default {text} is no constant")
    return _default(name, type_, predicate.values[0])


def default_of_value(name: str, type_: types.Type, value: Any) -> Any:
    """Return the internal value of a Python value."""
    return None if value is None else _default(name, type_, value_json(value, name))


def _default(name: str, type_: types.Type, literal: Any) -> Any:
    try:
        value = literal_value(type_, literal)
    except InvalidValue as error:
        raise BadRequest(f"column {name}: the default does not fit {type_}: {error}") from None
    if isinstance(value, OutOfRange):
        raise BadRequest(f"column {name}: the default is outside the range of {type_}")
    return value

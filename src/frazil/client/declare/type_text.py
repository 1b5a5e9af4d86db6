"""Read and write types as Spark SQL and Iceberg spell them.

The caller decides whether TIMESTAMP has a time zone: it has one in Spark, and none in Iceberg.
"""

from __future__ import annotations

from typing import Final

from frazil.client.declare.text_cursor import Kind, TextCursor, quoted, string_literal
from frazil.values import types
from frazil.values.field_ids import NO_ID
from frazil.wire.errors import BadRequest
from frazil.wire.near_names import name_hint

_DECIMAL: Final = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_DEFAULT_PRECISION: Final = (10, 0)
_TEXT: Final = frozenset({"CHAR", "CHARACTER", "VARCHAR"})
_NAMES: Final[dict[str, types.Type]] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.INT,
    "BYTE": types.INT,
    "SMALLINT": types.INT,
    "SHORT": types.INT,
    "INT": types.INT,
    "INTEGER": types.INT,
    "BIGINT": types.LONG,
    "LONG": types.LONG,
    "FLOAT": types.FLOAT,
    "REAL": types.FLOAT,
    "DOUBLE": types.DOUBLE,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP_LTZ": types.TIMESTAMPTZ,
    "TIMESTAMPTZ": types.TIMESTAMPTZ,
    "TIMESTAMP_NTZ": types.TIMESTAMP,
    "TIMESTAMP_NS": types.TIMESTAMP_NS,
    "TIMESTAMPTZ_NS": types.TIMESTAMPTZ_NS,
    "STRING": types.STRING,
    "UUID": types.UUID,
    "BINARY": types.BINARY,
    "UNKNOWN": types.UNKNOWN,
    "VOID": types.UNKNOWN,
    "VARIANT": types.VARIANT,
}
_NAMES_WITH_PARTS: Final = (
    *("TIMESTAMP", "DECIMAL", "FIXED", "GEOMETRY", "GEOGRAPHY"),
    *("ARRAY", "MAP", "STRUCT"),
)


def parse_type(text: str, *, timestamp: types.Type = types.TIMESTAMPTZ) -> types.Type:
    """Parse a type. Its fields have no IDs yet. `timestamp` is the type that TIMESTAMP means."""
    cursor = TextCursor(text)
    parser = _TypeParser(cursor, timestamp)
    try:
        parsed = parser.type()
    except types.InvalidType as error:
        raise BadRequest(f"{text}: {error}") from None
    cursor.end()
    return parsed


class _TypeParser:
    """Parses a type and the types inside it."""

    def __init__(self, cursor: TextCursor, timestamp: types.Type) -> None:
        self._cursor = cursor
        self._timestamp = timestamp
        self._closed = 0
        """How many outer brackets the last `>>` token closed."""

    def type(self) -> types.Type:
        cursor = self._cursor
        token = cursor.peek()
        if token is None or token.kind is not Kind.WORD:
            cursor.fail("a type")
        cursor.take()
        word = token.word
        if word in ("ARRAY", "LIST"):
            return self._array()
        if word == "MAP":
            return self._map()
        if word == "STRUCT":
            return self._struct()
        if word in _DECIMAL:
            return self._decimal()
        if word in _TEXT or (word == "TIME" and cursor.at("(")):
            cursor.enclosed("a number")
            return types.TIME if word == "TIME" else types.STRING
        if word == "STRING" and cursor.accept("COLLATE"):
            cursor.fail("the end of the type: Iceberg has no collations")
        if word == "FIXED":
            closing = "]" if cursor.accept("[") else ")"
            if closing == ")":
                cursor.expect("(")
            length = cursor.whole_number("a length")
            cursor.expect(closing)
            return types.FixedType(length)
        if word == "TIMESTAMP":
            return self._timestamp
        if word in ("GEOMETRY", "GEOGRAPHY"):
            parameters = f"({cursor.enclosed('a CRS')})" if cursor.at("(") else ""
            return types.type_from_name(f"{word}{parameters}")
        known = _NAMES.get(word)
        if known is None:
            names = [name.lower() for name in (*_NAMES, *_NAMES_WITH_PARTS)]
            hint = name_hint(token.text, names, "types")
            raise BadRequest(f"{token.text} is not a type; {hint}")
        return known

    def _decimal(self) -> types.Type:
        cursor = self._cursor
        precision, scale = _DEFAULT_PRECISION
        if cursor.accept("("):
            precision, scale = cursor.whole_number("a precision"), 0
            if cursor.accept(","):
                scale = cursor.whole_number("a scale")
            cursor.expect(")")
        return types.DecimalType(precision, scale)

    def _array(self) -> types.Type:
        self._cursor.expect("<")
        element = self.type()
        self._close()
        return types.ListType(types.NestedField(NO_ID, "element", element, required=False))

    def _map(self) -> types.Type:
        self._cursor.expect("<")
        key = self.type()
        self._cursor.expect(",")
        value = self.type()
        self._close()
        return types.MapType(
            types.NestedField(NO_ID, "key", key, required=True),
            types.NestedField(NO_ID, "value", value, required=False),
        )

    def _struct(self) -> types.Type:
        cursor = self._cursor
        if cursor.accept("<>"):
            return types.StructType()
        cursor.expect("<")
        fields = cursor.comma_list(self._field)
        self._close()
        return types.StructType(fields)

    def _field(self) -> types.NestedField:
        cursor = self._cursor
        name = cursor.identifier("a field's name")
        cursor.accept(":")
        type_ = self.type()
        required = cursor.accept("NOT", "NULL")
        doc = cursor.string("a comment in quotes") if cursor.accept("COMMENT") else None
        return types.NestedField(NO_ID, name, type_, required, doc)

    def _close(self) -> None:
        """Read `>`, which may be part of the token `>>`."""
        if self._closed:
            self._closed -= 1
            return
        token = self._cursor.peek()
        if token is None or not token.word or set(token.word) != {">"}:
            self._cursor.fail(">")
        self._cursor.take()
        self._closed = len(token.word) - 1


_SQL_NAMES: Final = {
    types.TypeId.LONG: "BIGINT",
    types.TypeId.TIMESTAMPTZ: "TIMESTAMP",
    types.TypeId.TIMESTAMP: "TIMESTAMP_NTZ",
    types.TypeId.UNKNOWN: "VOID",
}


def type_text(type_: types.Type) -> str:
    """Return the text of a type; the inverse of `parse_type`."""
    if isinstance(type_, types.StructType):
        return f"STRUCT<{', '.join(map(_field_text, type_.fields))}>"
    if isinstance(type_, types.ListType):
        return f"ARRAY<{type_text(type_.element.type)}>"
    if isinstance(type_, types.MapType):
        return f"MAP<{type_text(type_.key.type)}, {type_text(type_.value.type)}>"
    if isinstance(type_, types.DecimalType):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if isinstance(type_, types.FixedType):
        return f"FIXED({type_.length})"
    return _SQL_NAMES.get(type_.type_id, type_.type_id.value.upper())


def _field_text(field: types.NestedField) -> str:
    required = " NOT NULL" if field.required else ""
    comment = "" if field.doc is None else f" COMMENT {string_literal(field.doc)}"
    return f"{quoted(field.name)}: {type_text(field.type)}{required}{comment}"

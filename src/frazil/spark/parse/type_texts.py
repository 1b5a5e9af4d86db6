"""Types as SQL writes them: what `type_parsing` reads."""

from __future__ import annotations

from typing import Final

from frazil.spark.parse.sql_literals import string_literal
from frazil.spark.parse.table_references import quoted
from frazil.values.types import DecimalType, FixedType, ListType, MapType, StructType, Type, TypeId

_NAMES: Final = {
    TypeId.LONG: "BIGINT",
    TypeId.TIMESTAMPTZ: "TIMESTAMP",
    TypeId.TIMESTAMP: "TIMESTAMP_NTZ",
    TypeId.UNKNOWN: "VOID",
}


def type_text(type_: Type) -> str:
    if isinstance(type_, StructType):
        return f"STRUCT<{', '.join(_field(type_, place) for place in range(len(type_.fields)))}>"
    if isinstance(type_, ListType):
        return f"ARRAY<{type_text(type_.element.type)}>"
    if isinstance(type_, MapType):
        return f"MAP<{type_text(type_.key.type)}, {type_text(type_.value.type)}>"
    if isinstance(type_, DecimalType):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if isinstance(type_, FixedType):
        return f"FIXED({type_.length})"
    return _NAMES.get(type_.type_id, type_.type_id.value.upper())


def _field(struct: StructType, place: int) -> str:
    field = struct.fields[place]
    required = " NOT NULL" if field.required else ""
    comment = "" if field.doc is None else f" COMMENT {string_literal(field.doc)}"
    return f"{quoted(field.name)}: {type_text(field.type)}{required}{comment}"

"""The fields of a table's schema by id, with the names that properties and messages use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from frazil.values.types import NestedField, StructType, Type, child_fields


@dataclass(frozen=True, slots=True)
class SchemaField:
    name: str
    """From the root, such as `points.element.x`: Java's `Schema.findColumnName`."""
    field: NestedField


def fields_by_id(schema: StructType) -> Mapping[int, SchemaField]:
    """All fields at every level, a parent before its children."""
    return {found.field.field_id: found for found in _walk(schema, "")}


def _walk(type_: Type, prefix: str) -> Iterator[SchemaField]:
    for field in child_fields(type_):
        name = f"{prefix}{field.name}"
        yield SchemaField(name, field)
        yield from _walk(field.type, f"{name}.")

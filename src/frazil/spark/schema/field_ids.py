"""Ids for the fields of new columns, in the order of Java's `AssignFreshIds`: all fields of a level
before what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from frazil.values.types import ListType, MapType, NestedField, StructType, Type


def with_ids(type_: Type, ids: Iterator[int]) -> Type:
    if isinstance(type_, StructType):
        return struct_with_ids(type_, ids)
    if isinstance(type_, ListType):
        return ListType(_field(type_.element, next(ids), ids))
    if isinstance(type_, MapType):
        key_id, value_id = next(ids), next(ids)
        return MapType(_field(type_.key, key_id, ids), _field(type_.value, value_id, ids))
    return type_


def struct_with_ids(struct: StructType, ids: Iterator[int] | None = None) -> StructType:
    """Without `ids` those of a new table, from 1."""
    given = count(1) if ids is None else ids
    field_ids = [next(given) for _ in struct.fields]
    fields = zip(struct.fields, field_ids, strict=True)
    return StructType(tuple(_field(field, field_id, given) for field, field_id in fields))


def field_with_ids(field: NestedField, ids: Iterator[int]) -> NestedField:
    return _field(field, next(ids), ids)


def _field(field: NestedField, field_id: int, ids: Iterator[int]) -> NestedField:
    return replace(field, field_id=field_id, type=with_ids(field.type, ids))

"""Assigns the IDs of fields inside a type, in the order of Java's `AssignFreshIds`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Final

from frazil.values import types

NO_ID: Final = 0
"""A placeholder for the ID of a field that gets its ID later."""


def with_ids(type_: types.Type, id_of: Callable[[str], int], path: str = "") -> types.Type:
    """Assign field IDs inside a type.

    `id_of` returns the ID for a full name such as `points.element.x`. It is called in the order of
    Java's `AssignFreshIds`: for all fields of a level before the fields inside them.
    """
    prefix = f"{path}." if path else ""
    children = [(field, f"{prefix}{field.name}") for field in types.child_fields(type_)]
    ids = [id_of(name) for _, name in children]
    fields = [
        replace(field, field_id=field_id, type=with_ids(field.type, id_of, name))
        for field_id, (field, name) in zip(ids, children, strict=True)
    ]
    if isinstance(type_, types.StructType):
        return types.StructType(tuple(fields))
    if isinstance(type_, types.ListType):
        return types.ListType(*fields)
    return types.MapType(*fields) if isinstance(type_, types.MapType) else type_


def fresh_ids(ids: Iterator[int]) -> Callable[[str], int]:
    """Return a function for `with_ids` that takes the next ID for every field."""
    return lambda _: next(ids)


def struct_with_ids(
    struct: types.StructType, id_of: Callable[[str], int] | None = None
) -> types.StructType:
    """Assign IDs to the fields of a struct, from 1 if `id_of` is None."""
    assigned = with_ids(struct, id_of or fresh_ids(count(1)))
    assert isinstance(assigned, types.StructType)
    return assigned

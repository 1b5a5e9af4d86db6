"""Sort orders: parsed, bound to a schema and compared as Java's `SortOrder` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from frazil.format.metadata import json_object
from frazil.format.metadata.partition_spec import (
    check_source,
    remap_sources,
    source_ids_of,
    source_problem,
    transform_of,
)
from frazil.format.metadata.schema import Schema
from frazil.values.transforms import Transform
from frazil.wire.errors import BadRequest

UNSORTED_ORDER_ID: Final = 0
INITIAL_SORT_ORDER_ID: Final = 1


class SortDirection(StrEnum):
    ASC = "asc"
    DESC = "desc"


class NullOrder(StrEnum):
    NULLS_FIRST = "nulls-first"
    NULLS_LAST = "nulls-last"


@dataclass(frozen=True, slots=True)
class SortField:
    source_ids: tuple[int, ...]
    """One id for `source-id`, several for the `source-ids` of a multi-argument transform."""
    transform: Transform
    direction: SortDirection
    null_order: NullOrder

    def __str__(self) -> str:
        sources = ", ".join(map(str, self.source_ids))
        return f"{self.transform}({sources}) {self.direction.value} {self.null_order.value}"


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A sort order of a table. Orders are equal if their JSON is."""

    raw: bytes
    """The compact JSON to write again, always with `order-id`."""
    order_id: int
    fields: tuple[SortField, ...] = field(compare=False)

    @property
    def is_unsorted(self) -> bool:
        return not self.fields


UNSORTED: Final = SortOrder(b'{"order-id":0,"fields":[]}', UNSORTED_ORDER_ID, ())


def parse_sort_order(raw: bytes | msgspec.Raw, what: str = "sort-order") -> SortOrder:
    """Parse a sort order. A missing `order-id` is 0 without fields and 1 with fields."""
    value = json_object.decode_object(raw, what)
    items = json_object.get_list(value, "fields", what)
    fields = tuple(
        _parse_field(item, f"{what}.fields[{position}]") for position, item in enumerate(items)
    )
    default = INITIAL_SORT_ORDER_ID if fields else UNSORTED_ORDER_ID
    order_id = json_object.get_int(value, "order-id", what, default)
    if fields and order_id == UNSORTED_ORDER_ID:
        raise BadRequest("Sort order ID 0 is reserved for unsorted order")
    if not fields and order_id != UNSORTED_ORDER_ID:
        raise BadRequest("Unsorted order ID must be 0")
    raw = json_object.encode({"order-id": order_id} | value | {"order-id": order_id})
    return SortOrder(raw, order_id, fields)


def _parse_field(item: object, path: str) -> SortField:
    if not isinstance(item, dict):
        raise BadRequest(
            f"{path} must be an object with transform, source-id, direction and null-order"
        )
    part = SortField(
        source_ids_of(item, path),
        transform_of(item, path),
        _one_of(SortDirection, item, "direction", path),
        _one_of(NullOrder, item, "null-order", path),
    )
    # Write the canonical case, because only Java reads any case.
    item["transform"] = str(part.transform)
    item["direction"] = part.direction.value
    item["null-order"] = part.null_order.value
    return part


_E = TypeVar("_E", bound=StrEnum)


def _one_of(kind: type[_E], item: Mapping[str, Any], key: str, path: str) -> _E:
    text = json_object.get_str(item, key, path)
    try:
        return kind(text.lower())
    except ValueError:
        raise BadRequest(f"{path}: '{key}' {text!r} is not one of {', '.join(kind)}") from None


def same_order(left: SortOrder, right: SortOrder) -> bool:
    """Check whether two orders sort alike, whatever their ids, as Java's `sameOrder` does."""
    return left.fields == right.fields


def with_order_id(order: SortOrder, order_id: int) -> SortOrder:
    if order.order_id == order_id:
        return order
    return SortOrder(
        json_object.with_field(order.raw, "order-id", order_id), order_id, order.fields
    )


def check_sort_order(order: SortOrder, schema: Schema) -> None:
    """Refuse a new order that cannot be used with a schema, as Java's `checkCompatibility` does."""
    for part in order.fields:
        for source_id in part.source_ids:
            check_source("sort", part, source_id, part.transform, schema)


def order_problem(order: SortOrder, schema: Schema) -> str | None:
    """Return why a sort order that a table already has does not fit its schema, or None.

    Mirrors Java's `SortOrder.checkCompatibility`.
    """
    for part in order.fields:
        problem = source_problem(part.source_ids, part.transform, schema)
        if problem is not None:
            return f"sort field {part}: {problem}"
    return None


def freshen_sort_order(order: SortOrder, new_ids: Mapping[int, int]) -> SortOrder:
    """Return the order of a new table: id 1, or 0 if unsorted, with source ids of the new
    schema."""
    value = json_object.decode_object(order.raw, "sort-order")
    for part, item in zip(order.fields, value["fields"], strict=True):
        remap_sources(item, part.source_ids, new_ids, f"sort field: {part}")
    value["order-id"] = UNSORTED_ORDER_ID if order.is_unsorted else INITIAL_SORT_ORDER_ID
    return parse_sort_order(json_object.encode(value))

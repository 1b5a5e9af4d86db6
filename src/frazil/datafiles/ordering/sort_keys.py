"""Computes sort keys: columns of Arrow whose plain order is the order that Iceberg defines.

Numbers and texts are compared as Arrow compares them; texts by their UTF-8 bytes. Floats become
integers in the order of Java's `Double.compare`: -0.0 is below 0.0, and NaN is above everything. If
a column may have nulls, a column before it says where they belong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.array_conversion import convert_leaf, is_uuid
from frazil.datafiles.ordering.z_order_keys import Keys, interleaved, z_values
from frazil.datafiles.writing.row_partitions import PARTITION_PREFIX, source_path, transformed
from frazil.values.transforms import InvalidTransform, Transform, parse_transform
from frazil.values.types import NestedField, StructType, Type, fields_by_id
from frazil.wire.errors import BadRequest

_MAGNITUDE: Final = np.int64((1 << 63) - 1)


class RowOrder(Protocol):
    """An order of rows."""

    @property
    def descending(self) -> tuple[bool, ...]:
        """For each key whether its large values are first."""

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the keys of the rows, the most significant first."""


@dataclass(frozen=True, slots=True)
class ByAll:
    """Orders rows by several orders, the most significant first."""

    orders: tuple[RowOrder, ...]

    @property
    def descending(self) -> tuple[bool, ...]:
        return tuple(each for order in self.orders for each in order.descending)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [key for order in self.orders for key in order.keys(batch)]


@dataclass(frozen=True, slots=True)
class ByPartition:
    """Brings the rows of a partition together, by the columns that a `Partitioner` adds."""

    count: int

    @property
    def descending(self) -> tuple[bool, ...]:
        return (False, False) * self.count

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        keys = []
        for position in range(self.count):
            column = batch.column(f"{PARTITION_PREFIX}{position}")
            keys += [_null_key(column, nulls_first=True), comparable(column)]
        return keys


@dataclass(frozen=True, slots=True)
class BySortField:
    """Orders rows by one field of a sort order."""

    transform: Transform
    type: Type
    path: tuple[str, ...]
    is_descending: bool
    nulls_first: bool

    @property
    def descending(self) -> tuple[bool, ...]:
        return (False, self.is_descending)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        column = _column(batch, self.path)
        if is_uuid(column.type):
            column = convert_leaf(column, pa.string(), self.path[-1])
        values = transformed(self.transform, self.type, column)
        return [_null_key(values, self.nulls_first), comparable(values)]


@dataclass(frozen=True, slots=True)
class ByZOrder:
    """Orders rows by several columns at once."""

    columns: tuple[tuple[Type, tuple[str, ...]], ...]
    """The type and the path of each column."""
    limits: tuple[Keys, ...]
    """The boundaries of each column's ranks."""

    @property
    def descending(self) -> tuple[bool, ...]:
        return (False,)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [interleaved(self.limits, *z_columns(batch, self.columns))]


def z_columns(
    batch: pa.RecordBatch, columns: Iterable[tuple[Type, tuple[str, ...]]]
) -> list[pa.Array]:
    """Return the columns of a Z-order in the types that its keys are computed from."""
    return [z_values(type_, _column(batch, path)) for type_, path in columns]


def sort_fields(order: Mapping[str, Any], schema: StructType) -> tuple[RowOrder, ...]:
    """Return the fields of a sort order, given as in the table's metadata."""
    return tuple(_sort_field(item, order["order-id"], schema) for item in order["fields"])


def _sort_field(item: Mapping[str, Any], order_id: int, schema: StructType) -> BySortField:
    source = sort_source(item, order_id, schema)
    try:
        transform = parse_transform(item["transform"])
    except InvalidTransform as error:
        raise BadRequest(f"sort order {order_id}: {error}") from None
    return BySortField(
        transform,
        source.type,
        source_path(schema, source.field_id),
        item["direction"].lower() == "desc",
        item["null-order"].lower() == "nulls-first",
    )


def sort_source(item: Mapping[str, Any], order_id: int, schema: StructType) -> NestedField:
    """Return the column of a sort field."""
    source_id = item.get("source-id", next(iter(item.get("source-ids", ())), -1))
    source = fields_by_id(schema).get(source_id)
    if source is None:
        raise BadRequest(
            f"sort order {order_id} sorts by the field id {source_id}, which the "
            "schema does not have: replace the sort order"
        )
    return source.field


def _column(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def _null_key(values: pa.Array, nulls_first: bool) -> pa.Array:
    """Return 0 for rows that are first: the nulls or the others."""
    flags = values.is_valid() if nulls_first else values.is_null()
    return flags.cast(pa.int8())


def comparable(values: pa.Array) -> pa.Array:
    """Return values that Arrow and Python compare as Iceberg compares the given ones.

    Nulls stay null.
    """
    type_ = values.type
    if pa.types.is_floating(type_):
        return _ordered_floats(values)
    if pa.types.is_boolean(type_):
        return values.cast(pa.int8())
    if pa.types.is_date32(type_):
        return values.view(pa.int32())
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return values.view(pa.int64())
    if pa.types.is_string(type_) or pa.types.is_fixed_size_binary(type_):
        return values.cast(pa.binary())
    return values


def _ordered_floats(values: pa.Array) -> pa.Array:
    numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits: npt.NDArray[np.int64] = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    # Of negative numbers, the larger the magnitude, the smaller the number.
    ordered = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    return pa.array(ordered, mask=values.is_null().to_numpy(zero_copy_only=False))

"""Arrow's structs, lists and maps taken apart and put together around other children.

The outer buffers are used again; only what is inside is replaced. Runs on executors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.leaf_conversion import misfit
from frazil.wire.errors import BadRequest

Convert = Callable[[pa.Array], pa.Array]


def is_list(type_: pa.DataType) -> bool:
    types = pa.types
    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    views = (types.is_list_view, types.is_large_list_view)
    return any(is_one(type_) for is_one in (*kinds, *views))


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch of so many rows, also where it has no column."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))


def struct_of(
    array: pa.Array, children: Sequence[pa.Array], target: pa.DataType, path: str
) -> pa.Array:
    """A struct of other children, null where `array` is."""
    fields = [target.field(position) for position in range(target.num_fields)]
    filled = [
        child if field.nullable or not child.null_count else _filled(child, array, path, field)
        for child, field in zip(children, fields, strict=True)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(filled, fields=fields, mask=mask)


def _filled(child: pa.Array, parent: pa.Array, path: str, field: pa.Field) -> pa.Array:
    """Parquet's writer takes no null in a required field, not even below a null struct, where it
    stores nothing."""
    if pc.any(pc.and_(child.is_null(), parent.is_valid())).as_py():
        raise BadRequest(f"column {path}.{field.name} is required, but has nulls: give it values")
    return without_nulls(child)


def without_nulls(array: pa.Array) -> pa.Array:
    """With whatever values lie below the nulls."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, without_nulls(array.storage))
    if pa.types.is_struct(type_):
        fields = [type_.field(position) for position in range(type_.num_fields)]
        children = [array.field(position) for position in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields)
    if pa.types.is_map(type_):
        offsets, first, last = _offsets(array)
        keys, items = (part.slice(first, last - first) for part in (array.keys, array.items))
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_)
    if pa.types.is_list(type_):
        offsets, first, last = _offsets(array)
        return pa.ListArray.from_arrays(
            offsets, array.values.slice(first, last - first), type=type_
        )
    data = array.buffers()[1:]
    return pa.Array.from_buffers(type_, len(array), [None, *data], 0, array.offset)


def list_of(array: pa.Array, convert: Convert, target: pa.DataType, path: str) -> pa.Array:
    if not is_list(array.type):
        raise misfit(array.type, target, path)
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, first, last = _offsets(array)
    values = convert(array.values.slice(first, last - first))
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=mask)


def map_of(
    array: pa.Array, key: Convert, value: Convert, target: pa.DataType, path: str
) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise misfit(array.type, target, path)
    offsets, first, last = _offsets(array)
    keys = key(array.keys.slice(first, last - first))
    values = value(array.items.slice(first, last - first))
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=mask)


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Where the lists begin, counted from the first, and the part of the values that they use: a
    batch may be a small slice of a large row group."""
    offsets = array.offsets
    if not len(offsets):
        return pa.array([0], pa.int32()), 0, 0
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(first, offsets.type))
    return offsets, first, last

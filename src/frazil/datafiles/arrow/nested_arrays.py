"""Rebuilds Arrow structs, lists and maps around other children.

The outer buffers are reused; only the children are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.leaf_conversion import misfit
from frazil.values.parquet_columns import is_list
from frazil.wire.errors import BadRequest

Convert = Callable[[pa.Array], pa.Array]


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Make a batch with that many rows, even if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))


def struct_of(
    array: pa.Array, children: Sequence[pa.Array], target: pa.DataType, path: str
) -> pa.Array:
    """Make a struct of other children, with the nulls of `array`."""
    fields = list(target)
    filled = [
        child if field.nullable or not child.null_count else _filled(child, array, path, field)
        for child, field in zip(children, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(filled, fields=fields, mask=_null_mask(array))


def _filled(child: pa.Array, parent: pa.Array, path: str, field: pa.Field) -> pa.Array:
    """Remove the nulls of a required field that lie below null structs.

    Parquet's writer refuses a null in a required field even there, although it stores nothing.
    """
    if pc.any(pc.and_(child.is_null(), parent.is_valid())).as_py():
        raise BadRequest(f"column {path}.{field.name} is required, but has nulls: give it values")
    return without_nulls(child)


def without_nulls(array: pa.Array) -> pa.Array:
    """Replace each null by whatever value is stored below it."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, without_nulls(array.storage))
    if pa.types.is_struct(type_):
        children = [array.field(position) for position in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(type_))
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
    """Make a list of converted elements."""
    if not is_list(array.type):
        raise misfit(array.type, target, path)
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, first, last = _offsets(array)
    values = convert(array.values.slice(first, last - first))
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=_null_mask(array))


def map_of(
    array: pa.Array, key: Convert, value: Convert, target: pa.DataType, path: str
) -> pa.Array:
    """Make a map of converted keys and values."""
    if not pa.types.is_map(array.type):
        raise misfit(array.type, target, path)
    offsets, first, last = _offsets(array)
    keys = key(array.keys.slice(first, last - first))
    values = value(array.items.slice(first, last - first))
    return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=_null_mask(array))


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets counted from the first one, and the range of values that they use.

    A batch may be a small slice of a large row group, whose other values need no conversion.
    """
    offsets = array.offsets
    if not len(offsets):
        return pa.array([0], pa.int32()), 0, 0
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first or offsets.offset:
        offsets = pc.subtract(offsets, pa.scalar(first, offsets.type))
    return offsets, first, last

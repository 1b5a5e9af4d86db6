"""In which order rows lie in files: a table's sort order, or a Z-order on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as fn

from frazil.client.parquet_schema import fields_by_id
from frazil.spark.partitioning import arrow_function, source_column, transform_column
from frazil.values.transforms import parse_transform
from frazil.values.types import NestedField, StructType, TypeId
from frazil.wire.errors import BadRequest

Z_COLUMN: Final = "_z_order"
_KEY_BYTES: Final = 8
_SIGN: Final = np.uint64(1 << 63)
_Z_TYPES: Final = frozenset(
    {
        TypeId.BOOLEAN,
        TypeId.INT,
        TypeId.LONG,
        TypeId.FLOAT,
        TypeId.DOUBLE,
        TypeId.DECIMAL,
        TypeId.DATE,
        TypeId.TIMESTAMP,
        TypeId.TIMESTAMPTZ,
        TypeId.TIMESTAMP_NS,
        TypeId.TIMESTAMPTZ_NS,
        TypeId.STRING,
        TypeId.UUID,
        TypeId.FIXED,
        TypeId.BINARY,
    }
)

Keys = npt.NDArray[np.uint64]


# --- sort orders --------------------------------------------------------------------------------


def sort_columns(order: Mapping[str, Any], schema: StructType) -> list[Column]:
    """What Spark sorts by for a sort order, which is the JSON of the table's metadata."""
    by_id = fields_by_id(schema)
    columns = []
    for item in order["fields"]:
        source_id = item.get("source-id", next(iter(item.get("source-ids", ())), -1))
        found = by_id.get(source_id)
        if found is None:
            raise BadRequest(
                f"sort order {order['order-id']} sorts by the field id {source_id}, which the "
                "schema does not have: replace the sort order"
            )
        transform = parse_transform(item["transform"])
        column = transform_column(transform, found.field.type, source_column(schema, source_id))
        columns.append(_directed(column, item))
    return columns


def _directed(column: Column, item: Mapping[str, Any]) -> Column:
    """Iceberg's values have Spark's order: NaN is the greatest, text is ordered by its bytes."""
    nulls_first = item["null-order"].lower() == "nulls-first"
    if item["direction"].lower() == "asc":
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()


# --- Z-order ------------------------------------------------------------------------------------


def z_order_column(names: Sequence[str], schema: StructType) -> Column:
    """The interleaved bits of some columns: rows that are near in all of them get near keys."""
    fields = [_z_field(name, schema) for name in names]
    if len({field.field_id for field in fields}) < len(fields):
        raise BadRequest(f"Z-order by {', '.join(names)}: a column stands twice")
    columns = [_z_source(field, schema) for field in fields]
    return arrow_function(interleaved, "binary")(*columns).alias(Z_COLUMN)


def _z_field(name: str, schema: StructType) -> NestedField:
    by_name = {found.name: found.field for found in fields_by_id(schema).values()}
    field = by_name.get(name)
    if field is None:
        matching = [known for known in by_name if known.lower() == name.lower()]
        field = by_name[matching[0]] if len(matching) == 1 else None
    if field is None:
        raise BadRequest(f"Z-order by {name}: the table has no such column")
    if field.type.type_id not in _Z_TYPES:
        raise BadRequest(f"Z-order by {name}: values of the type {field.type} have no place in it")
    return field


def _z_source(field: NestedField, schema: StructType) -> Column:
    """Long texts and bytes stay in the JVM but for the part that counts."""
    column = source_column(schema, field.field_id)
    if field.type.type_id is TypeId.STRING:
        return fn.substring(column.cast("binary"), 1, _KEY_BYTES)
    if field.type.type_id is TypeId.UUID:
        digits = fn.replace(column, fn.lit("-"), fn.lit(""))
        return fn.unhex(fn.substring(digits, 1, 2 * _KEY_BYTES))
    if field.type.type_id in (TypeId.BINARY, TypeId.FIXED):
        return fn.substring(column, 1, _KEY_BYTES)
    return column.cast("double") if field.type.type_id is TypeId.DECIMAL else column


def interleaved(*arrays: pa.Array) -> pa.Array:
    """The bits of the keys in turn, the highest first; a null is below all values."""
    bits = np.stack([_bits(sortable_keys(array)) for array in arrays], axis=-1)
    rows, width = len(arrays[0]), _KEY_BYTES * len(arrays)
    packed = np.packbits(bits.reshape(rows, width * 8), axis=1)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), rows, [None, pa.py_buffer(packed.tobytes())]
    )
    return fixed.cast(pa.binary())


def _bits(keys: Keys) -> npt.NDArray[np.uint8]:
    octets = keys.astype(">u8").view(np.uint8).reshape(len(keys), _KEY_BYTES)
    return np.unpackbits(octets, axis=1)


def sortable_keys(array: pa.Array) -> Keys:
    """Numbers without a sign, in the order of the values."""
    type_ = array.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        keys = _prefixes(array)
    elif pa.types.is_floating(type_):
        keys = _of_floats(_numbers(array, pa.float64(), 0.0))
    else:
        keys = _numbers(_as_integers(array), pa.int64(), 0).view(np.uint64) ^ _SIGN
    if array.null_count:
        keys = np.where(array.is_null().to_numpy(zero_copy_only=False), np.uint64(0), keys)
    return keys


def _as_integers(array: pa.Array) -> pa.Array:
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    return array.view(pa.int64()) if pa.types.is_timestamp(array.type) else array


def _numbers(array: pa.Array, type_: pa.DataType, missing: float) -> npt.NDArray[Any]:
    filled = pc.fill_null(array.cast(type_), missing)
    numbers: npt.NDArray[Any] = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))
    return numbers


def _of_floats(numbers: npt.NDArray[np.float64]) -> Keys:
    """All bits of a negative number turned, of another the sign: the order of the numbers."""
    bits = np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)
    keys: Keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return keys


def _prefixes(array: pa.Array) -> Keys:
    padded = [(value or b"")[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0") for value in array.to_pylist()]
    return np.frombuffer(b"".join(padded), dtype=">u8").astype(np.uint64)

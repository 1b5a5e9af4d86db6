"""Z-order: rows that are near in several columns at once lie near in files.

The bits of the columns' ranks are taken in turn. Ranks and not values, because a column whose
values differ in their low bits alone would have no say beside one that differs in its high bits.
Ranks are found by a sample of the rows: where a boundary lies exactly does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.spark.schema.partition_transforms import arrow_function, source_column
from frazil.values.types import NestedField, StructType, TypeId, fields_by_id
from frazil.wire.errors import BadRequest

Z_COLUMN: Final = "_z_order"

Keys: TypeAlias = npt.NDArray[np.uint64]
Ranks: TypeAlias = npt.NDArray[np.uint16]

_KEY_BYTES: Final = 8
_RANK_BITS: Final = 16
_SIGN: Final = np.uint64(1 << 63)
_SAMPLED_ROWS: Final = 4_000
"""Of a task, at the least and if it has so many."""
_MAX_RANKS: Final = 1 << 10
_SAMPLE: Final = pa.schema([("weight", pa.int64()), ("keys", pa.binary())])
_TYPES: Final = frozenset(
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


def z_order_column(frame: DataFrame, names: Sequence[str], schema: StructType) -> Column:
    """The key to sort by, named `_z_order`; a job of Spark looks at a sample of the frame."""
    columns = z_sources(names, schema)
    boundaries = _boundaries(frame.select(*columns), len(columns))
    return arrow_function(partial(interleaved, boundaries), "binary")(*columns).alias(Z_COLUMN)


def z_sources(names: Sequence[str], schema: StructType) -> list[Column]:
    """What counts of the columns; long texts and bytes stay in the JVM but for their beginning."""
    fields = [_field(name, schema) for name in names]
    if len({field.field_id for field in fields}) < len(fields):
        raise BadRequest(f"Z-order by {', '.join(names)}: a column stands twice")
    return [_source(field, schema).alias(f"z{at}") for at, field in enumerate(fields)]


def _field(name: str, schema: StructType) -> NestedField:
    by_name = {found.name: found.field for found in fields_by_id(schema).values()}
    field = by_name.get(name)
    if field is None:
        matching = [known for known in by_name if known.lower() == name.lower()]
        field = by_name[matching[0]] if len(matching) == 1 else None
    if field is None:
        raise BadRequest(f"Z-order by {name}: the table has no such column")
    if field.type.type_id not in _TYPES:
        raise BadRequest(f"Z-order by {name}: values of the type {field.type} have no place in it")
    return field


def _source(field: NestedField, schema: StructType) -> Column:
    column = source_column(schema, field.field_id)
    if field.type.type_id is TypeId.STRING:
        return fn.substring(column.cast("binary"), 1, _KEY_BYTES)
    if field.type.type_id is TypeId.UUID:
        digits = fn.replace(column, fn.lit("-"), fn.lit(""))
        return fn.unhex(fn.substring(digits, 1, 2 * _KEY_BYTES))
    if field.type.type_id in (TypeId.BINARY, TypeId.FIXED):
        return fn.substring(column, 1, _KEY_BYTES)
    return column.cast("double") if field.type.type_id is TypeId.DECIMAL else column


# --- ranks --------------------------------------------------------------------------------------


def _boundaries(sources: DataFrame, count: int) -> tuple[Keys, ...]:
    rows = sources.mapInArrow(_sample_rows, "weight long, keys binary").collect()
    weights = np.array([row[0] for row in rows], np.int64)
    keys = np.frombuffer(b"".join(bytes(row[1]) for row in rows), np.uint64)
    keys = keys.reshape(len(rows), count)
    return tuple(boundaries(keys[:, at], weights) for at in range(count))


def boundaries(keys: Keys, weights: npt.NDArray[np.int64]) -> Keys:
    """Keys that part the sample into ranks of about one weight; never more than there are keys."""
    if len(keys) == 0:
        return np.empty(0, np.uint64)
    order = np.argsort(keys, kind="stable")
    upto = np.cumsum(weights[order])
    wanted = np.linspace(0, upto[-1], min(_MAX_RANKS, len(keys)) + 1)[1:-1]
    found: Keys = np.unique(keys[order][np.searchsorted(upto, wanted, side="right")])
    return found


def _sample_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every n-th row of a task, with n as its weight: n doubles when there are too many."""
    kept = np.empty((0, 0), np.uint64)
    step, skip = 1, 0
    for batch in batches:
        keys = np.stack([sortable_keys(column) for column in batch.columns], axis=-1)
        chosen = keys[skip::step]
        skip = (skip - batch.num_rows) % step
        kept = np.concatenate([kept, chosen]) if len(kept) else chosen
        while len(kept) > 2 * _SAMPLED_ROWS:
            # The next row to take is two steps after the last that stays.
            skip += 0 if len(kept) % 2 == 0 else step
            kept, step = kept[::2], 2 * step
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([step] * len(kept), pa.int64()),
            pa.array([row.tobytes() for row in kept], pa.binary()),
        ],
        schema=_SAMPLE,
    )


def interleaved(limits: Sequence[Keys], *arrays: pa.Array) -> pa.Array:
    """The bits of the ranks in turn, the highest first."""
    ranks = [_ranks(one, sortable_keys(array)) for one, array in zip(limits, arrays, strict=True)]
    bits = np.stack([_bits(one) for one in ranks], axis=-1)
    rows, width = len(arrays[0]), _RANK_BITS // 8 * len(arrays)
    packed = np.packbits(bits.reshape(rows, width * 8), axis=1)
    return pa.array([row.tobytes() for row in packed], pa.binary())


def _ranks(limits: Keys, keys: Keys) -> Ranks:
    """Spread over all the bits, so that columns of few ranks weigh as much as others."""
    ranks = np.searchsorted(limits, keys, side="right").astype(np.float64)
    spread: Ranks = (ranks * ((1 << _RANK_BITS) - 1) / max(1, len(limits))).astype(np.uint16)
    return spread


def _bits(ranks: Ranks) -> npt.NDArray[np.uint8]:
    octets = ranks.astype(">u2").view(np.uint8).reshape(len(ranks), _RANK_BITS // 8)
    return np.unpackbits(octets, axis=1)


# --- keys ---------------------------------------------------------------------------------------


def sortable_keys(array: pa.Array) -> Keys:
    """Numbers without a sign, in the order of the values; a null is below all."""
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

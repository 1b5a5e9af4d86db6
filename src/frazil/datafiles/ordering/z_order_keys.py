"""Computes Z-order keys: the bits of several columns' ranks, interleaved.

Ranks are used and not values, because a column whose values differ in their low bits only would not
count beside one whose values differ in the high bits. Ranks come from a sample of the rows; it does
not matter where exactly their boundaries are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.values.types import NestedField, StructType, Type, TypeId, fields_by_id
from frazil.wire.errors import BadRequest

Keys: TypeAlias = npt.NDArray[np.uint64]
Ranks: TypeAlias = npt.NDArray[np.uint16]

SAMPLE_SCHEMA: Final = "weight long, keys binary"
KEY_BYTES: Final = 8
_RANK_BITS: Final = 16
_SIGN: Final = np.uint64(1 << 63)
_ORDERED_TYPES: Final = frozenset(
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
        TypeId.BINARY,
        TypeId.UUID,
        TypeId.FIXED,
    }
)
_SAMPLED_ROWS: Final = 4_000
"""How many rows of a task are sampled at least, if it has so many."""
_MAX_RANKS: Final = 1 << 10
_SAMPLE: Final = pa.schema([("weight", pa.int64()), ("keys", pa.binary())])


# --- columns --------------------------------------------------------------------------------------


def z_fields(names: Sequence[str], schema: StructType) -> list[NestedField]:
    """Return the columns with these names; refuse what cannot be in a Z-order."""
    fields = [_z_field(name, schema) for name in names]
    if len({field.field_id for field in fields}) < len(fields):
        raise BadRequest(f"Z-order by {', '.join(names)}: a column stands twice")
    return fields


def _z_field(name: str, schema: StructType) -> NestedField:
    by_name = {named.name: named.field for named in fields_by_id(schema).values()}
    field = by_name.get(name)
    if field is None:
        matching = [known for known in by_name if known.lower() == name.lower()]
        field = by_name[matching[0]] if len(matching) == 1 else None
    if field is None:
        raise BadRequest(f"Z-order by {name}: the table has no such column")
    if field.type.type_id not in _ORDERED_TYPES:
        raise BadRequest(f"Z-order by {name}: values of the type {field.type} cannot be ordered")
    return field


def z_values(type_: Type, column: pa.Array) -> pa.Array:
    """Return a column of a file in a type that `sortable_keys` takes."""
    if type_.type_id is TypeId.UUID:
        return column.storage.cast(pa.binary())
    if type_.type_id in (TypeId.STRING, TypeId.FIXED):
        return column.cast(pa.binary())
    return column.cast(pa.float64()) if type_.type_id is TypeId.DECIMAL else column


# --- ranks ----------------------------------------------------------------------------------------


def boundaries(keys: Keys, weights: npt.NDArray[np.int64]) -> Keys:
    """Return keys that split the sample into ranks of about equal weight."""
    if len(keys) == 0:
        return np.empty(0, np.uint64)
    order = np.argsort(keys, kind="stable")
    cumulated = np.cumsum(weights[order])
    targets = np.linspace(0, cumulated[-1], min(_MAX_RANKS, len(keys)) + 1)[1:-1]
    splits: Keys = np.unique(keys[order][np.searchsorted(cumulated, targets, side="right")])
    return splits


def sample_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sample every n-th row of a task, with n as its weight; n doubles if there are too many."""
    kept = np.empty((0, 0), np.uint64)
    step, skip = 1, 0
    for batch in batches:
        keys = np.stack([sortable_keys(column) for column in batch.columns], axis=-1)
        chosen = keys[skip::step]
        skip = (skip - batch.num_rows) % step
        kept = np.concatenate([kept, chosen]) if len(kept) else chosen
        while len(kept) > 2 * _SAMPLED_ROWS:
            # The next row to take is two steps after the last one that stays.
            skip += 0 if len(kept) % 2 == 0 else step
            kept, step = kept[::2], 2 * step
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([step] * len(kept), pa.int64()),
            pa.array([row.tobytes() for row in kept], pa.binary()),
        ],
        schema=_SAMPLE,
    )


def limits_of(samples: Iterable[tuple[int, bytes]], columns: int) -> tuple[Keys, ...]:
    """Return the boundaries of each column's ranks from the rows of `sample_rows`."""
    rows = list(samples)
    weights = np.array([weight for weight, _ in rows], np.int64)
    keys = np.frombuffer(b"".join(sampled for _, sampled in rows), np.uint64)
    keys = keys.reshape(len(rows), columns)
    return tuple(boundaries(keys[:, column], weights) for column in range(columns))


def interleaved(limits: Sequence[Keys], *arrays: pa.Array) -> pa.Array:
    """Return the bits of the ranks in turn, the highest bits first."""
    ranks = [
        _ranks(splits, sortable_keys(values)) for splits, values in zip(limits, arrays, strict=True)
    ]
    bits = np.stack([_bits(column) for column in ranks], axis=-1)
    rows, width = len(arrays[0]), _RANK_BITS // 8 * len(arrays)
    packed = np.packbits(bits.reshape(rows, width * 8), axis=1)
    ends = np.arange(0, width * rows + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(packed.tobytes())]
    )


def _ranks(limits: Keys, keys: Keys) -> Ranks:
    """Return ranks spread over all bits, so that columns of few ranks count as much as others."""
    ranks = np.searchsorted(limits, keys, side="right").astype(np.float64)
    spread: Ranks = (ranks * ((1 << _RANK_BITS) - 1) / max(1, len(limits))).astype(np.uint16)
    return spread


def _bits(ranks: Ranks) -> npt.NDArray[np.uint8]:
    octets = ranks.astype(">u2").view(np.uint8).reshape(len(ranks), _RANK_BITS // 8)
    return np.unpackbits(octets, axis=1)


# --- keys -----------------------------------------------------------------------------------------


def sortable_keys(array: pa.Array) -> Keys:
    """Return unsigned numbers in the order of the values; a null is the lowest."""
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
    """Flip all bits of negative numbers, and the sign bit of others, which gives their order."""
    bits = np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)
    keys: Keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return keys


def _prefixes(array: pa.Array) -> Keys:
    """Return the first bytes as numbers; shorter values are filled up with zeros."""
    short = pc.binary_slice(pc.fill_null(array, b""), 0, KEY_BYTES).cast(pa.large_binary())
    _, offsets, data = short.buffers()
    ends = np.frombuffer(offsets, np.int64)[short.offset : short.offset + len(short) + 1]
    octets = np.frombuffer(data or b"", np.uint8)
    if not len(octets):
        return np.zeros(len(short), np.uint64)
    indexes = ends[:-1, None] + np.arange(KEY_BYTES)
    padded = np.where(indexes < ends[1:, None], octets[np.minimum(indexes, len(octets) - 1)], 0)
    numbers: Keys = padded.astype(np.uint8).view(">u8").reshape(-1).astype(np.uint64)
    return numbers

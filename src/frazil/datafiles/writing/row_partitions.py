"""Partition transforms of whole Arrow columns, where no Spark expression can be had: in tasks that
Spark hands rows to without asking how they should be laid out. Runs on executors.

Numbers, dates and timestamps are computed in numpy; of texts, bytes and decimals each distinct
value is computed once. The columns are as Spark hands them over, and so are the results: what
`frazil.spark.schema.partition_transforms` gives for the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote_plus

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.footers.footer_partitions import PartitionField, partition_fields
from frazil.datafiles.footers.python_values import internal_value
from frazil.datafiles.portable_table import PortableTable
from frazil.values import temporal
from frazil.values.single_value import (
    InvalidValue,
    decimal_from_unscaled,
    min_big_endian,
    to_json,
    unscaled,
)
from frazil.values.transforms import (
    Bucket,
    Day,
    Hour,
    Identity,
    Month,
    Transform,
    Truncate,
    Void,
    Year,
)
from frazil.values.types import DecimalType, NestedField, Type, TypeId, fields_by_id
from frazil.wire.errors import BadRequest

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_MAX_INT: Final = 2**31 - 1
_MICROS_PER_HOUR: Final = temporal.MICROS_PER_DAY // 24
_TIMESTAMPS: Final = frozenset(
    {TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ, TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS}
)
_WHOLE: Final = frozenset({TypeId.INT, TypeId.LONG, TypeId.DATE}) | _TIMESTAMPS


class Partitioner:
    """Adds the partition of each row to batches, as `ArrowFileWriter` wants it."""

    def __init__(self, facts: PortableTable, spec_id: int | None = None) -> None:
        self._fields = partition_fields(facts.spec(spec_id), fields_by_id(facts.schema))
        self._paths = [_path(facts, field) for field in self._fields]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for place, (field, path) in enumerate(zip(self._fields, self._paths, strict=True)):
            column = _partition(field, path, batch)
            batch = batch.append_column(f"{PARTITION_PREFIX}{place}", column)
        return batch


def _path(facts: PortableTable, field: PartitionField) -> tuple[str, ...]:
    """The names from the root to the source; a name may itself have dots."""
    parents: dict[int, tuple[str, ...]] = {}
    for one in facts.schema.fields:
        pending: list[tuple[NestedField, tuple[str, ...]]] = [(one, (one.name,))]
        while pending:
            found, names = pending.pop()
            parents[found.field_id] = names
            pending += [
                (child, (*names, child.name)) for child in getattr(found.type, "fields", ())
            ]
    return parents.get(field.source_id, ())


def _partition(field: PartitionField, path: Sequence[str], batch: pa.RecordBatch) -> pa.Array:
    if field.source is None or isinstance(field.transform, Void):
        return pa.nulls(batch.num_rows, pa.int32())
    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return transformed(field.transform, field.source.type, column)


def transformed(transform: Transform, type_: Type, column: pa.Array) -> pa.Array:
    """A null stays one."""
    if isinstance(transform, Identity):
        return column
    if isinstance(transform, Bucket):
        return _buckets(transform.num_buckets, type_, column)
    if isinstance(transform, Truncate):
        return _truncated(transform.width, type_, column)
    if isinstance(transform, Year | Month | Day | Hour):
        return _times(transform, type_, column)
    raise BadRequest(f"the partition transform {transform} cannot be computed here")


# --- whole numbers --------------------------------------------------------------------------------


def _numbers(type_: Type, column: pa.Array) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The values, with any number for a null, and which are nulls; timestamps in microseconds."""
    if type_.type_id in _TIMESTAMPS:
        column = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    elif type_.type_id is TypeId.DATE:
        column = column.view(pa.int32())
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values, nulls


def _times(transform: Transform, type_: Type, column: pa.Array) -> pa.Array:
    values, nulls = _numbers(type_, column)
    if isinstance(transform, Hour):
        return _int_array(values // _MICROS_PER_HOUR, nulls)
    days = values if type_.type_id is TypeId.DATE else values // temporal.MICROS_PER_DAY
    if isinstance(transform, Day):
        return _int_array(days, nulls).view(pa.date32())
    unit = "Y" if isinstance(transform, Year) else "M"
    since_1970 = days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
    return _int_array(since_1970, nulls)


def _int_array(values: Ints, nulls: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values.astype(np.int32), pa.int32(), mask=nulls)


# --- buckets --------------------------------------------------------------------------------------


def _buckets(num_buckets: int, type_: Type, column: pa.Array) -> pa.Array:
    if type_.type_id in _WHOLE:
        values, nulls = _numbers(type_, column)
        hashes = murmur3_of_longs(values)
        return _int_array((hashes & np.uint32(_MAX_INT)).astype(np.int64) % num_buckets, nulls)
    if type_.type_id is TypeId.TIME:
        values = pc.fill_null(column.cast(pa.time64("us")).view(pa.int64()), 0)
        hashes = murmur3_of_longs(values.to_numpy(zero_copy_only=False))
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        return _int_array((hashes & np.uint32(_MAX_INT)).astype(np.int64) % num_buckets, nulls)
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    found = [
        None if value is None else (mmh3.hash(_hashed(type_, value), 0) & _MAX_INT) % num_buckets
        for value in encoded.dictionary.to_pylist()
    ]
    return pa.array(found, pa.int32()).take(encoded.indices)


def _hashed(type_: Type, value: Any) -> str | bytes:
    if isinstance(type_, DecimalType):
        return min_big_endian(unscaled(value))
    if type_.type_id is TypeId.UUID:
        return bytes.fromhex(value.replace("-", ""))
    found: str | bytes = value
    return found


def murmur3_of_longs(values: Ints) -> Words:
    """The 32-bit hash of each value's eight bytes, with the seed 0 (spec, Appendix B)."""
    words = values.astype("<i8").view("<u8")
    state = np.zeros(len(values), np.uint32)
    for word in (words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)):
        mixed = _rotated(word.astype(np.uint32) * np.uint32(0xCC9E2D51), 15)
        state ^= mixed * np.uint32(0x1B873593)
        state = _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(8)
    state ^= state >> np.uint32(16)
    state *= np.uint32(0x85EBCA6B)
    state ^= state >> np.uint32(13)
    state *= np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


# --- truncation -----------------------------------------------------------------------------------


def _truncated(width: int, type_: Type, column: pa.Array) -> pa.Array:
    if type_.type_id in (TypeId.INT, TypeId.LONG):
        values, nulls = _numbers(type_, column)
        # Of the least numbers the result lies below the type, which Iceberg's values then refuse.
        return pa.array(values - values % width, pa.int64(), mask=nulls)
    if type_.type_id is TypeId.STRING:
        return pc.utf8_slice_codeunits(column, 0, width)
    if type_.type_id is TypeId.BINARY:
        return pc.binary_slice(column, 0, width)
    assert isinstance(type_, DecimalType)
    encoded = pc.dictionary_encode(column)
    found = [
        None if value is None else _truncated_decimal(width, type_, value)
        for value in encoded.dictionary.to_pylist()
    ]
    # A digit more than the type has: the result of the least numbers lies below it.
    precision = min(38, type_.precision + 1)
    return pa.array(found, pa.decimal128(precision, type_.scale)).take(encoded.indices)


def _truncated_decimal(width: int, type_: DecimalType, value: Any) -> Any:
    digits = unscaled(value)
    return decimal_from_unscaled(digits - digits % width, type_.scale)


PARTITION_PREFIX: Final = "_partition_"
"""Columns beside the table's own that hold the partition of each row."""

_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_MAX_FOLDER_CHARACTERS: Final = 80
_EPOCH_YEAR: Final = 1970


def split(
    batch: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[tuple[pa.Scalar, ...], pa.RecordBatch]]:
    """The rows of each combination of keys, which lie together or not; their order stays."""
    if batch.num_rows == 0:
        return
    codes = _codes(keys, batch.num_rows)
    starts = _starts(codes)
    if len(starts) > len(np.unique(codes)):
        order = np.argsort(codes, kind="stable").astype(np.int64)
        # `pa.array` and `to_numpy` load pandas: see `frazil.spark.writing.binary_rows`.
        rows = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
        batch, keys = batch.take(rows), [key.take(rows) for key in keys]
        starts = _starts(codes[order])
    ends = [*starts[1:], batch.num_rows]
    for start, end in zip(starts, ends, strict=True):
        yield tuple(key[start] for key in keys), batch.slice(start, end - start)


def _codes(keys: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """A number for each combination, equal where all keys are."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        encoded = pc.dictionary_encode(_comparable(key), null_encoding="encode")
        found = np.frombuffer(encoded.indices.buffers()[1], np.int32)
        own = found[encoded.indices.offset :][:rows].astype(np.int64)
        # Numbered anew each time, so that many keys do not overflow.
        _, codes = np.unique(codes * len(encoded.dictionary) + own, return_inverse=True)
    return codes


def _starts(codes: npt.NDArray[np.int64]) -> list[int]:
    changes: list[int] = (np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()
    return [0, *changes]


def _comparable(key: pa.Array) -> pa.Array:
    """Floats by their bits: the two zeros are equal, but of two partitions."""
    if pa.types.is_float64(key.type):
        return key.view(pa.int64())
    return key.view(pa.int32()) if pa.types.is_float32(key.type) else key


# --- values -------------------------------------------------------------------------------------


def partition_value(field: PartitionField, scalar: pa.Scalar) -> Any:
    """The value of a partition field as Iceberg has it, from one of Spark's."""
    if not scalar.is_valid or field.result_type is None:
        return None
    type_ = field.result_type
    try:
        return internal_value(type_, _plain(type_, scalar))
    except InvalidValue as error:
        raise BadRequest(f"partition field {field.name}: {error}") from None


def _plain(type_: Type, scalar: pa.Scalar) -> Any:
    """Numbers for dates and timestamps, since Python's own end at the year 9999."""
    if pa.types.is_date32(scalar.type):
        return scalar.value
    if pa.types.is_timestamp(scalar.type):
        micros = scalar.cast(pa.timestamp("us", scalar.type.tz)).value
        return micros * temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else micros
    return scalar.as_py()


# --- folders ------------------------------------------------------------------------------------


def partition_folder(fields: Sequence[PartitionField], values: Sequence[Any]) -> str:
    """As people know it from Iceberg, `day=2026-05-01/region=eu`; nobody reads values from it."""
    return "/".join(
        f"{_short(field.name)}={_short(_text(field, value))}"
        for field, value in zip(fields, values, strict=True)
    )


def _short(text: str) -> str:
    return quote_plus(text[:_MAX_FOLDER_CHARACTERS])[: 2 * _MAX_FOLDER_CHARACTERS]


def _text(field: PartitionField, value: Any) -> str:
    if value is None or field.result_type is None:
        return "null"
    if isinstance(field.transform, Year):
        return f"{_EPOCH_YEAR + value:04d}"
    if isinstance(field.transform, Month):
        return f"{_EPOCH_YEAR + value // 12:04d}-{value % 12 + 1:02d}"
    if isinstance(field.transform, Hour):
        return f"{temporal.date_from_days(value // 24)}-{value % 24:02d}"
    try:
        found = to_json(field.result_type, value)
    except InvalidValue as error:
        raise BadRequest(f"partition field {field.name}: {error}") from None
    return str(found).lower() if isinstance(found, bool) else str(found)

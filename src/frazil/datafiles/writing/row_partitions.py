"""Computes the partition of each row of an Arrow batch, and splits batches by partition.

Spark computes partitions by expressions of its own where it can. Here they are computed in tasks
that Spark hands rows to without a chance to arrange them first. Sources have the types of Spark's
batches or of the table's files. Results are what `frazil.spark.schema.partition_transforms` gives
for the same rows.

Numbers, dates and timestamps are computed in numpy; for text, bytes and decimals each distinct
value is computed once. `pyiceberg_core.transform` does the same (`benchmarks/arrow_transforms.py`,
200,000 rows). It takes 1.1 to 4.4 times as long for buckets of numbers, of uuids and of text and
bytes that repeat, for truncated text and bytes, and for days and months. It takes 1 to 9 ms less
for years, hours and truncated numbers, and a tenth of the time or less only for buckets of distinct
text and for decimals. It maps dates after the year 262143 to null, takes no dictionaries, and would
add a library of 40 MB to every executor (`docs/decisions/0037-own-arrow-transforms.md`).
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

from frazil.datafiles.arrow.array_conversion import convert_leaf, in_unit, is_uuid
from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.footers.python_values import NANOS, TIMESTAMPS, internal_value
from frazil.datafiles.portable_table import PortableTable
from frazil.values import temporal, transforms
from frazil.values.partition_proof import PartitionField
from frazil.values.single_value import InvalidValue, min_big_endian, to_json
from frazil.values.types import DecimalType, StructType, Type, TypeId
from frazil.wire.errors import BadRequest

PARTITION_PREFIX: Final = "_partition_"
"""Starts the names of the columns that have the partition of each row."""

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

_MAX_INT: Final = 2**31 - 1
_MICROS_PER_HOUR: Final = temporal.MICROS_PER_DAY // 24
_HASHED_AS_LONG: Final = frozenset({TypeId.INT, TypeId.LONG, TypeId.DATE, TypeId.TIME}) | TIMESTAMPS


class Partitioner:
    """Adds the partition of each row to batches, as `ArrowFileWriter` needs it."""

    def __init__(self, table: PortableTable, spec_id: int | None = None) -> None:
        self._fields = partition_fields_of(table, spec_id)
        self._paths = [source_path(table.schema, field.source_id) for field in self._fields]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for position, (field, path) in enumerate(zip(self._fields, self._paths, strict=True)):
            column = _partition(field, path, batch)
            batch = batch.append_column(f"{PARTITION_PREFIX}{position}", column)
        return batch


def source_path(schema: StructType, field_id: int) -> tuple[str, ...]:
    """Return the names from the root to a field inside structs; empty if there is none.

    A name itself may contain dots.
    """
    for field in schema.fields:
        if field.field_id == field_id:
            return (field.name,)
        inner = source_path(field.type, field_id) if isinstance(field.type, StructType) else ()
        if inner:
            return (field.name, *inner)
    return ()


def _partition(field: PartitionField, path: Sequence[str], batch: pa.RecordBatch) -> pa.Array:
    if field.source is None or isinstance(field.transform, transforms.Void):
        return pa.nulls(batch.num_rows, pa.int32())
    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    if is_uuid(column.type):
        column = convert_leaf(column, pa.string(), field.name)
    return transformed(field.transform, field.source.type, column)


def transformed(transform: transforms.Transform, type_: Type, column: pa.Array) -> pa.Array:
    """Return the transformed values; nulls stay null."""
    if isinstance(transform, transforms.Identity):
        return column
    if isinstance(transform, transforms.Bucket):
        return _buckets(transform.num_buckets, type_, column)
    if isinstance(transform, transforms.Truncate):
        return _truncated(transform.width, type_, column)
    if isinstance(transform, transforms.Year | transforms.Month | transforms.Day | transforms.Hour):
        return _times(transform, type_, column)
    raise BadRequest(f"the partition transform {transform} is not supported here")


# --- whole numbers --------------------------------------------------------------------------------


def _numbers(type_: Type, column: pa.Array) -> tuple[Ints, Mask]:
    """Return the values, with any number for a null, and which are nulls.

    Times and timestamps are in microseconds, which is also what Iceberg hashes for nanoseconds.
    """
    if type_.type_id in TIMESTAMPS:
        column = in_unit(column, "us").view(pa.int64())
    elif type_.type_id is TypeId.TIME:
        column = column.cast(pa.time64("us")).view(pa.int64())
    elif type_.type_id is TypeId.DATE:
        column = column.view(pa.int32())
    nulls: Mask = column.is_null().to_numpy(zero_copy_only=False)
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values, nulls


def _times(transform: transforms.Transform, type_: Type, column: pa.Array) -> pa.Array:
    values, nulls = _numbers(type_, column)
    if isinstance(transform, transforms.Hour):
        return _int_array(values // _MICROS_PER_HOUR, nulls)
    days = values if type_.type_id is TypeId.DATE else values // temporal.MICROS_PER_DAY
    if isinstance(transform, transforms.Day):
        return _int_array(days, nulls).view(pa.date32())
    unit = "Y" if isinstance(transform, transforms.Year) else "M"
    since_1970 = days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)
    return _int_array(since_1970, nulls)


def _int_array(values: Ints, nulls: Mask) -> pa.Array:
    return pa.array(values.astype(np.int32), pa.int32(), mask=nulls)


# --- buckets --------------------------------------------------------------------------------------


def _buckets(num_buckets: int, type_: Type, column: pa.Array) -> pa.Array:
    if type_.type_id in _HASHED_AS_LONG:
        values, nulls = _numbers(type_, column)
        hashes = _murmur3_of_longs(values)
        return _int_array((hashes & np.uint32(_MAX_INT)).astype(np.int64) % num_buckets, nulls)
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    buckets = [
        None if value is None else (mmh3.hash(value, 0) & _MAX_INT) % num_buckets
        for value in _hashed_values(type_, encoded.dictionary)
    ]
    return pa.array(buckets, pa.int32()).take(encoded.indices)


def _hashed_values(type_: Type, values: pa.Array) -> Iterator[str | bytes | None]:
    if isinstance(type_, DecimalType):
        for number in _unscaled_values(values):
            yield None if number is None else min_big_endian(number)
    elif type_.type_id is TypeId.UUID:
        for text in values.to_pylist():
            yield None if text is None else bytes.fromhex(text.replace("-", ""))
    else:
        yield from values.to_pylist()


def _unscaled_values(values: pa.Array) -> Iterator[int | None]:
    """Return the unscaled numbers of `decimal128`, without the cost of a Decimal for each."""
    unscaled = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    data = unscaled.buffers()[1]
    stored = pa.Array.from_buffers(pa.binary(16), len(unscaled), [None, data], 0, unscaled.offset)
    for is_valid, number in zip(unscaled.is_valid().to_pylist(), stored.to_pylist(), strict=True):
        yield int.from_bytes(number, "little", signed=True) if is_valid else None


def _murmur3_of_longs(values: Ints) -> Words:
    """Return the 32-bit hash of each value's eight bytes, with the seed 0 (spec, Appendix B)."""
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
        # The result of the least ints is below their type; `partition_value` refuses it.
        return pa.array(values - values % width, pa.int64(), mask=nulls)
    if type_.type_id is TypeId.STRING:
        return pc.utf8_slice_codeunits(column, 0, width)
    if type_.type_id is TypeId.BINARY:
        return pc.binary_slice(column, 0, width)
    assert isinstance(type_, DecimalType)
    return _truncated_decimals(width, type_, column)


def _truncated_decimals(width: int, type_: DecimalType, column: pa.Array) -> pa.Array:
    # The result of the least numbers may have one digit more than the type.
    result_type = pa.decimal128(min(38, type_.precision + 1), type_.scale)
    encoded = pc.dictionary_encode(column)
    numbers = list(_unscaled_values(encoded.dictionary))
    data = b"".join(
        (0 if number is None else number - number % width).to_bytes(16, "little", signed=True)
        for number in numbers
    )
    truncated = pa.Array.from_buffers(result_type, len(numbers), [None, pa.py_buffer(data)], 0)
    return truncated.take(encoded.indices)


# --- splitting ------------------------------------------------------------------------------------


def split(
    batch: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[tuple[pa.Scalar, ...], pa.RecordBatch]]:
    """Return the rows of each combination of keys, in the order that they have in the batch."""
    if batch.num_rows == 0:
        return
    codes = _combination_codes(keys, batch.num_rows)
    starts = _run_starts(codes)
    if len(starts) > len(np.unique(codes)):
        order = np.argsort(codes, kind="stable").astype(np.int64)
        # `pa.array` and `to_numpy` would load pandas, which is slow in a new Python worker.
        rows = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
        batch, keys = batch.take(rows), [key.take(rows) for key in keys]
        starts = _run_starts(codes[order])
    ends = [*starts[1:], batch.num_rows]
    for start, end in zip(starts, ends, strict=True):
        yield tuple(key[start] for key in keys), batch.slice(start, end - start)


def _combination_codes(keys: Sequence[pa.Array], rows: int) -> Ints:
    """Return a number for each row, which is equal for rows with the same keys."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        encoded = pc.dictionary_encode(_comparable(key), null_encoding="encode")
        indexes = np.frombuffer(encoded.indices.buffers()[1], np.int32)
        key_codes = indexes[encoded.indices.offset :][:rows].astype(np.int64)
        # Renumbered for each key, so that many keys do not overflow.
        _, codes = np.unique(codes * len(encoded.dictionary) + key_codes, return_inverse=True)
    return codes


def _run_starts(codes: Ints) -> list[int]:
    changes: list[int] = (np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()
    return [0, *changes]


def _comparable(key: pa.Array) -> pa.Array:
    """Return floats as their bits: the two zeros are equal, but belong to two partitions."""
    if pa.types.is_float64(key.type):
        return key.view(pa.int64())
    return key.view(pa.int32()) if pa.types.is_float32(key.type) else key


# --- values of partitions -------------------------------------------------------------------------


def partition_value(field: PartitionField, scalar: pa.Scalar) -> Any:
    """Return Iceberg's value of a partition field from one of Spark's."""
    if not scalar.is_valid or field.result_type is None:
        return None
    type_ = field.result_type
    try:
        return internal_value(type_, python_value(type_, scalar))
    except InvalidValue as error:
        raise BadRequest(f"partition field {field.name}: {error}") from None


def python_value(type_: Type, scalar: pa.Scalar) -> Any:
    """Return numbers for dates and timestamps, because Python's own end at the year 9999."""
    if pa.types.is_date32(scalar.type):
        return scalar.value
    if pa.types.is_timestamp(scalar.type):
        if scalar.type.unit == "ns" and type_.type_id in NANOS:
            return scalar.value
        micros = scalar.cast(pa.timestamp("us", scalar.type.tz)).value
        return micros * temporal.NANOS_PER_MICRO if type_.type_id in NANOS else micros
    return scalar.as_py()


# --- folders --------------------------------------------------------------------------------------

_MAX_FOLDER_CHARACTERS: Final = 80


def partition_folder(fields: Sequence[PartitionField], values: Sequence[Any]) -> str:
    """Return a folder in Iceberg's usual style, `day=2026-05-01/region=eu`.

    It only helps people: nothing reads values from it.
    """
    return "/".join(
        f"{_shortened(field.name)}={_shortened(_text(field, value))}"
        for field, value in zip(fields, values, strict=True)
    )


def _shortened(text: str) -> str:
    return quote_plus(text[:_MAX_FOLDER_CHARACTERS])[: 2 * _MAX_FOLDER_CHARACTERS]


def _text(field: PartitionField, value: Any) -> str:
    if value is None or field.result_type is None:
        return "null"
    calendar = transforms.calendar_text(field.transform, value)
    if calendar is not None:
        return calendar
    try:
        json_value = to_json(field.result_type, value)
    except InvalidValue as error:
        raise BadRequest(f"partition field {field.name}: {error}") from None
    return str(json_value).lower() if isinstance(json_value, bool) else str(json_value)

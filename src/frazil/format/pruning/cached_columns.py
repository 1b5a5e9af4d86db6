"""The columns and statistics of a manifest as files for a local cache folder.

A head lists the arrays, which follow one after another. Nobody else reads these files, and they may
be deleted at any time. They begin with a version and a checksum; a file that does not fit is
ignored without an error.

Measured: without the columns in the folder the first plan after a restart takes 40 times as long,
without the statistics 2.6 to 15 times (see benchmarks/manifest_paths.py).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import constant, is_constant
from frazil.format.manifest.manifest_columns import DeleteColumns, ManifestColumns
from frazil.format.pruning.metric_columns import (
    Bounds,
    Counts,
    FieldMetrics,
    MetricColumns,
    NumberBounds,
    SparseField,
    Tails,
    TextBounds,
)

_COLUMNS_MAGIC: Final = b"frazil columns\x00"
_METRICS_MAGIC: Final = b"frazil metrics\x00"
_VERSION: Final = 3
"""Increase this whenever the format or the meaning of the columns changes."""
_FRAME: Final = struct.Struct("<15sBIQ")
"""Magic, version, checksum of everything that follows, length of the head."""
_ALIGNMENT: Final = 8
_DTYPES: Final = frozenset({"|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8"})
_UNUSABLE: Final = (
    *(msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError, ArithmeticError),
)
"""What reading a file raises if its content does not fit."""


# --- arrays ----------------------------------------------------------------------------------


class _Array(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    size: int
    constant: int | None
    """The value of all rows. Such an array has no bytes in the file."""


class _ArrayWriter:
    """Writes each array once, even if several columns share it."""

    def __init__(self) -> None:
        self.arrays: list[_Array] = []
        self._parts: list[bytes] = []
        self._numbers: dict[int, int] = {}

    def set_number(self, array: NDArray[Any], number: int) -> None:
        """Use this number for an array that the file does not contain."""
        self._numbers[id(array)] = number

    def add(self, array: NDArray[Any]) -> int:
        """Return the number of an array that lives at least as long as the writer."""
        number = self._numbers.get(id(array))
        if number is None:
            number = self._numbers[id(array)] = self.add_bytes(array)
        return number

    def add_bytes(self, array: NDArray[Any]) -> int:
        """Return the number of an array that is used once."""
        dtype = array.dtype.newbyteorder("<")
        value = int(array[0]) if is_constant(array) else None
        self.arrays.append(_Array(dtype.str, len(array), value))
        if value is None:
            data = array.astype(dtype, copy=False).tobytes()
            self._parts += (data, _padding(len(data)))
        return len(self.arrays) - 1

    def file(self, magic: bytes, head: msgspec.Struct) -> bytes:
        encoded = msgspec.msgpack.encode(head)
        body = b"".join((encoded, _padding(len(encoded)), *self._parts))
        return _FRAME.pack(magic, _VERSION, zlib.crc32(body), len(encoded)) + body


def _opened(magic: bytes, content: bytes) -> tuple[memoryview, memoryview] | None:
    """Return the head and the arrays of a file that is whole and of this version."""
    if len(content) < _FRAME.size:
        return None
    own_magic, version, checksum, head_size = _FRAME.unpack_from(content)
    body = memoryview(content)[_FRAME.size :]
    if own_magic != magic or version != _VERSION or zlib.crc32(body) != checksum:
        return None
    return body[:head_size], body[_aligned(head_size) :]


def _read_arrays(arrays: Iterable[_Array], data: memoryview) -> list[NDArray[Any]]:
    native_arrays: list[NDArray[Any]] = []
    at = 0
    for array in arrays:
        if array.dtype not in _DTYPES:
            raise ValueError("an array has an unknown type")
        dtype = np.dtype(array.dtype)
        native = dtype.newbyteorder("=")
        if array.constant is not None:
            native_arrays.append(constant(array.constant, array.size, native))
            continue
        # A copy, because a view would keep the whole file in memory.
        native_arrays.append(np.frombuffer(data, dtype, array.size, at).astype(native))
        at += _aligned(native_arrays[-1].nbytes)
    if at != _aligned(len(data)):
        raise ValueError("the arrays are not complete")
    return native_arrays


def _checked(array: NDArray[Any], size: int) -> NDArray[Any]:
    if len(array) != size:
        raise ValueError("an array has another size")
    return array


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padding(size: int) -> bytes:
    return bytes(_aligned(size) - size)


# --- columns ---------------------------------------------------------------------------------

_DECIMAL: Final = 1
_UUID: Final = 2
_ROW_ARRAYS: Final = (
    *("status", "content", "snapshot_id", "sequence_number", "file_sequence_number"),
    *("record_count", "file_size_in_bytes", "first_row_id", "partition", "data_file_at"),
    *("data_file_end", "first_row_id_at", "sorted_hashes", "hash_order"),
)


class _Deletes(msgspec.Struct, frozen=True):
    content_offset: int
    content_size_in_bytes: int
    referenced_data_file: tuple[str | None, ...]
    equality_ids: tuple[tuple[int, ...] | None, ...]


class _ColumnsHead(msgspec.Struct, frozen=True):
    """Arrays are given by their numbers."""

    location: str
    rows: int
    content_kind: int
    partition_field_ids: tuple[int, ...]
    partitions: tuple[tuple[Any, ...], ...]
    row_arrays: tuple[int, ...]
    block_starts: int
    path_offsets: int
    path_bytes: int
    deletes: _Deletes | None
    arrays: tuple[_Array, ...]


def _from_ext(code: int, data: memoryview) -> Any:
    if code == _DECIMAL:
        return Decimal(bytes(data).decode())
    if code == _UUID:
        return UUID(bytes=bytes(data))
    raise ValueError(f"unknown extension {code}")


def _to_ext(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    if isinstance(value, UUID):
        return msgspec.msgpack.Ext(_UUID, value.bytes)
    return value


_COLUMNS_DECODER: Final = msgspec.msgpack.Decoder(_ColumnsHead, ext_hook=_from_ext)


def columns_to_bytes(location: str, columns: ManifestColumns) -> bytes:
    """Return the file for the columns of the manifest at this location. Raises ValueError if a
    partition value cannot be stored."""
    writer, deletes = _ArrayWriter(), columns.deletes
    head = _ColumnsHead(
        location=location,
        rows=len(columns),
        content_kind=columns.content_kind,
        partition_field_ids=columns.partition_field_ids,
        partitions=tuple(tuple(map(_to_ext, values)) for values in columns.partitions),
        row_arrays=tuple(writer.add_bytes(getattr(columns, name)) for name in _ROW_ARRAYS),
        block_starts=writer.add_bytes(columns.block_starts),
        path_offsets=writer.add_bytes(columns.path_offsets),
        path_bytes=writer.add_bytes(np.frombuffer(columns.path_bytes, np.uint8)),
        deletes=None
        if deletes is None
        else _Deletes(
            writer.add_bytes(deletes.content_offset),
            writer.add_bytes(deletes.content_size_in_bytes),
            deletes.referenced_data_file,
            deletes.equality_ids,
        ),
        arrays=tuple(writer.arrays),
    )
    try:
        return writer.file(_COLUMNS_MAGIC, head)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"a value of {location} cannot be stored: {error}") from None


def columns_from_bytes(location: str, content: bytes) -> ManifestColumns | None:
    """Return the columns of the manifest at this location if the file contains them."""
    opened = _opened(_COLUMNS_MAGIC, content)
    if opened is None:
        return None
    try:
        head = _COLUMNS_DECODER.decode(opened[0])
        if head.location != location:
            return None
        return _columns(head, _read_arrays(head.arrays, opened[1]))
    except _UNUSABLE:
        return None


def _columns(head: _ColumnsHead, arrays: list[NDArray[Any]]) -> ManifestColumns:
    by_name = {
        name: _checked(arrays[number], head.rows)
        for name, number in zip(_ROW_ARRAYS, head.row_arrays, strict=True)
    }
    deletes = None
    if head.deletes is not None:
        deletes = DeleteColumns(
            _checked(arrays[head.deletes.content_offset], head.rows),
            _checked(arrays[head.deletes.content_size_in_bytes], head.rows),
            head.deletes.referenced_data_file,
            head.deletes.equality_ids,
        )
    return ManifestColumns(
        content_kind=head.content_kind,
        partition_field_ids=head.partition_field_ids,
        partitions=head.partitions,
        deletes=deletes,
        block_starts=arrays[head.block_starts],
        path_offsets=_checked(arrays[head.path_offsets], head.rows + 1),
        path_bytes=arrays[head.path_bytes].tobytes(),
        **by_name,
    )


# --- statistics ------------------------------------------------------------------------------

_RECORD_COUNTS: Final = -1
"""Stands for the number of the record counts, which are in the file of the columns."""


class _Counts(msgspec.Struct, frozen=True, array_like=True):
    values: int
    present: int | None


class _Bounds(msgspec.Struct, frozen=True, array_like=True):
    """Bounds of one width have only the first array and the mask."""

    first: int
    present: int | None
    second: int | None = None
    length: int | None = None
    offsets: int | None = None
    heap: int | None = None


class _Field(msgspec.Struct, frozen=True, array_like=True):
    field_id: int
    rows: int | None
    """The rows of a column that few files have."""
    bounds: tuple[_Bounds | None, _Bounds | None]
    counts: tuple[_Counts | None, _Counts | None, _Counts | None]


class _MetricsHead(msgspec.Struct, frozen=True):
    location: str
    rows: int
    fields: tuple[_Field, ...]
    arrays: tuple[_Array, ...]


_METRICS_DECODER: Final = msgspec.msgpack.Decoder(_MetricsHead)


def metrics_to_bytes(location: str, metrics: MetricColumns) -> bytes:
    """Return the file for the statistics of the manifest at this location."""
    writer = _ArrayWriter()
    writer.set_number(metrics.record_count, _RECORD_COUNTS)
    fields = tuple(_field(writer, field_id, stored) for field_id, stored in metrics.items())
    head = _MetricsHead(location, len(metrics), fields, tuple(writer.arrays))
    return writer.file(_METRICS_MAGIC, head)


def _field(writer: _ArrayWriter, field_id: int, stored: FieldMetrics | SparseField) -> _Field:
    metrics, rows = stored, None
    if isinstance(stored, SparseField):
        metrics, rows = stored.metrics, writer.add(stored.rows)
    assert isinstance(metrics, FieldMetrics)
    lower, upper = (_bounds(writer, part) for part in metrics.bounds)
    values, nulls, nans = (_counts(writer, part) for part in metrics.counts)
    return _Field(field_id, rows, (lower, upper), (values, nulls, nans))


def _counts(writer: _ArrayWriter, counts: Counts | None) -> _Counts | None:
    if counts is None:
        return None
    return _Counts(writer.add(counts.values), _mask(writer, counts.present))


def _bounds(writer: _ArrayWriter, bounds: Bounds | None) -> _Bounds | None:
    if bounds is None:
        return None
    present = _mask(writer, bounds.present)
    if isinstance(bounds, NumberBounds):
        return _Bounds(writer.add(bounds.values), present)
    first, second = writer.add(bounds.first), writer.add(bounds.second)
    length, tails = writer.add(bounds.length), bounds.tails
    if tails is None:
        return _Bounds(first, present, second, length)
    heap = writer.add_bytes(np.frombuffer(tails.data, np.uint8))
    return _Bounds(first, present, second, length, writer.add(tails.offsets), heap)


def _mask(writer: _ArrayWriter, present: NDArray[Any] | None) -> int | None:
    return None if present is None else writer.add(present)


def metrics_from_bytes(
    location: str, content: bytes, record_count: NDArray[np.int64]
) -> MetricColumns | None:
    """Return the statistics of the manifest at this location if the file contains them. The record
    counts are those of its columns."""
    opened = _opened(_METRICS_MAGIC, content)
    if opened is None:
        return None
    try:
        head = _METRICS_DECODER.decode(opened[0])
        if head.location != location or head.rows != len(record_count):
            return None
        reader = _MetricsReader(head, opened[1], record_count)
        fields = {field.field_id: reader.field(field) for field in head.fields}
    except _UNUSABLE:
        return None
    return MetricColumns(record_count, fields)


class _MetricsReader:
    def __init__(
        self, head: _MetricsHead, data: memoryview, record_count: NDArray[np.int64]
    ) -> None:
        self._arrays: dict[int | None, NDArray[Any]] = {_RECORD_COUNTS: record_count}
        self._arrays |= enumerate(_read_arrays(head.arrays, data))
        self._rows = head.rows

    def field(self, field: _Field) -> FieldMetrics | SparseField:
        size = self._rows if field.rows is None else len(self._arrays[field.rows])
        lower, upper = (self._bounds(part, size) for part in field.bounds)
        metrics = FieldMetrics(lower, upper, *(self._counts(part, size) for part in field.counts))
        return metrics if field.rows is None else SparseField(self._arrays[field.rows], metrics)

    def _counts(self, counts: _Counts | None, size: int) -> Counts | None:
        if counts is None:
            return None
        return Counts(self._array(counts.values, size), self._mask(counts.present, size))

    def _bounds(self, bounds: _Bounds | None, size: int) -> Bounds | None:
        if bounds is None:
            return None
        first, present = self._array(bounds.first, size), self._mask(bounds.present, size)
        if bounds.second is None:
            return NumberBounds(first, present)
        second, length = self._array(bounds.second, size), self._array(bounds.length, size)
        tails = None
        if bounds.heap is not None:
            offsets = self._array(bounds.offsets, size + 1)
            tails = Tails(self._arrays[bounds.heap].tobytes(), offsets)
        return TextBounds(first, second, length, tails, present)

    def _mask(self, number: int | None, size: int) -> NDArray[Any] | None:
        return None if number is None else self._array(number, size)

    def _array(self, number: int | None, size: int) -> NDArray[Any]:
        return _checked(self._arrays[number], size)

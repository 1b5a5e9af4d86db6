"""The statistics of a manifest's files as bytes, to be kept on disk beside `columns_file`.

A head says which arrays make up which column; the arrays follow as they are. The file is ours
alone and may always be thrown away: it begins with a version and a checksum, and what does not fit
is None, never an error.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import constant, is_constant
from frazil.format.pruning.metric_bounds import Bounds, NumberBounds, Tails, TextBounds
from frazil.format.pruning.metric_columns import Counts, FieldMetrics, MetricColumns, SparseField

_MAGIC: Final = b"frazil metrics\x00"
_VERSION: Final = 1
"""To be raised whenever the form changes, or what the columns hold."""
_FRAME: Final = struct.Struct("<15sBIQ")
"""Magic, version, checksum of all that follows, length of the head."""
_ALIGNMENT: Final = 8
_RECORD_COUNTS: Final = -1
"""Instead of the number of an array: the record counts, which the other file has."""
_KINDS: Final = {
    *("|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8"),
}


class _Array(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    size: int
    constant: int | None
    """The value of all rows; then no bytes follow."""


class _Counts(msgspec.Struct, frozen=True, array_like=True):
    values: int
    present: int | None


class _Bounds(msgspec.Struct, frozen=True, array_like=True):
    """Arrays by their numbers: of one width only the first and the mask."""

    first: int
    present: int | None
    second: int | None = None
    length: int | None = None
    offsets: int | None = None
    heap: int | None = None
    """Bytes that are longer than what arrays hold, as an array of bytes."""


class _Field(msgspec.Struct, frozen=True, array_like=True):
    field_id: int
    rows: int | None
    """Those of a column that few files have."""
    bounds: tuple[_Bounds | None, _Bounds | None]
    counts: tuple[_Counts | None, _Counts | None, _Counts | None]


class _Head(msgspec.Struct, frozen=True):
    location: str
    rows: int
    arrays: tuple[_Array, ...]
    fields: tuple[_Field, ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Head)


# --- to bytes --------------------------------------------------------------------------------


def metrics_to_bytes(location: str, metrics: MetricColumns) -> bytes:
    """The file for the statistics of the manifest at this location."""
    writer = _Writer(metrics)
    fields = tuple(writer.field(field_id, found) for field_id, found in metrics.items())
    head = _ENCODER.encode(_Head(location, len(metrics), tuple(writer.arrays), fields))
    parts = [head, _padding(len(head)), *writer.parts]
    body = b"".join(parts)
    return _FRAME.pack(_MAGIC, _VERSION, zlib.crc32(body), len(head)) + body


class _Writer:
    """Notes each array once, however many columns share it."""

    def __init__(self, metrics: MetricColumns) -> None:
        self.arrays: list[_Array] = []
        self.parts: list[bytes] = []
        self._known = {id(metrics.record_count): _RECORD_COUNTS}

    def field(self, field_id: int, found: FieldMetrics | SparseField) -> _Field:
        rows = None
        metrics = found
        if isinstance(found, SparseField):
            rows, metrics = self._number(found.rows), found.metrics
        assert isinstance(metrics, FieldMetrics)
        lower, upper = (self._bounds(part) for part in metrics.bounds)
        values, nulls, nans = (self._counts(part) for part in metrics.counts)
        return _Field(field_id, rows, (lower, upper), (values, nulls, nans))

    def _counts(self, counts: Counts | None) -> _Counts | None:
        if counts is None:
            return None
        return _Counts(self._number(counts.values), self._optional(counts.present))

    def _bounds(self, bounds: Bounds | None) -> _Bounds | None:
        if bounds is None:
            return None
        present = self._optional(bounds.present)
        if isinstance(bounds, NumberBounds):
            return _Bounds(self._number(bounds.values), present)
        first, second = self._number(bounds.first), self._number(bounds.second)
        length, tails = self._number(bounds.length), bounds.tails
        if tails is None:
            return _Bounds(first, present, second, length)
        heap = self._add(np.frombuffer(tails.data, np.uint8))
        return _Bounds(first, present, second, length, self._number(tails.offsets), heap)

    def _optional(self, array: NDArray[Any] | None) -> int | None:
        return None if array is None else self._number(array)

    def _number(self, array: NDArray[Any]) -> int:
        known = self._known.get(id(array))
        if known is None:
            known = self._known[id(array)] = self._add(array)
        return known

    def _add(self, array: NDArray[Any]) -> int:
        kind = array.dtype.newbyteorder("<")
        value = int(array[0]) if is_constant(array) else None
        self.arrays.append(_Array(kind.str, len(array), value))
        if value is None:
            data = array.astype(kind, copy=False).tobytes()
            self.parts += (data, _padding(len(data)))
        return len(self.arrays) - 1


# --- from bytes ------------------------------------------------------------------------------


def metrics_from_bytes(
    location: str, content: bytes, record_count: NDArray[np.int64]
) -> MetricColumns | None:
    """The statistics that were kept for the manifest at this location, if the file has them whole.
    The record counts are those of its columns."""
    if len(content) < _FRAME.size:
        return None
    magic, version, checksum, head_size = _FRAME.unpack_from(content)
    body = memoryview(content)[_FRAME.size :]
    if magic != _MAGIC or version != _VERSION or zlib.crc32(body) != checksum:
        return None
    try:
        head = _DECODER.decode(body[:head_size])
        if head.location != location or head.rows != len(record_count):
            return None
        reader = _Reader(head, body, _aligned(head_size), record_count)
        fields = {field.field_id: reader.field(field) for field in head.fields}
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError):
        return None
    return MetricColumns(record_count, fields)


class _Reader:
    def __init__(
        self, head: _Head, body: memoryview, at: int, record_count: NDArray[np.int64]
    ) -> None:
        self._arrays: dict[int | None, NDArray[Any]] = {_RECORD_COUNTS: record_count}
        for number, array in enumerate(head.arrays):
            if array.kind not in _KINDS:
                raise ValueError("an array of a kind that is not known")
            dtype = np.dtype(array.kind)
            native = dtype.newbyteorder("=")
            if array.constant is not None:
                self._arrays[number] = constant(array.constant, array.size, native)
                continue
            # A copy: a view would keep the whole file in memory.
            self._arrays[number] = np.frombuffer(body, dtype, array.size, at).astype(native)
            at += _aligned(self._arrays[number].nbytes)
        if at != _aligned(len(body)):
            raise ValueError("the arrays are not whole")
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
        array = self._arrays[number]
        if len(array) != size:
            raise ValueError("an array of another size")
        return array


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padding(size: int) -> bytes:
    return bytes(_aligned(size) - size)

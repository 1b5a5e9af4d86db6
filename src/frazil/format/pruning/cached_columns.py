"""The columns and statistics of a manifest as files for a local cache folder.

A file is MessagePack with the bytes of its arrays. Nobody else reads these files, and they may be
deleted at any time. They begin with a version and a checksum; a file that does not fit is ignored
without an error.

Measured: without the columns in the folder the first plan after a restart takes 40 times as long,
without the statistics 2.6 to 15 times (see benchmarks/manifest_paths.py).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import constant, is_constant
from frazil.format.manifest.entry_fields import DeleteColumns
from frazil.format.manifest.manifest_columns import ROW_ARRAYS, ManifestColumns
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
_VERSION: Final = 4
"""Increase this whenever the format or the meaning of the columns changes."""
_FRAME: Final = struct.Struct("<15sBI")
"""Magic, version, checksum of everything that follows."""
_DTYPES: Final = frozenset({"|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8"})
_UNUSABLE: Final = (
    *(msgspec.MsgspecError, ValueError, TypeError, LookupError, OverflowError, ArithmeticError),
    struct.error,
)
"""What reading a file raises if its content does not fit."""
_DECIMAL: Final = 1
_UUID: Final = 2


# --- files -----------------------------------------------------------------------------------


class _Array(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    size: int
    data: bytes | None
    constant: int = 0
    """The value of all rows of an array without data."""

    @classmethod
    def of(cls, array: NDArray[Any]) -> _Array:
        dtype = array.dtype.newbyteorder("<")
        if is_constant(array):
            return cls(dtype.str, len(array), None, int(array[0]))
        return cls(dtype.str, len(array), array.astype(dtype, copy=False).tobytes())

    def read(self) -> NDArray[Any]:
        if self.dtype not in _DTYPES:
            raise ValueError("an array has an unknown type")
        dtype = np.dtype(self.dtype)
        native = dtype.newbyteorder("=")
        if self.data is None:
            return constant(self.constant, self.size, native)
        return np.frombuffer(self.data, dtype, self.size).astype(native, copy=False)


class _File(msgspec.Struct, frozen=True, array_like=True):
    location: str
    content: Any
    """Arrays are given by their numbers."""
    arrays: tuple[_Array, ...]


def _to_file(
    magic: bytes, location: str, content: object, known: tuple[NDArray[Any], ...] = ()
) -> bytes:
    """Return a file. Arrays that several columns share, and those that are `known` to the reader,
    are written once or not at all."""
    numbers = {id(array): number for number, array in enumerate(known)}
    arrays: list[_Array] = []

    def number_of(array: object) -> int:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{type(array).__name__} cannot be stored")
        if id(array) not in numbers:
            numbers[id(array)] = len(known) + len(arrays)
            arrays.append(_Array.of(array))
        return numbers[id(array)]

    encoded = msgspec.Raw(msgspec.msgpack.encode(content, enc_hook=number_of))
    body = msgspec.msgpack.encode(_File(location, encoded, tuple(arrays)))
    return _FRAME.pack(magic, _VERSION, zlib.crc32(body)) + body


class _Content:
    """The content of a file that is whole, of this version and of one manifest."""

    def __init__(
        self, magic: bytes, location: str, file: bytes, known: tuple[NDArray[Any], ...] = ()
    ) -> None:
        own_magic, version, checksum = _FRAME.unpack_from(file)
        body = memoryview(file)[_FRAME.size :]
        if own_magic != magic or version != _VERSION or zlib.crc32(body) != checksum:
            raise ValueError("the file is damaged or of another version")
        stored = _DECODER.decode(body)
        if stored.location != location:
            raise ValueError("the file is of another manifest")
        self.content: Any = stored.content
        self._arrays = [*known, *(array.read() for array in stored.arrays)]

    def array(self, number: int, size: int) -> NDArray[Any]:
        array = self._arrays[number]
        if len(array) != size:
            raise ValueError("an array has another size")
        return array

    def any_array(self, number: int) -> NDArray[Any]:
        return self._arrays[number]

    def mask(self, number: int | None, size: int) -> NDArray[Any] | None:
        return None if number is None else self.array(number, size)


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


_DECODER: Final = msgspec.msgpack.Decoder(_File, ext_hook=_from_ext)


# --- columns ---------------------------------------------------------------------------------


def columns_to_bytes(location: str, columns: ManifestColumns) -> bytes:
    """Return the file for the columns of the manifest at this location. Raises ValueError if a
    partition value cannot be stored."""
    members = _members(columns)
    members["partitions"] = [list(map(_to_ext, values)) for values in columns.partitions]
    try:
        return _to_file(_COLUMNS_MAGIC, location, members)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"a value of {location} cannot be stored: {error}") from None


def columns_from_bytes(location: str, content: bytes) -> ManifestColumns | None:
    """Return the columns of the manifest at this location if the file contains them."""
    try:
        return _columns(_Content(_COLUMNS_MAGIC, location, content))
    except _UNUSABLE:
        return None


def _columns(stored: _Content) -> ManifestColumns:
    members, deletes = stored.content, stored.content["deletes"]
    rows = len(stored.any_array(members["status"]))
    if deletes is not None:
        deletes = DeleteColumns(
            stored.array(deletes["content_offset"], rows),
            stored.array(deletes["content_size_in_bytes"], rows),
            tuple(deletes["referenced_data_file"]),
            tuple(None if ids is None else tuple(ids) for ids in deletes["equality_ids"]),
        )
    return ManifestColumns(
        content_kind=members["content_kind"],
        partition_field_ids=tuple(members["partition_field_ids"]),
        partitions=tuple(map(tuple, members["partitions"])),
        deletes=deletes,
        block_starts=stored.any_array(members["block_starts"]),
        path_offsets=stored.array(members["path_offsets"], rows + 1),
        path_bytes=members["path_bytes"],
        **{name: stored.array(members[name], rows) for name in ROW_ARRAYS},
    )


# --- statistics ------------------------------------------------------------------------------


def metrics_to_bytes(location: str, metrics: MetricColumns) -> bytes:
    """Return the file for the statistics of the manifest at this location. The record counts are
    in the file of the columns."""
    content = [len(metrics), [_field(field_id, stored) for field_id, stored in metrics.items()]]
    return _to_file(_METRICS_MAGIC, location, content, (metrics.record_count,))


def _field(field_id: int, stored: FieldMetrics | SparseField) -> tuple[Any, ...]:
    """Return a column's id, the rows of a column that few files have, and its parts."""
    if isinstance(stored, SparseField):
        metrics, rows = stored.metrics, stored.rows
    else:
        metrics, rows = stored, None
    parts = (*metrics.bounds, *metrics.counts)
    return field_id, rows, [None if part is None else _members(part) for part in parts]


def _members(part: Any) -> dict[str, Any]:
    """Return the fields of a part, without what is computed on demand."""
    return {own.name: getattr(part, own.name) for own in fields(part) if own.name != "utf8"}


def metrics_from_bytes(
    location: str, content: bytes, record_count: NDArray[np.int64]
) -> MetricColumns | None:
    """Return the statistics of the manifest at this location if the file contains them. The record
    counts are those of its columns."""
    try:
        stored = _Content(_METRICS_MAGIC, location, content, (record_count,))
        rows, columns = stored.content
        if rows != len(record_count):
            return None
        return MetricColumns(record_count, {own[0]: _metrics(stored, rows, own) for own in columns})
    except _UNUSABLE:
        return None


def _metrics(stored: _Content, size: int, column: list[Any]) -> FieldMetrics | SparseField:
    _, rows, (lower, upper, *counts) = column
    indexes = None if rows is None else stored.any_array(rows)
    size = size if indexes is None else len(indexes)
    metrics = FieldMetrics(
        _bounds(stored, lower, size),
        _bounds(stored, upper, size),
        *(_counts(stored, part, size) for part in counts),
    )
    return metrics if indexes is None else SparseField(indexes, metrics)


def _counts(stored: _Content, part: Mapping[str, Any] | None, size: int) -> Counts | None:
    if part is None:
        return None
    return Counts(stored.array(part["values"], size), stored.mask(part["present"], size))


def _bounds(stored: _Content, part: Mapping[str, Any] | None, size: int) -> Bounds | None:
    if part is None:
        return None
    present = stored.mask(part["present"], size)
    if "values" in part:
        return NumberBounds(stored.array(part["values"], size), present)
    first, second, length = (stored.array(part[name], size) for name in _TEXT_ARRAYS)
    tails = part["tails"]
    if tails is not None:
        tails = Tails(tails["data"], stored.array(tails["offsets"], size + 1))
    return TextBounds(first, second, length, tails, present)


_TEXT_ARRAYS: Final = ("first", "second", "length")

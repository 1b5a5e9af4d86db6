"""The columns of a manifest as bytes, to be kept on disk: a head, then the arrays as they are.

The file is ours alone and may always be thrown away: it begins with a version and a checksum, and
what does not fit is None, never an error.
"""

from __future__ import annotations

import struct
import zlib
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import constant, is_constant
from frazil.format.manifest.manifest_columns import DeleteColumns, ManifestColumns

_MAGIC: Final = b"frazil columns\x00"
_VERSION: Final = 2
"""To be raised whenever the form changes, or what the columns hold."""
_FRAME: Final = struct.Struct("<15sBIQ")
"""Magic, version, checksum of all that follows, length of the head."""
_ALIGNMENT: Final = 8
_DECIMAL: Final = 1
_UUID: Final = 2

_ARRAYS: Final = {
    "snapshot_id": "<i8",
    "sequence_number": "<i8",
    "file_sequence_number": "<i8",
    "record_count": "<i8",
    "file_size_in_bytes": "<i8",
    "first_row_id": "<i8",
    "sorted_hashes": "<u8",
    "partition": "<i4",
    "data_file_at": "<u4",
    "data_file_end": "<u4",
    "first_row_id_at": "<i4",
    "hash_order": "<u4",
    "path_offsets": "<u4",
    "block_starts": "<u4",
    "status": "u1",
    "content": "u1",
}
_DELETE_ARRAYS: Final = {"content_offset": "<i8", "content_size_in_bytes": "<i8"}


class _Deletes(msgspec.Struct, frozen=True):
    referenced_data_file: tuple[str | None, ...]
    equality_ids: tuple[tuple[int, ...] | None, ...]


class _Head(msgspec.Struct, frozen=True):
    location: str
    rows: int
    content_kind: int
    partition_field_ids: tuple[int, ...]
    partitions: tuple[tuple[Any, ...], ...]
    blocks: int
    path_bytes: int
    constants: dict[str, int]
    """The values of columns that have one for all rows; such a column has no array."""
    deletes: _Deletes | None


def _from_ext(code: int, data: memoryview) -> Any:
    if code == _DECIMAL:
        return Decimal(bytes(data).decode())
    if code == _UUID:
        return UUID(bytes=bytes(data))
    raise ValueError(f"unknown extension {code}")


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Head, ext_hook=_from_ext)


def columns_to_bytes(location: str, columns: ManifestColumns) -> bytes:
    """The file for the columns of the manifest at this location. Raises ValueError where they
    hold what it has no form for."""
    deletes = columns.deletes
    head = _encoded_head(location, columns)
    parts = [head, _padding(len(head))]
    sources: list[tuple[Any, dict[str, str]]] = [(columns, _ARRAYS)]
    if deletes is not None:
        sources.append((deletes, _DELETE_ARRAYS))
    for source, kinds in sources:
        for name, kind in kinds.items():
            array = getattr(source, name)
            if not is_constant(array):
                data = array.astype(kind, copy=False).tobytes()
                parts += (data, _padding(len(data)))
    parts.append(columns.path_bytes)
    body = b"".join(parts)
    return _FRAME.pack(_MAGIC, _VERSION, zlib.crc32(body), len(head)) + body


def _encoded_head(location: str, columns: ManifestColumns) -> bytes:
    deletes = columns.deletes
    head = _Head(
        location=location,
        rows=len(columns),
        content_kind=columns.content_kind,
        partition_field_ids=columns.partition_field_ids,
        partitions=tuple(
            tuple(_extended(value) for value in values) for values in columns.partitions
        ),
        blocks=len(columns.block_starts),
        path_bytes=len(columns.path_bytes),
        constants={
            name: int(getattr(columns, name)[0])
            for name in _ARRAYS
            if is_constant(getattr(columns, name))
        },
        deletes=None
        if deletes is None
        else _Deletes(deletes.referenced_data_file, deletes.equality_ids),
    )
    try:
        return _ENCODER.encode(head)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"a value of {location} cannot be kept: {error}") from None


def columns_from_bytes(location: str, content: bytes) -> ManifestColumns | None:
    """The columns that were kept for the manifest at this location, if the file has them whole."""
    if len(content) < _FRAME.size:
        return None
    magic, version, checksum, head_size = _FRAME.unpack_from(content)
    body = memoryview(content)[_FRAME.size :]
    if magic != _MAGIC or version != _VERSION or zlib.crc32(body) != checksum:
        return None
    try:
        head = _DECODER.decode(body[:head_size])
        if head.location != location:
            return None
        return _columns(head, body, _aligned(head_size))
    except (msgspec.MsgspecError, ValueError, ArithmeticError, IndexError):
        return None


def _columns(head: _Head, body: memoryview, at: int) -> ManifestColumns:
    arrays: dict[str, Any] = {}
    for name, kind in _ARRAYS.items():
        if name in head.constants:
            native = np.dtype(kind).newbyteorder("=")
            arrays[name] = constant(head.constants[name], head.rows, native)
            continue
        size = {"path_offsets": head.rows + 1, "block_starts": head.blocks}.get(name, head.rows)
        arrays[name], at = _array(body, at, kind, size)
    deletes = None
    if head.deletes is not None:
        offsets, at = _array(body, at, "<i8", head.rows)
        sizes, at = _array(body, at, "<i8", head.rows)
        kept = head.deletes
        deletes = DeleteColumns(offsets, sizes, kept.referenced_data_file, kept.equality_ids)
    if len(body) - at != head.path_bytes:
        raise ValueError("the paths are not whole")
    return ManifestColumns(
        content_kind=head.content_kind,
        partition_field_ids=head.partition_field_ids,
        partitions=head.partitions,
        deletes=deletes,
        path_bytes=bytes(body[at:]),
        **arrays,
    )


def _array(body: memoryview, at: int, kind: str, rows: int) -> tuple[NDArray[Any], int]:
    dtype = np.dtype(kind)
    # A copy in the machine's own order: a view would keep the whole file in memory.
    array = np.frombuffer(body, dtype, rows, at).astype(dtype.newbyteorder("="))
    return array, at + _aligned(array.nbytes)


def _extended(value: Any) -> Any:
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    if isinstance(value, UUID):
        return msgspec.msgpack.Ext(_UUID, value.bytes)
    return value


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padding(size: int) -> bytes:
    return bytes(_aligned(size) - size)

"""Writes Puffin files and reads their footers, which describe each blob (Puffin spec).

    PFA1 blob ... blob | PFA1 payload payload-size flags PFA1
                       └ the footer

Clients and other engines write these files, so every size is checked against the actual bytes
before memory is allocated. Only deletion vectors are read, which are never compressed:
`frazil.values.deletion_vectors` reads the bytes of their blobs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

MAX_FOOTER_BYTES: Final = 16 << 20
MAX_BLOBS: Final = 100_000

_MAGIC: Final = b"PFA1"
_TAIL: Final = struct.Struct("<i4s4s")
"""The end of a file: payload size, flags and magic."""
TAIL_BYTES: Final = _TAIL.size
"""The number of bytes at the end of a file from which the length of its footer is known."""
_NO_FLAGS: Final = bytes(4)
_COMPRESSED_PAYLOAD: Final = 1

_Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class InvalidPuffin(ValueError):
    """Bytes that are not a Puffin file, or blobs that cannot be written."""


class BlobMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The description of a blob in the footer, with the fields in the order in which Java writes
    them."""

    type: str
    fields: tuple[_Int, ...]
    snapshot_id: _Long
    sequence_number: _Long
    offset: _Size
    length: _Size
    """The stored length, after compression."""
    compression_codec: str | None = None
    properties: dict[str, str] = {}


class FileMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a footer."""

    blobs: Annotated[tuple[BlobMetadata, ...], msgspec.Meta(max_length=MAX_BLOBS)]
    properties: dict[str, str] = {}


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob to write."""

    type: str
    fields: tuple[int, ...]
    data: bytes
    snapshot_id: int
    sequence_number: int
    properties: Mapping[str, str] = {}


# --- writing ---------------------------------------------------------------------------------


def write_puffin(
    blobs: Sequence[Blob], properties: Mapping[str, str]
) -> tuple[bytes, list[BlobMetadata]]:
    """Return a whole file and the metadata of its blobs. Nothing in it is compressed.

    The specification recommends the property `created-by`.
    """
    parts = [_MAGIC]
    written: list[BlobMetadata] = []
    offset = len(_MAGIC)
    for blob in blobs:
        written.append(_metadata(blob, offset))
        parts.append(blob.data)
        offset += len(blob.data)
    payload = _payload(FileMetadata(tuple(written), dict(properties)))
    parts += [_MAGIC, payload, _TAIL.pack(len(payload), _NO_FLAGS, _MAGIC)]
    return b"".join(parts), written


def _metadata(blob: Blob, offset: int) -> BlobMetadata:
    return BlobMetadata(
        type=blob.type,
        fields=tuple(blob.fields),
        snapshot_id=blob.snapshot_id,
        sequence_number=blob.sequence_number,
        offset=offset,
        length=len(blob.data),
        properties=dict(blob.properties),
    )


def _payload(metadata: FileMetadata) -> bytes:
    """Return the footer's payload, after checking that this module can read it back."""
    try:
        payload = msgspec.json.encode(metadata)
    except (UnicodeEncodeError, TypeError, OverflowError) as error:
        raise InvalidPuffin(f"the footer cannot be written as JSON: {error}") from None
    if len(payload) > MAX_FOOTER_BYTES:
        raise InvalidPuffin(
            f"the footer would have {len(payload)} bytes, above the limit of {MAX_FOOTER_BYTES}: "
            "write fewer blobs into one file"
        )
    _decoded(payload)
    return payload


# --- reading ---------------------------------------------------------------------------------


def footer_bytes(tail: bytes, file_bytes: int) -> int:
    """Return the length of the footer. The last `TAIL_BYTES` bytes of a file are enough to know
    it."""
    if file_bytes < len(_MAGIC) * 2 + TAIL_BYTES or len(tail) < TAIL_BYTES:
        raise InvalidPuffin(f"{min(file_bytes, len(tail))} bytes are too few for a Puffin file")
    payload_bytes, flags, magic = _TAIL.unpack_from(tail, len(tail) - TAIL_BYTES)
    if magic != _MAGIC:
        raise InvalidPuffin(
            f"a Puffin file ends with the bytes {_MAGIC!r}, this one with {magic!r}"
        )
    if flags != _NO_FLAGS:
        raise _unknown_flags(flags)
    if payload_bytes < 0:
        raise InvalidPuffin(f"the footer's payload has a negative size: {payload_bytes}")
    if payload_bytes > MAX_FOOTER_BYTES:
        raise InvalidPuffin(
            f"the footer's payload has {payload_bytes} bytes, above the limit of {MAX_FOOTER_BYTES}"
        )
    length = len(_MAGIC) + int(payload_bytes) + TAIL_BYTES
    if length > file_bytes - len(_MAGIC):
        raise InvalidPuffin(f"a footer of {length} bytes does not fit in a file of {file_bytes}")
    return length


def read_footer(tail: bytes, file_bytes: int | None = None) -> FileMetadata:
    """Read the footer of a whole file, or of its last bytes if `file_bytes` has the file's size.

    Every blob of the result is inside the file, before the footer.
    """
    file_bytes = len(tail) if file_bytes is None else file_bytes
    if file_bytes < len(tail):
        raise InvalidPuffin(f"a file of {file_bytes} bytes cannot end with these {len(tail)}")
    length = footer_bytes(tail, file_bytes)
    if length > len(tail):
        raise InvalidPuffin(f"the footer has {length} bytes, but only {len(tail)} were read")
    start = len(tail) - length
    if len(tail) == file_bytes and not tail.startswith(_MAGIC):
        raise InvalidPuffin(f"a Puffin file begins with the bytes {_MAGIC!r}")
    if tail[start : start + len(_MAGIC)] != _MAGIC:
        raise InvalidPuffin(f"the footer does not begin with the bytes {_MAGIC!r}")
    metadata = _decoded(tail[start + len(_MAGIC) : len(tail) - TAIL_BYTES])
    _check_ranges(metadata.blobs, file_bytes - length)
    return metadata


def _decoded(payload: bytes) -> FileMetadata:
    try:
        return msgspec.json.decode(payload, type=FileMetadata)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPuffin(f"the footer's payload is not as specified: {error}") from None


def _check_ranges(blobs: Sequence[BlobMetadata], end: int) -> None:
    for number, blob in enumerate(blobs):
        if blob.offset < len(_MAGIC) or blob.offset + blob.length > end:
            raise InvalidPuffin(
                f"blobs[{number}]: {blob.length} bytes at offset {blob.offset} are not between the "
                f"first magic and the footer, which are bytes {len(_MAGIC)} to {end}"
            )


def _unknown_flags(flags: bytes) -> InvalidPuffin:
    if flags == bytes([_COMPRESSED_PAYLOAD, 0, 0, 0]):
        return InvalidPuffin(
            "the footer is compressed with lz4, which Iceberg's Java library does not read either: "
            "write it uncompressed"
        )
    return InvalidPuffin(f"the footer has flags that the specification reserves: {flags.hex()}")

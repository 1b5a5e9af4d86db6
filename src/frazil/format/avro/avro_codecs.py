"""Compresses and decompresses the blocks of Avro container files.

Avro names five codecs. Snappy needs pyarrow, which a server has only with the extra `parquet`.
"""

from __future__ import annotations

import bz2
import zlib
from dataclasses import dataclass
from typing import Any, Final

import zstandard

from frazil.extras import is_missing
from frazil.format.avro.avro_types import UnreadableAvro

_DEFLATE_LEVEL: Final = 1
"""For manifests the default level, 6, saves about 1 % and takes four times as long."""
_MAX_DEFLATE_LEVEL: Final = 9
_ZSTANDARD_WINDOW_BYTES: Final = 1 << 27
_CHECKSUM_BYTES: Final = 4
_MAX_VARINT_BYTES: Final = 5
_TOO_LARGE: Final = "the file's blocks decompress to more than is allowed"


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec by its Avro name, and its level."""

    codec: str
    level: int | None = None
    """None for our default. A level that the codec does not have means its nearest one."""


DEFLATE: Final = Compression("deflate")


def compress(codec: str, data: bytes, level: int | None = None) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        level = _DEFLATE_LEVEL if level is None else max(0, min(level, _MAX_DEFLATE_LEVEL))
        deflate = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
        return deflate.compress(data) + deflate.flush()
    if codec == "bzip2":
        return bz2.compress(data)
    if codec == "zstandard":
        if level is None:
            return zstandard.ZstdCompressor().compress(data)
        return zstandard.ZstdCompressor(min(level, zstandard.MAX_COMPRESSION_LEVEL)).compress(data)
    if codec == "snappy":
        checksum = zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
        packed: bytes = _snappy().compress(data, asbytes=True)
        return packed + checksum
    raise UnreadableAvro(f"the codec {codec} is not supported")


def decompress(codec: str, data: bytes, max_bytes: int) -> bytes:
    """Decompress a block, but no more than `max_bytes` of it."""
    try:
        block = _decompress(codec, data, max_bytes)
    except (zlib.error, OSError, EOFError, ValueError) as error:
        raise UnreadableAvro(f"a block is not {codec}: {error}") from None
    if len(block) > max_bytes:
        raise UnreadableAvro(_TOO_LARGE)
    return block


def _decompress(codec: str, data: bytes, max_bytes: int) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        block = inflate.decompress(data, max_bytes + 1)
        return _complete(block, inflate.eof, max_bytes)
    if codec == "bzip2":
        bunzip = bz2.BZ2Decompressor()
        block = bunzip.decompress(data, max_bytes + 1)
        return _complete(block, bunzip.eof, max_bytes)
    if codec == "zstandard":
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTANDARD_WINDOW_BYTES)
        try:
            return reader.stream_reader(data).read(max_bytes + 1)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
    if codec == "snappy":
        return _unsnapped(data, max_bytes)
    raise UnreadableAvro(f"the codec {codec} is not supported")


def _complete(block: bytes, finished: bool, max_bytes: int) -> bytes:
    if not finished and len(block) <= max_bytes:
        raise ValueError("it ends early")
    return block


def _unsnapped(data: bytes, max_bytes: int) -> bytes:
    """Decompress raw Snappy, which begins with its decompressed size and ends with a checksum."""
    packed, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    size = _leading_varint(packed)
    if size > max_bytes:
        raise UnreadableAvro(_TOO_LARGE)
    block: bytes = _snappy().decompress(packed, decompressed_size=size, asbytes=True)
    if zlib.crc32(block) != int.from_bytes(checksum, "big"):
        raise ValueError("its checksum is wrong")
    return block


def _leading_varint(data: bytes) -> int:
    value = 0
    for position, byte in enumerate(data[:_MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value
    raise ValueError("it does not begin with its size")


def can_snappy() -> bool:
    """Return whether Snappy can be read and written here."""
    try:
        _snappy()
    except UnreadableAvro:
        return False
    return True


def _snappy() -> Any:
    # Import at the first use, because pyarrow is optional and slow to import.
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        if not is_missing(error, "parquet"):
            raise
        raise UnreadableAvro(
            "the codec snappy needs pyarrow, which is not installed on the server: add the extra "
            "parquet to it"
        ) from None
    return pa.Codec("snappy")

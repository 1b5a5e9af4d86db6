"""One gzip member made of pieces that were compressed before.

Each piece is raw deflate ended by a full flush: byte aligned and independent of what came before,
so pieces can be cached and concatenated. The member's CRC comes from the pieces' CRCs. Several
members in one file would be simpler, but readers that stop after the first member exist.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"
"""An empty final deflate block."""

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""CRC-32 polynomials are bit-reversed: the highest bit is x to the power of 0."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A compressed piece: what is needed to place it in a member."""

    deflated: bytes
    crc: int
    size: int
    shift: int
    """x to the power of 8 * size: moves a CRC past this piece."""


def pack(data: bytes) -> Packed:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)
    return Packed(deflated, zlib.crc32(data), len(data), _shift(len(data)))


def gzip_member(pieces: Iterable[Packed]) -> list[bytes]:
    """The chunks of one gzip member (RFC 1952) that holds the pieces in order."""
    chunks = [_HEADER]
    crc = size = 0
    for piece in pieces:
        chunks.append(piece.deflated)
        crc = _multiply(piece.shift, crc) ^ piece.crc
        size += piece.size
    chunks.append(_LAST_BLOCK + crc.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little"))
    return chunks


def crc32_combine(first: int, second: int, second_size: int) -> int:
    """The CRC-32 of two byte strings one after the other, from their own CRCs."""
    return _multiply(_shift(second_size), first) ^ second


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials over GF(2), modulo the CRC's polynomial."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


@cache
def _power_of_two(k: int) -> int:
    """x to the power of 2**k."""
    if k == 0:
        return _ONE >> 1
    root = _power_of_two(k - 1)
    return _multiply(root, root)


def _shift(size: int) -> int:
    """x to the power of 8 * size, by square and multiply."""
    result, k = _ONE, 3
    while size:
        if size & 1:
            result = _multiply(_power_of_two(k), result)
        size >>= 1
        k += 1
    return result

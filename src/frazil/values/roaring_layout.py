"""The portable Roaring format, 64-bit extension, walked and checked without building a bitmap.

    count u64, then for each bitmap: key u32 and a 32-bit bitmap, keys ascending
    a 32-bit bitmap: cookie, container count, run flags, (key u16, cardinality - 1 u16)...,
                     offsets, containers
    a container: an ascending array of up to 4096 u16, or 8192 bytes of bits,
                 or runs (start u16, length - 1 u16)

All values are little-endian. Offsets are not looked at: readers that go from front to back, as
CRoaring and Java's RoaringBitmap do, have no use for them.
"""

from __future__ import annotations

import struct
import sys
from array import array
from itertools import islice
from operator import lt
from typing import Final

_NO_RUN_COOKIE: Final = 12346
_RUN_COOKIE: Final = 12347
_MAX_CONTAINERS: Final = 1 << 16
_MAX_ARRAY: Final = 4096
_BITS_BYTES: Final = 8192
_FIRST_WITH_OFFSETS: Final = 4
"""Fewer containers, some of them runs, are written without offsets."""
_MIN_BITMAP_BYTES: Final = 12
"""A key and an empty bitmap."""


class InvalidRoaring(ValueError):
    """The bytes are not in the portable Roaring format."""


def check_roaring(data: memoryview, max_key: int) -> None:
    """Refuses bytes that are not exactly one 64-bit bitmap, in time linear to their number."""
    (count,) = struct.unpack_from("<Q", _take(data, 0, 8))
    if count > (len(data) - 8) // _MIN_BITMAP_BYTES:
        raise InvalidRoaring(f"{count} bitmaps do not fit in {len(data)} bytes")
    at = 8
    last_key = -1
    for _ in range(count):
        key = int.from_bytes(_take(data, at, 4), "little")
        if not last_key < key <= max_key:
            raise InvalidRoaring(f"key {key} after {last_key}: keys ascend to at most {max_key}")
        last_key = key
        at = _check_bitmap(data, at + 4)
    if at != len(data):
        raise InvalidRoaring(f"{len(data) - at} bytes follow the last bitmap")


def _check_bitmap(data: memoryview, at: int) -> int:
    """Walks over one 32-bit bitmap and tells where it ends."""
    count, runs, at = _read_cookie(data, at)
    header = _words(_take(data, at, count * 4))
    at += count * 4
    if not runs or count >= _FIRST_WITH_OFFSETS:
        _take(data, at, count * 4)
        at += count * 4
    keys = header[0::2]
    if not _ascend(keys):
        raise InvalidRoaring("the keys of the containers do not ascend")
    for number, last in enumerate(header[1::2]):
        if runs and runs[number >> 3] >> (number & 7) & 1:
            at = _check_runs(data, at, last + 1)
        elif last < _MAX_ARRAY:
            at = _check_array(data, at, last + 1)
        else:
            at = _check_bits(data, at, last + 1)
    return at


def _read_cookie(data: memoryview, at: int) -> tuple[int, memoryview | None, int]:
    """The number of containers, the flags of those that are runs, and where the header begins."""
    cookie = int.from_bytes(_take(data, at, 4), "little")
    if cookie == _NO_RUN_COOKIE:
        count = int.from_bytes(_take(data, at + 4, 4), "little")
        if count > _MAX_CONTAINERS:
            raise InvalidRoaring(f"{count} containers are more than a bitmap can have")
        return count, None, at + 8
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        flags_bytes = (count + 7) // 8
        return count, _take(data, at + 4, flags_bytes), at + 4 + flags_bytes
    raise InvalidRoaring(f"{cookie} is not a cookie of the format")


def _check_array(data: memoryview, at: int, cardinality: int) -> int:
    if not _ascend(_words(_take(data, at, cardinality * 2))):
        raise InvalidRoaring("the values of an array container do not ascend")
    return at + cardinality * 2


def _check_bits(data: memoryview, at: int, cardinality: int) -> int:
    found = int.from_bytes(_take(data, at, _BITS_BYTES), "little").bit_count()
    if found != cardinality:
        raise InvalidRoaring(f"a container has {found} bits set, but tells {cardinality}")
    return at + _BITS_BYTES


def _check_runs(data: memoryview, at: int, cardinality: int) -> int:
    count = int.from_bytes(_take(data, at, 2), "little")
    pairs = _words(_take(data, at + 2, count * 4))
    found = 0
    end = -1
    for start, last in zip(pairs[0::2], pairs[1::2], strict=True):
        # Runs that touch would be one run: no writer leaves them so, and CRoaring relies on it.
        if start <= end:
            raise InvalidRoaring("the runs of a container do not ascend or they touch")
        end = start + last + 1
        found += last + 1
    if end > 1 << 16 or found != cardinality:
        raise InvalidRoaring(f"the runs of a container hold {found} values, it tells {cardinality}")
    return at + 2 + count * 4


def _ascend(values: array[int]) -> bool:
    return all(map(lt, values, islice(values, 1, None)))


def _words(data: memoryview) -> array[int]:
    words = array("H")
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _take(data: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(data):
        raise InvalidRoaring(f"{size} bytes are missing from byte {at} on: the bitmap is cut short")
    return data[at : at + size]

"""Deletion vectors: the positions of a data file's deleted rows, as `deletion-vector-v1` blobs.

    length magic bitmap-count (key bitmap)... crc-32

The length and the checksum are big-endian, everything between them is little-endian (Puffin spec).
The bitmaps are in the portable Roaring format, one for each value of a position's high 32 bits:

    count u64, then for each bitmap: key u32 and a 32-bit bitmap, keys ascending
    a 32-bit bitmap: cookie, container count, run flags, (key u16, cardinality - 1 u16)...,
                     offsets, containers
    a container: an ascending array of up to 4096 u16, or 8192 bytes of bits,
                 or runs (start u16, length - 1 u16)

The checksum protects against damage but not against an attacker. The Roaring library stays inside
the buffer but trusts its content, so `_check_roaring` validates the layout first. It ignores the
offsets because CRoaring and Java's RoaringBitmap read from front to back and do not use them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Final

from pyroaring import FrozenBitMap64

from frazil.values.puffin import Blob, BlobMetadata

BLOB_TYPE: Final = "deletion-vector-v1"
REFERENCED_DATA_FILE: Final = "referenced-data-file"
CARDINALITY: Final = "cardinality"
ROW_POSITION_FIELD_ID: Final = 2147483645
"""The reserved field id of `_pos` (spec, "Reserved Field IDs")."""
NOT_YET_KNOWN: Final = -1
"""The snapshot id and sequence number of a blob that is written before its commit."""

MAX_KEY: Final = (1 << 31) - 2
MAX_POSITION: Final = (MAX_KEY << 32) | (1 << 31)
"""The limit of Java's RoaringPositionBitmap."""
MAX_VECTOR_BYTES: Final = 64 << 20
"""Enough for any set of rows of a file with 500 million rows."""

_MAGIC: Final = bytes.fromhex("d1d33964")
_HEAD: Final = struct.Struct(">i4s")
_CRC: Final = struct.Struct(">I")
_MIN_BYTES: Final = _HEAD.size + 8 + _CRC.size

_NO_RUN_COOKIE: Final = 12346
_RUN_COOKIE: Final = 12347
_MAX_CONTAINERS: Final = 1 << 16
_MAX_ARRAY: Final = 4096
_BITS_BYTES: Final = 8192
_FIRST_WITH_OFFSETS: Final = 4
"""Fewer containers, some of them runs, are written without offsets."""
_MIN_BITMAP_BYTES: Final = 12
"""A key and an empty bitmap."""


# --- the Roaring layout -----------------------------------------------------------------------


class InvalidRoaring(ValueError):
    """The bytes are not in the portable Roaring format."""


def _check_roaring(data: memoryview) -> None:
    """Refuse bytes that are not exactly one 64-bit bitmap, in time linear in their number."""
    (count,) = struct.unpack_from("<Q", _take(data, 0, 8))
    if count > (len(data) - 8) // _MIN_BITMAP_BYTES:
        raise InvalidRoaring(f"{count} bitmaps do not fit in {len(data)} bytes")
    at = 8
    last_key = -1
    for _ in range(count):
        key = int.from_bytes(_take(data, at, 4), "little")
        if not last_key < key <= MAX_KEY:
            raise InvalidRoaring(f"key {key} after {last_key}: keys ascend to at most {MAX_KEY}")
        last_key = key
        at = _check_bitmap(data, at + 4)
    if at != len(data):
        raise InvalidRoaring(f"{len(data) - at} bytes follow the last bitmap")


def _check_bitmap(data: memoryview, at: int) -> int:
    """Check one 32-bit bitmap and return where it ends."""
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
    """Return the number of containers, their run flags, and where the header begins."""
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
    count = int.from_bytes(_take(data, at, _BITS_BYTES), "little").bit_count()
    if count != cardinality:
        raise InvalidRoaring(f"a container has {count} bits set, but declares {cardinality}")
    return at + _BITS_BYTES


def _check_runs(data: memoryview, at: int, cardinality: int) -> int:
    count = int.from_bytes(_take(data, at, 2), "little")
    pairs = _words(_take(data, at + 2, count * 4))
    total = 0
    end = -1
    for start, last in zip(pairs[0::2], pairs[1::2], strict=True):
        # Adjacent runs would be one run: no writer produces them, and CRoaring relies on that.
        if start <= end:
            raise InvalidRoaring("the runs of a container do not ascend or they touch")
        end = start + last + 1
        total += last + 1
    if end > 1 << 16 or total != cardinality:
        raise InvalidRoaring(
            f"the runs of a container hold {total} values, but it declares {cardinality}"
        )
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


# --- vectors ----------------------------------------------------------------------------------


class InvalidDeletionVector(ValueError):
    """A position that no row can have, or bytes that are not a deletion vector."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """An immutable set of positions."""

    bitmap: FrozenBitMap64
    """The positions as a bitmap of the Roaring library, for bulk operations."""

    @classmethod
    def from_positions(cls, positions: Iterable[int]) -> DeletionVector:
        """Build a vector from positions in any order. Positions may repeat."""
        try:
            # An array refuses fractions; the bitmap would truncate them.
            numbers = positions if isinstance(positions, range) else array("Q", positions)
            bitmap = FrozenBitMap64(numbers)
        except (OverflowError, TypeError) as error:
            raise InvalidDeletionVector(
                f"positions are integers from 0 to {MAX_POSITION}: {error}"
            ) from None
        return cls.from_bitmap(bitmap)

    @classmethod
    def deserialize(cls, data: bytes) -> DeletionVector:
        """Read the content of a blob, which must be exactly one vector."""
        if not _MIN_BYTES <= len(data) <= MAX_VECTOR_BYTES:
            raise InvalidDeletionVector(
                f"a deletion vector has {_MIN_BYTES} to {MAX_VECTOR_BYTES} bytes, "
                f"this one {len(data)}"
            )
        vector = _checked_frame(data)
        try:
            _check_roaring(vector)
            bitmap = FrozenBitMap64.deserialize(bytes(vector))
        except (InvalidRoaring, ValueError) as error:
            raise InvalidDeletionVector(f"the bitmap is damaged: {error}") from None
        return cls.from_bitmap(bitmap)

    @classmethod
    def from_bitmap(cls, bitmap: FrozenBitMap64) -> DeletionVector:
        """Run-length encode the bitmap where that is smaller, as Java does before it writes."""
        if bitmap and bitmap.max() > MAX_POSITION:
            raise InvalidDeletionVector(
                f"position {bitmap.max()} is above the highest possible one, {MAX_POSITION}"
            )
        bitmap.run_optimize()
        return cls(bitmap)

    @property
    def cardinality(self) -> int:
        return len(self.bitmap)

    def serialize(self) -> bytes:
        """Return the content of a blob. Equal vectors have equal bytes."""
        vector = self.bitmap.serialize()
        checked = _MAGIC + vector
        return _HEAD.pack(len(checked), _MAGIC) + vector + _CRC.pack(zlib.crc32(checked))

    def __repr__(self) -> str:
        return f"DeletionVector(cardinality={self.cardinality})"


def deletion_vector_blob(vector: DeletionVector, referenced_data_file: str) -> Blob:
    """Return the blob for a Puffin file, with the properties that the specification requires."""
    return Blob(
        type=BLOB_TYPE,
        fields=(ROW_POSITION_FIELD_ID,),
        data=vector.serialize(),
        snapshot_id=NOT_YET_KNOWN,
        sequence_number=NOT_YET_KNOWN,
        properties={
            REFERENCED_DATA_FILE: referenced_data_file,
            CARDINALITY: str(vector.cardinality),
        },
    )


def read_deletion_vector(data: bytes, metadata: BlobMetadata) -> tuple[str, DeletionVector]:
    """Return the referenced data file and the vector of a blob. Its metadata must match its
    content."""
    if metadata.type != BLOB_TYPE:
        raise InvalidDeletionVector(f"a blob of type {metadata.type!r} is not a {BLOB_TYPE}")
    if metadata.compression_codec is not None:
        raise InvalidDeletionVector(f"a {BLOB_TYPE} blob is never compressed: omit the codec")
    for name in (REFERENCED_DATA_FILE, CARDINALITY):
        if name not in metadata.properties:
            raise InvalidDeletionVector(f"the blob's property {name!r} is missing")
    vector = DeletionVector.deserialize(data)
    if metadata.properties[CARDINALITY] != str(vector.cardinality):
        raise InvalidDeletionVector(
            f"the blob's property {CARDINALITY!r} is {metadata.properties[CARDINALITY]!r}, "
            f"but {vector.cardinality} positions are set"
        )
    return metadata.properties[REFERENCED_DATA_FILE], vector


def _checked_frame(data: bytes) -> memoryview:
    """Return the vector without its frame, after checking length, magic and checksum."""
    length, magic = _HEAD.unpack_from(data)
    end = len(data) - _CRC.size
    if length != end - 4:
        raise InvalidDeletionVector(f"the length is {length}, but {end - 4} bytes are there")
    if magic != _MAGIC:
        raise InvalidDeletionVector(f"the magic is {magic.hex()} instead of {_MAGIC.hex()}")
    (expected,) = _CRC.unpack_from(data, end)
    actual = zlib.crc32(memoryview(data)[4:end])
    if actual != expected:
        raise InvalidDeletionVector(
            f"the checksum is 0x{actual:08x}, but 0x{expected:08x} is recorded: the bytes changed"
        )
    return memoryview(data)[_HEAD.size : end]

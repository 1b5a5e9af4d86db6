"""Deletion vectors: the positions of a data file's deleted rows, as `deletion-vector-v1` blobs.

    length magic bitmap-count (key bitmap)... crc-32

The length and the checksum are big-endian, all between them is little-endian (Puffin spec). The
bitmaps are in the portable Roaring format, one for every value of a position's high 32 bits. The
checksum guards against damage and not against malice, so the layout is walked here before the
Roaring library sees it: the library keeps inside the buffer, but trusts what it finds there.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyroaring import FrozenBitMap64

from frazil.values.puffin import Blob, BlobMetadata
from frazil.values.roaring_layout import InvalidRoaring, check_roaring

BLOB_TYPE: Final = "deletion-vector-v1"
REFERENCED_DATA_FILE: Final = "referenced-data-file"
CARDINALITY: Final = "cardinality"
ROW_POSITION_FIELD_ID: Final = 2147483645
"""The reserved field id of `_pos` (spec, "Reserved Field IDs")."""
NOT_YET_KNOWN: Final = -1
"""Snapshot id and sequence number of a blob that is written before its commit."""

MAX_KEY: Final = (1 << 31) - 2
MAX_POSITION: Final = (MAX_KEY << 32) | (1 << 31)
"""As Java's RoaringPositionBitmap has it."""
MAX_VECTOR_BYTES: Final = 64 << 20
"""Enough for any set of rows of a file of 500 million."""

_MAGIC: Final = bytes.fromhex("d1d33964")
_HEAD: Final = struct.Struct(">i4s")
_CRC: Final = struct.Struct(">I")
_MIN_BYTES: Final = _HEAD.size + 8 + _CRC.size


class InvalidDeletionVector(ValueError):
    """A position that no row can have, or bytes that are no deletion vector."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """An immutable set of positions."""

    _bitmap: FrozenBitMap64

    @classmethod
    def from_positions(cls, positions: Iterable[int]) -> DeletionVector:
        """Positions in any order, repeated or not."""
        try:
            # An array refuses what is no integer; the bitmap would cut the fraction off.
            numbers = positions if isinstance(positions, range) else array("Q", positions)
            bitmap = FrozenBitMap64(numbers)
        except (OverflowError, TypeError) as error:
            raise InvalidDeletionVector(
                f"positions are integers from 0 to {MAX_POSITION}: {error}"
            ) from None
        return cls._optimized(bitmap)

    @classmethod
    def deserialize(cls, data: bytes, *, max_bytes: int = MAX_VECTOR_BYTES) -> DeletionVector:
        """Reads what a blob holds, no byte more or less."""
        if not _MIN_BYTES <= len(data) <= max_bytes:
            raise InvalidDeletionVector(
                f"a deletion vector has {_MIN_BYTES} to {max_bytes} bytes, this one {len(data)}"
            )
        vector = _checked_frame(data)
        try:
            check_roaring(vector, MAX_KEY)
            bitmap = FrozenBitMap64.deserialize(bytes(vector))
        except (InvalidRoaring, ValueError) as error:
            raise InvalidDeletionVector(f"the bitmap is damaged: {error}") from None
        return cls._optimized(bitmap)

    @classmethod
    def _optimized(cls, bitmap: FrozenBitMap64) -> DeletionVector:
        """Run-length encoded where that is smaller, as Java does before it writes."""
        if bitmap and bitmap.max() > MAX_POSITION:
            raise InvalidDeletionVector(
                f"position {bitmap.max()} is above the highest possible one, {MAX_POSITION}"
            )
        bitmap.run_optimize()
        return cls(bitmap)

    @property
    def cardinality(self) -> int:
        return len(self._bitmap)

    def __contains__(self, position: int) -> bool:
        return 0 <= position <= MAX_POSITION and position in self._bitmap

    def __iter__(self) -> Iterator[int]:
        """The positions in ascending order."""
        return iter(self._bitmap)

    @property
    def bitmap(self) -> FrozenBitMap64:
        """The positions as the Roaring library has them, for work in bulk."""
        return self._bitmap

    def union(self, other: DeletionVector) -> DeletionVector:
        return self._optimized(self._bitmap | other._bitmap)

    def difference(self, other: DeletionVector) -> DeletionVector:
        return self._optimized(self._bitmap - other._bitmap)

    def serialize(self) -> bytes:
        """The content of a blob; equal vectors have equal bytes."""
        vector = self._bitmap.serialize()
        checked = _MAGIC + vector
        return _HEAD.pack(len(checked), _MAGIC) + vector + _CRC.pack(zlib.crc32(checked))

    def __repr__(self) -> str:
        return f"DeletionVector(cardinality={self.cardinality})"


def deletion_vector_blob(vector: DeletionVector, referenced_data_file: str) -> Blob:
    """The blob of a Puffin file, with the properties that the specification demands."""
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
    """The referenced data file and the vector of a blob whose metadata agrees with its content."""
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
    """The vector inside the frame, whose length, magic and checksum hold."""
    length, magic = _HEAD.unpack_from(data)
    end = len(data) - _CRC.size
    if length != end - 4:
        raise InvalidDeletionVector(f"the length is {length}, but {end - 4} bytes are there")
    if magic != _MAGIC:
        raise InvalidDeletionVector(f"the magic is {magic.hex()} instead of {_MAGIC.hex()}")
    (expected,) = _CRC.unpack_from(data, end)
    found = zlib.crc32(memoryview(data)[4:end])
    if found != expected:
        raise InvalidDeletionVector(
            f"the checksum is 0x{found:08x}, but 0x{expected:08x} is recorded: the bytes changed"
        )
    return memoryview(data)[_HEAD.size : end]

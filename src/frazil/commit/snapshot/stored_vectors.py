"""Reads the deletion vectors of Puffin files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, TypeAlias

from frazil.store.object_store import ObjectMissing, ObjectReader
from frazil.values.deletion_vectors import (
    DeletionVector,
    InvalidDeletionVector,
    read_deletion_vector,
)
from frazil.values.puffin import (
    BlobMetadata,
    FileMetadata,
    InvalidPuffin,
    footer_bytes,
    read_footer,
)

_FIRST_READ_BYTES: Final = 64 << 10
"""Nearly every footer fits into the first read from the end of a file."""

VectorKey: TypeAlias = tuple[str, int]
"""The location of a Puffin file, and the offset of a vector in it."""


class UnreadableVector(Exception):
    """The file or the vector does not exist, or its bytes are damaged."""


def read_puffin_footer(store: ObjectReader, location: str, size: int) -> FileMetadata:
    """Read the footer of a file of `size` bytes. Raises InvalidPuffin and StoreError."""
    length = min(size, _FIRST_READ_BYTES)
    tail = store.get_range(location, size - length, length) if length else b""
    whole = footer_bytes(tail, size)
    if whole > length:
        tail = store.get_range(location, size - whole, whole)
    return read_footer(tail, size)


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """The vectors of some Puffin files, whose footers were read."""

    store: ObjectReader
    footers: Mapping[str, FileMetadata | UnreadableVector]

    @classmethod
    def of_files(
        cls, store: ObjectReader, locations: Iterable[str], executor: Executor
    ) -> StoredVectors:
        """Read the footers in parallel. An unreadable file matters only if it is asked for."""
        distinct = list(dict.fromkeys(locations))
        footers = executor.map(lambda location: _footer(store, location), distinct)
        return cls(store, dict(zip(distinct, footers, strict=True)))

    def blob(self, key: VectorKey) -> BlobMetadata:
        """Return the description of a vector. Raises UnreadableVector."""
        location, offset = key
        footer = self.footers[location]
        if isinstance(footer, UnreadableVector):
            raise footer
        for blob in footer.blobs:
            if blob.offset == offset:
                return blob
        raise UnreadableVector(f"the footer of {location} names no blob at offset {offset}")

    def read(self, key: VectorKey) -> tuple[str, DeletionVector]:
        """Return the data file of a vector, and the vector. Raises UnreadableVector."""
        location, offset = key
        blob = self.blob(key)
        try:
            content = self.store.get_range(location, offset, blob.length)
            return read_deletion_vector(content, blob)
        except (InvalidDeletionVector, ObjectMissing) as error:
            raise UnreadableVector(
                f"the deletion vector in {location} at offset {offset} cannot be read: {error}"
            ) from None


def _footer(store: ObjectReader, location: str) -> FileMetadata | UnreadableVector:
    try:
        size = store.size(location)
        if size is None:
            return UnreadableVector(f"{location} does not exist")
        return read_puffin_footer(store, location, size)
    except (InvalidPuffin, ObjectMissing) as error:
        return UnreadableVector(f"{location} cannot be read: {error}")

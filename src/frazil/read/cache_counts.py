"""What the cache of manifests has done so far, for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frazil.read.lru import LruCounts


@dataclass(frozen=True, slots=True)
class KindCounts:
    """One kind of things in memory."""

    hits: int
    """Answers from memory."""
    misses: int
    """Things that had to be read or made, also where another thread was at it already."""
    evictions: int
    entries: int
    size_bytes: int

    @classmethod
    def of(cls, kept: LruCounts, misses: int) -> KindCounts:
        return cls(kept.hits, misses, kept.evictions, kept.entries, kept.size_bytes)


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Files of one kind that came from the object store."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FolderCounts:
    """Columns and statistics that were looked for in the local folder."""

    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class CacheCounts:
    max_bytes: int
    kinds: Mapping[str, KindCounts]
    reads: Mapping[str, ReadCounts]
    folder: FolderCounts | None
    """None where there is no folder."""

"""A cache of immutable objects by location with a byte budget, and the counts for operators."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(slots=True)
class LruCounts:
    """The current size and the history of a cache for one kind of object."""

    hits: int = 0
    evictions: int = 0
    entries: int = 0
    size_bytes: int = 0


class LruByBytes(Generic[V]):
    """Evicts the least recently used objects if it exceeds its size. It is safe for threads."""

    def __init__(self, max_bytes: int, cost: Callable[[V], int], largest: int) -> None:
        """Objects larger than `largest` are not kept, because they would evict everything else."""
        self._max_bytes = max_bytes
        self._cost = cost
        self._largest = largest
        self._bytes = 0
        # Each entry refers to the counts of its kind, so that a hit costs only one addition.
        self._entries: OrderedDict[str, tuple[V, int, LruCounts]] = OrderedDict()
        self._counts: dict[type, LruCounts] = {}
        self._lock = threading.Lock()

    def get(self, location: str) -> V | None:
        with self._lock:
            entry = self._entries.get(location)
            if entry is None:
                return None
            self._entries.move_to_end(location)
            entry[2].hits += 1
            return entry[0]

    def put(self, location: str, value: V) -> None:
        cost = self._cost(value)
        if cost > self._largest:
            return
        with self._lock:
            if location in self._entries:
                return
            counts = self._counts.get(type(value))
            if counts is None:
                counts = self._counts[type(value)] = LruCounts()
            self._entries[location] = (value, cost, counts)
            counts.entries += 1
            counts.size_bytes += cost
            self._bytes += cost
            while self._bytes > self._max_bytes:
                _, entry = self._entries.popitem(last=False)
                self._left(entry)
                entry[2].evictions += 1

    def forget(self, location: str) -> None:
        with self._lock:
            entry = self._entries.pop(location, None)
            if entry is not None:
                self._left(entry)

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return self._bytes

    def counts(self) -> dict[type, LruCounts]:
        """Return the current counts by the type of the cached objects."""
        with self._lock:
            return {kind: replace(counts) for kind, counts in self._counts.items()}

    def _left(self, entry: tuple[V, int, LruCounts]) -> None:
        _, cost, counts = entry
        self._bytes -= cost
        counts.entries -= 1
        counts.size_bytes -= cost


@dataclass(frozen=True, slots=True)
class KindCounts:
    """The counts of one kind of object in memory."""

    hits: int
    """Answers from memory."""
    misses: int
    """Objects that had to be read or made, even if another thread was already doing it."""
    evictions: int
    entries: int
    size_bytes: int

    @classmethod
    def of(cls, kept: LruCounts, misses: int) -> KindCounts:
        return cls(kept.hits, misses, kept.evictions, kept.entries, kept.size_bytes)


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Files of one kind that were read from the object store."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FolderCounts:
    """Columns and statistics that were looked up in the local folder."""

    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class CacheCounts:
    max_bytes: int
    kinds: Mapping[str, KindCounts]
    reads: Mapping[str, ReadCounts]
    folder: FolderCounts | None
    """None if there is no folder."""

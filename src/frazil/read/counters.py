"""Bounds caches by bytes and counts what operators read: hits, sizes and durations."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(slots=True)
class LruCounts:
    """The current size and the history of a cache for one kind of object."""

    hits: int = 0
    """Lookups that were answered from memory."""
    evictions: int = 0
    entries: int = 0
    size_bytes: int = 0
    misses: int = 0
    """Objects that had to be read or made, even if another thread was already doing it. The users
    of a cache count them."""


class LruByBytes(Generic[V]):
    """A cache that evicts the least recently used objects if it exceeds its size. It is
    thread-safe."""

    def __init__(self, max_bytes: int, cost: Callable[[V], int], largest: int) -> None:
        """Create an empty cache. Objects larger than `largest` are not cached, because they
        would evict everything else."""
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

    def get_or_make(self, location: str, make: Callable[[str], V]) -> V:
        """Return what is cached for a location, or make and cache it. Two threads may both make
        it."""
        value = self.get(location)
        if value is None:
            value = make(location)
            self.put(location, value)
        return value

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
class ReadCounts:
    """Files of one kind that were read from the object store."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FolderCounts:
    """Lookups of columns and statistics in the local folder."""

    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class CacheCounts:
    max_bytes: int
    kinds: Mapping[str, LruCounts]
    reads: Mapping[str, ReadCounts]
    folder: FolderCounts | None
    """None if there is no folder."""


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """The current counts of a histogram."""

    bounds: Sequence[float]
    counts: Sequence[int]
    """The number of values for each bound: at most this bound, and above the previous one. The
    last number counts the values above all bounds."""
    total: float


class Histogram:
    """Counts durations or sizes by their magnitude. It is thread-safe."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def add(self, value: float) -> None:
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += 1
            self._total += value

    def read(self) -> HistogramCounts:
        with self._lock:
            return HistogramCounts(self._bounds, tuple(self._counts), self._total)

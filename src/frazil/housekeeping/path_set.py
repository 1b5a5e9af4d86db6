"""Holds the paths of many files in little memory.

A path takes eight bytes, because only a hash of it is held. Two paths with one hash count as equal,
so that a file may be kept for no reason, but is never deleted for that. The hashes differ from
process to process, so nobody can choose paths that collide, and they are never stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.values.path_keys import PathKey

_MIN_WAITING: Final = 1 << 16


class PathSet:
    """A set of paths as sorted hashes, one array for each prefix."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, _Hashes] = {}

    def __len__(self) -> int:
        return sum(len(hashes.sorted()) for hashes in self._by_prefix.values())

    def add(self, keys: Iterable[PathKey]) -> None:
        for prefix, path in keys:
            hashes = self._by_prefix.get(prefix)
            if hashes is None:
                hashes = self._by_prefix[prefix] = _Hashes()
            hashes.add(hash(path))

    def holds(self, keys: Sequence[PathKey]) -> NDArray[np.bool_]:
        """Return for each key whether the set has it."""
        if len(self._by_prefix) <= 1:
            return self._holds_of_one_prefix(keys)
        return np.fromiter((self._has(key) for key in keys), np.bool_, len(keys))

    def other_prefix(self, key: PathKey) -> str | None:
        """Return another prefix under which the set has the path."""
        for prefix, hashes in self._by_prefix.items():
            if prefix != key.prefix and hashes.has(hash(key.path)):
                return prefix
        return None

    def _holds_of_one_prefix(self, keys: Sequence[PathKey]) -> NDArray[np.bool_]:
        for prefix, hashes in self._by_prefix.items():
            wanted = np.fromiter((hash(key.path) for key in keys), np.int64, len(keys))
            same = np.fromiter((key.prefix == prefix for key in keys), np.bool_, len(keys))
            return hashes.holds(wanted) & same
        return np.zeros(len(keys), np.bool_)

    def _has(self, key: PathKey) -> bool:
        hashes = self._by_prefix.get(key.prefix)
        return hashes is not None and hashes.has(hash(key.path))


class _Hashes:
    """A sorted array of hashes, and new ones that wait to be merged into it."""

    def __init__(self) -> None:
        self._sorted: NDArray[np.int64] = np.empty(0, np.int64)
        self._waiting = array("q")

    def add(self, value: int) -> None:
        self._waiting.append(value)
        if len(self._waiting) >= max(_MIN_WAITING, len(self._sorted) // 2):
            self.sorted()

    def sorted(self) -> NDArray[np.int64]:
        if self._waiting:
            self._sorted = np.union1d(self._sorted, np.frombuffer(self._waiting, np.int64))
            self._waiting = array("q")
        return self._sorted

    def holds(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        known = self.sorted()
        if not len(known):
            return np.zeros(len(values), np.bool_)
        found = np.searchsorted(known, values)
        found[found == len(known)] = 0
        return np.equal(known[found], values)

    def has(self, value: int) -> bool:
        known = self.sorted()
        position = int(np.searchsorted(known, value))
        return position < len(known) and int(known[position]) == value

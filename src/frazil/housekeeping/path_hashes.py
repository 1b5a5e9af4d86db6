"""Holds the paths of many files as a set of hashes.

A path takes eight bytes, because only a hash of its key is held. Two paths with one hash count as
equal, so that a file may be kept for no reason, but is never deleted for that. The hashes differ
from process to process, so nobody can choose paths that collide, and they are never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.values.path_keys import PathKeys

Hashes = NDArray[np.int64]

_LEVEL_GROWTH: Final = 4


def path_hashes(keys: PathKeys, paths: Iterable[str]) -> Hashes:
    """Return a hash of the key of each path. It is valid only in this process."""
    return np.array(keys.hashes(paths), np.int64)


class HashSet:
    """A set of hashes as sorted arrays, with eight bytes for each hash.

    The arrays form levels, each several times larger than the next, so that each hash is sorted
    again only a few times.
    """

    def __init__(self) -> None:
        self._levels: list[Hashes] = []

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    def has(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which of the hashes are in the set."""
        found = np.zeros(len(hashes), np.bool_)
        if not len(hashes):
            return found
        for level in self._levels:
            at = np.searchsorted(level, hashes)
            at[at == len(level)] = 0
            found |= level[at] == hashes
        return found

    def add(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Add hashes. Return which of them are the first of their value in the set."""
        is_new = np.zeros(len(hashes), np.bool_)
        distinct, first = np.unique(hashes, return_index=True)
        unknown = ~self.has(distinct)
        is_new[first[unknown]] = True
        level = distinct[unknown]
        if not len(level):
            return is_new
        while self._levels and len(self._levels[-1]) < _LEVEL_GROWTH * len(level):
            level = np.concatenate((self._levels.pop(), level))
            level.sort(kind="stable")
        self._levels.append(level)
        return is_new


def selected(paths: Sequence[str], mask: NDArray[np.bool_]) -> list[str]:
    """Return the paths at which the mask is true."""
    if mask.all():
        return list(paths)
    return [paths[at] for at in np.flatnonzero(mask).tolist()]

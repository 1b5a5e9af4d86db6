"""Finds the manifests that may have a path, by joined path hashes of many manifests.

A commit checks whether its paths are already live, which they rarely are. One search in a joined
array answers that for all manifests in it. The arrays form levels, each several times larger
than the one before, so that each hash is sorted again only a few times. A match may be wrong,
because a level may cover manifests that the table no longer lists. The absence of a match is
certain.

Measured: appends to a table of 1,000 manifests use 1.5 to 1.9 times the CPU time without the
index (see benchmarks/manifest_paths.py).

Small manifests that were just written are cached as the list of their files. Most commits write
a manifest of one file or a few. The next commits search it for paths, and one of them merges it.
Both need only the files. Columns are built on demand. Measured: without this, appends use 1.1 to
1.2 times the CPU time, more than all deletions together may cost.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from frazil.format.manifest.manifest_columns import ManifestColumns, path_hashes
from frazil.format.manifest.manifest_list import ManifestFile
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import ContentFile, DataFile
from frazil.read.counters import LruByBytes, LruCounts

Hashes = NDArray[np.uint64]

_MAX_UNCOVERED_MANIFESTS: Final = 12
"""The number of manifests that are searched one by one before they are joined."""
_LEVEL_GROWTH: Final = 4
_PATH_BYTES: Final = 200
"""The approximate memory of the name of a covered manifest."""


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The sorted path hashes of some manifests."""

    manifests: frozenset[str]
    hashes: Hashes

    def may_hold(self, hashes: Hashes) -> bool:
        if not len(self.hashes):
            return False
        if len(hashes) == 1:
            # This is the usual case. numpy would release the interpreter lock and wait for it
            # again.
            key, own = int(hashes[0]), self.hashes.data
            at = bisect_left(own, key)
            return at < len(own) and own[at] == key
        positions = np.searchsorted(self.hashes, hashes)
        positions[positions == len(self.hashes)] = 0
        return bool((self.hashes[positions] == hashes).any())


@dataclass(frozen=True, slots=True, eq=False)
class PathIndex:
    """The levels of an index, from small to large."""

    levels: tuple[Level, ...] = ()
    covered: frozenset[str] = frozenset()
    """The manifests of all levels."""

    @property
    def size_bytes(self) -> int:
        return sum(
            level.hashes.nbytes + 2 * _PATH_BYTES * len(level.manifests) for level in self.levels
        )

    def candidates(
        self, listed: Sequence[ManifestFile], hashes: Hashes
    ) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """Return the manifests that may have one of the paths, and those that no level covers."""
        covered = self.covered
        uncovered = [manifest for manifest in listed if manifest.manifest_path not in covered]
        excluded = [level.manifests for level in self.levels if not level.may_hold(hashes)]
        if len(excluded) == len(self.levels):
            return uncovered, uncovered
        left_out = frozenset().union(*excluded)
        candidates = [manifest for manifest in listed if manifest.manifest_path not in left_out]
        return candidates, uncovered

    def joined(
        self, listed: Sequence[ManifestFile], added: Sequence[tuple[ManifestFile, Hashed]]
    ) -> PathIndex:
        """Return an index that also covers the added manifests. A level is dropped if the table no
        longer lists half of it. Its other manifests are covered again later."""
        names = frozenset(manifest.manifest_path for manifest, _ in added)
        level = Level(names, _sorted([hashed.sorted_hashes for _, hashed in added]))
        live = {manifest.manifest_path for manifest in listed}
        kept = [
            older
            for older in self.levels
            if 2 * len(older.manifests & live) >= len(older.manifests)
        ]
        while kept and len(kept[0].hashes) < _LEVEL_GROWTH * len(level.hashes):
            other = kept.pop(0)
            hashes = _sorted([level.hashes, other.hashes])
            level = Level(level.manifests | other.manifests, hashes)
        levels = (level, *kept)
        return PathIndex(levels, frozenset().union(*(own.manifests for own in levels)))


def _sorted(arrays: Sequence[Hashes]) -> Hashes:
    joined = np.concatenate(arrays) if arrays else np.empty(0, np.uint64)
    joined.sort(kind="stable")
    return joined


class Hashed(Protocol):
    """The path hashes of a manifest."""

    @property
    def sorted_hashes(self) -> Hashes: ...


class PathIndexes:
    """The index of each table, within a byte budget. It is thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._kept: LruByBytes[PathIndex] = LruByBytes(
            max_bytes, lambda index: index.size_bytes, max_bytes
        )
        self._lock = threading.Lock()

    def candidates(
        self,
        table: str,
        listed: Sequence[ManifestFile],
        hashes: Hashes,
        hashed: Callable[[Sequence[ManifestFile]], Sequence[Hashed]],
    ) -> Sequence[ManifestFile]:
        """Return the manifests of a table that may have one of the paths. `table` is any string
        that identifies the table."""
        if len(listed) <= _MAX_UNCOVERED_MANIFESTS or not len(hashes):
            return listed
        index = self._kept.get(table) or PathIndex()
        candidates, uncovered = index.candidates(listed, hashes)
        if len(uncovered) > _MAX_UNCOVERED_MANIFESTS:
            added = list(zip(uncovered, hashed(uncovered), strict=True))
            with self._lock:
                self._kept.forget(table)
                self._kept.put(table, index.joined(listed, added))
        return candidates

    @property
    def size_bytes(self) -> int:
        return self._kept.size_bytes

    def counts(self) -> dict[type, LruCounts]:
        return self._kept.counts()


MAX_FILES: Final = 128
"""A new manifest with more files is decoded into columns at once.

Measured: with a limit of 16 files an append of 100 files takes 1.12 times as long.
"""
_MANIFEST_BYTES: Final = 8_000
_FILE_BYTES: Final = 2_000
"""The approximate memory of a manifest and of each of its files."""


@dataclass(frozen=True, slots=True, eq=False)
class NewManifest:
    """The files of a new manifest. All are ADDED and inherit the numbers of its snapshot."""

    files: Sequence[ContentFile]
    make_columns: Callable[[], ManifestColumns]
    sorted_hashes: NDArray[np.uint64]
    """The hashes of the paths, in the order that columns use."""
    hashes: frozenset[int]

    @property
    def size_bytes(self) -> int:
        return _MANIFEST_BYTES + _FILE_BYTES * len(self.files)

    def copy_into(self, writer: RollingManifestWriter, listed: ManifestFile) -> None:
        """Write the files as existing entries, with the values that they inherited from the
        list."""
        assert listed.added_snapshot_id is not None
        number, row_id = listed.sequence_number, listed.first_row_id
        for file in self.files:
            entry = file
            if row_id is not None and isinstance(file, DataFile):
                entry = replace(file, first_row_id=row_id)
                row_id += file.record_count
            writer.existing(entry, listed.added_snapshot_id, number, number)


def new_manifest(
    files: Sequence[ContentFile], make_columns: Callable[[], ManifestColumns]
) -> NewManifest:
    hashes = np.sort(path_hashes(file.file_path for file in files))
    return NewManifest(tuple(files), make_columns, hashes, frozenset(hashes.tolist()))

"""Finds delete files and vectors that apply to no live data file any more.

Readers skip them, but every plan reads their entries, and their files stay forever. The rules are
those of the planner (`read/delete_index`; spec, "Scan Planning"):

equality deletes   apply to data files with a smaller sequence number: in an unpartitioned spec to
                   all, otherwise to those in the same spec and partition
position deletes   apply to data files with the same or a smaller sequence number: to the one that
                   they refer to, otherwise to those in the same spec and partition

The search reads all manifests, outside the table's queue. A delete that applies to no file of the
head can apply only to files of manifests that were added since, so a commit in the queue reads
no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from frazil.commit.snapshot.head_changes import live_by_path
from frazil.commit.snapshot.manifest_tree import Head
from frazil.format.manifest.manifest_columns import ManifestColumns, path_hashes
from frazil.format.manifest.manifest_fields import NONE
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import comparable_partition, partitions_of
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.errors import ValidationError
from frazil.wire.file_actions import Replace

_Identity: TypeAlias = tuple[str, int | None]
_NO_FILE: Final = np.iinfo(np.int64).max
"""The smallest sequence number of no data files."""
_CHUNK: Final = 16
"""The number of manifests that are read at once."""


@dataclass(frozen=True, slots=True)
class DanglingDeletes:
    """The deletes that apply to no file of a head."""

    files: frozenset[tuple[_Identity, int]]
    """Identities and sequence numbers."""
    seen: frozenset[tuple[str, int]]
    """The data manifests that have no file to which one of them applies."""
    size_in_bytes: int = 0

    def split(self, size: int) -> Iterator[DanglingDeletes]:
        """Yield parts of at most so many files."""
        files = sorted(self.files, key=repr)
        for start in range(0, len(files), size):
            yield replace(self, files=frozenset(files[start : start + size]))

    def rows(
        self, metadata: TableMetadata, head: Head, reader: ManifestReader
    ) -> list[ManifestRow]:
        """Return those that are live, and dangling, at a newer head."""
        paths = sorted({path for (path, _), _ in self.files})
        live = live_by_path(reader, metadata, head, DELETES, paths)
        targets = _Targets(metadata)
        for row in (row for rows in live.values() for row in rows):
            number = int(row.columns.inherited(row.listed).sequence_number[row.row])
            if (row.identity, number) in self.files:
                targets.add(row, number)
        newer = [listed for listed in head.live(DATA) if _key(listed) not in self.seen]
        return targets.without_files(newer, reader)


class NothingDangling(ValidationError):
    """Other commits have removed the deletes, or brought them back into use."""


class DanglingRemoval(Replace, frozen=True, kw_only=True, tag="replace"):
    """A commit that removes dangling deletes. No request can contain it."""

    dangling: DanglingDeletes


def find_dangling(metadata: TableMetadata, head: Head, reader: ManifestReader) -> DanglingDeletes:
    """Search all live deletes of a head."""
    targets = _Targets(metadata)
    for listed, columns in _in_chunks(head.live(DELETES), reader):
        numbers = columns.inherited(listed).sequence_number
        for row in np.flatnonzero(columns.live()).tolist():
            targets.add(ManifestRow(listed, columns, row), int(numbers[row]))
    data = head.live(DATA)
    rows = targets.without_files(data, reader)
    return DanglingDeletes(
        frozenset((row.identity, row.sequence_number) for row in rows),
        frozenset(map(_key, data)),
        sum(_size(row) for row in rows),
    )


def _key(listed: ManifestFile) -> tuple[str, int]:
    return listed.manifest_path, listed.sequence_number


def _size(row: ManifestRow) -> int:
    size = row.content_size_in_bytes
    return int(row.columns.file_size_in_bytes[row.row]) if size is None else size


def _in_chunks(
    listed: Sequence[ManifestFile], reader: ManifestReader
) -> Iterator[tuple[ManifestFile, ManifestColumns]]:
    for start in range(0, len(listed), _CHUNK):
        yield from reader.with_columns(listed[start : start + _CHUNK])


@dataclass(slots=True)
class _Targets:
    """Deletes, and the data files that each may apply to: a set of files and the greatest sequence
    number."""

    metadata: TableMetadata
    rows: list[ManifestRow] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    """The greatest sequence number of a data file that the delete applies to."""
    paths: dict[int, str] = field(default_factory=dict)
    """The data file of a delete that refers to one."""
    groups: dict[int, int] = field(default_factory=dict)
    """The partition of a delete that refers to none; -1 for all partitions."""
    partitions: dict[tuple[int, tuple[Any, ...]], int] = field(default_factory=dict)

    def add(self, row: ManifestRow, number: int) -> None:
        if number == NONE:
            return  # Without a number it cannot be compared, so it stays.
        at, is_equality = len(self.rows), row.is_equality_delete
        self.rows.append(ManifestRow(row.listed, row.columns, row.row, sequence_number=number))
        self.limits.append(number - 1 if is_equality else number)
        referenced = row.referenced_data_file
        if referenced is not None and not is_equality:
            self.paths[at] = referenced
            return
        spec = self.metadata.spec(row.spec_id)
        if is_equality and (spec is None or spec.is_unpartitioned):
            self.groups[at] = -1
            return
        values = partitions_of(row.columns, spec)[int(row.columns.partition[row.row])]
        key = row.spec_id, comparable_partition(values)
        self.groups[at] = self.partitions.setdefault(key, len(self.partitions))

    def without_files(
        self, data: Sequence[ManifestFile], reader: ManifestReader
    ) -> list[ManifestRow]:
        """Return the deletes that apply to no live file of these manifests."""
        if not self.rows:
            return []
        least = _LeastNumbers(self, self._hashes())
        for listed, columns in _in_chunks(data, reader):
            least.add(listed, columns)
        limits = np.array(self.limits, np.int64)
        return [self.rows[at] for at in np.flatnonzero(least.of_rows() > limits).tolist()]

    def _hashes(self) -> NDArray[np.uint64]:
        """Return the hashes of the referenced paths, in the order of `paths`. A collision only
        keeps a delete."""
        return path_hashes(self.paths.values())


class _LeastNumbers:
    """The smallest sequence number of the live data files of each target."""

    def __init__(self, targets: _Targets, hashes: NDArray[np.uint64]) -> None:
        self._targets = targets
        self._hashes = hashes
        self._of_path = np.full(len(hashes), _NO_FILE, np.int64)
        self._of_group = np.full(len(targets.partitions) + 1, _NO_FILE, np.int64)
        """The last one is that of all partitions, at index -1."""

    def add(self, listed: ManifestFile, columns: ManifestColumns) -> None:
        live = np.flatnonzero(columns.live())
        if not len(live):
            return
        numbers = columns.inherited(listed).sequence_number
        # A file without a number may be as old as any.
        numbers = np.where(numbers == NONE, 0, numbers)[live]
        self._of_group[-1] = min(int(self._of_group[-1]), int(numbers.min()))
        self._add_partitions(listed, columns, live, numbers)
        self._add_paths(columns, live, numbers)

    def _add_partitions(
        self,
        listed: ManifestFile,
        columns: ManifestColumns,
        live: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> None:
        known, spec_id = self._targets.partitions, listed.partition_spec_id
        if not known:
            return
        spec = self._targets.metadata.spec(spec_id)
        groups = [
            known.get((spec_id, comparable_partition(values)))
            for values in partitions_of(columns, spec)
        ]
        least = np.full(len(groups), _NO_FILE, np.int64)
        np.minimum.at(least, columns.partition[live], numbers)
        for group, number in zip(groups, least.tolist(), strict=True):
            if group is not None:
                self._of_group[group] = min(int(self._of_group[group]), number)

    def _add_paths(
        self, columns: ManifestColumns, live: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> None:
        if not len(self._hashes):
            return
        hashes = columns.hashes()[live]
        order = np.lexsort((numbers, hashes))
        hashes, numbers = hashes[order], numbers[order]
        at = np.searchsorted(hashes, self._hashes)
        at[at == len(hashes)] = 0
        found = hashes[at] == self._hashes
        self._of_path[found] = np.minimum(self._of_path[found], numbers[at[found]])

    def of_rows(self) -> NDArray[np.int64]:
        least = np.empty(len(self._targets.rows), np.int64)
        least[list(self._targets.paths)] = self._of_path
        groups = self._targets.groups
        least[list(groups)] = self._of_group[list(groups.values())]
        return least

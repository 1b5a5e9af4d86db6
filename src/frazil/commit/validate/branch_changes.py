"""Finds the changes on a branch since a base snapshot, and the live files at its head."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from frazil.commit.validate.conflict_reports import ConflictingFile, Scope
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.manifest.manifest_fields import ADDED, DELETED, NONE
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile, may_have_live
from frazil.format.metadata.snapshots import Snapshot
from frazil.read.filters import BoundFilter, PartitionSet, Rows, every_row
from frazil.read.history import (
    APPEND,
    DELETE,
    OVERWRITE,
    REPLACE,
    History,
    HistoryManifest,
    PathSet,
    UnknownHistory,
    history_since,
    live_paths,
    live_rows,
    metrics_reader,
)
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow

ADDING_DATA: Final = frozenset({APPEND, OVERWRITE})
ADDING_DELETES: Final = frozenset({OVERWRITE, DELETE})
"""The operations that can add deletes. `replace` deletes no further rows, and `append` adds no
delete files."""
REMOVING: Final = frozenset({OVERWRITE, REPLACE, DELETE})
ANY_OPERATION: Final = frozenset({APPEND, OVERWRITE, REPLACE, DELETE})

Where: TypeAlias = BoundFilter | PartitionSet
_Test: TypeAlias = Callable[[HistoryManifest, ManifestColumns], Any]
"""Returns a mask of the rows of a manifest that pass."""
_Match: TypeAlias = tuple[HistoryManifest, ManifestColumns, Rows]
"""A manifest and the rows of it that a clause is about."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A file that a snapshot since the base removed."""

    file: ConflictingFile
    inside: bool
    """Whether the clause applies to the file."""


class BranchChanges:
    """Looks up the changes of one update's branch. Reads the history once for each base."""

    def __init__(self, scope: Scope, reader: ManifestReader) -> None:
        self.scope = scope
        self.reader = reader
        self._histories: dict[int | None, History | UnknownHistory] = {}

    def history(self, base: int | None) -> History:
        """Return the history since a base. Raises UnknownHistory."""
        known = self._histories.get(base)
        if known is None:
            scope = self.scope
            try:
                known = history_since(scope.metadata, scope.head, base, self.reader)
            except UnknownHistory as unknown:
                known = unknown
            self._histories[base] = known
        if isinstance(known, UnknownHistory):
            raise known
        return known

    def sequence_number(self, base: int | None) -> int:
        """Return the sequence number of the base, or 0 without a base, so that every delete file
        is newer."""
        snapshot = None if base is None else self.scope.metadata.snapshots.bare(base)
        return 0 if snapshot is None else snapshot.sequence_number

    def live_paths(self, content: int, paths: Collection[str]) -> set[str]:
        """Return the paths that are live, before the request or after its earlier updates.

        Clauses ignore the changes of the request itself, but it may rely on files it has just
        added.
        """
        live = live_paths(self.scope.head, content, paths, self.reader)
        live |= live_paths(
            self.scope.present_head, content, self._missing(paths, live), self.reader
        )
        return live

    def live_rows(self, content: int, paths: Collection[str]) -> dict[str, list[ManifestRow]]:
        """Return the same paths with their manifest rows."""
        live = live_rows(self.scope.head, content, paths, self.reader)
        live |= live_rows(self.scope.present_head, content, self._missing(paths, live), self.reader)
        return live

    def _missing(self, paths: Collection[str], live: Collection[str]) -> list[str]:
        """Return the paths that only earlier updates of the request can have added."""
        if len(live) == len(paths) or self.scope.present_head == self.scope.head:
            return []
        return [path for path in paths if path not in live]

    # --- since a base ------------------------------------------------------------------------

    def added_data_files(self, where: Where, base: int | None) -> list[ConflictingFile]:
        history = self.history(base)
        test = _of_status(ADDED, history.snapshot_ids(ADDING_DATA))
        matches = self._rows(history, DATA, ADDING_DATA, where, test, _may_have_added)
        return list(_conflicting_files(history, matches))

    def removed_files(
        self, content: int, where: Where, base: int | None, operations: Collection[str]
    ) -> list[ConflictingFile]:
        history = self.history(base)
        removed, rebased = _of_status(DELETED, history.snapshot_ids(operations)), self.scope.rebased

        def test(manifest: HistoryManifest, columns: ManifestColumns) -> Any:
            rows = removed(manifest, columns)
            return rows & ~vectors_of(columns, rebased) if rebased else rows

        matches = self._rows(history, content, operations, where, test, _may_have_deleted)
        return list(_conflicting_files(history, matches))

    def removals_of(
        self, content: int, paths: Collection[str], where: Where, base: int | None
    ) -> list[Removal]:
        """Return the removals of files with these paths, including those outside the clause."""
        if not paths:
            return []
        history = self.history(base)
        removed, named = _of_status(DELETED, history.snapshot_ids(REMOVING)), PathSet(paths)

        def test(manifest: HistoryManifest, columns: ManifestColumns) -> Any:
            chosen = np.zeros(len(columns), bool)
            among = removed(manifest, columns)
            if among.any():
                chosen[[row for _, row in named.rows(columns, among)]] = True
            return chosen

        everywhere = every_row(self.scope.metadata)
        matches = self._rows(history, content, REMOVING, everywhere, test, _may_have_deleted)
        removals: list[Removal] = []
        for manifest, columns, rows in matches:
            inside = set(self._in(where, manifest, columns, rows).tolist())
            files = _conflicting_files(history, [(manifest, columns, rows)])
            removals += [
                Removal(file, row in inside) for row, file in zip(rows.tolist(), files, strict=True)
            ]
        return removals

    def new_deletes(self, where: Where, base: int | None) -> list[ManifestRow]:
        """Return the delete files added after the base, including those that were removed again."""
        if self.scope.metadata.format_version < 2 or self.scope.head is None:
            return []
        base_number = self.sequence_number(base)

        def newer(manifest: HistoryManifest, columns: ManifestColumns) -> Any:
            numbers = columns.inherited(manifest.listed).sequence_number
            return columns.live() & (numbers > base_number)

        history = self.history(base)
        matches = self._rows(history, DELETES, ADDING_DELETES, where, newer, may_have_live)
        return [entry for match in matches for entry in _delete_entries(*match)]

    def new_deletion_vectors(
        self, data_files: Collection[str], base: int | None
    ) -> list[ManifestRow]:
        """Return the deletion vectors of these data files that were added after the base."""
        wanted = frozenset(data_files)
        history = self.history(base)
        snapshot_ids = history.snapshot_ids(ANY_OPERATION)

        def added(manifest: HistoryManifest, columns: ManifestColumns) -> Any:
            chosen = vectors_of(columns, wanted) & columns.live()
            return chosen & _by_one_of(manifest, columns, snapshot_ids)

        everywhere = every_row(self.scope.metadata)
        matches = self._rows(history, DELETES, ANY_OPERATION, everywhere, added, may_have_live)
        return [entry for match in matches for entry in _delete_entries(*match)]

    def conflicting_deletes(
        self, entries: Iterable[ManifestRow], base: int | None
    ) -> list[ConflictingFile]:
        """Return each delete file once, with the snapshot that added it."""
        history = self.history(base)
        distinct = {entry.identity: entry for entry in entries}
        files: list[ConflictingFile] = []
        for (path, offset), entry in distinct.items():
            snapshot_id = int(entry.columns.inherited(entry.listed).snapshot_id[entry.row])
            operation = history.operation_of(snapshot_id)
            files.append(ConflictingFile(path, offset, snapshot_id, operation))
        return files

    def _rows(
        self,
        history: History,
        content: int,
        operations: Collection[str],
        where: Where,
        test: _Test,
        may_have: Callable[[ManifestFile], bool],
    ) -> Iterator[_Match]:
        """Yield the rows that pass the test and may match the clause."""

        def keep(manifest: HistoryManifest) -> bool:
            listed = manifest.listed
            return may_have(listed) and where.may_match_manifest(listed, manifest.schema)

        for manifest, columns in history.columns(content, operations, keep):
            rows = np.flatnonzero(test(manifest, columns))
            rows = self._in(where, manifest, columns, rows)
            if len(rows):
                yield manifest, columns, rows

    def _in(
        self, where: Where, manifest: HistoryManifest, columns: ManifestColumns, rows: Rows
    ) -> Rows:
        listed = manifest.listed
        metrics_of = metrics_reader(self.reader, listed, columns)
        return where.rows_that_may_match(columns, listed.partition_spec_id, rows, metrics_of)


def vectors_of(columns: ManifestColumns, data_files: frozenset[str]) -> Any:
    """Return a mask of the rows that are deletion vectors of the data files."""
    chosen = np.zeros(len(columns), bool)
    deletes = columns.deletes
    if deletes is None or data_files.isdisjoint(deletes.referenced_data_file):
        return chosen
    referenced = deletes.referenced_data_file
    chosen[[row for row, path in enumerate(referenced) if path in data_files]] = True
    return chosen & (deletes.content_offset != NONE)


def live_vectors(
    head: Snapshot | None, data_files: frozenset[str], reader: ManifestReader
) -> Iterator[ManifestRow]:
    """Yield the live deletion vectors of these data files."""
    if head is None or not data_files:
        return
    listed = [
        manifest
        for manifest in reader.manifest_list(head).manifests
        if manifest.content == DELETES and may_have_live(manifest)
    ]
    for manifest, columns in reader.with_columns(listed):
        chosen = vectors_of(columns, data_files) & columns.live()
        for row in np.flatnonzero(chosen).tolist():
            yield ManifestRow(manifest, columns, row)


def _of_status(status: int, snapshot_ids: Collection[int]) -> _Test:
    """Return a test for rows that one of the snapshots gave this status."""

    def test(manifest: HistoryManifest, columns: ManifestColumns) -> Any:
        return (columns.status == status) & _by_one_of(manifest, columns, snapshot_ids)

    return test


def _by_one_of(
    manifest: HistoryManifest, columns: ManifestColumns, snapshot_ids: Collection[int]
) -> Any:
    """Return a mask of the rows of these snapshots. A manifest has rows of only a few snapshots,
    but a history may have thousands."""
    by = columns.inherited(manifest.listed).snapshot_id
    distinct, at = np.unique(by, return_inverse=True)
    return np.array([snapshot_id in snapshot_ids for snapshot_id in distinct.tolist()], bool)[at]


def _may_have_added(listed: ManifestFile) -> bool:
    """Return whether a manifest may have added files. A missing count may hide some."""
    return listed.added_files_count != 0


def _may_have_deleted(listed: ManifestFile) -> bool:
    return listed.deleted_files_count != 0


def _conflicting_files(history: History, matches: Iterable[_Match]) -> Iterator[ConflictingFile]:
    for manifest, columns, rows in matches:
        by = columns.inherited(manifest.listed).snapshot_id
        offsets = None if columns.deletes is None else columns.deletes.content_offset
        for row in rows.tolist():
            offset = NONE if offsets is None else int(offsets[row])
            snapshot_id = int(by[row])
            yield ConflictingFile(
                columns.path(row),
                None if offset == NONE else offset,
                snapshot_id,
                history.operation_of(snapshot_id) or manifest.operation,
            )


def _delete_entries(
    manifest: HistoryManifest, columns: ManifestColumns, rows: Rows
) -> Iterator[ManifestRow]:
    numbers = columns.inherited(manifest.listed).sequence_number
    for row in rows.tolist():
        yield ManifestRow(manifest.listed, columns, row, int(numbers[row]))

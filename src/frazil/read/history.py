"""The snapshots of a branch since a base, and the manifests that each one added.

This is Java's `MergingSnapshotProducer.validationHistory`. A manifest belongs to the snapshot that
its list names as the one that added it, so manifests that a snapshot only kept are not read again.
The cost depends on the snapshots since the base, not on the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_schema import RecordSchema
from frazil.format.manifest.manifest_columns import ManifestColumns, metrics, path_hashes
from frazil.format.manifest.manifest_list import ManifestFile, ManifestList, may_have_live
from frazil.format.metadata.content_files import FileMetrics
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.pruning.metric_columns import MetricColumns, metrics_of_files
from frazil.read.filters import Bools, MetricsOf
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow

_MAX_SINGLE_ROWS: Final = 100
_SINGLE_ROWS_FRACTION: Final = 1 / 20
"""Single rows are read if there are at most `_MAX_SINGLE_ROWS` and at most one in
`_SINGLE_ROWS_FRACTION` of the manifest."""

APPEND: Final = "append"
OVERWRITE: Final = "overwrite"
REPLACE: Final = "replace"
DELETE: Final = "delete"

_READERS: Final = 8
_LISTS_OF_A_BATCH: Final = 32
_MAX_SINGLE_PATHS: Final = 64
"""More paths are found by looking up every row of a manifest among them."""


class UnknownHistory(Exception):
    """The history between the base and the head is incomplete, because snapshots were expired."""

    def __init__(self, base_snapshot_id: int | None, last_known_id: int | None) -> None:
        super().__init__(
            f"Cannot determine history between starting snapshot {_id(base_snapshot_id)} and the "
            f"last known ancestor {_id(last_known_id)}"
        )


def _id(snapshot_id: int | None) -> str:
    """Format an id like Java's message."""
    return "null" if snapshot_id is None else str(snapshot_id)


@dataclass(frozen=True, slots=True)
class HistoryManifest:
    """A manifest and the snapshot that added it."""

    snapshot_id: int
    operation: str
    listed: ManifestFile
    schema: RecordSchema
    """The schema of the manifest list."""


Prune: TypeAlias = Callable[[HistoryManifest], bool]


class History:
    """The snapshots after a base, up to the head of a branch."""

    def __init__(self, snapshots: tuple[Snapshot, ...], reader: ManifestReader) -> None:
        self.snapshots = snapshots
        """The newest comes first."""
        self._reader = reader
        self._by_id = {snapshot.snapshot_id: snapshot.operation for snapshot in snapshots}

    def operation_of(self, snapshot_id: int) -> str | None:
        """Return the operation, or None for a snapshot that is not part of this history."""
        return self._by_id.get(snapshot_id)

    def snapshot_ids(self, operations: Collection[str]) -> frozenset[int]:
        return frozenset(snapshot.snapshot_id for snapshot, _ in self._of_operations(operations))

    def manifests(self, content: int, operations: Collection[str]) -> Iterator[HistoryManifest]:
        """Return the manifests of one content that snapshots of these operations added."""
        for snapshot, operation, manifest_list in self._lists(operations):
            for listed in manifest_list.manifests:
                if listed.content == content and listed.added_snapshot_id == snapshot.snapshot_id:
                    yield HistoryManifest(
                        snapshot.snapshot_id, operation, listed, manifest_list.schema
                    )

    def columns(
        self, content: int, operations: Collection[str], keep: Prune
    ) -> list[tuple[HistoryManifest, ManifestColumns]]:
        """Return the columns of those manifests that `keep` accepts."""
        manifests = [manifest for manifest in self.manifests(content, operations) if keep(manifest)]
        columns = self._reader.columns_of([manifest.listed for manifest in manifests])
        return list(zip(manifests, columns, strict=True))

    def _lists(self, operations: Collection[str]) -> Iterator[tuple[Snapshot, str, ManifestList]]:
        """Return the lists of the snapshots. Those of a long history are read in parallel."""
        wanted = list(self._of_operations(operations))
        if len(wanted) <= _LISTS_OF_A_BATCH:
            for snapshot, operation in wanted:
                yield snapshot, operation, self._reader.manifest_list(snapshot)
            return
        with ThreadPoolExecutor(_READERS, "frazil-history") as pool:
            # Read in batches, because thousands of lists would not fit into memory.
            for start in range(0, len(wanted), _LISTS_OF_A_BATCH):
                some = wanted[start : start + _LISTS_OF_A_BATCH]
                lists = pool.map(self._reader.manifest_list, [snapshot for snapshot, _ in some])
                for (snapshot, operation), manifest_list in zip(some, lists, strict=True):
                    yield snapshot, operation, manifest_list

    def _of_operations(self, operations: Collection[str]) -> Iterator[tuple[Snapshot, str]]:
        for snapshot in self.snapshots:
            operation = self._by_id[snapshot.snapshot_id]
            # As in Java, snapshots without a summary have no operation and are skipped.
            if operation is not None and operation in operations:
                yield snapshot, operation


def history_since(
    metadata: TableMetadata,
    head: Snapshot | None,
    base_snapshot_id: int | None,
    reader: ManifestReader,
) -> History:
    """Return the history after the base, or the whole history without a base. Raises
    UnknownHistory."""
    snapshots: list[Snapshot] = []
    wanted = None if head is None else head.snapshot_id
    seen: set[int] = set()
    while wanted is not None and wanted != base_snapshot_id:
        snapshot = None if wanted in seen else metadata.snapshots.get(wanted)
        if snapshot is None:
            break
        seen.add(wanted)
        snapshots.append(snapshot)
        wanted = snapshot.parent_snapshot_id
    expired = base_snapshot_id is not None and base_snapshot_id not in metadata.snapshots
    if wanted != base_snapshot_id or (expired and head is not None):
        raise UnknownHistory(base_snapshot_id, snapshots[-1].snapshot_id if snapshots else None)
    return History(tuple(snapshots), reader)


def base_is_refuted(metadata: TableMetadata, head: Snapshot | None, base_snapshot_id: int) -> bool:
    """Return whether a base is certainly not an ancestor of the head.

    If older snapshots were expired, an unknown base may have been an ancestor.
    """
    if head is None:
        return True
    last = head.snapshot_id
    for last in metadata.ancestor_ids(head.snapshot_id):
        if last == base_snapshot_id:
            return False
    oldest = metadata.snapshots.bare(last)
    reaches_the_root = oldest is not None and oldest.parent_snapshot_id is None
    return reaches_the_root or base_snapshot_id in metadata.snapshots


# --- rows ------------------------------------------------------------------------------------


def live_rows(
    snapshot: Snapshot | None, content: int, paths: Collection[str], reader: ManifestReader
) -> dict[str, list[ManifestRow]]:
    """Return the live entries of each of these paths that has any."""
    by_path: dict[str, list[ManifestRow]] = {}
    wanted = PathSet(paths)
    for listed, columns in _live_manifests(snapshot, content, paths, reader):
        for path, row in wanted.rows(columns, columns.live()):
            by_path.setdefault(path, []).append(ManifestRow(listed, columns, row))
    return by_path


def live_paths(
    snapshot: Snapshot | None, content: int, paths: Collection[str], reader: ManifestReader
) -> set[str]:
    """Return the paths that are live. For many paths this is much cheaper than `live_rows`."""
    wanted = PathSet(paths)
    return {
        path
        for _, columns in _live_manifests(snapshot, content, paths, reader)
        for path, _ in wanted.rows(columns, columns.live())
    }


def _live_manifests(
    snapshot: Snapshot | None, content: int, paths: Collection[str], reader: ManifestReader
) -> Iterable[tuple[ManifestFile, ManifestColumns]]:
    if snapshot is None or not paths:
        return ()
    listed = [
        manifest
        for manifest in reader.manifest_list(snapshot).manifests
        if manifest.content == content and may_have_live(manifest)
    ]
    return reader.with_columns(listed)


class PathSet:
    """Finds paths in many manifests."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths if isinstance(paths, frozenset) else frozenset(paths)

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        return np.unique(path_hashes(self._paths))

    def rows(self, columns: ManifestColumns, among: Bools) -> Iterator[tuple[str, int]]:
        """Return the rows with these paths, if `among` contains them."""
        rows = columns.hash_order[self._occurring(columns.sorted_hashes)]
        for row in rows[among[rows]].tolist():
            path = columns.path(row)
            # Two paths may have the same hash.
            if path in self._paths:
                yield path, row

    def _occurring(self, own: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the positions of our hashes in a manifest's sorted hashes."""
        wanted = self._hashes
        if not len(own) or not len(wanted):
            return np.empty(0, np.int64)
        if len(wanted) <= _MAX_SINGLE_PATHS:
            starts, ends = np.searchsorted(own, wanted), np.searchsorted(own, wanted, "right")
            spans = [
                np.arange(*span) for span in zip(starts, ends, strict=True) if span[0] < span[1]
            ]
            return np.concatenate(spans) if spans else np.empty(0, np.int64)
        at = np.searchsorted(wanted, own)
        at[at == len(wanted)] = 0
        return np.flatnonzero(wanted[at] == own)


class ChosenMetrics:
    """Reads the metrics of chosen rows. Each manifest is read once, on demand."""

    def __init__(
        self, reader: ManifestReader, rows: Iterable[tuple[ManifestFile, ManifestColumns, int]]
    ) -> None:
        self._reader = reader
        self._rows: dict[str, tuple[ManifestFile, ManifestColumns, list[int]]] = {}
        self._read: dict[str, dict[int, FileMetrics]] = {}
        for listed, columns, row in rows:
            self._rows.setdefault(listed.manifest_path, (listed, columns, []))[2].append(row)

    def of(self, listed: ManifestFile, row: int) -> FileMetrics:
        path = listed.manifest_path
        if path not in self._read:
            manifest, columns, rows = self._rows[path]
            if _is_alone(self._reader, manifest, columns, len(rows)):
                row_metrics = metrics(self._reader.content(manifest), columns, rows)
                self._read[path] = dict(zip(rows, row_metrics, strict=True))
            else:
                whole = self._reader.metrics(manifest)
                self._read[path] = {row: whole.row(row) for row in rows}
        return self._read[path][row]


def metrics_reader(
    reader: ManifestReader, listed: ManifestFile, columns: ManifestColumns
) -> MetricsOf:
    """Return a function that reads the statistics of a manifest's rows. It reads a few rows
    alone unless all statistics are in memory."""

    def read(rows: NDArray[np.int64]) -> MetricColumns:
        if _is_alone(reader, listed, columns, len(rows)):
            return metrics_of_files(list(metrics(reader.content(listed), columns, rows.tolist())))
        whole = reader.metrics(listed)
        return whole if len(rows) == len(columns) else whole.take(rows)

    return read


def _is_alone(
    reader: ManifestReader, listed: ManifestFile, columns: ManifestColumns, rows: int
) -> bool:
    """Return whether this number of rows is read without the rest of the manifest."""
    few = rows <= _MAX_SINGLE_ROWS and rows < len(columns) * _SINGLE_ROWS_FRACTION
    return few and reader.metrics_at_hand(listed) is None

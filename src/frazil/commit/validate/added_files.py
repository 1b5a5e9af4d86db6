"""Checks the clauses on files added since the base: data files, delete files, and deletes of
data files."""

from __future__ import annotations

from collections.abc import Collection

from frazil.commit.validate.branch_changes import BranchChanges, Where
from frazil.commit.validate.conflict_reports import (
    ConflictingFile,
    Finding,
    file_names,
    since,
    snapshot_names,
    start_again,
)
from frazil.format.manifest.manifest_list import DATA
from frazil.read.delete_index import DeleteIndex, IndexedDataFile
from frazil.read.filters import partitions_of
from frazil.read.history import RowMetrics, live_rows
from frazil.read.manifest_row import ManifestRow
from frazil.wire.file_actions import FileUpdate, Replace


def added_data_files(changes: BranchChanges, where: Where, base: int | None) -> Finding | None:
    found = changes.added_data_files(where, base)
    if not found:
        return None
    message = (
        f"Found conflicting files that can contain records matching {where.text}: "
        f"{file_names(found)}. Added by {snapshot_names(found)}, {since(base)}. "
        f"{start_again(changes.scope.head)}"
    )
    return Finding(message, found)


def added_delete_files(
    changes: BranchChanges, deletes: Collection[ManifestRow], where: Where, base: int | None
) -> Finding | None:
    if not deletes:
        return None
    found = changes.blamed(deletes, base)
    message = (
        f"Found new conflicting delete files that can apply to records matching {where.text}: "
        f"{file_names(found)}. Added by {snapshot_names(found)}, {since(base)}. "
        f"{start_again(changes.scope.head)}"
    )
    return Finding(message, found)


def _keeps_sequence_number(update: FileUpdate) -> bool:
    return isinstance(update, Replace) and update.data_sequence_number is not None


def deletes_of_rewritten_rows(
    changes: BranchChanges, deletes: list[ManifestRow]
) -> list[ManifestRow]:
    """Leave out equality deletes if the rewritten rows keep their sequence number, because the
    deletes still apply to those rows."""
    if not _keeps_sequence_number(changes.scope.update):
        return deletes
    return [entry for entry in deletes if not entry.is_equality_delete]


def new_deletes_for(
    changes: BranchChanges, paths: Collection[str], deletes: list[ManifestRow], base: int | None
) -> Finding | None:
    deleted = _deletes_by_data_file(changes, paths, deletes, base)
    if not deleted:
        return None
    found = changes.blamed((entry for entries in deleted.values() for entry in entries), base)
    kind = "position delete" if _keeps_sequence_number(changes.scope.update) else "delete"
    names = file_names([ConflictingFile(path) for path in deleted])
    message = (
        f"Cannot commit, found new {kind} for replaced data file: {names}. Delete files "
        f"{file_names(found)} were added by {snapshot_names(found)}, {since(base)}; what they "
        "delete would come back. "
        f"{start_again(changes.scope.head)}"
    )
    return Finding(message, found)


def _deletes_by_data_file(
    changes: BranchChanges, paths: Collection[str], deletes: list[ManifestRow], base: int | None
) -> dict[str, list[ManifestRow]]:
    """Return the data files that have new deletes, with these deletes.

    As in Java, the data files are treated as no newer than the base. Their rows are looked up
    only if a delete applies by partition.
    """
    if not deletes or not paths:
        return {}
    number = changes.sequence_number(base)
    equality = [entry for entry in deletes if entry.is_equality_delete]
    delete_metrics = RowMetrics(
        changes.reader, ((entry.listed, entry.columns, entry.row) for entry in equality)
    )
    index = DeleteIndex(
        deletes,
        changes.scope.metadata,
        metrics_of=lambda entry: delete_metrics.of(entry.listed, entry.row),
        allow_replaced_vectors=True,
    )
    rows = _data_file_rows(changes, paths, base) if index.needs_partitions else {}
    metrics = RowMetrics(
        changes.reader, ((row.listed, row.columns, row.row) for row in rows.values())
    )
    deleted: dict[str, list[ManifestRow]] = {}
    for path in dict.fromkeys(paths):
        row = rows.get(path)
        if row is None:
            entries = list(index.for_path(path, number))
        else:
            entries = index.for_data_file(_data_file(changes, path, row, number, metrics))
        if entries:
            deleted[path] = entries
    return deleted


def _data_file(
    changes: BranchChanges, path: str, row: ManifestRow, number: int, metrics: RowMetrics
) -> IndexedDataFile:
    spec = changes.scope.metadata.spec(row.spec_id)
    tuples = row.columns.partitions if spec is None else partitions_of(row.columns, spec)
    partition = tuples[int(row.columns.partition[row.row])]
    return IndexedDataFile(
        path, row.spec_id, partition, number, lambda: metrics.of(row.listed, row.row)
    )


def _data_file_rows(
    changes: BranchChanges, paths: Collection[str], base: int | None
) -> dict[str, ManifestRow]:
    """Look data files up on the head or, if they are no longer live, on the base."""
    scope = changes.scope
    found = live_rows(scope.head, DATA, paths, changes.reader)
    missing = [path for path in paths if path not in found]
    if missing and base is not None:
        found |= live_rows(scope.metadata.snapshot(base), DATA, missing, changes.reader)
    return {path: rows[0] for path, rows in found.items()}

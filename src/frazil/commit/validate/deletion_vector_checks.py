"""Checks that a new deletion vector loses no deletes, independent of the clauses of an update.

A data file has at most one vector, so a new vector must contain the positions of the previous
one. Java looks for concurrent vectors only inside a row delta's conflict filter, and it accepts
a second vector on a file. Both would lose deletes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from frazil.commit.validate.branch_changes import BranchChanges, live_vectors
from frazil.commit.validate.conflict_reports import (
    ConflictingFile,
    Scope,
    conflict_with,
    file_names,
    rejected,
    since,
    snapshot_names,
    start_again,
)
from frazil.format.metadata.content_files import DeleteFile
from frazil.read.history import UnknownHistory
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.conflicts import Conflict
from frazil.wire.declared_content import delete_file_key
from frazil.wire.file_actions import Append, Replace


def check_deletion_vectors(
    scope: Scope, added: Sequence[DeleteFile], reader: ManifestReader
) -> None:
    """Refuse a vector for a data file that got one since the base, and a vector next to a live
    one that is not removed. If the history since the base is unknown, only the live vectors
    are checked. Vectors that are rebased need no check."""
    data_files = frozenset(
        file.referenced_data_file
        for file in added
        if file.content_offset is not None and file.referenced_data_file is not None
    ).difference(scope.rebased)
    if not data_files:
        return
    changes = BranchChanges(scope, reader)
    concurrent = _concurrent(changes, data_files)
    reported = {entry.referenced_data_file for entry in concurrent}
    beside = [
        entry
        for entry in _live_and_kept(scope, data_files, reader)
        if entry.referenced_data_file not in reported
    ]
    conflicts = [
        *([_concurrent_conflict(changes, concurrent)] if concurrent else []),
        *([_beside_conflict(scope, beside)] if beside else []),
    ]
    if conflicts:
        raise rejected(conflicts)


def _concurrent(changes: BranchChanges, data_files: frozenset[str]) -> list[ManifestRow]:
    """Return the vectors added since the base. As in Java, a row delta without a base is checked
    against the whole history. A replace is not, because it names the vectors that it removes,
    and these must be live."""
    update = changes.scope.update
    if update.base_snapshot_id is None and isinstance(update, Replace):
        return []
    try:
        return changes.new_deletion_vectors(data_files, update.base_snapshot_id)
    except UnknownHistory:
        # Checking the live vectors is enough, because the update names the vectors that it removes.
        return []


def _live_and_kept(
    scope: Scope, data_files: frozenset[str], reader: ManifestReader
) -> Iterator[ManifestRow]:
    """Yield the live vectors of these data files that the update does not remove."""
    update = scope.update
    if isinstance(update, Append):
        return
    removed = {delete_file_key(file) for file in update.remove_delete_files}
    for entry in live_vectors(scope.present_head, data_files, reader):
        path, offset = entry.identity
        if (path, offset) not in removed and (path, None) not in removed:
            yield entry


def _concurrent_conflict(changes: BranchChanges, entries: Sequence[ManifestRow]) -> Conflict:
    scope, base = changes.scope, changes.scope.update.base_snapshot_id
    vectors = changes.conflicting_deletes(entries, base)
    message = (
        f"Found concurrently added DV for {_data_files(entries)}: {file_names(vectors)}. "
        f"Added by {snapshot_names(vectors)}, {since(base)}; its deletes would be lost. "
        f"{start_again(scope.head)}"
    )
    return conflict_with(scope, "dv-conflict", message, vectors)


def _beside_conflict(scope: Scope, entries: Sequence[ManifestRow]) -> Conflict:
    vectors = [ConflictingFile(*entry.identity) for entry in entries]
    message = (
        f"Found an existing DV for {_data_files(entries)}: {file_names(vectors)}. A data file has "
        "one deletion vector: put the positions of the existing one into the new one, and name "
        "the existing one in remove-delete-files with its content-offset."
    )
    return conflict_with(scope, "dv-conflict", message, vectors)


def _data_files(entries: Sequence[ManifestRow]) -> str:
    referenced = dict.fromkeys(entry.referenced_data_file or "" for entry in entries)
    return file_names([ConflictingFile(path) for path in referenced])

"""Checks the five clauses of `commit-validations` like Java's MergingSnapshotProducer.

| clause | snapshots since the base | looks at |
|---|---|---|
| not-allowed-added-data-files | append, overwrite | ADDED data files |
| not-allowed-added-delete-files | overwrite, delete | delete files newer than the base |
| not-allowed-new-deletes-for-data-files | overwrite, delete | the same, for named data files |
| required-data-files | overwrite, replace, delete | DELETED data files; with paths the head too |
| required-delete-files | overwrite, replace, delete | the head; DELETED delete files |

A clause that names no files applies to the rows of its filter. Without a filter it applies to
the replaced partitions if the update replaces partitions, otherwise to all rows. All clauses are
checked, so that one answer reports every conflict.

`check_deletion_vectors` also checks, whatever the clauses are, that a new deletion vector loses no
deletes. A data file has at most one vector, so a new vector must contain the positions of the
previous one. Java looks for concurrent vectors only inside a row delta's conflict filter, and it
accepts a second vector on a file. Both would lose deletes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Final

from frazil.commit.validate.branch_changes import REMOVING, BranchChanges, Where, live_vectors
from frazil.commit.validate.conflict_reports import (
    ConflictingFile,
    Finding,
    Scope,
    conflict_with,
    file_names,
    rejected,
    since,
    snapshot_names,
    start_again,
)
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.format.metadata.content_files import DeleteFile
from frazil.read.delete_index import DeleteIndex, IndexedDataFile
from frazil.read.filters import PartitionSet, bound_filter, every_row, partitions_of
from frazil.read.history import ChosenMetrics, UnknownHistory, live_rows
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.conflicts import Conflict, ConflictClause
from frazil.wire.declared_content import delete_file_key
from frazil.wire.file_actions import (
    Append,
    CommitValidation,
    FileUpdate,
    NotAllowedAddedDataFiles,
    NotAllowedAddedDeleteFiles,
    NotAllowedNewDeletesForDataFiles,
    Replace,
    RequiredDataFiles,
    RequiredDeleteFiles,
)

_EXPIRED: Final = (
    "Snapshots in between were expired, so nobody can say what they did. Send as base-snapshot-id "
    "a snapshot from which the history of the branch is still there."
)


def check_validations(scope: Scope, reader: ManifestReader) -> None:
    """Check all clauses of an update. Raises ValidationError with those that fail, and
    BadRequest for a filter that does not bind. `check_base` checks the base snapshots."""
    clauses = scope.update.validations
    # Bind all filters before any file is read, because a wrong filter is an error of the request.
    wheres = [_where(scope, number, clause) for number, clause in enumerate(clauses)]
    changes = BranchChanges(scope, reader)
    conflicts: list[Conflict] = []
    for number, (clause, where) in enumerate(zip(clauses, wheres, strict=True)):
        try:
            finding = _check(clause, changes, where, _base_of(scope.update, clause))
        except UnknownHistory as unknown:
            finding = Finding(f"{unknown}. {_EXPIRED}", ())
        if finding is not None:
            name, message = _name(clause), finding.message
            conflicts.append(conflict_with(scope, name, message, finding.files, number))
    if conflicts:
        raise rejected(conflicts)


def _base_of(update: FileUpdate, clause: CommitValidation) -> int | None:
    own = clause.base_snapshot_id
    return update.base_snapshot_id if own is None else own


def _where(scope: Scope, number: int, clause: CommitValidation) -> Where:
    """Return the rows or partitions that a clause applies to, apart from the files it names."""
    if clause.filter is not None:
        return bound_filter(
            clause.filter,
            scope.metadata,
            case_sensitive=scope.update.case_sensitive,
            json_path=f"{scope.json_prefix}updates[{scope.index}]"
            f".commit-validations[{number}].filter",
        )
    names_files = getattr(clause, "file_paths", None) is not None
    if scope.replaced_partitions is not None and not names_files:
        specs = [scope.metadata.spec(spec_id) for spec_id, _ in scope.replaced_partitions]
        # With an unpartitioned spec the whole table is replaced, whatever specs its files use.
        if all(spec is not None and not spec.is_unpartitioned for spec in specs):
            return PartitionSet(scope.replaced_partitions, scope.metadata)
    return every_row(scope.metadata)


def _name(clause: CommitValidation) -> ConflictClause:
    match clause:
        case NotAllowedAddedDataFiles():
            return "not-allowed-added-data-files"
        case NotAllowedAddedDeleteFiles():
            return "not-allowed-added-delete-files"
        case NotAllowedNewDeletesForDataFiles():
            return "not-allowed-new-deletes-for-data-files"
        case RequiredDataFiles():
            return "required-data-files"
        case RequiredDeleteFiles():
            return "required-delete-files"


def _check(
    clause: CommitValidation, changes: BranchChanges, where: Where, base: int | None
) -> Finding | None:
    match clause:
        case NotAllowedAddedDataFiles():
            return _matching_files(
                changes,
                "Found conflicting files that can contain records matching",
                "Added",
                changes.added_data_files(where, base),
                where,
                base,
            )
        case NotAllowedAddedDeleteFiles():
            deletes = changes.new_deletes(where, base)
            if getattr(changes.scope.update, "rebase_deletion_vectors", False):
                deletes = [entry for entry in deletes if not entry.is_deletion_vector]
            return _added_delete_files(changes, deletes, where, base)
        case NotAllowedNewDeletesForDataFiles():
            deletes = _deletes_of_rewritten_rows(changes, changes.new_deletes(where, base))
            if clause.file_paths is None:
                return _added_delete_files(changes, deletes, where, base)
            return _new_deletes_for(changes, clause.file_paths, deletes, base)
        case RequiredDataFiles():
            if clause.file_paths is None:
                operations = REMOVING - clause.allowed_operations
                return _removed_files(changes, DATA, operations, where, base)
            return _missing_data_files(changes, clause, where, base)
        case RequiredDeleteFiles():
            if clause.file_paths is None:
                return _removed_files(changes, DELETES, REMOVING, where, base)
            return _missing_delete_files(changes, clause, where, base)


def _matching_files(
    changes: BranchChanges,
    problem: str,
    verb: str,
    files: list[ConflictingFile],
    where: Where,
    base: int | None,
) -> Finding | None:
    """Return the finding if any files may match the clause."""
    if not files:
        return None
    message = (
        f"{problem} {where.text}: {file_names(files)}. {verb} by {snapshot_names(files)}, "
        f"{since(base)}. {start_again(changes.scope.head)}"
    )
    return Finding(message, files)


# --- clauses on files added since the base ---------------------------------------------------


def _added_delete_files(
    changes: BranchChanges, deletes: Collection[ManifestRow], where: Where, base: int | None
) -> Finding | None:
    if not deletes:
        return None
    files = changes.conflicting_deletes(deletes, base)
    problem = "Found new conflicting delete files that can apply to records matching"
    return _matching_files(changes, problem, "Added", files, where, base)


def _keeps_sequence_number(update: FileUpdate) -> bool:
    return isinstance(update, Replace) and update.data_sequence_number is not None


def _deletes_of_rewritten_rows(
    changes: BranchChanges, deletes: list[ManifestRow]
) -> list[ManifestRow]:
    """Leave out equality deletes if the rewritten rows keep their sequence number, because the
    deletes still apply to those rows."""
    if not _keeps_sequence_number(changes.scope.update):
        return deletes
    return [entry for entry in deletes if not entry.is_equality_delete]


def _new_deletes_for(
    changes: BranchChanges, paths: Collection[str], deletes: list[ManifestRow], base: int | None
) -> Finding | None:
    deleted = _deletes_by_data_file(changes, paths, deletes, base)
    if not deleted:
        return None
    files = changes.conflicting_deletes(chain.from_iterable(deleted.values()), base)
    kind = "position delete" if _keeps_sequence_number(changes.scope.update) else "delete"
    names = file_names([ConflictingFile(path) for path in deleted])
    message = (
        f"Cannot commit, found new {kind} for replaced data file: {names}. Delete files "
        f"{file_names(files)} were added by {snapshot_names(files)}, {since(base)}; what they "
        "delete would come back. "
        f"{start_again(changes.scope.head)}"
    )
    return Finding(message, files)


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
    delete_metrics = ChosenMetrics(
        changes.reader, ((entry.listed, entry.columns, entry.row) for entry in equality)
    )
    index = DeleteIndex(
        deletes,
        changes.scope.metadata,
        metrics_of=lambda entry: delete_metrics.of(entry.listed, entry.row),
        allow_replaced_vectors=True,
    )
    rows = _data_file_rows(changes, paths, base) if index.needs_partitions else {}
    metrics = ChosenMetrics(
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
    changes: BranchChanges, path: str, row: ManifestRow, number: int, metrics: ChosenMetrics
) -> IndexedDataFile:
    tuples = partitions_of(row.columns, changes.scope.metadata.spec(row.spec_id))
    partition = tuples[int(row.columns.partition[row.row])]
    return IndexedDataFile(
        path, row.spec_id, partition, number, lambda: metrics.of(row.listed, row.row)
    )


def _data_file_rows(
    changes: BranchChanges, paths: Collection[str], base: int | None
) -> dict[str, ManifestRow]:
    """Look data files up on the head or, if they are no longer live, on the base."""
    scope = changes.scope
    by_path = live_rows(scope.head, DATA, paths, changes.reader)
    missing = [path for path in paths if path not in by_path]
    if missing and base is not None:
        by_path |= live_rows(scope.metadata.snapshot(base), DATA, missing, changes.reader)
    return {path: rows[0] for path, rows in by_path.items()}


# --- clauses that require live files ---------------------------------------------------------


def _removed_files(
    changes: BranchChanges,
    content: int,
    operations: Collection[str],
    where: Where,
    base: int | None,
) -> Finding | None:
    files = changes.removed_files(content, where, base, operations)
    kind = "files" if content == DATA else "delete files"
    problem = f"Found conflicting deleted {kind} that can contain records matching"
    return _matching_files(changes, problem, "Removed", files, where, base)


def _missing_data_files(
    changes: BranchChanges, clause: RequiredDataFiles, where: Where, base: int | None
) -> Finding | None:
    """Return the finding if required paths are missing. A path must not have been removed since
    the base, even if it was added again, unless the operation is allowed. Removals outside
    the filter are ignored. All other paths must be live."""
    paths = list(dict.fromkeys(clause.file_paths or ()))
    removals = changes.removals_of(DATA, paths, where, base)
    allowed = clause.allowed_operations
    removed = [
        removal.file
        for removal in removals
        if removal.inside and removal.file.operation not in allowed
    ]
    explained = {removal.file.file_path for removal in removals}
    others = [path for path in paths if path not in explained]
    live = changes.live_paths(DATA, others)
    gone = [ConflictingFile(path) for path in others if path not in live]
    return _missing(changes, "data files", removed, gone, base)


def _missing_delete_files(
    changes: BranchChanges, clause: RequiredDeleteFiles, where: Where, base: int | None
) -> Finding | None:
    """Return the finding if required delete files are not live. Removals outside the filter are
    ignored.

    A path without an offset means all deletes of the file: some of them must be live, and none
    may have been removed since the base, if there is one.
    """
    named = map(delete_file_key, clause.file_paths or ())
    keys = dict.fromkeys(key for key in named if key not in changes.scope.rebased_from)
    live = changes.live_rows(DELETES, list(dict.fromkeys(path for path, _ in keys)))
    missing = [
        (path, offset)
        for path, offset in keys
        if not any(offset in (None, row.content_offset) for row in live.get(path, ()))
    ]
    watched = {path for path, _ in missing}
    if base is not None:
        watched |= {path for path, offset in keys if offset is None}
    elif clause.filter is None:
        # Without a base and a filter, the snapshot that removed a missing file is irrelevant.
        watched = set()
    removals = changes.removals_of(DELETES, watched, where, base)
    removed = [
        removal.file
        for removal in removals
        if removal.inside and _is_wanted(removal.file, keys, missing)
    ]
    explained = {
        key
        for removal in removals
        for key in (
            (removal.file.file_path, removal.file.content_offset),
            (removal.file.file_path, None),
        )
    }
    gone = [ConflictingFile(*key) for key in missing if key not in explained]
    return _missing(changes, "delete files", removed, gone, base)


def _is_wanted(
    removed: ConflictingFile,
    keys: Collection[tuple[str, int | None]],
    missing: Collection[tuple[str, int | None]],
) -> bool:
    key = removed.file_path, removed.content_offset
    return key in missing or (removed.file_path, None) in keys


def _missing(
    changes: BranchChanges,
    kind: str,
    removed: list[ConflictingFile],
    gone: list[ConflictingFile],
    base: int | None,
) -> Finding | None:
    files = [*removed, *gone]
    if not files:
        return None
    message = f"Cannot commit, missing {kind}: {file_names(files)}. "
    if removed:
        message += f"Removed by {snapshot_names(removed)}, {since(base)}. "
    if gone:
        message += f"Not live on the branch {changes.scope.update.branch}: {file_names(gone)}. "
    return Finding(message + start_again(changes.scope.head), files)


# --- deletion vectors, independent of the clauses --------------------------------------------


def check_deletion_vectors(
    scope: Scope, added: Sequence[DeleteFile], reader: ManifestReader
) -> None:
    """Refuse a vector for a data file that got one since the base, and a vector next to a live
    one that is not removed. If the history since the base is unknown, only the live vectors
    are checked."""
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

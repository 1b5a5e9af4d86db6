"""The five clauses of `commit-validations`, judged as Java's MergingSnapshotProducer judges them.

| clause | snapshots since the base | looks at |
|---|---|---|
| not-allowed-added-data-files | append, overwrite | ADDED data files |
| not-allowed-added-delete-files | overwrite, delete | delete files newer than the base |
| not-allowed-new-deletes-for-data-files | overwrite, delete | the same, for named data files |
| required-data-files | overwrite, replace, delete | DELETED data files; with paths the head too |
| required-delete-files | overwrite, replace, delete | the head; DELETED delete files |

A clause that names no files is about the rows of its filter; about the replaced partitions where
the update replaces partitions and there is no filter; otherwise about all rows. All clauses are
judged, so that one answer tells all that stands against a commit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.commit.validate.branch_changes import REMOVING, Evidence, Where
from frazil.commit.validate.conflict_reports import (
    Found,
    Scope,
    conflict_with,
    file_names,
    rejected,
    since,
    snapshot_names,
    start_again,
)
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.read.delete_index import DeleteIndex, IndexedDataFile
from frazil.read.filters import PartitionSet, bound_filter, every_row, partitions_of
from frazil.read.history import RowMetrics, UnknownHistory, live_rows
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.conflicts import Conflict, ConflictClause
from frazil.wire.declared_content import delete_file_key
from frazil.wire.file_actions import (
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


@dataclass(frozen=True, slots=True)
class _Finding:
    """Why a clause does not hold."""

    message: str
    found: Sequence[Found]


def check_validations(scope: Scope, reader: ManifestReader) -> None:
    """Raises ValidationError with all clauses that do not hold, BadRequest for a filter that does
    not bind. That bases are ancestors of the head is for `check_base` to see."""
    clauses = scope.update.validations
    # All filters are bound before any file is read: a wrong one is not the table's fault.
    wheres = [_where(scope, number, clause) for number, clause in enumerate(clauses)]
    evidence = Evidence(scope, reader)
    conflicts: list[Conflict] = []
    for number, (clause, where) in enumerate(zip(clauses, wheres, strict=True)):
        try:
            finding = _judge(clause, evidence, where, _base_of(scope.update, clause))
        except UnknownHistory as unknown:
            finding = _Finding(f"{unknown}. {_EXPIRED}", ())
        if finding is not None:
            name, message = _name(clause), finding.message
            conflicts.append(conflict_with(scope, name, message, finding.found, number))
    if conflicts:
        raise rejected(conflicts)


def _base_of(update: FileUpdate, clause: CommitValidation) -> int | None:
    own = clause.base_snapshot_id
    return update.base_snapshot_id if own is None else own


def _where(scope: Scope, number: int, clause: CommitValidation) -> Where:
    """What a clause is about, apart from the files it names."""
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
        # In an unpartitioned spec the whole table is replaced, whatever specs its files have.
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


def _judge(
    clause: CommitValidation, evidence: Evidence, where: Where, base: int | None
) -> _Finding | None:
    match clause:
        case NotAllowedAddedDataFiles():
            return _added_data_files(evidence, where, base)
        case NotAllowedAddedDeleteFiles():
            return _added_delete_files(evidence, evidence.new_deletes(where, base), where, base)
        case NotAllowedNewDeletesForDataFiles():
            deletes = _that_rewritten_rows_lose(evidence, evidence.new_deletes(where, base))
            if clause.file_paths is None:
                return _added_delete_files(evidence, deletes, where, base)
            return _new_deletes_for(evidence, clause.file_paths, deletes, base)
        case RequiredDataFiles():
            if clause.file_paths is None:
                operations = REMOVING - clause.allowed_operations
                found = evidence.removed_files(DATA, where, base, operations)
                return _removed_files(evidence, "files", found, where, base)
            return _missing_data_files(evidence, clause, where, base)
        case RequiredDeleteFiles():
            if clause.file_paths is None:
                found = evidence.removed_files(DELETES, where, base, REMOVING)
                return _removed_files(evidence, "delete files", found, where, base)
            return _missing_delete_files(evidence, clause, where, base)


# --- what was added --------------------------------------------------------------------------


def _added_data_files(evidence: Evidence, where: Where, base: int | None) -> _Finding | None:
    found = evidence.added_data_files(where, base)
    if not found:
        return None
    message = (
        f"Found conflicting files that can contain records matching {where.text}: "
        f"{file_names(found)}. Added by {snapshot_names(found)}, {since(base)}. "
        f"{start_again(evidence.scope.head)}"
    )
    return _Finding(message, found)


def _added_delete_files(
    evidence: Evidence, deletes: Collection[ManifestRow], where: Where, base: int | None
) -> _Finding | None:
    if not deletes:
        return None
    found = evidence.blamed(deletes, base)
    message = (
        f"Found new conflicting delete files that can apply to records matching {where.text}: "
        f"{file_names(found)}. Added by {snapshot_names(found)}, {since(base)}. "
        f"{start_again(evidence.scope.head)}"
    )
    return _Finding(message, found)


# --- new deletes for data files --------------------------------------------------------------


def _keeps_sequence_number(update: FileUpdate) -> bool:
    return isinstance(update, Replace) and update.data_sequence_number is not None


def _that_rewritten_rows_lose(evidence: Evidence, deletes: list[ManifestRow]) -> list[ManifestRow]:
    """Equality deletes still apply to rewritten rows that keep their old sequence number."""
    if not _keeps_sequence_number(evidence.scope.update):
        return deletes
    return [entry for entry in deletes if not entry.is_equality_delete]


def _new_deletes_for(
    evidence: Evidence, paths: Collection[str], deletes: list[ManifestRow], base: int | None
) -> _Finding | None:
    deleted = _deletes_by_data_file(evidence, paths, deletes, base)
    if not deleted:
        return None
    found = evidence.blamed((entry for entries in deleted.values() for entry in entries), base)
    kind = "position delete" if _keeps_sequence_number(evidence.scope.update) else "delete"
    message = (
        f"Cannot commit, found new {kind} for replaced data file: "
        f"{file_names([Found(path) for path in deleted])}. Delete files {file_names(found)} were "
        f"added by {snapshot_names(found)}, {since(base)}; what they delete would come back. "
        f"{start_again(evidence.scope.head)}"
    )
    return _Finding(message, found)


def _deletes_by_data_file(
    evidence: Evidence, paths: Collection[str], deletes: list[ManifestRow], base: int | None
) -> dict[str, list[ManifestRow]]:
    """The data files among the paths that have a new delete, with these.

    As in Java the data files count as no newer than the base. Where they lie is only looked up if a
    delete applies by partition.
    """
    if not deletes or not paths:
        return {}
    number = evidence.sequence_number(base)
    equality = [entry for entry in deletes if entry.is_equality_delete]
    delete_metrics = RowMetrics(
        evidence.reader, ((entry.listed, entry.columns, entry.row) for entry in equality)
    )
    index = DeleteIndex(
        deletes,
        evidence.scope.metadata,
        metrics_of=lambda entry: delete_metrics.of(entry.listed, entry.row),
        allow_replaced_vectors=True,
    )
    places = _places(evidence, paths, base) if index.needs_partitions else {}
    metrics = RowMetrics(
        evidence.reader, ((at.listed, at.columns, at.row) for at in places.values())
    )
    deleted: dict[str, list[ManifestRow]] = {}
    for path in dict.fromkeys(paths):
        at = places.get(path)
        if at is None:
            entries = list(index.for_path(path, number))
        else:
            entries = index.for_data_file(_data_file(evidence, path, at, number, metrics))
        if entries:
            deleted[path] = entries
    return deleted


def _data_file(
    evidence: Evidence, path: str, at: ManifestRow, number: int, metrics: RowMetrics
) -> IndexedDataFile:
    spec_id = at.listed.partition_spec_id
    spec = evidence.scope.metadata.spec(spec_id)
    tuples = at.columns.partitions if spec is None else partitions_of(at.columns, spec)
    partition = tuples[int(at.columns.partition[at.row])]
    return IndexedDataFile(path, spec_id, partition, number, lambda: metrics.of(at.listed, at.row))


def _places(evidence: Evidence, paths: Collection[str], base: int | None) -> dict[str, ManifestRow]:
    """Where data files are: on the head or, if they are gone, on the base."""
    scope = evidence.scope
    found = live_rows(scope.head, DATA, paths, evidence.reader)
    missing = [path for path in paths if path not in found]
    if missing and base is not None:
        found |= live_rows(scope.metadata.snapshot(base), DATA, missing, evidence.reader)
    return {path: rows[0] for path, rows in found.items()}


# --- what was removed ------------------------------------------------------------------------


def _removed_files(
    evidence: Evidence, kind: str, found: list[Found], where: Where, base: int | None
) -> _Finding | None:
    if not found:
        return None
    message = (
        f"Found conflicting deleted {kind} that can contain records matching {where.text}: "
        f"{file_names(found)}. Removed by {snapshot_names(found)}, {since(base)}. "
        f"{start_again(evidence.scope.head)}"
    )
    return _Finding(message, found)


def _missing_data_files(
    evidence: Evidence, clause: RequiredDataFiles, where: Where, base: int | None
) -> _Finding | None:
    """A path that was removed since the base fails unless the operation is allowed, also if it was
    added again; a removal outside of the filter is ignored. Every other path must be live."""
    paths = list(dict.fromkeys(clause.file_paths or ()))
    removals = evidence.removals_of(DATA, paths, where, base)
    allowed = clause.allowed_operations
    removed = [
        removal.found
        for removal in removals
        if removal.inside and removal.found.operation not in allowed
    ]
    explained = {removal.found.file_path for removal in removals}
    others = [path for path in paths if path not in explained]
    live = evidence.live_paths(DATA, others)
    gone = [Found(path) for path in others if path not in live]
    return _missing(evidence, "data files", removed, gone, base)


def _missing_delete_files(
    evidence: Evidence, clause: RequiredDeleteFiles, where: Where, base: int | None
) -> _Finding | None:
    """Each must be live; a removal outside of the filter is ignored. A path alone stands for all
    that was in the file: something of it must be live, and nothing may have been removed since the
    base, if there is one."""
    keys = dict.fromkeys(delete_file_key(file) for file in clause.file_paths or ())
    live = evidence.live_rows(DELETES, list(dict.fromkeys(path for path, _ in keys)))
    missing = [
        (path, offset)
        for path, offset in keys
        if not any(offset in (None, row.content_offset) for row in live.get(path, ()))
    ]
    watched = {path for path, _ in missing}
    if base is not None:
        watched |= {path for path, offset in keys if offset is None}
    elif clause.filter is None:
        # Nothing more can be learned: what is missing is missing, whoever removed it.
        watched = set()
    removals = evidence.removals_of(DELETES, watched, where, base)
    removed = [
        removal.found
        for removal in removals
        if removal.inside and _is_wanted(removal.found, keys, missing)
    ]
    explained = {
        key
        for removal in removals
        for key in (
            (removal.found.file_path, removal.found.content_offset),
            (removal.found.file_path, None),
        )
    }
    gone = [Found(*key) for key in missing if key not in explained]
    return _missing(evidence, "delete files", removed, gone, base)


def _is_wanted(
    found: Found,
    keys: Collection[tuple[str, int | None]],
    missing: Collection[tuple[str, int | None]],
) -> bool:
    named = found.file_path, found.content_offset
    return named in missing or (found.file_path, None) in keys


def _missing(
    evidence: Evidence, kind: str, removed: list[Found], gone: list[Found], base: int | None
) -> _Finding | None:
    found = [*removed, *gone]
    if not found:
        return None
    message = f"Cannot commit, missing {kind}: {file_names(found)}. "
    if removed:
        message += f"Removed by {snapshot_names(removed)}, {since(base)}. "
    if gone:
        message += f"Not live on the branch {evidence.scope.update.branch}: {file_names(gone)}. "
    return _Finding(message + start_again(evidence.scope.head), found)

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
"""

from __future__ import annotations

from typing import Final

from frazil.commit.validate.added_files import (
    added_data_files,
    added_delete_files,
    deletes_of_rewritten_rows,
    new_deletes_for,
)
from frazil.commit.validate.branch_changes import REMOVING, BranchChanges, Where
from frazil.commit.validate.conflict_reports import Finding, Scope, conflict_with, rejected
from frazil.commit.validate.required_files import (
    missing_data_files,
    missing_delete_files,
    removed_files,
)
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.read.filters import PartitionSet, bound_filter, every_row
from frazil.read.history import UnknownHistory
from frazil.read.manifest_cache import ManifestReader
from frazil.wire.conflicts import Conflict, ConflictClause
from frazil.wire.file_actions import (
    CommitValidation,
    FileUpdate,
    NotAllowedAddedDataFiles,
    NotAllowedAddedDeleteFiles,
    NotAllowedNewDeletesForDataFiles,
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
            finding = _judge(clause, changes, where, _base_of(scope.update, clause))
        except UnknownHistory as unknown:
            finding = Finding(f"{unknown}. {_EXPIRED}", ())
        if finding is not None:
            name, message = _name(clause), finding.message
            conflicts.append(conflict_with(scope, name, message, finding.found, number))
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


def _judge(
    clause: CommitValidation, changes: BranchChanges, where: Where, base: int | None
) -> Finding | None:
    match clause:
        case NotAllowedAddedDataFiles():
            return added_data_files(changes, where, base)
        case NotAllowedAddedDeleteFiles():
            return added_delete_files(changes, changes.new_deletes(where, base), where, base)
        case NotAllowedNewDeletesForDataFiles():
            deletes = deletes_of_rewritten_rows(changes, changes.new_deletes(where, base))
            if clause.file_paths is None:
                return added_delete_files(changes, deletes, where, base)
            return new_deletes_for(changes, clause.file_paths, deletes, base)
        case RequiredDataFiles():
            if clause.file_paths is None:
                operations = REMOVING - clause.allowed_operations
                found = changes.removed_files(DATA, where, base, operations)
                return removed_files(changes, "files", found, where, base)
            return missing_data_files(changes, clause, where, base)
        case RequiredDeleteFiles():
            if clause.file_paths is None:
                found = changes.removed_files(DELETES, where, base, REMOVING)
                return removed_files(changes, "delete files", found, where, base)
            return missing_delete_files(changes, clause, where, base)

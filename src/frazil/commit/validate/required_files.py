"""Checks the clauses that require live files: data files and delete files."""

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
from frazil.format.manifest.manifest_list import DATA, DELETES
from frazil.wire.declared_content import delete_file_key
from frazil.wire.file_actions import RequiredDataFiles, RequiredDeleteFiles


def removed_files(
    changes: BranchChanges, kind: str, found: list[ConflictingFile], where: Where, base: int | None
) -> Finding | None:
    if not found:
        return None
    message = (
        f"Found conflicting deleted {kind} that can contain records matching {where.text}: "
        f"{file_names(found)}. Removed by {snapshot_names(found)}, {since(base)}. "
        f"{start_again(changes.scope.head)}"
    )
    return Finding(message, found)


def missing_data_files(
    changes: BranchChanges, clause: RequiredDataFiles, where: Where, base: int | None
) -> Finding | None:
    """Return the finding if required paths are missing. A path must not have been removed since
    the base, even if it was added again, unless the operation is allowed. Removals outside
    the filter are ignored. All other paths must be live."""
    paths = list(dict.fromkeys(clause.file_paths or ()))
    removals = changes.removals_of(DATA, paths, where, base)
    allowed = clause.allowed_operations
    removed = [
        removal.found
        for removal in removals
        if removal.inside and removal.found.operation not in allowed
    ]
    explained = {removal.found.file_path for removal in removals}
    others = [path for path in paths if path not in explained]
    live = changes.live_paths(DATA, others)
    gone = [ConflictingFile(path) for path in others if path not in live]
    return _missing(changes, "data files", removed, gone, base)


def missing_delete_files(
    changes: BranchChanges, clause: RequiredDeleteFiles, where: Where, base: int | None
) -> Finding | None:
    """Return the finding if required delete files are not live. Removals outside the filter are
    ignored.

    A path without an offset means all deletes of the file: some of them must be live, and none
    may have been removed since the base, if there is one.
    """
    keys = dict.fromkeys(delete_file_key(file) for file in clause.file_paths or ())
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
    gone = [ConflictingFile(*key) for key in missing if key not in explained]
    return _missing(changes, "delete files", removed, gone, base)


def _is_wanted(
    found: ConflictingFile,
    keys: Collection[tuple[str, int | None]],
    missing: Collection[tuple[str, int | None]],
) -> bool:
    named = found.file_path, found.content_offset
    return named in missing or (found.file_path, None) in keys


def _missing(
    changes: BranchChanges,
    kind: str,
    removed: list[ConflictingFile],
    gone: list[ConflictingFile],
    base: int | None,
) -> Finding | None:
    found = [*removed, *gone]
    if not found:
        return None
    message = f"Cannot commit, missing {kind}: {file_names(found)}. "
    if removed:
        message += f"Removed by {snapshot_names(removed)}, {since(base)}. "
    if gone:
        message += f"Not live on the branch {changes.scope.update.branch}: {file_names(gone)}. "
    return Finding(message + start_again(changes.scope.head), found)

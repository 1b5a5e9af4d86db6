"""Defines the scope of an update's checks, and formats the conflicts that they report.

A message begins with the sentence of Java's library, because people search for it. Then it names
the snapshots that caused the conflict and suggests what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from frazil.format.metadata.snapshots import MAIN_BRANCH, Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.history import base_is_refuted
from frazil.wire.conflicts import (
    Conflict,
    ConflictClause,
    ConflictFile,
    ConflictSnapshot,
    conflict,
)
from frazil.wire.errors import ValidationError
from frazil.wire.file_actions import FileUpdate

_SHOWN_FILES: Final = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """An update and the table it is checked against."""

    metadata: TableMetadata
    """The metadata before this update, after the earlier updates of the request."""
    head: Snapshot | None
    """The head of the target branch before the request. Clauses ignore the request's own
    snapshots."""
    update: FileUpdate
    index: int
    """The index of the update in the request's `updates`."""
    replaced_partitions: frozenset[tuple[int, tuple[Any, ...]]] | None = None
    """(spec id, partition) of the files that a `replace-partitions` adds. Clauses without a
    filter apply to these partitions."""
    json_prefix: str = ""
    """The JSON path of the table's part of a transaction, such as `table-changes[1].`."""
    rebased: frozenset[str] = frozenset()
    """The data files whose declared vectors the server merges with the live ones."""
    rebased_from: frozenset[tuple[str, int | None]] = frozenset()
    """The vectors of these data files that the update was made from, and the live ones."""

    @property
    def present_head(self) -> Snapshot | None:
        """Return the head after the earlier updates of the request, which defines "live". A
        branch that does not exist yet starts at main's head."""
        ref = self.metadata.ref(self.update.branch) or self.metadata.ref(MAIN_BRANCH)
        return None if ref is None else self.metadata.snapshot(ref.snapshot_id)


@dataclass(frozen=True, slots=True)
class ConflictingFile:
    """A file that conflicts with a commit, and the snapshot that added or removed it."""

    file_path: str
    content_offset: int | None = None
    snapshot_id: int | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The reason why a clause failed."""

    message: str
    files: Sequence[ConflictingFile]


def rejected(conflicts: Sequence[Conflict]) -> ValidationError:
    """Return the error for these conflicts. Its message is that of the first conflict."""
    message = conflicts[0].message
    more = len(conflicts) - 1
    if more:
        message += f" ({more} more {'conflict' if more == 1 else 'conflicts'} beside this one.)"
    return ValidationError(message, [item.document() for item in conflicts])


def conflict_with(
    scope: Scope,
    clause: ConflictClause,
    message: str,
    files: Iterable[ConflictingFile] = (),
    validation: int | None = None,
) -> Conflict:
    """Return a conflict. `validation` is the index of the clause, or None for a check that
    always runs."""
    conflicting = list(files)
    return conflict(
        clause,
        message,
        update=scope.index,
        validation=validation,
        snapshots=_snapshots(conflicting),
        files=(ConflictFile(file.file_path, file.content_offset) for file in conflicting),
    )


def _snapshots(files: Iterable[ConflictingFile]) -> list[ConflictSnapshot]:
    return [
        ConflictSnapshot(snapshot_id, operation or "unknown")
        for snapshot_id, operation in dict.fromkeys(
            (file.snapshot_id, file.operation) for file in files
        )
        if snapshot_id is not None
    ]


# --- parts of messages -----------------------------------------------------------------------


def file_names(files: Collection[ConflictingFile]) -> str:
    """List the first few files."""
    return _enumerated([_file_name(file) for file in files], _SHOWN_FILES)


def _file_name(file: ConflictingFile) -> str:
    if file.content_offset is None:
        return file.file_path
    return f"{file.file_path} (content-offset {file.content_offset})"


def snapshot_names(files: Iterable[ConflictingFile]) -> str:
    """List the snapshots that caused the conflict, with their operations."""
    snapshots = _snapshots(files)
    named = [f"{snapshot.snapshot_id} ({snapshot.operation})" for snapshot in snapshots]
    return f"snapshot{'s' if len(named) > 1 else ''} {_enumerated(named, _SHOWN_FILES)}"


def _enumerated(names: Sequence[str], shown: int) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def since(base_snapshot_id: int | None) -> str:
    if base_snapshot_id is None:
        return "in a history that counts from its beginning without a base-snapshot-id"
    return f"after the base snapshot {base_snapshot_id}"


def start_again(head: Snapshot | None) -> str:
    at = "" if head is None else f", which is at snapshot {head.snapshot_id}"
    return f"Read the branch as it is now{at}, and build the commit again from there."


# --- the base --------------------------------------------------------------------------------


def check_base(scope: Scope) -> None:
    """Refuse a base of the update or of a clause that is not an ancestor of the head."""
    update = scope.update
    bases: list[tuple[int | None, int | None]] = [(None, update.base_snapshot_id)]
    bases += [(at, clause.base_snapshot_id) for at, clause in enumerate(update.validations)]
    conflicts = [
        _not_an_ancestor(scope, base, validation)
        for validation, base in bases
        if base is not None and base_is_refuted(scope.metadata, scope.head, base)
    ]
    if conflicts:
        raise rejected(conflicts)


def _not_an_ancestor(scope: Scope, base: int, validation: int | None) -> Conflict:
    head, branch = scope.head, scope.update.branch
    if head is None:
        message = f"Snapshot {base} is not an ancestor of null: the branch {branch} has no snapshot"
    else:
        message = (
            f"Snapshot {base} is not an ancestor of {head.snapshot_id}, the head of the branch "
            f"{branch}: the branch was rolled back or replaced, or the snapshot is another one's"
        )
    message += ". Send the snapshot of this branch that the files were made from."
    return conflict_with(scope, "base-not-ancestor", message, validation=validation)

"""The reasons why a commit was rejected: the action, the clause, the snapshots and the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

MAX_CONFLICT_ITEMS: Final = 100
"""The most files and snapshots that a conflict lists; `file-count` counts all files."""

ConflictClause: TypeAlias = Literal[
    "not-allowed-added-data-files",
    "not-allowed-added-delete-files",
    "required-data-files",
    "required-delete-files",
    "not-allowed-new-deletes-for-data-files",
    "duplicate-file",
    "removed-file-not-live",
    "replace-adds-rows",
    "partial-row-filter",
    "base-not-ancestor",
    "dv-conflict",
    "cherry-pick",
    "file-being-deleted",
]
"""The five clauses of a request, and the rules that always hold."""


class ConflictSnapshot(Struct, frozen=True, rename="kebab"):
    """A snapshot after the base that conflicts with the commit."""

    snapshot_id: int
    operation: str


class ConflictFile(Struct, frozen=True, rename="kebab", omit_defaults=True):
    file_path: str
    content_offset: int | None = None


class Conflict(Struct, frozen=True, kw_only=True, rename="kebab"):
    """One reason why a commit was rejected, for people and for programs."""

    update: int
    """Index of the action in the request's `updates`."""
    validation: int | None
    """Index of the clause in `commit-validations`; None for a rule that always holds."""
    clause: ConflictClause
    message: str
    snapshots: tuple[ConflictSnapshot, ...]
    file_count: int
    files: tuple[ConflictFile, ...]
    row_count: int | None = None
    """The number of rows that another commit deleted too; only for deletion vectors."""

    def document(self) -> dict[str, Any]:
        """Return the conflict as a document for `ValidationError`."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        if self.row_count is None:
            del document["row-count"]
        return document


def conflict(
    clause: ConflictClause,
    message: str,
    *,
    update: int,
    validation: int | None = None,
    snapshots: Iterable[ConflictSnapshot] = (),
    files: Iterable[ConflictFile] = (),
) -> Conflict:
    """Build a conflict with shortened lists and the full number of files."""
    all_files = tuple(files)
    return Conflict(
        update=update,
        validation=validation,
        clause=clause,
        message=message,
        snapshots=tuple(snapshots)[:MAX_CONFLICT_ITEMS],
        file_count=len(all_files),
        files=all_files[:MAX_CONFLICT_ITEMS],
    )


def duplicate_paths(conflicts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the files that a rejection reports as already live."""
    for conflict in conflicts:
        if conflict.get("clause") == "duplicate-file":
            for file in conflict.get("files", ()):
                yield str(file["file-path"])

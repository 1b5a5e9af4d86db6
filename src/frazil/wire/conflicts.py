"""Why a commit was rejected, in the answer to it: which action and clause, snapshots and files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

MAX_CONFLICT_ITEMS: Final = 100
"""Files and snapshots that one conflict lists; `file-count` has the whole number of files."""

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
]
"""The five clauses of a request, and what is enforced without being asked for."""


class ConflictSnapshot(Struct, frozen=True, rename="kebab"):
    """A snapshot since the base that stands against the commit."""

    snapshot_id: int
    operation: str


class ConflictFile(Struct, frozen=True, rename="kebab", omit_defaults=True):
    file_path: str
    content_offset: int | None = None


class Conflict(Struct, frozen=True, kw_only=True, rename="kebab"):
    """One reason why a commit was rejected, for a person and for a program."""

    update: int
    """Index of the action in the request's `updates`."""
    validation: int | None
    """Index of the clause in `commit-validations`; None for what is always enforced."""
    clause: ConflictClause
    message: str
    snapshots: tuple[ConflictSnapshot, ...]
    file_count: int
    files: tuple[ConflictFile, ...]

    def document(self) -> dict[str, Any]:
        """As `ValidationError` carries it."""
        document: dict[str, Any] = msgspec.to_builtins(self)
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
    """A conflict whose lists are cut, with the number of files there really are."""
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

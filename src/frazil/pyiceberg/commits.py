"""The body of a commit: PyIceberg's own updates and staged changes, in the order of staging."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from pyiceberg.table.update import TableRequirement, TableUpdate

from frazil.pyiceberg.pending import StagedChange, StagedRef
from frazil.wire.actions import CommitValidation, FileUpdate


def commit_body(requirements: Iterable[TableRequirement], updates: Iterable[TableUpdate]) -> bytes:
    """The bytes of a CommitTableRequest."""
    raw = msgspec.Raw
    return msgspec.json.encode(
        {
            "requirements": [raw(one.model_dump_json().encode()) for one in requirements],
            "updates": _updates_json(updates),
        }
    )


def _updates_json(updates: Iterable[TableUpdate]) -> list[msgspec.Raw]:
    seen: set[tuple[object, ...]] = set()
    found: list[msgspec.Raw] = []
    for update in updates:
        if isinstance(update, StagedRef):
            continue
        if isinstance(update, StagedChange):
            change = _without_repeated_clauses(update.wire, seen)
            found.append(msgspec.Raw(msgspec.json.encode(change)))
        else:
            found.append(msgspec.Raw(update.model_dump_json().encode()))
    return found


def _without_repeated_clauses(change: FileUpdate, seen: set[tuple[object, ...]]) -> FileUpdate:
    """All clauses of a request are about the history before it, so that each is needed once."""
    kept: list[CommitValidation] = []
    for clause in change.validations:
        base = change.base_snapshot_id
        key = (change.branch, base, change.case_sensitive, msgspec.json.encode(clause))
        if clause.filter is None or key not in seen:
            kept.append(clause)
        seen.add(key)
    if len(kept) == len(change.validations):
        return change
    return msgspec.structs.replace(change, commit_validations=tuple(kept))

"""The rows that protect files from deletion and record what is to be deleted.

A commit writes and checks such rows in the transaction of its swap: see `HousekeepingChange`.
Everything else runs in transactions of its own, by `Database.run_rows`. Times are milliseconds by
the clock of the database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from frazil.db.housekeeping_changes import (
    CheckAddedPaths,
    CheckUnleased,
    HousekeepingChange,
    RecordDefinitions,
    RecordExpired,
    RecordPurge,
    RestorePurged,
    RestoreSnapshots,
    RetireMetadata,
    StartDeletion,
)
from frazil.db.sql import Fetch, Row, Statements
from frazil.values.path_keys import PathKeys
from frazil.wire.conflicts import ConflictFile, conflict
from frazil.wire.errors import ValidationError

_MAX_KEY_CHARACTERS: Final = 600
_PATHS_AT_ONCE: Final = 5_000


class DeletionState(StrEnum):
    """How far a deletion is."""

    QUARANTINED = "quarantined"
    """Unreachable, and to be deleted later."""
    DELETING = "deleting"
    """May be gone already."""


class IntentState(StrEnum):
    LIVE = "live"
    """Live if it has not expired."""
    ENDED = "ended"
    SWEPT = "swept"
    """Uncommitted files below the prefix may be gone already."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    lease_id: str
    uuid: str
    snapshot_id: int
    principal: str
    holder: str
    created_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class IntentRow:
    intent_id: str
    uuid: str
    prefix: str
    principal: str
    holder: str
    state: IntentState
    created_ms: int
    expires_ms: int
    ended_ms: int | None = None

    def is_live(self, now_ms: int) -> bool:
        return self.state is IntentState.LIVE and self.expires_ms > now_ms


@dataclass(frozen=True, slots=True)
class ExpiredSnapshotRow:
    uuid: str
    snapshot_id: int
    snapshot: bytes
    """The JSON of the snapshot, as it was in the metadata."""
    statistics: tuple[str, ...]
    """The statistics files that were removed with it."""
    state: DeletionState
    expired_ms: int
    delete_after_ms: int


@dataclass(frozen=True, slots=True)
class DoomedFileRow:
    uuid: str
    path: str
    reason: str
    size_bytes: int | None
    state: DeletionState
    found_ms: int
    delete_after_ms: int


@dataclass(frozen=True, slots=True)
class PurgedTableRow:
    uuid: str
    namespace_key: str
    name: str
    metadata_location: str
    locations: tuple[str, ...]
    state: DeletionState
    purged_ms: int
    delete_after_ms: int


# --- what a commit writes and checks after its swap ------------------------------------------


class RowsMoved(Exception):
    """A row is no longer as the caller has read it. Read again."""


def apply_housekeeping(sql: Statements, changes: Sequence[HousekeepingChange]) -> None:
    """Apply the changes. Raises RowsMoved, or ValidationError for a path."""
    if not changes:
        return
    usual = (CheckAddedPaths, RetireMetadata)
    others = [change for change in changes if not isinstance(change, usual)]
    doomed: dict[str, Row] = {}
    for change in changes:
        if isinstance(change, RetireMetadata):
            doomed[change.uuid] = _retire_metadata(sql, change)
    for change in changes:
        if isinstance(change, CheckAddedPaths):
            _check_added_paths(sql, change, doomed.get(change.uuid))
    # Usual commits do not ask for the time.
    now_ms = database_now_ms(sql) if others else 0
    for change in others:
        _APPLY[type(change)](sql, change, now_ms)


def _record_expired(sql: Statements, change: RecordExpired, now_ms: int) -> None:
    delete_after_ms = now_ms + change.quarantine_ms
    sql.execute_many(
        "insert_expired_snapshot",
        [
            {
                "uuid": change.uuid,
                "snapshot_id": snapshot_id,
                "snapshot": snapshot,
                "statistics": json.dumps(statistics),
                "now_ms": now_ms,
                "delete_after_ms": delete_after_ms,
            }
            for snapshot_id, snapshot, statistics in change.snapshots
        ],
    )


def _record_definitions(sql: Statements, change: RecordDefinitions, now_ms: int) -> None:
    sql.execute_many(
        "insert_removed_definition",
        [
            {
                "uuid": change.uuid,
                "kind": kind,
                "id": definition_id,
                "definition": definition,
                "now_ms": now_ms,
            }
            for kind, definition_id, definition in change.definitions
        ],
    )


def _retire_metadata(sql: Statements, change: RetireMetadata) -> Row:
    """Record the files, and return the answer of `has_doomed_files`, which saves a round trip."""
    rows = [
        sql.fetch("insert_retired_metadata", {"uuid": change.uuid, "path": path})[0]
        for path in change.paths
    ]
    return rows[-1]


def _record_purge(sql: Statements, change: RecordPurge, now_ms: int) -> None:
    sql.execute(
        "insert_purged_table",
        {
            "uuid": change.uuid,
            "namespace": change.namespace_key,
            "name": change.name,
            "metadata_location": change.metadata_location,
            "locations": json.dumps(change.locations),
            "now_ms": now_ms,
            "delete_after_ms": now_ms + change.quarantine_ms,
        },
    )


def _check_added_paths(sql: Statements, change: CheckAddedPaths, doomed: Row | None) -> None:
    if doomed is None:
        doomed = sql.fetch("has_doomed_files", {"uuid": change.uuid})[0]
    has_files, has_swept = doomed
    gone: list[str] = []
    if has_files:
        for keys in _in_lists(path_keys(change.paths)):
            gone += [
                row[0]
                for row in sql.fetch(
                    "files_being_deleted", {"uuid": change.uuid, "path_keys": keys}
                )
            ]
            sql.execute("release_doomed_files", {"uuid": change.uuid, "path_keys": keys})
    if has_swept:
        gone += _below_swept(sql, change)
    if gone:
        raise _being_deleted(change.update, sorted(set(gone)))


def _below_swept(sql: Statements, change: CheckAddedPaths) -> list[str]:
    keys = PathKeys(decode=False)
    texts = {path: str(keys.of(path)) for path in change.paths}
    folders = {folder for text in texts.values() for folder in folders_above(text)}
    swept: set[str] = set()
    for prefixes in _in_lists(sorted(folders)):
        asked = {"uuid": change.uuid, "prefixes": prefixes}
        swept.update(row[0] for row in sql.fetch("swept_prefixes", asked))
    if not swept:
        return []
    return [path for path, text in texts.items() if not swept.isdisjoint(folders_above(text))]


def _being_deleted(update: int, paths: Sequence[str]) -> ValidationError:
    message = (
        f"{paths[0]} is being deleted, because nothing named it and the intent of its writer has "
        "ended, or its time in quarantine is over; write the rows to a new file"
    )
    found = conflict(
        "file-being-deleted", message, update=update, files=[ConflictFile(path) for path in paths]
    )
    return ValidationError(message, [found.document()])


def _check_unleased(sql: Statements, change: CheckUnleased, now_ms: int) -> None:
    for ids in _in_lists(change.snapshot_ids):
        asked = {"uuid": change.uuid, "now_ms": now_ms, "snapshot_ids": ids}
        if sql.fetch("leased_among", asked):
            raise RowsMoved


def _restore_snapshots(sql: Statements, change: RestoreSnapshots, now_ms: int) -> None:
    for snapshot_id in change.snapshot_ids:
        key = {"uuid": change.uuid, "snapshot_id": snapshot_id}
        if not sql.execute("take_expired_snapshot", key):
            raise RowsMoved


def _restore_purged(sql: Statements, change: RestorePurged, now_ms: int) -> None:
    if not sql.execute("take_purged_table", {"uuid": change.uuid}):
        raise RowsMoved


def take_back_purged(sql: Statements, uuid: str) -> None:
    """Cancel the purge of a table that is registered again. Raises ValidationError if its files are
    being deleted."""
    row = purged_table(sql, uuid)
    if row is None:
        return
    if not sql.execute("take_purged_table", {"uuid": uuid}):
        raise ValidationError(
            f"the table with UUID {uuid} was purged, and its files are being deleted"
        )


def _start_deletion(sql: Statements, change: StartDeletion, now_ms: int) -> None:
    _check_unleased(sql, CheckUnleased(change.uuid, change.snapshot_ids), now_ms)
    for intent_id in change.intent_ids:
        if not sql.execute("sweep_intent", {"intent_id": intent_id, "now_ms": now_ms}):
            raise RowsMoved
    for snapshot_id in change.snapshot_ids:
        key = {"uuid": change.uuid, "snapshot_id": snapshot_id}
        if not sql.execute("delete_expired_snapshot", key):
            raise RowsMoved
    if change.purged and not sql.execute("delete_purged_table", {"uuid": change.uuid}):
        raise RowsMoved
    if change.files:
        state = DeletionState.DELETING
        rows = doomed_parameters(change.uuid, change.files, state, now_ms, now_ms)
        sql.execute_many("insert_doomed_file", rows)


_APPLY: Final[dict[type, Callable[[Statements, Any, int], None]]] = {
    RecordExpired: _record_expired,
    RecordDefinitions: _record_definitions,
    RecordPurge: _record_purge,
    CheckUnleased: _check_unleased,
    RestoreSnapshots: _restore_snapshots,
    RestorePurged: _restore_purged,
    StartDeletion: _start_deletion,
}


# --- rows --------------------------------------------------------------------------------------


def database_now_ms(sql: Fetch) -> int:
    """Return the time by the database's clock."""
    now_ms: int = sql.fetch("now_ms", {})[0][0]
    return now_ms


def path_key(path: str) -> str:
    """Return the key of a path, which is the same for every spelling of it."""
    return path_keys([path])[0]


def path_keys(paths: Iterable[str]) -> list[str]:
    """Return the keys of many paths."""
    keys = PathKeys(decode=False)
    return [_indexable(str(keys.of(path))) for path in paths]


def _indexable(text: str) -> str:
    """Hash a very long text, because PostgreSQL cannot index it."""
    if len(text) <= _MAX_KEY_CHARACTERS:
        return text
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def folders_above(path: str) -> Iterator[str]:
    """Yield every folder that has the path below it, without a slash at the end."""
    folder = path.rpartition("/")[0]
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def doomed_parameters(
    uuid: str,
    files: Sequence[tuple[str, str, int | None]],
    state: DeletionState,
    now_ms: int,
    delete_after_ms: int,
) -> list[dict[str, Any]]:
    """Return the parameters of `insert_doomed_file` for each path with its reason and size."""
    keys = path_keys(path for path, _, _ in files)
    return [
        {
            "uuid": uuid,
            "path_key": key,
            "path": path,
            "reason": reason,
            "size_bytes": size_bytes,
            "state": state.value,
            "now_ms": now_ms,
            "delete_after_ms": delete_after_ms,
        }
        for key, (path, reason, size_bytes) in zip(keys, files, strict=True)
    ]


def lease_row(lease_id: str, row: Row) -> LeaseRow:
    """Return the row of the query `lease`."""
    return LeaseRow(lease_id, *row)


def live_leases(sql: Fetch, uuid: str, now_ms: int) -> list[LeaseRow]:
    found = sql.fetch("live_leases", {"uuid": uuid, "now_ms": now_ms})
    return [LeaseRow(lease_id, uuid, *rest) for lease_id, *rest in found]


def intent_row(intent_id: str, row: Row) -> IntentRow:
    """Return the row of the query `intent`."""
    uuid, prefix, principal, holder, state, *times = row
    return IntentRow(intent_id, uuid, prefix, principal, holder, IntentState(state), *times)


def intents_of(sql: Fetch, uuid: str) -> list[IntentRow]:
    found = sql.fetch("intents_of", {"uuid": uuid})
    return [intent_row(intent_id, (uuid, *rest)) for intent_id, *rest in found]


def expired_snapshots(sql: Fetch, uuid: str) -> list[ExpiredSnapshotRow]:
    return [_expired(uuid, row) for row in sql.fetch("expired_snapshots", {"uuid": uuid})]


def expired_snapshot(sql: Fetch, uuid: str, snapshot_id: int) -> ExpiredSnapshotRow | None:
    found = sql.fetch("expired_snapshot", {"uuid": uuid, "snapshot_id": snapshot_id})
    return _expired(uuid, found[0]) if found else None


def _expired(uuid: str, row: Row) -> ExpiredSnapshotRow:
    snapshot_id, snapshot, statistics, state, *times = row
    paths = tuple(json.loads(statistics))
    return ExpiredSnapshotRow(
        uuid, snapshot_id, bytes(snapshot), paths, DeletionState(state), *times
    )


def doomed_files(sql: Fetch, uuid: str, page: int = 10_000) -> Iterator[DoomedFileRow]:
    """Yield the files to delete of a table, page by page."""
    after = ""
    while True:
        found = sql.fetch("doomed_files", {"uuid": uuid, "after": after, "limit": page})
        yield from (_doomed(uuid, row) for row in found)
        if len(found) < page:
            return
        after = found[-1][0]


def doomed_file(sql: Fetch, uuid: str, path: str) -> DoomedFileRow | None:
    found = sql.fetch("doomed_file", {"uuid": uuid, "path_key": path_key(path)})
    return _doomed(uuid, found[0]) if found else None


def _doomed(uuid: str, row: Row) -> DoomedFileRow:
    _, path, reason, size_bytes, state, *times = row
    return DoomedFileRow(uuid, path, reason, size_bytes, DeletionState(state), *times)


def purged_tables(sql: Fetch) -> list[PurgedTableRow]:
    return [_purged(row) for row in sql.fetch("purged_tables", {})]


def purged_table(sql: Fetch, uuid: str) -> PurgedTableRow | None:
    found = sql.fetch("purged_table", {"uuid": uuid})
    return _purged(found[0]) if found else None


def _purged(row: Row) -> PurgedTableRow:
    uuid, namespace, name, metadata_location, locations, state, *times = row
    return PurgedTableRow(
        uuid,
        namespace,
        name,
        metadata_location,
        tuple(json.loads(locations)),
        DeletionState(state),
        *times,
    )


def _in_lists(values: Iterable[str] | Iterable[int]) -> Iterator[str]:
    """Yield JSON lists of the values, each short enough for one statement."""
    items = list(values)
    for start in range(0, len(items), _PATHS_AT_ONCE):
        yield json.dumps(items[start : start + _PATHS_AT_ONCE], ensure_ascii=False)

"""Takes leases on snapshots, so that their files stay as long as somebody reads them.

A lease and a commit of its table wait for each other at the row of the table. So either the lease
sees that the snapshot is gone, or the commit that wants to expire the snapshot sees the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from frazil.db.housekeeping_rows import DeletionState, database_now_ms, expired_snapshot
from frazil.db.rows import Database, text
from frazil.db.sql import Statements
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import (
    BadRequest,
    NoSuchTable,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)

MAX_LIVE_LEASES: Final = 10_000
"""The live leases of one table that clients may take. Those of plans do not count."""
_ATTEMPTS: Final = 20


class LoadedState(Protocol):
    """A table as it was loaded."""

    @property
    def metadata(self) -> TableMetadata: ...

    @property
    def metadata_location(self) -> str | None: ...

    @property
    def relation_uuid(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class WantedLease:
    lease_id: str
    snapshot_id: int
    principal: str
    holder: str


class _PointerMoved(Exception):
    """The table has changed since it was loaded."""


def store_leases(
    database: Database,
    load: Callable[[], LoadedState],
    leases: Sequence[WantedLease],
    ttl_ms: int,
    *,
    loaded: LoadedState | None = None,
    max_live: int | None = None,
) -> int:
    """Store or renew leases; return when they end, by the database's clock.

    `max_live` limits the leases that clients have on the table.

    `loaded` is the table if the caller has just loaded it. Raises NotFound if a snapshot is neither
    in the table nor in quarantine, and DatabaseUnavailable.
    """
    for _ in range(_ATTEMPTS):
        table = loaded or load()
        loaded = None
        try:
            return database.run_rows(
                lambda sql, table=table: _store(sql, table, leases, ttl_ms, max_live)  # type: ignore[misc]
            )
        except _PointerMoved:
            continue
    raise ServiceUnavailable("the table changes too often to take a lease now: try again")


def _store(
    sql: Statements,
    table: LoadedState,
    leases: Sequence[WantedLease],
    ttl_ms: int,
    max_live: int | None,
) -> int:
    uuid = table.relation_uuid
    current = sql.fetch("share_relation", {"uuid": uuid})
    if uuid is None or not current:
        raise NoSuchTable("Table does not exist any more")
    if current[0][0] != table.metadata_location:
        raise _PointerMoved
    for lease in leases:
        _check_snapshot(sql, uuid, table.metadata, lease.snapshot_id)
    now_ms = database_now_ms(sql)
    if max_live is not None:
        _check_count(sql, uuid, now_ms, max_live)
        for lease in leases:
            _check_id(sql, uuid, lease)
    expires_ms = now_ms + ttl_ms
    rows = [
        {
            "lease_id": text(lease.lease_id, "lease-id"),
            "uuid": uuid,
            "snapshot_id": lease.snapshot_id,
            "principal": lease.principal,
            "holder": text(lease.holder, "holder"),
            "now_ms": now_ms,
            "expires_ms": expires_ms,
        }
        for lease in leases
    ]
    sql.execute_many("store_lease", rows)
    return expires_ms


def _check_snapshot(sql: Statements, uuid: str, metadata: TableMetadata, snapshot_id: int) -> None:
    if metadata.snapshot(snapshot_id) is not None:
        return
    expired = expired_snapshot(sql, uuid, snapshot_id)
    if expired is None or expired.state is not DeletionState.QUARANTINED:
        raise NotFound(f"snapshot-id: the table has no snapshot {snapshot_id}; it may have expired")


def _check_id(sql: Statements, uuid: str, lease: WantedLease) -> None:
    """Refuse the id of another lease, because renewing that one would protect nothing here."""
    wanted = uuid, lease.snapshot_id, lease.principal
    for known in sql.fetch("lease", {"lease_id": text(lease.lease_id, "lease-id")}):
        if tuple(known[:3]) != wanted:
            raise BadRequest("lease-id: it is that of another lease: draw a new UUID")


def _check_count(sql: Statements, uuid: str, now_ms: int, max_live: int) -> None:
    count = sql.fetch("count_leases", {"uuid": uuid, "now_ms": now_ms})[0][0]
    if count >= max_live:
        raise TooManyRequests(
            f"the table has {count} leases, and at most {max_live} are allowed: release some"
        )

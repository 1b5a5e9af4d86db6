"""Leases that clients take on snapshots: take, renew, release, list."""

from __future__ import annotations

from typing import Final, Protocol
from uuid import uuid4

from frazil.commit.pipeline.catalog_answers import LoadedTable
from frazil.commit.pipeline.pending_requests import Context
from frazil.db.base import Relation
from frazil.db.housekeeping_rows import LeaseRow, database_now_ms, lease_row
from frazil.db.rows import Database, text
from frazil.db.sql import Statements
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.snapshot_leases import MAX_LIVE_LEASES, WantedLease, store_leases
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.identifiers import Identifier
from frazil.wire.leases import (
    LEASE_TTL_MS,
    LeaseResponse,
    ListedLease,
    ListLeasesResponse,
    RenewRequest,
    TakeLeaseRequest,
)

_MAX_LISTED: Final = 2 * MAX_LIVE_LEASES
"""All leases of clients, and many of scan plans."""


class LeasedTables(Protocol):
    """The part of the catalog that leases use."""

    @property
    def database(self) -> Database: ...

    def load_table(self, identifier: Identifier) -> LoadedTable: ...

    def table_row(self, identifier: Identifier) -> Relation: ...


class Leases:
    """A lease belongs to the principal that took it. Only that one may renew it.

    Whoever may change tables may also release the leases of others, so that a lease that was
    forgotten does not hold up a deletion for days.
    """

    def __init__(self, tables: LeasedTables, max_live: int = MAX_LIVE_LEASES) -> None:
        self._tables = tables
        self._max_live = max_live

    def take(
        self, context: Context, identifier: Identifier, request: TakeLeaseRequest
    ) -> LeaseResponse:
        if request.snapshot_id is not None and request.ref is not None:
            raise BadRequest("snapshot-id: cannot stand beside ref: send one of them")
        loaded = self._tables.load_table(identifier)
        snapshot_id = _snapshot_id(loaded.metadata, request)
        lease = WantedLease(
            str(uuid4()), snapshot_id, context.principal, request.holder or context.principal
        )
        expires_ms = store_leases(
            self._tables.database,
            lambda: self._tables.load_table(identifier),
            [lease],
            request.ttl_ms or LEASE_TTL_MS,
            loaded=loaded,
            max_live=self._max_live,
        )
        return LeaseResponse(lease.lease_id, snapshot_id, expires_ms)

    def renew(
        self, context: Context, identifier: Identifier, lease_id: str, request: RenewRequest
    ) -> LeaseResponse:
        uuid = self._uuid(identifier)

        def work(sql: Statements) -> LeaseResponse:
            # A commit that wants to expire the snapshot comes before this, or sees the new time.
            sql.fetch("share_relation", {"uuid": uuid})
            now_ms = database_now_ms(sql)
            lease = _live(sql, uuid, lease_id, now_ms)
            if lease is None or lease.principal != context.principal:
                raise _missing(identifier, lease_id)
            expires_ms = now_ms + (request.ttl_ms or LEASE_TTL_MS)
            if not sql.execute(
                "renew_lease", {"lease_id": lease_id, "now_ms": now_ms, "expires_ms": expires_ms}
            ):
                raise _missing(identifier, lease_id)
            return LeaseResponse(lease_id, lease.snapshot_id, max(expires_ms, lease.expires_ms))

        return self._tables.database.run_rows(work)

    def release(self, context: Context, identifier: Identifier, lease_id: str) -> None:
        uuid = self._uuid(identifier)

        def work(sql: Statements) -> None:
            lease = _live(sql, uuid, lease_id, database_now_ms(sql))
            if lease is None or (context.read_only and lease.principal != context.principal):
                raise _missing(identifier, lease_id)
            sql.execute("drop_lease", {"lease_id": lease_id})

        self._tables.database.run_rows(work)

    def list(self, identifier: Identifier) -> ListLeasesResponse:
        uuid, database = self._uuid(identifier), self._tables.database
        asked = {"uuid": uuid, "now_ms": database_now_ms(database), "limit": _MAX_LISTED}
        rows = database.fetch("listed_leases", asked)
        return ListLeasesResponse(tuple(ListedLease(*row) for row in rows))

    def _uuid(self, identifier: Identifier) -> str:
        return self._tables.table_row(identifier).uuid


def _snapshot_id(metadata: TableMetadata, request: TakeLeaseRequest) -> int:
    if request.snapshot_id is not None:
        return request.snapshot_id
    if request.ref is None:
        if metadata.current_snapshot is None:
            raise NotFound("the table has no snapshot yet, so there is nothing to lease")
        return metadata.current_snapshot.snapshot_id
    ref = metadata.refs.get(request.ref)
    if ref is None:
        raise NotFound(f"ref: the table has no branch or tag {request.ref!r}")
    return ref.snapshot_id


def _live(sql: Statements, uuid: str, lease_id: str, now_ms: int) -> LeaseRow | None:
    found = sql.fetch("lease", {"lease_id": text(lease_id, "lease-id")})
    lease = lease_row(lease_id, found[0]) if found else None
    is_live = lease is not None and lease.uuid == uuid and lease.expires_ms > now_ms
    return lease if is_live else None


def _missing(identifier: Identifier, lease_id: str) -> NotFound:
    return NotFound(
        f"{identifier} has no lease {lease_id[:64]!r} of yours; it may have ended. GET the list of "
        "leases shows all"
    )

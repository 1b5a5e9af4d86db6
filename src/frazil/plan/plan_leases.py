"""Leases of scan plans: the snapshots of a plan stay as long as its id and tokens are valid.

All plans of a snapshot share one row, which each process renews at most once a minute. So most
plans of a snapshot write nothing. Cancelling a plan releases nothing, because Iceberg's Java client
does so before it reads the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from frazil.commit.pipeline.catalog_answers import LoadedTable
from frazil.commit.pipeline.clock_watch import steady_ms
from frazil.db.base import DatabaseUnavailable
from frazil.db.housekeeping_rows import database_now_ms
from frazil.db.rows import Database
from frazil.read.snapshot_leases import MAX_LIVE_LEASES, WantedLease, store_leases
from frazil.wire.identifiers import Identifier
from frazil.wire.leases import LEASE_TTL_MS

LIFETIME_MS: Final = 24 * 3600 * 1000
_RENEWED_EVERY_MS: Final = 60_000
_RENEWALS: Final = 24
"""How often a lease is renewed at least in the life of a token, if that is short."""
_SYNCHRONIZED_EVERY_MS: Final = 60_000
_MAX_KNOWN: Final = 10_000
PLAN_LEASE_PREFIX: Final = "plan:"
_HOLDER: Final = "scan plans"


class LeasedTables(Protocol):
    """The part of the catalog that leases of plans use."""

    @property
    def database(self) -> Database: ...

    def load_table(self, identifier: Identifier) -> LoadedTable: ...


class DatabaseClock:
    """The clock of the database, which is asked at most once a minute."""

    def __init__(self, database: Database, steady_ms: Callable[[], int]) -> None:
        self._database = database
        self._steady_ms = steady_ms
        self._known: tuple[int, int] | None = None
        """The time of the database, and the steady time when it was asked."""

    def now_ms(self) -> int:
        known, steady = self._known, self._steady_ms()
        if known is None or steady - known[1] > _SYNCHRONIZED_EVERY_MS:
            known = self._known = database_now_ms(self._database), steady
        return known[0] + steady - known[1]


@dataclass(frozen=True, slots=True)
class _Stored:
    at_steady_ms: int
    expires_ms: int


@dataclass(slots=True)
class OwnLease:
    """A lease for a single plan. The client has drawn its id, and releases it after reading."""

    lease_id: str
    principal: str
    is_taken: bool = False
    """Set by the plan. A plan of several snapshots, or of none, leases as if it had no lease of its
    own."""


class PlanLeases:
    def __init__(
        self,
        tables: LeasedTables,
        lifetime_ms: int = LIFETIME_MS,
        steady_ms: Callable[[], int] = steady_ms,
    ) -> None:
        self._tables = tables
        self._lifetime_ms = lifetime_ms
        self._renewed_every_ms = min(_RENEWED_EVERY_MS, lifetime_ms // _RENEWALS)
        self._steady_ms = steady_ms
        self._clock = DatabaseClock(tables.database, steady_ms)
        self._stored: dict[tuple[str | None, int], _Stored] = {}
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Return the time by the database's clock, by which tokens end."""
        return self._clock.now_ms()

    def hold(self, identifier: Identifier, loaded: LoadedTable, snapshot_ids: Iterable[int]) -> int:
        """Lease the snapshots that a plan reads; return until when its tokens are valid.

        Raises NotFound if one is gone, and DatabaseUnavailable if a lease is needed and cannot be
        stored.
        """
        wanted = tuple(dict.fromkeys(snapshot_ids))
        if not wanted:
            return self.now_ms() + self._lifetime_ms
        now = self._steady_ms()
        uuid = loaded.relation_uuid
        with self._lock:
            known = {each: self._stored.get((uuid, each)) for each in wanted}
        fresh = {
            each: stored
            for each, stored in known.items()
            if stored is not None and now - stored.at_steady_ms < self._renewed_every_ms
        }
        missing = [each for each in wanted if each not in fresh]
        ends = [stored.expires_ms for stored in fresh.values()]
        if missing:
            try:
                ends.append(self._store(identifier, loaded, missing, now))
            except DatabaseUnavailable:
                # A lease that cannot be renewed lasts long enough for most readers.
                older = [stored for stored in known.values() if stored is not None]
                if len(older) < len(wanted) or any(
                    now - stored.at_steady_ms > self._lifetime_ms // 2 for stored in older
                ):
                    raise
                ends = [stored.expires_ms for stored in older]
        # The lease ends later than the tokens, because clocks are compared here.
        return min(ends) - self._renewed_every_ms

    def take(
        self, identifier: Identifier, loaded: LoadedTable, snapshot_id: int, lease: OwnLease
    ) -> int:
        """Take a lease for one plan, whose client releases it; return until when it is valid."""
        expires_ms = store_leases(
            self._tables.database,
            lambda: self._tables.load_table(identifier),
            [WantedLease(lease.lease_id, snapshot_id, lease.principal, _HOLDER)],
            min(LEASE_TTL_MS, self._lifetime_ms),
            loaded=loaded,
            max_live=MAX_LIVE_LEASES,
        )
        lease.is_taken = True
        return expires_ms

    def _store(
        self, identifier: Identifier, loaded: LoadedTable, snapshot_ids: list[int], now: int
    ) -> int:
        uuid = loaded.relation_uuid
        expires_ms = store_leases(
            self._tables.database,
            lambda: self._tables.load_table(identifier),
            [
                WantedLease(f"{PLAN_LEASE_PREFIX}{uuid}:{each}", each, "", _HOLDER)
                for each in snapshot_ids
            ],
            self._lifetime_ms + 2 * self._renewed_every_ms,
            loaded=loaded,
        )
        with self._lock:
            if len(self._stored) + len(snapshot_ids) > _MAX_KNOWN:
                self._stored.clear()
            for each in snapshot_ids:
                self._stored[uuid, each] = _Stored(now, expires_ms)
        return expires_ms

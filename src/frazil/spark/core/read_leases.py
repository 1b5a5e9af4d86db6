"""Leases on the snapshots that frames read, so that these keep their files.

A frame is read long after it was made, and nothing tells when it is no longer used. So a session
leases the snapshot of each frame for an hour. While Spark runs jobs, leases that would end soon are
renewed. The end of the session releases them. A statement releases what it has read when it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.send.lease_calls import LeaseCalls, plan_lease_id, this_process
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from frazil.client.declare.scan_plans import Plan

_LOGGER: Final = logging.getLogger("frazil.spark")
TTL_S: Final = 3600.0
_RENEWED_S: Final = TTL_S / 2
"""A lease that ends earlier than that is renewed by the next scan, or by a running job."""
_CHECK_S: Final = 600.0
_HOLDER_LENGTH: Final = 200

_Key: TypeAlias = tuple[str, int]
"""The uuid of a table, and a snapshot."""


@dataclass(slots=True)
class _Held:
    table: Identifier
    lease_id: str
    ends_s: float
    statements: int = 0
    """How many statements that run now read the snapshot."""
    is_of_frame: bool = False
    """Whether a frame reads it too, which stays after the statements."""


class ReadLeases:
    """The leases of one session."""

    def __init__(self) -> None:
        self._held: dict[_Key, _Held] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._of_statement: ContextVar[set[_Key] | None] = ContextVar("statement", default=None)
        """What the statement that runs in this thread reads."""

    def hold(
        self, calls: LeaseCalls, spark: SparkSession, table: Table, snapshot_id: int
    ) -> str | None:
        """Lease a snapshot, and return the id of the lease; without one it can be read as well."""
        key = table.uuid, snapshot_id
        now_s = time.monotonic()
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.ends_s - now_s > _RENEWED_S:
                self._count(key, held)
                return held.lease_id
        try:
            application = spark.conf.get("spark.app.id", "")
            holder = f"Spark {application}, {this_process()}"[:_HOLDER_LENGTH]
            taken = calls.take(table.identifier, snapshot_id, ttl_s=TTL_S, holder=holder)
        except FrazilError as error:
            _LOGGER.warning(
                "%s: snapshot %d is read without a lease: %s", table, snapshot_id, error
            )
            return None
        self._remember(calls, spark, table, key, taken.lease_id)
        return taken.lease_id

    def plan(
        self,
        calls: LeaseCalls,
        spark: SparkSession,
        table: Table,
        snapshot_id: int,
        plan: Callable[[str], Plan],
    ) -> Plan:
        """Plan a scan of a snapshot with a lease. `plan` gets the id that the lease shall have."""
        key = table.uuid, snapshot_id
        with self._lock:
            held = self._held.get(key)
        is_base = self._of_statement.get() is not None
        lease_id = plan_lease_id(is_base=is_base) if held is None else held.lease_id
        planned = plan(lease_id)
        if planned.is_leased:
            self._remember(calls, spark, table, key, lease_id)
        return planned

    def _remember(
        self, calls: LeaseCalls, spark: SparkSession, table: Table, key: _Key, lease_id: str
    ) -> None:
        with self._lock:
            held = self._held.setdefault(key, _Held(table.identifier, lease_id, 0.0))
            held.lease_id, held.ends_s = lease_id, time.monotonic() + TTL_S
            self._count(key, held)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew_until_closed,
                    args=(calls, spark),
                    name="frazil-read-leases",
                    daemon=True,
                )
                self._thread.start()

    def _count(self, key: _Key, held: _Held) -> None:
        """Note who reads a snapshot: the statement that runs in this thread, or a frame."""
        of_statement = self._of_statement.get()
        if of_statement is None:
            held.is_of_frame = True
        elif key not in of_statement:
            of_statement.add(key)
            held.statements += 1

    @contextmanager
    def statement(self, calls: LeaseCalls) -> Iterator[None]:
        """Release what only this block reads, at its end. A statement inside another one is a part
        of the outer one."""
        if self._of_statement.get() is not None:
            yield
            return
        read: set[_Key] = set()
        before = self._of_statement.set(read)
        try:
            yield
        finally:
            self._of_statement.reset(before)
            self._release(calls, self._ended(read))

    def _ended(self, keys: Iterable[_Key]) -> list[_Held]:
        """Note that a statement has ended, and take out what nobody reads any more."""
        unread: list[_Held] = []
        with self._lock:
            for key in keys:
                held = self._held.get(key)
                if held is not None:
                    held.statements -= 1
                    if held.statements <= 0 and not held.is_of_frame:
                        unread.append(self._held.pop(key))
        return unread

    def release_idle(self, calls: LeaseCalls, spark: SparkSession, table: Table) -> None:
        """Release the frames of a table, unless Spark runs jobs that may read them."""
        if not has_jobs(spark):
            with self._lock:
                idle = [
                    key
                    for key, held in self._held.items()
                    if key[0] == table.uuid and not held.statements
                ]
                ended = [self._held.pop(key) for key in idle]
            self._release(calls, ended)

    def release(self, calls: LeaseCalls) -> None:
        """Release all leases. A catalog that is away ends them by itself."""
        self._closed.set()
        with self._lock:
            ended, self._held = list(self._held.values()), {}
        self._release(calls, ended)

    def _release(self, calls: LeaseCalls, ended: Sequence[_Held]) -> None:
        # What a catalog that is away does not release ends by itself.
        with suppress(FrazilError):
            for held in ended:
                calls.release(held.table, held.lease_id, waits=False)

    def _renew_until_closed(self, calls: LeaseCalls, spark: SparkSession) -> None:
        while not self._closed.wait(_CHECK_S):
            self.renew(calls, is_reading=has_jobs(spark))

    def renew(self, calls: LeaseCalls, *, is_reading: bool) -> None:
        """Renew leases that end soon if jobs run, and forget those that have ended."""
        now_s = time.monotonic()
        with self._lock:
            ended = [key for key, held in self._held.items() if held.ends_s < now_s]
            for key in ended:
                del self._held[key]
            due = [held for held in self._held.values() if held.ends_s - now_s <= _RENEWED_S]
        for held in due if is_reading else ():
            try:
                calls.renew(held.table, held.lease_id, ttl_s=TTL_S, waits=False)
            except FrazilError:
                continue
            held.ends_s = now_s + TTL_S


def has_jobs(spark: SparkSession) -> bool:
    """Return whether Spark runs jobs; assumed of Spark Connect, which does not tell."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return True
    return bool(context.statusTracker().getActiveJobsIds())

"""Leases on the snapshots that frames read, so that these keep their files.

A frame is read long after it was made, and nothing tells when it is no longer used. So a session
leases the snapshot of each frame for a day, as the catalog does for a plan. While Spark runs jobs,
leases that would end soon are renewed. The end of the session releases them.

Only reads by Iceberg's runtime need this: what the catalog plans is leased by the plan.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.send.lease_calls import LeaseCalls, this_process
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier

_LOGGER: Final = logging.getLogger("frazil.spark")
TTL_S: Final = 24 * 3600.0
_RENEWED_S: Final = TTL_S / 2
"""A lease that ends earlier than that is renewed by the next scan, or by a running job."""
_CHECK_S: Final = 3600.0
_HOLDER_LENGTH: Final = 200


@dataclass(slots=True)
class _Held:
    table: Identifier
    lease_id: str
    ends_s: float


class ReadLeases:
    """The leases of one session."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], _Held] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, calls: LeaseCalls, spark: SparkSession, table: Table, snapshot_id: int) -> None:
        """Lease a snapshot for a day; without the lease it can be read all the same."""
        key = table.uuid, snapshot_id
        now_s = time.monotonic()
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.ends_s - now_s > _RENEWED_S:
                return
        try:
            application = spark.conf.get("spark.app.id", "")
            holder = f"Spark {application}, {this_process()}"[:_HOLDER_LENGTH]
            taken = calls.take(table.identifier, snapshot_id, ttl_s=TTL_S, holder=holder)
        except FrazilError as error:
            _LOGGER.warning(
                "%s: snapshot %d is read without a lease: %s", table, snapshot_id, error
            )
            return
        with self._lock:
            self._held[key] = _Held(table.identifier, taken.lease_id, now_s + TTL_S)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew_until_closed,
                    args=(calls, spark),
                    name="frazil-read-leases",
                    daemon=True,
                )
                self._thread.start()

    def release(self, calls: LeaseCalls) -> None:
        """Release all leases. A catalog that is away ends them by itself."""
        self._closed.set()
        with self._lock:
            held, self._held = list(self._held.values()), {}
        try:
            for each in held:
                calls.release(each.table, each.lease_id, waits=False)
        except FrazilError:
            return

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

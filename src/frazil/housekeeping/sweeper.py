"""Sweeps all tables regularly, on a thread of the server."""

from __future__ import annotations

import logging
import random
import threading
from typing import Final

from frazil.db.base import DatabaseUnavailable
from frazil.db.housekeeping_rows import database_now_ms
from frazil.housekeeping.reachability import Watch
from frazil.housekeeping.server_operations import JobCancelled, ServerTools
from frazil.housekeeping.sweep import sweep_table, tables_due
from frazil.store.object_store import StoreError
from frazil.wire.errors import FrazilError

_log = logging.getLogger("frazil.housekeeping")

SWEEP_EVERY_S: Final = 600.0
_KEEP_INTENTS_MS: Final = 30 * 24 * 3_600_000


class Sweeper:
    """Deletes what is due. The servers of a catalog do that at different times, because the time
    between two sweeps is random."""

    def __init__(self, tools: ServerTools, every_s: float = SWEEP_EVERY_S) -> None:
        self._tools = tools
        self._every_s = every_s
        self.deleted_files = 0
        """How many files this process has deleted."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frazil-sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop after the files that are being deleted."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s * random.uniform(0.5, 1.5)):
            try:
                self._forget_intents()
                due = tables_due(self._tools.database)
            except DatabaseUnavailable:
                continue  # The catalog reports an outage of its database.
            for uuid in due:
                if self._stop.is_set():
                    return
                self._sweep(uuid)

    def _forget_intents(self) -> None:
        """Drop intents that were swept long ago. No writer commits files that old."""
        database = self._tools.database
        before_ms = database_now_ms(database) - _KEEP_INTENTS_MS
        database.execute("forget_intents", {"before_ms": before_ms})

    def _sweep(self, uuid: str) -> None:
        try:
            swept = sweep_table(self._tools, uuid, watch=Watch(cancelled=self._stop.is_set))
        except JobCancelled:
            return
        except (FrazilError, StoreError, DatabaseUnavailable, OSError) as error:
            # The rows are still there, so the next sweep tries again.
            _log.warning("the sweep of table %s failed: %s", uuid, error)
            return
        except Exception:
            # A bug must not end the thread, because nothing would be deleted any more.
            _log.exception("the sweep of table %s failed", uuid)
            return
        self.deleted_files += swept.deleted.total
        if swept.deleted.total:
            _log.info("deleted %d files of table %s", swept.deleted.total, uuid)

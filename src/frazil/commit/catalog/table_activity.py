"""Counts scans and commits of tables, so that maintenance knows which tables are used.

Commits are counted here, as the server makes them. Scans are counted when the server plans them,
and when a client that has planned by itself reports one. Counts are kept in memory and added to
rows from time to time; a crash loses the last ones.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from concurrent.futures import Future
from typing import Final

from frazil.commit.pipeline.catalog_answers import Answer, TableAnswer, TransactionAnswer
from frazil.db.base import DatabaseUnavailable
from frazil.db.housekeeping_rows import database_now_ms
from frazil.db.rows import Database
from frazil.db.sql import Statements

_HOUR_MS: Final = 3_600_000
_KEPT_MS: Final = 31 * 24 * _HOUR_MS

logger = logging.getLogger("frazil.commit")


class TableActivity:
    """The counts of one process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._scans: Counter[str] = Counter()
        self._commits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def scanned(self, uuid: str | None) -> None:
        """Count a scan of the table with this uuid."""
        if uuid is not None:
            with self._lock:
                self._scans[uuid] += 1

    def answered(self, future: Future[Answer]) -> None:
        """Count a commit, if its future has an answer."""
        if future.cancelled() or future.exception() is not None:
            return
        answer = future.result()
        tables = answer.tables if isinstance(answer, TransactionAnswer) else (answer,)
        changed = [each.table for each in tables if isinstance(each, TableAnswer)]
        uuids = [table.relation_uuid or table.metadata.table_uuid for table in changed]
        with self._lock:
            self._commits.update(uuid for uuid in uuids if uuid is not None)

    def flush(self) -> None:
        """Add the counts to the rows of this hour. If that fails, they are kept for later."""
        with self._lock:
            scans, self._scans = self._scans, Counter()
            commits, self._commits = self._commits, Counter()
        uuids = sorted({*scans, *commits})
        if not uuids:
            return

        def work(sql: Statements) -> None:
            now_ms = database_now_ms(sql)
            hour_ms = now_ms - now_ms % _HOUR_MS
            rows = [
                {"uuid": uuid, "hour_ms": hour_ms, "scans": scans[uuid], "commits": commits[uuid]}
                for uuid in uuids
            ]
            sql.execute_many("add_activity", rows)

        try:
            self._database.run_rows(work)
        except DatabaseUnavailable as error:
            logger.warning("could not store how often tables are used: %s", error)
            with self._lock:
                self._scans.update(scans)
                self._commits.update(commits)

    def forget(self) -> None:
        """Delete old rows. Raises DatabaseUnavailable."""
        before_ms = database_now_ms(self._database) - _KEPT_MS
        self._database.execute("forget_activity", {"before_ms": before_ms})

"""Provides row locks for SQLite, which has none. One process owns the file, so memory is enough."""

from __future__ import annotations

import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from threading import Condition

from frazil.db.base import DatabaseUnavailable


class RowLocks:
    """Locks sets of uuids. A set is locked at once or not at all, so that no two can deadlock."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._released = Condition()

    @contextmanager
    def hold(self, uuids: Set[str], timeout_s: float) -> Iterator[None]:
        """Lock the uuids until the block ends. Raises DatabaseUnavailable if it cannot in time."""
        self._take(uuids, timeout_s)
        try:
            yield
        finally:
            with self._released:
                self._held -= uuids
                self._released.notify_all()

    def _take(self, uuids: Set[str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._released:
            while not self._held.isdisjoint(uuids):
                if not self._released.wait(max(0.0, deadline - time.monotonic())):
                    raise DatabaseUnavailable(
                        f"the rows of {', '.join(sorted(self._held & uuids))} were held by others "
                        f"for {timeout_s:g} s; nothing was changed"
                    )
            self._held |= uuids

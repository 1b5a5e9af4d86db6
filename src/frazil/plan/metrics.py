"""What planning has done so far, counted for operators."""

from __future__ import annotations

import threading
from dataclasses import fields

from frazil.plan.walk import Counts


class PlanMetrics:
    """Counters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()
        self._plans = 0
        self._tasks_fetched = 0

    def planned(self, counts: Counts) -> None:
        with self._lock:
            self._plans += 1
            for one in fields(counts):
                total = getattr(self._counts, one.name) + getattr(counts, one.name)
                setattr(self._counts, one.name, total)

    def tasks_fetched(self, files: int) -> None:
        with self._lock:
            self._tasks_fetched += files

    def document(self) -> dict[str, int]:
        with self._lock:
            return {
                "plans": self._plans,
                "files-of-fetched-tasks": self._tasks_fetched,
                **self._counts.document(),
            }

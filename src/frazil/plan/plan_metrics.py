"""Counts plans and their durations for operators."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Final

from frazil.plan.scan_walk import Cancelled, Counts
from frazil.read.counters import Histogram, HistogramCounts

PLAN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class PlanCounts:
    walked: Counts
    """The sums over the walks of all completed plans."""
    outcomes: dict[str, int]
    submitted: int
    """Responses that asked the client to fetch its plan later."""
    task_pages: int
    task_files: int
    seconds: HistogramCounts


class PlanMetrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Counts()
        self._outcomes = dict.fromkeys((COMPLETED, CANCELLED, FAILED), 0)
        self._submitted = 0
        self._task_pages = 0
        self._task_files = 0
        self._seconds = Histogram(PLAN_SECONDS)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Measure the creation of one plan."""
        started_s = time.perf_counter()
        outcome = FAILED
        try:
            yield
            outcome = COMPLETED
        except Cancelled:
            outcome = CANCELLED
            raise
        finally:
            with self._lock:
                self._outcomes[outcome] += 1
            self._seconds.add(time.perf_counter() - started_s)

    def planned(self, counts: Counts) -> None:
        with self._lock:
            for field in fields(counts):
                total = getattr(self._counts, field.name) + getattr(counts, field.name)
                setattr(self._counts, field.name, total)

    def submitted(self) -> None:
        with self._lock:
            self._submitted += 1

    def tasks_fetched(self, files: int) -> None:
        with self._lock:
            self._task_pages += 1
            self._task_files += files

    def read(self) -> PlanCounts:
        seconds = self._seconds.read()
        with self._lock:
            return PlanCounts(
                replace(self._counts),
                dict(self._outcomes),
                self._submitted,
                self._task_pages,
                self._task_files,
                seconds,
            )

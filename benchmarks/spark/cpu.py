"""Wall and CPU seconds of all processes that take part in an operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from benchmarks.spark.results import Sample


class Meter:
    """Measures this process, its descendants (the JVM and its Python workers), and other
    processes."""

    def __init__(self, others: Sequence[int] = ()) -> None:
        self._roots = [psutil.Process(), *(psutil.Process(pid) for pid in others)]
        # Keeps the CPU time of processes that have ended, because Spark stops idle workers.
        self._seen: dict[psutil.Process, float] = {}

    def measure(self, work: Callable[[], object], times: int = 1) -> Sample:
        """Return the cost of the work, as the mean of `times` runs."""
        before, started = self._cpu_s(), time.perf_counter()
        for _ in range(times):
            work()
        wall_s = time.perf_counter() - started
        return Sample(round(wall_s / times, 4), round((self._cpu_s() - before) / times, 4))

    def _cpu_s(self) -> float:
        for root in self._roots:
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._seen[process] = float(times.user + times.system)
        return sum(self._seen.values())

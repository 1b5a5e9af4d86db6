"""Wall and CPU seconds of all processes that take part in an operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from benchmarks.spark.results import Sample


@dataclass(frozen=True, slots=True)
class Ended:
    """What a process has used that has run and ended during the work."""

    cpu_s: float
    peak_bytes: int


class Meter:
    """Measures this process, its descendants (the JVM and its Python workers), and other
    processes."""

    def __init__(self, others: Sequence[int] = ()) -> None:
        self._roots = [psutil.Process(), *(psutil.Process(pid) for pid in others)]
        # Keeps the CPU time of processes that have ended, because Spark stops idle workers.
        self._seen: dict[psutil.Process, float] = {}

    def measure(self, work: Callable[[], object], times: int = 1) -> Sample:
        """Return the cost of the work, as the mean of `times` runs.

        Work that returns an `Ended` has run in a process which the meter cannot see afterwards.
        """
        before, started = self._cpu_s(), time.perf_counter()
        ended = [each for each in (work() for _ in range(times)) if isinstance(each, Ended)]
        wall_s = time.perf_counter() - started
        cpu_s = self._cpu_s() - before + sum(each.cpu_s for each in ended)
        peak_bytes = max((each.peak_bytes for each in ended), default=0)
        return Sample(round(wall_s / times, 4), round(cpu_s / times, 4), peak_bytes)

    def _cpu_s(self) -> float:
        for root in self._roots:
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._seen[process] = float(times.user + times.system)
        return sum(self._seen.values())

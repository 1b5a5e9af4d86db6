"""Wall and CPU seconds of everything that takes part in an operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil

from benchmarks.spark.results import Sample


class Meter:
    """Counts this process, all below it (the JVM and its Python workers), and further processes."""

    def __init__(self, others: Sequence[int] = ()) -> None:
        self._roots = [psutil.Process(), *(psutil.Process(pid) for pid in others)]

    def measure(self, work: Callable[[], object]) -> Sample:
        before, started = self._cpu_s(), time.perf_counter()
        work()
        wall_s = time.perf_counter() - started
        return Sample(round(wall_s, 4), round(self._cpu_s() - before, 4))

    def _cpu_s(self) -> float:
        # A worker that has ended is counted by the one that has waited for it.
        return sum(self._of(process) for root in self._roots for process in _tree(root))

    @staticmethod
    def _of(process: psutil.Process) -> float:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system + times.children_user + times.children_system)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    return [root, *root.children(recursive=True)]

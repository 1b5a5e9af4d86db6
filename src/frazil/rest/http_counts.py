"""What the edge has answered so far, counted for operators."""

from __future__ import annotations

import threading
from typing import Final

from frazil.plan.metrics import Durations, Stopwatch

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class HttpCounts:
    """Requests by operation: a path would have a name in it, and there are as many as tables."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, Stopwatch] = {}
        self._lock = threading.Lock()

    def add(self, operation: str, status: int, duration_s: float) -> None:
        key = operation, status
        with self._lock:
            self._requests[key] = self._requests.get(key, 0) + 1
            seconds = self._seconds.get(operation)
            if seconds is None:
                seconds = self._seconds[operation] = Stopwatch(_SECONDS)
        seconds.add(duration_s)

    def requests(self) -> dict[tuple[str, int], int]:
        """By operation and status."""
        with self._lock:
            return dict(self._requests)

    def seconds(self) -> dict[str, Durations]:
        with self._lock:
            found = dict(self._seconds)
        return {operation: stopwatch.read() for operation, stopwatch in found.items()}

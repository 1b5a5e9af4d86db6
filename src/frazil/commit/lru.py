"""A cache of immutable things by location, within a byte budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class LruByBytes(Generic[V]):
    """Forgets what was used longest ago once it holds too many bytes. Safe for many threads."""

    def __init__(self, max_bytes: int, cost: Callable[[V], int], largest: int) -> None:
        """What costs more than `largest` is not kept at all: it would push out everything."""
        self._max_bytes = max_bytes
        self._cost = cost
        self._largest = largest
        self._bytes = 0
        self._entries: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, location: str) -> V | None:
        with self._lock:
            entry = self._entries.get(location)
            if entry is None:
                return None
            self._entries.move_to_end(location)
            return entry[0]

    def put(self, location: str, value: V) -> None:
        cost = self._cost(value)
        if cost > self._largest:
            return
        with self._lock:
            if location in self._entries:
                return
            self._entries[location] = (value, cost)
            self._bytes += cost
            while self._bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed

    def forget(self, location: str) -> None:
        with self._lock:
            entry = self._entries.pop(location, None)
            if entry is not None:
                self._bytes -= entry[1]

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return self._bytes

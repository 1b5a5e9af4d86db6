"""Keeps what was read from delete files, because one delete file applies to many data files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class DeleteCache(Generic[V]):
    """The results of reading delete files, up to a number of bytes.

    What was not used for the longest time is dropped first. Threads may read one file at the same
    time; then one of the results is kept.
    """

    def __init__(self, max_bytes: int, size_of: Callable[[V], int]) -> None:
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], V]) -> V:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry[0]
        value = read()
        self._put(key, value)
        return value

    def _put(self, key: Hashable, value: V) -> None:
        size = self._size_of(value)
        with self._lock:
            if size > self._max_bytes or key in self._entries:
                return
            self._entries[key] = value, size
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= dropped

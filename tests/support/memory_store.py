"""Stores objects in memory, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from frazil.store.locations import parse_location
from frazil.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectTooLarge,
    Store,
    check_range,
)


@dataclass(frozen=True, slots=True)
class _Object:
    content: bytes
    modified_ms: int


class MemoryStore(Store):
    """Implements `Store` for `memory:` locations. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], _Object] = {}

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        key = _key(location)
        new = _Object(b"".join(chunks), time.time_ns() // 1_000_000)
        with self._lock:
            if self._objects.setdefault(key, new) is not new:
                raise ObjectExists(location)

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        with self._lock:
            stored = self._objects.get(_key(location))
        if stored is None:
            raise ObjectMissing(location)
        if max_bytes is not None and len(stored.content) > max_bytes:
            raise ObjectTooLarge(location, max_bytes)
        return stored.content

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        part = self.get(location)[offset : offset + length]
        return check_range(location, offset, length, part)

    def size(self, location: str) -> int | None:
        with self._lock:
            stored = self._objects.get(_key(location))
        return None if stored is None else len(stored.content)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        bucket, path = _key(prefix)
        folder = path.rstrip("/") + "/"
        with self._lock:
            objects = [
                (key, an_object)
                for (its_bucket, key), an_object in self._objects.items()
                if its_bucket == bucket and key.startswith(folder)
            ]
        text = prefix.rstrip("/")
        for key, an_object in objects:
            below = key.removeprefix(folder)
            yield ObjectInfo(f"{text}/{below}", len(an_object.content), an_object.modified_ms)

    def delete(self, locations: Iterable[str]) -> None:
        for location in locations:
            with self._lock:
                self._objects.pop(_key(location), None)

    def close(self) -> None:
        """Do nothing: the objects exist as long as the store does."""


def _key(location: str) -> tuple[str, str]:
    address = parse_location(location)
    return address.authority, address.path

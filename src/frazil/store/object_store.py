"""The interface of an object store, and a check that a store implements `put_new` correctly.

Objects are immutable: they are written once under a new name and never overwritten. `put_new`
returns only when the object is durable. If two writers use the same name, exactly one succeeds.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol


class StoreError(Exception):
    """The store could not do what was asked; whether it did is unknown for a `put_new`."""


class ObjectMissing(StoreError):
    """There is no object at this location."""

    def __init__(self, location: str) -> None:
        super().__init__(f"no object at {location}")
        self.location = location


class ObjectExists(StoreError):
    """`put_new` found another object at this location."""

    def __init__(self, location: str) -> None:
        super().__init__(f"an object already exists at {location}")
        self.location = location


class ObjectTooLarge(StoreError):
    """`get` met an object above the byte cap it was given."""

    def __init__(self, location: str, max_bytes: int) -> None:
        super().__init__(f"the object at {location} has more than {max_bytes} bytes")
        self.location = location


def check_range(location: str, offset: int, length: int, found: bytes) -> bytes:
    """What a store read, where it is all that `get_range` was asked for."""
    if len(found) != length:
        raise StoreError(
            f"cannot read {length} bytes at offset {offset} of {location}: it ends before"
        )
    return found


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    location: str
    size: int
    modified_ms: int


class Store(Protocol):
    """Immutable objects. All methods block; locations are the full URLs Iceberg's files name."""

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        """Writes the chunks, one after another, as a new durable object. Raises ObjectExists."""

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        """Writes many new objects at the same time, each as `put_new` does; what did not fail
        is durable when it returns. Gives what went wrong, by location."""

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        """As `put_new`, but the object is durable only after `sync` of its location."""

    def sync(self, locations: Iterable[str]) -> None:
        """Makes objects durable that were put unsynced. After a failure none of them may count."""

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        """The whole object. Raises ObjectMissing, ObjectTooLarge."""

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        """A part of an object, at least one byte, which must lie inside it. Raises ObjectMissing,
        and StoreError where the object ends before the part does."""

    def size(self, location: str) -> int | None:
        """The object's size, or None where there is none."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object below the folder `prefix`, recursively, in no given order."""

    def delete(self, locations: Iterable[str]) -> None:
        """Deletes objects; one that is not there is no error."""

    def make_folders(self, locations: Iterable[str]) -> None:
        """Makes folders where the store has folders; does nothing where it has none."""

    def close(self) -> None: ...


def put_each(
    put_new: Callable[[str, Sequence[bytes]], None],
    files: Mapping[str, Sequence[bytes]],
    executor: Executor,
) -> dict[str, Exception]:
    """`put_many` by one `put_new` for each object."""
    items = list(files.items())
    # The last one is written by this thread: one file needs no hand-over at all.
    futures = {
        location: executor.submit(put_new, location, chunks) for location, chunks in items[:-1]
    }
    failed: dict[str, Exception] = {}
    for location, chunks in items[-1:]:
        try:
            put_new(location, chunks)
        except Exception as error:
            failed[location] = error
    for location, future in futures.items():
        problem = future.exception()
        if isinstance(problem, Exception):
            failed[location] = problem
    return failed


_MAX_PROBE_BYTES = 1024


class PutIfAbsentUnsupported(StoreError):
    """The store lets a second writer overwrite an object."""

    def __init__(self, prefix: str, seen: str) -> None:
        super().__init__(
            f"the store at {prefix} has no working put-if-absent: {seen}. Without it two writers "
            "can overwrite each other's files; use a store that honours If-None-Match on PUT, "
            "such as Amazon S3 or MinIO"
        )


def prove_put_if_absent(store: Store, prefix: str) -> None:
    """Writes one name twice and removes it.

    Writers do not race here. Every name the catalog writes holds a fresh UUID, so what has to be
    caught is a second writer long after the first, and a start that fails once in a hundred on a
    store with a small race would cost more than it proves.
    """
    # No folder of its own: a local store would keep it, empty, for each start of the server.
    name = f"{prefix.rstrip('/')}/frazil-probe-{uuid.uuid4()}"
    try:
        store.put_new(name, [b"first"])
        try:
            store.put_new(name, [b"second"])
        except ObjectExists:
            pass
        else:
            raise PutIfAbsentUnsupported(prefix, "a second write of one name succeeded")
        if store.get(name, max_bytes=_MAX_PROBE_BYTES) != b"first":
            raise PutIfAbsentUnsupported(prefix, "a refused write changed the object")
    finally:
        store.delete([name])

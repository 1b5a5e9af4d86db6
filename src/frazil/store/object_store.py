"""The interface of an object store, and a check that a store implements `put_new` correctly.

Objects are immutable: they are written once under a new name and never overwritten. `put_new`
returns only when the object is durable. If two writers use the same name, exactly one succeeds.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, Protocol


class StoreError(Exception):
    """An operation of the store failed. After a failed `put_new` the object may or may not
    exist."""

    def __init__(
        self, message: str, *, location: str | None = None, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.location = location
        self.reason = reason
        """What an operator has to look at; None if the location or the object is wrong."""


class ObjectMissing(StoreError):
    """There is no object at this location."""

    def __init__(self, location: str) -> None:
        super().__init__(f"no object at {location}", location=location)


class ObjectExists(StoreError):
    """`put_new` found another object at this location."""

    def __init__(self, location: str) -> None:
        super().__init__(f"an object already exists at {location}", location=location)


class ObjectTooLarge(StoreError):
    """`get` found an object that is larger than `max_bytes`."""

    def __init__(self, location: str, max_bytes: int) -> None:
        message = f"the object at {location} has more than {max_bytes} bytes"
        super().__init__(message, location=location)


def check_range(location: str, offset: int, length: int, data: bytes) -> bytes:
    """Return the bytes that `get_range` read, after checking that there are enough."""
    if len(data) != length:
        raise StoreError(
            f"cannot read {length} bytes at offset {offset} of {location}: it ends before"
        )
    return data


class ListedObject(Protocol):
    """An object of a listing. Its size and time may be read when they are asked for, and then raise
    ObjectMissing."""

    @property
    def location(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


class ObjectInfo(NamedTuple):
    """A `ListedObject` whose size and time are known."""

    location: str
    size: int
    modified_ms: int


class ObjectReader(Protocol):
    """Reads objects, as `Store` does."""

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        """Return the whole object. Raise ObjectMissing or ObjectTooLarge."""

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        """Return a part of an object. Raise ObjectMissing or StoreError."""

    def size(self, location: str) -> int | None:
        """Return the size of the object, or None if it does not exist."""


class Store(ABC):
    """A store of immutable objects. All methods block. Locations are full URLs, as in Iceberg
    files.

    The defaults suit a store that has no folders and makes each object durable in `put_new`.
    """

    @abstractmethod
    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        """Write the chunks, one after another, as a new durable object. Raise ObjectExists."""

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        """Write many new objects in parallel, each as `put_new` does.

        Return the errors by location. All other objects are durable.
        """
        items = list(files.items())
        # This thread writes the last object, so that a single one needs no other thread.
        futures = {
            location: executor.submit(self.put_new, location, chunks)
            for location, chunks in items[:-1]
        }
        errors: dict[str, Exception] = {}
        for location, chunks in items[-1:]:
            try:
                self.put_new(location, chunks)
            except Exception as error:
                errors[location] = error
        for location, future in futures.items():
            problem = future.exception()
            if isinstance(problem, Exception):
                errors[location] = problem
        return errors

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        """Write as `put_new` does, but the object is durable only after `sync` of its location."""
        self.put_new(location, chunks)

    def sync(self, locations: Iterable[str]) -> None:  # noqa: B027
        """Make objects durable that `put_unsynced` wrote. After a failure none of them is
        reliable."""

    @abstractmethod
    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        """Return the whole object. Raise ObjectMissing or ObjectTooLarge."""

    @abstractmethod
    def get_range(self, location: str, offset: int, length: int) -> bytes:
        """Return a part of an object, at least one byte.

        Raise ObjectMissing, or StoreError if the object ends before the part does.
        """

    @abstractmethod
    def size(self, location: str) -> int | None:
        """Return the size of the object, or None if it does not exist."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ListedObject]:
        """Iterate over all objects below the folder `prefix`, recursively and in any order."""

    @abstractmethod
    def delete(self, locations: Iterable[str]) -> None:
        """Delete objects. A missing object is not an error."""

    def make_folders(self, locations: Iterable[str]) -> None:  # noqa: B027
        """Create folders if the store has folders; otherwise do nothing."""

    def remove_empty_folders(self, location: str) -> None:  # noqa: B027
        """Remove the folder and all folders below it that have no object in them, if the store has
        folders."""

    def close(self) -> None:  # noqa: B027
        """Release connections."""


_MAX_PROBE_BYTES = 1024


class PutIfAbsentUnsupported(StoreError):
    """A store that lets a second writer overwrite an object."""

    def __init__(self, prefix: str, seen: str) -> None:
        super().__init__(
            f"the store at {prefix} has no working put-if-absent: {seen}. Without it two writers "
            "can overwrite each other's files; use a store that honours If-None-Match on PUT, "
            "such as Amazon S3 or MinIO"
        )


def prove_put_if_absent(store: Store, prefix: str) -> None:
    """Check that a store refuses to write the same name twice.

    The two writes do not race. Each name that the catalog writes contains a new UUID, so the case
    to detect is a second writer long after the first. A start of the server that sometimes fails on
    a store with a small race would cost more than it proves.
    """
    # Without a folder of its own: a local store would keep an empty folder for each start.
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

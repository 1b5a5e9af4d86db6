"""Writes the files of a commit before its swap, and deletes them if the commit provably failed."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from frazil.format.metadata.metadata_files import encode_metadata_file, new_metadata_location
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.view_metadata import (
    ViewMetadata,
    encode_view_metadata,
    new_view_location,
)
from frazil.store.object_store import ObjectInfo, Store, StoreError, check_range
from frazil.wire.errors import BadRequest, FrazilError, TooManyRequests

logger = logging.getLogger("frazil.commit")


M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class NextFile(Generic[M]):
    """The metadata file that a commit writes."""

    metadata: M
    location: str
    chunks: Sequence[bytes]


class FileWriter:
    """Writes and deletes the files of commits."""

    def __init__(self, store: Store, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    def begin(self, *, at_once: bool) -> Writing:
        """Return a `Writing` for files that are added one after another. `at_once` writes each
        file while the next ones are built, which is best for a single request. Many files are
        written faster together at the end, when no thread builds snapshots at the same time."""
        return Writing(self._store, self._executor, at_once)

    def discard_later(self, locations: Callable[[], Iterable[str]]) -> None:
        """Delete unneeded files on another thread."""
        self._executor.submit(lambda: self.discard(locations()))

    def discard(self, locations: Iterable[str]) -> None:
        """Delete the files of a commit that provably did not happen. If this fails, the
        remaining files are harmless orphans, because no metadata names them."""
        unused = list(locations)
        try:
            self._store.delete(unused)
        except (StoreError, FrazilError, OSError) as error:
            logger.warning("could not delete %d unused files: %s", len(unused), error)


class Writing:
    """The files of one attempt that are being written to the store."""

    def __init__(self, store: Store, executor: Executor, at_once: bool) -> None:
        self._store = store
        self._executor = executor
        self._at_once = at_once
        self._started: dict[str, Future[None]] = {}
        self._waiting: dict[str, Sequence[bytes]] = {}

    @property
    def locations(self) -> list[str]:
        """Return all files that may have been written."""
        return [*self._started, *self._waiting]

    def add(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Add files. `finish` reports whether they could be written."""
        if not self._at_once:
            self._waiting.update((location, [content]) for location, content in files)
            return
        for location, content in files:
            self._started[location] = self._executor.submit(
                self._store.put_unsynced, location, [content]
            )

    def finish(self, files: Mapping[str, Sequence[bytes]]) -> dict[str, Exception]:
        """Write the last files and return the failures by location. All other files are durable."""
        self._waiting.update(files)
        if not self._waiting and not self._started:
            return {}
        failed = self._store.put_many(self._waiting, self._executor)
        failed.update(self._wait())
        written = [location for location in self._started if location not in failed]
        try:
            self._store.sync(written)
        except (StoreError, FrazilError) as error:
            failed.update(dict.fromkeys(written, error))
        return failed

    def abandon(self) -> list[str]:
        """Wait for the writes that have begun and return their locations, so that the caller can
        discard the files."""
        self._wait()
        return list(self._started)

    def _wait(self) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        for location, future in self._started.items():
            problem = future.exception()
            if isinstance(problem, Exception):
                failed[location] = problem
        return failed


def not_written(problem: str, error: Exception) -> FrazilError:
    """Return the error for a file or folder that could not be written before any swap was sent.

    If a file has the name of the folder, a retry fails too, so the location is wrong. Any other
    failure may be temporary, and the client may send the same request again.
    """
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        return BadRequest(f"location: {problem}: {error}; choose another location")
    return TooManyRequests(f"{problem}, so nothing was changed: {error}")


class PendingStore:
    """A store that already returns the unwritten files of a round."""

    def __init__(self, store: Store, pending: Mapping[str, bytes]) -> None:
        self._store = store
        self._pending = pending

    def get(self, location: str, max_bytes: int | None = None) -> bytes:
        content = self._pending.get(location)
        return self._store.get(location, max_bytes) if content is None else content

    def get_range(self, location: str, offset: int, length: int) -> bytes:
        content = self._pending.get(location)
        if content is None:
            return self._store.get_range(location, offset, length)
        return check_range(location, offset, length, content[offset : offset + length])

    def size(self, location: str) -> int | None:
        content = self._pending.get(location)
        return self._store.size(location) if content is None else len(content)

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        self._store.put_new(location, chunks)

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        return self._store.put_many(files, executor)

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        self._store.put_unsynced(location, chunks)

    def sync(self, locations: Iterable[str]) -> None:
        self._store.sync(locations)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def delete(self, locations: Iterable[str]) -> None:
        self._store.delete(locations)

    def make_folders(self, locations: Iterable[str]) -> None:
        self._store.make_folders(locations)

    def remove_empty_folders(self, location: str) -> None:
        self._store.remove_empty_folders(location)

    def close(self) -> None:
        """Do nothing, because the underlying store belongs to the caller."""


def table_file(metadata: TableMetadata, version: int) -> NextFile[TableMetadata]:
    location = new_metadata_location(metadata, version)
    return NextFile(metadata, location, encode_metadata_file(metadata, location))


def view_file(metadata: ViewMetadata, version: int) -> NextFile[ViewMetadata]:
    location = new_view_location(metadata, version)
    return NextFile(metadata, location, [encode_view_metadata(metadata)])

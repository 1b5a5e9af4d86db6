"""Track the files that a transaction writes, to delete them if it fails.

The transaction writes through a copy of the table's FileIO that records every new output. Files
that a user passes to `add_files` are never recorded.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Final

from pyiceberg.io import FileIO, OutputFile, OutputStream

_logger = logging.getLogger(__name__)

_MAX_CLOSING_WAIT_S: Final = 60.0
"""How long to wait for a thread that still writes a file of a failed operation."""
_POLL_INTERVAL_S: Final = 0.01


class FilesAbandoned(RuntimeError):
    """A thread tried to write for an operation that has already failed."""


class WrittenFiles:
    """The files that a transaction wrote and that are not known to be committed."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._lock = threading.Lock()
        self._streams: dict[str, OutputStream] = {}
        self._abandoned: set[int] = set()
        self._operations = itertools.count()

    @property
    def paths(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._streams)

    def begin(self) -> FileIO:
        """Return a FileIO for one operation, which records its files until it is abandoned."""
        return _recording(self._io, self, next(self._operations))

    def abandon(self, io: FileIO, *, keep: Collection[str]) -> None:
        """Delete the files of a failed operation, and stop its threads from writing more."""
        assert isinstance(io, _Recording)
        with self._lock:
            self._abandoned.add(io._operation)
        self.discard(keep=keep)

    def forget(self, paths: Collection[str] | None = None) -> None:
        """Forget files that are committed, or whose commit is unknown: they must not be deleted."""
        with self._lock:
            for path in list(self._streams) if paths is None else paths:
                self._streams.pop(path, None)

    def discard(self, *, keep: Collection[str] = ()) -> None:
        """Delete the written files except those to keep."""
        with self._lock:
            deleted = [path for path in self._streams if path not in keep]
            streams = [self._streams.pop(path) for path in deleted]
        for path, stream in zip(deleted, streams, strict=True):
            _wait_until_closed(stream)
            self._delete(path)

    def _delete(self, path: str) -> None:
        try:
            self._io.delete(path)
        except FileNotFoundError:
            return
        except Exception:
            # The user must see the original error; the log names the file for a clean-up.
            _logger.warning("could not delete %s, which belongs to no table", path, exc_info=True)

    def _open(self, operation: int, path: str, create: Callable[[], OutputStream]) -> OutputStream:
        with self._lock:
            if operation in self._abandoned:
                raise FilesAbandoned(f"{path} is not written: its operation has failed")
            # Open under the lock, so that no file is opened while its operation is abandoned.
            stream = create()
            self._streams[path] = stream
            return stream


def _wait_until_closed(stream: Any) -> None:
    """Wait for a writer thread, which continues when another thread has failed."""
    deadline_s = time.monotonic() + _MAX_CLOSING_WAIT_S
    while not getattr(stream, "closed", True) and time.monotonic() < deadline_s:
        time.sleep(_POLL_INTERVAL_S)


class _Recording(FileIO):
    """Records outputs; precedes the real FileIO class in the method resolution order."""

    _written: WrittenFiles
    _operation: int

    def new_output(self, location: str) -> OutputFile:
        output: OutputFile = super().new_output(location)  # type: ignore[safe-super]
        written, operation = self._written, self._operation

        def create(overwrite: bool = False) -> OutputStream:
            return written._open(
                operation, location, lambda: type(output).create(output, overwrite)
            )

        output.create = create  # type: ignore[method-assign]
        return output


@cache
def _recording_class(kind: type[FileIO]) -> type[FileIO]:
    """Return a subclass of the FileIO, because PyIceberg checks its class."""
    return type(f"Recording{kind.__name__}", (_Recording, kind), {})


def _recording(io: FileIO, written: WrittenFiles, operation: int) -> FileIO:
    kind = _recording_class(type(io))
    copy = kind.__new__(kind)
    # Share the connections of the original.
    copy.__dict__.update(io.__dict__, _written=written, _operation=operation)
    return copy

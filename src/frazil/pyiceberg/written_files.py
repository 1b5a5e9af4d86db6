"""The files that a transaction writes, so that an honest failure leaves none behind.

They are seen where they come from: the transaction writes through a copy of the table's FileIO that
notes every new output. Files that a user hands in (`add_files`) are never among them.
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

_CLOSING_S: Final = 60.0
"""How long a thread that still writes a file of a failed operation is waited for."""
_POLL_S: Final = 0.01


class FilesAbandoned(RuntimeError):
    """A thread wants to write for an operation that has failed already."""


class WrittenFiles:
    """What a transaction has written and is not known to be committed."""

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
        """The FileIO of one operation: what it writes is noted, until it is abandoned."""
        return _recording(self._io, self, next(self._operations))

    def abandon(self, io: FileIO, *, keep: Collection[str]) -> None:
        """The operation has failed. Threads that still wait to write for it will write nothing."""
        assert isinstance(io, _Recording)
        with self._lock:
            self._abandoned.add(io._operation)
        self.discard(keep=keep)

    def forget(self, paths: Collection[str] | None = None) -> None:
        """They are committed, or nobody knows: from now on they are not ours to delete."""
        with self._lock:
            for path in list(self._streams) if paths is None else paths:
                self._streams.pop(path, None)

    def discard(self, *, keep: Collection[str] = ()) -> None:
        """Deletes what was written, but for what is to be kept."""
        with self._lock:
            gone = [path for path in self._streams if path not in keep]
            streams = [self._streams.pop(path) for path in gone]
        for path, stream in zip(gone, streams, strict=True):
            _wait_until_closed(stream)
            self._delete(path)

    def _delete(self, path: str) -> None:
        try:
            self._io.delete(path)
        except FileNotFoundError:
            return
        except Exception:
            # What went wrong before is what the user must see; the file is named for a clean-up.
            _logger.warning("could not delete %s, which is in no table", path, exc_info=True)

    def _open(self, operation: int, path: str, create: Callable[[], OutputStream]) -> OutputStream:
        with self._lock:
            if operation in self._abandoned:
                raise FilesAbandoned(f"{path} is not written: its operation has failed")
            # Opened under the lock, so that no file is opened while its operation is abandoned.
            stream = create()
            self._streams[path] = stream
            return stream


def _wait_until_closed(stream: Any) -> None:
    """Writers run in threads of their own, which go on when another one has failed."""
    deadline_s = time.monotonic() + _CLOSING_S
    while not getattr(stream, "closed", True) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


class _Recording(FileIO):
    """Notes outputs; stands before the real FileIO's class in the order of resolution."""

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
    """A subclass, because PyIceberg asks what kind of FileIO it has."""
    return type(f"Recording{kind.__name__}", (_Recording, kind), {})


def _recording(io: FileIO, written: WrittenFiles, operation: int) -> FileIO:
    kind = _recording_class(type(io))
    copy = kind.__new__(kind)
    # The same connections: only what is noted is new.
    copy.__dict__.update(io.__dict__, _written=written, _operation=operation)
    return copy

"""Caches the columns of large manifests in a local folder, so that they survive a restart.

Entries and statistics are separate files, because statistics are decoded only on demand.

A file that is damaged, or belongs to another version or manifest, is removed. A folder that is
not writable only costs speed. A thread writes the files, so a commit never waits for them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Full, Queue
from typing import Final, TypeVar

from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.pruning.cached_columns import (
    columns_from_bytes,
    columns_to_bytes,
    metrics_from_bytes,
    metrics_to_bytes,
)
from frazil.format.pruning.metric_columns import MetricColumns
from frazil.read.counters import FolderCounts

DEFAULT_FOLDER_BYTES: Final = 2 << 30
MIN_ENTRIES: Final = 1_000
"""Smaller manifests are read just as fast from the store."""
_COLUMNS: Final = ".columns"
_METRICS: Final = ".metrics"
_OURS: Final = re.compile(r"[0-9a-f]{32}\.(columns|metrics)(\.\d+)?")
_QUEUED: Final = 64
_LEFT_AFTER_EVICTION: Final = 0.9

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Job:
    path: Path
    content: Callable[[], bytes]


class ColumnFiles:
    """A folder of column files with a byte budget. The least recently used files are removed."""

    def __init__(
        self, folder: Path, max_bytes: int = DEFAULT_FOLDER_BYTES, min_entries: int = MIN_ENTRIES
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._min_entries = min_entries
        self._bytes: int | None = None
        """The size of the folder's files. None until they have been counted."""
        self._jobs: Queue[_Job | None] = Queue(_QUEUED)
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._failed = False
        self._hits = self._misses = 0

    def counts(self) -> FolderCounts:
        with self._lock:
            return FolderCounts(self._hits, self._misses)

    def get(self, location: str, length: int) -> ManifestColumns | None:
        """Return the columns of a manifest of this length, if they are in the folder."""
        path = self._path(location, length)
        return self._read(path, location, partial(columns_from_bytes, location))

    def get_metrics(
        self, location: str, length: int, columns: ManifestColumns
    ) -> MetricColumns | None:
        """Return the statistics of the manifest, if they are in the folder."""
        path, counts = self._path(location, length, _METRICS), columns.record_count
        return self._read(
            path, location, lambda content: metrics_from_bytes(location, content, counts)
        )

    def _read(self, path: Path, location: str, parse: Callable[[bytes], _T | None]) -> _T | None:
        parsed = self._kept(path, location, parse)
        with self._lock:
            self._hits += parsed is not None
            self._misses += parsed is None
        return parsed

    def _kept(self, path: Path, location: str, parse: Callable[[bytes], _T | None]) -> _T | None:
        try:
            content = path.read_bytes()
        except OSError:
            return None
        parsed = parse(content)
        with suppress(OSError):
            if parsed is None:
                _log.warning("removing %s: it does not hold the columns of %s", path, location)
                path.unlink()
            else:
                os.utime(path)
        return parsed

    def put(self, location: str, length: int, value: ManifestColumns | MetricColumns) -> None:
        """Store columns or statistics soon. They are dropped if too many files are waiting."""
        if len(value) < self._min_entries:
            return
        if isinstance(value, MetricColumns):
            path = self._path(location, length, _METRICS)
            job = _Job(path, partial(metrics_to_bytes, location, value))
        else:
            job = _Job(self._path(location, length), partial(columns_to_bytes, location, value))
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(
                    target=self._write_all, name="frazil-columns", daemon=True
                )
                self._writer.start()
        with suppress(Full):
            self._jobs.put_nowait(job)

    def close(self) -> None:
        """Write what is waiting and end the thread."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            self._jobs.put(None)
            writer.join()

    def _path(self, location: str, length: int, suffix: str = _COLUMNS) -> Path:
        name = hashlib.blake2b(f"{length} {location}".encode(), digest_size=16).hexdigest()
        return self._folder / f"{name}{suffix}"

    # --- the thread --------------------------------------------------------------------------

    def _write_all(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._write(job)
            except (OSError, ValueError) as error:
                if not self._failed:
                    _log.warning("cannot keep columns in %s: %s", self._folder, error)
                self._failed = True

    def _write(self, job: _Job) -> None:
        if job.path.exists():
            return
        content = job.content()
        if len(content) > self._max_bytes // 2:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._bytes is None:
            self._bytes = sum(size for _, size, _ in self._found())
        if self._bytes + len(content) > self._max_bytes:
            self._evict(int(self._max_bytes * _LEFT_AFTER_EVICTION) - len(content))
        draft = job.path.with_name(f"{job.path.name}.{os.getpid()}")
        try:
            draft.write_bytes(content)
            draft.replace(job.path)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
        self._bytes += len(content)

    def _evict(self, left: int) -> None:
        """Remove the oldest files until at most `left` bytes remain."""
        oldest_first = sorted(self._found())
        total = sum(size for _, size, _ in oldest_first)
        for _, size, path in oldest_first:
            if total <= left:
                break
            with suppress(OSError):
                path.unlink()
            total -= size
        self._bytes = total

    def _found(self) -> list[tuple[float, int, Path]]:
        """Return the times of use, sizes and paths of our own files."""
        files: list[tuple[float, int, Path]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if _OURS.fullmatch(entry.name):
                    with suppress(OSError):
                        known = entry.stat(follow_symlinks=False)
                        files.append((known.st_mtime, known.st_size, Path(entry.path)))
        return files

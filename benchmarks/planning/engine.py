"""Frazil's engine in process: it resolves a request for a table and walks its manifests."""

from __future__ import annotations

import ctypes
import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.planning.filters import Filter
from frazil.format.metadata.metadata_files import decode_metadata_file
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.plan.scan_requests import resolve_scan
from frazil.plan.scan_walk import Walk
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.store.local_store import LocalStore
from frazil.wire.scan_planning import PlanTableScanRequest

WARM: Final = "warm"
COLD: Final = "cold"
FOLDER: Final = "cold, columns in the cache's folder"
CACHE_BYTES: Final = 4 << 30
"""Enough for a million files and the bytes of their manifests."""
_MAX_METADATA_BYTES: Final = 1 << 30


def open_planner(folder: str) -> EnginePlanner:
    """Open the planner. `folder` is for the caches on disk."""
    return EnginePlanner(Path(folder))


class EnginePlanner:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = LocalStore()
        self._tables: dict[str, TableMetadata] = {}
        self._warm: tuple[str, ManifestCache] | None = None
        self._filled: set[str] = set()

    def prepare(self, table: str, wanted: Filter, way: str) -> Callable[[], int]:
        metadata, request = self._metadata(table), request_for(wanted)
        if way == WARM:
            cache = self._warm_cache(table)
            self._plan(cache, metadata, request)
        elif way == FOLDER:
            folder = self._folder / Path(table).parent.parent.name
            self._fill(table, folder)
            cache = ManifestCache(CACHE_BYTES, folder)
        else:
            cache = ManifestCache(CACHE_BYTES)
        return lambda: self._plan(cache, metadata, request)

    def memory(self, table: str, wanted: Filter) -> dict[str, int]:
        """Return the size of the cache after one plan, and the growth of the process."""
        metadata, request = self._metadata(table), request_for(wanted)
        gc.collect()
        before = resident_bytes()
        cache = ManifestCache(CACHE_BYTES)
        self._plan(cache, metadata, request)
        gc.collect()
        after = resident_bytes()
        _give_back()
        return {
            "resident_before_bytes": before,
            "resident_bytes": after,
            "trimmed_bytes": resident_bytes(),
            "cache_bytes": cache.size_bytes,
            "content_bytes": self._content_bytes(cache, metadata),
        }

    def _plan(
        self, cache: ManifestCache, metadata: TableMetadata, request: PlanTableScanRequest
    ) -> int:
        walk = Walk(resolve_scan(metadata, request), self._reader(cache))
        return sum(len(piece.rows) for piece in list(walk.data()))

    def _reader(self, cache: ManifestCache) -> ManifestReader:
        return ManifestReader(cache, self._store, lambda _: None)

    def _metadata(self, table: str) -> TableMetadata:
        if table not in self._tables:
            content = Path(table.removeprefix("file://")).read_bytes()
            self._tables[table] = decode_metadata_file(content, _MAX_METADATA_BYTES)
        return self._tables[table]

    def _warm_cache(self, table: str) -> ManifestCache:
        """Return the warm cache. Only one table's cache is kept, because each may have a million
        files."""
        if self._warm is None or self._warm[0] != table:
            self._warm = table, ManifestCache(CACHE_BYTES)
        return self._warm[1]

    def _fill(self, table: str, folder: Path) -> None:
        if table not in self._filled:
            cache = ManifestCache(CACHE_BYTES, folder)
            self._plan(cache, self._metadata(table), request_for(_every_statistic()))
            cache.close()
            self._filled.add(table)

    def _content_bytes(self, cache: ManifestCache, metadata: TableMetadata) -> int:
        """Return the size of the raw manifests in the cache, which later plans do not need."""
        snapshot = metadata.current_snapshot
        assert snapshot is not None
        listed = self._reader(cache).manifest_list(snapshot).manifests
        return sum(len(cache.get(one.manifest_path, bytes) or b"") for one in listed)


def request_for(wanted: Filter) -> PlanTableScanRequest:
    body: dict[str, Any] = {} if wanted.json is None else {"filter": wanted.json}
    return msgspec.json.decode(json.dumps(body), type=PlanTableScanRequest)


def _every_statistic() -> Filter:
    """Return a filter that partitions cannot decide, so that all statistics are read."""
    return Filter("", {"type": "gt", "term": "c3", "value": -1}, None)


def _give_back() -> None:
    """Return freed memory that the allocator keeps to the system."""
    # None loads the symbols of this process. Only the GNU C library has malloc_trim.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmRSS":
            return int(value.split()[0]) * 1024
    raise LookupError("/proc/self/status has no VmRSS")

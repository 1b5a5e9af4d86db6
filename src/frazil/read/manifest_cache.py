"""Reads manifests and manifest lists and caches them.

Manifests never change and a location always has the same content, so everything is kept as long as
the byte budget allows. Lookups, validations, rewrites and scan planning use the columnar form
(`format/manifest/manifest_columns`, `format/pruning/metric_columns`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from frazil.format.avro.avro_files import MANIFEST_LIMITS, MANIFEST_LIST_LIMITS
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.manifest_columns import (
    ManifestColumns,
    decode_columns,
    inline_manifest_list,
)
from frazil.format.manifest.manifest_list import ManifestFile, ManifestList, read_manifest_list
from frazil.format.manifest.reading_columns import ReadingColumns, decode_reading
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.pruning.metric_columns import MetricColumns, metrics_of_files
from frazil.format.pruning.metric_decoder import decode_manifest, decode_metrics
from frazil.read.column_files import DEFAULT_FOLDER_BYTES, ColumnFiles
from frazil.read.counters import CacheCounts, LruByBytes, LruCounts, ReadCounts
from frazil.read.path_index import Hashed, Hashes, NewManifest, PathIndex, PathIndexes
from frazil.store.object_store import ObjectMissing, ObjectReader, ObjectTooLarge
from frazil.wire.errors import ValidationError

DEFAULT_MAX_BYTES: Final = 384 << 20
_READERS: Final = 8
_LIST_ENTRY_BYTES: Final = 800
"""The approximate memory of a parsed record in addition to its own bytes."""

_METRICS: Final = "#metrics"
"""Appended to a location to name its statistics."""

_READING: Final = "#reading"
"""Appended to a location to name its reading columns."""

_KINDS: Final[dict[type, str]] = {
    ManifestList: "manifest-lists",
    ManifestColumns: "columns",
    MetricColumns: "statistics",
    ReadingColumns: "reading",
    bytes: "contents",
    NewManifest: "new-manifests",
    PathIndex: "path-indexes",
}
"""The names of cached kinds in the counts."""
_READS: Final = {"manifest": "manifests", "manifest list": "manifest-lists"}
"""The names of read files in the counts."""

T = TypeVar("T")
Parsed = ManifestList | ManifestColumns | MetricColumns | ReadingColumns
_SUFFIXES: Final[dict[type, str]] = {MetricColumns: _METRICS, ReadingColumns: _READING}


class ManifestCache:
    """Caches the contents of manifests and lists by location. All threads of a store share one."""

    def __init__(
        self,
        max_bytes: int = DEFAULT_MAX_BYTES,
        folder: Path | None = None,
        folder_max_bytes: int = DEFAULT_FOLDER_BYTES,
    ) -> None:
        """Create the cache. One eighth of the budget each is reserved for the bytes of files,
        which only rewrites need, for the joined path hashes, and for small new manifests. The
        columns of large manifests are also stored in `folder`."""
        self._files = None if folder is None else ColumnFiles(folder, folder_max_bytes)
        content_bytes = max_bytes // 8
        parsed_bytes = max_bytes - 3 * content_bytes
        self._parsed: LruByBytes[Parsed] = LruByBytes(parsed_bytes, _size, parsed_bytes // 2)
        self._contents: LruByBytes[bytes] = LruByBytes(content_bytes, len, content_bytes // 2)
        self.paths = PathIndexes(content_bytes)
        self.new: LruByBytes[NewManifest] = LruByBytes(
            content_bytes, lambda new: new.size_bytes, content_bytes
        )
        self._under_way: dict[tuple[str, type], Future[Any]] = {}
        self._max_bytes = max_bytes
        self._misses: Counter[type] = Counter()
        self._reads: Counter[str] = Counter()
        self._read_bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        sizes = (self._parsed, self._contents, self.paths, self.new)
        return sum(kept.size_bytes for kept in sizes)

    def counts(self) -> CacheCounts:
        """Return the sizes and counts of the cache, for operators."""
        with self._lock:
            misses = dict(self._misses)
            reads = {
                name: ReadCounts(self._reads[what], self._read_bytes[what])
                for what, name in _READS.items()
            }
        kept = (self._parsed, self._contents, self.new, self.paths)
        counts = {kind: count for cache in kept for kind, count in cache.counts().items()}
        kinds = {
            name: replace(counts.get(kind, LruCounts()), misses=misses.get(kind, 0))
            for kind, name in _KINDS.items()
        }
        folder = None if self._files is None else self._files.counts()
        return CacheCounts(self._max_bytes, kinds, reads, folder)

    def count_read(self, what: str, size_bytes: int) -> None:
        """Count a file that was read from the store."""
        with self._lock:
            self._reads[what] += 1
            self._read_bytes[what] += size_bytes

    def get(self, location: str, kind: type[T]) -> T | None:
        """Return what is cached for a location, if it is of this kind."""
        cached: Parsed | bytes | None
        if kind is bytes:
            cached = self._contents.get(location)
        else:
            cached = self._parsed.get(f"{location}{_SUFFIXES.get(kind, '')}")
        return cached if isinstance(cached, kind) else None

    def put(self, location: str, value: Parsed | bytes) -> None:
        if isinstance(value, bytes):
            self._contents.put(location, value)
        else:
            self._parsed.put(f"{location}{_SUFFIXES.get(type(value), '')}", value)

    def put_lasting(
        self, location: str, length: int, value: ManifestColumns | MetricColumns
    ) -> None:
        """Cache the columns or statistics of a manifest of this length, also on disk."""
        self.put(location, value)
        if self._files is not None:
            self._files.put(location, length, value)

    def columns_on_disk(self, location: str, length: int) -> ManifestColumns | None:
        """Return the columns that an earlier process wrote to disk, and cache them in memory."""
        if self._files is None:
            return None
        columns = self._files.get(location, length)
        if columns is not None:
            self._parsed.put(location, columns)
        return columns

    def metrics_on_disk(
        self, location: str, length: int, columns: ManifestColumns
    ) -> MetricColumns | None:
        """Return the statistics that an earlier process wrote to disk, and cache them in memory."""
        if self._files is None:
            return None
        metrics = self._files.get_metrics(location, length, columns)
        if metrics is not None:
            self.put(location, metrics)
        return metrics

    def close(self) -> None:
        """Write the files that are waiting for the folder, then stop."""
        if self._files is not None:
            self._files.close()

    def once(self, location: str, kind: type[T], make: Callable[[], T]) -> T:
        """Return what is cached, or the result of `make`.

        If several threads ask for one location, only the first calls `make`. If that fails, each of
        the others tries by itself, because their stores need not see the same files.
        """
        cached = self.get(location, kind)
        if cached is not None:
            return cached
        key = location, kind
        with self._lock:
            self._misses[kind] += 1
            others = self._under_way.get(key)
            if others is None:
                mine: Future[Any] = Future()
                self._under_way[key] = mine
        if others is not None:
            return make() if others.exception() is not None else _result(others, kind)
        try:
            value = make()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(value)
            return value
        finally:
            with self._lock:
                del self._under_way[key]


def _result(future: Future[Any], kind: type[T]) -> T:
    result = future.result()
    assert isinstance(result, kind)
    return result


class ManifestReader:
    """Reads manifests and lists for one round of a commit: checked, limited and cached.

    A store that does not answer raises StoreError, which may be temporary. A file that is missing
    or unreadable raises ValidationError with its name: nothing was done, and a retry does not help.
    """

    def __init__(
        self, cache: ManifestCache, store: ObjectReader, check_readable: Callable[[str], None]
    ) -> None:
        """Create a reader. `check_readable` is called before a location is read, and may raise
        to forbid that."""
        self._cache = cache
        self._store = store
        self._check_readable = check_readable

    def manifest_list(self, snapshot: Snapshot) -> ManifestList:
        location = snapshot.manifest_list
        if location is None:
            return self._inline_list(snapshot)

        def read() -> ManifestList:
            max_bytes = MANIFEST_LIST_LIMITS.file_bytes
            content = self._get("manifest list", location, max_bytes)
            parsed = _parsed("manifest list", location, read_manifest_list, content)
            self._cache.put(location, parsed)
            return parsed

        return self._cache.once(location, ManifestList, read)

    def _inline_list(self, snapshot: Snapshot) -> ManifestList:
        named = []
        for path in snapshot.manifests or ():
            content = self._content(path)
            named.append((path, len(content), self._columns(path, len(content))))
        return inline_manifest_list(snapshot.snapshot_id, named)

    def columns(self, listed: ManifestFile) -> ManifestColumns:
        if listed.encrypted:
            raise ValidationError(f"the manifest {listed.manifest_path} is encrypted")
        return self._columns(listed.manifest_path, listed.manifest_length)

    def columns_of(self, listed: Sequence[ManifestFile]) -> list[ManifestColumns]:
        """Return the columns of all manifests in order. Missing ones are read in parallel."""
        kept = [self._at_hand(manifest.manifest_path) for manifest in listed]
        known = [columns for columns in kept if columns is not None]
        if len(known) == len(kept):
            return known
        unknown = [
            manifest for manifest, columns in zip(listed, kept, strict=True) if columns is None
        ]
        if len(unknown) < 2:
            return [self.columns(manifest) for manifest in listed]
        with ThreadPoolExecutor(min(_READERS, len(unknown)), "frazil-manifests") as pool:
            return list(pool.map(self.columns, listed))

    def with_columns(
        self, listed: Sequence[ManifestFile]
    ) -> list[tuple[ManifestFile, ManifestColumns]]:
        """Return the manifests with their columns."""
        return list(zip(listed, self.columns_of(listed), strict=True))

    def reading(self, listed: ManifestFile) -> ReadingColumns:
        """Return the reading columns of a manifest. Its rows are those of its columns."""
        path = listed.manifest_path
        columns = self.columns(listed)

        def read() -> ReadingColumns:
            content = self._content(path)
            reading = _parsed("manifest", path, lambda data: decode_reading(data, columns), content)
            self._cache.put(path, reading)
            return reading

        return self._cache.once(path, ReadingColumns, read)

    def metrics(self, listed: ManifestFile) -> MetricColumns:
        """Return the statistics of all files of a manifest. Its rows are those of its columns."""
        path, length = listed.manifest_path, listed.manifest_length
        at_hand = self.metrics_at_hand(listed)
        if at_hand is not None:
            return at_hand

        def read() -> MetricColumns:
            columns = self._at_hand(path) or self._cache.columns_on_disk(path, length)
            self._check_readable(path)
            if columns is None:
                return self._both(listed)
            kept = self._cache.metrics_on_disk(path, length, columns)
            if kept is not None:
                return kept
            parse = partial(decode_metrics, columns=columns)
            metrics = _parsed("manifest", path, parse, self._content(path))
            self._cache.put_lasting(path, length, metrics)
            return metrics

        if listed.encrypted:
            raise ValidationError(f"the manifest {path} is encrypted")
        return self._cache.once(path, MetricColumns, read)

    def _both(self, listed: ManifestFile) -> MetricColumns:
        """Read columns and statistics of a manifest and decompress it only once."""
        path, length = listed.manifest_path, listed.manifest_length
        columns, metrics = _parsed("manifest", path, decode_manifest, self._content(path))
        self._cache.put_lasting(path, length, columns)
        self._cache.put_lasting(path, length, metrics)
        return metrics

    def metrics_at_hand(self, listed: ManifestFile) -> MetricColumns | None:
        """Return the statistics of a manifest if they are in memory."""
        path = listed.manifest_path
        metrics = self._cache.get(path, MetricColumns)
        if metrics is None:
            new = self._cache.new.get(path)
            metrics = None if new is None else metrics_of_files(new.files)
        return metrics

    def metrics_of(self, listed: Sequence[ManifestFile]) -> list[MetricColumns]:
        """Return the statistics of all manifests, in their order. Missing ones are read in
        parallel."""
        kept = [self.metrics_at_hand(manifest) for manifest in listed]
        unknown = sum(1 for metrics in kept if metrics is None)
        if unknown < 2:
            pairs = zip(listed, kept, strict=True)
            return [self.metrics(manifest) if known is None else known for manifest, known in pairs]
        with ThreadPoolExecutor(min(_READERS, unknown), "frazil-manifests") as pool:
            return list(pool.map(self.metrics, listed))

    def that_may_hold(
        self, table: str, listed: Sequence[ManifestFile], hashes: Hashes
    ) -> Sequence[ManifestFile]:
        """Return the manifests that may have a path with one of these hashes. `table` names the
        index."""
        candidates = self._cache.paths.candidates(table, listed, hashes, self._hashed)
        wanted = frozenset(hashes.tolist())
        new = self._cache.new
        return [
            manifest
            for manifest in candidates
            if (kept := new.get(manifest.manifest_path)) is None
            or not kept.hashes.isdisjoint(wanted)
        ]

    def _hashed(self, listed: Sequence[ManifestFile]) -> list[Hashed]:
        kept: dict[str, Hashed] = {}
        for manifest in listed:
            new = self._cache.new.get(manifest.manifest_path)
            if new is not None:
                kept[manifest.manifest_path] = new
        others = [manifest for manifest in listed if manifest.manifest_path not in kept]
        for manifest, columns in self.with_columns(others):
            kept[manifest.manifest_path] = columns
        return [kept[manifest.manifest_path] for manifest in listed]

    def new_manifest(self, listed: ManifestFile) -> NewManifest | None:
        """Return the files of a small manifest that this process wrote recently."""
        return self._cache.new.get(listed.manifest_path)

    def content(self, listed: ManifestFile) -> bytes:
        """Return the bytes of the manifest."""
        return self._content(listed.manifest_path)

    def remember_list(self, location: str, parsed: ManifestList) -> None:
        """Cache a new list. If it is never written, nobody will ask for it."""
        self._cache.put(location, parsed)

    def remember(self, path: str, columns: ManifestColumns, content: bytes) -> None:
        """Cache a new manifest."""
        self._cache.put_lasting(path, len(content), columns)
        self._cache.put(path, content)

    def remember_new(self, path: str, new: NewManifest, content: bytes) -> None:
        """Cache a small manifest of new files."""
        self._cache.new.put(path, new)
        self._cache.put(path, content)

    def _at_hand(self, path: str) -> ManifestColumns | None:
        """Return the columns of a manifest if they are in memory."""
        columns = self._cache.get(path, ManifestColumns)
        if columns is None:
            new = self._cache.new.get(path)
            if new is not None:
                columns = new.make_columns()
                self._cache.put(path, columns)
        return columns

    def _columns(self, path: str, length: int) -> ManifestColumns:
        at_hand = self._at_hand(path)
        if at_hand is not None:
            return at_hand

        def read() -> ManifestColumns:
            self._check_readable(path)
            kept = self._cache.columns_on_disk(path, length)
            if kept is not None:
                return kept
            columns = _parsed("manifest", path, decode_columns, self._content(path))
            self._cache.put_lasting(path, length, columns)
            return columns

        return self._cache.once(path, ManifestColumns, read)

    def _content(self, path: str) -> bytes:
        def read() -> bytes:
            content = self._get("manifest", path, MANIFEST_LIMITS.file_bytes)
            self._cache.put(path, content)
            return content

        return self._cache.once(path, bytes, read)

    def _get(self, what: str, location: str, max_bytes: int) -> bytes:
        # Cached content was checked when it was read, or it was created here. Locations do not
        # change.
        self._check_readable(location)
        try:
            content = self._store.get(location, max_bytes)
        except ObjectMissing:
            raise ValidationError(f"the {what} {location} of this table is missing") from None
        except ObjectTooLarge:
            raise ValidationError(
                f"the {what} {location} of this table has more than {max_bytes} bytes"
            ) from None
        self._cache.count_read(what, len(content))
        return content


def _parsed(what: str, location: str, parse: Callable[[bytes], T], content: bytes) -> T:
    try:
        return parse(content)
    except UnreadableAvro as error:
        raise ValidationError(
            f"the {what} {location} of this table cannot be read: {error}"
        ) from None


def _size(parsed: Parsed) -> int:
    if isinstance(parsed, ManifestColumns | MetricColumns | ReadingColumns):
        return parsed.size_bytes
    return sum(_LIST_ENTRY_BYTES + len(manifest.raw) for manifest in parsed.manifests)

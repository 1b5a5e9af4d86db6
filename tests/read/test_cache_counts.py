"""The counters of the caches, for operators."""

from __future__ import annotations

import threading
from pathlib import Path

from frazil.read.counters import FolderCounts, LruByBytes, LruCounts, ReadCounts
from frazil.read.manifest_cache import ManifestCache
from tests.read.test_metric_cache import LISTED, MANIFEST, reader_of


def test_a_cache_counts_each_kind_of_its_entries() -> None:
    cache: LruByBytes[bytes | str] = LruByBytes(10, len, 8)
    cache.put("a", b"123")
    cache.put("b", "1234")
    cache.put("a", b"another is not taken")
    assert cache.get("a") == b"123"
    assert cache.get("nothing") is None
    assert cache.counts() == {bytes: LruCounts(1, 0, 1, 3), str: LruCounts(0, 0, 1, 4)}
    cache.put("c", b"12345")
    assert cache.counts() == {bytes: LruCounts(1, 0, 2, 8), str: LruCounts(0, 1, 0, 0)}
    cache.forget("c")
    cache.forget("nothing")
    assert cache.counts()[bytes] == LruCounts(1, 0, 1, 3)
    assert cache.size_bytes == 3


def test_no_hit_is_lost_between_threads() -> None:
    cache: LruByBytes[bytes] = LruByBytes(10, len, 8)
    cache.put("a", b"1")
    threads = [
        threading.Thread(target=lambda: [cache.get("a") for _ in range(5_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.counts()[bytes].hits == 20_000


def test_what_was_read_and_what_was_in_memory() -> None:
    cache = ManifestCache(8 << 20)
    reader = reader_of(cache)
    nothing = cache.counts()
    assert all(counts == LruCounts() for counts in nothing.kinds.values())
    assert set(nothing.reads.values()) == {ReadCounts(0, 0)}
    assert (nothing.folder, nothing.max_bytes) == (None, 8 << 20)
    metrics = reader.metrics(LISTED)
    columns = reader.columns(LISTED)
    reader.columns(LISTED)
    found = cache.counts()
    assert found.kinds["columns"] == LruCounts(2, 0, 1, columns.size_bytes)
    assert found.kinds["statistics"] == LruCounts(0, 0, 1, metrics.size_bytes, misses=1)
    assert found.kinds["contents"] == LruCounts(0, 0, 1, len(MANIFEST), misses=1)
    assert found.reads["manifests"] == ReadCounts(1, len(MANIFEST))
    assert found.reads["manifest-lists"] == ReadCounts(0, 0)
    assert sum(kind.size_bytes for kind in found.kinds.values()) == cache.size_bytes


def test_what_an_earlier_process_has_kept_is_counted(tmp_path: Path) -> None:
    first = ManifestCache(folder=tmp_path)
    reader_of(first).metrics(LISTED)
    assert first.counts().folder == FolderCounts(0, 1)
    first.close()
    second = ManifestCache(folder=tmp_path)
    reader_of(second).metrics(LISTED)
    assert second.counts().folder == FolderCounts(2, 0)
    assert second.counts().reads["manifests"] == ReadCounts(0, 0)
    second.close()

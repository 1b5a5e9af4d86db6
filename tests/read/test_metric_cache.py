"""The statistics of manifests are read once and cached in memory and in the folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.pruning.metric_columns import MetricColumns
from frazil.read import history
from frazil.read.history import metrics_reader
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.wire.errors import ValidationError
from tests.format.manifest_files import data_file, encoder_of, manifest_of
from tests.format.metric_worlds import plain
from tests.read.test_manifest_cache import allow, listed
from tests.support.memory_store import MemoryStore

MANIFEST = manifest_of(encoder_of(), [data_file(n) for n in range(1_500)])
LISTED = listed("memory://b/m.avro")


def store_with(content: bytes = MANIFEST) -> MemoryStore:
    store = MemoryStore()
    store.put_new(LISTED.manifest_path, [content])
    return store


def reader_of(cache: ManifestCache, content: bytes = MANIFEST) -> ManifestReader:
    return ManifestReader(cache, store_with(content), allow)


def same(one: MetricColumns, other: MetricColumns) -> bool:
    rows = range(0, len(one), 37)
    return plain([one.row(n) for n in rows]) == plain([other.row(n) for n in rows])


def test_statistics_are_decoded_once_with_the_columns() -> None:
    cache = ManifestCache()
    reader = reader_of(cache)
    metrics = reader.metrics(LISTED)
    assert len(metrics) == 1_500
    assert reader.metrics(LISTED) is metrics
    assert cache.get(LISTED.manifest_path, MetricColumns) is metrics
    columns = cache.get(LISTED.manifest_path, ManifestColumns)
    assert columns is not None
    assert reader.columns(LISTED) is columns
    assert metrics.record_count is columns.record_count
    assert cache.size_bytes >= columns.size_bytes + metrics.size_bytes


def test_statistics_of_columns_that_are_kept() -> None:
    reader = reader_of(ManifestCache())
    columns = reader.columns(LISTED)
    metrics = reader.metrics(LISTED)
    assert metrics.record_count is columns.record_count
    assert reader.metrics_of([LISTED, LISTED]) == [metrics, metrics]


def test_statistics_outlive_the_process(tmp_path: Path) -> None:
    first = ManifestCache(folder=tmp_path)
    metrics = reader_of(first).metrics(LISTED)
    first.close()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".columns", ".metrics"]
    again = ManifestReader(ManifestCache(folder=tmp_path), MemoryStore(), allow)
    assert same(again.metrics(LISTED), metrics)


def test_a_damaged_file_is_removed_and_the_manifest_read_again(tmp_path: Path) -> None:
    first = ManifestCache(folder=tmp_path)
    metrics = reader_of(first).metrics(LISTED)
    first.close()
    (path,) = tmp_path.glob("*.metrics")
    path.write_bytes(path.read_bytes()[:-1])
    second = ManifestCache(folder=tmp_path)
    assert same(reader_of(second).metrics(LISTED), metrics)
    second.close()
    assert same(
        ManifestReader(ManifestCache(folder=tmp_path), MemoryStore(), allow).metrics(LISTED),
        metrics,
    )


def test_a_few_rows_of_many_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ManifestCache()
    reader = reader_of(cache)
    columns = reader.columns(LISTED)
    rows = np.array([3, 700])
    few = metrics_reader(reader, LISTED, columns)(rows)
    assert cache.get(LISTED.manifest_path, MetricColumns) is None
    whole = reader.metrics(LISTED)
    assert plain([few.row(0), few.row(1)]) == plain([whole.row(3), whole.row(700)])
    monkeypatch.setattr(history, "metrics", None)
    taken = metrics_reader(reader, LISTED, columns)(rows)
    assert plain([taken.row(1)]) == plain([whole.row(700)])


def test_a_manifest_that_cannot_be_read_is_named() -> None:
    reader = reader_of(ManifestCache(), MANIFEST[:-9])
    with pytest.raises(ValidationError, match=LISTED.manifest_path):
        reader.metrics(LISTED)

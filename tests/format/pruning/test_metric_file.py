"""Statistics on disk are read unchanged; damaged or incompatible files are not read."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns
from frazil.format.pruning import cached_columns, metric_decoder
from frazil.format.pruning.cached_columns import metrics_from_bytes, metrics_to_bytes
from frazil.format.pruning.metric_columns import MetricColumns, SparseField
from frazil.format.pruning.metric_decoder import decode_manifest, decode_metrics
from tests.format.manifest_files import data_file, encoder_of, manifest_of
from tests.format.metric_worlds import plain

LOCATION = "s3://m.avro"


def manifest() -> bytes:
    rng = random.Random(3)
    files = []
    for number in range(400):
        bounds = {1: number.to_bytes(8, "little"), 2: rng.randbytes(rng.choice([3, 16, 30]))}
        bounds |= {3: b"constant"}
        if number % 5:
            bounds[4] = number.to_bytes(4, "little")
        if number % 50 == 0:
            bounds[5] = b"x" * number
        counts = dict.fromkeys(bounds, 10 + number)
        files.append(
            data_file(
                number,
                value_counts=counts,
                null_value_counts={1: number % 300, 2: 0},
                nan_value_counts=None,
                lower_bounds=bounds,
                upper_bounds=bounds,
            )
        )
    return manifest_of(encoder_of(), files)


MANIFEST = manifest()
COLUMNS = decode_columns(MANIFEST)
METRICS = decode_metrics(MANIFEST, COLUMNS)
CONTENT = metrics_to_bytes(LOCATION, METRICS)


def read(content: bytes, columns: ManifestColumns = COLUMNS) -> MetricColumns | None:
    return metrics_from_bytes(LOCATION, content, columns.record_count)


def test_they_come_back_as_they_were() -> None:
    assert isinstance(dict(METRICS.items())[5], SparseField)
    found = read(CONTENT)
    assert found is not None
    rows = range(len(METRICS))
    assert plain([found.row(n) for n in rows]) == plain([METRICS.row(n) for n in rows])
    assert found.size_bytes == METRICS.size_bytes
    counts = found.field(1)
    assert counts is not None
    assert counts.value_counts is not None
    assert counts.value_counts.values is COLUMNS.record_count


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30])
def test_both_at_once_are_each_by_itself(kept_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_decoder, "_KEPT_BYTES", kept_bytes)
    columns, metrics = decode_manifest(MANIFEST)
    assert np.array_equal(columns.data_file_at, COLUMNS.data_file_at)
    assert metrics_to_bytes(LOCATION, metrics) == CONTENT


def test_they_are_of_one_location_and_its_columns() -> None:
    assert metrics_from_bytes("s3://other", CONTENT, COLUMNS.record_count) is None
    assert metrics_from_bytes(LOCATION, CONTENT, COLUMNS.record_count[1:]) is None


def test_damage_is_found() -> None:
    assert read(b"") is None
    assert read(b"something else entirely, and long enough") is None
    assert read(CONTENT + bytes(8)) is None
    for at in range(0, len(CONTENT), 211):
        damaged = bytearray(CONTENT)
        damaged[at] ^= 1
        assert read(bytes(damaged)) is None
        assert read(CONTENT[:at]) is None


@pytest.mark.parametrize("seed", range(40))
def test_a_head_that_does_not_fit_its_arrays_is_refused_or_read(seed: int) -> None:
    """The checksum is valid, as after a bug in another version."""
    rng = random.Random(seed)
    frame = cached_columns._FRAME
    magic, version, _ = frame.unpack_from(CONTENT)
    body = bytearray(CONTENT[frame.size :])
    for _ in range(3):
        body[rng.randrange(len(body))] = rng.randrange(256)
    forged = frame.pack(magic, version, zlib.crc32(body)) + bytes(body)
    found = read(forged)
    assert found is None or len(found) == 400
    later = frame.pack(magic, version + 1, zlib.crc32(body)) + bytes(body)
    assert read(later) is None

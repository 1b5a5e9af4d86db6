"""The statistics of manifests, decoded into columns, equal those of each entry."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroWriter, open_avro, write_avro
from frazil.format.avro.avro_schema import record_schema
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.entry_fields import RowMetrics
from frazil.format.manifest.manifest_columns import decode_columns
from frazil.format.manifest.manifest_fields import ADDED
from frazil.format.metadata.content_files import DataFile
from frazil.format.pruning import metric_decoder
from frazil.format.pruning.metric_columns import MetricColumns, metrics_of_files
from frazil.format.pruning.metric_decoder import decode_metrics
from tests.format.manifest_files import data_file, encoder_of, manifest_of
from tests.format.metric_worlds import ALL, Column, plain, rows_of

MAPS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def decoded(content: bytes) -> MetricColumns:
    return decode_metrics(content, decode_columns(content))


def rows(metrics: MetricColumns) -> list[dict[str, Any]]:
    return plain([metrics.row(number) for number in range(len(metrics))])


def alike(number: int, columns: int = 10) -> DataFile:
    ids = range(1, columns + 1)
    return data_file(
        number,
        value_counts=dict.fromkeys(ids, 10 + number),
        null_value_counts=dict.fromkeys(ids, number % 3),
        nan_value_counts={},
        lower_bounds={n: (number * n).to_bytes(8, "little") for n in ids},
        upper_bounds={n: (number * n + 99).to_bytes(8, "little") for n in ids},
    )


def in_blocks(content: bytes, entries: int) -> bytes:
    file = open_avro(content, MANIFEST_LIMITS)
    writer = AvroWriter(file.schema, file.metadata, file.codec, entries)
    record = file.schema.record
    for _, raw in file.records(lambda data, at: (None, record.skip(data, at))):
        writer.write(raw)
    return writer.finish()


@pytest.mark.parametrize("number", [1, 99, 100, 400])
@pytest.mark.parametrize("block_entries", [1, 7, 10_000])
def test_files_alike(number: int, block_entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [alike(n) for n in range(number)]
    content = in_blocks(manifest_of(encoder_of(), files), block_entries)
    assert rows(decoded(content)) == plain(files)
    monkeypatch.setattr(metric_decoder, "_CHUNK_BYTES", 30_000)
    assert rows(decoded(content)) == plain(files)


def uneven(rng: random.Random, number: int) -> DataFile:
    """Return a file with its own columns in its own order, or none."""
    maps: dict[str, Any] = {}
    for name in MAPS:
        ids = rng.sample([1, 2, 3, 64, 65, 70_000, 2**31 - 1, 5, 6], rng.randint(0, 6))
        if name.endswith("counts"):
            maps[name] = {n: rng.choice([0, 1, 10 + number, 1 << 40]) for n in ids}
        else:
            maps[name] = {n: rng.randbytes(rng.choice([0, 1, 4, 8, 8, 9, 16, 17, 70])) for n in ids}
        if rng.random() < 0.1:
            maps[name] = None
    return data_file(number, **maps)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_files_that_differ(version: int, share: float) -> None:
    rng = random.Random(version)
    files = [uneven(rng, n) if rng.random() < share else alike(n) for n in range(700)]
    assert rows(decoded(manifest_of(encoder_of(version=version), files))) == plain(files)


def test_one_file_with_far_more_columns() -> None:
    files = [alike(n) for n in range(300)]
    files[70] = alike(70, 5_000)
    metrics = decoded(manifest_of(encoder_of(), files))
    chosen = [69, 70, 71]
    assert plain([metrics.row(n) for n in chosen]) == plain([files[n] for n in chosen])
    assert metrics.size_bytes < 300 * 200 + 5_000 * 2_500
    field = metrics.field(4_000)
    assert field is not None
    assert field.lower is not None
    assert field.lower.get(70) == (280_000).to_bytes(8, "little")
    assert field.lower.get(71) is None


@pytest.mark.parametrize("column", ALL.values(), ids=list(ALL))
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32), number=st.sampled_from([5, 110]))
def test_files_of_every_type(column: Column, seed: int, number: int) -> None:
    found = rows_of(random.Random(seed), column, number=number)
    found = [replace(row, record_count=abs(row.record_count)) for row in found]
    files = [
        data_file(n, record_count=row.record_count, **{name: getattr(row, name) for name in MAPS})
        for n, row in enumerate(found)
    ]
    assert rows(decoded(manifest_of(encoder_of(), files))) == plain(found)
    assert rows(metrics_of_files(found)) == plain(found)


def test_a_map_that_names_a_column_twice_means_the_last() -> None:
    encoder = encoder_of()
    record = encoder.data_file(data_file(1, value_counts={1: 5, 2: 6}, lower_bounds={1: b"x" * 30}))
    twice = record.replace(b"\x04\x02\x0a\x04\x0c\x00", b"\x04\x02\x0a\x02\x0c\x00")
    assert twice != record
    entry = encoder.entry(ADDED, 1, None, None, twice)
    for number in (1, 120):
        content = write_avro(encoder.schema, {}, "null", [entry] * number)
        assert rows(decoded(content))[-1]["value_counts"] == {1: 6}


def test_maps_in_several_blocks() -> None:
    """Avro allows any number of map blocks, with or without their sizes in bytes."""
    encoder = encoder_of()
    record = encoder.data_file(data_file(1, value_counts={1: 5, 2: 6}))
    whole = b"\x04\x02\x0a\x04\x0c\x00"
    assert record.count(whole) == 1
    forms = [
        whole,
        b"\x02\x02\x0a\x02\x04\x0c\x00",
        b"\x01\x04\x02\x0a\x01\x04\x04\x0c\x00",
        b"\x02\x02\x0a" * 9 + b"\x02\x04\x0c\x00",
        *(b"\x02\x02\x0a" * n + b"\x02\x04\x0c\x00" for n in range(200, 204)),
    ]
    entries = [encoder.entry(ADDED, 1, None, None, record.replace(whole, form)) for form in forms]
    for chosen in ([0, 1], [1], [2], [0, 2], [0, 3], range(len(forms))):
        for number in (1, 60):
            content = write_avro(encoder.schema, {}, "null", [entries[n] for n in chosen] * number)
            assert [row["value_counts"] for row in rows(decoded(content))] == [{1: 5, 2: 6}] * len(
                chosen
            ) * number


def test_a_few_long_maps_among_many_without() -> None:
    files = [data_file(n, value_counts=None) for n in range(500)]
    wide = dict.fromkeys(range(3_000), 7)
    files[5], files[6] = data_file(5, value_counts=wide), data_file(6, value_counts={1: 3})
    metrics = decoded(manifest_of(encoder_of(), files))
    assert plain([metrics.row(5)])[0]["value_counts"] == wide
    assert plain([metrics.row(6), metrics.row(7)]) == plain(files[6:8])


# --- memory ----------------------------------------------------------------------------------


def test_what_all_files_have_in_common_costs_nothing() -> None:
    files = [
        data_file(
            n,
            record_count=50,
            value_counts={1: 50},
            null_value_counts={1: 0},
            nan_value_counts={1: 0},
            lower_bounds={1: b"constant"},
            upper_bounds={1: b"more than sixteen bytes"[:16]},
        )
        for n in range(5_000)
    ]
    metrics = decoded(manifest_of(encoder_of(), files))
    assert metrics.size_bytes < 5_000
    field = metrics.field(1)
    assert field is not None
    assert field.null_value_counts is not None
    assert field.null_value_counts.constant == 0
    assert rows(metrics)[4_999]["upper_bounds"] == {1: b"more than sixtee"}


def test_counts_of_all_rows_are_the_record_counts() -> None:
    content = manifest_of(encoder_of(), [alike(n) for n in range(500)])
    columns = decode_columns(content)
    field = decode_metrics(content, columns).field(1)
    assert field is not None
    assert field.value_counts is not None
    assert field.value_counts.values is columns.record_count


def test_a_file_with_ten_columns_takes_few_bytes() -> None:
    def file(n: int) -> DataFile:
        numbers = {c: (n * c).to_bytes(8, "little") for c in range(1, 8)}
        bounds = {**numbers, 8: n.to_bytes(4, "little")}
        texts = {9: f"customer#{n:07}".encode(), 10: f"{n:016}".encode()}
        return data_file(
            n,
            value_counts=dict.fromkeys(range(1, 11), 10 + n),
            null_value_counts=dict.fromkeys(range(1, 11), n % 200),
            nan_value_counts={4: 0, 5: 0},
            lower_bounds={**bounds, **texts},
            upper_bounds={**bounds, **texts},
        )

    content = manifest_of(encoder_of("long"), [replace_partition(file(n)) for n in range(4_000)])
    columns = decode_columns(content)
    size = (
        columns.size_bytes - len(columns.path_bytes) + decode_metrics(content, columns).size_bytes
    )
    assert size / 4_000 < 300


def replace_partition(file: DataFile) -> DataFile:
    return data_file(
        1,
        (file.record_count % 16,),
        **{
            name: getattr(file, name)
            for name in (*MAPS, "file_path", "record_count", "file_size_in_bytes")
        },
    )


def test_more_than_can_be_kept_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [alike(n) for n in range(200)]
    content = manifest_of(encoder_of(), files)
    monkeypatch.setattr(metric_decoder, "_MAX_FIELDS", 9)
    metrics = decoded(content)
    assert len(metrics) == 200
    assert metrics.field_ids == []


# --- broken manifests ------------------------------------------------------------------------


def test_a_manifest_that_is_not_the_one_of_the_columns_is_refused() -> None:
    content = manifest_of(encoder_of(), [alike(n) for n in range(300)])
    other = manifest_of(encoder_of(), [alike(n, 3) for n in range(300)])
    fewer = manifest_of(encoder_of(), [alike(n) for n in range(150)])
    for wrong in (other, in_blocks(content, 100), fewer):
        with pytest.raises(UnreadableAvro):
            decode_metrics(content, decode_columns(wrong))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_manifests_are_refused_or_read(data: st.DataObject) -> None:
    """No input raises any error other than UnreadableAvro."""
    content = _HOSTILE[data.draw(st.integers(0, 1))]
    columns = decode_columns(content)
    at = data.draw(st.integers(len(content) // 3, len(content) - 1))
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[at] = data.draw(st.integers(0, 255))
        at = min(at + data.draw(st.integers(1, 50)), len(content) - 1)
    with suppress(UnreadableAvro):
        decode_metrics(bytes(damaged), columns)
    with suppress(UnreadableAvro):
        decoded(bytes(damaged))


_HOSTILE: Sequence[bytes] = [
    manifest_of(encoder_of(), [alike(n, 4) for n in range(number)], codec="null")
    for number in (3, 120)
]


def test_maps_of_something_else_are_refused() -> None:
    encoder = encoder_of()
    text = encoder.schema.text.replace(
        '{"name":"value","type":"long","field-id":120}',
        '{"name":"value","type":"bytes","field-id":120}',
    )
    record = encoder.entry(ADDED, 1, None, None, encoder.data_file(data_file(1, value_counts={})))
    content = write_avro(record_schema(text), {}, "null", [record])
    with pytest.raises(UnreadableAvro):
        decoded(content)


def test_no_files() -> None:
    metrics = metrics_of_files([])
    assert len(metrics) == 0
    assert metrics.field_ids == []
    content = manifest_of(encoder_of(), [alike(1)])
    taken = decoded(content).take(np.empty(0, np.int64))
    assert len(taken) == 0
    assert taken.field(1) is not None


def test_some_files_of_many() -> None:
    files = [uneven(random.Random(n), n) for n in range(300)]
    metrics = decoded(manifest_of(encoder_of(), files))
    chosen = np.array([7, 3, 299, 3])
    assert rows(metrics.take(chosen)) == plain([files[n] for n in chosen])


def test_rows_are_files_as_the_evaluators_see_them() -> None:
    row = RowMetrics(9, {1: 9}, None, {}, {1: b"a"}, {1: b"b" * 20})
    (found,) = rows(metrics_of_files([row]))
    assert found == plain([row])[0]
    assert len(metrics_of_files([row]).row(0).upper_bounds or ()) == 1

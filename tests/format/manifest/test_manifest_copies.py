"""Entries are copied from manifest to manifest as bytes, together with their columns."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from frazil.format.avro.avro_files import MANIFEST_LIMITS, open_avro
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.manifest_columns import (
    Inherited,
    ManifestColumns,
    content_files,
    data_files_of,
    decode_columns,
)
from frazil.format.manifest.manifest_encoder import ManifestEncoder
from frazil.format.manifest.manifest_entries import read_manifest
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.metadata.content_files import EQUALITY_DELETES, POSITION_DELETES, DataFile
from tests.format.manifest_files import LISTED, data_file, delete_file, encoder_of, manifest_of
from tests.support.trees import avro_bytes, avro_records

TYPES = ("decimal(9, 2)", "uuid", "string", "int")
PARTITION = (Decimal("1.25"), UUID(int=7), "a", None)


def writer_of(encoder: ManifestEncoder, **options: Any) -> RollingManifestWriter:
    numbers = count()
    options = {"snapshot_id": 200, "new_path": lambda: f"m{next(numbers)}.avro", **options}
    return RollingManifestWriter(encoder, **options)


def same_columns(found: ManifestColumns, expected: ManifestColumns) -> None:
    for name in ManifestColumns.__slots__:
        left, right = getattr(found, name), getattr(expected, name)
        if name == "deletes":
            assert (left is None) == (right is None)
            for part in () if left is None else type(left).__slots__:
                assert list(getattr(left, part)) == list(getattr(right, part)), part
        elif isinstance(left, np.ndarray):
            assert left.dtype == right.dtype, name
            assert left.tolist() == right.tolist(), name
        else:
            assert left == right, name


def copied(
    encoder: ManifestEncoder, content: bytes, listed: ManifestFile, removed: set[int]
) -> WrittenManifest:
    writer = writer_of(encoder)
    writer.copy_rows(content, decode_columns(content), listed, removed)
    (written,) = writer.finish()
    same_columns(written.columns(), decode_columns(written.file))
    return written


# --- columns of what was written -------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_columns_of_a_written_manifest_are_those_of_its_bytes(version: int) -> None:
    encoder = encoder_of(*TYPES, version=version)
    chance = random.Random(version)
    writer = writer_of(encoder, target_size_bytes=20_000)
    for number in range(2_600):
        own = {"first_row_id": number * 1_000} if version == 3 and chance.random() < 0.2 else {}
        part = (chance.choice((None, Decimal("2.50"))), UUID(int=number % 3), "x", number % 5)
        file = data_file(number, part, **own)
        if number % 7 == 3:
            writer.existing(file, 5, 6, None)
        elif number % 7 == 5:
            writer.delete(file, 6, 7)
        else:
            writer.add(file, 3 if number % 2 else None)
    written = writer.finish()
    assert len(written) > 2
    for manifest in written:
        same_columns(manifest.columns(), decode_columns(manifest.file))


@pytest.mark.parametrize("version", [2, 3])
def test_so_are_those_of_delete_files(version: int) -> None:
    path = {2147483546: b"s3://bucket/data/1.parquet"}
    files = [
        delete_file(1, POSITION_DELETES, referenced_data_file="s3://bucket/data/9.parquet"),
        delete_file(2, POSITION_DELETES, lower_bounds=path, upper_bounds=path),
        delete_file(3, EQUALITY_DELETES, equality_ids=[3, 1]),
    ]
    if version == 3:
        place = {"content_offset": 4, "content_size_in_bytes": 40}
        files.append(delete_file(4, POSITION_DELETES, **place))
    encoder = encoder_of(version=version, content=DELETES)
    writer = writer_of(encoder)
    for file in files:
        writer.add(file)
    (first,) = writer.finish()
    same_columns(first.columns(), decode_columns(first.file))
    listed = replace(LISTED, content=DELETES)
    second = copied(encoder, first.file, listed, {1})
    assert list(content_files(second.file, second.columns(), range(len(files)))) == files
    assert second.columns().status.tolist()[:3] == [EXISTING, DELETED, EXISTING]


def test_floats_in_the_partition_are_those_that_were_written() -> None:
    writer = writer_of(encoder_of("float", "double"))
    for value in (0.1, -0.0, 0.0, float("nan"), None):
        writer.add(data_file(1, (value, value)))
    (written,) = writer.finish()
    found = written.columns().partitions
    assert found[0] == (np.float32(0.1).item(), 0.1)
    assert len(found) == 5


# --- copies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_entries_are_taken_over(version: int) -> None:
    encoder = encoder_of(*TYPES, version=version)
    files = [data_file(number, PARTITION) for number in range(1_200)]
    content = manifest_of(encoder, files)
    listed = replace(LISTED, first_row_id=1_000 if version == 3 else None)
    before = decode_columns(content)
    live = np.flatnonzero(before.live())
    removed = {int(live[1]), int(live[700])}
    written = copied(encoder, content, listed, removed)
    columns = written.columns()
    inherited = before.inherited(listed)
    gone = np.isin(live, list(removed))
    assert columns.status.tolist() == np.where(gone, DELETED, EXISTING).tolist()
    assert columns.snapshot_id.tolist() == np.where(gone, 200, inherited.snapshot_id[live]).tolist()
    if version > 1:
        assert columns.sequence_number.tolist() == inherited.sequence_number[live].tolist()
        numbers = inherited.file_sequence_number[live]
        assert columns.file_sequence_number.tolist() == numbers.tolist()
    if version == 3:
        assert columns.first_row_id.tolist() == inherited.first_row_id[live].tolist()
    kept = [
        file
        if version < 3
        else DataFile(**{**fields(file), "first_row_id": int(columns.first_row_id[row])})
        for row, file in enumerate(files[number] for number in live.tolist())
    ]
    assert list(content_files(written.file, columns, range(len(live)))) == kept
    assert (written.existing_files_count, written.deleted_files_count) == (len(live) - 2, 2)
    assert written.deleted_rows_count == sum(files[row].record_count for row in removed)
    assert written.existing_rows_count == sum(
        files[row].record_count for row in live.tolist() if row not in removed
    )
    assert written.min_sequence_number == (0 if version == 1 else 3)
    assert written.added_files_count == 0


def fields(file: DataFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in file.__struct_fields__}


def test_copies_roll_as_other_entries_do_and_mix_with_them() -> None:
    encoder = encoder_of("long")
    content = manifest_of(encoder, [data_file(n, (n % 3,)) for n in range(3_000)])
    writer = writer_of(encoder, target_size_bytes=30_000)
    writer.add(data_file(9_000, (7,)))
    writer.copy_rows(content, decode_columns(content), LISTED)
    writer.add(data_file(9_001, (8,)))
    writer.copy_rows(content, decode_columns(content), LISTED, {0})
    written = writer.finish()
    assert len(written) > 3
    assert sum(one.existing_files_count for one in written) == 3_999
    assert sum(one.added_files_count for one in written) == 2
    assert sum(one.deleted_files_count for one in written) == 1
    for manifest in written:
        same_columns(manifest.columns(), decode_columns(manifest.file))
        statuses = [entry.status for entry in read_manifest(manifest.file).entries]
        assert statuses.count(EXISTING) == manifest.existing_files_count


@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 3), (2, 3)])
def test_entries_of_an_older_version_are_translated(before: int, after: int) -> None:
    """This happens after a table upgrade, when an older manifest loses an entry."""
    old = encoder_of(*TYPES, version=before)
    files = [data_file(number, PARTITION, sort_order_id=2) for number in range(3)]
    writer = writer_of(old, snapshot_id=5)
    for file in files:
        writer.add(file)
    content = writer.finish()[0].file
    target = encoder_of(*TYPES, version=after)
    listed = replace(LISTED, sequence_number=0) if before == 1 else LISTED
    written = copied(target, content, listed, set())
    expected = [target.data_file(file) for file in files]
    assert (
        data_files_of(open_avro(written.file, MANIFEST_LIMITS), written.columns(), [0, 1, 2])
        == expected
    )
    assert written.columns().sequence_number.tolist() == [listed.sequence_number] * 3
    if after == 3:
        upgraded = copied(target, content, replace(listed, first_row_id=50), set())
        assert upgraded.columns().first_row_id.tolist() == [50, 60, 71]


def test_row_ids_are_left_out_where_the_list_has_none() -> None:
    """Java reads such manifests this way: only files of a manifest with row ids have row ids."""
    encoder = encoder_of(version=3)
    content = manifest_of(encoder, [data_file(1, first_row_id=700), data_file(4)])
    written = copied(encoder, content, LISTED, set())
    files = list(content_files(written.file, written.columns(), [0, 1]))
    assert files == [data_file(1), data_file(4)]


def without(encoder: ManifestEncoder, *names: str) -> dict[str, Any]:
    tree = encoder.schema.tree
    (file,) = (field["type"] for field in tree["fields"] if field["name"] == "data_file")
    file["fields"] = [field for field in file["fields"] if field["name"] not in names]
    return tree


def test_manifests_of_older_writers_lack_the_last_fields() -> None:
    encoder = encoder_of("long", version=3)
    names = ("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes")
    files = [data_file(n, (n,)) for n in range(4)]
    tree = without(encoder, *names)
    content = avro_bytes(tree, avro_records(manifest_of(encoder, files)), {})
    written = copied(encoder, content, replace(LISTED, first_row_id=10), {3})
    found = list(content_files(written.file, written.columns(), range(3)))
    ids = (10, 20, 31)
    expected = [
        data_file(n, (n,), first_row_id=first) for n, first in zip((0, 1, 3), ids, strict=True)
    ]
    assert found == expected


def test_ints_that_were_longs_are_copied_as_they_are() -> None:
    """PyIceberg writes `equality_ids` as longs; promoted partition values can be longs too."""
    old, new = encoder_of("int", content=DELETES), encoder_of("long", content=DELETES)
    files = [
        delete_file(n, EQUALITY_DELETES, equality_ids=[n, 70], partition=(n,)) for n in range(3)
    ]
    tree = json.loads(
        old.schema.text.replace('"items":"int","element-id":136', '"items":"long","element-id":136')
    )
    content = avro_bytes(tree, avro_records(manifest_of(old, files)), {"content": "deletes"})
    written = copied(new, content, replace(LISTED, content=DELETES), set())
    assert list(content_files(written.file, written.columns(), [0, 1])) == files[:2]
    assert data_files_of(open_avro(written.file, MANIFEST_LIMITS), written.columns(), [1]) == [
        new.data_file(files[1])
    ]


def test_entries_without_their_numbers_are_not_carried_over() -> None:
    encoder = encoder_of()
    tree = without(encoder)
    records = avro_records(manifest_of(encoder, [data_file(1), data_file(2)]))
    records[1]["sequence_number"] = None
    content = avro_bytes(tree, records, {})
    with pytest.raises(UnreadableAvro, match="sequence number"):
        copied(encoder, content, LISTED, set())


def test_only_live_rows_can_be_removed() -> None:
    encoder = encoder_of()
    content = manifest_of(encoder, [data_file(n) for n in range(3)])
    for row in (2, 7):
        with pytest.raises(ValueError, match="no live entry"):
            copied(encoder, content, LISTED, {row})
    with pytest.raises(ValueError, match="snapshot id"):
        writer_of(encoder, snapshot_id=None).copy_rows(
            content, decode_columns(content), LISTED, {0}
        )


# --- fields that we do not know --------------------------------------------------------------

UNKNOWN = [
    {"name": "score", "type": "double", "field-id": 900},
    {"name": "note", "type": ["null", "string"], "default": None, "field-id": 901},
    {"name": "other_way", "type": ["long", "null"], "default": 0, "field-id": 902},
    {"name": "choice", "type": ["int", "string"], "field-id": 903},
    {
        "name": "nested",
        "type": {
            "type": "record",
            "name": "r102",
            "namespace": "theirs",
            "fields": [{"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A"]}}],
        },
        "field-id": 904,
    },
    {"name": "again", "type": {"type": "map", "values": "theirs.r102"}, "field-id": 905},
    {"name": "without_id", "type": "boolean"},
]
VALUES: dict[str, Any] = {
    "score": 0.5,
    "note": "hello",
    "other_way": 9,
    "choice": "text",
    "nested": {"kind": "A"},
    "again": {"x": {"kind": "A"}},
    "without_id": True,
}


def foreign_manifest(encoder: ManifestEncoder, files: list[DataFile]) -> bytes:
    tree = json.loads(json.dumps(encoder.schema.tree).replace('"r102"', '"theirs_102"'))
    (file,) = (field["type"] for field in tree["fields"] if field["name"] == "data_file")
    file["fields"][2:2] = UNKNOWN
    records = avro_records(manifest_of(encoder, files))
    for record in records:
        record["data_file"] |= VALUES
    return avro_bytes(tree, records, {})


@pytest.mark.parametrize("version", [2, 3])
def test_unknown_fields_survive(version: int) -> None:
    encoder = encoder_of("long", version=version)
    files = [data_file(n, (n,)) for n in range(4)]
    content = foreign_manifest(encoder, files)
    first = copied(encoder, content, LISTED, {1})
    records = [record["data_file"] for record in avro_records(first.file)]
    assert [{name: record[name] for name in VALUES} for record in records] == [VALUES] * 3
    assert list(content_files(first.file, first.columns(), range(3))) == [
        file for number, file in enumerate(files) if number != 2
    ]
    again = copied(encoder, first.file, LISTED, set())
    records = [record["data_file"] for record in avro_records(again.file)]
    assert [{name: record[name] for name in VALUES} for record in records] == [VALUES] * 2
    assert records[0].keys() - avro_records(manifest_of(encoder, files))[0]["data_file"].keys() == (
        VALUES.keys()
    )


def test_entries_that_lack_unknown_fields_follow_with_nulls() -> None:
    encoder = encoder_of("long", version=3)
    files = [data_file(n, (n,)) for n in range(2)]
    content, plain = foreign_manifest(encoder, files), manifest_of(encoder, files)
    writer = writer_of(encoder)
    writer.add(data_file(8, (8,)))
    writer.copy_rows(content, decode_columns(content), LISTED)
    writer.add(data_file(9, (9,), first_row_id=70))
    writer.copy_rows(plain, decode_columns(plain), replace(LISTED, first_row_id=5))
    before, after = writer.finish()
    assert before.added_files_count == 1
    assert "score" not in avro_records(before.file)[0]["data_file"]
    records = [record["data_file"] for record in avro_records(after.file)]
    assert [record["score"] for record in records] == [0.5, 0.5, None, None, None]
    assert [record["first_row_id"] for record in records] == [None, None, 70, 5, 15]
    for manifest in (before, after):
        same_columns(manifest.columns(), decode_columns(manifest.file))


def test_another_writers_schema_is_translated() -> None:
    """Its fields have another order, optional fields are absent, and a partition field may be
    missing."""
    part = [
        {"name": "second", "type": ["null", "string"], "field-id": 1001},
        {"name": "first", "type": "int", "field-id": 1000},
    ]
    file = {
        "type": "record",
        "name": "r2",
        "fields": [
            {"name": "file_format", "type": "string", "field-id": 101},
            {"name": "file_path", "type": "string", "field-id": 100},
            {
                "name": "partition",
                "type": {"type": "record", "name": "r102", "fields": part},
                "field-id": 102,
            },
            {"name": "record_count", "type": "long", "field-id": 103},
            {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
        ],
    }
    schema = {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            {"name": "data_file", "type": file, "field-id": 2},
            {"name": "status", "type": "int", "field-id": 0},
            {"name": "snapshot_id", "type": ["null", "long"], "field-id": 1},
        ],
    }
    record = {
        "status": ADDED,
        "snapshot_id": 5,
        "data_file": {
            "file_path": "a",
            "file_format": "ORC",
            "partition": {"first": 1, "second": "x"},
            "record_count": 8,
            "file_size_in_bytes": 9,
        },
    }
    content = avro_bytes(schema, [record], {}, "deflate")
    encoder = encoder_of("int", "string")
    written = copied(encoder, content, LISTED, set())
    (found,) = content_files(written.file, written.columns(), [0])
    assert found == DataFile(
        file_path="a",
        file_format="ORC",
        partition=(1, "x"),
        record_count=8,
        file_size_in_bytes=9,
    )
    assert written.content == DATA


# --- whole blocks ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_blocks_whose_entries_all_stay_are_taken_over_as_they_are(version: int, codec: str) -> None:
    encoder = encoder_of("long", version=version)
    listed = replace(LISTED, first_row_id=1_000 if version == 3 else None)
    if version == 1:
        listed = replace(listed, sequence_number=0)
    writer = writer_of(encoder, codec=codec)
    for number in range(2_700):
        writer.add(data_file(number, (number % 4,)))
    content = writer.finish()[0].file
    kept = set(range(2_700))
    for round_, removed in enumerate(({700}, {701, 2_650}, set(range(1_000, 1_450)), {5})):
        columns = decode_columns(content)
        rows = {columns.find(data_file(n).file_path)[0] for n in removed}
        writer = writer_of(encoder, codec=codec, snapshot_id=300 + round_)
        writer.copy_rows(content, columns, listed, rows)
        (written,) = writer.finish()
        same_columns(written.columns(), decode_columns(written.file))
        kept -= removed
        after = decode_columns(written.file)
        live = np.flatnonzero(after.live())
        assert after.paths(live.tolist()) == [data_file(n).file_path for n in sorted(kept)]
        assert written.existing_files_count == len(kept)
        assert written.deleted_files_count == len(removed)
        assert set(after.snapshot_id[~after.live()].tolist()) == {300 + round_}
        if round_:
            assert blocks_in_common(content, written.file) >= 2
        content, listed = written.file, replace(listed, first_row_id=1) if version == 3 else listed
    if version == 3:
        ids = decode_columns(content).first_row_id
        assert ids[:3].tolist() == [1_000, 1_010, 1_021]


def blocks_in_common(before: bytes, after: bytes) -> int:
    found = []
    for content in (before, after):
        file = open_avro(content, MANIFEST_LIMITS)
        found.append({content[start:end] for _, start, end in file.block_spans()})
    return len(found[0] & found[1])


def test_whole_blocks_roll_too() -> None:
    encoder = encoder_of("long")
    files = [data_file(n, (n % 3,), lower_bounds={1: bytes(8)}) for n in range(15_000)]
    content = copied(encoder, manifest_of(encoder, files), LISTED, set()).file
    writer = writer_of(encoder, target_size_bytes=40_000)
    writer.add(data_file(2, (9,)))
    writer.copy_rows(content, decode_columns(content), LISTED, {3, 7_000})
    writer.add(data_file(3, (9,)))
    written = writer.finish()
    assert len(written) > 2
    assert sum(one.existing_files_count for one in written) == 9_998
    assert sum(one.deleted_files_count for one in written) == 2
    assert sum(one.added_files_count for one in written) == 2
    for manifest in written:
        same_columns(manifest.columns(), decode_columns(manifest.file))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("keeps_copies", [True, False])
def test_rows_are_shared_out(version: int, keeps_copies: bool) -> None:
    """Each entry is in exactly one of several manifests, and whole blocks are taken over."""
    encoder = encoder_of("long", version=version)
    files = [data_file(n, (n % 3,)) for n in range(2_400)]
    listed = replace(LISTED, first_row_id=1_000 if version == 3 else None)
    if version == 1:
        listed = replace(listed, sequence_number=0)
    first = copied(encoder, manifest_of(encoder, files), listed, {7})
    content, columns = first.file, decode_columns(first.file)
    live = np.flatnonzero(columns.live())
    expected = columns.inherited(listed)
    chance = np.random.default_rng(version)
    for shares in (live // 1_250, chance.integers(0, 3, len(live))):
        found: dict[str, tuple[int, ...]] = {}
        for number in np.unique(shares).tolist():
            writer = writer_of(encoder, snapshot_id=None, keeps_copies=keeps_copies)
            writer.copy_rows(content, columns, listed, rows=live[shares == number])
            (written,) = writer.finish()
            same_columns(written.columns(), decode_columns(written.file))
            own = decode_columns(written.file)
            numbers = own.inherited(replace(listed, first_row_id=1 if version == 3 else None))
            for row in range(len(own)):
                assert own.status[row] == EXISTING
                found[own.path(row)] = _numbers_of(numbers, row)
            if len(np.unique(shares)) == 2:
                assert blocks_in_common(content, written.file) >= 1
        assert found == {columns.path(row): _numbers_of(expected, row) for row in live.tolist()}


def _numbers_of(inherited: Inherited, row: int) -> tuple[int, ...]:
    return (
        int(inherited.snapshot_id[row]),
        int(inherited.sequence_number[row]),
        int(inherited.file_sequence_number[row]),
        int(inherited.first_row_id[row]),
    )

"""Manifests roll over at their target size, know their list entry, and copy entries as bytes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_entries import read_manifest
from frazil.format.manifest.manifest_fields import ADDED, DELETED, EXISTING
from frazil.format.manifest.manifest_list import (
    DATA,
    ListedManifest,
    ManifestFile,
    ManifestList,
    PartitionSummary,
    manifest_list_schema,
    partition_summaries,
    read_manifest_list,
    write_manifest_list,
)
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.partition_spec import PartitionSpec, parse_partition_spec
from frazil.format.metadata.schema import Schema, parse_schema

LISTED = ManifestFile(
    "m", 1, 0, DATA, 3, 3, 5, None, None, None, None, None, None, None, False, b""
)


def schema_of(*types: str) -> Schema:
    fields = [
        {"id": number, "name": f"c{number}", "required": False, "type": kind}
        for number, kind in enumerate(types, 1)
    ]
    return parse_schema(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}).encode())


def spec_of(size: int) -> PartitionSpec:
    fields = [
        {"source-id": n, "field-id": 999 + n, "name": f"p{n}", "transform": "identity"}
        for n in range(1, size + 1)
    ]
    return parse_partition_spec(json.dumps({"spec-id": 4, "fields": fields}).encode())


def encoder_of(*types: str, version: int = 2, content: int = DATA) -> ManifestEncoder:
    return manifest_encoder(schema_of(*types), spec_of(len(types)), version, content)


def writer_of(encoder: ManifestEncoder, **options: Any) -> RollingManifestWriter:
    numbers = count()
    options = {"snapshot_id": 100, "new_path": lambda: f"m{next(numbers)}.avro", **options}
    return RollingManifestWriter(encoder, **options)


def file_of(number: int, *partition: Any, **changes: Any) -> DataFile:
    return DataFile(
        file_path=f"s3://bucket/{number}.parquet",
        file_format="PARQUET",
        partition=partition,
        record_count=number,
        file_size_in_bytes=100,
        value_counts={1: number},
        lower_bounds={1: bytes(4)},
        **changes,
    )


def listed_as(
    written: WrittenManifest,
    version: int,
    sequence_number: int = 9,
    first_row_id: int | None = None,
) -> ManifestFile:
    """Write a manifest list with the manifest, read it again and return its entry."""
    schema = manifest_list_schema(version)
    values = written.listed(100, sequence_number)
    out = bytearray()
    schema.record.write(
        out,
        {field.name: list_value(values[field.field_id or -1]) for field in schema.record.fields},
    )
    manifest = replace(
        LISTED,
        content=written.content,
        added_rows_count=written.added_rows_count,
        existing_rows_count=written.existing_rows_count,
        raw=bytes(out),
    )
    entry = ListedManifest(manifest, schema)
    done = write_manifest_list(
        [entry],
        like=ManifestList(schema, {}, "deflate", ()),
        format_version=version,
        snapshot_id=100,
        parent_snapshot_id=None,
        sequence_number=sequence_number,
        first_row_id=first_row_id,
        codec="deflate",
    )
    (found,) = read_manifest_list(done.content).manifests
    assert partition_summaries(done.parsed.schema, found) == tuple(written.partitions)
    return found


def list_value(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    names = PartitionSummary.__slots__
    return [{name: getattr(summary, name) for name in names} for summary in value]


# --- rolling ---------------------------------------------------------------------------------


def test_a_manifest_knows_its_list_entry() -> None:
    writer = writer_of(encoder_of("int"))
    writer.add(file_of(1, 5))
    writer.add(file_of(2, None), sequence_number=7)
    writer.existing(file_of(4, 3), snapshot_id=90, sequence_number=6, file_sequence_number=8)
    writer.delete(file_of(8, 9), sequence_number=2, file_sequence_number=3)
    (written,) = writer.finish()
    found = listed_as(written, 2)
    assert (found.manifest_path, found.manifest_length) == ("m0.avro", len(written.file))
    assert (found.partition_spec_id, found.content, found.added_snapshot_id) == (4, DATA, 100)
    assert (found.sequence_number, found.min_sequence_number) == (9, 6)
    assert (found.added_files_count, found.added_rows_count) == (2, 3)
    assert (found.existing_files_count, found.existing_rows_count) == (1, 4)
    assert (found.deleted_files_count, found.deleted_rows_count) == (1, 8)
    assert (found.first_row_id, found.encrypted) == (None, False)
    low, high = (3).to_bytes(4, "little"), (9).to_bytes(4, "little")
    assert written.partitions == (PartitionSummary(True, False, low, high),)
    entries = read_manifest(written.file).entries
    assert [entry.status for entry in entries] == [ADDED, ADDED, EXISTING, DELETED]
    assert [entry.snapshot_id for entry in entries] == [100, 100, 90, 100]
    assert [entry.sequence_number for entry in entries] == [None, 7, 6, 2]
    assert [entry.file_sequence_number for entry in entries] == [None, None, 8, 3]


def test_files_that_inherit_leave_the_least_number_to_the_commit() -> None:
    writer = writer_of(encoder_of(), snapshot_id=None)
    writer.add(file_of(1))
    (written,) = writer.finish()
    assert written.min_sequence_number is None
    assert written.partitions == ()
    assert listed_as(written, 2, sequence_number=12).min_sequence_number == 12
    assert read_manifest(written.file).entries[0].snapshot_id is None


def test_without_entries_nothing_is_written() -> None:
    assert writer_of(encoder_of()).finish() == ()


@pytest.mark.parametrize("codec", ["deflate", "null", "zstandard"])
def test_manifests_roll_at_the_target_size(codec: str) -> None:
    writer = writer_of(encoder_of("int"), target_size_bytes=10_000, codec=codec)
    for number in range(2_600):
        writer.add(file_of(number, number))
    manifests = writer.finish()
    assert len({written.manifest_path for written in manifests}) == len(manifests) > 1
    found = [read_manifest(written.file) for written in manifests]
    assert [entry.record_count for manifest in found for entry in manifest.entries] == [
        *range(2_600)
    ]
    for written, manifest in zip(manifests, found, strict=True):
        values = [entry.partition[0] for entry in manifest.entries]
        assert written.added_files_count == len(values)
        low, high = (bound(values).to_bytes(4, "little") for bound in (min, max))
        assert written.partitions == (PartitionSummary(False, False, low, high),)
    assert all(written.manifest_length >= 10_000 for written in manifests[:-1])


def test_a_large_block_of_large_entries_ends_early() -> None:
    bounds = {number: bytes(16) for number in range(1_000)}
    large = file_of(0, column_sizes=dict.fromkeys(bounds, 2**60), upper_bounds=bounds)
    encoder = encoder_of()
    writer = writer_of(encoder, target_size_bytes=1)
    for _ in range(120):
        writer.add(large)
    found = [written.added_files_count for written in writer.finish()]
    entry = encoder.entry(ADDED, 100, None, None, encoder.data_file(large))
    entries = math.ceil((1 << 20) / len(entry))
    assert entries < 500
    assert found == [entries] * (120 // entries) + [120 % entries]


# --- partition summaries ---------------------------------------------------------------------


def summaries(kind: str, *values: Any, version: int = 2) -> PartitionSummary:
    writer = writer_of(encoder_of(kind, version=version))
    for number, value in enumerate(values):
        writer.add(file_of(number, value))
    (written,) = writer.finish()
    return written.partitions[0]


def test_summaries_by_type() -> None:
    low, high = Decimal("-1.50"), Decimal("100.00")
    assert summaries("decimal(9, 2)", high, None, low) == PartitionSummary(
        True, False, b"\xff\x6a", b"\x27\x10"
    )
    assert summaries("fixed[2]", b"\xff\x00", b"\x01\x02") == PartitionSummary(
        False, False, b"\x01\x02", b"\xff\x00"
    )
    assert summaries("string", "b", "ä", "a") == PartitionSummary(False, False, b"a", "ä".encode())
    assert summaries("double", math.nan) == PartitionSummary(False, True, None, None)
    assert summaries("boolean", None) == PartitionSummary(True, False, None, None)
    found = summaries("date", 2, 1)
    assert (found.lower_bound, found.upper_bound) == (b"\x01\0\0\0", b"\x02\0\0\0")


def test_uuids_are_ordered_as_java_orders_them() -> None:
    negative, positive = UUID(int=1 << 127), UUID(int=1)
    found = summaries("uuid", positive, negative)
    assert (found.lower_bound, found.upper_bound) == (negative.bytes, positive.bytes)


def test_a_dropped_column_is_all_null() -> None:
    raw = {"fields": [{"source-id": 9, "field-id": 1000, "name": "gone", "transform": "void"}]}
    spec = parse_partition_spec(json.dumps(raw).encode())
    writer = writer_of(manifest_encoder(schema_of("int"), spec, 2, DATA))
    writer.add(file_of(1, None))
    (written,) = writer.finish()
    assert written.partitions == (PartitionSummary(True, False, None, None),)

"""Manifest lists are read and written again without losing fields."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest import manifest_list as listing
from frazil.format.manifest.manifest_list import (
    ListedManifest,
    ManifestList,
    PartitionSummary,
    WrittenManifestList,
    empty_list,
    manifest_list_schema,
    new_listed,
    partition_summaries,
    read_manifest_list,
    write_manifest_list,
)
from tests.support.trees import avro_bytes, avro_records, list_bytes, listed

SUMMARY = {
    "contains_null": True,
    "contains_nan": None,
    "lower_bound": b"\1\0\0\0",
    "upper_bound": b"\2\0\0\0",
}


def write(
    *entries: ListedManifest,
    like: ManifestList,
    format_version: int,
    first_row_id: int | None = None,
) -> WrittenManifestList:
    written = write_manifest_list(
        entries,
        like=like,
        format_version=format_version,
        snapshot_id=9,
        parent_snapshot_id=8,
        sequence_number=7,
        first_row_id=first_row_id,
        codec="deflate",
    )
    assert written.parsed == read_manifest_list(written.content)
    return written


def all_of(found: ManifestList, **changes: Any) -> list[ListedManifest]:
    by_id = {getattr(listing, name.upper()): value for name, value in changes.items()}
    return [ListedManifest(manifest, found.schema, by_id) for manifest in found.manifests]


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_a_list_is_read(format_version: int) -> None:
    values = {"manifest_length": 77, "partition_spec_id": 3, "added_rows_count": 5}
    later = {"content": 1, "sequence_number": 4, "min_sequence_number": 2}
    record = listed("s3://b/m.avro", 6, **values, **(later if format_version > 1 else {}))
    found = read_manifest_list(list_bytes([record], format_version))
    (manifest,) = found.manifests
    assert manifest.manifest_path == "s3://b/m.avro"
    assert manifest.added_snapshot_id == 6
    assert (manifest.manifest_length, manifest.partition_spec_id) == (77, 3)
    numbers = (manifest.content, manifest.sequence_number, manifest.min_sequence_number)
    assert numbers == ((1, 4, 2) if format_version > 1 else (0, 0, 0))
    assert manifest.added_rows_count == 5
    assert not manifest.encrypted


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_what_stays_stays_byte_for_byte(format_version: int) -> None:
    records = [listed("m1", 1, partitions=[SUMMARY]), listed("m2", 2, first_row_id=5)]
    found = read_manifest_list(list_bytes(records, format_version))
    written = write(*all_of(found), like=found, format_version=format_version)
    assert avro_records(written.content) == avro_records(list_bytes(records, format_version))
    again = read_manifest_list(written.content)
    assert [m.raw for m in again.manifests] == [m.raw for m in found.manifests]
    assert again.schema == found.schema


def test_the_header_is_that_of_java() -> None:
    found = read_manifest_list(list_bytes([], 3))
    written = write(like=found, format_version=3, first_row_id=40)
    metadata = fastavro.reader(io.BytesIO(written.content)).metadata
    assert {key: metadata[key] for key in metadata if not key.startswith("avro.")} == {
        "snapshot-id": "9",
        "parent-snapshot-id": "8",
        "sequence-number": "7",
        "first-row-id": "40",
        "format-version": "3",
    }
    assert written.assigned_rows == 0


def test_fields_we_do_not_know_are_kept() -> None:
    schema = manifest_list_schema(2).tree
    schema["fields"].insert(
        0, {"name": "from_the_future", "type": ["null", "string"], "field-id": 999}
    )
    head = [listed("m1", 1, from_the_future="kept")]
    found = read_manifest_list(avro_bytes(schema, head, {}))
    own = read_manifest_list(list_bytes([listed("m2", 2)], 2))
    entries = [*all_of(own, sequence_number=7), *all_of(found)]
    records = avro_records(write(*entries, like=found, format_version=2).content)
    assert [record["from_the_future"] for record in records] == [None, "kept"]
    assert [record["sequence_number"] for record in records] == [7, 0]
    # This also works if the old list's schema cannot be used for the new one.
    upgraded = write(*entries, like=found, format_version=3, first_row_id=10)
    records = avro_records(upgraded.content)
    assert [record["from_the_future"] for record in records] == [None, "kept"]
    assert [record["first_row_id"] for record in records] == [10, 11]


def test_a_list_of_version_1_goes_on_in_version_2() -> None:
    found = read_manifest_list(list_bytes([listed("m1", 1, partitions=[SUMMARY])], 1))
    written = write(*all_of(found), like=found, format_version=2)
    (record,) = avro_records(written.content)
    expected = listed("m1", 1, partitions=[SUMMARY])
    assert record == {key: value for key, value in expected.items() if key != "first_row_id"}
    metadata = fastavro.reader(io.BytesIO(written.content)).metadata
    schema = json.loads(metadata["iceberg.schema"])
    ids = [field["id"] for field in schema["fields"]]
    assert ids == [field["field-id"] for field in manifest_list_schema(2).tree["fields"]]
    assert schema["fields"][-2]["type"]["element"]["fields"][2]["type"] == "binary"


def test_counts_that_version_2_requires_must_be_there() -> None:
    found = read_manifest_list(list_bytes([listed("m1", 1, added_files_count=None)], 1))
    with pytest.raises(UnreadableAvro, match="requires added_files_count"):
        write(*all_of(found), like=found, format_version=2)


def test_row_ids_are_given_to_data_manifests_without_any() -> None:
    records = [
        listed("new", 9, added_rows_count=100, existing_rows_count=25),
        listed("deletes", 8, content=1, added_rows_count=70),
        listed("assigned", 7, first_row_id=3, added_rows_count=50),
        listed("upgraded", 6, added_rows_count=0, existing_rows_count=30),
    ]
    found = read_manifest_list(list_bytes(records, 3))
    written = write(*all_of(found), like=found, format_version=3, first_row_id=1000)
    ids = [record["first_row_id"] for record in avro_records(written.content)]
    assert ids == [1000, None, 3, 1125]
    assert written.assigned_rows == 155


def test_partition_summaries_are_read_and_replaced() -> None:
    found = read_manifest_list(list_bytes([listed("m1", 1, partitions=[SUMMARY])], 2))
    (manifest,) = found.manifests
    summary = PartitionSummary(True, None, b"\1\0\0\0", b"\2\0\0\0")
    assert partition_summaries(found.schema, manifest) == (summary,)
    other = PartitionSummary(False, False, b"\3\0\0\0", None)
    written = write(*all_of(found, partitions=[other]), like=found, format_version=2)
    again = read_manifest_list(written.content)
    assert partition_summaries(again.schema, again.manifests[0]) == (other,)
    bare = read_manifest_list(list_bytes([listed("m1", 1)], 2))
    assert partition_summaries(bare.schema, bare.manifests[0]) is None


def test_encrypted_manifests_are_told() -> None:
    found = read_manifest_list(list_bytes([listed("m1", 1, key_metadata=b"key")], 2))
    assert found.manifests[0].encrypted


def test_an_unknown_content_is_refused() -> None:
    with pytest.raises(UnreadableAvro, match="unknown content 2"):
        read_manifest_list(list_bytes([listed("m1", 1, content=2)], 2))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("key_metadata", [None, b"", b"key"])
@pytest.mark.parametrize(
    "summaries",
    [
        [],
        [PartitionSummary(False, None, b"\1", b"\2")],
        [PartitionSummary(True, True, None, None), PartitionSummary(False, False, b"", b"x" * 300)],
    ],
)
def test_a_new_manifest_is_encoded_as_its_schema_says(
    version: int, key_metadata: bytes | None, summaries: list[PartitionSummary]
) -> None:
    numbers = [
        listing.LENGTH,
        listing.SPEC_ID,
        *([listing.CONTENT, listing.SEQUENCE_NUMBER] if version > 1 else []),
        *([listing.MIN_SEQUENCE_NUMBER] if version > 1 else []),
        listing.ADDED_SNAPSHOT_ID,
        *(listing.ADDED_FILES, listing.EXISTING_FILES, listing.DELETED_FILES),
        *(listing.ADDED_ROWS, listing.EXISTING_ROWS, listing.DELETED_ROWS),
    ]
    values: dict[int, Any] = {field_id: 10**at + at for at, field_id in enumerate(numbers)}
    if version > 1:
        values[listing.CONTENT] = listing.DELETES
    values |= {
        listing.PATH: "file:///metadata/ä-m0.avro",
        listing.PARTITIONS: summaries,
        listing.KEY_METADATA: key_metadata,
        **({listing.FIRST_ROW_ID: 7} if version > 2 else {}),
    }
    entry = new_listed(values, version, None)
    written = write(entry, like=empty_list(version, "null"), format_version=version)
    (record,) = avro_records(written.content)
    names = {field.field_id: field.name for field in entry.schema.record.fields}
    for field_id, value in values.items():
        if field_id != listing.PARTITIONS:
            assert record[names[field_id]] == value
    assert [tuple(each.values()) for each in record["partitions"]] == [
        (each.contains_null, each.contains_nan, each.lower_bound, each.upper_bound)
        for each in summaries
    ]

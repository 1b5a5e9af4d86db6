"""Table metadata to and from JSON: all versions, old forms, unknown fields, invalid documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.format.metadata.table_metadata_json import (
    InvalidMetadata,
    encode_refs_only,
    encode_table_metadata,
    parse_table_metadata,
)
from tests.support.tables import (
    DAY_SPEC,
    ID_ORDER,
    LOCATION,
    NOW_MS,
    SCHEMA,
    UUID,
    WIDER_SCHEMA,
    apply,
    document,
    history,
    parse,
    set_ref,
    snapshot,
    table,
    update,
)

VERSIONS = (1, 2, 3)

OLD_V1: dict[str, Any] = {
    "format-version": 1,
    "location": LOCATION,
    "last-updated-ms": NOW_MS,
    "last-column-id": 3,
    "schema": {key: value for key, value in SCHEMA.items() if key != "schema-id"},
    "partition-spec": [{"source-id": 2, "name": "day_part", "transform": "identity"}],
}


def encoded(metadata: TableMetadata) -> bytes:
    return b"".join(encode_table_metadata(metadata))


def full(version: int) -> TableMetadata:
    """Return a table with a value in every field."""
    metadata = apply(
        history(3, version),
        set_ref(1, "v1", "tag", max_ref_age_ms=5),
        update("add-schema", schema=WIDER_SCHEMA),
        update("set-current-schema", schema_id=-1),
        update(
            "set-statistics",
            statistics={
                "snapshot-id": 3,
                "statistics-path": "s3://b/s.puffin",
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            },
        ),
        update(
            "set-partition-statistics",
            partition_statistics={
                "snapshot-id": 3,
                "statistics-path": "s3://b/s.parquet",
                "file-size-in-bytes": 1,
            },
        ),
    )
    if version == 3:
        key = {"key-id": "k", "encrypted-key-metadata": "c2VjcmV0"}
        metadata = apply(metadata, update("add-encryption-key", encryption_key=key))
    return metadata


class TestRoundTrip:
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("make", [table, full], ids=["empty", "full"])
    def test_what_is_written_is_read_again(self, make: Any, version: int) -> None:
        metadata = make(version)
        again = parse_table_metadata(encoded(metadata), summaries=True)
        assert again == metadata
        assert encoded(again) == encoded(metadata)

    @pytest.mark.parametrize("version", VERSIONS)
    def test_white_space_does_not_matter(self, version: int) -> None:
        metadata = full(version)
        pretty = json.dumps(document(metadata), indent=2).encode()
        assert parse_table_metadata(pretty) == metadata

    def test_fields_of_each_version(self) -> None:
        one, two, three = (document(full(version)) for version in VERSIONS)
        assert one["schema"] == one["schemas"][1]
        assert one["partition-spec"] == one["partition-specs"][0]["fields"]
        assert "last-sequence-number" not in one
        for newer in (two, three):
            assert "schema" not in newer
            assert "partition-spec" not in newer
            assert newer["last-sequence-number"] == 3
        assert "next-row-id" not in two
        assert three["next-row-id"] == 30
        assert three["encryption-keys"]

    @pytest.mark.parametrize(("version", "none"), [(1, -1), (2, -1), (3, None)])
    def test_no_current_snapshot(self, version: int, none: int | None) -> None:
        assert document(table(version))["current-snapshot-id"] == none

    def test_the_order_of_fields_is_javas(self) -> None:
        assert list(document(full(3))) == [
            "format-version",
            "table-uuid",
            "location",
            "last-sequence-number",
            "last-updated-ms",
            "last-column-id",
            "current-schema-id",
            "schemas",
            "default-spec-id",
            "partition-specs",
            "last-partition-id",
            "default-sort-order-id",
            "sort-orders",
            "properties",
            "current-snapshot-id",
            "next-row-id",
            "encryption-keys",
            "refs",
            "snapshots",
            "statistics",
            "partition-statistics",
            "snapshot-log",
            "metadata-log",
        ]

    def test_unknown_fields_survive_at_every_level(self) -> None:
        value = document(full(2))
        value["unknown"] = {"a": [1, 2.5, None]}
        value["nothing"] = None
        for path in (
            value["schemas"][0],
            value["schemas"][0]["fields"][0],
            value["partition-specs"][0],
            value["partition-specs"][0]["fields"][0],
            value["sort-orders"][0],
            value["snapshots"][1],
            value["snapshot-log"][0],
            value["refs"]["v1"],
            value["statistics"][0],
            value["partition-statistics"][0],
        ):
            path["unknown"] = {"b": "c"}
        value["metadata-log"] = [
            {"timestamp-ms": NOW_MS, "metadata-file": "f", "unknown": {"b": "c"}}
        ]
        metadata = parse(value)
        assert document(metadata) == value
        changed = apply(metadata, update("set-properties", updates={"a": "b"}))
        value["properties"]["a"] = "b"
        assert document(changed) == value

    @pytest.mark.parametrize("version", [1, 2])
    @pytest.mark.parametrize("make", [table, full], ids=["empty", "full"])
    def test_pyiceberg_reads_what_is_written(self, make: Any, version: int) -> None:
        metadata = make(version)
        read = TableMetadataUtil.parse_raw(encoded(metadata).decode())
        assert read.format_version == version
        assert str(read.table_uuid) == metadata.table_uuid
        assert read.current_snapshot_id == metadata.current_snapshot_id
        assert [s.snapshot_id for s in read.snapshots] == [
            s.snapshot_id for s in metadata.snapshots
        ]
        assert set(read.refs) == set(metadata.refs)
        assert read.current_schema_id == metadata.current_schema_id
        assert read.default_spec_id == metadata.default_spec_id
        assert [e.snapshot_id for e in read.snapshot_log] == [
            e.snapshot_id for e in metadata.snapshot_log
        ]
        # Metadata that PyIceberg writes can be parsed.
        again = parse_table_metadata(read.model_dump_json(by_alias=True).encode())
        assert again.snapshots.ids() == metadata.snapshots.ids()
        assert again.current_snapshot_id == metadata.current_snapshot_id

    def test_refs_only(self) -> None:
        metadata = apply(history(40), set_ref(7, "v7", "tag"), set_ref(39, "dev"))
        value = json.loads(b"".join(encode_refs_only(metadata)))
        assert [found["snapshot-id"] for found in value["snapshots"]] == [7, 39, 40]
        assert len(value["snapshot-log"]) == 40
        whole = document(metadata)
        assert value | {"snapshots": None} == whole | {"snapshots": None}


class TestOldForms:
    def test_version_1_with_one_schema_and_one_spec(self) -> None:
        metadata = parse(OLD_V1)
        assert metadata.table_uuid is None
        assert (metadata.current_schema_id, len(metadata.schemas)) == (0, 1)
        assert metadata.default_spec.fields[0].field_id == 1000
        assert metadata.last_partition_id == 1000
        assert metadata.default_sort_order_id == 0
        assert metadata.refs == {}
        again = document(metadata)
        assert "table-uuid" not in again
        assert again["schemas"] == [again["schema"]]
        assert parse(again) == metadata

    def test_main_is_made_from_the_current_snapshot(self) -> None:
        value = OLD_V1 | {
            "current-snapshot-id": 1,
            "snapshots": [
                {"snapshot-id": 1, "timestamp-ms": NOW_MS, "manifests": ["s3://b/m.avro"]}
            ],
        }
        metadata = parse(value)
        main = metadata.ref("main")
        assert main is not None
        assert (main.snapshot_id, main.is_branch) == (1, True)
        assert document(metadata)["snapshots"] == value["snapshots"]
        current = metadata.current_snapshot
        assert current is not None
        assert (current.operation, current.summary) == (None, {})

    @pytest.mark.parametrize("none", [-1, None])
    def test_no_current_snapshot(self, none: int | None) -> None:
        assert parse(OLD_V1 | {"current-snapshot-id": none}).current_snapshot_id is None

    def test_an_empty_map_of_refs_still_has_main(self) -> None:
        value = document(history(1)) | {"refs": {}}
        assert set(parse(value).refs) == {"main"}

    def test_a_summary_without_an_operation_is_an_overwrite(self) -> None:
        value = document(history(1))
        value["snapshots"][0]["summary"] = {"a": "b"}
        current = parse(value).current_snapshot
        assert current is not None
        assert current.operation == "overwrite"

    def test_null_fields_of_a_snapshot_are_left_out(self) -> None:
        value = document(history(2))
        value["snapshots"][0] |= {"parent-snapshot-id": None, "key-id": None, "other": None}
        metadata = parse(value)
        written = document(metadata)["snapshots"][0]
        assert "parent-snapshot-id" not in written
        assert "key-id" not in written
        assert written["other"] is None

    def test_the_type_of_a_ref_in_any_case(self) -> None:
        value = document(history(1))
        value["refs"]["main"]["type"] = "BRANCH"
        assert document(parse(value))["refs"]["main"]["type"] == "branch"

    def test_trailing_slash_of_the_location(self) -> None:
        assert parse(document(table()) | {"location": LOCATION + "/"}).location == LOCATION


def two_snapshots(**changes: Any) -> dict[str, Any]:
    return document(history(2)) | changes


MISSING = object()


class TestRefused:
    @pytest.mark.parametrize(
        ("field", "value", "named"),
        [
            ("format-version", MISSING, "format-version"),
            ("format-version", 4, "format-version"),
            ("format-version", 0, "format-version"),
            ("format-version", "2", "format-version"),
            ("table-uuid", MISSING, "table-uuid"),
            ("table-uuid", 5, "table-uuid"),
            ("location", MISSING, "location"),
            ("location", "", "location"),
            ("last-sequence-number", MISSING, "last-sequence-number"),
            ("last-sequence-number", 1, "last-sequence-number"),
            ("last-updated-ms", MISSING, "last-updated-ms"),
            ("last-updated-ms", NOW_MS - 60_000, "last-updated-ms"),
            ("last-column-id", MISSING, "last-column-id"),
            ("last-column-id", 2**31, "last-column-id"),
            ("schemas", MISSING, "schemas"),
            ("schemas", {}, "schemas"),
            ("schemas", [{"type": "struct"}], "schemas"),
            ("schemas", [SCHEMA, SCHEMA], "schemas"),
            ("current-schema-id", MISSING, "current-schema-id"),
            ("current-schema-id", 2, "current-schema-id"),
            ("partition-specs", MISSING, "partition-specs"),
            ("partition-specs", [], "default-spec-id"),
            ("partition-specs", [DAY_SPEC, DAY_SPEC], "partition-specs"),
            ("default-spec-id", 3, "default-spec-id"),
            ("last-partition-id", MISSING, "last-partition-id"),
            ("sort-orders", MISSING, "sort-orders"),
            ("sort-orders", [ID_ORDER, ID_ORDER], "sort-orders"),
            ("default-sort-order-id", 5, "default-sort-order-id"),
            ("properties", {"a": 1}, "properties"),
            ("properties", [], "properties"),
            ("current-snapshot-id", 9, "current-snapshot-id"),
            ("current-snapshot-id", 1, "current-snapshot-id"),
            ("current-snapshot-id", -1, "current-snapshot-id"),
            ("current-snapshot-id", 1.5, "current-snapshot-id"),
            ("snapshots", {}, "snapshots"),
            ("snapshots", [5], "snapshots"),
            ("snapshots", [snapshot(1), snapshot(1)], "snapshots"),
            ("snapshots", [snapshot(1) | {"snapshot-id": None}], "snapshots"),
            ("snapshots", [snapshot(1) | {"manifest-list": None}], "manifest-list"),
            ("snapshots", [snapshot(1) | {"frazil:raw": "AAAA"}], "frazil:raw"),
            ("snapshots", [], "current-snapshot-id"),
            ("refs", [], "refs"),
            ("refs", {"main": {"snapshot-id": 2, "type": "twig"}}, "refs.main"),
            ("refs", {"main": {"snapshot-id": 2, "type": "tag"}}, "refs.main"),
            ("refs", {"dev": {"snapshot-id": 7, "type": "branch"}}, "refs.dev"),
            ("refs", {"dev": {"type": "branch"}}, "refs.dev"),
            ("refs", {"dev": 5}, "refs.dev"),
            ("snapshot-log", [{"snapshot-id": 1}], "snapshot-log"),
            ("snapshot-log", {}, "snapshot-log"),
            ("metadata-log", [{"timestamp-ms": NOW_MS}], "metadata-log"),
            (
                "metadata-log",
                [{"timestamp-ms": NOW_MS + 60_003, "metadata-file": "x"}],
                "last-updated-ms",
            ),
            ("statistics", [{}], "statistics"),
            ("partition-statistics", [5], "partition-statistics"),
            ("encryption-keys", [{"key-id": "k"}], "encryption-keys"),
        ],
    )
    def test_the_field_is_named(self, field: str, value: Any, named: str) -> None:
        bad = two_snapshots(**{field: value})
        if value is MISSING:
            del bad[field]
        with pytest.raises(InvalidMetadata) as refused:
            parse(bad)
        assert refused.value.field.startswith(named) or named in str(refused.value)

    def test_next_row_id_is_required_in_version_3(self) -> None:
        value = document(table(3))
        del value["next-row-id"]
        with pytest.raises(InvalidMetadata, match="next-row-id"):
            parse(value)

    def test_version_1_has_no_sequence_numbers(self) -> None:
        value = document(history(1, 1))
        value["snapshots"][0]["sequence-number"] = 1
        with pytest.raises(InvalidMetadata, match="last-sequence-number"):
            parse(value)

    def test_logs_may_run_back_a_minute_and_no_more(self) -> None:
        value = two_snapshots()
        value["snapshot-log"][0]["timestamp-ms"] = NOW_MS + 2 + 60_000
        value["last-updated-ms"] = NOW_MS + 60_000
        parse(value)
        value["snapshot-log"][0]["timestamp-ms"] += 1
        with pytest.raises(InvalidMetadata, match="snapshot-log"):
            parse(value)

    def test_a_default_spec_whose_source_column_is_gone(self) -> None:
        value = document(table()) | {
            "schemas": [SCHEMA | {"fields": SCHEMA["fields"][:1]}],
        }
        with pytest.raises(InvalidMetadata, match="partition-specs"):
            parse(value)

    def test_bad_summaries_are_found_where_asked(self) -> None:
        value = two_snapshots()
        value["snapshots"][0]["summary"] = {"operation": 5}
        data = json.dumps(value).encode()
        metadata = parse_table_metadata(data)
        with pytest.raises(InvalidMetadata, match="summary"):
            parse_table_metadata(data, summaries=True)
        first = metadata.snapshot(1)
        assert first is not None
        with pytest.raises(InvalidMetadata, match="summary"):
            _ = first.summary

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"5",
            b"[]",
            b"{",
            b"null",
            b"\xff\xfe",
            b'{"format-version":2,}',
            b'{"format-version":2,"x":"\xff"}',
            b"[" * 100_000,
            b'{"format-version":2,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            b'{"format-version":2,"x":' + b'{"a":' * 100_000,
        ],
        ids=range(11),
    )
    def test_what_is_no_metadata_at_all(self, data: bytes) -> None:
        with pytest.raises(InvalidMetadata):
            parse_table_metadata(data)


def test_the_same_table_is_told_from_another() -> None:
    one, other = full(2), full(2)
    assert one == other
    assert one != apply(other, update("set-properties", updates={"a": "b"}))
    assert one.table_uuid == UUID

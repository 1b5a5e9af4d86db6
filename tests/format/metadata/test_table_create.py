"""New tables, created directly or by the updates of a staged create, and the metadata log."""

from __future__ import annotations

import json
import uuid
from typing import Any

import msgspec
import pytest

from frazil.format.metadata.table_builder import (
    dropped_from_metadata_log,
    new_table,
    with_previous_file,
)
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest
from frazil.wire.rest_updates import TableUpdate
from tests.support.tables import (
    DAY_SPEC,
    ID_ORDER,
    LOCATION,
    NOW_MS,
    SCHEMA,
    UUID,
    apply,
    apply_updates,
    document,
    history,
    set_ref,
    snapshot,
    table,
    update,
)


def new(
    schema: Any = SCHEMA,
    spec: Any = None,
    order: Any = None,
    location: str = LOCATION,
    **properties: str,
) -> TableMetadata:
    return new_table(
        schema=json.dumps(schema).encode(),
        spec=None if spec is None else json.dumps(spec).encode(),
        order=None if order is None else json.dumps(order).encode(),
        location=location,
        properties=properties,
        uuid=UUID,
        now_ms=NOW_MS,
    )


class TestNewTable:
    def test_ids_are_assigned_afresh(self) -> None:
        schema = {
            "type": "struct",
            "schema-id": 9,
            "fields": [
                {"id": 3, "name": "x", "required": True, "type": "long"},
                {"id": 4, "name": "y", "required": True, "type": "long"},
                {"id": 5, "name": "z", "required": True, "type": "long"},
            ],
        }
        spec = {
            "spec-id": 5,
            "fields": [
                {"source-id": 3, "field-id": 1005, "name": "x_part", "transform": "bucket[4]"},
                {"source-id": 5, "field-id": 1003, "name": "z_part", "transform": "bucket[8]"},
            ],
        }
        order = {"order-id": 7, "fields": [ID_ORDER["fields"][0] | {"source-id": 5}]}
        metadata = new(schema, spec, order)
        assert metadata.current_schema_id == 0
        assert [field.field_id for field in metadata.current_schema.struct.fields] == [1, 2, 3]
        assert metadata.last_column_id == 3
        fields = metadata.default_spec.fields
        assert [(part.source_id, part.field_id) for part in fields] == [(1, 1000), (3, 1001)]
        assert (metadata.default_spec_id, metadata.last_partition_id) == (0, 1001)
        assert metadata.default_sort_order_id == 1
        assert metadata.sort_orders[-1].fields[0].source_ids == (3,)

    def test_defaults(self) -> None:
        metadata = new()
        written = document(metadata)
        assert metadata.format_version == 2
        assert written["partition-specs"] == [{"spec-id": 0, "fields": []}]
        assert written["sort-orders"] == [{"order-id": 0, "fields": []}]
        assert written["last-partition-id"] == 999
        assert written["last-sequence-number"] == 0
        assert written["properties"] == {"write.parquet.compression-codec": "zstd"}
        assert written["metadata-log"] == []
        assert written["last-updated-ms"] == NOW_MS

    @pytest.mark.parametrize("version", ["1", "2", "3"])
    def test_the_format_version_property_is_obeyed_and_not_stored(self, version: str) -> None:
        metadata = new(**{"format-version": version, "uuid": "x", "key": "value"})
        assert metadata.format_version == int(version)
        assert metadata.table_uuid == UUID
        assert dict(metadata.properties) == {
            "key": "value",
            "write.parquet.compression-codec": "zstd",
        }

    def test_no_trailing_slash(self) -> None:
        assert new(location="s3://bucket/t/").location == "s3://bucket/t"

    @pytest.mark.parametrize(
        ("properties", "message"),
        [
            ({"format-version": "0"}, "format-version"),
            ({"format-version": "4"}, "format-version"),
            ({"format-version": "two"}, "format-version"),
            ({"commit.retry.num-retries": "-1"}, "commit.retry.num-retries"),
            ({"commit.retry.min-wait-ms": "x"}, "commit.retry.min-wait-ms"),
            ({"write.metadata.compression-codec": "lz4"}, "compression-codec"),
            ({"encryption.key-id": "k"}, "Invalid properties for v2: encryption.key-id"),
        ],
    )
    def test_refused_properties(self, properties: dict[str, str], message: str) -> None:
        with pytest.raises(BadRequest, match=message):
            new(**properties)

    def test_encryption_from_version_3_on(self) -> None:
        metadata = new(**{"format-version": "3", "encryption.key-id": "k"})
        assert metadata.properties["encryption.key-id"] == "k"

    def test_types_must_be_known_to_the_version(self) -> None:
        schema = {
            "type": "struct",
            "fields": [{"id": 1, "name": "t", "required": False, "type": "timestamp_ns"}],
        }
        with pytest.raises(BadRequest, match="timestamp_ns"):
            new(schema)
        assert new(schema, **{"format-version": "3"}).last_column_id == 1


def staged(**changes: TableUpdate | None) -> list[TableUpdate]:
    """Return the updates that a stock client sends to commit a staged create."""
    updates: dict[str, TableUpdate | None] = {
        "uuid": update("assign-uuid", uuid=UUID),
        "version": update("upgrade-format-version", format_version=2),
        "schema": update("add-schema", schema=SCHEMA),
        "current": update("set-current-schema", schema_id=-1),
        "spec": update("add-spec", spec=DAY_SPEC),
        "default_spec": update("set-default-spec", spec_id=-1),
        "order": update("add-sort-order", sort_order=ID_ORDER),
        "default_order": update("set-default-sort-order", sort_order_id=-1),
        "location": update("set-location", location=LOCATION),
        "properties": update("set-properties", updates={"created-at": "now"}),
    }
    return [found for found in (updates | changes).values() if found is not None]


class TestCreateFromUpdates:
    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_every_version(self, version: int) -> None:
        updates = staged(version=update("upgrade-format-version", format_version=version))
        metadata = apply_updates(None, updates, now_ms=NOW_MS)
        assert metadata.format_version == version
        assert metadata.table_uuid == UUID
        assert dict(metadata.properties) == {"created-at": "now"}
        assert metadata.default_sort_order_id == 1
        assert len(metadata.metadata_log) == 0

    def test_with_a_first_snapshot(self) -> None:
        updates = [*staged(), update("add-snapshot", snapshot=snapshot(1)), set_ref(1)]
        metadata = apply_updates(None, updates, now_ms=NOW_MS + 1)
        assert metadata.current_snapshot_id == 1
        assert metadata.last_sequence_number == 1

    def test_version_2_unless_asked(self) -> None:
        assert apply_updates(None, staged(version=None), now_ms=NOW_MS).format_version == 2

    def test_a_uuid_unless_given(self) -> None:
        metadata = apply_updates(None, staged(uuid=None), now_ms=NOW_MS)
        assert metadata.table_uuid is not None
        assert uuid.UUID(metadata.table_uuid).version == 4

    @pytest.mark.parametrize(
        ("missing", "named"),
        [
            ({"location": None}, "set-location"),
            ({"schema": None, "current": None, "spec": None, "default_spec": None}, "add-schema"),
            ({"spec": None, "default_spec": None}, "add-spec"),
            ({"order": None, "default_order": None}, "add-sort-order"),
            ({"default_order": None}, "set-default-sort-order"),
        ],
    )
    def test_what_is_missing_is_named(self, missing: dict[str, None], named: str) -> None:
        with pytest.raises(BadRequest, match=named):
            apply_updates(None, staged(**missing), now_ms=NOW_MS)

    def test_nothing_at_all(self) -> None:
        with pytest.raises(BadRequest, match="set-location, add-schema, add-spec, add-sort-order"):
            apply_updates(None, [], now_ms=NOW_MS)

    @pytest.mark.parametrize("version", [0, 4, -3])
    def test_an_unknown_version_is_refused(self, version: int) -> None:
        updates = staged(version=update("upgrade-format-version", format_version=version))
        with pytest.raises(BadRequest, match=r"upgrade-format-version.format-version"):
            apply_updates(None, updates, now_ms=NOW_MS)

    def test_a_snapshot_before_the_schema_is_refused(self) -> None:
        early = update("add-snapshot", snapshot=snapshot(1))
        with pytest.raises(BadRequest, match="before a schema is added"):
            apply_updates(None, [early, *staged()], now_ms=NOW_MS)


class TestMetadataLog:
    def grown(self, metadata: TableMetadata, count: int, start: int = 0) -> TableMetadata:
        for version in range(start, start + count):
            metadata = with_previous_file(metadata, f"v{version}", NOW_MS + version)
        return metadata

    def files(self, metadata: TableMetadata) -> list[str]:
        return [entry.metadata_file for entry in metadata.metadata_log]

    def test_an_entry_for_each_file(self) -> None:
        metadata = self.grown(table(), 3)
        assert self.files(metadata) == ["v0", "v1", "v2"]
        assert document(metadata)["metadata-log"][2] == {
            "timestamp-ms": NOW_MS + 2,
            "metadata-file": "v2",
        }

    def test_a_hundred_by_default(self) -> None:
        metadata = self.grown(table(), 130)
        assert self.files(metadata) == [f"v{version}" for version in range(30, 130)]

    @pytest.mark.parametrize(("asked", "kept"), [("5", 5), ("1", 1), ("0", 1), ("-3", 1)])
    def test_as_many_as_the_property_says(self, asked: str, kept: int) -> None:
        before = self.grown(table(), 20)
        changed = apply(
            before,
            update("set-properties", updates={"write.metadata.previous-versions-max": asked}),
        )
        after = with_previous_file(changed, "v20", NOW_MS + 20)
        assert self.files(after) == [f"v{version}" for version in range(21 - kept, 21)]
        dropped = dropped_from_metadata_log(before, after)
        assert dropped == tuple(f"v{version}" for version in range(21 - kept))

    def test_a_broken_property_of_an_older_writer_counts_as_the_default(self) -> None:
        base = table()
        broken = msgspec.structs.replace(
            base, properties={"write.metadata.previous-versions-max": "some"}
        )
        assert len(self.grown(broken, 101).metadata_log) == 100

    def test_nothing_dropped(self) -> None:
        before = history(2)
        assert dropped_from_metadata_log(before, with_previous_file(before, "v1", NOW_MS)) == ()

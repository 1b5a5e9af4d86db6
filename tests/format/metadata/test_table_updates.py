"""Updates of identity, version, location, properties, schemas, specs and sort orders."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.wire.errors import BadRequest, CommitFailed
from tests.support.tables import (
    DAY_SPEC,
    ID_ORDER,
    LOCATION,
    NOW_MS,
    SCHEMA,
    UUID,
    WIDER_SCHEMA,
    apply,
    apply_updates,
    history,
    parse,
    snapshot,
    table,
    update,
)

VERSIONS = (1, 2, 3)
ID_BUCKET_SPEC: dict[str, Any] = {
    "fields": [{"source-id": 1, "field-id": 1001, "name": "id_bucket", "transform": "bucket[4]"}]
}
DAY_ORDER: dict[str, Any] = {
    "order-id": 1,
    "fields": [
        {"transform": "identity", "source-id": 2, "direction": "desc", "null-order": "nulls-last"}
    ],
}
UNSORTED = {"order-id": 0, "fields": []}


def test_nothing_asked_gives_the_same_object() -> None:
    base = history(3)
    assert apply_updates(base, [], now_ms=NOW_MS + 10_000) is base


@pytest.mark.parametrize(
    "unchanging",
    [
        update("assign-uuid", uuid=UUID.upper()),
        update("upgrade-format-version", format_version=2),
        update("set-location", location=LOCATION + "/"),
        update("set-properties", updates={}),
        update("set-properties", updates={"write.parquet.compression-codec": "zstd"}),
        update("remove-properties", removals=["absent"]),
        update("add-schema", schema=SCHEMA),
        update("add-schema", schema=SCHEMA | {"schema-id": 7}),
        update("set-current-schema", schema_id=0),
        update("add-spec", spec=DAY_SPEC),
        update("set-default-spec", spec_id=0),
        update("add-sort-order", sort_order=ID_ORDER),
        update("set-default-sort-order", sort_order_id=1),
        update("remove-schemas", schema_ids=[5]),
        update("remove-partition-specs", spec_ids=[5]),
        update("remove-snapshots", snapshot_ids=[77]),
        update("remove-snapshot-ref", ref_name="absent"),
        update("remove-statistics", snapshot_id=77),
        update("remove-partition-statistics", snapshot_id=77),
        update("remove-encryption-key", key_id="absent"),
        update("set-snapshot-ref", ref_name="main", type="branch", snapshot_id=2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_update_that_changes_nothing_gives_the_same_object(unchanging: Any) -> None:
    base = history(2)
    assert apply(base, unchanging, now_ms=NOW_MS + 10_000) is base


def test_the_base_is_never_changed() -> None:
    base = table(owner="me")
    before = dict(base.properties), dict(base.refs)
    changed = apply(
        base,
        update("set-properties", updates={"a": "b"}),
        update("add-snapshot", snapshot=snapshot(1)),
        update("set-snapshot-ref", ref_name="main", type="branch", snapshot_id=1),
        now_ms=NOW_MS + 5,
    )
    assert (dict(base.properties), dict(base.refs)) == before
    assert len(base.snapshots) == 0
    assert changed.properties["a"] == "b"
    assert changed.last_updated_ms == NOW_MS + 5


class TestIdentity:
    def test_another_uuid_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="cannot reassign"):
            apply(table(), update("assign-uuid", uuid="00000000-0000-0000-0000-000000000001"))

    def test_text_that_is_no_uuid_is_refused(self) -> None:
        with pytest.raises(BadRequest, match=r"assign-uuid.uuid"):
            apply(table(), update("assign-uuid", uuid="mine"))

    def test_a_table_of_version_1_without_uuid_gets_one(self) -> None:
        base = parse(
            {
                "format-version": 1,
                "location": LOCATION,
                "last-updated-ms": NOW_MS,
                "last-column-id": 3,
                "schema": SCHEMA,
                "partition-spec": [],
            }
        )
        assert base.table_uuid is None
        assert apply(base, update("assign-uuid", uuid=UUID)).table_uuid == UUID
        upgraded = apply(base, update("upgrade-format-version", format_version=2))
        assert upgraded.table_uuid is not None

    def test_location_loses_its_trailing_slashes(self) -> None:
        moved = apply(table(), update("set-location", location="s3://elsewhere/t//"))
        assert moved.location == "s3://elsewhere/t"

    @pytest.mark.parametrize("location", ["", "/", "//"])
    def test_an_empty_location_is_refused(self, location: str) -> None:
        with pytest.raises(BadRequest, match=r"set-location.location"):
            apply(table(), update("set-location", location=location))


class TestFormatVersion:
    @pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 3), (2, 3)])
    def test_upgrade(self, before: int, after: int) -> None:
        upgraded = apply(history(2, before), update("upgrade-format-version", format_version=after))
        assert upgraded.format_version == after
        assert upgraded.next_row_id == 0
        assert len(upgraded.snapshots) == 2

    @pytest.mark.parametrize("asked", [1, 0, -1])
    def test_downgrade_is_refused(self, asked: int) -> None:
        with pytest.raises(BadRequest, match=f"Cannot downgrade v2 table to v{asked}"):
            apply(table(2), update("upgrade-format-version", format_version=asked))

    def test_an_unknown_version_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="unsupported format version: v4"):
            apply(table(2), update("upgrade-format-version", format_version=4))

    def test_sequence_numbers_start_after_an_upgrade(self) -> None:
        upgraded = apply(history(2, 1), update("upgrade-format-version", format_version=2))
        assert upgraded.last_sequence_number == 0
        added = apply(upgraded, update("add-snapshot", snapshot=snapshot(3, 2, sequence_number=1)))
        assert added.last_sequence_number == 1


class TestProperties:
    def test_set_and_remove(self) -> None:
        changed = apply(
            table(keep="1", drop="2"),
            update("set-properties", updates={"new": "3", "keep": "4"}),
            update("remove-properties", removals=["drop", "absent"]),
        )
        assert "drop" not in changed.properties
        assert (changed.properties["keep"], changed.properties["new"]) == ("4", "3")

    def test_reserved_properties_are_not_stored(self) -> None:
        base = table(2)
        reserved = {"uuid": "x", "snapshot-count": "7", "current-schema": "{}"}
        assert apply(base, update("set-properties", updates=reserved)) is base

    def test_the_format_version_property_upgrades(self) -> None:
        changed = apply(table(2), update("set-properties", updates={"format-version": "3"}))
        assert changed.format_version == 3
        assert "format-version" not in changed.properties

    @pytest.mark.parametrize("value", ["1", "4", "two", ""])
    def test_a_bad_format_version_property_is_refused(self, value: str) -> None:
        with pytest.raises(BadRequest, match="format-version"):
            apply(table(2), update("set-properties", updates={"format-version": value}))

    @pytest.mark.parametrize(
        "bad",
        [
            {"write.metadata.compression-codec": "zstd"},
            {"write.metadata.previous-versions-max": "many"},
            {"write.metadata.previous-versions-max": "99999999999"},
            {"write.manifest.compression-codec": "deflate"},
            {"write.manifest.compression-level": "high"},
            {"write.avro.compression-codec": "lzo"},
            {"write.avro.compression-level": "1.5"},
        ],
    )
    def test_values_that_the_server_cannot_obey_are_refused(self, bad: dict[str, str]) -> None:
        with pytest.raises(BadRequest, match=next(iter(bad))):
            apply(table(), update("set-properties", updates=bad))


class TestSchemas:
    def test_add_and_set_last_added(self) -> None:
        changed = apply(
            table(),
            update("add-schema", schema=WIDER_SCHEMA),
            update("set-current-schema", schema_id=-1),
        )
        assert [schema.schema_id for schema in changed.schemas] == [0, 1]
        assert changed.current_schema_id == 1
        assert changed.last_column_id == 4

    def test_an_equal_schema_is_used_again(self) -> None:
        two = apply(table(), update("add-schema", schema=WIDER_SCHEMA))
        assert two.current_schema_id == 0
        reused = apply(
            two,
            update("add-schema", schema=WIDER_SCHEMA | {"schema-id": 9}),
            update("set-current-schema", schema_id=-1),
        )
        assert len(reused.schemas) == 2
        assert reused.current_schema_id == 1

    def test_reverting_keeps_the_last_column_id(self) -> None:
        wider = apply(
            table(),
            update("add-schema", schema=WIDER_SCHEMA),
            update("set-current-schema", schema_id=-1),
        )
        reverted = apply(
            wider,
            update("add-schema", schema=SCHEMA),
            update("set-current-schema", schema_id=-1),
        )
        assert reverted.current_schema_id == 0
        assert reverted.last_column_id == 4
        third: dict[str, Any] = {
            "type": "struct",
            "fields": [
                *SCHEMA["fields"],
                {"id": 6, "name": "z", "required": False, "type": "int"},
            ],
        }
        again = apply(
            reverted,
            update("add-schema", schema=third),
            update("set-current-schema", schema_id=-1),
        )
        assert again.current_schema_id == 2
        assert again.last_column_id == 6

    def test_last_added_without_an_addition_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="no schema has been added"):
            apply(table(), update("set-current-schema", schema_id=-1))

    def test_an_unknown_schema_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="unknown schema: 12"):
            apply(table(), update("set-current-schema", schema_id=12))

    def test_types_of_version_3_are_refused_before(self) -> None:
        newer = {
            "type": "struct",
            "fields": [
                *SCHEMA["fields"],
                {"id": 4, "name": "v", "required": False, "type": "variant"},
            ],
        }
        with pytest.raises(BadRequest, match="variant"):
            apply(table(2), update("add-schema", schema=newer))
        assert apply(table(3), update("add-schema", schema=newer)).last_column_id == 4

    def test_a_schema_that_drops_the_partition_source_is_refused(self) -> None:
        without_day = SCHEMA | {"fields": [SCHEMA["fields"][0], SCHEMA["fields"][2]]}
        with pytest.raises(BadRequest, match="day_part"):
            apply(
                table(),
                update("add-schema", schema=without_day),
                update("set-current-schema", schema_id=-1),
            )

    def test_unknown_fields_of_a_schema_are_kept(self) -> None:
        changed = apply(table(), update("add-schema", schema=WIDER_SCHEMA | {"colour": "red"}))
        assert b'"colour":"red"' in changed.schemas[1].raw

    def test_remove(self) -> None:
        two = apply(table(), update("add-schema", schema=WIDER_SCHEMA))
        left = apply(two, update("remove-schemas", schema_ids=[1, 44]))
        assert [schema.schema_id for schema in left.schemas] == [0]

    def test_the_current_schema_cannot_be_removed(self) -> None:
        with pytest.raises(BadRequest, match="Cannot remove the current schema"):
            apply(table(), update("remove-schemas", schema_ids=[0]))

    def test_a_schema_that_a_snapshot_needs_cannot_be_removed(self) -> None:
        base = apply(
            history(2),
            update("add-schema", schema=WIDER_SCHEMA),
            update("set-current-schema", schema_id=-1),
        )
        with pytest.raises(CommitFailed, match="Cannot remove schema 0"):
            apply(base, update("remove-schemas", schema_ids=[0]))
        left = apply(
            base,
            update("remove-schemas", schema_ids=[0]),
            update("remove-snapshots", snapshot_ids=[1, 2]),
        )
        assert [schema.schema_id for schema in left.schemas] == [1]


class TestPartitionSpecs:
    def test_add_and_set_last_added(self) -> None:
        changed = apply(
            table(), update("add-spec", spec=ID_BUCKET_SPEC), update("set-default-spec", spec_id=-1)
        )
        assert [spec.spec_id for spec in changed.partition_specs] == [0, 1]
        assert changed.default_spec_id == 1
        assert changed.last_partition_id == 1001

    def test_missing_field_ids_go_on_from_the_last(self) -> None:
        spec = {"fields": [{"source-id": 1, "name": "id_bucket", "transform": "bucket[4]"}]}
        changed = apply(table(), update("add-spec", spec=spec))
        assert changed.partition_specs[1].fields[0].field_id == 1001

    def test_an_equal_spec_is_used_again(self) -> None:
        two = apply(
            table(), update("add-spec", spec=ID_BUCKET_SPEC), update("set-default-spec", spec_id=-1)
        )
        reverted = apply(
            two, update("add-spec", spec=DAY_SPEC), update("set-default-spec", spec_id=-1)
        )
        assert reverted.default_spec_id == 0
        assert len(reverted.partition_specs) == 2
        assert reverted.last_partition_id == 1001

    def test_version_1_wants_sequential_field_ids(self) -> None:
        with pytest.raises(BadRequest, match="sequential IDs that are required in v1"):
            apply(table(1), update("add-spec", spec=ID_BUCKET_SPEC))

    def test_an_unknown_source_column_is_refused(self) -> None:
        spec = {"fields": [{"source-id": 99, "name": "x", "transform": "identity"}]}
        with pytest.raises(BadRequest, match="source column"):
            apply(table(), update("add-spec", spec=spec))

    @pytest.mark.parametrize(("spec_id", "message"), [(-1, "no spec has been added"), (5, "5")])
    def test_an_unknown_default_is_refused(self, spec_id: int, message: str) -> None:
        with pytest.raises(BadRequest, match=message):
            apply(table(), update("set-default-spec", spec_id=spec_id))

    def test_remove(self) -> None:
        two = apply(
            table(), update("add-spec", spec=ID_BUCKET_SPEC), update("set-default-spec", spec_id=-1)
        )
        left = apply(two, update("remove-partition-specs", spec_ids=[0]))
        assert [spec.spec_id for spec in left.partition_specs] == [1]
        with pytest.raises(BadRequest, match="Cannot remove the default partition spec"):
            apply(two, update("remove-partition-specs", spec_ids=[1]))


class TestSortOrders:
    def test_orders_are_numbered_and_used_again(self) -> None:
        base = table()
        unsorted = apply(
            base,
            update("add-sort-order", sort_order=UNSORTED),
            update("set-default-sort-order", sort_order_id=-1),
        )
        assert unsorted.default_sort_order_id == 0
        by_day = apply(
            unsorted,
            update("add-sort-order", sort_order=DAY_ORDER),
            update("set-default-sort-order", sort_order_id=-1),
        )
        assert [order.order_id for order in by_day.sort_orders] == [1, 0, 2]
        assert by_day.default_sort_order_id == 2
        reverted = apply(
            by_day,
            update("add-sort-order", sort_order=ID_ORDER),
            update("set-default-sort-order", sort_order_id=-1),
        )
        assert len(reverted.sort_orders) == 3
        assert reverted.default_sort_order_id == 1

    def test_the_default_may_be_set_before_the_order_is_added(self) -> None:
        changed = apply(
            table(),
            update("set-default-sort-order", sort_order_id=0),
            update("add-sort-order", sort_order=UNSORTED),
        )
        assert changed.default_sort_order_id == 0

    @pytest.mark.parametrize(
        ("order_id", "message"), [(-1, "no sort order has been added"), (9, "9")]
    )
    def test_an_unknown_default_is_refused(self, order_id: int, message: str) -> None:
        with pytest.raises(BadRequest, match=message):
            apply(table(), update("set-default-sort-order", sort_order_id=order_id))

    def test_an_unknown_source_column_is_refused(self) -> None:
        order = {"order-id": 1, "fields": [DAY_ORDER["fields"][0] | {"source-id": 99}]}
        with pytest.raises(BadRequest, match="source column"):
            apply(table(), update("add-sort-order", sort_order=order))

"""Expiry removes what Java's RemoveSnapshots removes, records it, and spares what is leased."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.db.housekeeping_rows import expired_snapshots
from frazil.housekeeping.expiration_plan import ExpireOptions, plan_expiry
from frazil.wire.errors import BadRequest, ValidationError
from tests.commit.finegrained.world import World
from tests.housekeeping.tables_on_disk import EVERYTHING, HOUR_MS, NAMESPACE, TableOnDisk, new_table

QUARANTINE = {"frazil.gc.quarantine-ms": str(HOUR_MS)}


@pytest.fixture
def shop(shared_world: World) -> TableOnDisk:
    return new_table(shared_world, QUARANTINE)


def ref(name: str, snapshot_id: int, kind: str = "tag", **more: Any) -> dict[str, Any]:
    return {"ref_name": name, "snapshot_id": snapshot_id, "type": kind} | more


def test_expiry_records_what_it_removes(shop: TableOnDisk) -> None:
    first, second = shop.append("a"), shop.append("b")
    shop.delete("a")
    result = shop.expire()
    assert shop.snapshot_ids() == [shop.table.head_id]
    rows = expired_snapshots(shop.world.database, shop.uuid)
    assert {row.snapshot_id for row in rows} == {first, second}
    assert all(row.delete_after_ms == row.expired_ms + HOUR_MS for row in rows)
    assert result.expired_snapshots_count == 2
    assert (result.deleted_data_files_count, result.deleted_manifest_lists_count) == (1, 2)
    assert result.quarantine_ms == HOUR_MS
    assert shop.names() == {"a", "b"}


def test_a_stock_client_that_removes_snapshots_is_recorded_too(shop: TableOnDisk) -> None:
    first, second = shop.append("a"), shop.append("b")
    shop.append("c")
    shop.update("remove-snapshots", snapshot_ids=[first, second])
    assert sorted(shop.expired_ids()) == sorted([first, second])


def test_a_snapshot_that_is_added_and_removed_in_one_request_is_recorded(
    shop: TableOnDisk,
) -> None:
    shop.append("a")
    head = shop.table.head()
    assert head is not None
    staged = {
        **head,
        "snapshot-id": 7,
        "sequence-number": 9,
        "parent-snapshot-id": shop.table.head_id,
    }
    shop.table.commit(
        {"action": "add-snapshot", "snapshot": staged},
        {"action": "remove-snapshots", "snapshot-ids": [7]},
    )
    assert shop.expired_ids() == [7]


def test_snapshots_that_a_registered_older_file_does_not_have_are_recorded(
    shop: TableOnDisk,
) -> None:
    shop.append("a")
    older = shop.table.metadata_location
    second = shop.append("b")
    body = {"name": shop.table.name, "metadata-location": older, "overwrite": True}
    answer = shop.world("POST", f"/v1/namespaces/{NAMESPACE}/register", body)
    assert answer.status == 200, answer.body
    assert shop.expired_ids() == [second]


def test_a_dry_run_changes_nothing_and_counts(shop: TableOnDisk) -> None:
    shop.append("a")
    shop.append("b")
    before = shop.table.state()
    result = shop.expire(dry_run=True)
    assert shop.table.state() == before
    assert (result.expired_snapshots_count, result.deleted_manifest_lists_count) == (1, 1)
    assert not shop.expired_ids()


def test_without_deletion_nothing_is_recorded(shop: TableOnDisk) -> None:
    shop.append("a")
    shop.append("b")
    result = shop.expire(ExpireOptions(older_than_ms=2**53, delete_files=False))
    assert (result.expired_snapshots_count, result.deleted_manifest_lists_count) == (1, 0)
    assert len(shop.snapshot_ids()) == 1
    assert not shop.expired_ids()


def test_a_leased_snapshot_stays(shop: TableOnDisk) -> None:
    first, second, _ = shop.append("a"), shop.append("b"), shop.append("c")
    shop.lease(first)
    shop.lease(second, ttl_ms=-1)
    result = shop.expire()
    assert result.leased_snapshots_count == 1
    assert sorted(shop.expired_ids()) == [second]
    assert first in shop.snapshot_ids()


def test_gc_that_is_off_refuses(shop: TableOnDisk) -> None:
    shop.append("a")
    shop.append("b")
    shop.set_properties(gc_enabled="false")
    for dry_run in (True, False):
        with pytest.raises(ValidationError, match="GC is disabled"):
            shop.expire(dry_run=dry_run)
    assert len(shop.snapshot_ids()) == 2


def test_statistics_go_with_their_snapshot(shop: TableOnDisk) -> None:
    first, _ = shop.append("a"), shop.append("b")
    path = f"{shop.table.location}/metadata/a.stats"
    Path(path.removeprefix("file://")).write_bytes(b"x")
    document = {
        "snapshot-id": first,
        "statistics-path": path,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    shop.update("set-statistics", statistics=document)
    result = shop.expire()
    assert result.deleted_statistics_files_count == 1
    (row,) = expired_snapshots(shop.world.database, shop.uuid)
    assert row.statistics == (path,)
    assert not shop.metadata.statistics


def test_unused_schemas_and_specs_are_removed_and_recorded(shop: TableOnDisk) -> None:
    shop.append("a")
    schema = dict(shop.table.metadata["schemas"][0], **{"schema-id": 1})
    schema["fields"] = [
        *schema["fields"],
        {"id": 90, "name": "x", "type": "int", "required": False},
    ]
    shop.table.commit(
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {
            "action": "add-spec",
            "spec": {
                "spec-id": 1,
                "fields": [
                    {"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}
                ],
            },
        },
        {"action": "set-default-spec", "spec-id": -1},
    )
    file = shop.table.data("b", 3, spec_id=1)
    shop.table.append(shop.written(file))
    shop.expire(ExpireOptions(older_than_ms=2**53, clean_expired_metadata=True))
    assert [own.schema_id for own in shop.metadata.schemas] == [1]
    # The manifest of the first file is still listed.
    assert [own.spec_id for own in shop.metadata.partition_specs] == [0, 1]
    shop.delete("a")
    # The manifest of the head still has the deleted entry.
    shop.table.append(shop.written(shop.table.data("c", 3, spec_id=1)))
    shop.expire(ExpireOptions(older_than_ms=2**53, clean_expired_metadata=True))
    assert [own.spec_id for own in shop.metadata.partition_specs] == [1]
    rows = shop.world.database.fetch("removed_definitions", {"uuid": shop.uuid})
    assert [(row[0], row[1]) for row in rows] == [("schema", 0), ("spec", 0)]


# --- which snapshots ------------------------------------------------------------------------------

FAR = 2**53


def planned(
    shop: TableOnDisk, now_ms: int = FAR, **options: Any
) -> tuple[set[int], tuple[str, ...]]:
    plan = plan_expiry(shop.metadata, ExpireOptions(**options), (), now_ms)
    return set(plan.snapshot_ids), plan.refs


def test_the_newest_snapshots_of_a_branch_stay(shop: TableOnDisk) -> None:
    ids = [shop.append(name) for name in "abcde"]
    assert planned(shop, retain_last=3) == (set(ids[:2]), ())
    assert planned(shop) == (set(ids[:4]), ())
    times = {own.snapshot_id: own.timestamp_ms for own in shop.metadata.snapshots}
    assert planned(shop, older_than_ms=times[ids[2]]) == (set(ids[:2]), ())
    shop.set_properties(**{"history_expire_min__snapshots__to__keep": "4"})
    assert planned(shop) == (set(ids[:1]), ())
    # The age of the property counts from now on, to the millisecond.
    shop.set_properties(**{"history_expire_max__snapshot__age__ms": "1000"})
    assert planned(shop, times[ids[0]] + 1000) == (set(), ())
    assert planned(shop, times[ids[1]] + 1000) == (set(ids[:1]), ())


def test_iceberg_13568_the_snapshots_of_other_refs_stay(shop: TableOnDisk) -> None:
    """Files of a snapshot that only another ref reached were deleted."""
    ids = [shop.append(name) for name in "abc"]
    shop.update("set-snapshot-ref", **ref("kept", ids[0]))
    shop.update("set-snapshot-ref", **ref("side", ids[1], "branch", min_snapshots_to_keep=2))
    assert planned(shop) == (set(), ())
    shop.update("set-snapshot-ref", **ref("side", ids[1], "branch"))
    shop.update("remove-snapshot-ref", ref_name="kept")
    assert planned(shop) == ({ids[0]}, ())
    shop.expire()
    shop.world.database.execute("forget_leases", {"now_ms": 0})
    shop.check()


def test_iceberg_go_1829_an_old_ref_is_dropped_and_main_never(shop: TableOnDisk) -> None:
    """A branch vanished, because its age was computed wrongly."""
    ids = [shop.append(name) for name in "abc"]
    shop.update("set-snapshot-ref", **ref("old", ids[0], max_ref_age_ms=1000))
    shop.update("set-snapshot-ref", **ref("young", ids[1]))
    times = {own.snapshot_id: own.timestamp_ms for own in shop.metadata.snapshots}
    assert planned(shop, times[ids[0]] + 1000, older_than_ms=0) == (set(), ())
    assert planned(shop, times[ids[0]] + 1001, older_than_ms=0)[1] == ("old",)
    shop.set_properties(**{"history_expire_max__ref__age__ms": "1"})
    assert planned(shop) == ({ids[0], ids[1]}, ("old", "young"))
    shop.expire()
    assert set(shop.table.metadata["refs"]) <= {"main", "old", "young"}


def test_a_staged_snapshot_goes_by_its_age(shop: TableOnDisk) -> None:
    shop.append("a")
    staged = int(
        shop.table.commit(
            {"action": "append", "stage-only": True, "add-data-files": [shop.file("b")]}
        )["snapshot-id"]
    )
    time_ms = shop.metadata.snapshots.bare(staged).timestamp_ms  # type: ignore[union-attr]
    assert planned(shop, older_than_ms=time_ms) == (set(), ())
    assert planned(shop, older_than_ms=time_ms + 1) == ({staged}, ())


def test_ids_are_removed_whatever_their_age_unless_a_ref_names_them(shop: TableOnDisk) -> None:
    ids = [shop.append(name) for name in "abc"]
    assert planned(shop, older_than_ms=0, snapshot_ids=(ids[1], 12345)) == ({ids[1]}, ())
    with pytest.raises(BadRequest, match=r"Still referenced by refs: \['main'\]"):
        planned(shop, snapshot_ids=(ids[2],))
    with pytest.raises(BadRequest, match="retain_last"):
        planned(shop, retain_last=0)
    shop.set_properties(**{"history_expire_max__ref__age__ms": "soon"})
    with pytest.raises(ValidationError, match=r"history\.expire\.max-ref-age-ms: 'soon'"):
        planned(shop)


def test_an_empty_table_has_nothing_to_expire(shop: TableOnDisk) -> None:
    assert shop.expire(EVERYTHING).expired_snapshots_count == 0

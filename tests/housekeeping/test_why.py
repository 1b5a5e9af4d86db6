"""The reason for every file that the catalog may have or delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.housekeeping.why import why
from frazil.wire.errors import BadRequest
from frazil.wire.files import FileReason, FileState
from tests.commit.finegrained.world import World
from tests.housekeeping.tables_on_disk import HOUR_MS, TableOnDisk, new_table


@pytest.fixture
def shop(shared_world: World) -> TableOnDisk:
    return new_table(shared_world, {"frazil.gc.quarantine-ms": str(HOUR_MS)})


def reason(shop: TableOnDisk, name: str) -> FileReason:
    return why(shop.tools, shop.table.data_path(name))


def test_a_file_of_a_head(shop: TableOnDisk) -> None:
    first = shop.append("a")
    second = shop.append("b")
    shop.update("set-snapshot-ref", ref_name="old", type="tag", snapshot_id=first)
    found = reason(shop, "a")
    assert (found.state, found.kind, found.table) == (
        FileState.REACHABLE,
        "data",
        str(shop.identifier),
    )
    assert found.size_bytes == 1
    assert [own.snapshot_id for own in found.snapshots] == [second, first]
    assert [own.refs for own in found.snapshots] == [("main",), ("old",)]
    assert found.message == "the head of main, old reaches it"
    respelled = why(shop.tools, shop.table.data_path("a").replace("file:///", "/"))
    assert respelled.state is FileState.REACHABLE


def test_a_file_that_only_an_old_snapshot_has(shop: TableOnDisk) -> None:
    first = shop.append("a")
    shop.delete("a")
    found = reason(shop, "a")
    assert found.state is FileState.REACHABLE
    assert found.message.startswith(f"snapshot {first} reaches it, but no head")


def test_a_quarantined_and_a_leased_file(shop: TableOnDisk) -> None:
    first = shop.append("a")
    shop.delete("a")
    shop.append("b")
    shop.expire()
    found = reason(shop, "a")
    assert (found.state, found.snapshots[0].snapshot_id) == (FileState.QUARANTINED, first)
    assert found.delete_after_ms == found.snapshots[0].delete_after_ms
    shop.lease(first)
    found = reason(shop, "a")
    assert (found.state, found.snapshots[0].leased_by) == (FileState.LEASED, ("h",))
    shop.set_properties(gc_enabled="false")
    assert "gc.enabled is false" in reason(shop, "a").message


def test_orphans_and_files_of_writers(shop: TableOnDisk) -> None:
    shop.append("a")
    for name in ("orphan", "gone", "loose", "w1/x", "w2/y"):
        shop.file(name)
    shop.quarantine(shop.table.data_path("orphan"), for_ms=HOUR_MS)
    shop.quarantine(shop.table.data_path("gone"), deleting=True)
    shop.intend("w1")
    shop.intend("w2", ttl_ms=-1)
    states = {name: reason(shop, name) for name in ("orphan", "gone", "loose", "w1/x", "w2/y")}
    assert {name: found.state.value for name, found in states.items()} == {
        "orphan": "quarantined",
        "gone": "deleting",
        "loose": "unknown",
        "w1/x": "intended",
        "w2/y": "quarantined",
    }
    missing = reason(shop, "never")
    assert (missing.state, missing.size_bytes) == (FileState.UNKNOWN, None)


def test_files_of_metadata(shop: TableOnDisk) -> None:
    shop.append("a")
    head = shop.table.load().head()
    assert head is not None
    assert why(shop.tools, shop.table.metadata_location).kind == "metadata"
    found = why(shop.tools, head["manifest-list"])
    assert (found.kind, found.snapshots[0].refs) == ("manifest-list", ("main",))
    (manifest,) = [name for name in shop.avro_files() if not name.startswith("snap-")]
    assert why(shop.tools, f"{shop.table.location}/metadata/{manifest}").kind == "manifest"
    shop.update("set-properties", updates={"write.metadata.previous-versions-max": "1"})
    first = sorted(shop.metadata_files())[0]
    fallen = why(shop.tools, f"{shop.table.location}/metadata/{first}")
    assert fallen.state is FileState.QUARANTINED


def test_purged_and_foreign_files(shop: TableOnDisk, shared_world: World) -> None:
    shop.append("a")
    assert why(shop.tools, "s3://elsewhere/file").state is FileState.OUTSIDE
    loose = Path(shared_world.warehouse) / "loose.parquet"
    assert why(shop.tools, loose.as_uri()).state is FileState.OUTSIDE
    shop.world("DELETE", f"{shop.table.path}?purgeRequested=true")
    found = reason(shop, "a")
    assert (found.state, found.table) == (FileState.QUARANTINED, str(shop.identifier))
    assert "purged" in found.message


def test_a_path_that_is_none_is_refused(shop: TableOnDisk) -> None:
    for path in ("orders/data", f"{shop.table.location}/data/../../x"):
        with pytest.raises(BadRequest, match="path "):
            why(shop.tools, path)


def test_a_manifest_that_is_lost_is_named(shop: TableOnDisk) -> None:
    shop.append("a")
    (manifest,) = [name for name in shop.avro_files() if not name.startswith("snap-")]
    (shop.folder / "metadata" / manifest).unlink()
    found = reason(shop, "a")
    assert found.state is FileState.UNKNOWN
    assert manifest in found.message
    assert "no file of the table is deleted" in found.message


def test_a_quarantine_without_end_has_a_time(shop: TableOnDisk) -> None:
    shop.set_properties(frazil_gc_quarantine__ms="999999999999999")
    shop.append("a")
    shop.delete("a")
    shop.expire()
    assert "ms after 1970" in reason(shop, "a").message

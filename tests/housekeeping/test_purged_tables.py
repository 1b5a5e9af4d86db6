"""A purged table comes back until its quarantine is over, and then its files are deleted."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from frazil.commit.pipeline.pending_requests import Context
from frazil.db.housekeeping_rows import DeletionState, purged_table
from frazil.housekeeping.deletion import marked_files
from frazil.housekeeping.server_operations import JobRun, ServerTools
from frazil.housekeeping.sweep import sweep_table, tables_due
from frazil.housekeeping.undo import NoSuchQuarantine, undo, undo_purge
from frazil.plan.plan_leases import PLAN_LEASE_PREFIX
from frazil.store.local_store import LocalStore
from frazil.store.object_store import StoreError
from frazil.wire.errors import AlreadyExists, NoSuchTable, ValidationError
from frazil.wire.identifiers import Identifier
from tests.commit.finegrained.world import World
from tests.housekeeping.tables_on_disk import HOUR_MS, NAMESPACE, TableOnDisk, new_table

HOUR = {"frazil.gc.quarantine-ms": str(HOUR_MS)}
CONTEXT = Context("tester", "r")


@pytest.fixture
def shop(shared_world: World) -> TableOnDisk:
    """Create a table with an expired snapshot, an orphan and a leftover."""
    shop = new_table(shared_world, HOUR)
    shop.append("a", "b")
    shop.delete("a")
    shop.append("c")
    shop.expire()
    shop.file("orphan")
    shop.quarantine(shop.table.data_path("orphan"), for_ms=HOUR_MS)
    shop.intend("w", ttl_ms=-1)
    shop.file("w/left")
    return shop


def purge(shop: TableOnDisk, **query: str) -> None:
    text = "".join(f"&{name.replace('_', '-')}={value}" for name, value in query.items())
    answer = shop.world("DELETE", f"{shop.table.path}?purgeRequested=true{text}")
    assert answer.status == 204, answer.body


def end_quarantine(shop: TableOnDisk) -> None:
    """Let the time of the quarantine pass."""
    row = purged_table(shop.world.database, shop.uuid)
    assert row is not None
    parameters = {
        "uuid": row.uuid,
        "namespace": row.namespace_key,
        "name": row.name,
        "metadata_location": row.metadata_location,
        "locations": f'["{row.locations[0]}"]',
        "now_ms": row.purged_ms,
        "delete_after_ms": row.purged_ms,
    }
    shop.world.database.execute("insert_purged_table", parameters)


def files(shop: TableOnDisk) -> set[Path]:
    return {path for path in shop.folder.rglob("*") if path.is_file()}


def test_a_purge_keeps_all_files_for_the_quarantine(shop: TableOnDisk) -> None:
    before = files(shop)
    purge(shop)
    with pytest.raises(NoSuchTable):
        shop.world.catalog.load_table(shop.identifier)
    assert shop.sweep().deleted.total == 0
    assert files(shop) == before
    end_quarantine(shop)
    assert shop.uuid in tables_due(shop.world.database)
    assert shop.sweep(dry_run=True).deleted.total == len(before)
    assert files(shop) == before
    result = shop.sweep()
    assert result.deleted.total == len(before)
    assert not shop.folder.exists()
    assert purged_table(shop.world.database, shop.uuid) is None
    assert not shop.expired_ids()
    assert not shop.doomed()
    assert shop.uuid not in tables_due(shop.world.database)


def test_a_purge_now_deletes_before_it_answers(shop: TableOnDisk) -> None:
    purge(shop, frazil_now="true")
    assert not shop.folder.exists()


def test_a_table_without_a_quarantine_is_purged_at_once(shop: TableOnDisk) -> None:
    shop.set_properties(frazil_gc_quarantine__ms="0")
    stranger = shop.folder / "data" / "stranger.parquet"
    stranger.write_bytes(b"no manifest names it")
    purge(shop)
    assert files(shop) == {stranger}


def test_an_undone_purge_brings_everything_back(shop: TableOnDisk) -> None:
    before, expired = files(shop), shop.expired_ids()
    purge(shop)
    run = JobRun(shop.identifier, shop.uuid, {}, False, "p", lambda *_: None, lambda: False)
    assert undo(shop.tools, run).table == str(shop.identifier)
    shop.check()
    assert files(shop) == before
    assert shop.expired_ids() == expired
    with pytest.raises(NoSuchQuarantine):
        undo_purge(shop.tools, shop.uuid, shop.identifier, CONTEXT)
    purge(shop)
    renamed = JobRun(
        shop.identifier,
        shop.uuid,
        {"as": f"{NAMESPACE}.back-{shop.uuid}"},
        False,
        "p",
        lambda *_: None,
        lambda: False,
    )
    undo(shop.tools, renamed)
    back = Identifier((NAMESPACE,), f"back-{shop.uuid}")
    assert shop.world.catalog.load_table(back).metadata.table_uuid == shop.uuid


def test_a_purge_is_undone_only_to_a_free_name(shop: TableOnDisk, shared_world: World) -> None:
    other = new_table(shared_world)
    purge(shop)
    with pytest.raises(AlreadyExists):
        undo_purge(shop.tools, shop.uuid, other.identifier, CONTEXT)
    assert purged_table(shop.world.database, shop.uuid) is not None
    undo_purge(shop.tools, shop.uuid, shop.identifier, CONTEXT, dry_run=True)
    assert purged_table(shop.world.database, shop.uuid) is not None


def test_a_purged_table_that_is_registered_is_not_deleted(shop: TableOnDisk) -> None:
    location = shop.table.load().metadata_location
    purge(shop)
    body = {"name": shop.table.name, "metadata-location": location}
    answer = shop.world("POST", f"/v1/namespaces/{NAMESPACE}/register", body)
    assert answer.status == 200, answer.body
    assert purged_table(shop.world.database, shop.uuid) is None
    shop.sweep()
    shop.check()


def test_a_reader_of_a_purged_table_keeps_its_files(shop: TableOnDisk) -> None:
    before = files(shop)
    shop.lease(shop.table.head_id)
    purge(shop, frazil_now="true")
    assert files(shop) == before
    shop.lease(shop.table.head_id, ttl_ms=-1)
    shop.sweep()
    assert not files(shop)


def test_a_plan_does_not_keep_a_purged_table(shop: TableOnDisk) -> None:
    """Its tokens ended with the table, and nobody could release them."""
    shop.lease(shop.table.head_id, lease_id=f"{PLAN_LEASE_PREFIX}{shop.uuid}")
    purge(shop, frazil_now="true")
    assert not files(shop)


def test_gc_that_is_off_keeps_the_data_files_of_a_purged_table(shop: TableOnDisk) -> None:
    shop.set_properties(gc_enabled="false")
    data = {path for path in files(shop) if path.suffix == ".parquet"}
    purge(shop, frazil_now="true")
    assert files(shop) == data


def test_the_files_stay_if_another_table_has_the_location(shop: TableOnDisk) -> None:
    location = shop.table.location
    purge(shop)
    body = {"name": f"new-{shop.uuid}", "schema": shop.table.schema, "location": location}
    answer = shop.world("POST", f"/v1/namespaces/{NAMESPACE}/tables", body)
    assert answer.status == 200, answer.body
    before = files(shop)
    end_quarantine(shop)
    result = shop.sweep()
    assert result.deleted.total == 0
    assert "another" in result.problems[0]
    assert files(shop) == before
    assert purged_table(shop.world.database, shop.uuid) is None


def test_an_interrupted_purge_goes_on_and_cannot_be_undone(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marked_files, "_CHUNK_FILES", 2)
    monkeypatch.setattr(marked_files, "_BATCH_FILES", 1)
    location = shop.table.load().metadata_location
    purge(shop)
    end_quarantine(shop)
    for failures in range(1, 60):

        class Failing(LocalStore):
            left = failures

            def delete(self, locations: Iterable[str]) -> None:
                if not self.left:
                    raise StoreError("the store is down")
                self.left -= 1
                super().delete(locations)

        tools = ServerTools(shop.world.database, Failing(), shop.world.catalog)
        try:
            sweep_table(tools, shop.uuid)
        except StoreError:
            row = purged_table(shop.world.database, shop.uuid)
            assert row is not None
            assert row.state is DeletionState.DELETING
            with pytest.raises(ValidationError, match="are being deleted"):
                undo_purge(shop.tools, shop.uuid, shop.identifier, CONTEXT)
            body = {"name": shop.table.name, "metadata-location": location}
            answer = shop.world("POST", f"/v1/namespaces/{NAMESPACE}/register", body)
            assert answer.status in (404, 409), answer.body
        else:
            break
    assert not files(shop)
    assert purged_table(shop.world.database, shop.uuid) is None


def test_several_servers_purge_at_once(shop: TableOnDisk) -> None:
    purge(shop)
    end_quarantine(shop)
    errors: list[Any] = []

    def sweep() -> None:
        try:
            shop.sweep()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert not files(shop)

"""A search for orphans beside commits, expiry, intents and purges loses no file."""

from __future__ import annotations

import uuid

import pytest

from frazil.db.base import Transaction
from frazil.db.housekeeping_changes import RecordExpired, RecordPurge
from frazil.db.housekeeping_rows import database_now_ms, path_key
from frazil.db.sql import Statements
from frazil.format.manifest.manifest_list import read_manifest_list
from frazil.format.metadata.snapshots import Snapshot
from frazil.housekeeping.file_lists import ListedFile
from frazil.housekeeping.orphan_reachability import BATCH
from frazil.housekeeping.reachability import Watch
from frazil.housekeeping.sweep import sweep_table
from frazil.wire.errors import NoSuchTable, ValidationError
from tests.housekeeping.orphan_shop import HOUR_MS, Shop


def expire(shop: Shop, snapshot_id: int) -> None:
    """Remove a snapshot and record it, as every commit does that removes snapshots."""
    snapshots = shop.driver.load().metadata.snapshots.bare_items()
    (snapshot,) = [own for own in snapshots if own.snapshot_id == snapshot_id]
    shop.driver.commit("t", [{"action": "remove-snapshots", "snapshot-ids": [snapshot_id]}])
    row = RecordExpired(shop.uuid(), HOUR_MS, ((snapshot_id, bytes(snapshot.raw), ()),))
    shop.database.commit(Transaction(uuid.uuid4().hex, (), housekeeping=(row,)))


def declare_intent(shop: Shop, prefix: str, ttl_ms: int) -> None:
    def work(sql: Statements) -> None:
        now_ms = database_now_ms(sql)
        row = {
            "intent_id": str(uuid.uuid4()),
            "uuid": shop.uuid(),
            "prefix": prefix,
            "principal": "p",
            "holder": "h",
            "now_ms": now_ms,
            "expires_ms": now_ms + ttl_ms,
        }
        sql.execute("insert_intent", row)

    shop.database.run_rows(work)


# --- commits --------------------------------------------------------------------------------------


def test_commits_during_the_listing_iceberg_15487_16324(any_shop: Shop) -> None:
    """The search reads the table before the listing. The files of newer snapshots are no orphans,
    least of all their manifests and lists."""
    shop = any_shop
    shop.create()
    shop.append(2)
    waiting, orphan = [shop.orphan(), shop.orphan()], shop.orphan()
    shop.store.before_list = lambda: shop.commit(waiting[0])
    shop.store.during_list = lambda: shop.commit(waiting[1])
    result = shop.search()
    assert shop.recorded() == {orphan}
    assert result.orphan_files_count == 1


def test_a_dry_run_knows_commits_during_the_listing(shop: Shop) -> None:
    shop.create()
    shop.append(2)
    waiting, orphan = shop.orphan(), shop.orphan()
    shop.store.during_list = lambda: shop.commit(waiting)
    assert shop.found() == {orphan}


def test_commits_while_orphans_are_recorded(any_shop: Shop) -> None:
    """Between the last look at the table and the transaction that records a file."""
    shop = any_shop
    location = shop.create()
    names = [f"{location}/data/{number:05}.parquet" for number in range(BATCH + 10)]
    first, last = names[0], names[-1]
    committed: list[str] = []

    def commit_last(done: int, total: int) -> None:
        if not committed and shop.recorded():
            committed.append(last)
            shop.commit(last)

    listing = [ListedFile(path, None, 1) for path in names]
    search = shop.search(file_list=listing, max_orphan_share=1.0, watch=Watch(commit_last))
    assert committed
    assert shop.recorded() == set(names) - {last}
    assert search.orphan_files_count == len(names) - 1
    assert first in shop.recorded()


def test_the_table_is_dropped_during_the_listing(shop: Shop) -> None:
    shop.create()
    shop.append()
    shop.orphan()
    table_uuid = shop.uuid()
    shop.store.during_list = lambda: shop.driver.drop("t")
    with pytest.raises(NoSuchTable):
        shop.search()
    assert not shop.database.fetch("doomed_files", {"uuid": table_uuid, "after": "", "limit": 9})


def test_gc_is_disabled_during_the_listing(shop: Shop) -> None:
    shop.create()
    shop.append()
    shop.orphan()
    shop.store.during_list = lambda: shop.set_properties(gc_enabled="false")
    with pytest.raises(ValidationError):
        shop.search()
    assert not shop.recorded()


def test_the_table_is_renamed_during_the_listing(shop: Shop) -> None:
    shop.create()
    shop.append()
    orphan = shop.orphan()
    shop.store.during_list = lambda: shop.driver.rename("t", "u")
    shop.search()
    assert shop.recorded("u") == {orphan}


# --- expiry ---------------------------------------------------------------------------------------


def test_files_of_expired_snapshots_are_no_orphans_iceberg_3772(any_shop: Shop) -> None:
    """Expiry beside the search: the files stay until the quarantine of their snapshot is over."""
    shop = any_shop
    shop.create()
    removed = shop.append()[0]
    first = shop.driver.snapshot_ids()[0]
    shop.driver.commit("t", [{"action": "delete", "remove-data-files": [removed]}])
    expire(shop, first)
    orphan = shop.orphan()
    assert shop.found() == {orphan}
    shop.store.during_list = lambda: expire(shop, shop.driver.snapshot_ids()[0])
    shop.append()
    shop.search()
    assert shop.recorded() == {orphan}


def test_a_stock_client_has_deleted_the_files_of_expired_snapshots(any_shop: Shop) -> None:
    """It deletes them by itself. Neither search nor sweep can keep what is gone."""
    shop = any_shop
    shop.create()
    removed = [path for _ in range(4) for path in shop.append()]
    shop.driver.commit("t", [{"action": "delete", "remove-data-files": removed}])
    live = shop.append()
    *old, _ = shop.driver.load().metadata.snapshots.bare_items()
    trees = [tree_of(shop, snapshot) for snapshot in old]
    for snapshot in old[:-1]:
        expire(shop, snapshot.snapshot_id)
    shop.store.delete([*removed, *(path for tree in trees[:-1] for path in tree)])
    orphan = shop.orphan()
    shop.search()
    assert shop.recorded() == {orphan}
    shop.database.run_rows(lambda sql: sql.execute("drop_doomed_file", doomed_key(shop, orphan)))
    declare_intent(shop, f"{shop.location()}/data/writer", -1)
    assert sweep_table(shop.tools, shop.uuid()).ended_intents_count == 1
    assert all(shop.store.size(path) for path in live)


def tree_of(shop: Shop, snapshot: Snapshot) -> list[str]:
    """Return the manifest list of a snapshot, and its manifests."""
    assert snapshot.manifest_list is not None
    manifests = read_manifest_list(shop.store.get(snapshot.manifest_list)).manifests
    return [snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)]


def doomed_key(shop: Shop, path: str) -> dict[str, str]:
    return {"uuid": shop.uuid(), "path_key": path_key(path)}


def test_files_that_are_deleted_during_the_listing(shop: Shop) -> None:
    shop.create()
    shop.append(4)
    orphans = [shop.orphan() for _ in range(4)]
    shop.store.during_list = lambda: shop.store.delete(orphans[:2])
    result = shop.search()
    assert shop.recorded() == set(orphans[2:])
    assert (
        result.reachable_files_count == result.listed_files_count - 2 - result.skipped_files_count
    )


# --- intents --------------------------------------------------------------------------------------


def test_files_below_a_live_intent_are_no_orphans(any_shop: Shop) -> None:
    shop = any_shop
    location = shop.create()
    shop.append()
    declare_intent(shop, f"{location}/data/writer-1", HOUR_MS)
    declare_intent(shop, f"{location}/data/writer-2", -1)
    shop.write(f"{location}/data/writer-1/a.parquet")
    orphans = {
        shop.write(f"{location}/data/writer-10/a.parquet"),
        shop.write(f"{location}/data/writer-2/a.parquet"),
    }
    result = shop.search()
    assert (shop.recorded(), result.intended_files_count) == (orphans, 1)


def test_an_intent_that_begins_during_the_listing(any_shop: Shop) -> None:
    shop = any_shop
    location = shop.create()
    shop.append()
    names = [f"{location}/data/w/{number:05}.parquet" for number in range(BATCH + 10)]

    def begin(done: int, total: int) -> None:
        if shop.recorded():
            declare_intent(shop, f"{location}/data/w", HOUR_MS)

    listing = [ListedFile(path, None, 1) for path in names]
    result = shop.search(file_list=listing, max_orphan_share=1.0, watch=Watch(begin))
    assert result.orphan_files_count == BATCH == len(shop.recorded())


# --- purged tables --------------------------------------------------------------------------------


def test_files_of_a_purged_table_in_the_same_place_are_no_orphans(shop: Shop) -> None:
    """They may come back with it."""
    location = shop.create(location=f"{shop.root}/place")
    shop.append(2)
    old_uuid, metadata_location = shop.uuid(), shop.driver.load().metadata_location
    assert metadata_location is not None
    purge = RecordPurge(old_uuid, "ns", "t", metadata_location, (location,), HOUR_MS)
    shop.database.commit(Transaction(uuid.uuid4().hex, (), housekeeping=(purge,)))
    shop.driver.drop("t")
    shop.create(location=location)
    shop.append()
    orphan = shop.orphan()
    assert shop.found() == {orphan}

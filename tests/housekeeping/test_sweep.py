"""A sweep deletes what is due and what nothing needs, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from frazil.db.housekeeping_rows import DeletionState, IntentState
from frazil.housekeeping import sweeper as sweeper_module
from frazil.housekeeping.deletion import marked_files
from frazil.housekeeping.deletion.deleted_counts import SweepResult
from frazil.housekeeping.server_operations import ServerTools
from frazil.housekeeping.sweep import sweep_table, tables_due
from frazil.housekeeping.sweeper import Sweeper
from frazil.store.local_store import LocalStore
from frazil.store.object_store import StoreError
from frazil.wire.errors import ValidationError
from tests.commit.finegrained.world import World
from tests.housekeeping.tables_on_disk import HOUR_MS, TableOnDisk, new_table
from tests.support.patience import wait_until

QUARANTINED = {"frazil.gc.quarantine-ms": str(HOUR_MS)}


@pytest.fixture
def shop(shared_world: World) -> TableOnDisk:
    return new_table(shared_world)


def remove(shop: TableOnDisk, *snapshot_ids: int) -> None:
    """Remove snapshots as a stock client does."""
    shop.update("remove-snapshots", snapshot_ids=list(snapshot_ids))


def of_store(shop: TableOnDisk, store: LocalStore) -> ServerTools:
    return ServerTools(shop.world.database, store, shop.world.catalog)


def interrupted(shop: TableOnDisk, work: Callable[[], Any]) -> ServerTools:
    """Return tools that do some work before the first deletion of a file."""

    class Interrupted(LocalStore):
        done = False

        def delete(self, locations: Iterable[str]) -> None:
            if not self.done:
                self.done = True
                work()
            super().delete(locations)

    return of_store(shop, Interrupted())


def test_files_of_expired_snapshots_are_deleted(shop: TableOnDisk) -> None:
    shop.append("a", "b")
    shop.append("c")
    shop.delete("a")
    before = shop.avro_files()
    result = shop.expire()
    assert shop.names() == {"b", "c"}
    assert result.deleted_data_files_count == 1
    assert result.deleted_manifest_lists_count == 2
    assert len(before - shop.avro_files()) == result.deleted_manifest_files_count + 2
    assert not shop.expired_ids()
    assert not shop.doomed()
    shop.check()
    assert shop.sweep().deleted.total == 0


def test_the_quarantine_is_waited_for(shared_world: World) -> None:
    shop = new_table(shared_world, QUARANTINED)
    shop.append("a")
    shop.delete("a")
    shop.append("b")
    shop.expire()
    assert shop.uuid not in tables_due(shared_world.database)
    assert shop.sweep().deleted.total == 0
    assert shop.names() == {"a", "b"}
    late = 2 * HOUR_MS + shared_world.database.fetch("now_ms", {})[0][0]
    assert shop.uuid in tables_due(shared_world.database, late)


def test_a_dry_run_deletes_nothing(shop: TableOnDisk) -> None:
    first = shop.append("a")
    second = shop.delete("a")
    shop.append("b")
    remove(shop, first, second)
    result = shop.sweep(dry_run=True)
    assert result.deleted.data == 1
    assert shop.names() == {"a", "b"}
    assert shop.sweep().deleted == result.deleted
    assert shop.names() == {"b"}


def test_gc_that_is_off_deletes_nothing(shop: TableOnDisk) -> None:
    first = shop.append("a")
    second = shop.delete("a")
    shop.append("b")
    remove(shop, first, second)
    shop.quarantine(shop.table.data_path("a"), deleting=True)
    shop.set_properties(gc_enabled="false")
    assert shop.sweep().deleted.total == 0
    assert shop.names() == {"a", "b"}
    shop.set_properties(gc_enabled="true")
    assert shop.sweep().deleted.data == 0  # the row of the orphan came first
    assert shop.names() == {"b"}


def test_a_lease_protects_an_expired_snapshot(shop: TableOnDisk) -> None:
    first = shop.append("a")
    second = shop.delete("a")
    shop.append("b")
    remove(shop, first, second)
    shop.lease(first)
    shop.sweep()
    assert shop.names() == {"a", "b"}
    assert shop.expired_ids() == [first]
    shop.lease(first, ttl_ms=-1)
    shop.sweep()
    assert shop.names() == {"b"}


def test_a_lease_that_comes_during_the_sweep_protects(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is taken after the sweep has decided, and before it marks."""
    first = shop.append("a")
    second = shop.delete("a")
    shop.append("b")
    remove(shop, first, second)
    before_marking(shop, monkeypatch, lambda: shop.lease(first))
    shop.sweep()
    assert shop.names() == {"a", "b"}
    assert shop.expired_ids() == [first]


def before_marking(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any], times: int = 1
) -> None:
    """Do some work before the table's row is locked."""
    from frazil.housekeeping.deletion.deletion_marks import Marks

    original = Marks.mark
    left = [times]

    def mark(self: Marks, *arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            work()
        return original(self, *arguments)

    monkeypatch.setattr(Marks, "mark", mark)


# --- bugs that destroyed data elsewhere -----------------------------------------------------------


def test_iceberg_15487_16324_snapshots_that_came_during_the_sweep_stay(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table was loaded at the start of the job, and lists of newer snapshots were deleted."""
    first = shop.append("a")
    second = shop.delete("a")
    shop.append("b")
    remove(shop, first, second)
    before_marking(shop, monkeypatch, lambda: shop.append("a", "c"), times=1)
    shop.sweep()
    assert shop.names() == {"a", "b", "c"}
    shop.check()


@pytest.mark.parametrize("times", [2, 6])
def test_a_busy_table_is_swept_too(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    first = shop.append("a")
    second = shop.delete("a")
    shop.append("b")
    remove(shop, first, second)
    names = iter("cdefghijkl")
    database, original, left = shop.world.database, shop.world.database.locked, [times]

    def locked(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            shop.append(next(names))
        return original(*arguments)

    monkeypatch.setattr(database, "locked", locked)
    assert shop.sweep().deleted.data == 1
    assert "a" not in shop.names()
    shop.check()


def test_iceberg_8255_17304_a_path_that_was_removed_and_added_again_stays(
    shop: TableOnDisk,
) -> None:
    shop.append("a")
    shop.delete("a")
    shop.append("a")
    shop.append("b")
    shop.expire()
    assert shop.names() == {"a", "b"}
    shop.check()
    # In one commit, which Java's API allows.
    shop.table.commit(
        {"action": "delete", "remove-data-files": [shop.table.data_path("a")]},
        {"action": "append", "add-data-files": [shop.file("a")]},
    )
    shop.expire()
    assert shop.names() == {"a", "b"}
    shop.check()


def test_iceberg_17456_nimtable_162_a_puffin_file_stays_while_one_vector_is_live(
    shared_world: World,
) -> None:
    """A Puffin file has the vectors of several data files, and one of them was replaced."""
    shop = new_table(shared_world, version=3)
    shop.append("a", "b")
    a, b = shop.table.data("a"), shop.table.data("b")
    puffin = [shop.table.vector("p", a, 4), shop.table.vector("p", b, 10)]
    shop.written(puffin[0])
    shop.table.overwrite(add_deletes=puffin)
    newer = shop.written(shop.table.vector("q", a, 4))
    shop.table.overwrite(
        add_deletes=[newer], remove_deletes=[puffin[0]], base_snapshot_id=shop.table.head_id
    )
    result = shop.expire()
    assert result.deleted_position_delete_files_count == 0
    assert puffin_files(shop) == {"p.puffin", "q.puffin"}
    newest = shop.written(shop.table.vector("r", b, 4))
    shop.table.overwrite(
        add_deletes=[newest], remove_deletes=[puffin[1]], base_snapshot_id=shop.table.head_id
    )
    assert shop.expire().deleted_position_delete_files_count == 1
    assert puffin_files(shop) == {"q.puffin", "r.puffin"}


def puffin_files(shop: TableOnDisk) -> set[str]:
    return {path.name for path in shop.folder.rglob("*.puffin")}


def test_iceberg_10982_2131_files_of_a_branch_stay(shop: TableOnDisk) -> None:
    """Files were deleted that only a branch reached."""
    first = shop.append("a", "b")
    shop.update("set-snapshot-ref", ref_name="side", type="branch", snapshot_id=first)
    shop.delete("a")
    shop.append("c", branch="side")
    shop.append("d")
    shop.expire()
    assert shop.names() == {"a", "b", "c", "d"}
    shop.check()
    shop.update("remove-snapshot-ref", ref_name="side")
    shop.expire()
    assert shop.names() == {"b", "d"}
    shop.check()


def test_iceberg_4194_ducklake_815_another_spelling_of_a_kept_file_stays(
    shop: TableOnDisk,
) -> None:
    """A trailing or doubled slash, or another scheme, turned live files into orphans."""
    shop.append("a", "b")
    path = shop.table.data_path("a").removeprefix("file://")
    spellings = [f"file:{path}", path, path.replace("/data/", "//data/"), f"file://localhost{path}"]
    shop.quarantine(*spellings)
    shop.sweep()
    assert shop.names() == {"a", "b"}
    assert not shop.doomed()


def test_iceberg_17715_a_missing_manifest_of_a_kept_snapshot_stops_the_sweep(
    shop: TableOnDisk,
) -> None:
    first = shop.append("a")
    shop.append("b")
    shop.delete("a")
    remove(shop, first)
    shop.quarantine(shop.table.data_path("a"))
    for name in shop.avro_files():
        if not name.startswith("snap-"):
            (shop.folder / "metadata" / name).unlink()
    with pytest.raises(ValidationError, match="nothing was deleted"):
        shop.sweep()
    assert shop.names() == {"a", "b"}
    assert shop.expired_ids() == [first]


def test_paimon_6978_the_snapshot_is_gone_before_its_files(shop: TableOnDisk) -> None:
    """Data was deleted while a new reader could still load the snapshot."""
    shop.append("a")
    shop.delete("a")
    shop.append("b")
    seen: list[tuple[list[int], dict[str, DeletionState]]] = []
    store = interrupted(shop, lambda: seen.append((shop.snapshot_ids(), shop.doomed())))
    remove(shop, *shop.snapshot_ids()[:-1])
    sweep_table(store, shop.uuid)
    ((ids, rows),) = seen
    assert ids == [shop.table.head_id]
    assert rows["a.parquet"] is DeletionState.DELETING


def test_amoro_877_an_idle_table_keeps_everything(shop: TableOnDisk) -> None:
    """Everything was deleted once it was older than the age."""
    shop.append("a")
    shop.append("b")
    for _ in range(3):
        shop.expire()
        shop.sweep()
    assert shop.names() == {"a", "b"}
    shop.check()


# --- orphans, leftovers and old metadata ----------------------------------------------------------


def test_orphans_are_deleted_after_their_time_unless_a_commit_names_them(
    shop: TableOnDisk,
) -> None:
    for name in ("a", "b", "c", "d"):
        shop.file(name)
    paths = {name: shop.table.data_path(name) for name in "abcd"}
    shop.quarantine(paths["a"], paths["b"])
    shop.quarantine(paths["c"], paths["d"], for_ms=HOUR_MS)
    shop.append("b", "d")
    assert shop.sweep().deleted.unknown == 1
    assert shop.names() == {"b", "c", "d"}
    assert shop.doomed() == {"c.parquet": DeletionState.QUARANTINED}


def test_a_file_that_is_being_deleted_is_refused(shop: TableOnDisk) -> None:
    shop.append("b")
    file = shop.file("a")
    shop.quarantine(file["file-path"], deleting=True)
    conflict = shop.table.conflict(
        {"action": "append", "add-data-files": [shop.file("c")]},
        {"action": "append", "add-data-files": [file]},
    )
    assert (conflict.clause, conflict.update, conflict.files) == ("file-being-deleted", 1, {"a"})
    shop.sweep()
    shop.append("a")
    shop.check()


def test_a_group_with_a_file_that_is_being_deleted_commits_the_others(shop: TableOnDisk) -> None:
    shop.append("b")
    gone = shop.file("gone")
    shop.quarantine(gone["file-path"], deleting=True)
    files = [gone, *(shop.file(f"f{number}") for number in range(5))]
    statuses: dict[str, int] = {}

    def post(file: Any) -> None:
        answer = shop.table.post({"action": "append", "add-data-files": [file]})
        statuses[file["file-path"].rpartition("/")[2]] = answer.status

    threads = [threading.Thread(target=post, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses.pop("gone.parquet") == 409
    assert set(statuses.values()) == {200}


def test_leftovers_of_an_ended_writer_are_deleted(shop: TableOnDisk) -> None:
    shop.intend("w1", ttl_ms=-1)
    shop.intend("w2")
    for name in ("w1/a", "w1/x/b", "w1/c", "w2/d", "e"):
        shop.file(name)
    shop.append("w1/c")
    result = shop.sweep()
    assert (result.deleted.unknown, result.ended_intents_count) == (2, 1)
    assert shop.names() == {"c", "d", "e"}
    assert not (shop.folder / "data" / "w1" / "x").exists()
    assert (shop.folder / "data" / "w2").exists()
    assert shop.intents() == {"w1": IntentState.SWEPT, "w2": IntentState.LIVE}
    late = shop.table.conflict({"action": "append", "add-data-files": [shop.file("w1/z")]})
    assert late.clause == "file-being-deleted"
    shop.check()


def test_files_below_a_live_intent_stay(shop: TableOnDisk) -> None:
    shop.append("keep")
    shop.file("w1/a")
    shop.quarantine(shop.table.data_path("w1/a"))
    shop.intend("w1")
    assert shop.sweep().deleted.total == 0
    assert shop.doomed() == {"a.parquet": DeletionState.QUARANTINED}


def test_metadata_files_that_fell_off_the_log_are_deleted(shop: TableOnDisk) -> None:
    shop.update("set-properties", updates={"write.metadata.previous-versions-max": "2"})
    for name in "abcd":
        shop.append(name)
    assert len(shop.metadata_files()) == 6
    assert shop.sweep().deleted.metadata == 3
    assert len(shop.metadata_files()) == 3
    named = {
        entry["metadata-file"].rpartition("/")[2]
        for entry in shop.table.load().metadata["metadata-log"]
    }
    assert named < shop.metadata_files()
    shop.update("set-properties", updates={"write.metadata.delete-after-commit.enabled": "true"})
    shop.append("e")
    assert len(shop.sweep().problems) == 0


def test_old_metadata_files_are_deleted_without_reading_any_list(shop: TableOnDisk) -> None:
    shop.update("set-properties", updates={"write.metadata.previous-versions-max": "1"})
    shop.append("a")
    shop.append("b")
    for name in shop.avro_files():
        (shop.folder / "metadata" / name).unlink()
    assert shop.sweep().deleted.metadata == 2
    assert len(shop.metadata_files()) == 2


def test_files_outside_of_the_table_stay(shop: TableOnDisk, shared_world: World) -> None:
    other = new_table(shared_world)
    other.file("foreign")
    imported = shared_world.warehouse / "imported.parquet"
    imported.write_bytes(b"x")
    shop.append("a")
    shop.quarantine(other.table.data_path("foreign"), imported.as_uri())
    assert shop.sweep().deleted.total == 0
    assert other.names() == {"foreign"}
    assert imported.exists()
    imported.unlink()


def test_emptied_folders_are_removed(shared_world: World) -> None:
    shop = new_table(shared_world)
    shop.append("x=1/y=1/a", "x=1/y=2/b", "x=2/c", "d")
    shop.delete("x=1/y=1/a", "x=1/y=2/b", "d")
    shop.append("x=2/e")
    shop.expire()
    folders = {
        path.relative_to(shop.folder).as_posix() for path in shop.folder.rglob("*") if path.is_dir()
    }
    assert folders == {"data", "data/x=2", "metadata"}


# --- failures -------------------------------------------------------------------------------------


def test_a_store_that_fails_leaves_marks_and_the_next_sweep_goes_on(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marked_files, "_CHUNK_FILES", 2)
    monkeypatch.setattr(marked_files, "_BATCH_FILES", 1)
    shop.append(*"abcde")
    shop.delete(*"abcd")
    shop.append("f")
    remove(shop, *shop.snapshot_ids()[:-1])

    for failures in range(50):

        class Failing(LocalStore):
            left = failures

            def delete(self, locations: Iterable[str]) -> None:
                if not self.left:
                    raise StoreError("the store is down")
                self.left -= 1
                super().delete(locations)

        try:
            sweep_table(of_store(shop, Failing()), shop.uuid)
        except StoreError:
            assert failures < 49
            assert shop.doomed()
            shop.check()
        else:
            break
    assert shop.names() == {"e", "f"}
    assert not shop.expired_ids()
    assert not shop.doomed()
    named = {Path(own.manifest_list or "").name for own in shop.metadata.snapshots.bare_items()}
    assert {name for name in shop.avro_files() if name.startswith("snap-")} == named


def test_several_servers_sweep_at_once(shop: TableOnDisk) -> None:
    for name in "abcdef":
        shop.append(name)
    shop.delete(*"abc")
    shop.append("g")
    remove(shop, *shop.snapshot_ids()[:-1])
    errors: list[BaseException] = []

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
    assert shop.names() == set("defg")
    assert not shop.doomed()
    shop.check()


def test_the_server_sweeps_by_itself(shop: TableOnDisk) -> None:
    shop.append("a")
    shop.delete("a")
    shop.append("b")
    remove(shop, *shop.snapshot_ids()[:-1])
    sweeper = Sweeper(shop.tools, every_s=0.01)
    sweeper.start()
    try:
        wait_until(lambda: shop.names() == {"b"}, "the file is still there")
    finally:
        sweeper.close()
    shop.check()


def test_the_server_goes_on_after_a_sweep_that_failed_unexpectedly(
    shop: TableOnDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shop.append("a")
    shop.delete("a")
    remove(shop, *shop.snapshot_ids()[:-1])
    failed: list[str] = []

    def fails_once(tools: ServerTools, uuid: str, **options: Any) -> SweepResult:
        if not failed:
            failed.append(uuid)
            raise RuntimeError("a bug")
        return sweep_table(tools, uuid, **options)

    monkeypatch.setattr(sweeper_module, "sweep_table", fails_once)
    sweeper = Sweeper(shop.tools, every_s=0.01)
    sweeper.start()
    try:
        wait_until(lambda: not shop.names(), "the file is still there")
    finally:
        sweeper.close()
    assert failed == [shop.uuid]
    assert "a bug" in caplog.text


def test_swept_intents_are_forgotten_after_a_month(shop: TableOnDisk) -> None:
    shop.intend("old", ttl_ms=-31 * 24 * HOUR_MS)
    shop.intend("new", ttl_ms=-HOUR_MS)
    shop.sweep()
    sweeper = Sweeper(shop.tools, every_s=0.01)
    sweeper.start()
    try:
        wait_until(lambda: len(shop.intents()) == 1, "the intent is still there")
    finally:
        sweeper.close()
    assert shop.intents() == {"new": IntentState.SWEPT}


def test_a_view_or_a_table_that_does_not_exist_is_left_alone(shop: TableOnDisk) -> None:
    assert sweep_table(shop.tools, "no such uuid").deleted.total == 0

"""Files that nothing names are found, and no others."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from frazil.db.housekeeping_rows import DeletionState, doomed_file, doomed_files
from frazil.housekeeping.file_lists import ListedFile
from frazil.housekeeping.orphan_files import remove_orphans
from frazil.housekeeping.orphan_options import MAX_LOCATIONS, OrphanOptions
from frazil.housekeeping.orphan_reachability import BATCH
from frazil.housekeeping.reachability import Stopped, Watch
from frazil.store.object_store import ObjectInfo
from frazil.wire.errors import BadRequest, NoSuchTable, ValidationError
from tests.housekeeping.orphan_shop import HOUR_MS, QUARANTINE_MS, Shop


def test_orphans_are_recorded_and_stay_until_their_quarantine_is_over(any_shop: Shop) -> None:
    shop = any_shop
    shop.create()
    live = shop.append(3)
    orphans = {shop.orphan(), shop.orphan("t", "data/part=1"), shop.orphan("t", "metadata")}
    result = shop.search()
    assert set(result.orphan_file_locations) == orphans == shop.recorded()
    assert (result.orphan_files_count, result.orphan_bytes) == (3, 30)
    assert result.listed_files_count == result.reachable_files_count + 3
    row = doomed_file(shop.database, shop.uuid(), min(orphans))
    assert row is not None
    assert (row.reason, row.size_bytes, row.state) == ("orphan", 10, DeletionState.QUARANTINED)
    assert row.delete_after_ms == result.delete_after_ms == row.found_ms + QUARANTINE_MS
    assert all(shop.store.size(path) is not None for path in (*orphans, *live))


def test_a_dry_run_records_nothing(any_shop: Shop) -> None:
    any_shop.create()
    any_shop.append()
    orphan = any_shop.orphan()
    result = any_shop.search(dry_run=True)
    assert (result.dry_run, list(result.orphan_file_locations)) == (True, [orphan])
    assert result.delete_after_ms is None
    assert not any_shop.recorded()


def test_a_second_search_finds_nothing_new(any_shop: Shop) -> None:
    any_shop.create()
    any_shop.append()
    any_shop.orphan()
    any_shop.search()
    before = list(doomed_files(any_shop.database, any_shop.uuid()))
    again = any_shop.search()
    assert (again.orphan_files_count, again.recorded_files_count) == (0, 1)
    assert list(doomed_files(any_shop.database, any_shop.uuid())) == before


def test_everything_that_the_table_names_is_reachable(shop: Shop) -> None:
    shop.create()
    for _ in range(4):
        shop.append()
    removed = shop.append(1)[0]
    shop.driver.commit("t", [{"action": "delete", "remove-data-files": [removed]}])
    statistics = shop.write(f"{shop.location()}/metadata/a.stats")
    head = shop.driver.load().metadata.current_snapshot_id
    document: dict[str, Any] = {
        "snapshot-id": head,
        "statistics-path": statistics,
        "file-size-in-bytes": 10,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    shop.driver.commit("t", [{"action": "set-statistics", "statistics": document}])
    result = shop.search()
    assert result.orphan_files_count == 0
    assert result.reachable_files_count == result.listed_files_count


def test_an_empty_table_and_one_without_snapshots(shop: Shop) -> None:
    shop.create()
    assert shop.search().listed_files_count == 1
    orphan = shop.orphan()
    assert shop.found() == {orphan}


# --- age ------------------------------------------------------------------------------------------


def test_files_younger_than_the_age_are_kept(shop: Shop) -> None:
    shop.create()
    shop.append()
    old = shop.write(shop.new_path(), age_ms=73 * HOUR_MS)
    shop.write(shop.new_path(), age_ms=71 * HOUR_MS)
    result = shop.search(older_than_ms=None)
    assert list(result.orphan_file_locations) == [old]
    assert result.recent_files_count == 1


def test_files_of_unknown_age_are_kept(shop: Shop) -> None:
    shop.create()
    shop.append()
    orphan = shop.orphan()
    assert not shop.found(file_list=[ListedFile(orphan, None, None)])
    assert shop.found(file_list=[ListedFile(orphan, None, 1)]) == {orphan}


def test_an_age_below_a_day_must_be_allowed(shop: Shop) -> None:
    shop.create()
    orphan = shop.orphan()
    with pytest.raises(BadRequest, match="allow_recent_files"):
        shop.search(allow_recent_files=False)
    assert shop.found(allow_recent_files=False) == {orphan}
    assert OrphanOptions(older_than_ms=0).cutoff_ms(25 * HOUR_MS, dry_run=False) == 0


def test_an_idle_table_keeps_its_files_amoro_877(any_shop: Shop) -> None:
    """Its files are all older than any age, and no commit has come for long."""
    any_shop.create()
    any_shop.append(30)
    result = any_shop.search(max_orphan_share=1.0)
    assert result.orphan_files_count == 0
    assert result.reachable_files_count == result.listed_files_count >= 30


# --- hidden files ---------------------------------------------------------------------------------


def test_hidden_files_are_kept_as_iceberg_does(shop: Shop) -> None:
    spec = {"spec-id": 0, "fields": [{"name": "_p", "transform": "identity", "source-id": 1}]}
    location = shop.create(partition_spec=spec)
    for hidden in ("_SUCCESS.txt", ".a.crc", "_temporary/0/a.parquet", "x/.y/a.parquet"):
        shop.write(f"{location}/data/{hidden}")
    orphan = shop.write(f"{location}/data/_p=1/a.parquet")
    result = shop.search()
    assert list(result.orphan_file_locations) == [orphan]
    assert result.skipped_files_count == 4


def test_objects_that_stand_for_folders_are_kept(any_shop: Shop) -> None:
    location = any_shop.create()
    any_shop.write(f"{location}/data/empty_folder", size=0)
    assert not any_shop.found()


def test_empty_folders_stay(shop: Shop, tmp_path: Path) -> None:
    location = shop.create()
    folder = Path(location.removeprefix("file://")) / "data" / "part=1"
    folder.mkdir()
    assert shop.search().orphan_files_count == 0
    assert folder.is_dir()


# --- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_slashes_at_the_end_of_a_location_ducklake_815(shop: Shop, slashes: str) -> None:
    location = shop.create(location=f"{shop.root}/ns/t/")
    live = shop.append(2)
    orphan = shop.orphan()
    assert shop.found(location=f"{location}{slashes}") == {orphan}
    assert shop.found(location=f"{location}/data{slashes}") == {orphan}
    assert shop.found(location=f"{location}/metadata{slashes}") == set()
    assert all(shop.store.size(path) is not None for path in live)


def test_what_a_killed_server_leaves_is_found_in_the_metadata_folder(any_shop: Shop) -> None:
    location = any_shop.create()
    any_shop.append()
    left = {
        any_shop.write(f"{location}/metadata/{name}")
        for name in (
            "00002-2f6c4a34-30b9-4c3c-a8f3-6a1a1c2b3d4e.metadata.json",
            "2f6c4a34-30b9-4c3c-a8f3-6a1a1c2b3d4e-m0.avro",
            "snap-1-0-2f6c4a34-30b9-4c3c-a8f3-6a1a1c2b3d4e.avro",
        )
    }
    any_shop.orphan()
    assert any_shop.found(location=f"{location}/metadata") == left


def test_a_location_outside_the_table_is_refused(shop: Shop) -> None:
    location = shop.create()
    for other in (shop.root, f"{location}x", f"{location}/../other", "s3://bucket/x", "x"):
        with pytest.raises(BadRequest):
            shop.search(location=other)


def test_the_locations_of_data_and_metadata_are_searched_too(shop: Shop) -> None:
    properties = {
        "write.data.path": f"{shop.root}/elsewhere/data",
        "write.metadata.path": f"{shop.root}/elsewhere/metadata",
    }
    shop.create(properties=properties)
    shop.commit(shop.write(f"{shop.root}/elsewhere/data/live.parquet"))
    orphans = {
        shop.write(f"{shop.root}/elsewhere/data/a.parquet"),
        shop.write(f"{shop.root}/elsewhere/metadata/a.avro"),
        shop.orphan(),
    }
    assert shop.found() == orphans


def test_every_file_is_listed_once(shop: Shop) -> None:
    location = shop.create()
    shop.set_properties(
        write_data_path=f"{location}/data", write_metadata_path=f"{location}/metadata"
    )
    shop.append()
    orphan = shop.orphan()
    assert list(shop.search(dry_run=True).orphan_file_locations) == [orphan]


def test_folders_whose_names_begin_like_the_table_are_not_its_own(shop: Shop) -> None:
    location = shop.create()
    shop.append()
    shop.write(f"{location}_other/data/a.parquet")
    assert not shop.found()


# --- spellings ------------------------------------------------------------------------------------


def test_other_spellings_of_a_live_file_keep_it_iceberg_4194_4346_4652(any_shop: Shop) -> None:
    """The scheme `s3a` for `s3`, `file:/` for `file:///`, plain paths, doubled slashes."""
    shop = any_shop
    shop.create()
    live = [shop.orphan() for _ in range(3)]
    if shop.root.startswith("s3"):
        spelled = [live[0].replace("s3://", "s3a://"), live[1].replace("s3://", "s3n://"), live[2]]
    else:
        plain = [path.removeprefix("file://") for path in live]
        spelled = [plain[0], f"file:{plain[1]}", plain[2].replace("/data/", "//data//")]
    shop.commit(*spelled)
    assert not shop.found()


def test_percent_escapes(shop: Shop) -> None:
    location = shop.create()
    literal = shop.write(f"{location}/data/p=a%2Fb c/1.parquet")
    shop.commit(literal)
    decoded = shop.write(f"{location}/data/p=a b/2.parquet")
    shop.commit(f"{location}/data/p=a%20b/2.parquet")
    orphan = shop.write(f"{location}/data/p=a%2Fb c/3.parquet")
    assert shop.found() == {orphan}
    assert shop.store.size(decoded) is not None


def test_symlinks_of_folders_and_files(shop: Shop, tmp_path: Path) -> None:
    real = tmp_path / "wh" / "real"
    real.mkdir()
    link = tmp_path / "wh" / "link"
    link.symlink_to(real)
    location = shop.create(location=f"file://{link}")
    shop.append()
    data = real / "data"
    (data / "target.parquet").write_bytes(b"x")
    (data / "name.parquet").symlink_to(data / "target.parquet")
    shop.commit(f"{location}/data/name.parquet")
    shop.write(f"{location}/data/orphan.parquet")
    outside = tmp_path / "wh" / "outside"
    outside.mkdir()
    (outside / "foreign.parquet").write_bytes(b"x")
    (data / "folder").symlink_to(outside)
    assert shop.found() == {f"file://{data}/orphan.parquet"}


# --- lists of files -------------------------------------------------------------------------------


def test_a_list_of_files_replaces_the_listing(any_shop: Shop) -> None:
    shop = any_shop
    location = shop.create()
    live = shop.append(2)
    orphan = shop.orphan()
    shop.orphan()
    files = [ListedFile(path, 10, 1) for path in (orphan, *live, f"{location}x/a", "/etc/passwd")]
    result = shop.search(file_list=files)
    assert shop.recorded() == {orphan}
    assert (result.listed_files_count, result.skipped_files_count) == (5, 2)


@pytest.mark.parametrize(
    "content", [b"x", b'["a"]', b'["a", "b"]', b"[1, 2]", b'{"path": "a"}', b'["a", 1.5]']
)
def test_a_malformed_list_of_files_is_refused(shop: Shop, content: bytes) -> None:
    location = shop.create()
    orphan = shop.orphan()
    good = msgspec.json.encode(ListedFile(orphan, None, 1))
    shop.store.put_new(f"{location}/data/list/0.jsonl", [good + b"\n" + content])
    with pytest.raises(BadRequest, match=r"line 2 of .*0\.jsonl"):
        shop.search(stored_list=f"{location}/data/list")
    assert not shop.recorded()


def test_a_list_of_files_lies_in_the_table(shop: Shop) -> None:
    location = shop.create()
    with pytest.raises(BadRequest, match=r"options\.file_list.*outside"):
        shop.search(stored_list=f"{location}x/list")
    with pytest.raises(BadRequest, match=r"options\.file_list: there are no files"):
        shop.search(stored_list=f"{location}/data/list")


class CountedPath(str):
    """A path that counts how many of its kind are in memory."""

    alive = 0
    most = 0

    def __init__(self, text: str) -> None:
        CountedPath.alive += 1
        CountedPath.most = max(CountedPath.most, CountedPath.alive)

    def __del__(self) -> None:
        CountedPath.alive -= 1


def test_a_listing_is_never_held_in_memory_as_a_whole(shop: Shop) -> None:
    location = shop.create()
    shop.append()
    paths = (CountedPath(f"{location}/data/{number}.parquet") for number in range(5 * BATCH))
    recent = (ObjectInfo(path, 1, 2**62) for path in paths)
    shop.store.listing = chain(list(shop.store.list(location)), recent)
    assert shop.search().recent_files_count == 5 * BATCH
    assert CountedPath.most <= 3 * BATCH


def test_many_orphans_go_through_a_file(shop: Shop) -> None:
    location = shop.create()
    files = [
        ListedFile(f"{location}/data/{number:0200}.parquet", number, 1)
        for number in range(MAX_LOCATIONS + 2 * BATCH)
    ]
    result = shop.search(dry_run=True, file_list=files)
    assert result.orphan_files_count == len(files)
    assert result.orphan_bytes == sum(range(len(files)))
    assert list(result.orphan_file_locations) == [file.location for file in files[:MAX_LOCATIONS]]


# --- stopping -------------------------------------------------------------------------------------


def test_a_cancelled_search_records_nothing(shop: Shop) -> None:
    shop.create()
    shop.append()
    shop.orphan()
    with pytest.raises(Stopped):
        shop.search(watch=Watch(cancelled=lambda: True))
    assert not shop.recorded()


def test_a_table_that_does_not_exist(shop: Shop) -> None:
    with pytest.raises(NoSuchTable):
        remove_orphans(shop.tools, "0" * 36, OrphanOptions())


def test_nothing_is_recorded_without_gc(any_shop: Shop) -> None:
    any_shop.create()
    any_shop.orphan()
    any_shop.set_properties(gc_enabled="false")
    with pytest.raises(ValidationError, match=r"gc\.enabled"):
        any_shop.search()
    assert not any_shop.recorded()


def test_names_that_no_table_can_have_are_kept(shop: Shop) -> None:
    location = shop.create()
    folder = location.removeprefix("file://")
    Path(f"{folder}/data/a\nb.parquet").write_bytes(b"x")
    Path(os.fsdecode(os.fsencode(f"{folder}/data/") + b"\xff.parquet")).write_bytes(b"x")
    assert not shop.found()

"""The behavior that every store guarantees."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from frazil.store.object_store import (
    ObjectExists,
    ObjectMissing,
    ObjectTooLarge,
    StoreError,
    prove_put_if_absent,
)
from frazil.wire.errors import BadRequest
from tests.store.conftest import Place
from tests.support.patience import HANG_S

CHUNK_LISTS = [
    [],
    [b""],
    [b"one"],
    [b"one", b"", b"two"],
    [bytes([number % 256]) * number for number in range(3000)],
    [b"x" * 3_000_000, b"y" * 2_500_000],
]


@pytest.mark.parametrize("chunks", CHUNK_LISTS, ids=["none", "empty", "one", "two", "many", "big"])
def test_an_object_is_its_chunks_one_after_another(place: Place, chunks: list[bytes]) -> None:
    location = f"{place.root}/metadata/object"

    place.store.put_new(location, chunks)

    assert place.store.get(location) == b"".join(chunks)
    assert place.store.size(location) == sum(map(len, chunks))


def test_a_part_of_an_object_is_read_alone(place: Place) -> None:
    location = f"{place.root}/data/object"
    content = bytes(number % 251 for number in range(300_000))
    place.store.put_new(location, [content])

    for offset, length in ((0, 1), (0, 300_000), (12_345, 100_000), (299_999, 1)):
        assert place.store.get_range(location, offset, length) == content[offset : offset + length]
    for offset, length in ((299_999, 2), (300_000, 1), (400_000, 5)):
        with pytest.raises(StoreError):
            place.store.get_range(location, offset, length)
    for missing in (f"{place.root}/data/nothing", f"{place.root}/data", f"{location}/below"):
        with pytest.raises(ObjectMissing):
            place.store.get_range(missing, 0, 1)


@pytest.mark.parametrize(
    "name",
    ["a b", "a%2Fb", "a%252Fb", "100%", "é", "e\u0301", "日本/語", "a+b=c&d", "it's", "a*[b]", "~"],
)
def test_a_name_is_kept_as_it_is_written(place: Place, name: str) -> None:
    location = f"{place.root}/{name}"

    place.store.put_new(location, [b"content"])

    assert [found.location for found in place.store.list(place.root)] == [location]
    assert place.store.get(location) == b"content"
    place.store.delete([location])
    assert place.store.size(location) is None


def test_percent_escapes_are_not_the_characters_they_stand_for(place: Place) -> None:
    place.store.put_new(f"{place.root}/a%2Fb", [b"escaped"])
    place.store.put_new(f"{place.root}/a/b", [b"plain"])

    assert place.store.get(f"{place.root}/a%2Fb") == b"escaped"
    assert place.store.get(f"{place.root}/a/b") == b"plain"


def test_of_sixteen_writers_of_one_name_one_wins_and_its_content_stays(place: Place) -> None:
    contents = [[bytes([writer]) * 70_000] * 3 for writer in range(16)]
    for number in range(5):
        location = f"{place.root}/round-{number}/object"
        together = threading.Barrier(len(contents))

        def write(
            chunks: list[bytes],
            location: str = location,
            together: threading.Barrier = together,
        ) -> bool:
            together.wait(HANG_S)
            try:
                place.store.put_new(location, chunks)
            except ObjectExists:
                return False
            return True

        with ThreadPoolExecutor(len(contents)) as pool:
            won = list(pool.map(write, contents))

        assert won.count(True) == 1
        assert place.store.get(location) == b"".join(contents[won.index(True)])


def test_a_second_write_of_the_same_bytes_is_refused_too(place: Place) -> None:
    place.store.put_new(f"{place.root}/object", [b"same"])

    with pytest.raises(ObjectExists) as raised:
        place.store.put_new(f"{place.root}/object", [b"same"])
    assert raised.value.location == f"{place.root}/object"


def test_put_if_absent_is_proven_and_the_probe_leaves_nothing(place: Place) -> None:
    prove_put_if_absent(place.store, place.root)

    assert list(place.store.list(place.root)) == []


def test_a_missing_object_is_missing(place: Place) -> None:
    place.store.put_new(f"{place.root}/object", [b"content"])

    for missing in (f"{place.root}/none", f"{place.root}/object/below", f"{place.root}/no/such"):
        assert place.store.size(missing) is None
        with pytest.raises(ObjectMissing) as raised:
            place.store.get(missing)
        assert raised.value.location == missing


def test_a_folder_is_no_object(place: Place) -> None:
    place.store.put_new(f"{place.root}/folder/object", [b"content"])

    assert place.store.size(f"{place.root}/folder") is None
    with pytest.raises(ObjectMissing):
        place.store.get(f"{place.root}/folder")


def test_get_stops_at_the_cap(place: Place) -> None:
    location = f"{place.root}/object"
    place.store.put_new(location, [b"12345"])

    assert place.store.get(location, max_bytes=5) == b"12345"
    with pytest.raises(ObjectTooLarge):
        place.store.get(location, max_bytes=4)
    with pytest.raises(ObjectTooLarge):
        place.store.get(location, max_bytes=0)


def test_list_finds_everything_below_and_nothing_beside(place: Place) -> None:
    before_ms = int(time.time() * 1000) - 2000
    inside = {"table/a": 1, "table/data/b": 2, "table/data/x=1/y=2/c": 3, "table/metadata/d": 0}
    for name, size in inside.items():
        place.store.put_new(f"{place.root}/{name}", [b"z" * size])
    for beside in ("table_other/a", "tabl", "table.bak", "other/table/a"):
        place.store.put_new(f"{place.root}/{beside}", [b"beside"])

    for prefix in (f"{place.root}/table", f"{place.root}/table/"):
        found = {info.location: info for info in place.store.list(prefix)}
        assert {location: info.size for location, info in found.items()} == {
            f"{place.root}/{name}": size for name, size in inside.items()
        }
        assert all(
            before_ms <= info.modified_ms <= time.time() * 1000 + 2000 for info in found.values()
        )


def test_list_of_what_is_not_there_is_empty(place: Place) -> None:
    assert list(place.store.list(f"{place.root}/none")) == []


def test_delete_takes_the_named_objects_and_no_others(place: Place) -> None:
    names = [f"{place.root}/data/{number}" for number in range(20)]
    for name in names:
        place.store.put_new(name, [b"content"])

    place.store.delete([*names[:10], f"{place.root}/none", f"{place.root}/no/such/folder"])
    place.store.delete(iter(names[:10]))
    place.store.delete([])

    left = {info.location for info in place.store.list(place.root)}
    assert left == set(names[10:])


def test_a_deleted_name_can_be_written_again(place: Place) -> None:
    location = f"{place.root}/object"
    place.store.put_new(location, [b"old"])
    place.store.delete([location])

    place.store.put_new(location, [b"new"])

    assert place.store.get(location) == b"new"


def test_folders_can_be_made_everywhere_and_twice(place: Place) -> None:
    folders = [f"{place.root}/table/data", f"{place.root}/table/metadata"]

    place.store.make_folders(folders)
    place.store.make_folders(folders)

    assert list(place.store.list(place.root)) == []
    place.store.put_new(f"{folders[0]}/object", [b"content"])
    assert place.store.get(f"{folders[0]}/object") == b"content"


def test_only_empty_folders_are_removed(place: Place) -> None:
    empty, used = f"{place.root}/empty", f"{place.root}/used"
    place.store.make_folders([f"{empty}/data", f"{empty}/metadata", f"{used}/data/day=1"])
    place.store.put_new(f"{used}/metadata/object", [b"content"])

    for location in (empty, used, f"{place.root}/missing"):
        place.store.remove_empty_folders(location)

    assert place.store.get(f"{used}/metadata/object") == b"content"
    if place.kind == "local":
        root = Path(place.root.removeprefix("file://"))
        assert sorted(path.name for path in root.rglob("*")) == ["metadata", "object", "used"]


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "./a", "a\x00b"])
def test_no_name_leads_out_of_its_folder(place: Place, name: str) -> None:
    with pytest.raises(BadRequest):
        place.store.put_new(f"{place.root}/{name}", [b"content"])
    with pytest.raises(BadRequest):
        place.store.get(f"{place.root}/{name}")
    with pytest.raises(BadRequest):
        place.store.delete([f"{place.root}/{name}"])


def test_many_objects_are_written_at_once(place: Place) -> None:
    files = {f"{place.root}/folder-{n % 3}/object-{n}": [b"%d" % n, b"x" * n] for n in range(40)}
    with ThreadPoolExecutor(4) as executor:
        assert place.store.put_many(files, executor) == {}
        assert place.store.put_many({}, executor) == {}
    for n, location in enumerate(files):
        assert place.store.get(location) == b"%d" % n + b"x" * n


def test_of_many_objects_one_that_exists_fails_alone(place: Place) -> None:
    taken = f"{place.root}/many/taken"
    place.store.put_new(taken, [b"first"])
    files = {f"{place.root}/many/{n}": [b"new"] for n in range(5)} | {taken: [b"second"]}
    with ThreadPoolExecutor(4) as executor:
        failed = place.store.put_many(files, executor)
    assert list(failed) == [taken]
    assert isinstance(failed[taken], ObjectExists)
    assert place.store.get(taken) == b"first"
    assert all(place.store.get(location) == b"new" for location in files if location != taken)


def test_objects_put_unsynced_are_there_and_are_synced_together(place: Place) -> None:
    files = {f"{place.root}/unsynced-{n % 2}/{n}": b"%d" % n for n in range(6)}
    for location, content in files.items():
        place.store.put_unsynced(location, [content])
    place.store.sync(files)
    place.store.sync([])
    for location, content in files.items():
        assert place.store.get(location) == content
        with pytest.raises(ObjectExists):
            place.store.put_unsynced(location, [b"other"])
        assert place.store.get(location) == content

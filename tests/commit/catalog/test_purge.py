"""A purge lists every file of a table and no others, in an order that allows it to resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from frazil.commit.catalog.purge import files_of_table
from frazil.format.metadata.table_builder import with_previous_file
from frazil.store.local_store import LocalStore
from frazil.wire.rest_updates import (
    RemoveSnapshots,
    SetPartitionStatistics,
    SetProperties,
    SetStatistics,
)
from tests.support.tables import apply_updates
from tests.support.trees import Tree, now_ms, rows


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Create a table with three appends, a delete that rewrites a file, and a last append."""
    tree = Tree.create(tmp_path / "t")
    for number in (1, 2):
        tree.apply(tree.append(number, number + 10))
    tree.apply(tree.build(lambda table: table.delete("id = 11")))
    tree.apply(tree.append(3))
    return tree


def walk(
    tree: Tree, problems: list[str] | None = None, within: Callable[[str], bool] | None = None
) -> list[str]:
    location = f"{tree.metadata.location}/"
    return list(
        files_of_table(
            tree.metadata,
            tree.store,
            within or (lambda path: path.startswith(location)),
            metadata_location=f"{tree.metadata.location}/metadata/head.metadata.json",
            problem=(problems if problems is not None else []).append,
        )
    )


def on_disk(tree: Tree) -> set[str]:
    root = Path(tree.metadata.location.removeprefix("file://"))
    return {path.as_uri() for path in root.rglob("*") if path.is_file()}


def kind(path: str) -> int:
    """Return the rank of a file in the order of deletion."""
    name = Path(path).name
    if "/data/" in path:
        return 0
    if name.endswith(".avro"):
        return 2 if name.startswith("snap-") else 1
    return 4 if name == "head.metadata.json" else 3


def test_every_file_comes_and_those_that_lead_to_others_come_later(tree: Tree) -> None:
    found = walk(tree)
    assert set(found) == on_disk(tree) | {f"{tree.metadata.location}/metadata/head.metadata.json"}
    assert [kind(path) for path in found] == sorted(kind(path) for path in found)
    assert found[-1].endswith("head.metadata.json")


def test_statistics_and_older_metadata_files_come_too(tree: Tree) -> None:
    location, snapshot_id = tree.metadata.location, tree.head.snapshot_id
    document = {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{location}/metadata/a.stats",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    partition = {
        "snapshot-id": snapshot_id,
        "statistics-path": f"{location}/metadata/b.stats",
        "file-size-in-bytes": 1,
    }
    updates = (
        SetStatistics(statistics=msgspec.Raw(msgspec.json.encode(document))),
        SetPartitionStatistics(partition_statistics=msgspec.Raw(msgspec.json.encode(partition))),
    )
    before = tree.metadata
    after = apply_updates(before, updates, now_ms=now_ms())
    previous = f"{location}/metadata/0.metadata.json"
    tree.metadata = with_previous_file(after, previous, before.last_updated_ms)
    names = [Path(path).name for path in walk(tree)]
    assert names[-4:] == ["a.stats", "b.stats", "0.metadata.json", "head.metadata.json"]


def test_files_of_expired_snapshots_that_are_still_named_come(tree: Tree) -> None:
    everything = set(walk(tree))
    oldest = next(iter(tree.metadata.snapshots.bare_items()))
    expire = RemoveSnapshots(snapshot_ids=(oldest.snapshot_id,))
    tree.metadata = apply_updates(tree.metadata, (expire,), now_ms=now_ms())
    assert everything - set(walk(tree)) == {oldest.manifest_list}


def test_data_files_stay_where_gc_is_off(tree: Tree) -> None:
    everything = walk(tree)
    off = SetProperties(updates={"gc.enabled": "false"})
    tree.metadata = apply_updates(tree.metadata, (off,), now_ms=now_ms())
    assert walk(tree) == [path for path in everything if kind(path) > 0]


def test_files_outside_the_table_are_neither_read_nor_named(tree: Tree) -> None:
    problems: list[str] = []
    found = walk(tree, problems, lambda path: "/data/" not in path)
    assert {kind(path) for path in found} == {1, 2, 4}
    assert any("outside the table's location" in problem for problem in problems)
    read: list[str] = []

    class Watched(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            read.append(location)
            return super().get(location, max_bytes)

    tree.store = Watched()
    assert walk(tree, problems, lambda path: False) == []
    assert read == []


def test_missing_and_broken_files_are_reported_and_passed_over(tree: Tree) -> None:
    everything = walk(tree)
    lists = [path for path in everything if kind(path) == 2]
    manifests = [path for path in everything if kind(path) == 1]
    Path(lists[0].removeprefix("file://")).unlink()
    Path(lists[-1].removeprefix("file://")).write_bytes(b"no list")
    broken = Path(manifests[0].removeprefix("file://"))
    broken.write_bytes(broken.read_bytes()[:-20])
    problems: list[str] = []
    found = walk(tree, problems)
    assert {lists[0], lists[-1], manifests[0]} <= set(found)
    assert len(found) < len(everything)
    for path in (lists[0], lists[-1], manifests[0]):
        assert any(path in problem for problem in problems)


def test_an_encrypted_list_is_reported(tree: Tree) -> None:
    snapshots = tree.build(lambda table: table.append(rows(9)))
    document = msgspec.json.decode(snapshots.snapshot.raw)
    document["key-id"] = "k"
    tree.apply(snapshots.with_snapshot(msgspec.json.encode(document)))
    problems: list[str] = []
    assert snapshots.snapshot.manifest_list in walk(tree, problems)
    assert any("is encrypted" in problem for problem in problems)


def test_problems_are_logged_unless_asked_for(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    list(files_of_table(tree.metadata, tree.store, lambda path: False))
    assert any("outside the table's location" in record.message for record in caplog.records)

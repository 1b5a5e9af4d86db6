"""Deletes that apply to no live data file any more are removed, and no others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from frazil.commit.catalog.manifest_maintenance import RemovedDanglingDeletes
from frazil.commit.snapshot.dangling_deletes import find_dangling
from frazil.wire.identifiers import Identifier
from tests.commit.finegrained.conftest import (
    WITH_DELETES,
    WITH_POSITION_DELETES,
    WITH_VECTORS,
    TableFactory,
)
from tests.commit.finegrained.tables import BUCKETS, Table
from tests.commit.finegrained.trees import EQUALITY_DELETES, Entry, check_tree
from tests.commit.finegrained.world import World
from tests.commit.requests import context


def remove(world: World, table: Table, *, dry_run: bool = False) -> RemovedDanglingDeletes:
    name = Identifier((table.namespace,), table.name)
    result = world.catalog.remove_dangling_deletes(
        context(), name, branch=table.branch, dry_run=dry_run
    )
    if table.load().head() is not None:
        check_tree(table.metadata, table.head_id)
    return result


def applies(delete: Entry, file: Entry, specs: dict[int, Any]) -> bool:
    """Return what the specification says in "Scan Planning"."""
    number, of_file = delete.sequence_number or 0, file.sequence_number or 0
    same = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
    if delete.content == EQUALITY_DELETES:
        everywhere = not specs[delete.spec_id]["fields"]
        return of_file < number and (everywhere or same)
    if delete.referenced_data_file is not None:
        return delete.referenced_data_file == file.file_path and of_file <= number
    return same and of_file <= number


def dangling(table: Table) -> set[str]:
    specs = {spec["spec-id"]: spec for spec in table.metadata["partition-specs"]}
    live = table.entries()
    data = [entry for entry in live.values() if entry.is_data]
    return {
        name
        for name, entry in live.items()
        if not entry.is_data and not any(applies(entry, file, specs) for file in data)
    }


@WITH_POSITION_DELETES
def test_file_scoped_deletes_go_with_their_file(table: Table) -> None:
    """iceberg#17203: position deletes for one file stayed when the file was removed."""
    old, other = table.data("old", 1), table.data("other", 1)
    table.append(old, other)
    for name, file in (("mine", old), ("theirs", other)):
        table.overwrite(add_deletes=[table.position_deletes(name, file, refer=True)])
    table.delete(old)
    assert table.live() == {"other", "theirs"}


@WITH_VECTORS
def test_vectors_go_with_their_file(world: World, table: Table) -> None:
    """nimtable/iceberg-compaction#162: vectors of removed files kept their Puffin files forever."""
    old, other = table.data("old", 1), table.data("other", 1)
    table.append(old, other)
    table.overwrite(add_deletes=[table.vector("mine", old), table.vector("theirs", other)])
    table.delete(old)
    assert table.live() == {"other", "theirs@4"}
    assert remove(world, table) == RemovedDanglingDeletes()


@WITH_DELETES
def test_only_dangling_deletes_are_removed(world: World, table: Table) -> None:
    assert remove(world, table) == RemovedDanglingDeletes()
    table.append(table.data("a1", 1), table.data("b1", 2))
    table.append(table.data("old", 3))
    equality = [table.equality_deletes(f"eq{bucket}", bucket) for bucket in (1, 2, 7)]
    positions = [
        table.position_deletes(f"pos{bucket}", partition=(bucket,)) for bucket in (1, 2, 7)
    ]
    table.overwrite(add_deletes=[*equality, *(positions if table.version == 2 else ())])
    # The file of bucket 3 is older than all deletes, so no commit removes them by itself.
    table.replace(remove=[table.data_path("a1")], add=[table.data("a2", 1)])
    gone = dangling(table)
    assert gone == {"eq1", "eq7"} | ({"pos1", "pos7"} if table.version == 2 else set())
    live = table.live()
    planned = remove(world, table, dry_run=True)
    assert planned.removed_delete_files_count == len(gone)
    assert planned.removed_bytes_count == 10 * len(gone)
    assert table.live() == live
    assert remove(world, table).removed_delete_files_count == len(gone)
    assert table.load().live() == live - gone
    assert table.operation == "replace"
    head = table.head_id
    assert remove(world, table) == RemovedDanglingDeletes()
    assert table.load().head_id == head


@WITH_DELETES
def test_equality_deletes_apply_to_strictly_older_files(world: World, table: Table) -> None:
    table.append(table.data("ancient", 9))
    added = table.data("new", 1)
    table.overwrite(add=[added], add_deletes=[table.equality_deletes("same", 1)])
    table.append(table.data("newer", 1))
    assert dangling(table) == {"same"}
    assert remove(world, table).removed_delete_files_count == 1
    assert table.load().live() == {"ancient", "new", "newer"}


def test_deletes_of_an_unpartitioned_spec_are_global(world: World, new_table: TableFactory) -> None:
    table = new_table(version=2, spec={"fields": []})
    table.append(table.data("u"))
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, **BUCKETS}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    table.append(table.data("p", 5, spec_id=1))
    deletes = [
        table.equality_deletes("everywhere"),
        table.position_deletes("unpartitioned", partition=()),
        table.equality_deletes("elsewhere", 4, spec_id=1),
    ]
    table.overwrite(add_deletes=deletes)
    table.overwrite(remove=[table.data_path("u")], add=[table.data("v")])
    assert dangling(table) == {"unpartitioned", "elsewhere"}
    assert remove(world, table).removed_delete_files_count == 2
    assert "everywhere" in table.load().live()


@WITH_DELETES
def test_a_concurrent_commit_with_old_rows_keeps_its_deletes(
    world: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction that keeps an old sequence number can bring a delete back into use."""
    table.append(table.data("ancient", 9), table.data("moved", 2))
    base = table.head_id
    table.overwrite(
        add_deletes=[table.equality_deletes("back", 1), table.equality_deletes("gone", 4)]
    )
    assert dangling(table) == {"back", "gone"}

    def searched(*args: Any) -> Any:
        found = find_dangling(*args)
        # The data file moves to the partition of the delete, as a compaction to another spec could.
        table.replace(
            remove=[table.data_path("moved")],
            add=[table.data("arrived", 1)],
            base=base,
            data_sequence_number=table.snapshot(base)["sequence-number"],
        )
        return found

    monkeypatch.setattr("frazil.commit.catalog.manifest_maintenance.find_dangling", searched)
    remove(world, table)
    assert table.load().live() == {"ancient", "arrived", "back"}


@pytest.mark.parametrize("seed", range(6))
def test_against_the_specification(
    world: World, new_table: TableFactory, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed < 2:
        # One commit does not remove all of them.
        monkeypatch.setattr("frazil.commit.catalog.manifest_maintenance._MAX_REMOVED", 2)
    chance = random.Random(seed)
    version = 2 + seed % 2
    table = new_table(version=version, spec=BUCKETS)
    table.append(table.data("ancient", 15))
    for number in range(40):
        live = [entry for entry in table.entries().values() if entry.is_data]
        files = [
            table.data(table.short(entry.file_path), *entry.partition)
            for entry in live
            if entry.partition != (15,)
        ]
        bucket = chance.randrange(4)
        action = chance.random()
        if action < 0.4 or not files:
            table.append(table.data(f"f{number}", bucket))
        elif action < 0.6:
            table.overwrite(add_deletes=[table.equality_deletes(f"e{number}", bucket)])
        elif action < 0.75:
            file = chance.choice(files)
            has_vector = any(
                e.referenced_data_file == file["file-path"] for e in table.tree().live.values()
            )
            if version == 2:
                refer = chance.random() < 0.5
                delete = table.position_deletes(f"p{number}", file, refer=refer)
                table.overwrite(add_deletes=[delete])
            elif not has_vector:
                table.overwrite(add_deletes=[table.vector(f"p{number}", file)], base=table.head_id)
        elif action < 0.9:
            table.delete(chance.choice(files))
        else:
            expected, before = dangling(table), table.live()
            assert remove(world, table).removed_delete_files_count == len(expected)
            assert table.load().live() == before - expected
    expected, before = dangling(table), table.live()
    assert remove(world, table).removed_delete_files_count == len(expected)
    assert table.load().live() == before - expected

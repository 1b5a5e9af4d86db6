"""Two writers delete different rows of one data file, and both commits take effect.

The tests write real Puffin files, and read what the server has merged with PyIceberg.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from frazil.commit.snapshot import vector_rebase
from frazil.values.deletion_vectors import DeletionVector, deletion_vector_blob
from frazil.values.puffin import write_puffin
from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import TableFactory
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    data_exists,
    delete,
    deletes_exist,
    no_new_data,
    no_new_deletes,
    no_new_deletes_for,
    overwrite,
    replace,
)
from tests.commit.finegrained.tables import UNPARTITIONED, Table, new_key
from tests.commit.finegrained.trees import local


@pytest.fixture
def table(new_table: TableFactory) -> Table:
    return new_table(version=3, spec=UNPARTITIONED)


def vectors(table: Table, name: str, *of: tuple[Json, set[int]]) -> list[Json]:
    """Write a Puffin file with a vector for each data file, and return their declarations."""
    blobs = [
        deletion_vector_blob(DeletionVector.from_positions(sorted(rows)), file["file-path"])
        for file, rows in of
    ]
    content, written = write_puffin(blobs, {})
    declared = []
    for (file, rows), blob in zip(of, written, strict=True):
        vector = table.vector(name, file, blob.offset, blob.length, rows=len(rows))
        declared.append(vector | {"file-size-in-bytes": len(content)})
    path = local(declared[0]["file-path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return declared


def vector(table: Table, name: str, file: Json, rows: set[int]) -> Json:
    (declared,) = vectors(table, name, (file, rows))
    return declared


def deleted(table: Table, file: Json) -> set[int]:
    """Return the deleted rows of a data file at the head, as PyIceberg reads them."""
    of_file = [
        entry
        for entry in table.tree().live.values()
        if entry.referenced_data_file == file["file-path"]
    ]
    assert len(of_file) <= 1
    rows: set[int] = set()
    for entry in of_file:
        content = local(entry.file_path).read_bytes()
        assert len(content) == entry.file_size_in_bytes
        read = {
            vector.referenced_data_file: vector
            for vector in deletion_vectors_from_puffin_file(PuffinFile(content))
        }
        rows = set(read[file["file-path"]].to_vector().to_pylist())
        assert entry.record_count == len(rows)
    return rows


def row_delta(*declared: Json, **more: Any) -> Json:
    return overwrite(add_deletes=list(declared), rebase_deletion_vectors=True, **more)


def superseded(table: Table) -> list[str]:
    return [
        table.short(path)
        for made in table.last["committed"]
        for path in made.get("superseded-files", [])
    ]


# --- what is merged -------------------------------------------------------------------------------


def test_vectors_of_different_rows_are_merged(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    assert superseded(table) == []
    snapshot = table.commit(row_delta(vector(table, "second", file, {2, 3}), base=base))
    assert deleted(table, file) == {1, 2, 3}
    assert superseded(table) == ["second"]
    assert table.operation == "delete"
    summary = snapshot["summary"]
    assert summary["added-dvs"] == summary["removed-dvs"] == "1"
    assert summary["added-position-deletes"] == "3"
    assert summary["total-position-deletes"] == "3"


def test_an_unchanged_base_commits_the_declared_vector(table: Table) -> None:
    file = table.data("a", rows=10)
    table.append(file)
    first = vector(table, "first", file, {1})
    base = table.commit(row_delta(first))["snapshot-id"]
    both = vector(table, "both", file, {1, 2})
    table.commit(row_delta(both, remove_deletes=[first], base=base))
    assert "both@4" in table.live()
    assert superseded(table) == []
    assert deleted(table, file) == {1, 2}


def test_rows_of_the_base_do_not_count_as_deleted_twice(table: Table) -> None:
    """The vectors have the row 1 in common, because both writers read a vector with it."""
    file = table.data("a", rows=10)
    table.append(file)
    first = vector(table, "first", file, {1})
    base = table.commit(row_delta(first))["snapshot-id"]
    table.commit(row_delta(vector(table, "left", file, {1, 2}), remove_deletes=[first], base=base))
    table.commit(row_delta(vector(table, "right", file, {1, 3}), remove_deletes=[first], base=base))
    assert deleted(table, file) == {1, 2, 3}


def test_one_row_deleted_twice_is_a_conflict(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1, 2, 3}), base=base))
    again = row_delta(vector(table, "second", file, {2, 3, 4}), base=base)
    refusal = table.refused(again, status=409)
    (conflict,) = refusal.conflicts
    assert conflict["clause"] == "dv-conflict"
    assert conflict["row-count"] == 2
    assert [snapshot["operation"] for snapshot in conflict["snapshots"]] == ["delete"]
    assert [table.short(item["file-path"]) for item in conflict["files"]] == ["first"]
    assert table.short(file["file-path"]) in conflict["message"]


def test_without_the_flag_a_concurrent_vector_is_a_conflict(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    second = vector(table, "second", file, {2})
    assert table.conflict(overwrite(add_deletes=[second], base=base)).clause == "dv-conflict"


def test_only_changed_vectors_of_a_puffin_file_are_merged(table: Table) -> None:
    a, b, c = (table.data(name, rows=10) for name in "abc")
    base = table.append(a, b, c)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", a, {1}), base=base))
    table.commit(row_delta(*vectors(table, "second", (a, {2}), (b, {2}), (c, {2})), base=base))
    assert [deleted(table, file) for file in (a, b, c)] == [{1, 2}, {2}, {2}]
    # The file still has vectors that are live.
    assert superseded(table) == []


def test_rows_are_added_beside_merged_vectors(table: Table) -> None:
    file, new = table.data("a", rows=10), table.data("new", rows=2)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    change = vector(table, "second", file, {2, 3})
    table.commit(row_delta(change, add=[new], base=base))
    assert table.operation == "overwrite"
    assert deleted(table, file) == {1, 2, 3}


def test_a_merged_vector_is_in_the_partition_of_its_data_file(new_table: TableFactory) -> None:
    table = new_table(version=3)
    file = table.data("a", 7, rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    elsewhere = vector(table, "second", file, {2}) | {"partition": [3]}
    table.commit(row_delta(elsewhere, base=base))
    (entry,) = [entry for entry in table.tree().live.values() if not entry.is_data]
    assert entry.partition == (7,)
    assert entry.sequence_number == 3


def test_the_merged_file_lies_beside_the_data(new_table: TableFactory) -> None:
    table = new_table(version=3, spec=UNPARTITIONED)
    path = f"{table.location}/elsewhere"
    table.commit(send.set_properties(write_data_path=path))
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    table.commit(row_delta(vector(table, "second", file, {2}), base=base))
    (entry,) = [entry for entry in table.tree().live.values() if not entry.is_data]
    assert entry.file_path.rpartition("/")[0] == path


def test_updates_of_one_request_are_merged_one_after_another(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(
        row_delta(vector(table, "first", file, {1}), base=base),
        row_delta(vector(table, "second", file, {2}), base=base),
        row_delta(vector(table, "third", file, {3}), base=base),
    )
    assert deleted(table, file) == {1, 2, 3}


def test_a_branch_is_merged_with_its_own_vector(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    table.commit(send.set_ref(base, "side"))
    table.commit(row_delta(vector(table, "second", file, {2}), base=base, branch="side"))
    assert superseded(table) == []
    assert deleted(table, file) == {1}


def test_many_writers_of_one_file_at_once(table: Table) -> None:
    file = table.data("a", rows=100)
    base = table.append(file)["snapshot-id"]
    updates = [
        row_delta(vector(table, f"v{number}", file, {number, number + 50}), base=base)
        for number in range(16)
    ]
    statuses: list[int] = []

    def send_one(update: Json) -> None:
        statuses.append(table.post(update).status)

    threads = [threading.Thread(target=send_one, args=(update,)) for update in updates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 16
    table.load()
    assert deleted(table, file) == {number + more for number in range(16) for more in (0, 50)}


def test_a_repeated_key_names_the_superseded_files_again(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    second, key = row_delta(vector(table, "second", file, {2}), base=base), new_key()
    table.commit(second, key=key)
    assert superseded(table) == ["second"]
    again = table.post(second, key=key)
    assert again.status == 200
    assert again.body["committed"] == table.last["committed"]


# --- the data file --------------------------------------------------------------------------------


def test_vectors_of_a_deleted_file_are_dropped(table: Table) -> None:
    a, b = table.data("a", rows=10), table.data("b", rows=10)
    base = table.append(a, b)["snapshot-id"]
    table.commit(delete(a))
    both = vectors(table, "both", (a, {1}), (b, {2}))
    table.commit(row_delta(*both, base=base))
    assert table.live() == {"b", f"both@{both[1]['content-offset']}"}
    assert superseded(table) == []
    table.commit(row_delta(vector(table, "only", a, {1}), base=base))
    assert superseded(table) == ["only"]
    assert deleted(table, b) == {2}


def test_new_rows_need_the_data_file_of_their_vector(table: Table) -> None:
    a, b = table.data("a", rows=10), table.data("b", rows=10)
    base = table.append(a)["snapshot-id"]
    table.commit(delete(a))
    change = row_delta(vector(table, "v", a, {1}), add=[b], base=base)
    conflict = table.conflict(change)
    assert conflict.clause == "required-data-files"
    assert conflict.files == {"a"}


@pytest.mark.parametrize("action", ["replace", "overwrite"])
def test_vectors_of_a_rewritten_file_are_a_conflict(table: Table, action: str) -> None:
    a, b = table.data("a", rows=10), table.data("b", rows=10)
    base = table.append(a)["snapshot-id"]
    table.commit({"action": action} | send.replace(add=[b], remove=[a], action=action))
    assert table.conflict(row_delta(vector(table, "v", a, {1}), base=base)).files == {"a"}


def test_a_file_that_was_never_there_is_a_conflict(table: Table) -> None:
    a = table.data("a", rows=10)
    base = table.append(a)["snapshot-id"]
    unknown = table.data("unknown", rows=10)
    change = row_delta(vector(table, "v", unknown, {1}), base=base)
    assert table.conflict(change).files == {"unknown"}


# --- clauses --------------------------------------------------------------------------------------


def test_vectors_do_not_count_as_added_deletes(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    first = vector(table, "first", file, {1})
    table.commit(row_delta(first, base=base))
    clauses = [no_new_deletes(TRUE), data_exists(file, allowed=["DELETE"])]
    second = vector(table, "second", file, {2})
    refused = overwrite(add_deletes=[second], validations=clauses, base=base)
    assert {item.clause for item in table.conflicts(refused)} >= {"not-allowed-added-delete-files"}
    table.commit(row_delta(second, validations=clauses, base=base))
    assert deleted(table, file) == {1, 2}


def test_equality_deletes_still_count(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(overwrite(add_deletes=[table.equality_deletes("eq")]))
    change = row_delta(vector(table, "v", file, {1}), validations=[no_new_deletes(TRUE)], base=base)
    assert table.conflict(change).files == {"eq"}


def test_added_data_still_counts(table: Table) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.append(table.data("b"))
    change = row_delta(vector(table, "v", file, {1}), validations=[no_new_data(TRUE)], base=base)
    assert table.conflict(change).clause == "not-allowed-added-data-files"


def test_required_bases_may_be_gone(table: Table) -> None:
    file, other = table.data("a", rows=10), table.data("b", rows=10)
    table.append(file, other)
    first, foreign = vector(table, "first", file, {1}), vector(table, "foreign", other, {1})
    base = table.commit(row_delta(first, foreign))["snapshot-id"]
    table.commit(row_delta(vector(table, "l", file, {1, 2}), remove_deletes=[first], base=base))
    mine = vector(table, "r", file, {1, 3})
    clauses = [deletes_exist(first), no_new_deletes_for(other)]
    table.commit(row_delta(mine, remove_deletes=[first], validations=clauses, base=base))
    assert deleted(table, file) == {1, 2, 3}
    table.delete(remove_deletes=[foreign])
    clauses = [deletes_exist(foreign)]
    change = row_delta(
        vector(table, "s", file, {1, 4}), remove_deletes=[first], validations=clauses, base=base
    )
    assert table.conflict(change).clause == "required-delete-files"


def test_a_removed_vector_of_another_file_must_be_live(table: Table) -> None:
    file, other = table.data("a", rows=10), table.data("b", rows=10)
    table.append(file, other)
    foreign = vector(table, "foreign", other, {1})
    base = table.commit(row_delta(foreign))["snapshot-id"]
    table.delete(remove_deletes=[foreign])
    change = row_delta(vector(table, "v", file, {1}), remove_deletes=[foreign], base=base)
    assert table.conflict(change).clause == "removed-file-not-live"


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_older_formats_have_no_vectors(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version, spec=UNPARTITIONED)
    message = table.bad(overwrite(add=[table.data("a")], rebase_deletion_vectors=True))
    assert "rebase-deletion-vectors" in message
    assert f"format version {version}" in message


def test_replaced_partitions_have_no_vectors_to_merge(table: Table) -> None:
    update = send.replace_partitions(table.data("a"), rebase_deletion_vectors=True)
    assert "rebase-deletion-vectors" in table.bad(update)


@pytest.mark.parametrize("action", ["append", "delete"])
def test_other_actions_do_not_know_the_flag(table: Table, action: str) -> None:
    file = table.data("a")
    update = send.append(file) if action == "append" else send.delete(file)
    assert "rebase" in table.bad(update | {"rebase-deletion-vectors": True})


@pytest.mark.parametrize("harm", ["missing", "damaged", "record-count", "size", "offset"])
def test_a_bad_declared_vector_is_the_writers_fault(table: Table, harm: str) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    second = vector(table, "second", file, {2, 3})
    path = local(second["file-path"])
    match harm:
        case "missing":
            path.unlink()
        case "damaged":
            content = bytearray(path.read_bytes())
            content[second["content-offset"] + 12] ^= 0xFF
            path.write_bytes(content)
        case "record-count":
            second["record-count"] = 3
        case "size":
            second["content-size-in-bytes"] -= 1
        case "offset":
            second["content-offset"] += 1
    message = table.bad(row_delta(second, base=base))
    assert "updates[0].add-delete-files" in message
    assert second["file-path"] in message


@pytest.mark.parametrize("whose", ["base", "current"])
@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_vector_of_the_table_that_cannot_be_read_is_a_conflict(
    table: Table, whose: str, harm: str
) -> None:
    file = table.data("a", rows=10)
    table.append(file)
    first = vector(table, "first", file, {1})
    base = table.commit(row_delta(first))["snapshot-id"]
    current = vector(table, "current", file, {1, 2})
    table.commit(row_delta(current, remove_deletes=[first], base=base))
    mine = vector(table, "mine", file, {1, 3})
    path = local((first if whose == "base" else current)["file-path"])
    if harm == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[16] ^= 0xFF
        path.write_bytes(content)
    conflict = table.conflict(row_delta(mine, remove_deletes=[first]))
    assert conflict.clause == "dv-conflict"
    assert f"{path.name}" in conflict.message


def test_vectors_above_the_limit_are_not_read(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = table.data("a", rows=10)
    base = table.append(file)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", file, {1}), base=base))
    monkeypatch.setattr(vector_rebase, "MAX_MERGED_BYTES", 10)
    conflict = table.conflict(row_delta(vector(table, "second", file, {2}), base=base))
    assert conflict.clause == "dv-conflict"
    assert "above the limit of 10" in conflict.message


def test_a_refused_merge_leaves_no_file(table: Table) -> None:
    a, b = table.data("a", rows=10), table.data("b", rows=10)
    base = table.append(a, b)["snapshot-id"]
    table.commit(row_delta(vector(table, "first", a, {1}), base=base))
    before = files_below(table)
    second = vector(table, "second", a, {2})
    table.conflicts(row_delta(second, remove=[table.data("gone")], base=base))
    assert files_below(table) == before | {"data/second.puffin"}


def files_below(table: Table) -> set[str]:
    folder = local(table.location)
    return {str(Path(path).relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- replace --------------------------------------------------------------------------------------


def test_a_rewrite_brings_the_vector_of_its_new_file(table: Table) -> None:
    """A row was deleted while a compaction ran: it carries the delete over to its new file."""
    old = table.data("old", rows=10)
    base = table.append(old)["snapshot-id"]
    late = vector(table, "late", old, {4})
    head = table.commit(row_delta(late, base=base))["snapshot-id"]
    new = table.data("new", rows=10)
    carried = vector(table, "carried", new, {4})
    clauses = [no_new_deletes_for(old, base=head), data_exists(old)]
    update = replace(add=[new], add_deletes=[carried], remove=[old], validations=clauses, base=base)
    table.commit(update)
    assert table.live() == {"new", "carried@4"}
    assert deleted(table, new) == {4}


def test_a_rewrite_may_not_bring_deleted_rows_back(table: Table) -> None:
    old = table.data("old", rows=10)
    table.append(old)
    table.commit(row_delta(vector(table, "v", old, {4})))
    new = table.data("new", rows=10)
    assert table.conflict(replace(add=[new], remove=[old])).clause == "replace-adds-rows"
    table.commit(replace(add=[table.data("fewer", rows=9)], remove=[old]))
    assert table.live() == {"fewer"}


def test_a_rewrite_of_version_2_brings_position_deletes(new_table: TableFactory) -> None:
    table = new_table(version=2, spec=UNPARTITIONED)
    old, new = table.data("old", rows=10), table.data("new", rows=10)
    table.append(old)
    carried = table.position_deletes("carried", new, refer=True, rows=2)
    table.commit(replace(add=[new], add_deletes=[carried], remove=[old]))
    assert table.live() == {"new", "carried"}
    loose = table.position_deletes("loose", table.data("other"), refer=True)
    assert "add-delete-files" in table.bad(
        replace(add=[table.data("x")], add_deletes=[loose], remove=[new])
    )


def test_rewritten_vectors_are_merged_too(table: Table) -> None:
    """A rewrite of vectors, such as into one Puffin file, loses no concurrent delete."""
    file = table.data("a", rows=10)
    table.append(file)
    first = vector(table, "first", file, {1})
    base = table.commit(row_delta(first))["snapshot-id"]
    table.commit(row_delta(vector(table, "late", file, {1, 2}), remove_deletes=[first], base=base))
    again = vector(table, "again", file, {1})
    table.commit(replace(add_deletes=[again], remove_deletes=[first], rebase_deletion_vectors=True))
    assert table.operation == "replace"
    assert deleted(table, file) == {1, 2}
    assert superseded(table) == ["again"]

"""Appends: based on the cases of Java's TestFastAppend and TestMergeAppend."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, TableFactory
from tests.commit.finegrained.requests import Json, append, no_new_data, set_ref
from tests.commit.finegrained.tables import BUCKETS, UNPARTITIONED, Table
from tests.commit.finegrained.trees import ADDED, EXISTING


def wider_spec(table: Table, branch_field: str = "id", transform: str = "identity") -> int:
    """Add another partition column and return the id of the new spec."""
    fields = [
        *BUCKETS["fields"],
        {"source-id": 1, "field-id": 1001, "name": branch_field + "_part", "transform": transform},
    ]
    table.commit(
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": fields}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    return int(table.metadata["default-spec-id"])


def manifests(table: Table) -> list[Json]:
    return [dict(manifest) for manifest in table.tree().manifests]


# --- the first snapshot ---------------------------------------------------------------------------


@ALL_VERSIONS
def test_the_first_append_of_a_table(table: Table) -> None:
    snapshot = table.append(table.data("a", 0), table.data("b", 1))
    assert table.live() == {"a", "b"}
    assert "parent-snapshot-id" not in snapshot
    assert table.operation == "append"
    assert len(manifests(table)) == 1
    number = 0 if table.version == 1 else 1
    assert table.metadata.get("last-sequence-number", 0) == number
    assert table.sequence_numbers() == {"a": number, "b": number}
    assert {entry.status for entry in table.entries().values()} == {ADDED}


@ALL_VERSIONS
def test_the_summary_of_an_append(table: Table) -> None:
    table.append(table.data("a", 0, rows=3, size=100), table.data("b", 1, rows=4, size=50))
    table.append(table.data("c", 1, rows=5, size=25))
    summary = {k: v for k, v in table.summary().items() if not k.startswith("engine")}
    assert summary == {
        "operation": "append",
        "added-data-files": "1",
        "added-records": "5",
        "added-files-size": "25",
        "changed-partition-count": "1",
        "total-data-files": "3",
        "total-records": "12",
        "total-files-size": "175",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
        "manifests-created": "1",
        "manifests-kept": "1",
        "manifests-replaced": "0",
    }


@ALL_VERSIONS
def test_many_files_in_one_append(table: Table) -> None:
    files = [table.data(f"f{number}", number % 2) for number in range(400)]
    table.append(*files)
    assert table.live() == {f"f{number}" for number in range(400)}
    assert table.summary()["changed-partition-count"] == "2"


@ALL_VERSIONS
def test_files_keep_the_order_in_which_they_were_sent(table: Table) -> None:
    names = [f"f{number}" for number in (5, 3, 9, 1, 7)]
    table.append(*(table.data(name, 0) for name in names))
    assert list(table.entries()) == names


@ALL_VERSIONS
def test_an_append_goes_on_from_the_head(table: Table) -> None:
    first = table.append(table.data("a", 0))
    second = table.append(table.data("b", 1))
    assert second["parent-snapshot-id"] == first["snapshot-id"]
    assert table.live() == {"a", "b"}
    numbers = {"a": 0, "b": 0} if table.version == 1 else {"a": 1, "b": 2}
    assert table.sequence_numbers() == numbers
    ids = {name: entry.snapshot_id for name, entry in table.entries().items()}
    assert ids == {"a": first["snapshot-id"], "b": second["snapshot-id"]}


@ALL_VERSIONS
def test_an_append_reuses_the_manifests_that_are_there(table: Table) -> None:
    table.append(table.data("a", 0))
    (old,) = manifests(table)
    table.append(table.data("b", 1))
    paths = [manifest["manifest_path"] for manifest in manifests(table)]
    assert len(paths) == 2
    assert old["manifest_path"] in paths


@ALL_VERSIONS
def test_all_that_a_file_declares_is_in_the_manifest(table: Table) -> None:
    file = table.data(
        "a",
        3,
        rows=7,
        size=2**33,
        column_sizes={"keys": [1, 2], "values": [40, 50]},
        value_counts={"keys": [1, 2], "values": [7, 7]},
        null_value_counts={"keys": [1, 2], "values": [0, 2]},
        nan_value_counts={"keys": [1], "values": [0]},
        lower_bounds={"keys": [1, 2], "values": [-5, "abc"]},
        upper_bounds={"keys": [1, 2], "values": [2**40, "äb"]},
        split_offsets=[4, 100],
        key_metadata="c0ffee",
    )
    table.append(file)
    stored: Any = table.entries()["a"].data_file
    assert stored["file_path"] == file["file-path"]
    assert stored["file_format"].upper() == "PARQUET"
    assert stored["record_count"] == 7
    assert stored["file_size_in_bytes"] == 2**33
    assert list(stored["partition"].values()) == [3]

    def pairs(name: str) -> dict[int, Any]:
        return {pair["key"]: pair["value"] for pair in stored[name]}

    assert pairs("column_sizes") == {1: 40, 2: 50}
    assert pairs("value_counts") == {1: 7, 2: 7}
    assert pairs("null_value_counts") == {1: 0, 2: 2}
    assert pairs("nan_value_counts") == {1: 0}
    assert pairs("lower_bounds") == {1: (-5).to_bytes(8, "little", signed=True), 2: b"abc"}
    assert pairs("upper_bounds") == {1: (2**40).to_bytes(8, "little"), 2: "äb".encode()}
    assert stored["split_offsets"] == [4, 100]
    assert stored["key_metadata"] == bytes.fromhex("c0ffee")


@ALL_VERSIONS
def test_bounds_in_hex_are_only_read_when_the_file_says_so(table: Table) -> None:
    bounds: Any = {"lower_bounds": {"keys": [2], "values": ["6162"]}}
    table.append(
        table.data("text", 0, **bounds), table.data("hex", 0, bounds_encoding="hex", **bounds)
    )
    stored = {name: entry.data_file["lower_bounds"] for name, entry in table.entries().items()}
    assert stored["text"] == [{"key": 2, "value": b"6162"}]
    assert stored["hex"] == [{"key": 2, "value": b"ab"}]


@ALL_VERSIONS
def test_a_partition_may_be_an_object_keyed_by_field_id(table: Table) -> None:
    table.append(table.data("a") | {"partition": {"1000": 7}})
    assert table.entries()["a"].partition == (7,)


@ALL_VERSIONS
def test_enums_in_upper_case_are_javas_older_ones(table: Table) -> None:
    table.append(table.data("a", 0) | {"content": "DATA", "file-format": "PARQUET"})
    assert table.live() == {"a"}


# --- specs ----------------------------------------------------------------------------------------


@ALL_VERSIONS
def test_files_of_two_specs_are_in_two_manifests(table: Table) -> None:
    spec_id = wider_spec(table)
    table.append(table.data("a", 0), table.data("b", 0, 0, spec_id=spec_id))
    assert table.live() == {"a", "b"}
    assert sorted(m["partition_spec_id"] for m in manifests(table)) == [0, spec_id]
    entries = table.entries()
    assert (entries["a"].partition, entries["b"].partition) == ((0,), (0, 0))


@ALL_VERSIONS
def test_a_changed_spec_keeps_the_manifests_of_the_old_one(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1))
    (old,) = manifests(table)
    spec_id = wider_spec(table, transform="bucket[4]")
    table.append(table.data("y", 2, 3, spec_id=spec_id))
    by_path = {manifest["manifest_path"]: manifest for manifest in manifests(table)}
    assert len(by_path) == 2
    assert by_path[old["manifest_path"]]["partition_spec_id"] == 0


# --- summaries ------------------------------------------------------------------------------------


def partition_keys(table: Table) -> dict[str, str]:
    return {k: v for k, v in table.summary().items() if k.startswith("partitions.")}


@ALL_VERSIONS
def test_partitions_are_not_in_the_summary_by_default(table: Table) -> None:
    table.append(table.data("a", 0))
    assert partition_keys(table) == {}
    assert "partition-summaries-included" not in table.summary()
    assert table.summary()["changed-partition-count"] == "1"


@ALL_VERSIONS
def test_partitions_are_in_the_summary_up_to_the_limit(table: Table) -> None:
    table.commit(send.set_properties(write_summary_partition__limit="1"))
    table.append(table.data("a", 0))
    assert table.summary()["partition-summaries-included"] == "true"
    assert partition_keys(table) == {
        "partitions.data_bucket=0": "added-data-files=1,added-records=1,added-files-size=10"
    }
    table.append(table.data("b", 0), table.data("c", 1))
    assert partition_keys(table) == {}
    assert "partition-summaries-included" not in table.summary()
    assert table.summary()["changed-partition-count"] == "2"


def test_an_unpartitioned_table_has_no_partition_summaries(new_table: TableFactory) -> None:
    table = new_table(spec=UNPARTITIONED, properties={"write.summary.partition-limit": "1"})
    table.append(table.data("a"))
    assert partition_keys(table) == {}


@ALL_VERSIONS
def test_a_clients_own_summary_is_kept(table: Table) -> None:
    table.append(table.data("a", 0), summary={"job": "nightly", "wap.id": "w1"})
    assert table.summary().items() >= {"job": "nightly", "wap.id": "w1"}.items()


# --- branches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_append_to_a_branch_that_is_there(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version)
    first = table.append(table.data("a", 0))
    table.commit(set_ref(first["snapshot-id"], "branch"))
    second = table.append(table.data("b", 1), branch="branch")
    assert table.metadata["current-snapshot-id"] == first["snapshot-id"]
    assert table.metadata["refs"]["branch"]["snapshot-id"] == second["snapshot-id"]
    assert table.live(table.head("branch")) == {"a", "b"}
    assert table.live(table.head("main")) == {"a"}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_branch_that_is_not_there_begins_at_main(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version)
    first = table.append(table.data("a", 0))
    second = table.append(table.data("b", 1), branch="branch")
    assert table.metadata["current-snapshot-id"] == first["snapshot-id"]
    assert second["parent-snapshot-id"] == first["snapshot-id"]
    assert table.live(table.head("branch")) == {"a", "b"}
    # Java starts the totals of a new branch at 0.
    assert second["summary"]["total-data-files"] == "2"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_branch_of_an_empty_table(new_table: TableFactory, version: int) -> None:
    table = new_table(version=version)
    snapshot = table.append(table.data("b", 1), branch="branch")
    assert table.metadata.get("current-snapshot-id") in (None, -1)
    assert list(table.metadata["refs"]) == ["branch"]
    assert "parent-snapshot-id" not in snapshot


def test_a_branch_without_a_name_is_refused(table: Table) -> None:
    assert "branch" in table.bad(append(table.data("a", 0), branch=""))


def test_a_tag_is_no_target(table: Table) -> None:
    first = table.append(table.data("a", 0))
    table.commit(set_ref(first["snapshot-id"], "some-tag", "tag"))
    message = table.bad(append(table.data("b", 0), branch="some-tag"))
    assert "some-tag" in message
    assert "tag" in message.replace("some-tag", "")


def test_branches_do_not_see_each_other(table: Table) -> None:
    table.append(table.data("a", 0))
    table.append(table.data("b", 0), branch="left")
    table.append(table.data("c", 0), branch="right")
    table.append(table.data("d", 0))
    heads = {name: table.live(table.head(name)) for name in ("main", "left", "right")}
    assert heads == {"main": {"a", "d"}, "left": {"a", "b"}, "right": {"a", "c"}}
    numbers = [s["sequence-number"] for s in table.metadata["snapshots"]]
    assert sorted(numbers) == [1, 2, 3, 4]


# --- what an append refuses -----------------------------------------------------------------------


@ALL_VERSIONS
def test_a_path_that_is_live_is_refused(table: Table) -> None:
    snapshot = table.append(table.data("a", 0), table.data("b", 0))
    conflict = table.conflict(append(table.data("b", 1), table.data("c", 1)))
    assert conflict.clause == "duplicate-file"
    assert conflict.files == {"b"}
    assert conflict.validation is None
    assert conflict.update == 0
    assert set(conflict.snapshots) <= {snapshot["snapshot-id"]}


@ALL_VERSIONS
def test_a_path_that_was_removed_may_come_back(table: Table) -> None:
    table.append(table.data("a", 0))
    table.delete(table.data_path("a"))
    table.append(table.data("a", 0))
    assert table.live() == {"a"}


def test_duplicates_are_judged_on_the_branch(table: Table) -> None:
    table.append(table.data("a", 0), branch="one")
    table.append(table.data("a", 0), branch="two")
    assert table.conflict(append(table.data("a", 0), branch="one")).clause == "duplicate-file"


def test_the_property_lets_duplicates_in(new_table: TableFactory) -> None:
    table = new_table(properties={"frazil.commit.reject-duplicate-files": "false"})
    table.append(table.data("a", 0))
    answer = table.post(append(table.data("a", 0)))
    assert answer.status == 200, answer.body
    assert answer.body["committed"][0]["operation"] == "append"


@ALL_VERSIONS
def test_an_append_with_a_clause_is_judged(table: Table) -> None:
    first = table.append(table.data("a", 0))
    second = table.append(table.data("b", 0))
    update = append(
        table.data("c", 0), base=first["snapshot-id"], validations=[no_new_data(send.TRUE)]
    )
    conflict = table.conflict(update)
    assert conflict.clause == "not-allowed-added-data-files"
    assert (conflict.files, conflict.snapshots) == ({"b"}, [second["snapshot-id"]])
    assert conflict.validation == 0


@ALL_VERSIONS
def test_appends_never_conflict_by_themselves(table: Table) -> None:
    """An append without clauses is accepted, however old its base is."""
    first = table.append(table.data("f0", 0))
    for number in range(1, 6):
        table.append(table.data(f"f{number}", 0), base=first["snapshot-id"])
    assert table.live() == {f"f{number}" for number in range(6)}


# --- merging --------------------------------------------------------------------------------------


@ALL_VERSIONS
def test_small_manifests_are_merged_from_the_minimum_count_on(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="4"))
    snapshots = [table.append(table.data(f"f{number}", number)) for number in range(3)]
    assert len(manifests(table)) == 3
    snapshots.append(table.append(table.data("f3", 3)))
    (merged,) = manifests(table)
    assert (merged["added_files_count"], merged["existing_files_count"]) == (1, 3)
    entries = table.entries()
    assert {name: entry.status for name, entry in entries.items()} == {
        "f0": EXISTING,
        "f1": EXISTING,
        "f2": EXISTING,
        "f3": ADDED,
    }
    for number, snapshot in enumerate(snapshots):
        entry = entries[f"f{number}"]
        assert entry.snapshot_id == snapshot["snapshot-id"]
        wanted = 0 if table.version == 1 else number + 1
        assert (entry.sequence_number, entry.file_sequence_number) == (wanted, wanted)
    summary = table.summary()
    assert (summary["manifests-created"], summary["manifests-replaced"]) == ("1", "3")


@ALL_VERSIONS
def test_merging_drops_what_was_removed_before(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="2"))
    table.append(table.data("a", 0), table.data("b", 1))
    table.delete(table.data_path("a"))
    table.append(table.data("c", 2))
    (merged,) = manifests(table)
    assert merged["deleted_files_count"] == 0
    assert table.live() == {"b", "c"}
    assert {entry.file_path for entry in table.tree().entries} == {
        table.data_path("b"),
        table.data_path("c"),
    }


@ALL_VERSIONS
def test_merging_can_be_switched_off(table: Table) -> None:
    table.commit(
        send.set_properties(
            commit_manifest_min__count__to__merge="2", commit_manifest__merge_enabled="false"
        )
    )
    for number in range(5):
        table.append(table.data(f"f{number}", 0))
    assert len(manifests(table)) == 5


@ALL_VERSIONS
def test_manifests_at_the_target_size_are_left_alone(table: Table) -> None:
    table.commit(
        send.set_properties(
            commit_manifest_min__count__to__merge="2", commit_manifest_target__size__bytes="10"
        )
    )
    table.append(table.data("a", 0), table.data("b", 1))
    (old,) = manifests(table)
    table.append(table.data("c", 2), table.data("d", 3))
    paths = [manifest["manifest_path"] for manifest in manifests(table)]
    assert old["manifest_path"] in paths
    assert len(paths) >= 2


@ALL_VERSIONS
def test_manifests_of_two_specs_are_merged_apart(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="2"))
    table.append(table.data("a", 0))
    spec_id = wider_spec(table, transform="bucket[4]")
    table.append(table.data("b", 0, 1, spec_id=spec_id))
    table.append(table.data("c", 0), table.data("d", 0, 2, spec_id=spec_id))
    # A commit merges at most one bin; Java would merge one of each spec.
    assert len(manifests(table)) <= 3
    table.append(table.data("e", 0), table.data("f", 0, 2, spec_id=spec_id))
    assert table.live() == {"a", "b", "c", "d", "e", "f"}
    assert {m["partition_spec_id"] for m in manifests(table)} == {0, spec_id}

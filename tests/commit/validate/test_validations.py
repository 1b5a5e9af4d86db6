"""The validation clauses on real trees: the snapshots, manifests and files that conflict.

The cases are those of Java's TestRowDelta, TestOverwriteWithValidation, TestReplacePartitions
and TestRewriteFiles that concern checks, and cases that Frazil decides differently.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from frazil.wire.errors import BadRequest, ValidationError
from frazil.wire.rest_updates import AddPartitionSpec, SetDefaultSpec
from tests.commit.branches import (
    BY_SCORE,
    UNPARTITIONED,
    Branches,
    clause,
    data,
    equality_delete,
    ids_from,
    paths,
    position_delete,
    region,
    snapshots,
    vector,
)

ADDED_DATA = "not-allowed-added-data-files"
ADDED_DELETES = "not-allowed-added-delete-files"
NEW_DELETES = "not-allowed-new-deletes-for-data-files"
REQUIRED_DATA = "required-data-files"
REQUIRED_DELETES = "required-delete-files"

versions = pytest.mark.parametrize("version", [1, 2, 3], ids=["v1", "v2", "v3"])
with_deletes = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


def table(version: int = 2, **kept: Any) -> tuple[Branches, int]:
    """Return a table with two files in two partitions, and the base that writers start from."""
    branches = Branches.create(version, **kept)
    base = branches.commit(
        "append", add=[data("eu-0", "eu", ids=(0, 9)), data("us-0", "us", ids=(10, 19))]
    )
    return branches, base


# --- not-allowed-added-data-files --------------------------------------------------------------


@versions
@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_a_data_file_added_since_the_base_is_a_conflict(version: int, operation: str) -> None:
    branches, base = table(version)
    assert branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base) == []
    added = branches.commit(operation, add=[data("eu-1", "eu")])
    (found,) = branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base)
    assert found["clause"] == ADDED_DATA
    assert (found["update"], found["validation"], found["file-count"]) == (0, 0, 1)
    assert paths(found) == ["eu-1"]
    assert found["snapshots"] == [{"snapshot-id": added, "operation": operation}]
    assert found["message"].startswith(
        "Found conflicting files that can contain records matching true: eu-1"
    )
    assert f"snapshot {added} ({operation})" in found["message"]


@versions
@pytest.mark.parametrize("operation", ["replace", "delete", None])
def test_files_of_other_operations_are_not_new_data(version: int, operation: str | None) -> None:
    branches, base = table(version)
    branches.commit(operation, add=[data("eu-1", "eu")], remove=["eu-0"])
    assert branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base) == []


@versions
def test_the_filter_prunes_by_partition_and_by_metrics(version: int) -> None:
    branches, base = table(version)
    branches.commit("append", add=[data("eu-1", "eu", ids=(20, 29)), data("us-1", "us")])
    (found,) = branches.conflicts(clause(ADDED_DATA, filter=region("eu")), base_snapshot_id=base)
    assert paths(found) == ["eu-1"]
    assert (
        branches.conflicts(clause(ADDED_DATA, filter=region("asia")), base_snapshot_id=base) == []
    )
    both = {"type": "and", "left": region("eu"), "right": ids_from(30)}
    assert branches.conflicts(clause(ADDED_DATA, filter=both), base_snapshot_id=base) == []
    # A file without metrics may contain any value.
    (found,) = branches.conflicts(clause(ADDED_DATA, filter=ids_from(30)), base_snapshot_id=base)
    assert paths(found) == ["us-1"]


@versions
def test_files_that_are_merely_carried_over_are_not_new(version: int) -> None:
    branches, base = table(version)
    branches.commit("overwrite", add=[data("eu-1", "eu")], remove=["us-0"], merge=True)
    added, removed = branches.conflicts(
        clause(ADDED_DATA), clause(REQUIRED_DATA), base_snapshot_id=base
    )
    assert (paths(added), paths(removed)) == (["eu-1"], ["us-0"])


def test_without_a_base_the_whole_history_counts() -> None:
    branches, base = table()
    second = branches.commit("append", add=[data("eu-1", "eu")])
    (found,) = branches.conflicts(clause(ADDED_DATA))
    assert paths(found) == ["eu-0", "eu-1", "us-0"]
    assert snapshots(found) == [base, second]


def test_the_base_of_a_clause_wins_over_that_of_the_update() -> None:
    branches, base = table()
    second = branches.commit("append", add=[data("eu-1", "eu")])
    assert branches.conflicts(clause(ADDED_DATA), base_snapshot_id=second) == []
    (found,) = branches.conflicts(
        clause(ADDED_DATA, base_snapshot_id=base), base_snapshot_id=second
    )
    assert paths(found) == ["eu-1"]


@versions
def test_another_branch_does_not_count(version: int) -> None:
    branches, base = table(version)
    branches.commit("append", add=[data("eu-1", "eu")], branch="audit")
    branches.commit("append", add=[data("us-1", "us")])
    (main,) = branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base)
    (audit,) = branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base, branch="audit")
    assert (paths(main), paths(audit)) == (["us-1"], ["eu-1"])


def test_snapshots_of_the_same_request_do_not_count() -> None:
    branches, base = table()
    before = branches.head()
    branches.commit("append", add=[data("eu-1", "eu")])
    assert branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base, head=before) == []


def test_a_table_without_snapshots_has_no_conflicts() -> None:
    branches = Branches.create(2)
    every = [clause(ADDED_DATA), clause(ADDED_DELETES), clause(REQUIRED_DATA)]
    assert branches.conflicts(*every) == []


def test_only_manifests_of_new_snapshots_that_may_match_are_read() -> None:
    branches, _ = table()
    for number in range(20):
        branches.commit("append", add=[data(f"old-{number}", "eu")])
    base = branches.commit("append", add=[data("last", "eu")])
    branches.commit("append", add=[data("eu-1", "eu")])
    branches.commit("append", add=[data("us-1", "us")])
    branches.store.read.clear()
    branches.conflicts(clause(ADDED_DATA, filter=region("us")), base_snapshot_id=base)
    # The two manifest lists, and the one manifest that may contain the partition.
    assert len(branches.store.read) == 3


def test_a_long_history_is_read_whole_and_in_order() -> None:
    branches, base = table()
    added = [branches.commit("append", add=[data(f"eu-{n}", "eu")]) for n in range(1, 81)]
    (found,) = branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base)
    assert [snapshot["snapshot-id"] for snapshot in found["snapshots"]] == added[::-1]


# --- not-allowed-added-delete-files -------------------------------------------------------------


def any_delete(version: int, path: str = "d-1", partition: str = "eu") -> Any:
    if version == 2:
        return position_delete(path, partition)
    return vector(path, f"{partition}-0", partition)


@with_deletes
@pytest.mark.parametrize("operation", ["overwrite", "delete"])
def test_a_delete_file_added_since_the_base_is_a_conflict(version: int, operation: str) -> None:
    branches, base = table(version)
    added = branches.commit(operation, add=[any_delete(version)])
    (found,) = branches.conflicts(clause(ADDED_DELETES), base_snapshot_id=base)
    assert (paths(found), snapshots(found)) == (["d-1"], [added])
    assert found["message"].startswith(
        "Found new conflicting delete files that can apply to records matching true: d-1"
    )
    in_eu = clause(ADDED_DELETES, filter=region("eu"))
    assert len(branches.conflicts(in_eu, base_snapshot_id=base)) == 1
    in_us = clause(ADDED_DELETES, filter=region("us"))
    assert branches.conflicts(in_us, base_snapshot_id=base) == []
    assert branches.conflicts(in_eu, base_snapshot_id=added) == []


@with_deletes
@pytest.mark.parametrize("operation", ["replace", "append"])
def test_deletes_of_a_replace_are_not_new(version: int, operation: str) -> None:
    branches, base = table(version)
    branches.commit(operation, add=[any_delete(version)])
    assert branches.conflicts(clause(ADDED_DELETES), base_snapshot_id=base) == []


@with_deletes
def test_a_delete_file_that_is_gone_again_is_still_seen(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", add=[any_delete(version)])
    branches.commit("replace", remove=["d-1" if version == 2 else ("d-1", 4)])
    (found,) = branches.conflicts(clause(ADDED_DELETES), base_snapshot_id=base)
    assert paths(found) == ["d-1"]


@with_deletes
def test_older_delete_files_in_a_rewritten_manifest_are_not_new(version: int) -> None:
    branches, _ = table(version)
    base = branches.commit("delete", add=[any_delete(version, "d-0", "us")])
    new = branches.commit("delete", add=[any_delete(version)], merge=True)
    again = branches.commit("overwrite", add=[data("eu-2", "eu")], merge=True)
    (found,) = branches.conflicts(clause(ADDED_DELETES), base_snapshot_id=base)
    # The second snapshot carries the file over, but the conflict still names the first snapshot.
    assert (paths(found), found["file-count"], snapshots(found)) == (["d-1"], 1, [new])
    assert again != new


def test_equality_deletes_are_pruned_by_their_own_metrics() -> None:
    branches, base = table()
    branches.commit("delete", add=[equality_delete("e-1", "eu", ids=(0, 5))])
    assert len(branches.conflicts(clause(ADDED_DELETES, filter=ids_from(5)), base_snapshot_id=base))
    assert (
        branches.conflicts(clause(ADDED_DELETES, filter=ids_from(6)), base_snapshot_id=base) == []
    )


def test_delete_clauses_check_nothing_in_version_1() -> None:
    branches, base = table(1)
    branches.commit("delete", remove=["eu-0"])
    branches.commit("append", add=[data("eu-1", "eu")])
    branches.expire(base)
    for checked in (clause(ADDED_DELETES), clause(NEW_DELETES, file_paths=["eu-0"])):
        assert branches.conflicts(checked) == []


# --- not-allowed-new-deletes-for-data-files -----------------------------------------------------


@with_deletes
def test_a_delete_that_refers_to_the_data_file(version: int) -> None:
    branches, base = table(version)
    of_eu = position_delete("d-1", "eu", of="eu-0") if version == 2 else vector("d-1", "eu-0", "eu")
    added = branches.commit("delete", add=[of_eu])
    (found,) = branches.conflicts(
        clause(NEW_DELETES, file_paths=["us-0", "eu-0"]), base_snapshot_id=base
    )
    assert found["message"].startswith(
        "Cannot commit, found new delete for replaced data file: eu-0."
    )
    assert (paths(found), snapshots(found)) == (["d-1"], [added])
    if version == 3:
        assert found["files"] == [{"file-path": "d-1", "content-offset": 4}]
    others = clause(NEW_DELETES, file_paths=["us-0"])
    assert branches.conflicts(others, base_snapshot_id=base) == []
    assert branches.conflicts(clause(NEW_DELETES, file_paths=[]), base_snapshot_id=base) == []


def test_a_delete_without_a_reference_counts_against_its_whole_partition() -> None:
    branches, base = table()
    branches.commit("delete", add=[position_delete("d-1", "eu")])
    eu, us = clause(NEW_DELETES, file_paths=["eu-0"]), clause(NEW_DELETES, file_paths=["us-0"])
    assert len(branches.conflicts(eu, base_snapshot_id=base)) == 1
    assert branches.conflicts(us, base_snapshot_id=base) == []
    # The partition of a removed file is known from the base.
    branches.commit("overwrite", remove=["eu-0"])
    assert len(branches.conflicts(eu, base_snapshot_id=base)) == 1


@with_deletes
def test_equality_deletes_of_the_partition_whose_values_may_occur(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", add=[equality_delete("e-1", "eu", ids=(5, 6))])
    branches.commit("delete", add=[equality_delete("e-2", "us", ids=(5, 6))])
    (found,) = branches.conflicts(
        clause(NEW_DELETES, file_paths=["eu-0", "us-0"]), base_snapshot_id=base
    )
    # us-0 has the ids 10 to 19.
    assert paths(found) == ["e-1"]


@with_deletes
def test_equality_deletes_of_an_unpartitioned_spec_are_global(version: int) -> None:
    branches = Branches.create(version, UNPARTITIONED)
    base = branches.commit("append", add=[data("a"), data("b", ids=(0, 1))])
    branches.commit("delete", add=[equality_delete("e-1", ids=(5, 6))])
    (found,) = branches.conflicts(clause(NEW_DELETES, file_paths=["a", "b"]), base_snapshot_id=base)
    assert "data file: a." in found["message"]
    assert paths(found) == ["e-1"]


@with_deletes
def test_rewritten_rows_that_keep_their_sequence_number_bear_equality_deletes(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", add=[equality_delete("e-1", "eu")])
    update: dict[str, Any] = {
        "action": "replace",
        "base_snapshot_id": base,
        "remove_data_files": ["eu-0"],
    }
    by_path = clause(NEW_DELETES, file_paths=["eu-0"])
    by_filter = clause(NEW_DELETES, filter=region("eu"))
    assert len(branches.conflicts(by_path, by_filter, **update)) == 2
    assert branches.conflicts(by_path, by_filter, **update, data_sequence_number=1) == []
    branches.commit("delete", add=[any_delete(version)])
    (found,) = branches.conflicts(by_path, **update, data_sequence_number=1)
    assert found["message"].startswith(
        "Cannot commit, found new position delete for replaced data file: eu-0."
    )


@with_deletes
def test_a_filter_beside_the_paths_narrows_the_deletes(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", add=[any_delete(version)])
    elsewhere = clause(NEW_DELETES, file_paths=["eu-0"], filter=region("us"))
    assert branches.conflicts(elsewhere, base_snapshot_id=base) == []


def test_a_vector_that_replaced_another_since_the_base_is_one_conflict() -> None:
    branches, base = table(3)
    branches.commit("delete", add=[vector("p-1", "eu-0", "eu")])
    branches.commit("delete", add=[vector("p-2", "eu-0", "eu")], remove=[("p-1", 4)])
    (found,) = branches.conflicts(clause(NEW_DELETES, file_paths=["eu-0"]), base_snapshot_id=base)
    assert paths(found) == ["p-1", "p-2"]
    assert branches.conflicts(clause(NEW_DELETES, file_paths=["us-0"]), base_snapshot_id=base) == []


# --- required-data-files ------------------------------------------------------------------------


@versions
def test_required_files_that_are_live_hold(version: int) -> None:
    branches, base = table(version)
    branches.commit("append", add=[data("eu-1", "eu")])
    required = clause(REQUIRED_DATA, file_paths=["eu-0", "us-0", "eu-1"])
    assert branches.conflicts(required, base_snapshot_id=base) == []


@versions
@pytest.mark.parametrize("operation", ["overwrite", "replace", "delete"])
def test_a_required_file_that_was_removed(version: int, operation: str) -> None:
    branches, base = table(version)
    removed = branches.commit(operation, remove=["eu-0"])
    (found,) = branches.conflicts(
        clause(REQUIRED_DATA, file_paths=["us-0", "eu-0"]), base_snapshot_id=base
    )
    assert found["message"].startswith("Cannot commit, missing data files: eu-0.")
    assert (paths(found), snapshots(found)) == (["eu-0"], [removed])
    for allowed, count in (([operation.upper()], 0), ([operation], 0), ([], 1)):
        required = clause(REQUIRED_DATA, file_paths=["eu-0"], allowed_remove_operations=allowed)
        assert len(branches.conflicts(required, base_snapshot_id=base)) == count


@versions
def test_a_path_never_seen_or_gone_before_the_base_fails(version: int) -> None:
    branches, _ = table(version)
    base = branches.commit("delete", remove=["eu-0"])
    required = clause(
        REQUIRED_DATA, file_paths=["eu-0", "nowhere"], allowed_remove_operations=["DELETE"]
    )
    (found,) = branches.conflicts(required, base_snapshot_id=base)
    assert (paths(found), snapshots(found)) == (["eu-0", "nowhere"], [])
    assert "Not live on the branch main: eu-0, nowhere." in found["message"]


@versions
def test_a_path_that_was_removed_and_added_again_fails(version: int) -> None:
    branches, base = table(version)
    branches.commit("overwrite", remove=["eu-0"])
    branches.commit("append", add=[data("eu-0", "eu")])
    required = clause(REQUIRED_DATA, file_paths=["eu-0"])
    assert len(branches.conflicts(required, base_snapshot_id=base)) == 1


@versions
def test_removals_outside_of_the_filter_are_ignored(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", remove=["eu-0"])
    outside = clause(REQUIRED_DATA, file_paths=["eu-0"], filter=region("us"))
    assert branches.conflicts(outside, base_snapshot_id=base) == []
    inside = clause(REQUIRED_DATA, file_paths=["eu-0"], filter=region("eu"))
    assert len(branches.conflicts(inside, base_snapshot_id=base)) == 1


@versions
def test_without_paths_every_removed_file_of_the_filter_counts(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", remove=["eu-0"])
    branches.commit("replace", remove=["us-0"], add=[data("us-1", "us")])
    (found,) = branches.conflicts(clause(REQUIRED_DATA), base_snapshot_id=base)
    assert paths(found) == ["eu-0", "us-0"]
    assert found["message"].startswith(
        "Found conflicting deleted files that can contain records matching true: "
    )
    (found,) = branches.conflicts(clause(REQUIRED_DATA, filter=region("eu")), base_snapshot_id=base)
    assert paths(found) == ["eu-0"]
    (found,) = branches.conflicts(
        clause(REQUIRED_DATA, allowed_remove_operations=["DELETE"]), base_snapshot_id=base
    )
    assert paths(found) == ["us-0"]
    by_metrics = clause(REQUIRED_DATA, filter=ids_from(10))
    (found,) = branches.conflicts(by_metrics, base_snapshot_id=base)
    assert paths(found) == ["us-0"]


def test_a_request_may_rely_on_files_it_has_just_added() -> None:
    branches, base = table()
    before = branches.head()
    branches.commit("append", add=[data("eu-1", "eu")])
    required = clause(REQUIRED_DATA, file_paths=["eu-0", "eu-1"])
    assert branches.conflicts(required, base_snapshot_id=base, head=before) == []


# --- required-delete-files ----------------------------------------------------------------------


def test_required_delete_files_must_be_live() -> None:
    branches, _ = table()
    base = branches.commit(
        "delete", add=[position_delete("d-1", "eu"), position_delete("d-2", "us")]
    )
    required = clause(REQUIRED_DELETES, file_paths=["d-1"])
    assert branches.conflicts(required) == []
    removed = branches.commit("replace", remove=["d-1"])
    (found,) = branches.conflicts(required, base_snapshot_id=base)
    assert found["message"].startswith("Cannot commit, missing delete files: d-1.")
    assert snapshots(found) == [removed]
    # Without a base the remover is unknown, but the file is still missing.
    (found,) = branches.conflicts(required)
    assert (paths(found), snapshots(found)) == (["d-1"], [])
    outside = clause(REQUIRED_DELETES, file_paths=["d-1"], filter=region("us"))
    assert branches.conflicts(outside, base_snapshot_id=base) == []


def test_vectors_are_required_by_their_offset() -> None:
    branches, _ = table(3)
    base = branches.commit(
        "delete",
        add=[vector("p", "eu-0", "eu", offset=4), vector("p", "us-0", "us", offset=10)],
    )
    first = {"file-path": "p", "content-offset": 4}
    second = {"file-path": "p", "content-offset": 10}
    by_offset = clause(REQUIRED_DELETES, file_paths=[first, second])
    by_path = clause(REQUIRED_DELETES, file_paths=["p"])
    for held in (by_offset, by_path):
        assert branches.conflicts(held, base_snapshot_id=base) == []
    branches.commit("replace", remove=[("p", 4)])
    (found,) = branches.conflicts(by_offset, base_snapshot_id=base)
    assert found["files"] == [first]
    assert branches.conflicts(clause(REQUIRED_DELETES, file_paths=[second])) == []
    # By path only: one of its vectors was removed since the base, and the other is live.
    (found,) = branches.conflicts(by_path, base_snapshot_id=base)
    assert found["files"] == [first]
    assert branches.conflicts(by_path) == []
    branches.commit("replace", remove=[("p", 10)])
    assert len(branches.conflicts(by_path)) == 1


def test_without_paths_every_removed_delete_file_of_the_filter_counts() -> None:
    branches, _ = table()
    base = branches.commit("delete", add=[position_delete("d-1", "eu")])
    branches.commit("replace", remove=["d-1"])
    for wanted, count in ((region("eu"), 1), (region("us"), 0)):
        required = clause(REQUIRED_DELETES, filter=wanted)
        assert len(branches.conflicts(required, base_snapshot_id=base)) == count


# --- replaced partitions ------------------------------------------------------------------------


@versions
def test_clauses_without_a_filter_are_about_the_replaced_partitions(version: int) -> None:
    branches, base = table(version)
    branches.commit("append", add=[data("us-1", "us")])
    branches.commit("overwrite", remove=["us-0"])
    eu, us = [(0, ("eu",))], [(0, ("us",))]
    every = (clause(ADDED_DATA), clause(REQUIRED_DATA), clause(ADDED_DELETES))
    update: dict[str, Any] = {"base_snapshot_id": base, "replace_partitions": True}
    assert branches.conflicts(*every, **update, added_partitions=eu) == []
    found = branches.conflicts(*every, **update, added_partitions=us)
    assert [paths(conflict) for conflict in found] == [["us-1"], ["us-0"]]
    assert "matching partitions region=us: us-1" in found[0]["message"]
    # A clause with its own filter or file names applies to those instead.
    own = clause(ADDED_DATA, filter=region("us"))
    named = clause(REQUIRED_DATA, file_paths=["us-0"])
    assert len(branches.conflicts(own, named, **update, added_partitions=eu)) == 2


@with_deletes
def test_delete_files_in_the_replaced_partitions(version: int) -> None:
    branches, base = table(version)
    branches.commit("delete", add=[any_delete(version)])
    update: dict[str, Any] = {"base_snapshot_id": base, "replace_partitions": True}
    checked = clause(ADDED_DELETES)
    assert branches.conflicts(checked, **update, added_partitions=[(0, ("us",))]) == []
    assert len(branches.conflicts(checked, **update, added_partitions=[(0, ("eu",))])) == 1


def test_replacing_an_unpartitioned_table_is_about_all_of_it() -> None:
    branches = Branches.create(2, UNPARTITIONED)
    base = branches.commit("append", add=[data("a")])
    branches.commit("append", add=[data("b")])
    (found,) = branches.conflicts(
        clause(ADDED_DATA), base_snapshot_id=base, added_partitions=[(0, ())]
    )
    assert paths(found) == ["b"]


def test_replacing_by_an_unpartitioned_spec_is_about_files_of_older_specs_too() -> None:
    branches, base = table()
    branches.apply(AddPartitionSpec(Raw(b'{"spec-id":1,"fields":[]}')), SetDefaultSpec(1))
    branches.commit("append", add=[data("eu-1", "eu")], spec_id=0)
    (found,) = branches.conflicts(
        clause(ADDED_DATA), base_snapshot_id=base, added_partitions=[(1, ())]
    )
    assert paths(found) == ["eu-1"]


def test_nan_is_one_partition() -> None:
    branches = Branches.create(2, BY_SCORE)
    base = branches.commit("append", add=[data("a", float("nan"))])
    branches.commit("append", add=[data("b", float("nan")), data("c", 1.0)])
    (found,) = branches.conflicts(
        clause(ADDED_DATA), base_snapshot_id=base, added_partitions=[(0, (float("nan"),))]
    )
    assert paths(found) == ["b"]


# --- the base and the history -------------------------------------------------------------------


@versions
def test_a_history_with_expired_snapshots_cannot_be_judged(version: int) -> None:
    branches, first = table(version)
    base = branches.commit("append", add=[data("eu-1", "eu")])
    middle = branches.commit("append", add=[data("eu-2", "eu")])
    branches.commit("append", add=[data("eu-3", "eu")])
    branches.expire(first, base)
    (found,) = branches.conflicts(clause(ADDED_DATA))
    assert found["message"].startswith(
        f"Cannot determine history between starting snapshot null and the last known ancestor "
        f"{middle}"
    )
    assert (found["clause"], found["files"]) == (ADDED_DATA, [])
    found_all = branches.conflicts(
        clause(ADDED_DATA), clause(REQUIRED_DATA, file_paths=["eu-3"]), base_snapshot_id=first
    )
    assert [conflict["clause"] for conflict in found_all] == [ADDED_DATA, REQUIRED_DATA]
    assert all(f"starting snapshot {first}" in conflict["message"] for conflict in found_all)
    assert branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base) != []
    (found,) = branches.conflicts(clause(ADDED_DATA), base_snapshot_id=middle)
    assert paths(found) == ["eu-3"]
    # The missing base may have been an ancestor, so nothing proves the opposite. A snapshot of
    # another branch certainly is not one.
    assert branches.base_conflicts(base_snapshot_id=base) == []
    other = branches.commit("append", add=[data("eu-4", "eu")], branch="audit")
    assert len(branches.base_conflicts(base_snapshot_id=other)) == 1


@versions
def test_a_base_that_is_no_ancestor_is_refused(version: int) -> None:
    branches, base = table(version)
    other = branches.commit("append", add=[data("eu-1", "eu")], branch="audit")
    head = branches.commit("append", add=[data("eu-2", "eu")])
    assert branches.base_conflicts(base_snapshot_id=base) == []
    assert branches.base_conflicts(base_snapshot_id=head) == []
    (found,) = branches.base_conflicts(base_snapshot_id=other)
    assert (found["clause"], found["validation"]) == ("base-not-ancestor", None)
    assert found["message"].startswith(f"Snapshot {other} is not an ancestor of {head}")
    (found,) = branches.base_conflicts(clause(ADDED_DATA), clause(ADDED_DATA, base_snapshot_id=7))
    assert found["validation"] == 1
    assert branches.base_conflicts(base_snapshot_id=other, branch="audit") == []


def test_a_base_on_an_empty_branch_is_refused() -> None:
    (found,) = Branches.create(2).base_conflicts(base_snapshot_id=5)
    assert found["message"].startswith("Snapshot 5 is not an ancestor of null")


# --- the answer ---------------------------------------------------------------------------------


def test_all_clauses_that_fail_are_told() -> None:
    branches, base = table()
    branches.commit("append", add=[data("eu-1", "eu")])
    branches.commit("delete", remove=["us-0"])
    checked = [clause(ADDED_DATA), clause(ADDED_DELETES), clause(REQUIRED_DATA)]
    found = branches.conflicts(*checked, base_snapshot_id=base)
    assert [conflict["validation"] for conflict in found] == [0, 2]
    with pytest.raises(ValidationError, match=r"\(1 more conflict beside this one\.\)$"):
        branches.raise_conflicts(*checked, base_snapshot_id=base)


def test_long_lists_are_cut_but_counted() -> None:
    branches, base = table()
    branches.commit("append", add=[data(f"eu-{number}", "eu") for number in range(1, 151)])
    (found,) = branches.conflicts(clause(ADDED_DATA), base_snapshot_id=base)
    assert (found["file-count"], len(found["files"])) == (150, 100)
    assert "and 147 more" in found["message"]


def test_a_filter_that_does_not_bind_is_a_bad_request() -> None:
    branches, base = table()
    branches.commit("append", add=[data("eu-1", "eu")])
    wrong = clause(ADDED_DATA, filter={"type": "eq", "term": "REGION", "value": "eu"})
    with pytest.raises(BadRequest, match=r"updates\[0\]\.commit-validations\[1\]\.filter.*REGION"):
        branches.conflicts(clause(ADDED_DATA), wrong, base_snapshot_id=base)
    assert len(branches.conflicts(wrong, base_snapshot_id=base, case_sensitive=False)) == 1


# --- deletion vectors ---------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["delete", "overwrite", "replace"])
def test_a_vector_added_since_the_base_is_always_a_conflict(operation: str) -> None:
    branches, base = table(3)
    added = branches.commit(operation, add=[vector("p-1", "eu-0", "eu")])
    removed = [{"file-path": "p-1", "content-offset": 4}]
    mine = vector("p-2", "eu-0", "eu")
    (found,) = branches.vector_conflicts(mine, base_snapshot_id=base, remove_delete_files=removed)
    assert (found["clause"], found["validation"]) == ("dv-conflict", None)
    assert found["message"].startswith("Found concurrently added DV for eu-0: p-1")
    assert found["files"] == removed
    assert snapshots(found) == [added]
    other = vector("p-2", "us-0", "us")
    assert branches.vector_conflicts(other, base_snapshot_id=base) == []
    assert (
        branches.vector_conflicts(mine, base_snapshot_id=added, remove_delete_files=removed) == []
    )


def test_a_vector_beside_a_live_one_must_take_its_place() -> None:
    branches, _ = table(3)
    base = branches.commit("delete", add=[vector("p-1", "eu-0", "eu")])
    mine = vector("p-2", "eu-0", "eu")
    (found,) = branches.vector_conflicts(mine, base_snapshot_id=base)
    assert found["message"].startswith("Found an existing DV for eu-0: p-1 (content-offset 4)")
    for offset, count in ((4, 0), (5, 1)):
        removed = [{"file-path": "p-1", "content-offset": offset}]
        conflicts = branches.vector_conflicts(
            mine, base_snapshot_id=base, remove_delete_files=removed
        )
        assert len(conflicts) == count


def test_where_the_history_is_not_known_the_live_vectors_decide() -> None:
    branches, base = table(3)
    branches.commit("delete", add=[vector("p-1", "eu-0", "eu")])
    branches.commit("delete", remove=[("p-1", 4)])
    mine = vector("p-2", "eu-0", "eu")
    assert len(branches.vector_conflicts(mine, base_snapshot_id=base)) == 1
    branches.expire(base)
    assert branches.vector_conflicts(mine, base_snapshot_id=base) == []
    assert branches.vector_conflicts(mine) == []
    branches.commit("delete", add=[vector("p-3", "eu-0", "eu")])
    assert len(branches.vector_conflicts(mine)) == 1


def test_a_vector_that_the_same_request_added_is_seen() -> None:
    branches, base = table(3)
    before = branches.head()
    branches.commit("delete", add=[vector("p-1", "eu-0", "eu")])
    mine = vector("p-2", "eu-0", "eu")
    (found,) = branches.vector_conflicts(mine, base_snapshot_id=base, head=before)
    assert found["message"].startswith("Found an existing DV for eu-0")


def test_other_delete_files_are_no_vectors() -> None:
    branches, base = table(2)
    branches.commit("delete", add=[position_delete("d-1", "eu", of="eu-0")])
    mine = position_delete("d-2", "eu", of="eu-0")
    assert branches.vector_conflicts(mine, base_snapshot_id=base) == []


def test_a_vector_beside_older_position_deletes_is_fine() -> None:
    branches, base = table(3)
    branches.commit("delete", add=[position_delete("d-1", "eu", of="eu-0")])
    assert branches.vector_conflicts(vector("p-1", "eu-0", "eu"), base_snapshot_id=base) == []


def test_a_vector_that_was_removed_is_not_in_the_way() -> None:
    branches, _ = table(3)
    branches.commit(
        "delete",
        add=[vector("p-1", "eu-0", "eu", offset=4), vector("p-1", "us-0", "us", offset=10)],
    )
    base = branches.commit("delete", remove=[("p-1", 4)])
    assert branches.vector_conflicts(vector("p-2", "eu-0", "eu"), base_snapshot_id=base) == []
    assert len(branches.vector_conflicts(vector("p-2", "us-0", "us"), base_snapshot_id=base)) == 1

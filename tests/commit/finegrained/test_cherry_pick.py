"""Staged snapshots and their publication: based on Java's CherryPickOperation and its tests."""

from __future__ import annotations

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, WITH_DELETES
from tests.commit.finegrained.requests import (
    TRUE,
    append,
    cherry_pick,
    no_new_data,
    overwrite,
    set_ref,
)
from tests.commit.finegrained.tables import Refusal, Table


def not_picked(table: Table, snapshot: send.Json) -> Refusal:
    refusal = table.refused(cherry_pick(snapshot["snapshot-id"]), status=409)
    assert refusal.type == "ValidationException"
    return refusal


# --- staging --------------------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_staged_snapshot_moves_no_branch(table: Table) -> None:
    first = table.append(table.data("a", 0))
    staged = table.append(table.data("b", 0), stage_only=True, summary={"wap.id": "w1"})
    assert staged["snapshot-id"] != first["snapshot-id"]
    assert staged["parent-snapshot-id"] == first["snapshot-id"]
    assert table.head_id == first["snapshot-id"]
    assert table.live() == {"a"}
    assert table.live(staged) == {"a", "b"}
    assert staged["summary"]["wap.id"] == "w1"
    log = [entry["snapshot-id"] for entry in table.metadata["snapshot-log"]]
    assert staged["snapshot-id"] not in log


@ALL_VERSIONS
def test_the_first_snapshot_may_be_staged(table: Table) -> None:
    staged = table.append(table.data("a", 0), stage_only=True)
    assert not table.metadata.get("refs")
    table.append(table.data("b", 0))
    assert table.live() == {"b"}
    table.cherry_pick(staged)
    assert table.live() == {"a", "b"}


@ALL_VERSIONS
def test_a_staged_snapshot_takes_its_sequence_number_and_rows(table: Table) -> None:
    table.append(table.data("a", 0, rows=5))
    staged = table.append(table.data("b", 0, rows=7), stage_only=True)
    after = table.append(table.data("c", 0, rows=1))
    if table.version > 1:
        assert (staged["sequence-number"], after["sequence-number"]) == (2, 3)
    if table.version == 3:
        assert (staged["first-row-id"], after["first-row-id"]) == (5, 12)
        assert table.metadata["next-row-id"] == 13


@ALL_VERSIONS
def test_staging_is_judged_like_a_commit(table: Table) -> None:
    base = table.append(table.data("a", 0))["snapshot-id"]
    table.append(table.data("b", 0))
    update = append(table.data("c", 0), stage_only=True, base=base, validations=[no_new_data(TRUE)])
    assert table.conflict(update).files == {"b"}
    again = append(table.data("b", 0), stage_only=True)
    assert table.conflict(again).clause == "duplicate-file"


# --- publishing -----------------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_staged_child_of_the_head_is_moved_to(table: Table) -> None:
    table.append(table.data("a", 0))
    staged = table.append(table.data("b", 0), stage_only=True)
    count = len(table.metadata["snapshots"])
    answer = table.post(table._update(cherry_pick(staged["snapshot-id"])))
    assert answer.status == 200, answer.body
    table.accept(answer)
    assert table.head_id == staged["snapshot-id"]
    assert len(table.metadata["snapshots"]) == count
    assert table.live() == {"a", "b"}
    if table.branch == "main":
        log = [entry["snapshot-id"] for entry in table.metadata["snapshot-log"]]
        assert log[-1] == staged["snapshot-id"]


@ALL_VERSIONS
def test_a_staged_append_is_applied_again(table: Table) -> None:
    table.append(table.data("a", 0))
    staged = table.append(table.data("b", 0, rows=3), stage_only=True, summary={"wap.id": "w1"})
    between = table.append(table.data("c", 0))
    picked = table.cherry_pick(staged)
    assert picked["snapshot-id"] not in (staged["snapshot-id"], between["snapshot-id"])
    assert picked["parent-snapshot-id"] == between["snapshot-id"]
    assert table.live() == {"a", "b", "c"}
    assert table.operation == "append"
    assert picked["summary"]["source-snapshot-id"] == str(staged["snapshot-id"])
    assert picked["summary"]["published-wap-id"] == "w1"
    assert picked["summary"]["added-records"] == "3"
    if table.version > 1:
        assert table.sequence_numbers()["b"] == picked["sequence-number"] == 4


@ALL_VERSIONS
def test_two_staged_appends_are_published_in_any_order(table: Table) -> None:
    table.append(table.data("a", 0))
    first = table.append(table.data("b", 0), stage_only=True, summary={"wap.id": "1"})
    second = table.append(table.data("c", 0), stage_only=True, summary={"wap.id": "2"})
    table.cherry_pick(second)
    assert table.live() == {"a", "c"}
    table.cherry_pick(first)
    assert table.live() == {"a", "b", "c"}


@ALL_VERSIONS
def test_a_staged_delete_is_only_moved_to(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a, table.data("b", 0))
    staged = table.delete(a, stage_only=True)
    table.append(table.data("c", 0))
    refusal = not_picked(table, staged)
    assert "not append, dynamic overwrite, or fast-forward" in refusal.message
    again = table.delete(a, stage_only=True)
    table.commit(table._update(cherry_pick(again["snapshot-id"])))
    assert table.live() == {"b", "c"}


@ALL_VERSIONS
def test_a_staged_overwrite_fails_when_the_head_has_changed(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    staged = table.overwrite(remove=[a], add=[table.data("b", 0)], stage_only=True)
    table.append(table.data("c", 0))
    not_picked(table, staged)
    assert table.live() == {"a", "c"}


@WITH_DELETES
def test_a_staged_row_delta_is_only_moved_to(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    staged = table.overwrite(add_deletes=[table.deletes("da", a)], stage_only=True)
    table.append(table.data("c", 0))
    not_picked(table, staged)


@ALL_VERSIONS
def test_staged_partitions_are_replaced_again(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1))
    staged = table.replace_partitions(table.data("a2", 0), stage_only=True, summary={"wap.id": "w"})
    table.append(table.data("c", 2))
    picked = table.cherry_pick(staged)
    assert table.live() == {"a2", "b", "c"}
    assert table.operation == "overwrite"
    assert picked["summary"]["published-wap-id"] == "w"


@ALL_VERSIONS
def test_staged_partitions_that_were_written_to_are_not_replaced(table: Table) -> None:
    table.append(table.data("a", 0), table.data("b", 1))
    staged = table.replace_partitions(table.data("a2", 0), stage_only=True)
    table.append(table.data("new", 0))
    refusal = not_picked(table, staged)
    assert "Cannot cherry-pick replace partitions with changed partition" in refusal.message


@ALL_VERSIONS
def test_staged_partitions_whose_files_went_are_not_replaced(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a, table.data("b", 1))
    staged = table.replace_partitions(table.data("a2", 0), stage_only=True)
    table.delete(a)
    refusal = table.refused(cherry_pick(staged["snapshot-id"]), status=409)
    assert refusal.type == "ValidationException"


@ALL_VERSIONS
def test_staged_partitions_of_another_history_are_not_replaced(table: Table) -> None:
    table.append(table.data("a", 0))
    table.append(table.data("b", 1), branch="other")
    staged = table.commit(
        {**send.replace_partitions(table.data("b2", 1)), "branch": "other", "stage-only": True}
    )
    table.append(table.data("c", 2))
    not_picked(table, staged)


# --- published twice ------------------------------------------------------------------------------


@ALL_VERSIONS
def test_a_published_snapshot_is_not_published_again(table: Table) -> None:
    table.append(table.data("a", 0))
    staged = table.append(table.data("b", 0), stage_only=True)
    table.append(table.data("c", 0))
    picked = table.cherry_pick(staged)
    refusal = not_picked(table, staged)
    assert str(picked["snapshot-id"]) in refusal.message or "already" in refusal.message


@ALL_VERSIONS
def test_an_ancestor_is_not_published(table: Table) -> None:
    first = table.append(table.data("a", 0))
    table.append(table.data("b", 0))
    not_picked(table, first)


@ALL_VERSIONS
def test_a_wap_id_is_published_once(table: Table) -> None:
    table.append(table.data("a", 0))
    first = table.append(table.data("b", 0), stage_only=True, summary={"wap.id": "same"})
    second = table.append(table.data("c", 0), stage_only=True, summary={"wap.id": "same"})
    table.append(table.data("d", 0))
    table.cherry_pick(first)
    refusal = table.refused(cherry_pick(second["snapshot-id"]), status=409)
    assert refusal.type == "ValidationException"
    assert "same" in refusal.message


@ALL_VERSIONS
def test_a_snapshot_that_is_not_there_is_refused(table: Table) -> None:
    table.append(table.data("a", 0))
    refusal = table.refused(cherry_pick(4711), status=409)
    assert refusal.type == "ValidationException"
    assert "4711" in refusal.message


def test_a_tag_is_no_target_of_a_publication(table: Table) -> None:
    first = table.append(table.data("a", 0))
    staged = table.append(table.data("b", 0), stage_only=True)
    table.commit(set_ref(first["snapshot-id"], "v1", "tag"))
    assert "v1" in table.bad(cherry_pick(staged["snapshot-id"], branch="v1"))


@ALL_VERSIONS
def test_a_file_that_came_by_another_way_is_not_published_again(table: Table) -> None:
    table.append(table.data("a", 0))
    staged = table.append(table.data("b", 0), stage_only=True)
    table.append(table.data("b", 0))
    refusal = table.refused(cherry_pick(staged["snapshot-id"]), status=409)
    assert refusal.conflicts
    assert refusal.conflicts[0]["clause"] == "duplicate-file"


def test_publishing_on_another_branch(table: Table) -> None:
    table.append(table.data("a", 0))
    table.append(table.data("x", 0), branch="audit")
    staged = table.append(table.data("b", 0), stage_only=True)
    table.append(table.data("c", 0))
    table.commit(cherry_pick(staged["snapshot-id"], branch="audit"))
    assert table.live(table.head("audit")) == {"a", "x", "b"}
    assert table.live(table.head("main")) == {"a", "c"}


@ALL_VERSIONS
def test_stage_and_publish_in_one_request_is_not_needed(table: Table) -> None:
    """One commit can stage an overwrite and apply an append."""
    a = table.data("a", 0)
    table.append(a)
    table.commit(
        table._update(append(table.data("b", 0))),
        table._update(overwrite(remove=[a], add=[table.data("a2", 0)], stage_only=True)),
    )
    made = table.last["committed"]
    assert [entry["update"] for entry in made] == [0, 1]
    assert table.live() == {"a", "b"}
    assert table.live(table.snapshot(made[1]["snapshot-id"])) == {"a2", "b"}

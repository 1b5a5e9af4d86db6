"""A repeated request is applied once: idempotency keys, and `once` for streams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS, TableFactory
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    append,
    cherry_pick,
    delete,
    head_is,
    no_new_data,
    overwrite,
    remove_ref,
    set_ref,
)
from tests.commit.finegrained.tables import Table, new_key
from tests.commit.finegrained.world import World

QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"


# --- keys -----------------------------------------------------------------------------------------


@ALL_VERSIONS
def test_the_same_key_commits_once(table: Table) -> None:
    key, update = new_key(), table._update(append(table.data("a", 0)))
    first = table.post(update, key=key)
    table.accept(first)
    table.append(table.data("b", 0))
    again = table.post(update, key=key)
    assert again.status == 200
    assert again.body["committed"] == first.body["committed"]
    table._keep(again.body)
    assert table.live() == {"a", "b"}, "a replay renders the present"
    assert len(table.metadata["snapshots"]) == 2


def test_a_minimal_answer_is_replayed(table: Table) -> None:
    key, update = new_key(), append(table.data("a", 0))
    headers = {"Prefer": "return=minimal"}
    first = table.post(update, key=key, headers=headers)
    again = table.post(update, key=key, headers=headers)
    assert again.body == first.body


def test_a_key_with_another_body_is_refused(table: Table) -> None:
    key = new_key()
    table.commit(append(table.data("a", 0)), key=key)
    answer = table.post(append(table.data("b", 0)), key=key)
    assert answer.status == 422
    assert table.load().live() == {"a"}


def test_a_key_that_is_no_uuid_is_refused(table: Table) -> None:
    answer = table.post(append(table.data("a", 0)), key="once")
    assert answer.status == 400


def test_a_conflict_is_final_under_its_key(table: Table) -> None:
    """A failed validation is returned again, even if it would pass now."""
    a = table.data("a", 0)
    table.append(a)
    key, update = new_key(), append(a)
    first = table.post(update, key=key)
    assert first.status == 409
    table.delete(a)
    again = table.post(update, key=key)
    assert (again.status, again.body) == (409, first.body)
    assert table.load().live() == set()


def test_a_bad_request_is_final_under_its_key(table: Table) -> None:
    key, update = new_key(), append(table.data("a", "x"))
    first = table.post(update, key=key)
    again = table.post(update, key=key)
    assert (first.status, again.status) == (400, 400)
    assert again.body == first.body


def test_a_failed_requirement_is_not_final(table: Table) -> None:
    key, update = new_key(), append(table.data("b", 0))
    requirements: list[Json] = [head_is(None)]
    table.append(table.data("a", 0))
    assert table.post(update, key=key, requirements=requirements).status == 409
    table.commit(remove_ref("main"))
    assert table.post(update, key=key, requirements=requirements).status == 200


def test_one_key_sent_by_many_at_once(table: Table) -> None:
    key, update = new_key(), append(table.data("a", 0))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: table.post(update, key=key), range(8)))
    assert {answer.status for answer in answers} == {200}
    made = {answer.body["committed"][0]["snapshot-id"] for answer in answers}
    assert len(made) == 1
    assert len(table.load().metadata["snapshots"]) == 1


def test_without_a_key_a_second_append_is_a_duplicate(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    assert table.conflict(append(a)).clause == "duplicate-file"


# --- once -----------------------------------------------------------------------------------------


def at(epoch: int, stream: str = "q") -> Json:
    return {"id": stream, "epoch": epoch}


@ALL_VERSIONS
def test_an_epoch_is_applied_once(table: Table) -> None:
    update = table._update(append(table.data("a", 0)))
    snapshot = table.commit(update, once=at(0))
    assert snapshot["summary"].items() >= {QUERY: "q", EPOCH: "0"}.items()
    assert "already-committed" not in table.last
    first = table.last["committed"]
    state = table.state()
    again = table.post(update, once=at(0))
    assert again.status == 200
    assert again.body["already-committed"] is True
    assert again.body["committed"] == first
    assert table.state() == state


def test_epochs_go_on(table: Table) -> None:
    for epoch in (0, 1, 5):
        table.commit(append(table.data(f"e{epoch}", 0)), once=at(epoch))
    for epoch in (0, 1, 4, 5):
        answer = table.post(append(table.data("again", 0)), once=at(epoch))
        assert answer.body["already-committed"] is True
        made = answer.body["committed"]
        assert [m["snapshot-id"] for m in made] == ([table.head_id] if epoch == 5 else [])
    table.commit(append(table.data("e6", 0)), once=at(6))
    assert table.live() == {"e0", "e1", "e5", "e6"}


def test_streams_are_told_apart(table: Table) -> None:
    table.commit(append(table.data("a", 0)), once=at(3, "one"))
    table.commit(append(table.data("b", 0)), once=at(0, "two"))
    assert table.live() == {"a", "b"}


def test_tables_are_told_apart(new_table: TableFactory) -> None:
    one, two = new_table(), new_table()
    one.commit(append(one.data("a", 0)), once=at(3))
    two.commit(append(two.data("a", 0)), once=at(0))
    assert two.live() == {"a"}


def test_branches_are_told_apart(table: Table) -> None:
    table.append(table.data("base", 0))
    table.commit(append(table.data("x", 0), branch="side"), once=at(3))
    table.commit(append(table.data("a", 0)), once=at(0))
    assert table.live() == {"base", "a"}


def test_all_updates_of_an_epoch_are_one(table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    updates = (append(a, b), delete(a))
    table.commit(*updates, once=at(0))
    assert len(table.last["committed"]) == 2
    again = table.post(*updates, once=at(0))
    assert again.body["committed"] == table.last["committed"]
    for made in table.last["committed"]:
        assert table.snapshot(made["snapshot-id"])["summary"][EPOCH] == "0"


def test_two_branches_under_once_are_refused(table: Table) -> None:
    message = table.bad(
        append(table.data("a", 0)), append(table.data("b", 0), branch="side"), once=at(0)
    )
    assert "one branch" in message


def test_once_without_an_action_is_refused(table: Table) -> None:
    assert "once" in table.bad(send.set_properties(a="b"), once=at(0))


def test_a_refused_epoch_may_come_again(table: Table) -> None:
    a = table.data("a", 0)
    table.append(a)
    assert table.conflict(append(a), once=at(0)).clause == "duplicate-file"
    table.commit(append(table.data("b", 0)), once=at(0))
    assert table.live() == {"a", "b"}


def test_an_epoch_that_is_done_is_answered_before_it_is_judged(table: Table) -> None:
    """Its own files are live by now, and its requirements may no longer be true."""
    update = append(table.data("a", 0), validations=[no_new_data(TRUE)])
    table.commit(update, once=at(0), requirements=[head_is(None)])
    again = table.post(update, once=at(0), requirements=[head_is(None)])
    assert (again.status, again.body.get("already-committed")) == (200, True)


def test_the_history_decides_where_there_is_no_row(table: Table) -> None:
    """As in Java, the summary of another writer's snapshot counts."""
    table.append(table.data("a", 0), summary={QUERY: "spark", EPOCH: "7"})
    table.append(table.data("b", 0))
    again = table.post(append(table.data("c", 0)), once=at(7, "spark"))
    assert again.body["already-committed"] is True
    table.commit(append(table.data("c", 0)), once=at(8, "spark"))
    assert table.live() == {"a", "b", "c"}


def test_a_branch_that_goes_back_takes_its_epochs_with_it(table: Table) -> None:
    first = table.commit(append(table.data("a", 0)), once=at(0))
    table.commit(append(table.data("b", 0)), once=at(1))
    table.commit(append(table.data("c", 0)), once=at(2))
    table.commit(set_ref(first["snapshot-id"]))
    assert table.live() == {"a"}
    assert table.post(append(table.data("a", 0)), once=at(0)).body["already-committed"] is True
    table.commit(append(table.data("b2", 0)), once=at(1))
    assert table.live() == {"a", "b2"}


def test_a_branch_that_is_dropped_begins_anew(table: Table) -> None:
    table.append(table.data("base", 0))
    table.commit(append(table.data("a", 0), branch="side"), once=at(4))
    table.commit(remove_ref("side"))
    table.commit(append(table.data("b", 0), branch="side"), once=at(0))
    assert table.live(table.head("side")) == {"base", "b"}


def test_moving_back_in_the_request_itself(table: Table) -> None:
    first = table.commit(append(table.data("a", 0)), once=at(0))
    table.commit(append(table.data("b", 0)), once=at(1))
    table.commit(set_ref(first["snapshot-id"]))
    table.commit(append(table.data("b", 0)), once=at(1))
    again = table.post(append(table.data("b", 0)), once=at(1))
    assert again.body["already-committed"] is True
    assert table.load().live() == {"a", "b"}


def test_a_branch_that_goes_forward_keeps_its_epochs(table: Table) -> None:
    table.commit(append(table.data("a", 0), branch="side"), once=at(5))
    head = table.append(table.data("b", 0), branch="side")
    table.commit(set_ref(head["snapshot-id"], "side"))
    again = table.post(append(table.data("c", 0), branch="side"), once=at(5))
    assert again.body["already-committed"] is True


def test_an_epoch_sent_by_many_at_once(table: Table) -> None:
    update = append(table.data("a", 0))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: table.post(update, once=at(0)), range(8)))
    assert {answer.status for answer in answers} == {200}
    made = {answer.body["committed"][0]["snapshot-id"] for answer in answers}
    assert len(made) == 1
    assert sum("already-committed" not in answer.body for answer in answers) == 1


def test_once_and_a_key_together(table: Table) -> None:
    key, update = new_key(), append(table.data("a", 0))
    first = table.post(update, key=key, once=at(0))
    again = table.post(update, key=key, once=at(0))
    assert again.body["committed"] == first.body["committed"]
    other = table.post(update, key=new_key(), once=at(0))
    assert other.body["already-committed"] is True


def test_a_minimal_answer_says_so_too(table: Table) -> None:
    update = append(table.data("a", 0))
    table.commit(update, once=at(0))
    again = table.post(update, once=at(0), headers={"Prefer": "return=minimal"})
    assert again.body["already-committed"] is True
    assert again.body["committed"] == table.last["committed"]


def test_the_streams_keys_are_not_sent_by_hand_under_once(table: Table) -> None:
    message = table.bad(append(table.data("a", 0), summary={QUERY: "x"}), once=at(0))
    assert QUERY in message


@pytest.mark.parametrize("kind", ["delete", "overwrite", "cherry-pick"])
def test_every_action_may_be_an_epoch(table: Table, kind: str) -> None:
    a = table.data("a", 0)
    table.append(a)
    staged = table.append(table.data("s", 0), stage_only=True)
    update = {
        "delete": delete(a),
        "overwrite": overwrite(remove=[a], add=[table.data("b", 0)]),
        "cherry-pick": cherry_pick(staged["snapshot-id"]),
    }[kind]
    table.commit(update, once=at(0))
    again = table.post(update, once=at(0))
    assert (again.status, again.body.get("already-committed")) == (200, True)


def test_once_on_each_change_of_a_transaction(new_table: TableFactory, world: World) -> None:
    one, two = new_table(), new_table()

    def send_epoch(epoch: int) -> Any:
        changes = [
            {
                "identifier": {"namespace": [table.namespace], "name": table.name},
                "requirements": [],
                "updates": [append(table.data(f"e{epoch}", 0))],
                "once": at(epoch),
            }
            for table in (one, two)
        ]
        headers = {"Prefer": "return=minimal"}
        return world("POST", "/v1/transactions/commit", {"table-changes": changes}, headers)

    for _ in range(2):
        for epoch in (0, 1):
            answer = send_epoch(epoch)
            assert answer.status == 200, answer.body
    assert one.load().live() == {"e0", "e1"}
    assert two.load().live() == {"e0", "e1"}

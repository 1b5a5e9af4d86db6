"""Which epochs of a stream are applied, by the stream's row or by the branch's history."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from frazil.commit.pipeline.idempotency import (
    KeptCommit,
    commit_row,
    kept_from_json,
    transaction_row,
)
from frazil.commit.pipeline.pending_requests import Context, IdempotencyKey
from frazil.commit.snapshot.stream_epochs import (
    CommittedSnapshot,
    Streams,
    already_committed,
    branch_of,
    branches_moved_back,
    committed_epoch,
    committed_json,
    stream_row,
    summary_of,
)
from frazil.db.base import StreamRow
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.file_actions import CommitUpdate, Delete, Once
from frazil.wire.rest_updates import SetLocation
from tests.support.tables import UUID, apply, commit, history, set_ref, snapshot, table, update

DELETE = Delete(remove_data_files=("f",))
MADE = (CommittedSnapshot(0, 7, 3, "append"), CommittedSnapshot(2, 8, 4, "delete"))


def from_json(committed: bytes) -> tuple[CommittedSnapshot, ...]:
    return msgspec.json.decode(committed, type=tuple[CommittedSnapshot, ...])


def no_row(branch: str, stream_id: str) -> None:
    return None


def row(epoch: int, branch: str = "main", stream_id: str = "q") -> StreamRow:
    return StreamRow(UUID, branch, stream_id, epoch, committed_json(MADE))


def streaming(stream_id: str, epoch: Any, **more: str) -> dict[str, str]:
    return {
        "operation": "append",
        "spark.sql.streaming.queryId": stream_id,
        "spark.sql.streaming.epochId": str(epoch),
    } | more


def with_epochs(*epochs: tuple[str, Any] | None, branch: str = "main") -> TableMetadata:
    """Return a history with one snapshot for each (stream, epoch); None is another writer's
    snapshot."""
    metadata = table()
    for number, named in enumerate(epochs, start=1):
        summary = streaming(*named) if named else {"operation": "overwrite"}
        metadata = commit(metadata, snapshot(number, number - 1 or None, summary=summary), branch)
    return metadata


# --- by the row -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "verdict"), [(6, None), (5, MADE), (4, ()), (0, ()), (2**63 - 1, None)]
)
def test_the_row_decides(sent: int, verdict: tuple[CommittedSnapshot, ...] | None) -> None:
    asked: list[tuple[str, str]] = []

    def load(branch: str, stream_id: str) -> StreamRow:
        asked.append((branch, stream_id))
        return row(5)

    once = Once("q", sent)
    assert already_committed(table(), once, [DELETE], load) == verdict
    assert asked == [("main", "q")]


def test_the_row_wins_over_the_history() -> None:
    state = with_epochs(("q", 9))
    found = committed_epoch(state, Once("q", 1), "main", row(5))
    assert found is not None
    assert (found.epoch, found.committed) == (5, MADE)


def test_a_row_holds_what_the_answer_said() -> None:
    kept = stream_row(UUID, Once("q", 5), "main", MADE)
    assert kept == row(5)
    assert from_json(kept.committed) == MADE


@pytest.mark.parametrize("already", [False, True])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_key_keeps_whether_the_epoch_came_again(already: bool, in_transaction: bool) -> None:
    context = Context("anna", "request-1", IdempotencyKey("k", "f"))
    made = KeptCommit(committed=Raw(committed_json(MADE)), already_committed=already, uuid=UUID)
    if in_transaction:
        (kept,) = transaction_row(context, [made])
    else:
        (kept,) = commit_row(context, made)
    assert kept.committed is not None
    content = kept.committed[1:-1] if in_transaction else kept.committed
    said = kept_from_json(content)
    assert from_json(bytes(said.committed)) == MADE
    assert said.already_committed is already
    assert (said.uuid, kept.relation_uuid) == ((UUID, None) if in_transaction else (None, UUID))
    assert kept.status == (204 if in_transaction else 200)


# --- by the history ---------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "snapshot_ids"), [(3, None), (2, [2]), (1, []), (0, [])], ids=str)
def test_without_a_row_the_newest_ancestor_of_the_stream_decides(
    sent: int, snapshot_ids: list[int] | None
) -> None:
    state = with_epochs(("q", 1), ("q", 2), ("other", 7), None)
    found = already_committed(state, Once("q", sent), [DELETE], no_row)
    assert (None if found is None else [item.snapshot_id for item in found]) == snapshot_ids


@pytest.mark.parametrize("stream_id", ["unknown", "qq", 'q"', "é", "q/1", ""])
def test_a_stream_that_is_not_in_the_history_has_committed_nothing(stream_id: str) -> None:
    state = with_epochs(("q", 1), None)
    assert already_committed(state, Once(stream_id, 0), [DELETE], no_row) is None


@pytest.mark.parametrize("stream_id", ["a-b_c.1", "q/1", 'say "q"', "é\U0001f600", "\\"])
def test_any_name_of_a_stream_is_found(stream_id: str) -> None:
    state = with_epochs((stream_id, 4), None)
    found = committed_epoch(state, Once(stream_id, 1), "main", None)
    assert found is not None
    assert found.epoch == 4


@pytest.mark.parametrize("text", ["", "-1", "x", "1.0", "²"])
def test_a_summary_without_an_epoch_says_nothing(text: str) -> None:
    state = with_epochs(("q", 1), ("q", text))
    found = committed_epoch(state, Once("q", 1), "main", None)
    assert found is not None
    assert found.epoch == 1


def test_a_stream_found_only_in_another_value_is_not_in_the_history() -> None:
    state = commit(table(), snapshot(1, summary={"operation": "append", "note": "q"}))
    assert committed_epoch(state, Once("q", 0), "main", None) is None


def test_the_snapshots_of_an_epoch_are_told_apart_where_the_updates_allow_it() -> None:
    state = with_epochs(("q", 1), ("q", 2), ("q", 2))
    updates: list[CommitUpdate] = [DELETE, SetLocation("s3://b/t"), DELETE]
    assert already_committed(state, Once("q", 2), updates, no_row) == (
        CommittedSnapshot(0, 2, 2, "append"),
        CommittedSnapshot(2, 3, 3, "append"),
    )
    assert already_committed(state, Once("q", 2), updates[:2], no_row) == ()


def test_only_the_branch_itself_is_searched() -> None:
    state = commit(
        apply(history(1), set_ref(1, "audit")),
        snapshot(2, 1, summary=streaming("q", 5)),
        "audit",
    )
    assert committed_epoch(state, Once("q", 0), "main", None) is None
    found = committed_epoch(state, Once("q", 0), "audit", None)
    assert found is not None
    assert found.epoch == 5


def test_a_branch_that_will_be_made_starts_with_what_main_has() -> None:
    found = committed_epoch(with_epochs(("q", 5)), Once("q", 0), "new", None)
    assert found is not None
    assert found.epoch == 5
    assert committed_epoch(table(), Once("q", 0), "new", None) is None


def test_a_long_history_is_searched_to_its_beginning() -> None:
    state = with_epochs(("q", 3), *[None] * 400)
    found = committed_epoch(state, Once("q", 0), "main", None)
    assert found is not None
    assert found.epoch == 3


# --- requests ---------------------------------------------------------------------------------


def test_the_branch_is_the_one_that_the_actions_name() -> None:
    on_audit = Delete(remove_data_files=("f",), branch="audit")
    assert branch_of([SetLocation("x"), on_audit]) == "audit"
    assert branch_of([DELETE]) == "main"


def test_the_summary_names_the_stream_and_its_epoch() -> None:
    assert dict(summary_of(Once("q", 12))) == {
        "spark.sql.streaming.queryId": "q",
        "spark.sql.streaming.epochId": "12",
    }
    assert summary_of(None) == ()


# --- branches that move back ------------------------------------------------------------------


def moved(before: TableMetadata, *updates: Any) -> frozenset[str]:
    return branches_moved_back(before, apply(before, *updates))


def test_a_branch_moves_back() -> None:
    base = apply(history(4), set_ref(3, "audit"), set_ref(3, "tag", "tag"))
    assert moved(base, set_ref(2)) == {"main"}
    assert moved(base, set_ref(2), set_ref(1, "audit")) == {"main", "audit"}
    assert moved(base, update("remove-snapshot-ref", ref_name="audit")) == {"audit"}
    assert moved(base, update("remove-snapshot-ref", ref_name="tag")) == set()
    assert moved(base, set_ref(1, "tag", "tag")) == set()


def test_a_branch_goes_on() -> None:
    base = apply(history(4), set_ref(2, "audit"))
    assert moved(base) == set()
    assert moved(base, update("set-properties", updates={"a": "b"})) == set()
    assert moved(base, set_ref(4, "audit")) == set()
    assert moved(base, set_ref(4, "new")) == set()
    assert branches_moved_back(base, commit(base, snapshot(5, 4))) == set()
    assert moved(base, set_ref(4, max_ref_age_ms=1)) == set()


def test_a_branch_that_changes_to_another_line_has_moved_back() -> None:
    base = apply(history(3), update("add-snapshot", snapshot=snapshot(9, 1)))
    assert moved(base, set_ref(9)) == {"main"}


def test_expiry_of_what_lies_between_is_not_a_move_back() -> None:
    base = history(3)
    after = apply(
        base,
        update("add-snapshot", snapshot=snapshot(4, 3)),
        set_ref(4),
        update("remove-snapshots", snapshot_ids=[1, 2, 3]),
    )
    assert branches_moved_back(base, after) == set()


# --- a round ----------------------------------------------------------------------------------


def test_a_request_sees_what_those_before_it_committed() -> None:
    asked: list[tuple[str, str, str]] = []

    def load(uuid: str, branch: str, stream_id: str) -> StreamRow | None:
        asked.append((uuid, branch, stream_id))
        return row(1) if stream_id == "q" else None

    streams, state = Streams(UUID, load), history(1)
    assert already_committed(state, Once("q", 2), [DELETE], streams) is None
    streams.accept((), [row(2)])
    assert already_committed(state, Once("q", 2), [DELETE], streams) == MADE
    assert already_committed(state, Once("r", 2), [DELETE], streams) is None
    assert asked == [(UUID, "main", "q"), (UUID, "main", "r")]
    streams.accept((), [row(3)])
    assert streams.written == (row(3),)
    assert streams.forgotten == ()


def test_a_branch_that_moves_back_in_a_round_forgets_what_came_before() -> None:
    streams, base = Streams(UUID, lambda *_: row(9)), apply(history(2), set_ref(2, "audit"))
    streams.accept((), [row(9), row(4, "audit")])
    back = apply(base, set_ref(1))
    streams.accept(branches_moved_back(base, back))
    assert already_committed(back, Once("q", 3), [DELETE], streams) is None
    streams.accept((), [row(3)])
    assert already_committed(back, Once("q", 3), [DELETE], streams) == MADE
    assert set(streams.written) == {row(3), row(4, "audit")}
    assert streams.forgotten == ((UUID, "main"),)


def test_a_request_that_moves_its_own_branch_back_keeps_its_row() -> None:
    streams = Streams(UUID, lambda *_: None)
    streams.accept(["main"], [row(3)])
    assert (streams.written, streams.forgotten) == ((row(3),), ((UUID, "main"),))

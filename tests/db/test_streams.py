"""Stream epochs are written with the swap, never lowered, and deleted with the branch."""

from __future__ import annotations

import pytest

from frazil.db.base import (
    CreateRelation,
    DropRelation,
    KeysTaken,
    StreamRow,
    SwapLost,
    SwapRelation,
)
from frazil.db.rows import Database
from frazil.wire.errors import BadRequest
from tests.db.helpers import (
    commit,
    key_row,
    make,
    must,
    next_version,
    refusal,
    relation,
    renamed,
    swap,
    transaction,
)

LAST_EPOCH = 2**63 - 1


def stream(uuid: str, epoch: int = 1, branch: str = "main", stream_id: str = "q") -> StreamRow:
    return StreamRow(uuid, branch, stream_id, epoch, b'[{"update":0,"snapshot-id":%d}]' % epoch)


def test_a_row_comes_back_as_it_was_written(database: Database) -> None:
    table, other = make(database), make(database, "other")
    row = StreamRow(table.uuid, "main", "query é \U0001f600", LAST_EPOCH, b"[\x00]")
    must(database, swap(table), streams=(row,))
    assert database.stream(table.uuid, "main", row.id) == row
    assert database.stream(table.uuid, "audit", row.id) is None
    assert database.stream(table.uuid, "main", "query") is None
    assert database.stream(other.uuid, "main", row.id) is None


def test_a_table_may_be_created_with_its_first_epoch(database: Database) -> None:
    table = relation("t")
    must(database, CreateRelation(table), streams=(stream(table.uuid, 0),))
    assert database.stream(table.uuid, "main", "q") == stream(table.uuid, 0)


def test_streams_and_branches_are_apart(database: Database) -> None:
    table = make(database)
    rows = (
        stream(table.uuid, 1),
        stream(table.uuid, 2, stream_id="r"),
        stream(table.uuid, 3, branch="audit"),
    )
    must(database, swap(table), streams=rows)
    for row in rows:
        assert database.stream(row.uuid, row.branch, row.id) == row


def test_an_epoch_rises_and_never_falls(database: Database) -> None:
    table = make(database)
    for sent, kept in ((5, 5), (6, 6), (4, 6), (6, 6)):
        sent_row = StreamRow(table.uuid, "main", "q", sent, b"%d" % sent)
        must(database, SwapRelation(table, next_version(table)), streams=(sent_row,))
        found = database.relation(table.identifier)
        assert found is not None
        table = found
        assert database.stream(table.uuid, "main", "q") == StreamRow(
            table.uuid, "main", "q", kept, b"%d" % kept
        )


def test_nothing_is_written_without_the_swap(database: Database) -> None:
    table = make(database)
    stale = swap(table)
    must(database, stale)
    row = stream(table.uuid)
    assert commit(database, swap(table), streams=(row,)) == SwapLost(0)
    database.finalise(taken := key_row("k"))
    current = stale.new
    assert commit(database, swap(current), streams=(row,), keys=(taken,)) == KeysTaken((taken,))
    assert database.stream(table.uuid, "main", "q") is None


def test_nothing_is_forgotten_without_the_swap(database: Database) -> None:
    table = make(database)
    row = stream(table.uuid)
    must(database, swap(table), streams=(row,))
    outcome = commit(database, swap(table), forget_streams=((table.uuid, "main"),))
    assert outcome == SwapLost(0)
    assert database.stream(table.uuid, "main", "q") == row


def test_a_branch_is_forgotten_with_all_its_streams_and_no_other(database: Database) -> None:
    table, other = make(database), make(database, "other")
    first = SwapRelation(table, next_version(table))
    rows = tuple(
        stream(uuid, 7, branch, name)
        for uuid in (table.uuid, other.uuid)
        for branch in ("main", "audit")
        for name in ("q", "r")
    )
    must(database, first, swap(other), streams=rows)
    must(database, swap(first.new), forget_streams=((table.uuid, "main"), (table.uuid, "none")))
    for row in rows:
        forgotten = row.uuid == table.uuid and row.branch == "main"
        assert database.stream(row.uuid, row.branch, row.id) == (None if forgotten else row)


def test_what_is_written_beside_it_is_not_forgotten(database: Database) -> None:
    """A swap can forget a branch's streams and record a new epoch of one of them."""
    table = make(database)
    first = SwapRelation(table, next_version(table))
    must(database, first, streams=(stream(table.uuid, 9),))
    lower = stream(table.uuid, 3)
    must(database, swap(first.new), forget_streams=((table.uuid, "main"),), streams=(lower,))
    assert database.stream(table.uuid, "main", "q") == lower


def test_a_dropped_table_takes_its_streams_with_it(database: Database) -> None:
    table = make(database)
    first = SwapRelation(table, next_version(table))
    must(database, first, streams=(stream(table.uuid),))
    must(database, DropRelation(first.new))
    assert database.stream(table.uuid, "main", "q") is None
    must(database, CreateRelation(first.new))
    assert database.stream(table.uuid, "main", "q") is None


def test_a_renamed_table_keeps_its_streams(database: Database) -> None:
    table = make(database)
    first = SwapRelation(table, next_version(table))
    must(database, first, streams=(stream(table.uuid),))
    must(database, renamed(first.new, "u"))
    assert database.stream(table.uuid, "main", "q") == stream(table.uuid)


def test_the_holder_of_a_row_sees_its_streams(database: Database) -> None:
    table = make(database)
    first = SwapRelation(table, next_version(table))
    must(database, first, streams=(stream(table.uuid, 1),))
    with database.locked([table.uuid], 5) as session:
        assert session.stream(table.uuid, "main", "q") == stream(table.uuid, 1)
        assert session.stream(table.uuid, "main", "r") is None
        session.commit(transaction(swap(first.new), streams=(stream(table.uuid, 2),)))
    assert database.stream(table.uuid, "main", "q") == stream(table.uuid, 2)


@pytest.mark.parametrize(
    ("branch", "stream_id"), [("b\0", "q"), ("main", "q\0"), ("b" * 1025, "q" * 1024)]
)
def test_what_no_index_can_hold_is_refused(database: Database, branch: str, stream_id: str) -> None:
    table = make(database)
    row = stream(table.uuid, 1, branch, stream_id)
    error = refusal(commit(database, swap(table), streams=(row,)))
    assert isinstance(error, BadRequest)
    assert database.relation(table.identifier) == table


def test_the_longest_key_is_kept(database: Database) -> None:
    table = make(database)
    row = stream(table.uuid, 1, "é" * 512, "\U0001f600" * 256)
    must(database, swap(table), streams=(row,))
    assert database.stream(table.uuid, row.branch, row.id) == row

"""Locked rows: others wait while the session reads and commits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from frazil.db.base import Committed, DatabaseUnavailable, KeysTaken, SwapLost, SwapRelation
from frazil.db.rows import Database
from tests.db.helpers import commit, key_row, make, must, next_version, swap, transaction
from tests.support.patience import HANG_S


def test_the_holder_swaps_and_others_lose(database: Database) -> None:
    table = make(database)
    entered = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        with database.locked([table.uuid], 5) as session:
            seen = session.relation_by_uuid(table.uuid)
            assert seen == table
            assert session.relation_by_uuid("absent") is None

            def outsider() -> object:
                entered.set()
                return commit(database, swap(table))

            waiting = threads.submit(outsider)
            entered.wait()
            new = next_version(table)
            assert session.commit(transaction(SwapRelation(table, new))) == Committed()
        assert waiting.result(HANG_S) == SwapLost(0)
    assert database.relation(table.identifier) == new


def test_an_outsider_waits_until_the_rows_are_given_back(database: Database) -> None:
    table = make(database)
    with ThreadPoolExecutor(1) as threads:
        with database.locked([table.uuid], 5) as session:
            waiting = threads.submit(commit, database, swap(table))
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            assert session.relation_by_uuid(table.uuid) == table
        assert waiting.result(HANG_S) == Committed()


def test_other_tables_go_on(database: Database) -> None:
    held, free = make(database, "held"), make(database, "free")
    with database.locked([held.uuid], 5):
        must(database, swap(free))
        assert database.relation(held.identifier) == held


def test_rows_that_are_held_cannot_be_had_in_time(database: Database) -> None:
    first, second = make(database, "a"), make(database, "b")
    with (
        database.locked([second.uuid], 5),
        pytest.raises(DatabaseUnavailable),
        database.locked([first.uuid, second.uuid], 0.1),
    ):
        pytest.fail("the rows were handed out twice")
    with database.locked([first.uuid, second.uuid], 0.1) as session:
        assert session.commit(transaction(swap(first), swap(second))) == Committed()


def test_the_rows_stay_held_after_a_transaction_that_is_not_committed(database: Database) -> None:
    table = make(database)
    database.finalise(taken := key_row("k"))
    with database.locked([table.uuid], 5) as session:
        new = next_version(table)
        twice = transaction(SwapRelation(table, new), keys=(taken, key_row("free")))
        assert session.commit(twice) == KeysTaken((taken,))
        assert session.commit(transaction(swap(next_version(table)))) == SwapLost(0)
        with pytest.raises(DatabaseUnavailable), database.locked([table.uuid], 0.05):
            pytest.fail("the rows were given back")
        rest = transaction(SwapRelation(table, new), keys=(key_row("free"),))
        assert session.commit(rest) == Committed()
    assert database.relation(table.identifier) == new
    assert database.key("anna", "free") is not None


def test_a_session_commits_once(database: Database) -> None:
    table = make(database)
    with database.locked([table.uuid], 5) as session:
        assert session.commit(transaction(swap(table))) == Committed()
        with pytest.raises(RuntimeError, match="commits once"):
            session.commit(transaction(swap(table)))


def test_an_error_in_the_block_gives_the_rows_back(database: Database) -> None:
    table = make(database)
    with pytest.raises(ZeroDivisionError), database.locked([table.uuid], 5):
        raise ZeroDivisionError
    with database.locked([table.uuid], 1) as session:
        assert session.commit(transaction(swap(table))) == Committed()


def test_a_session_may_change_rows_it_does_not_hold(database: Database) -> None:
    held, other = make(database, "held"), make(database, "other")
    with database.locked([held.uuid], 5) as session:
        assert session.commit(transaction(swap(held), swap(other))) == Committed()


def test_sets_of_rows_are_taken_in_turn(database: Database) -> None:
    """Sessions that repeatedly lock overlapping sets from both ends do not block forever."""
    first, second = make(database, "a"), make(database, "b")

    def take(uuids: list[str]) -> int:
        for _ in range(10):
            with database.locked(uuids, 20) as session:
                current = [session.relation_by_uuid(uuid) for uuid in sorted(uuids)]
                changes = [swap(one) for one in current if one is not None]
                assert session.commit(transaction(*changes)) == Committed()
        return 10

    with ThreadPoolExecutor(2) as threads:
        both = [[first.uuid, second.uuid], [second.uuid, first.uuid]]
        assert sum(threads.map(take, both)) == 20
    for table in (first, second):
        final = database.relation(table.identifier)
        assert final is not None
        assert final.version == 21

"""Of concurrent changes exactly one wins, and the others are told so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from frazil.db.base import (
    Committed,
    CreateNamespace,
    CreateRelation,
    DropNamespace,
    KeysTaken,
    Refused,
    Relation,
    SwapLost,
    SwapRelation,
    TransactionOutcome,
)
from frazil.db.rows import Database
from frazil.wire.errors import AlreadyExists, Forbidden, NamespaceNotEmpty, NoSuchNamespace
from tests.db.helpers import (
    commit,
    key_row,
    make,
    make_namespace,
    next_version,
    race,
    relation,
    renamed,
    swap,
)

Call = Callable[[], TransactionOutcome]


def kinds(outcomes: list[TransactionOutcome]) -> Counter[type]:
    return Counter(
        type(outcome.error) if isinstance(outcome, Refused) else type(outcome)
        for outcome in outcomes
    )


def test_of_racing_swaps_exactly_one_is_committed(database: Database) -> None:
    table = make(database)
    for _ in range(5):
        changes = [swap(table) for _ in range(8)]
        outcomes = race([partial(commit, database, change) for change in changes])
        assert kinds(outcomes) == {Committed: 1, SwapLost: 7}
        winner = changes[outcomes.index(Committed())].new
        assert database.relation(table.identifier) == winner
        table = winner


def test_writers_that_retry_all_get_through(database: Database) -> None:
    table = make(database)

    def write() -> int:
        lost = 0
        while True:
            current = database.relation(table.identifier)
            assert current is not None
            if commit(database, swap(current)) == Committed():
                return lost
            lost += 1

    race([write] * 8)
    final = database.relation(table.identifier)
    assert final is not None
    assert final.version == 9


def test_swaps_of_different_tables_do_not_disturb_each_other(database: Database) -> None:
    tables = [make(database, f"t{n}") for n in range(8)]

    def write(table: Relation) -> Relation:
        for _ in range(5):
            new = next_version(table)
            assert commit(database, SwapRelation(table, new)) == Committed()
            table = new
        return table

    finals = race([partial(write, table) for table in tables])
    assert [database.relation(final.identifier) for final in finals] == finals


def test_swaps_of_many_tables_in_opposite_orders(database: Database) -> None:
    """Even if swaps ignore the rule to lock rows in the order of uuids, none is applied in part."""
    first, second = make(database, "a"), make(database, "b")
    for _ in range(5):
        forth, back = (swap(first), swap(second)), (swap(second), swap(first))
        outcomes = race([partial(commit, database, *forth), partial(commit, database, *back)])
        assert kinds(outcomes) == {Committed: 1, SwapLost: 1}
        won = forth if outcomes[0] == Committed() else back
        first, second = sorted((one.new for one in won), key=lambda new: new.identifier)
        assert database.relation(first.identifier) == first
        assert database.relation(second.identifier) == second


def test_of_racing_creates_exactly_one_is_committed(database: Database) -> None:
    for number in range(5):
        calls: list[Call] = [
            partial(commit, database, CreateRelation(relation(f"t{number}"))) for _ in range(6)
        ]
        assert kinds(race(calls)) == {Committed: 1, AlreadyExists: 5}


def test_racing_renames_onto_one_name(database: Database) -> None:
    for number in range(5):
        tables = [make(database, f"from{number}_{n}") for n in range(4)]
        calls: list[Call] = [
            partial(commit, database, renamed(table, f"to{number}")) for table in tables
        ]
        assert kinds(race(calls)) == {Committed: 1, AlreadyExists: 3}


def test_of_racing_nested_locations_exactly_one_is_committed(database: Database) -> None:
    for number in range(5):
        base = f"s3://bucket/{number}"
        nested = [base, base + "/a", base + "/a/b", base + "/a/b/c"]
        calls: list[Call] = [
            partial(commit, database, CreateRelation(relation(f"t{number}_{n}"), (location,)))
            for n, location in enumerate(nested)
        ]
        outcomes = race(calls)
        # Any two of these locations nest, so the first one excludes all the others.
        assert kinds(outcomes) == {Committed: 1, Forbidden: 3}


def test_racing_moves_into_each_others_locations(database: Database) -> None:
    first, second = make(database, "a", "s3://b/a"), make(database, "b", "s3://b/b")
    calls: list[Call] = [
        partial(commit, database, SwapRelation(first, next_version(first), ("s3://b/new",))),
        partial(commit, database, SwapRelation(second, next_version(second), ("s3://b/new/x",))),
    ]
    assert kinds(race(calls)) == {Committed: 1, Forbidden: 1}


def test_a_key_raced_by_two_transactions(database: Database) -> None:
    for number in range(5):
        first, second = make(database, f"a{number}"), make(database, f"b{number}")
        row = key_row(f"k{number}")
        calls: list[Call] = [
            partial(commit, database, swap(table), keys=(row,)) for table in (first, second)
        ]
        outcomes = race(calls)
        assert kinds(outcomes) == {Committed: 1, KeysTaken: 1}
        assert KeysTaken((row,)) in outcomes
        loser = second if outcomes[0] == Committed() else first
        assert database.relation(loser.identifier) == loser


def test_keys_in_opposite_orders(database: Database) -> None:
    tables = [make(database, "a"), make(database, "b")]
    rows = (key_row("k1"), key_row("k2"))
    calls: list[Call] = [
        partial(commit, database, swap(tables[0]), keys=rows),
        partial(commit, database, swap(tables[1]), keys=rows[::-1]),
    ]
    assert kinds(race(calls)) == {Committed: 1, KeysTaken: 1}


def test_a_key_raced_by_finalise(database: Database) -> None:
    rows = [key_row("k", status=400 + n) for n in range(6)]
    answers = race([partial(database.finalise, row) for row in rows])
    assert len(set(answers)) == 1
    assert database.key("anna", "k") == answers[0]


@pytest.mark.parametrize("inhabitant", ["table", "namespace"])
def test_a_namespace_is_not_dropped_under_what_enters_it(
    database: Database, inhabitant: str
) -> None:
    for number in range(6):
        level = f"n{number}"
        make_namespace(database, level)
        enter = (
            CreateRelation(relation("t", namespace=(level,)))
            if inhabitant == "table"
            else CreateNamespace((level, "child"), {})
        )
        calls: list[Call] = [
            partial(commit, database, DropNamespace((level,))),
            partial(commit, database, enter),
        ]
        dropped, entered = race(calls)
        if dropped == Committed() and inhabitant == "namespace":
            # The child creates its parent again.
            assert entered == Committed()
            assert database.namespace_properties((level,)) == {}
        elif dropped == Committed():
            assert kinds([entered]) == {NoSuchNamespace: 1}
            assert database.namespace_properties((level,)) is None
        else:
            assert kinds([dropped]) == {NamespaceNotEmpty: 1}
            assert entered == Committed()

"""The outbox has one row for each version; positions are assigned later and only increase."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from frazil.db.base import CreateRelation, DropRelation, KeysTaken, Relation, SwapLost, SwapRelation
from frazil.db.rows import Database
from tests.db.helpers import commit, event, key_row, make, must, next_version, race, relation, swap


def advance(database: Database, table: Relation, versions: int) -> Relation:
    for _ in range(versions):
        new = next_version(table)
        must(database, SwapRelation(table, new), events=(event(new),))
        table = new
    return table


def test_an_event_is_seen_once_it_has_a_position(database: Database) -> None:
    table = make(database, "naïve")
    new = next_version(table)
    must(database, SwapRelation(table, new), events=(event(new),))
    assert database.events(0, 10) == []
    assert database.assign_positions(10) == 1
    assert database.events(0, 10) == [(1, event(new))]
    assert database.assign_positions(10) == 0


def test_a_group_writes_one_event_for_each_request(database: Database) -> None:
    table = make(database)
    versions = [table]
    for _ in range(3):
        versions.append(next_version(versions[-1]))
    events = tuple(event(version) for version in versions[1:])
    must(database, SwapRelation(table, versions[-1]), events=events)
    database.assign_positions(10)
    assert [placed for _, placed in database.events(0, 10)] == list(events)


def test_pages_and_limits(database: Database) -> None:
    advance(database, make(database), 5)
    assert database.assign_positions(2) == 2
    assert [position for position, _ in database.events(0, 10)] == [1, 2]
    assert database.assign_positions(10) == 3
    assert [position for position, _ in database.events(1, 3)] == [2, 3, 4]
    assert [position for position, _ in database.events(4, 10)] == [5]
    assert database.events(5, 10) == []


def test_what_is_not_committed_has_no_event(database: Database) -> None:
    table = make(database)
    new = next_version(table)
    database.finalise(taken := key_row("k"))
    outcome = commit(database, SwapRelation(table, new), keys=(taken,), events=(event(new),))
    assert outcome == KeysTaken((taken,))
    stale = next_version(new)
    assert commit(database, SwapRelation(new, stale), events=(event(stale),)) == SwapLost(0)
    assert database.assign_positions(10) == 0


def test_a_version_has_one_event(database: Database) -> None:
    """Versions continue to count when a table is registered again under its old uuid."""
    table = make(database)
    assert database.last_version(table.uuid) == 0
    table = advance(database, table, 2)
    gone = next_version(table)
    must(database, DropRelation(table), events=(event(gone, "drop"),))
    assert database.last_version(table.uuid) == gone.version == 4

    again = relation("other")
    reborn = Relation(again.kind, again.identifier, table.uuid, again.metadata_location, 3)
    outcome = commit(database, CreateRelation(reborn), events=(event(reborn, "register"),))
    assert outcome == SwapLost(0)
    assert database.relation(again.identifier) is None

    counted = next_version(gone)
    must(database, CreateRelation(counted), events=(event(counted, "register"),))
    assert database.last_version(table.uuid) == 5


def test_the_index_of_a_used_version_names_its_change(database: Database) -> None:
    other, table = make(database, "other"), advance(database, make(database), 1)
    new = next_version(table)
    outcome = commit(database, swap(other), SwapRelation(table, new), events=(event(table),))
    assert outcome == SwapLost(1)


def test_positions_rise_while_writers_and_relays_run(database: Database) -> None:
    """With several relays at once there are no gaps and no duplicates, the events of each table
    are in order, and a reader never sees a position below one that it has already seen."""
    tables = [make(database, f"t{n}") for n in range(4)]
    versions = 12
    seen: list[int] = []

    def write(table: Relation) -> int:
        advance(database, table, versions)
        return 0

    def relay() -> int:
        return sum(database.assign_positions(5) for _ in range(60))

    def read() -> int:
        for _ in range(60):
            seen.extend(p for p, _ in database.events(seen[-1] if seen else 0, 7))
        return 0

    calls: list[Callable[[], int]] = [partial(write, table) for table in tables]
    placed = sum(race([*calls, relay, relay, read]))
    while more := database.assign_positions(5):
        placed += more
    assert placed == versions * len(tables)
    seen.extend(p for p, _ in database.events(seen[-1] if seen else 0, 1000))
    assert seen == list(range(1, placed + 1))
    for table in tables:
        mine = [e.version for _, e in database.events(0, 1000) if e.uuid == table.uuid]
        assert mine == list(range(2, versions + 2))


def test_relays_share_the_work(database: Database) -> None:
    """Each event gets its position from one relay: the counts add up and no position is used
    twice."""
    table = make(database)
    versions = [table]
    for _ in range(60):
        versions.append(next_version(versions[-1]))
    events = tuple(event(version) for version in versions[1:])
    must(database, SwapRelation(table, versions[-1]), events=events)

    def relay() -> int:
        placed = 0
        while more := database.assign_positions(3):
            placed += more
        return placed

    assert sum(race([relay] * 4)) == 60
    assert database.events(0, 100) == list(enumerate(events, start=1))

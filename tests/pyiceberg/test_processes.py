"""Eight PyIceberg processes write to one table at once.

Writes that do not conflict all succeed with one request each. Conflicting writes are refused
with a reason, and leave neither rows nor files.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from tests.pyiceberg.audit import audit, operations
from tests.pyiceberg.crew import WRITERS, Crew, Outcome, started
from tests.pyiceberg.tables import Row, create, in_order, partition_of, read
from tests.pyiceberg.worker import from_json
from tests.support.patience import wait_until
from tests.support.server import RunningServer

APPENDS = 20
LANDED = Outcome()
KEYS: Mapping[str, Sequence[str]] = {
    "unpartitioned": ["id"],
    "identity": ["item", "id"],
    "bucket": ["id"],
    "truncate": ["id"],
    "day": ["at", "id"],
}
"""The join columns of an upsert, so that a filter on them also filters the partition."""


@pytest.fixture(scope="package")
def crew(one_server: RunningServer) -> Iterator[Crew]:
    with started(one_server.url) as crew:
        yield crew


def row_of(writer: int, number: int, amount: int) -> dict[str, Any]:
    """Return a row in the writer's own partition by item and by day; ids of all writers are
    mixed."""
    day = datetime.datetime(2026, 3, 1 + writer, 6, tzinfo=datetime.UTC)
    return {
        "id": number,
        "item": f"writer-{writer}",
        "at": int(day.timestamp()) * 1_000_000,
        "amount": amount,
    }


def ids_of(partitioning: str, count: int) -> list[list[int]]:
    """Return ids for each writer that share no partition with another writer's ids."""
    if partitioning == "truncate":
        return [list(range(writer * 8, writer * 8 + count)) for writer in range(WRITERS)]
    if partitioning == "bucket":
        found: list[list[int]] = [[] for _ in range(WRITERS)]
        for number in itertools.count(1):
            found[partition_of("bucket", {"id": number})].append(number)
            if all(len(own) >= count for own in found):
                return [own[:count] for own in found]
    return [list(range(writer, count * WRITERS, WRITERS)) for writer in range(WRITERS)]


def rows_in_order(given: Sequence[Mapping[str, Any]]) -> list[Row]:
    found = from_json(given).to_pylist()
    return in_order(tuple(one[name] for name in sorted(one)) for one in found)


def commits(server: RunningServer, table: str, wanted: int) -> list[str]:
    """Return the statuses of the commit requests that the server received for the table."""
    pattern = re.compile(rf"operation=updateTable table={re.escape(table)} status=(\d+)")
    wait_until(lambda: len(pattern.findall(server.log)) >= wanted, "a commit was not logged")
    return pattern.findall(server.log)


def assert_refused(outcome: Outcome) -> None:
    assert "ValidationException" in outcome.bases, outcome
    assert outcome.conflicts > 0, outcome


# --- what does not meet ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitioning", "version", "appends"),
    [
        pytest.param("unpartitioned", 2, APPENDS),
        pytest.param("identity", 1, 3),
        pytest.param("bucket", 3, 3),
        pytest.param("identity", 1, APPENDS, marks=pytest.mark.full),
        pytest.param("bucket", 3, APPENDS, marks=pytest.mark.full),
        pytest.param("day", 2, APPENDS, marks=pytest.mark.full),
        pytest.param("truncate", 3, APPENDS, marks=pytest.mark.full),
    ],
)
def test_all_appends_land_by_one_request_each(
    frazil: Catalog,
    catalog_server: RunningServer,
    crew: Crew,
    namespace: str,
    partitioning: str,
    version: int,
    appends: int,
) -> None:
    name, all_of_them = f"{namespace}.t", WRITERS * appends
    create(frazil, name, partitioning, version)
    given = [
        [row_of(writer, writer * 1000 + number, number) for number in range(appends)]
        for writer in range(WRITERS)
    ]
    outcomes = crew.write(name, [[{"do": "append", "rows": [one]} for one in own] for own in given])
    assert outcomes == [[LANDED] * appends] * WRITERS
    assert commits(catalog_server, name, all_of_them) == ["200"] * all_of_them

    table = frazil.load_table(name)
    assert read(table) == rows_in_order([one for own in given for one in own])
    metadata = audit(table)
    assert operations(metadata) == ["append"] * all_of_them
    parents = [found.get("parent-snapshot-id") for found in metadata["snapshots"]]
    assert parents == [None, *(found["snapshot-id"] for found in metadata["snapshots"][:-1])]


DISJOINT = [
    pytest.param(partitioning, version, marks=() if chosen else pytest.mark.full)
    for partitioning, version, chosen in (
        ("bucket", 1, False),
        ("bucket", 2, True),
        ("bucket", 3, True),
        ("identity", 1, True),
        ("identity", 3, False),
        ("truncate", 2, False),
        ("truncate", 3, False),
        ("day", 1, False),
        ("day", 3, False),
    )
]


@pytest.mark.parametrize(("partitioning", "version"), DISJOINT)
def test_disjoint_deletes_all_land(
    frazil: Catalog,
    catalog_server: RunningServer,
    crew: Crew,
    namespace: str,
    partitioning: str,
    version: int,
) -> None:
    name = f"{namespace}.t"
    numbers = ids_of(partitioning, 6)
    table = create(frazil, name, partitioning, version)
    given = {
        number: row_of(writer, number, number)
        for writer, own in enumerate(numbers)
        for number in own
    }
    table.append(from_json(given.values()))
    writes = [
        [{"do": "delete", "filter": _filter(partitioning, writer, part)} for part in parts(own)]
        for writer, own in enumerate(numbers)
    ]
    assert crew.write(name, writes) == [[LANDED] * 3] * WRITERS
    assert commits(catalog_server, name, 1 + 3 * WRITERS) == ["200"] * (1 + 3 * WRITERS)
    gone = {number for own in numbers for part in parts(own) for number in part}
    table.refresh()
    assert read(table) == rows_in_order([given[number] for number in given if number not in gone])
    audit(table)


def parts(own: Sequence[int]) -> list[Sequence[int]]:
    """Return the ids of one writer's three deletes, which leave two of its rows."""
    return [own[0:1], own[2:4], own[4:5]]


def _filter(partitioning: str, writer: int, numbers: Sequence[int]) -> str:
    some = "id in ({})".format(", ".join(map(str, numbers)))
    if partitioning == "identity":
        return f"item = 'writer-{writer}' and {some}"
    if partitioning == "day":
        day = f"2026-03-{1 + writer:02}T"
        return f"at >= '{day}00:00:00' and at <= '{day}23:59:59' and {some}"
    return some


@pytest.mark.parametrize(("partitioning", "version"), DISJOINT)
def test_disjoint_upserts_all_land(
    frazil: Catalog,
    catalog_server: RunningServer,
    crew: Crew,
    namespace: str,
    partitioning: str,
    version: int,
) -> None:
    name = f"{namespace}.t"
    numbers = ids_of(partitioning, 6)
    table = create(frazil, name, partitioning, version)
    wanted = {
        number: row_of(writer, number, 0)
        for writer, own in enumerate(numbers)
        for number in own[:4]
    }
    table.append(from_json(wanted.values()))
    writes: list[list[dict[str, Any]]] = [[] for _ in range(WRITERS)]
    for writer, own in enumerate(numbers):
        # The last two ids of each writer are inserted first and updated later.
        for amount, touched in enumerate((own[1:5], own[3:6], own[0:6:2]), start=1):
            new = {number: row_of(writer, number, amount) for number in touched}
            writes[writer].append(
                {"do": "upsert", "keys": KEYS[partitioning], "rows": list(new.values())}
            )
            wanted |= new
    assert crew.write(name, writes) == [[LANDED] * 3] * WRITERS
    assert commits(catalog_server, name, 1 + 3 * WRITERS) == ["200"] * (1 + 3 * WRITERS)
    table.refresh()
    assert read(table) == rows_in_order(list(wanted.values()))
    audit(table)


# --- what does meet -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitioning", "version"),
    [
        pytest.param("bucket", 2),
        pytest.param("day", 3),
        pytest.param("truncate", 1, marks=pytest.mark.full),
        pytest.param("identity", 2, marks=pytest.mark.full),
        pytest.param("unpartitioned", 3, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("write", ["upsert", "delete", "overwrite"])
def test_one_of_those_that_meet_lands(
    frazil: Catalog, crew: Crew, namespace: str, partitioning: str, version: int, write: str
) -> None:
    """All writers have read the same rows and change the same ones, so only the first can
    commit."""
    name = f"{namespace}.t"
    table = create(frazil, name, partitioning, version)
    base = [row_of(0, number, 0) for number in range(1, 7)]
    table.append(from_json(base))
    before = read(table)
    writes = [[_meeting_write(write, writer)] for writer in range(WRITERS)]
    outcomes = [own[0] for own in crew.write(name, writes)]
    (winner,) = [writer for writer, outcome in enumerate(outcomes) if outcome == LANDED]
    for writer, outcome in enumerate(outcomes):
        if writer != winner:
            assert_refused(outcome)
    table.refresh()
    added = writes[winner][0].get("rows", [])
    gone = {one["id"] for one in added} | {2, 3}
    assert read(table) == rows_in_order([*(one for one in base if one["id"] not in gone), *added])
    assert before != read(table)
    audit(table)


def _meeting_write(write: str, writer: int) -> dict[str, Any]:
    changed = [row_of(0, number, writer + 1) for number in (2, 3)]
    match write:
        case "upsert":
            return {"do": "upsert", "keys": ["id"], "rows": [*changed, row_of(0, 50, writer)]}
        case "delete":
            return {"do": "delete", "filter": "id in (2, 3)"}
        case _:
            return {"do": "overwrite", "filter": "id in (2, 3)", "rows": changed}


def test_deletes_race_appends_of_such_rows(frazil: Catalog, crew: Crew, namespace: str) -> None:
    """A delete commits only if it is the first commit. Every append commits."""
    name = f"{namespace}.t"
    table = create(frazil, name, "bucket", 2)
    base = [row_of(0, number, 0) for number in range(1, 9)]
    table.append(from_json(base))
    appended = [row_of(0, 100 + writer, 0) for writer in range(WRITERS // 2)]
    writes: list[list[dict[str, Any]]] = []
    for writer in range(WRITERS // 2):
        writes.append([{"do": "append", "rows": [appended[writer]]}])
        writes.append([{"do": "delete", "filter": "amount = 0"}])
    outcomes = [own[0] for own in crew.write(name, writes)]
    assert outcomes[0::2] == [LANDED] * (WRITERS // 2)
    deleted = [outcome for outcome in outcomes[1::2] if outcome == LANDED]
    assert len(deleted) <= 1
    for outcome in outcomes[1::2]:
        if outcome != LANDED:
            assert_refused(outcome)
    table.refresh()
    assert read(table) == rows_in_order(appended if deleted else [*base, *appended])
    audit(table)

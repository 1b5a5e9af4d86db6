"""Row lineage of format version 3: every row has its own id and keeps it.

`trees.check_tree` checks for every snapshot of these tests that ids are disjoint, below
`next-row-id`, and unchanged in files that stay.
"""

from __future__ import annotations

import pytest

from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import TableFactory
from tests.commit.finegrained.requests import append
from tests.commit.finegrained.tables import Table


@pytest.fixture
def table(new_table: TableFactory) -> Table:
    return new_table(version=3)


def first_row_ids(table: Table) -> dict[str, int | None]:
    return {name: entry.first_row_id for name, entry in table.entries().items() if entry.is_data}


def test_rows_are_numbered_from_the_first_file_on(table: Table) -> None:
    snapshot = table.append(table.data("a", 0, rows=5), table.data("b", 1, rows=7))
    assert first_row_ids(table) == {"a": 0, "b": 5}
    assert (snapshot["first-row-id"], snapshot["added-rows"]) == (0, 12)
    assert table.metadata["next-row-id"] == 12
    snapshot = table.append(table.data("c", 0, rows=3))
    assert first_row_ids(table) == {"a": 0, "b": 5, "c": 12}
    assert (snapshot["first-row-id"], snapshot["added-rows"]) == (12, 3)


def test_a_clients_first_row_id_is_not_used(table: Table) -> None:
    table.append(table.data("a", 0, rows=5, first_row_id=1000))
    assert first_row_ids(table) == {"a": 0}


def test_ids_stay_when_neighbours_go(table: Table) -> None:
    table.append(*(table.data(f"f{n}", 0, rows=10) for n in range(4)))
    table.delete(table.data_path("f1"))
    assert first_row_ids(table) == {"f0": 0, "f2": 20, "f3": 30}
    table.append(table.data("new", 0, rows=1))
    ids = first_row_ids(table)
    assert {name: ids[name] for name in ("f0", "f2", "f3")} == {"f0": 0, "f2": 20, "f3": 30}
    assert (ids["new"] or 0) >= 40


def test_ids_stay_across_merges(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="3"))
    for number in range(10):
        table.append(table.data(f"f{number}", 0, rows=number + 1))
    starts = {}
    start = 0
    seen = set()
    for number in range(10):
        starts[f"f{number}"] = start
        start += number + 1
    ids = first_row_ids(table)
    assert len(table.tree().manifests) < 10
    for name, first in ids.items():
        assert first is not None
        seen |= set(range(first, first + int(name[1:]) + 1))
    assert len(seen) == 55, "no id is given twice"


def test_ids_stay_across_merges_and_removals(table: Table) -> None:
    table.commit(send.set_properties(commit_manifest_min__count__to__merge="2"))
    known: dict[str, int | None] = {}
    for number in range(12):
        table.append(table.data(f"f{number}", number % 3, rows=4))
        if number % 4 == 3:
            table.delete(table.data_path(f"f{number - 2}"))
        ids = first_row_ids(table)
        for name, first in known.items():
            assert ids.get(name, first) == first, name
        known |= ids


def test_a_rewrite_gives_new_ids_to_new_files(table: Table) -> None:
    """Rewritten rows keep their ids in columns of the file; the file itself gets a new range of
    ids."""
    a, b = table.data("a", 0, rows=5), table.data("b", 0, rows=5)
    table.append(a, b)
    table.replace(remove=[a], add=[table.data("a2", 0, rows=5)])
    ids = first_row_ids(table)
    assert ids["b"] == 5
    assert (ids["a2"] or 0) >= 10


def test_branches_share_the_numbers(table: Table) -> None:
    table.append(table.data("a", 0, rows=10))
    one = table.append(table.data("b", 0, rows=5), branch="one")
    two = table.append(table.data("c", 0, rows=6), branch="two")
    main = table.append(table.data("d", 0, rows=1))
    firsts = [snapshot["first-row-id"] for snapshot in (one, two, main)]
    assert firsts == [10, 15, 21]
    assert table.metadata["next-row-id"] == 22


def test_a_delete_without_rewritten_rows_takes_no_ids(table: Table) -> None:
    a = table.data("a", 0, rows=10)
    table.append(a)
    snapshot = table.overwrite(add_deletes=[table.vector("v", a)])
    assert (snapshot["first-row-id"], snapshot["added-rows"]) == (10, 0)
    assert table.metadata["next-row-id"] == 10


def test_an_upgraded_table_numbers_its_old_rows(new_table: TableFactory) -> None:
    table = new_table(version=2)
    table.append(table.data("a", 0, rows=5))
    table.append(table.data("b", 0, rows=7))
    table.commit({"action": "upgrade-format-version", "format-version": 3})
    table.append(table.data("c", 0, rows=2))
    ids = first_row_ids(table)
    assert sorted(first for first in ids.values() if first is not None) == sorted(
        first or 0 for first in ids.values()
    )
    rows = {"a": 5, "b": 7, "c": 2}
    taken = sorted(
        number
        for name, first in ids.items()
        for number in range(first or 0, (first or 0) + rows[name])
    )
    assert taken == list(range(14))
    assert table.metadata["next-row-id"] == 14


def test_two_appends_in_one_request(table: Table) -> None:
    table.commit(append(table.data("a", 0, rows=5)), append(table.data("b", 0, rows=5)))
    assert first_row_ids(table) == {"a": 0, "b": 5}
    assert table.metadata["next-row-id"] == 10


def test_a_published_snapshot_gets_ids_of_its_own(table: Table) -> None:
    table.append(table.data("a", 0, rows=5))
    staged = table.append(table.data("b", 0, rows=5), stage_only=True)
    table.append(table.data("c", 0, rows=5))
    picked = table.cherry_pick(staged)
    assert staged["first-row-id"] == 5
    assert picked["first-row-id"] == 15
    assert table.metadata["next-row-id"] == 20

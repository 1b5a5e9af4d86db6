"""The locations of two tables never overlap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.db.base import Committed, CreateRelation, DropRelation, SwapRelation
from frazil.db.rows import Database, prefixes
from frazil.wire.errors import BadRequest, Forbidden
from tests.db.helpers import commit, make, must, next_version, refusal, relation, swap

OWNED = "s3://bucket/a/owned"


@pytest.mark.parametrize(
    ("wanted", "how"),
    [
        (OWNED, "is"),
        (OWNED + "/", "is"),
        (OWNED + "/below", "lies in"),
        (OWNED + "/far/below", "lies in"),
        ("s3://bucket/a", "holds"),
        ("s3://bucket", "holds"),
        ("s3://", "holds"),
    ],
)
def test_a_nested_location_is_refused(database: Database, wanted: str, how: str) -> None:
    make(database, "owner", OWNED)
    error = refusal(commit(database, CreateRelation(relation("t"), (wanted,))))
    assert isinstance(error, Forbidden)
    assert f"Location {wanted.rstrip('/')} of ns.t {how} {OWNED}, a location of" in error.message
    assert "choose one" in error.message
    assert database.relation(relation("t").identifier) is None


@pytest.mark.parametrize(
    "wanted",
    [
        "s3://bucket/a/owned_other",
        "s3://bucket/a/owned0",
        "s3://bucket/a/owned.d/x",
        "s3://bucket/a/owne",
        "s3://bucket/a/Owned",
        "s3://bucket/b",
        "s3://other/a/owned",
        "file:/bucket/a/owned",
    ],
)
def test_a_neighbour_is_no_nesting(database: Database, wanted: str) -> None:
    make(database, "owner", OWNED)
    assert commit(database, CreateRelation(relation("t"), (wanted,))) == Committed()


def test_every_location_of_a_table_counts(database: Database) -> None:
    make(database, "owner", OWNED, "s3://bucket/data")
    wanted = ("s3://bucket/b", "s3://bucket/data/t")
    assert isinstance(refusal(commit(database, CreateRelation(relation("t"), wanted))), Forbidden)
    assert database.owner_of_location("s3://bucket/b") is None


def test_locations_of_one_table_may_nest(database: Database) -> None:
    table = make(database, "t", OWNED, OWNED + "/data", OWNED + "/data/x", OWNED)
    assert database.owner_of_location(OWNED + "/data/x/1.parquet") == table.uuid


def test_the_owner_is_found_from_anywhere_below(database: Database) -> None:
    table = make(database, "t", OWNED)
    for below in (OWNED, OWNED + "/", OWNED + "/data/a=1/f.parquet"):
        assert database.owner_of_location(below) == table.uuid
    for beside in ("s3://bucket/a", OWNED + "x", "s3://bucket/a/other", ""):
        assert database.owner_of_location(beside) is None


def test_two_creates_in_one_transaction_are_checked_against_each_other(
    database: Database,
) -> None:
    first = CreateRelation(relation("a"), (OWNED,))
    second = CreateRelation(relation("b"), (OWNED + "/b",))
    assert isinstance(refusal(commit(database, first, second), index=1), Forbidden)


def test_a_swap_moves_its_locations(database: Database) -> None:
    table = make(database, "t", OWNED)
    moved = next_version(table)
    must(database, SwapRelation(table, moved, ("s3://bucket/new", "s3://bucket/more")))
    assert database.owner_of_location(OWNED) is None
    assert database.owner_of_location("s3://bucket/new") == table.uuid
    must(database, swap(moved))
    assert database.owner_of_location("s3://bucket/more") == table.uuid


def test_a_swap_onto_another_tables_location_is_refused(database: Database) -> None:
    make(database, "owner", OWNED)
    table = make(database, "t", "s3://bucket/t")
    change = SwapRelation(table, next_version(table), ("s3://bucket/t", OWNED + "/t"))
    assert isinstance(refusal(commit(database, change)), Forbidden)
    assert database.relation(table.identifier) == table
    assert database.owner_of_location("s3://bucket/t") == table.uuid


def test_a_swap_may_keep_or_give_up_its_locations(database: Database) -> None:
    table = make(database, "t", OWNED)
    same = next_version(table)
    must(database, SwapRelation(table, same, (OWNED + "/",)))
    assert database.owner_of_location(OWNED) == table.uuid
    must(database, SwapRelation(same, next_version(same), ()))
    assert database.owner_of_location(OWNED) is None


def test_tables_may_trade_places(database: Database) -> None:
    first, second = make(database, "a", "s3://bucket/a"), make(database, "b", "s3://bucket/b")
    must(
        database,
        SwapRelation(first, next_version(first), ("s3://bucket/b",)),
        SwapRelation(second, next_version(second), ("s3://bucket/a",)),
    )
    assert database.owner_of_location("s3://bucket/a") == second.uuid
    assert database.owner_of_location("s3://bucket/b") == first.uuid


def test_a_drop_frees_its_locations(database: Database) -> None:
    table = make(database, "t", OWNED)
    must(database, DropRelation(table))
    assert database.owner_of_location(OWNED) is None
    must(database, CreateRelation(relation("u"), ("s3://bucket/a",)))


@pytest.mark.parametrize("location", ["s3://b/" + "x" * 3000, "s3://b/\0"])
def test_a_location_that_cannot_be_stored_is_a_bad_request(
    database: Database, location: str
) -> None:
    error = refusal(commit(database, CreateRelation(relation("t"), (location,))))
    assert isinstance(error, BadRequest)
    assert "location" in error.message


def test_a_rename_does_not_touch_locations(database: Database) -> None:
    table = make(database, "t", OWNED)
    new = replace(next_version(table), identifier=relation("u").identifier)
    must(database, SwapRelation(table, new))
    assert database.owner_of_location(OWNED) == table.uuid


def test_prefixes_are_the_location_and_all_folders_above() -> None:
    assert prefixes("s3://b/x/y/") == ["s3://b/x/y", "s3://b/x", "s3://b", "s3:/", "s3:"]
    assert prefixes("file:/tmp") == ["file:/tmp", "file:"]
    assert prefixes("") == []

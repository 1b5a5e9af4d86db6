"""Tables and views share one set of names and one compare-and-swap."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from frazil.db.base import (
    CommitIdTaken,
    Committed,
    CreateNamespace,
    CreateRelation,
    DropRelation,
    Kind,
    Relation,
    SwapLost,
    SwapRelation,
    Transaction,
)
from frazil.db.rows import Database
from frazil.wire.errors import AlreadyExists, BadRequest, NoSuchNamespace
from frazil.wire.identifiers import Identifier
from tests.db.helpers import (
    commit,
    make,
    make_namespace,
    must,
    next_version,
    refusal,
    relation,
    renamed,
    swap,
    transaction,
    view,
)


def test_a_relation_is_found_by_name_and_by_uuid(database: Database) -> None:
    made = relation("naïve.t/1 🧊", Kind.VIEW)
    must(database, CreateRelation(made))
    assert database.relation(made.identifier) == made
    assert database.relation_by_uuid(made.uuid) == made
    assert database.relation(Identifier(("ns",), "absent")) is None
    assert database.relation(Identifier((), "naïve.t/1 🧊")) is None
    assert database.relation_by_uuid(str(uuid.uuid4())) is None


def test_names_are_told_apart_by_case(database: Database) -> None:
    lower, upper = make(database, "t"), make(database, "T")
    assert database.relation(lower.identifier) == lower
    assert database.relation(upper.identifier) == upper


def test_a_nul_in_a_name_is_a_bad_request(database: Database) -> None:
    with pytest.raises(BadRequest, match="NUL"):
        database.relation(Identifier(("ns",), "a\0b"))


@pytest.mark.parametrize(
    ("there", "wanted", "message"),
    [
        (Kind.TABLE, Kind.TABLE, "Table already exists: ns.x"),
        (Kind.VIEW, Kind.VIEW, "View already exists: ns.x"),
        (Kind.VIEW, Kind.TABLE, "View with same name already exists: ns.x"),
        (Kind.TABLE, Kind.VIEW, "Table with same name already exists: ns.x"),
    ],
)
def test_a_name_is_taken_once(database: Database, there: Kind, wanted: Kind, message: str) -> None:
    first = relation("x", there)
    must(database, CreateRelation(first))
    error = refusal(commit(database, CreateRelation(relation("x", wanted))))
    assert isinstance(error, AlreadyExists)
    assert error.message == message
    assert database.relation(first.identifier) == first


def test_a_uuid_is_taken_once(database: Database) -> None:
    first = make(database, "first")
    again = replace(first, identifier=Identifier(("ns",), "again"))
    error = refusal(commit(database, CreateRelation(again)))
    assert isinstance(error, AlreadyExists)
    assert error.message == f"Table with same UUID {first.uuid} already exists: ns.first"


def test_the_swap_changes_pointer_and_version(database: Database) -> None:
    old = make(database)
    new = next_version(old)
    must(database, SwapRelation(old, new))
    assert database.relation(old.identifier) == new


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata_location": "s3://elsewhere"},
        {"version": 7},
        {"identifier": Identifier(("ns",), "other")},
        {"identifier": Identifier(("other",), "t")},
        {"uuid": "9d8d6bb8-0000-4000-8000-000000000000"},
    ],
)
def test_the_swap_is_lost_when_anything_is_not_as_expected(
    database: Database, changed: dict[str, object]
) -> None:
    actual = make(database)
    expected = replace(actual, **changed)  # type: ignore[arg-type]
    assert commit(database, swap(expected)) == SwapLost(0)
    assert commit(database, DropRelation(expected)) == SwapLost(0)
    assert database.relation(actual.identifier) == actual


def test_a_lost_swap_undoes_the_whole_transaction(database: Database) -> None:
    first, second = make(database, "first"), make(database, "second")
    must(database, swap(second))
    lost = commit(database, CreateNamespace(("new",), {}), swap(first), swap(second))
    assert lost == SwapLost(2)
    assert database.relation(first.identifier) == first
    assert database.namespace_properties(("new",)) is None


def test_many_tables_swap_together(database: Database) -> None:
    tables = sorted((make(database, f"t{n}") for n in range(5)), key=lambda table: table.uuid)
    swaps = [swap(table) for table in tables]
    must(database, *swaps)
    assert [database.relation(one.new.identifier) for one in swaps] == [one.new for one in swaps]


def test_a_swap_keeps_uuid_and_kind(database: Database) -> None:
    table = make(database)
    for other in (relation("t"), replace(table, kind=Kind.VIEW)):
        with pytest.raises(ValueError, match="keeps the uuid and the kind"):
            commit(database, SwapRelation(table, other))
    assert database.relation(table.identifier) == table


def test_a_commit_id_is_used_once(database: Database) -> None:
    table = make(database)
    first = transaction(swap(table))
    assert database.commit(first) == Committed()
    again = Transaction(first.commit_id, (CreateRelation(relation("other")),))
    with pytest.raises(CommitIdTaken):
        database.commit(again)
    assert database.relation(Identifier(("ns",), "other")) is None


def test_a_transaction_that_is_refused_leaves_its_commit_id_free(database: Database) -> None:
    table = make(database)
    stale = transaction(SwapRelation(next_version(table), next_version(table)))
    assert database.commit(stale) == SwapLost(0)
    assert database.commit(Transaction(stale.commit_id, (swap(table),))) == Committed()


def test_rename_across_namespaces(database: Database) -> None:
    make_namespace(database, "other")
    table = make(database, "t", "s3://bucket/t")
    move = renamed(table, "u", ("other",))
    must(database, move)
    assert database.relation(table.identifier) is None
    assert database.relation(move.new.identifier) == move.new
    assert database.owner_of_location("s3://bucket/t") == table.uuid


def test_rename_into_a_missing_namespace(database: Database) -> None:
    table = make(database)
    error = refusal(commit(database, renamed(table, "u", ("absent",))))
    assert isinstance(error, NoSuchNamespace)
    assert error.message == "Namespace does not exist: absent"


@pytest.mark.parametrize("kind", [Kind.TABLE, Kind.VIEW])
@pytest.mark.parametrize("there", [Kind.TABLE, Kind.VIEW])
def test_rename_onto_an_existing_name(database: Database, kind: Kind, there: Kind) -> None:
    moving, standing = relation("a", kind), relation("b", there)
    must(database, CreateRelation(moving), CreateRelation(standing))
    error = refusal(commit(database, renamed(moving, "b")))
    assert isinstance(error, AlreadyExists)
    title = there.value.capitalize()
    assert error.message == f"Cannot rename ns.a to ns.b. {title} already exists"
    assert database.relation(moving.identifier) == moving


def test_rename_of_what_is_gone(database: Database) -> None:
    table = make(database)
    must(database, DropRelation(table))
    assert commit(database, renamed(table, "u")) == SwapLost(0)


def test_a_dropped_name_is_free_again(database: Database) -> None:
    table = make(database, "t", "s3://bucket/t")
    must(database, DropRelation(table))
    assert database.relation(table.identifier) is None
    assert make(database, "t", "s3://bucket/t").uuid != table.uuid


def test_drop_and_create_in_one_transaction_replace_a_relation(database: Database) -> None:
    """A registration overwrites a table this way, even when both tables have the same uuid."""
    old = make(database, "t", "s3://bucket/t")
    new = replace(next_version(old), metadata_location="s3://bucket/t/registered.json")
    must(database, DropRelation(old), CreateRelation(new, ("s3://bucket/t",)))
    assert database.relation(old.identifier) == new
    assert database.owner_of_location("s3://bucket/t/data") == new.uuid


def test_listing_tells_tables_from_views_and_pages_by_code_point(database: Database) -> None:
    names = ["b", "a", "Z", "é", "🧊", "a.b", "a/b", "aa"]
    for name in names:
        make(database, name)
        must(database, CreateRelation(view(name + "_view")))
    make_namespace(database, "ns", "deeper")
    must(database, CreateRelation(relation("not here", namespace=("ns", "deeper"))))

    def page(kind: Kind, after: str | None, limit: int | None) -> tuple[list[str], str | None]:
        found, following = database.list_relations(kind, ("ns",), after, limit)
        return list(found), following

    ordered = sorted(names)
    assert page(Kind.TABLE, None, None) == (ordered, None)
    assert page(Kind.VIEW, None, None) == (sorted(name + "_view" for name in names), None)
    assert page(Kind.TABLE, None, 3) == (ordered[:3], ordered[2])
    assert page(Kind.TABLE, ordered[2], 3) == (ordered[3:6], ordered[5])
    assert page(Kind.TABLE, ordered[5], 3) == (ordered[6:], None)
    assert page(Kind.TABLE, None, 8) == (ordered, None)
    assert database.list_relations(Kind.TABLE, ("absent",), None, None) == ([], None)


def test_large_numbers_and_long_texts_survive(database: Database) -> None:
    made = Relation(
        Kind.TABLE, Identifier(("ns",), "n" * 255), "u", "s3://bucket/" + "x" * 5000, 2**62
    )
    must(database, CreateRelation(made))
    assert database.relation(made.identifier) == made

"""Namespaces are created with their parents, listed by code point, and dropped only if they are
empty."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from frazil.db.base import (
    Committed,
    CreateNamespace,
    CreateRelation,
    DropNamespace,
    DropRelation,
    SetNamespaceProperties,
    SwapLost,
)
from frazil.db.rows import Database
from frazil.wire.errors import AlreadyExists, BadRequest, NamespaceNotEmpty, NoSuchNamespace
from tests.db.helpers import commit, make, make_namespace, must, refusal, relation, view


def test_properties_come_back_as_they_were_given(database: Database) -> None:
    properties = {"owner": "anna", "comment": "naïve \u0000 'quoted' 🧊", "empty": ""}
    must(database, CreateNamespace(("full",), properties))
    assert database.namespace_properties(("full",)) == properties
    assert database.namespace_properties(("ns",)) == {}
    assert database.namespace_properties(("absent",)) is None


def test_a_namespace_is_created_once(database: Database) -> None:
    make_namespace(database, "ns", "child")
    error = refusal(commit(database, CreateNamespace(("ns", "child"), {"a": "b"})))
    assert isinstance(error, AlreadyExists)
    assert error.message == "Namespace already exists: ns.child"
    assert database.namespace_properties(("ns", "child")) == {}


def test_missing_parents_are_created_too(database: Database) -> None:
    must(database, CreateNamespace(("ns", "a", "b", "c"), {"owner": "anna"}))
    assert database.namespace_properties(("ns", "a", "b", "c")) == {"owner": "anna"}
    for parent, child in ((("ns",), "a"), (("ns", "a"), "b"), (("ns", "a", "b"), "c")):
        assert list(database.list_namespaces(parent, None, None)[0]) == [child]
        assert database.namespace_properties((*parent, child)) is not None
    assert database.namespace_properties(("ns", "a")) == {}
    error = refusal(commit(database, CreateNamespace(("ns", "a", "b"), {})))
    assert isinstance(error, AlreadyExists)


def test_parents_are_not_created_for_a_refused_child(database: Database) -> None:
    outcome = commit(database, CreateNamespace(("a", "b"), {}), CreateNamespace(("ns",), {}))
    refusal(outcome, index=1)
    assert database.namespace_properties(("a",)) is None


def test_created_parents_stay_until_they_are_dropped_themselves(database: Database) -> None:
    make_namespace(database, "a", "b")
    error = refusal(commit(database, DropNamespace(("a",))))
    assert isinstance(error, NamespaceNotEmpty)
    must(database, DropNamespace(("a", "b")))
    assert database.namespace_properties(("a",)) == {}
    must(database, DropNamespace(("a",)))


def test_siblings_are_created_at_the_same_time(database: Database) -> None:
    """All of them create the same parents, and each writer succeeds."""
    names = [("deep", "er", f"n{number}") for number in range(8)]
    with ThreadPoolExecutor(len(names)) as threads:
        outcomes = list(
            threads.map(lambda levels: commit(database, CreateNamespace(levels, {})), names)
        )
    assert outcomes == [Committed()] * len(names)
    listed = database.list_namespaces(("deep", "er"), None, None)[0]
    assert list(listed) == [levels[-1] for levels in names]


def test_parent_and_child_can_be_created_together(database: Database) -> None:
    must(database, CreateNamespace(("a",), {}), CreateNamespace(("a", "b"), {}))
    assert database.list_namespaces(("a",), None, None) == (["b"], None)


def test_the_index_of_a_refusal_names_the_change(database: Database) -> None:
    outcome = commit(database, CreateNamespace(("a",), {}), CreateNamespace(("ns",), {}))
    refusal(outcome, index=1)
    assert database.namespace_properties(("a",)) is None


def test_dots_and_slashes_do_not_make_levels(database: Database) -> None:
    make_namespace(database, "a")
    make_namespace(database, "a.b")
    make_namespace(database, "a", "b")
    make_namespace(database, "a/b")
    assert database.list_namespaces((), None, None)[0] == ["a", "a.b", "a/b", "ns"]
    assert database.list_namespaces(("a",), None, None)[0] == ["b"]


def test_listing_shows_direct_children_in_the_order_of_code_points(database: Database) -> None:
    levels = ["b", "B", "a", "é", "z", "🧊", "\uffee", "a-", "a1"]
    for level in levels:
        make_namespace(database, "ns", level)
    make_namespace(database, "ns", "a", "grandchild")
    assert list(database.list_namespaces(("ns",), None, None)[0]) == sorted(levels)


def test_pages_follow_each_other(database: Database) -> None:
    for number in range(7):
        make_namespace(database, "ns", f"n{number}")
    pages = []
    after: str | None = None
    while True:
        page, after = database.list_namespaces(("ns",), after, 3)
        pages.append(list(page))
        if after is None:
            break
    assert pages == [["n0", "n1", "n2"], ["n3", "n4", "n5"], ["n6"]]
    assert database.list_namespaces(("ns",), "n3", 3) == (["n4", "n5", "n6"], None)


def test_a_page_of_nothing_is_a_mistake(database: Database) -> None:
    with pytest.raises(ValueError, match="limit is 0"):
        database.list_namespaces((), None, 0)


def test_properties_are_swapped_only_if_they_are_as_expected(database: Database) -> None:
    must(database, SetNamespaceProperties(("ns",), {}, {"b": "1", "a": "2"}))
    lost = commit(database, SetNamespaceProperties(("ns",), {}, {"c": "3"}))
    assert lost == SwapLost(0)
    # The order of the keys does not matter.
    must(database, SetNamespaceProperties(("ns",), {"a": "2", "b": "1"}, {"c": "3"}))
    assert database.namespace_properties(("ns",)) == {"c": "3"}


def test_properties_of_a_missing_namespace(database: Database) -> None:
    error = refusal(commit(database, SetNamespaceProperties(("absent",), {}, {})))
    assert isinstance(error, NoSuchNamespace)
    assert error.message == "Namespace does not exist: absent"


def test_dropping_an_empty_namespace(database: Database) -> None:
    must(database, DropNamespace(("ns",)))
    assert database.namespace_properties(("ns",)) is None
    error = refusal(commit(database, DropNamespace(("ns",))))
    assert isinstance(error, NoSuchNamespace)
    assert error.message == "Namespace does not exist: ns"


def test_a_namespace_with_a_child_is_not_dropped(database: Database) -> None:
    make_namespace(database, "ns", "child")
    error = refusal(commit(database, DropNamespace(("ns",))))
    assert isinstance(error, NamespaceNotEmpty)
    assert error.message.startswith("Namespace ns is not empty")
    assert "child namespaces" in error.message


def test_a_namespace_with_a_table_or_a_view_is_not_dropped(database: Database) -> None:
    table, seen = make(database, "t"), view("v")
    must(database, CreateRelation(seen))
    assert "tables and views" in refusal(commit(database, DropNamespace(("ns",)))).message
    must(database, DropRelation(table))
    assert "views" in refusal(commit(database, DropNamespace(("ns",)))).message
    must(database, DropRelation(seen))
    assert commit(database, DropNamespace(("ns",))) == Committed()


def test_a_dropped_namespace_takes_no_table(database: Database) -> None:
    must(database, DropNamespace(("ns",)))
    error = refusal(commit(database, CreateRelation(relation("t"))))
    assert isinstance(error, NoSuchNamespace)
    assert error.message == "Namespace does not exist: ns"


@pytest.mark.parametrize("levels", [(), ("a\x1fb",), ("a\0",), ("x" * 250,) * 9])
def test_a_namespace_that_cannot_be_stored_is_a_bad_request(
    database: Database, levels: tuple[str, ...]
) -> None:
    for depth in range(1, len(levels)):
        commit(database, CreateNamespace(levels[:depth], {}))
    error = refusal(commit(database, CreateNamespace(levels, {})))
    assert isinstance(error, BadRequest)
    assert error.message.startswith("namespace ")

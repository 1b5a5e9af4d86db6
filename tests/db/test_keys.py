"""Idempotency keys are written with the swap, found again, and never written twice."""

from __future__ import annotations

import uuid

import pytest

from frazil.db.base import Committed, CreateRelation, KeysTaken, SwapLost, SwapRelation
from frazil.db.rows import Database
from tests.db.helpers import commit, key_row, make, must, next_version, relation, swap


def test_a_key_comes_back_as_it_was_written(database: Database) -> None:
    table = make(database)
    full = key_row(
        status=409, body=b'{"error":\xc3\xa9}', relation_uuid=table.uuid, committed=b"[1,\x00]"
    )
    bare = key_row(fingerprint="other")
    must(database, swap(table), keys=(full, bare))
    assert database.key(full.principal, full.key) == full
    assert database.key(bare.principal, bare.key) == bare
    assert database.key("bert", full.key) is None
    assert database.key(full.principal, str(uuid.uuid4())) is None


def test_a_taken_key_changes_nothing_and_is_handed_back(database: Database) -> None:
    table = make(database)
    first = key_row("k1", committed=b"first")
    must(database, SwapRelation(table, moved := next_version(table)), keys=(first,))
    free, again = key_row("k0"), key_row("k1", committed=b"second")
    outcome = commit(database, swap(moved), keys=(free, again, key_row("k2")))
    assert outcome == KeysTaken((first,))
    assert database.relation(table.identifier) == moved
    assert database.key("anna", "k0") is None
    assert database.key("anna", "k2") is None


def test_an_identical_row_of_another_transaction_is_taken_too(database: Database) -> None:
    table = make(database)
    row = key_row("k")
    must(database, SwapRelation(table, moved := next_version(table)), keys=(row,))
    other = key_row("free")
    assert commit(database, swap(moved), keys=(other, row)) == KeysTaken((row,))


def test_all_taken_keys_are_named(database: Database) -> None:
    rows = tuple(key_row(f"k{n}") for n in range(3))
    for row in rows[:2]:
        database.finalise(row)
    outcome = commit(database, CreateRelation(relation("t")), keys=tuple(reversed(rows)))
    assert outcome == KeysTaken(rows[:2])
    assert database.relation(relation("t").identifier) is None


def test_a_taken_key_comes_before_a_lost_swap(database: Database) -> None:
    """A request that another replica has finished is answered by replay, not applied again."""
    table = make(database)
    row = key_row("k")
    must(database, swap(table), keys=(row,))
    assert commit(database, swap(table), keys=(row,)) == KeysTaken((row,))
    assert commit(database, swap(table), keys=(key_row("other"),)) == SwapLost(0)
    assert database.key("anna", "other") is None


def test_principals_do_not_share_keys(database: Database) -> None:
    table = make(database)
    must(database, swap(table), keys=(key_row("k", "anna"), key_row("k", "bert", status=201)))
    found = database.key("bert", "k")
    assert found is not None
    assert found.status == 201


def test_a_key_twice_in_one_transaction_is_a_mistake(database: Database) -> None:
    with pytest.raises(ValueError, match="twice"):
        commit(database, CreateRelation(relation("t")), keys=(key_row("k"), key_row("k")))
    assert database.key("anna", "k") is None
    assert database.relation(relation("t").identifier) is None


def test_finalise_inserts_once(database: Database) -> None:
    first = key_row("k", status=404, body=b"not there")
    assert database.finalise(first) == first
    assert database.finalise(key_row("k", status=400)) == first
    assert database.key("anna", "k") == first


def test_keys_are_forgotten_by_age(database: Database) -> None:
    table = make(database)
    must(database, swap(table), keys=(key_row("k1"),))
    database.finalise(key_row("k2"))
    assert database.forget_keys(3600) == 0
    assert database.key("anna", "k1") is not None
    assert database.forget_keys(-1) == 2
    assert database.key("anna", "k1") is None
    assert database.forget_keys(-1) == 0
    assert database.finalise(key_row("k1", status=400)).status == 400


def test_commit_ids_are_forgotten_by_age(database: Database) -> None:
    table = make(database)
    assert database.forget_commits(3600) == 0
    assert database.forget_commits(-1) > 0
    assert commit(database, swap(table)) == Committed()

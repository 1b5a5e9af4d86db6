"""Intents of writers, over HTTP, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from frazil.housekeeping.intents import Intents
from frazil.wire.leases import INTENT_TTL_MS, MAX_TTL_MS
from tests.commit.finegrained.requests import set_properties
from tests.db.conftest import database_url, postgres_url, shared_postgres_database, sqlite_url
from tests.housekeeping.leasing import Leasing, error, opened_leasing
from tests.support.patience import wait_until

__all__ = ["database_url", "postgres_url", "shared_postgres_database", "sqlite_url"]


@pytest.fixture
def leasing(database_url: str, tmp_path: Path) -> Iterator[Leasing]:
    with opened_leasing(database_url, tmp_path / "warehouse") as found:
        yield found


@pytest.fixture
def sqlite_leasing(sqlite_url: str, tmp_path: Path) -> Iterator[Leasing]:
    """For what does not depend on the database."""
    with opened_leasing(sqlite_url, tmp_path / "warehouse") as found:
        yield found


def now_ms(leasing: Leasing) -> int:
    return int(leasing.world.database.fetch("now_ms", {})[0][0])


def state_of(leasing: Leasing, intent: Any) -> str | None:
    rows = leasing.world.database.fetch("intent", {"intent_id": intent["intent-id"]})
    return str(rows[0][4]) if rows else None


def test_an_intent_is_declared_renewed_and_ended(leasing: Leasing) -> None:
    before_ms = now_ms(leasing)
    intent = leasing.declare(leasing.folder("w1") + "/", holder="loader")
    assert intent["prefix"] == leasing.folder("w1")
    assert before_ms + INTENT_TTL_MS <= intent["expires-at-ms"]
    (listed,) = leasing.of("reader").intents()
    assert {name: listed[name] for name in intent} == intent
    assert (listed["principal"], listed["holder"]) == ("ann", "loader")
    path = f"intents/{intent['intent-id']}"
    renewed = leasing("POST", path, {"ttl-ms": MAX_TTL_MS}).body
    assert renewed["expires-at-ms"] >= before_ms + MAX_TTL_MS
    assert leasing("POST", path, {"ttl-ms": 1000}).body == renewed
    assert leasing("DELETE", path).status == 204
    assert leasing.intents() == []
    assert state_of(leasing, intent) == "ended"
    # It stays ended, and ending it again changes nothing.
    assert leasing("POST", path, {}).status == 404
    assert leasing("DELETE", path).status == 204
    assert leasing("DELETE", f"{path}x").status == 404


def test_a_writer_that_left_nothing_behind_leaves_no_row(leasing: Leasing) -> None:
    intent = leasing.declare(leasing.folder("w1"))
    other = leasing.declare(leasing.folder("w2"), ttl_ms=1000)
    assert leasing("DELETE", f"intents/{intent['intent-id']}?clean=true").status == 204
    assert state_of(leasing, intent) is None
    wait_until(lambda: now_ms(leasing) > other["expires-at-ms"], "the intent did not expire")
    # A sweep may have begun to look at this one.
    assert leasing("DELETE", f"intents/{other['intent-id']}?clean=true").status == 204
    assert state_of(leasing, other) == "live"


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("{location}", "is not below"),
        ("{location}/data", "is not below"),
        ("{location}/data/", "is not below"),
        ("{location}/metadata/x", "is not below"),
        ("{location}/data2/x", "is not below"),
        ("{location}/data" + 20 * ("/" + 100 * "x"), "bytes long: at most 2048 are allowed"),
        ("{location}/data/a/../../x", "'.' or '..' segment"),
        ("/tmp/elsewhere/x", "is not below"),
        ("data/x", "not an absolute location"),
        ("", "prefix"),
    ],
)
def test_a_prefix_outside_the_folder_of_data_is_refused(
    sqlite_leasing: Leasing, prefix: str, message: str
) -> None:
    body = {"prefix": prefix.format(location=sqlite_leasing.table.location)}
    status, text = error(sqlite_leasing("POST", "intents", body))
    assert status == 400
    assert text.startswith("prefix")
    assert message in text
    assert sqlite_leasing.intents() == []


def test_the_folder_of_data_is_the_one_that_the_table_names(leasing: Leasing) -> None:
    folder = f"{leasing.table.location}-other"
    leasing.table.commit(set_properties(**{"write.data.path": folder}))
    assert leasing("POST", "intents", {"prefix": leasing.folder("w1")}).status == 400
    leasing.declare(f"{folder}/w1")


def test_a_folder_with_files_is_refused(leasing: Leasing) -> None:
    """They may be another writer's, who has not committed them yet."""
    folder = Path(leasing.folder("w1").removeprefix("file://"))
    folder.mkdir(parents=True)
    leasing.declare(leasing.folder("w1"))
    other = folder.with_name("w2") / "deep"
    other.mkdir(parents=True)
    (other / "a.parquet").write_bytes(b"x")
    status, text = error(leasing("POST", "intents", {"prefix": leasing.folder("w2")}))
    assert status == 400
    assert "w2/deep/a.parquet: declare a new folder" in text


def test_two_writes_do_not_share_a_folder(leasing: Leasing) -> None:
    intent = leasing.declare(leasing.folder("a/b"))
    for name in ("a", "a/b", "a/b/c"):
        answer = leasing.of("bob")("POST", "intents", {"prefix": leasing.folder(name)})
        assert answer.status == 409
        assert "overlaps" in error(answer)[1]
    leasing.declare(leasing.folder("a/bc"))
    leasing("DELETE", f"intents/{intent['intent-id']}")
    leasing.declare(leasing.folder("a/b/c"))


def test_a_request_that_is_repeated_declares_one_intent(leasing: Leasing) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = leasing.declare(leasing.folder("w1"), key)
    assert leasing.declare(leasing.folder("w1"), key) == first
    assert len(leasing.intents()) == 1
    answer = leasing("POST", "intents", {"prefix": leasing.folder("w2")}, key)
    assert answer.status == 422
    answer = leasing.of("bob")("POST", "intents", {"prefix": leasing.folder("w1")}, key)
    assert answer.status == 422


def test_a_read_only_token_declares_nothing(leasing: Leasing) -> None:
    reader, intent = leasing.of("reader"), leasing.declare(leasing.folder("w1"))
    path = f"intents/{intent['intent-id']}"
    for headers in ({}, {"Idempotency-Key": str(uuid4())}):
        body = {"prefix": leasing.folder("w2")}
        assert reader("POST", "intents", body, headers).status == 403
        assert reader("POST", path, {}, headers).status == 403
        assert reader("DELETE", path, None, headers).status == 403
    assert state_of(leasing, intent) == "live"


def test_an_intent_is_renewed_by_its_principal_only(leasing: Leasing) -> None:
    path = f"intents/{leasing.declare(leasing.folder('w1'))['intent-id']}"
    assert leasing.of("bob")("POST", path, {}).status == 404
    assert leasing.of("bob")("DELETE", path).status == 204


def test_an_intent_that_has_expired_is_not_renewed(leasing: Leasing) -> None:
    intent = leasing.declare(leasing.folder("w1"), ttl_ms=1000)
    wait_until(lambda: now_ms(leasing) > intent["expires-at-ms"], "the intent did not expire")
    assert leasing.intents() == []
    assert leasing("POST", f"intents/{intent['intent-id']}", {}).status == 404


def test_a_table_has_a_limit_of_intents(leasing: Leasing) -> None:
    leasing.world.app.intents = Intents(leasing.world.catalog, max_live=1)
    intent = leasing.declare(leasing.folder("w1"))
    answer = leasing("POST", "intents", {"prefix": leasing.folder("w2")})
    assert answer.status == 429
    assert "at most 1 are allowed: end some" in error(answer)[1]
    leasing("DELETE", f"intents/{intent['intent-id']}")
    leasing.declare(leasing.folder("w2"))

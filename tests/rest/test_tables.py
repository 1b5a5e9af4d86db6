"""ETags, preferences, idempotency keys and the shape of answers that contain metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from frazil.commit.pipeline.catalog_answers import (
    Answer,
    NoContent,
    ReplayedError,
    TableAnswer,
    TransactionAnswer,
)
from frazil.wire.identifiers import Identifier
from tests.rest.stand_in import LOCATION, Client, StandInCatalog, dumped, exchange, loaded_table

TABLE = "/v1/namespaces/a/tables/t"
T = Identifier(("a",), "t")
COMMIT: dict[str, Any] = {"requirements": [], "updates": []}
KEY = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"


def test_load_answers_location_metadata_and_config(make_client: Callable[..., Client]) -> None:
    got = make_client(table_config={"s3.region": "eu"})("GET", TABLE)
    assert got.json == {
        "metadata-location": LOCATION,
        "metadata": {"snapshots": [1, 2]},
        "config": {"s3.region": "eu"},
    }
    assert got.headers["content-type"] == "application/json"
    assert int(got.headers["content-length"]) == len(got.body)


def test_access_delegation_is_accepted_and_nothing_vended(client: Client) -> None:
    got = client("GET", TABLE, headers={"X-Iceberg-Access-Delegation": "vended-credentials"})
    assert set(got.json) == {"metadata-location", "metadata", "config"}


def test_refs_and_all_have_their_own_content_and_tag(client: Client) -> None:
    everything, refs = (
        client("GET", f"{TABLE}?snapshots=all"),
        client("GET", f"{TABLE}?snapshots=refs"),
    )
    assert everything.body == client("GET", TABLE).body
    assert refs.json["metadata"] == {"snapshots": [2]}
    assert everything.headers["etag"] != refs.headers["etag"]
    got = client("GET", f"{TABLE}?snapshots=some")
    assert got.status == 400
    assert got.error["message"].startswith("snapshots: 'some'")


def test_the_tag_follows_the_config_that_is_part_of_the_answer(
    make_client: Callable[..., Client],
) -> None:
    tags = {
        make_client(table_config=config)("GET", TABLE).headers["etag"]
        for config in ({}, {"s3.region": "eu"}, {"s3.region": "us"})
    }
    assert len(tags) == 3
    assert all(tag.startswith('"') and tag.endswith('"') for tag in tags)


@pytest.mark.parametrize(
    ("template", "status"),
    [
        ("{tag}", 304),
        ("W/{tag}", 304),
        ('"other", W/"x,y" , {tag}', 304),
        ("*", 304),
        ("{bare}", 304),
        ('"other"', 200),
        ('"*"', 200),
        ("", 200),
        ('"{bare}x"', 200),
    ],
)
def test_if_none_match(client: Client, template: str, status: int) -> None:
    for target in (TABLE, "/v1/namespaces/a/views/v"):
        tag = client("GET", target).headers["etag"]
        sent = template.format(tag=tag, bare=tag.strip('"'))
        got = client("GET", target, headers={"If-None-Match": sent})
        assert got.status == status
        assert got.headers["etag"] == tag
        assert (got.body == b"") == (status == 304)
        assert ("content-length" in got.headers) == (status == 200)


def test_create_register_and_commit_carry_the_tag_of_a_load(client: Client) -> None:
    tag = client("GET", TABLE).headers["etag"]
    answers = [
        client("POST", "/v1/namespaces/a/tables", {"name": "t", "schema": {}}),
        client("POST", "/v1/namespaces/a/register", {"name": "t", "metadata-location": "x"}),
        client("POST", TABLE, COMMIT),
        client("POST", TABLE, COMMIT, headers={"Prefer": "return=minimal"}),
    ]
    assert [got.headers["etag"] for got in answers] == [tag] * 4
    assert "etag" not in client("POST", f"{TABLE}/unregister").headers


def test_a_staged_table_has_neither_location_nor_tag(
    client: Client, catalog: StandInCatalog
) -> None:
    catalog.answers["create_table"] = TableAnswer(loaded_table(T, location=None))
    body = {"name": "t", "schema": {}, "stage-create": True}
    got = client("POST", "/v1/namespaces/a/tables", body)
    assert got.json == {"metadata": {"snapshots": [1, 2]}, "config": {}}
    assert "etag" not in got.headers


def test_commit_says_which_snapshots_it_made(client: Client, catalog: StandInCatalog) -> None:
    assert client("POST", TABLE, COMMIT).json == {
        "metadata-location": LOCATION,
        "metadata": {"snapshots": [1, 2]},
        "committed": [{"update": 0, "snapshot-id": 7}],
    }
    catalog.answers["commit_table"] = TableAnswer(loaded_table(T), None)
    assert set(client("POST", TABLE, COMMIT).json) == {"metadata-location", "metadata"}


@pytest.mark.parametrize(
    ("prefer", "minimal"),
    [
        ("return=minimal", True),
        ('Return="minimal"', True),
        ("respond-async, wait=10, return=minimal; x=y", True),
        ("return=representation", False),
        ("return=representation, return=minimal", False),
        ("minimal", False),
        ("", False),
    ],
)
def test_prefer_minimal(client: Client, prefer: str, minimal: bool) -> None:
    got = client("POST", TABLE, COMMIT, headers={"Prefer": prefer})
    assert ("metadata" not in got.json) == minimal
    assert got.headers.get("preference-applied") == ("return=minimal" if minimal else None)
    if minimal:
        committed = [{"update": 0, "snapshot-id": 7}]
        assert got.json == {"metadata-location": LOCATION, "committed": committed}


def test_transaction_answers_204_or_what_minimal_asks_for(client: Client) -> None:
    changes = [{"identifier": {"namespace": ["a"], "name": "t"}, **COMMIT}]
    body = {"table-changes": changes}
    assert client("POST", "/v1/transactions/commit", body).status == 204
    got = client("POST", "/v1/transactions/commit", body, headers={"Prefer": "return=minimal"})
    assert got.status == 200
    assert got.headers["preference-applied"] == "return=minimal"
    entry = {"metadata-location": LOCATION, "committed": [], "identifier": changes[0]["identifier"]}
    assert got.json == {"tables": [entry]}


def test_an_epoch_that_came_again_is_answered_as_already_committed(
    client: Client, catalog: StandInCatalog
) -> None:
    again = TableAnswer(loaded_table(T), b'[{"update":0,"snapshot-id":7}]', already_committed=True)
    catalog.answers["commit_table"] = again
    catalog.answers["commit_transaction"] = TransactionAnswer((again,))
    committed = [{"update": 0, "snapshot-id": 7}]
    said = {"committed": committed, "already-committed": True, "metadata-location": LOCATION}
    assert client("POST", TABLE, COMMIT).json == said | {"metadata": {"snapshots": [1, 2]}}
    minimal = {"Prefer": "return=minimal"}
    assert client("POST", TABLE, COMMIT, headers=minimal).json == said
    identifier = {"namespace": ["a"], "name": "t"}
    body = {"table-changes": [{"identifier": identifier, **COMMIT}]}
    got = client("POST", "/v1/transactions/commit", body, headers=minimal)
    assert got.json == {"tables": [said | {"identifier": identifier}]}
    assert client("POST", "/v1/transactions/commit", body).status == 204


def test_large_metadata_is_sent_without_being_copied_together(
    client: Client, catalog: StandInCatalog
) -> None:
    large = [b"[" + b"0," * 300_000, b"0," * 300_000, b"0", b"]"]
    catalog.answers["load_table"] = loaded_table(T, chunks=large)
    got = client("GET", TABLE)
    assert any(piece is large[1] for piece in got.pieces)
    assert len(got.json["metadata"]) == 600_001
    assert int(got.headers["content-length"]) == len(got.body)


# --- what the catalog is handed -------------------------------------------------------------------


def test_identifier_in_a_commit_must_agree_with_the_path(
    client: Client, catalog: StandInCatalog
) -> None:
    same = {"namespace": ["a"], "name": "t"}
    assert client("POST", TABLE, {**COMMIT, "identifier": same}).status == 200
    assert client("POST", TABLE, {**COMMIT, "identifier": None}).status == 200
    other = {"namespace": ["a"], "name": "u"}
    got = client("POST", TABLE, {**COMMIT, "identifier": other})
    assert got.status == 400
    assert got.error["message"].startswith("identifier: names another table")
    assert len(catalog.calls) == 2


def test_transaction_needs_an_identifier_for_each_table(client: Client) -> None:
    changes = [{"identifier": {"namespace": ["a"], "name": "t"}, **COMMIT}, COMMIT]
    got = client("POST", "/v1/transactions/commit", {"table-changes": changes})
    assert got.status == 400
    assert got.error["message"].startswith("table-changes[1].identifier: required")
    assert not client.catalog.calls


@pytest.mark.parametrize(
    ("query", "purge", "now"),
    [
        ("", False, False),
        ("?purgeRequested=true", True, False),
        ("?purgeRequested=False", False, False),
        ("?purgeRequested=True", True, False),
        ("?purgeRequested=true&frazil-now=true", True, True),
    ],
)
def test_purge(client: Client, catalog: StandInCatalog, query: str, purge: bool, now: bool) -> None:
    assert client("DELETE", TABLE + query).status == 204
    assert catalog.asked("drop_table")[1:] == (T, purge, now)


@pytest.mark.parametrize("value", ["", "1", "yes", "truex"])
def test_purge_that_is_no_boolean_drops_nothing(client: Client, value: str) -> None:
    got = client("DELETE", f"{TABLE}?purgeRequested={value}")
    assert got.status == 400
    assert got.error["message"].startswith("purgeRequested: ")
    assert not client.catalog.calls


def test_properties_in_both_lists_are_422(client: Client, catalog: StandInCatalog) -> None:
    target = "/v1/namespaces/a/properties"
    got = client("POST", target, {"removals": ["x", "y"], "updates": {"y": "1"}})
    assert (got.status, got.error["type"]) == (422, "UnprocessableEntityException")
    assert "'y'" in got.error["message"]
    assert not catalog.calls
    assert client("POST", target, {"removals": ["x", "x"], "updates": None}).status == 200
    assert catalog.asked("update_namespace_properties")[1:] == (("a",), ("x",), {})


def test_context_carries_principal_id_key_and_size(client: Client, catalog: StandInCatalog) -> None:
    headers = {"Idempotency-Key": KEY, "X-Request-Id": "r1"}
    client("POST", TABLE, COMMIT, headers=headers)
    context = catalog.asked("commit_table")[0]
    assert (context.principal, context.request_id) == ("anonymous", "r1")
    assert context.request_bytes == len(dumped(COMMIT))
    assert context.key.key == KEY.lower()
    assert len(context.key.fingerprint) == 64


def test_fingerprint_is_over_method_path_query_and_decoded_body(
    client: Client, catalog: StandInCatalog
) -> None:
    import gzip

    headers = {"Idempotency-Key": KEY}
    other = {**COMMIT, "identifier": None}
    client("POST", TABLE, COMMIT, headers=headers)
    client("POST", TABLE, COMMIT, headers={**headers, "Prefer": "return=minimal"})
    packed = gzip.compress(dumped(COMMIT))
    client("POST", TABLE, packed, headers={**headers, "Content-Encoding": "gzip"})
    client("POST", TABLE, other, headers=headers)
    client("POST", f"{TABLE}?x=1", COMMIT, headers=headers)
    client("POST", "/v1/namespaces/a/tables/u", COMMIT, headers=headers)
    client("DELETE", TABLE, headers=headers)
    client("DELETE", f"{TABLE}?purgeRequested=true", headers=headers)
    prints = [arguments[0].key.fingerprint for _, arguments in catalog.calls]
    assert prints[0] == prints[1] == prints[2]
    assert len(set(prints)) == 6


@pytest.mark.parametrize("key", ["", "x", KEY[:-1], KEY + "0", KEY.replace("-", ""), f"{{{KEY}}}"])
def test_key_that_is_no_uuid_changes_nothing(client: Client, key: str) -> None:
    for method, target, body in (("POST", TABLE, COMMIT), ("DELETE", "/v1/namespaces/a", None)):
        got = client(method, target, body, headers={"Idempotency-Key": key})
        assert got.status == 400
        assert got.error["message"].startswith("Idempotency-Key: ")
    assert not client.catalog.calls


def test_key_means_nothing_where_nothing_changes(client: Client) -> None:
    assert client("GET", TABLE, headers={"Idempotency-Key": "x"}).status == 200


def test_replayed_error_is_sent_as_it_was(client: Client, catalog: StandInCatalog) -> None:
    body = b'{"error":{"message":"m","type":"AlreadyExistsException","code":409}}'
    catalog.raises["create_namespace"] = ReplayedError(409, body)
    got = client("POST", "/v1/namespaces", {"namespace": ["a"]})
    assert (got.status, got.body) == (409, body)


# --- what a client does to a commit that runs -----------------------------------------------------


def test_a_submitted_commit_is_never_cancelled(client: Client, catalog: StandInCatalog) -> None:
    catalog.hold = Future()

    async def give_up() -> None:
        request = asyncio.create_task(exchange(client.app, "POST", TABLE, parts=(dumped(COMMIT),)))
        while not catalog.calls:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(give_up())
    assert not catalog.hold.cancelled()
    assert catalog.hold.set_running_or_notify_cancel()


def test_a_client_that_goes_while_sending_is_not_served(client: Client) -> None:
    got = client("POST", TABLE, parts=(dumped(COMMIT),), disconnect=True)
    assert got.status == 0
    assert not client.catalog.calls


def test_draining_refuses_changes_and_lets_reads_and_running_commits_through(
    client: Client, catalog: StandInCatalog
) -> None:
    catalog.hold = Future()

    async def scenario() -> None:
        running = asyncio.create_task(exchange(client.app, "DELETE", "/v1/namespaces/a/views/v"))
        while not catalog.calls:
            await asyncio.sleep(0)
        client.app.drain()
        refused = await exchange(client.app, "POST", TABLE, parts=(dumped(COMMIT),))
        assert (refused.status, refused.error["type"]) == (429, "TooManyRequestsException")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await exchange(client.app, "GET", TABLE)).status == 200
        assert (await exchange(client.app, "GET", "/healthz")).status == 200
        assert (await exchange(client.app, "GET", "/readyz")).status == 503
        held: Future[Answer] | Any = catalog.hold
        held.set_result(NoContent())
        assert (await running).status == 204

    asyncio.run(scenario())
    assert [name for name, _ in catalog.calls] == ["drop_view", "load_table"]

"""Every failure has the standard shape and the status that fits its cause."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from frazil.db.base import DatabaseUnavailable, OutcomeUnknown
from frazil.store.object_store import StoreError
from frazil.wire import errors
from tests.rest.stand_in import Client, StandInCatalog, dumped, exchange
from tests.support.patience import HANG_S

COMMIT: dict[str, Any] = {"requirements": [], "updates": []}
TABLE = "/v1/namespaces/a/tables/t"


def all_errors(kind: type[errors.FrazilError]) -> list[type[errors.FrazilError]]:
    return [kind] + [found for sub in kind.__subclasses__() for found in all_errors(sub)]


@pytest.mark.parametrize(
    "kind", [kind for kind in all_errors(errors.FrazilError) if kind.__module__ == errors.__name__]
)
def test_the_error_tree_on_the_wire(
    client: Client, catalog: StandInCatalog, kind: type[errors.FrazilError]
) -> None:
    catalog.raises["load_table"] = kind("what is wrong")
    got = client("GET", TABLE)
    assert got.status == kind.status
    assert got.error["type"] == kind.type
    assert got.error["message"] == "what is wrong"
    assert got.headers["content-type"] == "application/json"
    assert ("retry-after" in got.headers) == (got.status in (429, 503))


def test_conflicts_are_part_of_the_error(client: Client, catalog: StandInCatalog) -> None:
    conflicts = [{"update": 0, "clause": "duplicate-file", "message": "m"}]
    catalog.answers["commit_table"] = errors.ValidationError("no", conflicts)
    got = client("POST", TABLE, COMMIT)
    assert (got.status, got.error["conflicts"]) == (409, conflicts)


@pytest.mark.parametrize("error", [DatabaseUnavailable("password=x"), StoreError("key=x")])
def test_reads_are_503_when_something_behind_is_away(
    client: Client, catalog: StandInCatalog, error: Exception
) -> None:
    catalog.raises["load_table"] = error
    got = client("GET", TABLE)
    assert (got.status, got.error["type"]) == (503, "ServiceUnavailableException")
    assert int(got.headers["retry-after"]) >= 1
    assert "=x" not in got.error["message"]


UNEXPECTED = [
    RuntimeError("inner detail"),
    KeyError("inner detail"),
    RecursionError("inner detail"),
    MemoryError("inner detail"),
]


@pytest.mark.parametrize("error", UNEXPECTED)
def test_unexpected_failures_are_500_and_tell_no_details(
    client: Client, catalog: StandInCatalog, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.raises["load_table"] = catalog.raises["create_namespace"] = error
    for method, target, body in (
        ("GET", TABLE, None),
        ("POST", "/v1/namespaces", {"namespace": ["a"]}),
    ):
        got = client(method, target, body, headers={"X-Request-Id": "find-me"})
        assert (got.status, got.error["type"]) == (500, "InternalServerError")
        assert "inner detail" not in got.error["message"]
        assert "find-me" in got.error["message"]
    assert "inner detail" in caplog.text


@pytest.mark.parametrize(
    "error", [*UNEXPECTED, DatabaseUnavailable("x"), OutcomeUnknown("x"), StoreError("x")]
)
def test_what_fails_unexpectedly_on_a_commit_is_unknown_and_never_503(
    client: Client, catalog: StandInCatalog, error: Exception
) -> None:
    for where in (catalog.answers, catalog.raises):
        where["commit_table"] = error
        got = client("POST", TABLE, COMMIT)
        assert (got.status, got.error["type"]) == (500, "CommitStateUnknownException")
        assert "retry-after" not in got.headers


def test_head_answers_never_have_a_body(client: Client, catalog: StandInCatalog) -> None:
    catalog.raises["table_exists"] = errors.NoSuchTable("Table does not exist: a.t")
    got = client("HEAD", TABLE)
    assert (got.status, got.body) == (404, b"")
    assert got.headers["content-length"] == "0"
    assert client("HEAD", "/nope").body == b""


def test_readiness(
    make_client: Callable[..., Client],
    catalog: StandInCatalog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "frazil.rest")
    client = make_client(ready_timeout_s=HANG_S)
    assert client("GET", "/readyz").json == {"status": "ready"}
    catalog.raises["ready"] = DatabaseUnavailable("password=x")
    got = client("GET", "/readyz")
    assert got.status == 503
    assert "=x" not in got.error["message"]
    assert client("HEAD", "/readyz").status == 503
    assert client("GET", "/healthz").json == {"status": "ok"}
    del catalog.raises["ready"]
    assert client("GET", "/readyz").status == client("GET", "/readyz").status == 200
    said = [record.getMessage() for record in caplog.records if record.name == "frazil.rest"]
    assert said == ["not ready: DatabaseUnavailable('password=x')", "ready again"]


def test_readiness_shows_the_reason_that_the_catalog_knows(
    client: Client, catalog: StandInCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    reason = "the database cannot be written: its disk is full"
    catalog.raises["ready"] = errors.ServiceUnavailable(reason, retry_after_s=2)
    got = client("GET", "/readyz")
    assert (got.status, got.error["message"]) == (503, reason)
    assert got.headers["retry-after"] == "2"
    assert "not ready" not in caplog.text


def test_warnings_do_not_make_the_server_unready(client: Client, catalog: StandInCatalog) -> None:
    catalog.answers["ready"] = ["the clock of this server jumped forward by 3600 s"]
    got = client("GET", "/readyz")
    assert got.status == 200
    assert got.json == {"status": "ready", "warnings": catalog.answers["ready"]}


def test_readiness_does_not_wait_for_ever(
    make_client: Callable[..., Client], catalog: StandInCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(ready_timeout_s=0.01)
    release = threading.Event()
    monkeypatch.setattr(catalog, "ready", lambda: release.wait(HANG_S))
    try:
        assert client("GET", "/readyz").status == 503
    finally:
        release.set()


def test_too_many_requests_at_once_are_429(
    make_client: Callable[..., Client], catalog: StandInCatalog
) -> None:
    client = make_client(max_requests_in_flight=2)
    held: Future[Any] = Future()
    catalog.hold = held

    async def scenario() -> None:
        body = (dumped(COMMIT),)
        running = [
            asyncio.create_task(exchange(client.app, "POST", TABLE, parts=body)) for _ in range(2)
        ]
        while len(catalog.calls) < 2:
            await asyncio.sleep(0)
        refused = await exchange(client.app, "POST", TABLE, parts=body)
        assert refused.status == 429
        assert (await exchange(client.app, "GET", "/healthz")).status == 200
        held.set_exception(errors.CommitFailed("no"))
        assert {(await task).status for task in running} == {409}
        assert (await exchange(client.app, "GET", TABLE)).status == 200

    asyncio.run(scenario())

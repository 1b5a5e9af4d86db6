"""The scan planning routes alone: what they accept, refuse, pass on and log."""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from frazil.commit.pipeline.catalog_answers import TableAnswer
from frazil.store.object_store import StoreError
from frazil.wire.errors import NoSuchPlanId, NoSuchPlanTask, NoSuchTable
from frazil.wire.identifiers import Identifier
from tests.rest.stand_in import (
    Client,
    StandInCatalog,
    StandInPlanner,
    dumped,
    exchange,
    loaded_table,
)

TABLE = "/v1/namespaces/a/tables/t"
T = Identifier(("a",), "t")
MODE = "frazil.scan-planning-mode"
CREATE = {"name": "t", "schema": {}}
REGISTER = {"name": "t", "metadata-location": "x"}


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"snapshot-id": "7"}, "snapshot-id"),
        ({"snapshot-id": 2**63}, "snapshot-id"),
        ({"snapshot-id": 7.5}, "snapshot-id"),
        ({"select": "id"}, "select"),
        ({"select": [1]}, "select[0]"),
        ({"min-rows-requested": -1}, "min-rows-requested"),
        ({"min-rows-requested": "many"}, "min-rows-requested"),
        ({"case-sensitive": "yes"}, "case-sensitive"),
        ({"use-snapshot-schema": 1}, "use-snapshot-schema"),
        ({"start-snapshot-id": "1", "end-snapshot-id": 2}, "start-snapshot-id"),
        ({"start-snapshot-id": 1, "end-snapshot-id": []}, "end-snapshot-id"),
        ({"start-snapshot-id": 1}, "end-snapshot-id: required with start-snapshot-id"),
        ({"snapshot-id": 3, "start-snapshot-id": 1, "end-snapshot-id": 2}, "snapshot-id: cannot"),
        ({"snapshot-id": 3, "end-snapshot-id": 2}, "snapshot-id: cannot"),
        ({"stats-fields": {"id": 1}}, "stats-fields"),
        ({"stats-fields": [None]}, "stats-fields[0]"),
        ({"snapshot_id": 7}, "snapshot_id"),
        ({"branch": "main"}, "branch"),
        ([], ""),
        (b"{", ""),
        (b"", ""),
    ],
)
def test_a_scan_that_is_wrong_by_its_own_text(client: Client, body: Any, message: str) -> None:
    got = client("POST", f"{TABLE}/plan", body)
    assert (got.status, got.error["type"]) == (400, "BadRequestException")
    assert message in got.error["message"]
    assert not client.catalog.calls


def test_every_field_reaches_the_planner(client: Client) -> None:
    body = {
        "snapshot-id": 7,
        "select": ["id", "s.a"],
        "filter": {"type": "eq", "term": "id", "value": 1},
        "min-rows-requested": 0,
        "case-sensitive": False,
        "use-snapshot-schema": True,
        "stats-fields": [],
    }
    assert client("POST", f"{TABLE}/plan", body).status == 200
    context, identifier, request = client.catalog.asked("plan")
    assert (identifier, context.principal, context.key) == (T, "anonymous", None)
    assert msgspec.json.decode(msgspec.json.encode(request)) == body
    assert msgspec.json.decode(request.filter) == body["filter"]
    assert not request.is_case_sensitive


@pytest.mark.parametrize(
    "body",
    [
        {},
        dict.fromkeys(
            [
                "snapshot-id",
                "select",
                "filter",
                "min-rows-requested",
                "case-sensitive",
                "use-snapshot-schema",
                "start-snapshot-id",
                "end-snapshot-id",
                "stats-fields",
            ]
        ),
        {"snapshot-id": -(2**63), "filter": True},
        {"start-snapshot-id": 1, "end-snapshot-id": 2},
        {"end-snapshot-id": 2},
    ],
)
def test_scans_that_are_taken(client: Client, body: Any) -> None:
    assert client("POST", f"{TABLE}/plan", body).status == 200


@pytest.mark.parametrize("body", [{}, {"plan-task": None}, {"plan-task": ""}, {"plan-task": 1},
                                  {"plan-task": "p", "x": 1}, []])  # fmt: skip
def test_tasks_are_asked_for_by_a_token(client: Client, body: Any) -> None:
    assert client("POST", f"{TABLE}/tasks", body).status == 400
    assert not client.catalog.calls


def test_a_plan_id_is_decoded_as_a_name_is(client: Client) -> None:
    client("GET", f"{TABLE}/plan/a-_b%2Fc")
    assert client.catalog.asked("fetch")[1:] == (T, "a-_b/c")
    assert client("GET", f"{TABLE}/plan/%ff").status == 400
    assert client("POST", f"{TABLE}/plan/a").status == 405
    assert client("GET", f"{TABLE}/plan").status == 405


def test_an_idempotency_key_says_nothing(client: Client) -> None:
    """Planning changes nothing, so an idempotency key is ignored, even an invalid one."""
    for key in ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "no uuid"):
        headers = {"Idempotency-Key": key}
        assert client("POST", f"{TABLE}/plan", {}, headers=headers).status == 200
        assert client("POST", f"{TABLE}/tasks", {"plan-task": "p"}, headers=headers).status == 200
        assert client("DELETE", f"{TABLE}/plan/p", headers=headers).status == 204
    assert all(arguments[0].key is None for _, arguments in client.catalog.calls)


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (NoSuchTable("gone"), 404, "NoSuchTableException"),
        (NoSuchPlanId("gone"), 404, "NoSuchPlanIdException"),
        (NoSuchPlanTask("gone"), 404, "NoSuchPlanTaskException"),
        (StoreError("down"), 503, "ServiceUnavailableException"),
        (RuntimeError("a bug"), 500, "InternalServerError"),
    ],
)
def test_failures(client: Client, error: Exception, status: int, type_: str) -> None:
    client.catalog.raises = dict.fromkeys(["plan", "fetch", "cancel", "tasks"], error)
    for got in (
        client("POST", f"{TABLE}/plan", {}),
        client("GET", f"{TABLE}/plan/p"),
        client("DELETE", f"{TABLE}/plan/p"),
        client("POST", f"{TABLE}/tasks", {"plan-task": "p"}),
    ):
        assert (got.status, got.error["type"]) == (status, type_)


def test_what_the_planner_writes_is_sent_as_it_is(client: Client) -> None:
    client.catalog.answers["plan"] = b'{"status":"completed"}'
    got = client("POST", f"{TABLE}/plan", {})
    assert got.body == b'{"status":"completed"}'
    assert got.headers["content-type"] == "application/json"


def test_plans_go_on_while_the_server_drains(client: Client) -> None:
    """Planning changes nothing, and a client that has part of a plan needs the rest."""
    client.app.drain()
    assert client("POST", f"{TABLE}/plan", {}).status == 200
    assert client("POST", f"{TABLE}/tasks", {"plan-task": "p"}).status == 200


def test_slow_plans_hold_up_neither_loads_nor_cancelling(
    make_client: Callable[..., Client], planner: StandInPlanner
) -> None:
    client = make_client(planning_threads=1)
    planner.hold = threading.Event()

    async def all_at_once() -> list[int]:
        plans = [
            asyncio.ensure_future(exchange(client.app, "POST", f"{TABLE}/plan", None, [b"{}"]))
            for _ in range(20)
        ]
        quick = [
            await exchange(client.app, "GET", TABLE),
            await exchange(client.app, "DELETE", f"{TABLE}/plan/p"),
        ]
        assert not any(plan.done() for plan in plans)
        assert planner.hold is not None
        planner.hold.set()
        return [got.status for got in quick + list(await asyncio.gather(*plans))]

    assert asyncio.run(all_at_once()) == [200, 204] + [200] * 20


def test_the_log_does_not_tell_what_somebody_looks_for(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan id contains the scan's filter, so the log must shorten it."""
    caplog.set_level(logging.INFO, "frazil.access")
    client("GET", f"{TABLE}/plan/{'filter' * 100}0123456789ab")
    (record,) = [found for found in caplog.records if found.name == "frazil.access"]
    assert vars(record)["path"] == f"{TABLE}/plan/...0123456789ab"
    assert vars(record)["table"] == "a.t"


# --- who is to plan -------------------------------------------------------------------------------


def with_mode(catalog: StandInCatalog, mode: str | None) -> None:
    table = loaded_table(T, properties={} if mode is None else {MODE: mode})
    catalog.answers |= {
        "load_table": table,
        "create_table": TableAnswer(table),
        "register_table": TableAnswer(table),
        "commit_table": TableAnswer(table),
    }


@pytest.mark.parametrize("mode", [None, "client", "SERVER", "both", ""])
def test_clients_are_told_nothing_unless_the_table_says_server(
    client: Client, catalog: StandInCatalog, mode: str | None
) -> None:
    """A registered table may have a value that cannot be set through a commit."""
    plain = client("GET", TABLE).headers["etag"]
    with_mode(catalog, mode)
    got = client("GET", TABLE)
    assert got.json["config"] == {}
    assert got.headers["etag"] == plain


def test_clients_are_told_to_have_scans_planned(
    make_client: Callable[..., Client], catalog: StandInCatalog
) -> None:
    client = make_client(table_config={"s3.region": "eu"})
    plain = client("GET", TABLE).headers["etag"]
    with_mode(catalog, "server")
    config = {"s3.region": "eu", "scan-planning-mode": "server"}
    answers = [
        client("GET", TABLE),
        client("POST", "/v1/namespaces/a/tables", CREATE),
        client("POST", "/v1/namespaces/a/register", REGISTER),
    ]
    assert [got.json["config"] for got in answers] == [config] * 3
    commit = client("POST", TABLE, {"requirements": [], "updates": []})
    assert "config" not in commit.json
    tags = {got.headers["etag"] for got in (*answers, commit)}
    assert len(tags) == 1
    assert tags != {plain}
    assert client("GET", TABLE, headers={"If-None-Match": tags.pop()}).status == 304
    assert client("GET", TABLE, headers={"If-None-Match": plain}).status == 200


def test_bodies_of_plans_may_be_compressed(client: Client) -> None:
    body = gzip.compress(dumped({"snapshot-id": 7}))
    got = client("POST", f"{TABLE}/plan", body, headers={"Content-Encoding": "gzip"})
    assert got.status == 200
    assert client.catalog.asked("plan")[2].snapshot_id == 7

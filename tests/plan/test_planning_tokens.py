"""Plan ids and task tokens: who may use them, how long they are valid, and use on any replica."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from frazil.plan.planner import PlanLimits
from frazil.rest.rest_app import AppSettings
from tests.commit.finegrained.requests import Json, eq, expire
from tests.commit.finegrained.tables import DATES, Answer, Table
from tests.commit.finegrained.world import World
from tests.plan.plan_calls import (
    NAMESPACE,
    TOKENS,
    GatedStore,
    Place,
    asked,
    bearer,
    cancel_plan,
    fetch_plan,
    fetch_tasks,
    new_place,
    plan,
    validated,
    with_pages,
)
from tests.stock_clients.declared import Http
from tests.support.patience import HANG_S, wait_until
from tests.support.server import ServerFactory

NewTable = Callable[..., Table]
PAGES = PlanLimits(page_files=2)
AT_ONCE_SUBMITTED = PlanLimits(quick_s=0, page_files=2)
FILES = 7


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with new_place() as found:
        yield found


@pytest.fixture(scope="module")
def world(place: Place) -> Iterator[World]:
    """Start a world that Ann and Bob may use."""
    with place.replica(PAGES, AppSettings(tokens=TOKENS)) as found:
        body = {"namespace": [NAMESPACE]}
        assert found("POST", "/v1/namespaces", body, bearer("ann")).status == 200
        yield found


def as_ann(world: World) -> Any:
    def call(method: str, path: str, body: Any = None, headers: Any = None) -> Answer:
        return world(method, path, body, {**bearer("ann"), **(headers or {})})

    return call


@pytest.fixture
def new_table(world: World) -> NewTable:
    def make(files: int = FILES, **fields: Any) -> Table:
        table = Table(as_ann(world), **{"namespace": NAMESPACE, "spec": DATES, **fields}).create()
        if files:
            table.append(*(table.data(f"f{number}", "1") for number in range(files)))
        return table

    return make


def at(table: Table, world: World) -> Table:
    """Return the same table on another replica."""
    return Table(
        as_ann(world),
        namespace=table.namespace,
        name=table.name,
        metadata=table.metadata,
        metadata_location=table.metadata_location,
    )


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["error"]["type"]


NO_PLAN = (404, "NoSuchPlanIdException")
NO_TASK = (404, "NoSuchPlanTaskException")
NO_TABLE = (404, "NoSuchTableException")


# --- whose they are -------------------------------------------------------------------------------


def test_tokens_are_for_one_table(new_table: NewTable) -> None:
    one, other = new_table(), new_table()
    body = plan(one).body
    for token in body["plan-tasks"]:
        assert error(fetch_tasks(other, token)) == NO_TASK
    assert error(fetch_plan(other, body["plan-id"])) == NO_PLAN
    assert error(cancel_plan(other, body["plan-id"])) == NO_PLAN


def test_tokens_are_for_one_principal(new_table: NewTable) -> None:
    table = new_table()
    body = plan(table).body
    assert fetch_tasks(table, body["plan-tasks"][0], "ann").status == 200
    assert error(fetch_tasks(table, body["plan-tasks"][0], "bob")) == NO_TASK
    assert error(fetch_plan(table, body["plan-id"], "bob")) == NO_PLAN
    assert error(cancel_plan(table, body["plan-id"], "bob")) == NO_PLAN
    assert plan(table, "bob").names == [f"f{number}" for number in range(FILES)]


def test_a_plan_id_is_no_task_and_a_task_no_plan_id(new_table: NewTable) -> None:
    table = new_table()
    body = plan(table).body
    assert error(fetch_tasks(table, body["plan-id"])) == NO_TASK
    assert error(fetch_plan(table, body["plan-tasks"][0])) == NO_PLAN


def test_tokens_that_were_changed_are_no_tokens(new_table: NewTable) -> None:
    table = new_table()
    body = plan(table).body
    token, plan_id = body["plan-tasks"][0], body["plan-id"]
    # The last character may have unused bits; every other character is signed.
    for place in range(0, len(token) - 1, 7):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert error(fetch_tasks(table, changed)) == NO_TASK, place
    for place in range(0, len(plan_id) - 1, 11):
        changed = plan_id[:place] + ("A" if plan_id[place] != "A" else "B") + plan_id[place + 1 :]
        assert error(fetch_plan(table, changed)) == NO_PLAN, place
    for cut in (1, 5, 22, 23, len(token) // 2, len(token) - 2):
        assert error(fetch_tasks(table, token[:cut])) == NO_TASK
        assert error(fetch_tasks(table, token[cut:])) == NO_TASK
    assert error(fetch_tasks(table, token + token)) == NO_TASK


@pytest.mark.parametrize(
    "text",
    ["x", "MQ", "A" * 22, "A" * 100_000, "not base64!", "ä", "\ud7ff\x00", "=", "====", "..", "🧊"],
)
def test_texts_that_never_were_tokens(new_table: NewTable, text: str) -> None:
    table = new_table(files=0)
    assert error(fetch_tasks(table, text)) == NO_TASK
    if text.isascii() and text.isalnum() and len(text) < 10_000:
        assert error(fetch_plan(table, text)) == NO_PLAN
        assert error(cancel_plan(table, text)) == NO_PLAN


def test_ids_fit_in_paths(new_table: NewTable) -> None:
    """A response has no plan id if the id would be too long for proxies."""
    table = new_table()
    names = [hashlib.sha256(bytes([number])).hexdigest() for number in range(200)]
    many = {"type": "in", "term": "data", "values": names}
    for filter in (True, eq("data", "x" * 500), many):
        planned = plan(table, filter=filter)
        assert len(planned.names) == FILES
        plan_id = planned.body.get("plan-id", "")
        assert len(plan_id) <= 4000
        assert plan_id.replace("-", "").replace("_", "").isalnum() or not plan_id
    assert "plan-id" not in plan(table, filter=many).body


# --- how long they hold ---------------------------------------------------------------------------


def test_tokens_of_a_table_that_is_gone(new_table: NewTable) -> None:
    table = new_table()
    body = plan(table).body
    assert table.call("DELETE", table.path).status == 204
    assert error(fetch_tasks(table, body["plan-tasks"][0])) == NO_TABLE
    assert error(fetch_plan(table, body["plan-id"])) == NO_TABLE
    assert error(cancel_plan(table, body["plan-id"])) == NO_TABLE
    assert error(asked(table)) == NO_TABLE
    table.create()
    assert error(fetch_tasks(table, body["plan-tasks"][0])) == NO_TASK
    assert error(fetch_plan(table, body["plan-id"])) == NO_PLAN


def test_tokens_of_a_snapshot_that_has_expired(new_table: NewTable) -> None:
    table = new_table()
    body, planned = plan(table).body, table.head_id
    table.append(table.data("later", "1"))
    assert len(with_pages(table, body).names) == FILES
    table.commit(expire(planned))
    assert error(fetch_tasks(table, body["plan-tasks"][0])) == NO_TASK
    assert error(fetch_plan(table, body["plan-id"])) == NO_PLAN
    assert cancel_plan(table, body["plan-id"]).status == 204


def test_a_table_keeps_its_tokens_under_another_name(new_table: NewTable) -> None:
    table = new_table()
    body = plan(table).body
    source = {"namespace": [NAMESPACE], "name": table.name}
    renaming = {"source": source, "destination": source | {"name": f"{table.name}_moved"}}
    assert table.call("POST", "/v1/tables/rename", renaming).status == 204
    assert error(fetch_tasks(table, body["plan-tasks"][0])) == NO_TABLE
    table.name = f"{table.name}_moved"
    assert fetch_tasks(table, body["plan-tasks"][0]).status == 200


def test_a_plan_may_be_asked_for_again_and_cancelled(new_table: NewTable) -> None:
    table = new_table()
    body = plan(table).body
    for _ in range(2):
        again = fetch_plan(table, body["plan-id"])
        assert again.status == 200
        assert len(with_pages(table, validated(again.body, "FetchPlanningResult")).names) == FILES
        assert cancel_plan(table, body["plan-id"]).status == 204
    assert plan(table).body["plan-id"] != body["plan-id"]


# --- plans that take long -------------------------------------------------------------------------


def polled(table: Table, plan_id: str) -> Json:
    """Poll until the plan is no longer `submitted` and return the response."""
    answers: list[Json] = []

    def is_finished() -> bool:
        answer = fetch_plan(table, plan_id)
        assert answer.status == 200, answer.body
        answers.append(validated(answer.body, "FetchPlanningResult"))
        return bool(answers[-1]["status"] != "submitted")

    wait_until(is_finished, "the plan was never finished")
    return answers[-1]


@pytest.fixture
def slow(place: Place, world: World) -> Iterator[tuple[World, GatedStore]]:
    """Start a replica that does not wait for plans and whose reads wait for the gate."""
    store = GatedStore()
    settings = AppSettings(tokens=TOKENS)
    with place.replica(AT_ONCE_SUBMITTED, settings, store) as found:
        yield found, store
        store.gate.set()


def test_a_plan_that_takes_long_is_polled(
    new_table: NewTable, slow: tuple[World, GatedStore]
) -> None:
    table = at(new_table(), slow[0])
    slow[1].gate.clear()
    body = validated(asked(table).body, "PlanTableScanResult")
    assert body["status"] == "submitted"
    assert slow[1].reached.wait(HANG_S)
    assert fetch_plan(table, body["plan-id"]).body == {"status": "submitted"}
    assert error(fetch_plan(table, body["plan-id"], "bob")) == NO_PLAN
    slow[1].gate.set()
    done = polled(table, body["plan-id"])
    assert done["status"] == "completed"
    assert with_pages(table, done).names == [f"f{number}" for number in range(FILES)]


def test_a_plan_that_nobody_waits_for_is_cancelled(
    new_table: NewTable, slow: tuple[World, GatedStore]
) -> None:
    table = at(new_table(), slow[0])
    slow[1].gate.clear()
    one, other = (asked(table).body["plan-id"] for _ in range(2))
    assert slow[1].reached.wait(HANG_S)
    assert error(cancel_plan(table, one, "bob")) == NO_PLAN
    assert cancel_plan(table, one).status == 204
    slow[1].gate.set()
    assert polled(table, one) == {"status": "cancelled"}
    assert polled(table, other)["status"] == "completed"


def test_a_plan_that_fails_says_so(new_table: NewTable, slow: tuple[World, GatedStore]) -> None:
    """The manifests are missing, so planning fails although the server is healthy."""
    table = at(new_table(), slow[0])
    slow[1].gate.clear()
    plan_id = asked(table).body["plan-id"]
    assert slow[1].reached.wait(HANG_S)
    metadata = Path(table.location.removeprefix("file://")) / "metadata"
    for path in metadata.glob("*.avro"):
        path.unlink()
    slow[1].gate.set()
    submitted = {"status": "submitted"}
    wait_until(lambda: fetch_plan(table, plan_id).body != submitted, "the plan never failed")
    answer = fetch_plan(table, plan_id)
    assert error(answer) == (404, "NotFoundException"), answer.body
    assert "missing" in answer.body["error"]["message"]


def test_many_plans_at_once(new_table: NewTable, slow: tuple[World, GatedStore]) -> None:
    """There are more plans than threads; the rest are queued and all complete."""
    table = at(new_table(), slow[0])
    ids = [asked(table).body["plan-id"] for _ in range(40)]
    assert len(set(ids)) == 40
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda own=own: found.append(polled(table, own)["status"]))
        for own in ids
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert found == ["completed"] * 40


def test_whoever_waits_is_let_go_when_the_server_ends(new_table: NewTable, place: Place) -> None:
    """This includes requests queued behind running plans, whose results nobody will fetch."""
    store, own = GatedStore(), new_table()
    patient = PlanLimits(quick_s=600)
    with (
        ThreadPoolExecutor(7) as clients,
        place.replica(patient, AppSettings(tokens=TOKENS), store) as world,
    ):
        table = at(own, world)
        store.gate.clear()
        waiting = [clients.submit(asked, table) for _ in range(7)]
        assert store.reached.wait(HANG_S)
        ending = threading.Thread(target=world.planner.close)
        ending.start()
        assert not any(one.done() for one in waiting)
        store.gate.set()
        ending.join(HANG_S)
        assert {one.result(HANG_S).status for one in waiting} <= {200, 503}


# --- replicas -------------------------------------------------------------------------------------


def test_any_replica_answers(new_table: NewTable, place: Place) -> None:
    table = new_table()
    body = plan(table).body
    with place.replica(PAGES, AppSettings(tokens=TOKENS)) as other:
        elsewhere = at(table, other)
        assert with_pages(elsewhere, body).names == [f"f{number}" for number in range(FILES)]
        again = validated(fetch_plan(elsewhere, body["plan-id"]).body, "FetchPlanningResult")
        assert len(with_pages(table, again).names) == FILES
        assert cancel_plan(elsewhere, body["plan-id"]).status == 204
        assert error(fetch_tasks(elsewhere, body["plan-tasks"][0], "bob")) == NO_TASK


def test_two_servers_on_one_database(
    server: ServerFactory, postgres_database: str, tmp_path: Path
) -> None:
    """A plan that one process starts can be continued by another, also by one that starts later."""
    flags = ("--database", postgres_database, "--plan-page-files", "2")
    one, other = (server(*flags, directory=tmp_path) for _ in range(2))
    with closing(Http(one.url)) as first, closing(Http(other.url)) as second:
        assert first("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
        table = Table(first, namespace=NAMESPACE, spec=DATES).create()
        table.append(*(table.data(f"f{number}", "1") for number in range(FILES)))
        body = plan(table, filter=eq("date", "1")).body
        table.call = second
        assert len(with_pages(table, body).names) == FILES
    assert one.stop() == 0
    later = server(*flags, "--plan-wait-s", "0", directory=tmp_path)
    with closing(Http(later.url)) as third:
        table.call = third
        assert len(with_pages(table, body).names) == FILES
        assert len(with_pages(table, polled(table, body["plan-id"])).names) == FILES

"""With `X-Frazil-Explain` a plan reports what the manifest walk read and skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from frazil.plan.planner import PlanLimits
from tests.commit.finegrained.requests import both, compare, eq
from tests.commit.finegrained.tables import DATES, Table
from tests.commit.finegrained.world import World
from tests.plan.plan_calls import NAMESPACE, GatedStore, new_place, validated
from tests.rest.stand_in import Client, StandInPlanner

EXPLAIN = {"X-Frazil-Explain": "true"}
PLAN = "/v1/namespaces/a/tables/t/plan"


@pytest.mark.parametrize(
    ("sent", "asked"), [(None, False), ("true", True), ("TRUE", True), ("false", False)]
)
def test_the_walk_is_told_where_it_is_asked_for(
    client: Client, planner: StandInPlanner, sent: str | None, asked: bool
) -> None:
    headers = {} if sent is None else {"X-Frazil-Explain": sent}
    assert client("POST", PLAN, {}, headers=headers).status == 200
    assert client("GET", f"{PLAN}/p", headers=headers).status == 200
    assert planner.explained == [asked, asked]


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_another_value_is_refused(client: Client, planner: StandInPlanner, method: str) -> None:
    path = PLAN if method == "POST" else f"{PLAN}/p"
    body = b"{}" if method == "POST" else b""
    answer = client(method, path, body, headers={"X-Frazil-Explain": "yes"})
    assert answer.status == 400
    assert "X-Frazil-Explain: 'yes'" in answer.json["error"]["message"]
    assert planner.explained == []


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with new_place() as place, place.replica() as world:
        assert world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
        yield world


def walk_of(table: Table, **request: Any) -> dict[str, int]:
    answer = table.call("POST", f"{table.path}/plan", request, EXPLAIN)
    assert answer.status == 200, answer.body
    walk: dict[str, int] = validated(answer.body, "PlanTableScanResult")["walk"]
    assert len(answer.body["file-scan-tasks"]) == walk["data-files-planned"]
    return {name: count for name, count in walk.items() if count}


def test_what_each_level_has_seen_and_skipped(world: World) -> None:
    table = Table(world, namespace=NAMESPACE, spec=DATES).create()
    one = table.data("a", "2024-05-01", ids=(10, 19))
    table.append(one, table.data("b", "2024-05-02", ids=(10, 19)))
    table.append(table.data("c", "2024-06-01"))
    assert walk_of(table) == {"data-manifests": 2, "data-files": 3, "data-files-planned": 3}
    day, near, far = eq("date", "2024-05-01"), eq("id", 12), compare("gt", "id", 19)
    assert walk_of(table, filter=day) == {
        "data-manifests": 2,
        "data-manifests-skipped-by-partition": 1,
        "data-files": 2,
        "data-files-skipped-by-partition": 1,
        "data-files-planned": 1,
    }
    assert walk_of(table, filter=both(day, near))["data-files-planned"] == 1
    assert walk_of(table, filter=both(day, far)) == {
        "data-manifests": 2,
        "data-manifests-skipped-by-partition": 1,
        "data-files": 2,
        "data-files-skipped-by-partition": 1,
        "data-files-skipped-by-statistics": 1,
    }


def test_without_the_header_the_answer_is_the_specifications(world: World) -> None:
    table = Table(world, namespace=NAMESPACE, spec=DATES).create()
    answer = table.call("POST", f"{table.path}/plan", {})
    assert "walk" not in answer.body


def test_a_plan_that_is_polled_tells_its_walk_too() -> None:
    store = GatedStore()
    with new_place() as place:
        # Another replica writes, so that the planning server has nothing in memory.
        with place.replica() as writer:
            assert writer("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
            table = Table(writer, namespace=NAMESPACE, spec=DATES).create()
            table.append(table.data("a", "2024-05-01"))
        with place.replica(PlanLimits(quick_s=0.0), store=store) as world:
            store.gate.clear()
            submitted = world("POST", f"{table.path}/plan", {}, EXPLAIN).body
            assert submitted["status"] == "submitted"
            store.gate.set()
            path = f"{table.path}/plan/{submitted['plan-id']}"
            answer: Any = {"status": "submitted"}
            while answer["status"] == "submitted":
                answer = world("GET", path, headers=EXPLAIN).body
            assert validated(answer, "FetchPlanningResult")["walk"]["data-files"] == 1

"""With `X-Frazil-Sequence-Numbers` a plan's data files have their data sequence numbers."""

from __future__ import annotations

import pytest

from tests.commit.finegrained.tables import DATES, Table
from tests.plan.plan_calls import NAMESPACE, new_place, validated, with_pages
from tests.rest.stand_in import Client, StandInPlanner

NUMBERS = {"X-Frazil-Sequence-Numbers": "true"}
ALL = {"X-Frazil-All-Deletes": "true"}
PLAN = "/v1/namespaces/a/tables/t/plan"


@pytest.mark.parametrize(
    ("sent", "asked"), [(None, False), ("true", True), ("TRUE", True), ("false", False)]
)
def test_they_are_told_where_they_are_asked_for(
    client: Client, planner: StandInPlanner, sent: str | None, asked: bool
) -> None:
    headers = {} if sent is None else {"X-Frazil-Sequence-Numbers": sent}
    assert client("POST", PLAN, {}, headers=headers).status == 200
    assert planner.numbered == [asked]


def test_another_value_is_refused(client: Client, planner: StandInPlanner) -> None:
    answer = client("POST", PLAN, b"{}", headers={"X-Frazil-Sequence-Numbers": "1"})
    assert answer.status == 400
    assert "X-Frazil-Sequence-Numbers: '1'" in answer.json["error"]["message"]
    assert planner.numbered == []


def test_rewritten_manifests_keep_each_files_number() -> None:
    with new_place() as place, place.replica() as world:
        assert world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
        table = Table(world, namespace=NAMESPACE, spec=DATES).create()
        table.append(table.data("a", "2024-05-01"))
        table.append(table.data("b", "2024-05-01"))
        for statistics in ({}, {"stats-fields": ["id"]}):
            answer = table.call("POST", f"{table.path}/plan", statistics, NUMBERS)
            found = with_pages(table, validated(answer.body, "PlanTableScanResult"))
            numbers = {name: found.file(name)["data-sequence-number"] for name in found.names}
            assert numbers == {"a": 1, "b": 2}


def test_all_deletes_are_listed_where_they_are_asked_for() -> None:
    """Statistics exclude the second delete; a job that converts deletes has to know it anyway."""
    with new_place() as place, place.replica() as world:
        assert world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
        table = Table(world, namespace=NAMESPACE, spec=DATES).create()
        table.append(table.data("a", "2024-05-01", rows=9, ids=(1, 9)))
        for name, ids in (("near", (5, 6)), ("far", (70, 80))):
            deletes = table.equality_deletes(name, "2024-05-01", rows=2, ids=ids)
            table.overwrite(add_deletes=[deletes])
        for headers, expected in (({}, {"near": 2}), (ALL, {"near": 2, "far": 3})):
            answer = table.call("POST", f"{table.path}/plan", {}, {**NUMBERS, **headers})
            plan = validated(answer.body, "PlanTableScanResult")
            assert {
                table.short(file["file-path"]): file["data-sequence-number"]
                for file in plan["delete-files"]
            } == expected

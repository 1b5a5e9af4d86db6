"""Scan planning over HTTP: snapshots, filters, columns, deletes, incremental scans and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from frazil.plan.planner import PlanLimits
from frazil.wire.identifiers import Identifier
from tests.commit.finegrained.requests import (
    both,
    compare,
    either,
    eq,
    expire,
    negation,
    set_properties,
    set_ref,
)
from tests.commit.finegrained.tables import BUCKETS, DATES, SCHEMA, Answer, Table
from tests.commit.finegrained.world import World
from tests.commit.requests import context
from tests.plan.plan_calls import NAMESPACE, asked, new_place, plan, with_pages

NewTable = Callable[..., Table]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with new_place() as place, place.replica(PlanLimits(page_files=3)) as world:
        assert world("POST", "/v1/namespaces", {"namespace": [NAMESPACE]}).status == 200
        yield world


@pytest.fixture(scope="module")
def new_table(world: World) -> NewTable:
    return lambda **fields: Table(world, **{"namespace": NAMESPACE, **fields}).create()


@pytest.fixture
def table(new_table: NewTable) -> Table:
    return new_table(spec=DATES)


def refusal(answer: Answer) -> str:
    assert answer.status == 400, answer.body
    assert answer.body["error"]["type"] == "BadRequestException"
    return str(answer.body["error"]["message"])


# --- which snapshot -------------------------------------------------------------------------------


def test_an_empty_table_has_a_plan_without_tasks(table: Table) -> None:
    planned = plan(table, filter=eq("id", 1))
    assert planned.names == []
    assert "plan-tasks" not in planned.body
    assert "delete-files" not in planned.body


def test_the_head_of_main_or_the_snapshot_that_is_named(table: Table) -> None:
    first = table.append(table.data("a", "1"))
    second = table.append(table.data("b", "2"))
    table.commit(set_ref(first["snapshot-id"], "side"))
    table.delete(table.data("a", "1"))
    assert plan(table).names == ["b"]
    assert plan(table, snapshot_id=first["snapshot-id"]).names == ["a"]
    assert plan(table, snapshot_id=second["snapshot-id"]).names == ["a", "b"]
    assert refusal(asked(table, snapshot_id=7)).startswith("snapshot-id: ")


def test_an_expired_snapshot_is_refused(table: Table) -> None:
    first = table.append(table.data("a", "1"))
    table.append(table.data("b", "2"))
    table.commit(expire(first["snapshot-id"]))
    assert "expired" in refusal(asked(table, snapshot_id=first["snapshot-id"]))


def test_a_table_that_is_gone(table: Table) -> None:
    table.append(table.data("a", "1"))
    table.call("DELETE", table.path)
    answer = asked(table)
    assert (answer.status, answer.body["error"]["type"]) == (404, "NoSuchTableException")


def renamed(table: Table) -> None:
    """Rename the column `data` to `payload`."""
    fields = [
        field | {"name": "payload"} if field["name"] == "data" else field
        for field in SCHEMA["fields"]
    ]
    schema = SCHEMA | {"schema-id": 1, "fields": fields}
    table.commit(
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    )


def test_names_are_of_the_table_or_of_the_snapshot(table: Table) -> None:
    old = table.append(table.data("a", "1"))["snapshot-id"]
    renamed(table)
    new = table.append(table.data("b", "1"))["snapshot-id"]
    by_old, by_new = eq("data", "x"), eq("payload", "x")
    assert plan(table, filter=by_new).names == ["a", "b"]
    assert plan(table, filter=by_new, snapshot_id=old).names == ["a"]
    assert plan(table, filter=by_old, snapshot_id=old, use_snapshot_schema=True).names == ["a"]
    assert plan(table, filter=by_new, snapshot_id=new, use_snapshot_schema=True).names == ["a", "b"]
    assert "data" in refusal(asked(table, filter=by_old, snapshot_id=old))
    assert "payload" in refusal(
        asked(table, filter=by_new, snapshot_id=old, use_snapshot_schema=True)
    )


# --- filters and columns --------------------------------------------------------------------------


def test_filters_leave_out_partitions_and_files(table: Table) -> None:
    table.append(table.data("a1", "1", ids=(0, 9)), table.data("a2", "1", ids=(10, 19)))
    table.append(table.data("b1", "2", ids=(0, 9)), table.data("none", None, ids=(0, 99)))
    assert plan(table).residuals() == dict.fromkeys(["a1", "a2", "b1", "none"], True)
    assert plan(table, filter=eq("date", "1")).residuals() == {"a1": True, "a2": True}
    over = compare("gt", "id", 9)
    assert plan(table, filter=over).residuals() == {
        "a2": {"type": "gt", "term": "id", "value": 9},
        "none": {"type": "gt", "term": "id", "value": 9},
    }
    assert plan(table, filter=both(eq("date", "1"), over)).names == ["a2"]
    assert plan(table, filter=negation(either(eq("date", "1"), over))).residuals() == {
        "b1": {"type": "lt-eq", "term": "id", "value": 9},
        "none": {"type": "lt-eq", "term": "id", "value": 9},
    }
    assert plan(table, filter={"type": "is-null", "term": "date"}).names == ["none"]
    assert plan(table, filter=False).names == []
    assert plan(table, filter={"type": "true"}).names == ["a1", "a2", "b1", "none"]


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (eq("nowhere", 1), "nowhere"),
        (eq("id", "text"), "filter"),
        ({"type": "eq", "term": "id"}, "filter"),
        ({"type": "like", "term": "id", "value": 1}, "filter"),
        ("id = 1", "filter"),
        (7, "filter"),
        ({}, "filter"),
    ],
)
def test_a_filter_that_does_not_fit(table: Table, filter: Any, message: str) -> None:
    assert message in refusal(asked(table, filter=filter))


def test_case_sensitivity(table: Table) -> None:
    table.append(table.data("a", "1", ids=(0, 9)), table.data("b", "2", ids=(10, 19)))
    loud = eq("ID", 12)
    assert "ID" in refusal(asked(table, filter=loud))
    assert "ID" in refusal(asked(table, filter=loud, case_sensitive=True))
    assert plan(table, filter=loud, case_sensitive=False).names == ["b"]
    assert plan(table, select=["Id"], case_sensitive=False).names == ["a", "b"]
    assert "Id" in refusal(asked(table, select=["Id"]))
    assert "Id" in refusal(asked(table, stats_fields=["Id"]))


def test_statistics_only_of_the_columns_that_are_asked_for(table: Table) -> None:
    table.append(table.data("a", "1", ids=(3, 300), rows=5))
    bare = plan(table, select=["id"]).file("a")
    assert not {"value-counts", "lower-bounds", "upper-bounds"} & set(bare)
    assert bare["record-count"] == 5
    full = plan(table, stats_fields=["id"]).file("a")
    assert full["value-counts"] == {"keys": [1], "values": [5]}
    assert full["null-value-counts"] == {"keys": [1], "values": [0]}
    # Bounds are single-value binary in little-endian hexadecimal, as Java's client reads them.
    assert full["lower-bounds"] == {"keys": [1], "values": ["0300000000000000"]}
    assert full["upper-bounds"] == {"keys": [1], "values": ["2C01000000000000"]}
    other = plan(table, stats_fields=["data"]).file("a")
    assert not other.get("lower-bounds", {}).get("keys")
    assert "no column 'x'; the columns are" in refusal(asked(table, stats_fields=["id", "x"]))


def test_files_are_described_as_they_were_declared(new_table: NewTable) -> None:
    table = new_table(spec=BUCKETS)
    declared = table.data("a", 3, rows=7, size=900, split_offsets=[4, 500], sort_order_id=0)
    table.append(declared | {"key-metadata": "0AFF"})
    assert plan(table).file("a") == declared | {"key-metadata": "0AFF"}


def test_enough_rows(table: Table) -> None:
    for name in "abc":
        table.append(table.data(name, "1", rows=10, ids=(0, 9)))
    assert len(plan(table, min_rows_requested=5).names) < 3
    assert plan(table, min_rows_requested=1000).names == ["a", "b", "c"]
    assert plan(table, min_rows_requested=1, filter=eq("id", 5)).names == ["a", "b", "c"]


# --- deletes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_stand_by_their_data_files(new_table: NewTable, version: int) -> None:
    table = new_table(spec=DATES, version=version)
    a, b, c = (table.data(name, date) for name, date in (("a", "1"), ("b", "1"), ("c", "2")))
    table.append(a, b, c)
    table.overwrite(add_deletes=[table.deletes("da", a)])
    table.overwrite(add_deletes=[table.equality_deletes("e", "1")])
    table.append(table.data("later", "1"))
    own = {"da@4"} if version == 3 else {"da"}
    shared = set() if version == 3 else {"da"}
    assert plan(table).deletes() == {"a": own | {"e"}, "b": shared | {"e"}}
    assert plan(table, filter=eq("date", "2")).deletes() == {}
    (page,) = plan(table, filter=eq("date", "1")).pages
    kinds = {file["content"] for file in page["delete-files"]}
    assert kinds == {"position-deletes", "equality-deletes"}


# --- increments -----------------------------------------------------------------------------------


def test_appends_between_two_snapshots(table: Table) -> None:
    ids = {name: table.append(table.data(name, "1"))["snapshot-id"] for name in "abc"}

    def between(start: str, end: str) -> list[str]:
        return plan(table, start_snapshot_id=ids[start], end_snapshot_id=ids[end]).names

    assert between("a", "c") == ["b", "c"]
    assert between("b", "c") == ["c"]
    assert between("b", "b") == []
    assert plan(table, end_snapshot_id=ids["b"]).names == ["a", "b"]
    message = refusal(asked(table, start_snapshot_id=ids["c"], end_snapshot_id=ids["a"]))
    assert message.startswith("start-snapshot-id: ")
    message = refusal(asked(table, start_snapshot_id=ids["a"], end_snapshot_id=7))
    assert message.startswith("end-snapshot-id: ")


def test_increments_hold_what_was_appended_whatever_came_of_it(new_table: NewTable) -> None:
    """An incremental scan returns appended files even if later snapshots merged, rewrote or
    deleted them. It does not return files of an overwrite."""
    table = new_table(spec=DATES, properties={"commit.manifest.min-count-to-merge": "2"})
    start = table.append(table.data("a", "1"))["snapshot-id"]
    b, c = table.data("b", "1"), table.data("c", "2")
    table.append(b)
    table.append(c)
    merged = table.append(table.data("d", "1"))["snapshot-id"]
    assert plan(table, start_snapshot_id=start, end_snapshot_id=merged).names == ["b", "c", "d"]
    table.replace(remove=[b], add=[table.data("b2", "1")])
    table.delete(c)
    table.overwrite(add=[table.data("x", "1")], remove=[table.data("a", "1")])
    request = {"start_snapshot_id": start, "end_snapshot_id": table.head_id}
    assert plan(table, **request).names == ["b", "c", "d"]
    assert plan(table, filter=eq("date", "2"), **request).names == ["c"]


# --- pages ----------------------------------------------------------------------------------------


def test_many_files_come_in_pages(new_table: NewTable) -> None:
    """A page has three files here."""
    table = new_table(spec=DATES)
    files = [
        table.data(f"f{number:02}", str(number % 4), ids=(number, number)) for number in range(20)
    ]
    for begin in range(0, 20, 5):
        table.append(*files[begin : begin + 5])
    table.overwrite(add_deletes=[table.deletes("d", files[7], refer=True)])
    planned = plan(table)
    assert planned.names == [f"f{number:02}" for number in range(20)]
    assert [len(page["file-scan-tasks"]) <= 3 for page in planned.pages] == [True] * 7
    assert planned.deletes() == {"f07": {"d"}}
    assert plan(table, filter=compare("lt", "id", 8)).names == [
        f"f0{number}" for number in range(8)
    ]
    assert len(plan(table, filter=compare("lt", "id", 3)).pages) == 1


def test_pages_are_of_the_snapshot_that_was_planned(table: Table) -> None:
    files = [table.data(f"f{number}", "1") for number in range(9)]
    table.append(*files)
    answer = asked(table)
    table.delete(*files[:5])
    table.append(table.data("later", "1"))
    assert len(with_pages(table, answer.body).names) == 9


# --- who plans ------------------------------------------------------------------------------------


def test_the_table_says_who_plans(new_table: NewTable) -> None:
    table = new_table()
    name = "frazil.scan-planning-mode"

    def config() -> Any:
        return table.call("GET", table.path).body["config"]

    assert config() == {}
    for mode, wanted in (("server", {"scan-planning-mode": "server"}), ("client", {})):
        table.commit(set_properties(**{name: mode}))
        assert config() == wanted
    for bad in ("SERVER", "both", ""):
        message = table.bad(set_properties(**{name: bad}))
        assert message == f"properties.{name}: {bad!r} is not one of client, server"
    body = {"name": "refused", "schema": SCHEMA, "properties": {name: "x"}}
    answer = table.call("POST", f"/v1/namespaces/{NAMESPACE}/tables", body)
    assert name in refusal(answer)


# --- vectors in one file --------------------------------------------------------------------------


def test_vectors_that_share_a_puffin_file_are_not_mixed_up(
    world: World, new_table: NewTable
) -> None:
    """iceberg#17497: data files got the vectors of others, because they were found by path."""
    table = new_table(version=3, spec=DATES)
    files = [table.data(f"f{number}", "2024-05-01", rows=9) for number in range(8)]
    table.append(*files)
    shared = [
        table.vector("shared", file, offset=4 + 10 * number, size=6 + number, rows=1 + number)
        for number, file in enumerate(files)
    ]
    table.overwrite(add_deletes=shared[:5], base=table.head_id)
    table.overwrite(add_deletes=shared[5:], base=table.head_id)
    name = Identifier((table.namespace,), table.name)
    for _ in range(2):
        found = {}
        for page in plan(table).pages:
            for task in page.get("file-scan-tasks", []):
                (only,) = (page["delete-files"][at] for at in task["delete-file-references"])
                found[task["data-file"]["file-path"]] = only
        assert {
            path: (each["content-offset"], each["content-size-in-bytes"], each["record-count"])
            for path, each in found.items()
        } == {
            file["file-path"]: (4 + 10 * number, 6 + number, 1 + number)
            for number, file in enumerate(files)
        }
        assert all(each["referenced-data-file"] == path for path, each in found.items())
        # The same after the entries were copied to other manifests.
        world.catalog.rewrite_manifests(context(), name)
        world.catalog.remove_dangling_deletes(context(), name)
    table.load()
    assert sum(m["content"] for m in table.tree().manifests) == 1

"""The queue: N requests become N snapshots with one metadata file and one swap."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest

from frazil.commit.pipeline.catalog_answers import Answer, TableAnswer
from frazil.wire.errors import BadRequest, CommitFailed, FrazilError, ValidationError
from tests.commit.finegrained import requests as send
from tests.commit.finegrained.conftest import ALL_VERSIONS
from tests.commit.finegrained.requests import (
    TRUE,
    Json,
    append,
    data_exists,
    delete,
    head_is,
    no_new_data,
    overwrite,
    replace,
)
from tests.commit.finegrained.tables import Table
from tests.commit.finegrained.trees import check_tree
from tests.commit.finegrained.world import World
from tests.commit.requests import TIMEOUT_S, Driver, committed, name, table_answer


@pytest.fixture
def driver(world: World) -> Driver:
    return Driver(world.catalog, world.database, world.warehouse)


def as_group(driver: Driver, table: Table, *requests: Any) -> list[Future[Answer]]:
    """Queue requests while the table is locked, so that they form one group."""
    identifier = f"{table.namespace}.{table.name}"
    with driver.catalog._queues.holding([name(identifier)]):
        return [
            driver.submit(identifier, [request] if isinstance(request, dict) else request)
            for request in requests
        ]


def outcomes(futures: list[Future[Answer]]) -> list[type[BaseException] | type[None]]:
    return [type(future.exception(TIMEOUT_S)) for future in futures]


def answers(futures: list[Future[Answer]]) -> list[TableAnswer]:
    return [table_answer(future.result(TIMEOUT_S)) for future in futures]


def check_all(table: Table) -> None:
    table.load()
    for snapshot in table.metadata["snapshots"]:
        check_tree(table.metadata, snapshot["snapshot-id"])


@ALL_VERSIONS
def test_a_group_is_one_metadata_file(driver: Driver, table: Table) -> None:
    before = table.state()[1]
    requests = [table._update(append(table.data(f"f{n}", n % 3, rows=n + 1))) for n in range(10)]
    found = answers(as_group(driver, table, *requests))
    new = table.state()[1] - before
    assert len([file for file in new if file.endswith(".metadata.json")]) == 1
    assert len({answer.table.metadata_location for answer in found}) == 1
    ids = [committed(answer)[0]["snapshot-id"] for answer in found]
    check_all(table)
    assert [s["snapshot-id"] for s in table.metadata["snapshots"]] == ids
    assert table.live() == {f"f{n}" for n in range(10)}
    parents = [s.get("parent-snapshot-id") for s in table.metadata["snapshots"]]
    assert parents == [None, *ids[:-1]]
    totals = [s["summary"]["total-data-files"] for s in table.metadata["snapshots"]]
    assert totals == [str(n + 1) for n in range(10)]
    assert len(table.metadata["metadata-log"]) == 1


def test_every_head_of_a_group_is_in_the_snapshot_log(driver: Driver, table: Table) -> None:
    requests: list[Any] = [append(table.data(f"f{n}", 0)) for n in range(4)]
    requests.append([append(table.data("x", 0)), append(table.data("y", 0))])
    found = answers(as_group(driver, table, *requests))
    table.load()
    log = [entry["snapshot-id"] for entry in table.metadata["snapshot-log"]]
    # As in Java, the log omits intermediate heads of one request.
    assert log == [committed(answer)[-1]["snapshot-id"] for answer in found]


def test_times_rise_and_none_is_in_the_future(driver: Driver, table: Table) -> None:
    answers(as_group(driver, table, *(append(table.data(f"f{n}", 0)) for n in range(20))))
    table.load()
    times = [s["timestamp-ms"] for s in table.metadata["snapshots"]]
    assert times == sorted(set(times))
    assert times[-1] <= time.time() * 1000 + 1000
    log = [entry["timestamp-ms"] for entry in table.metadata["snapshot-log"]]
    assert log == sorted(log)
    assert table.metadata["last-updated-ms"] >= log[-1]


@ALL_VERSIONS
def test_a_request_that_fails_fails_alone(driver: Driver, table: Table) -> None:
    a, b = table.data("a", 0), table.data("b", 0)
    base = table.append(a, b)["snapshot-id"]
    updates = [
        append(table.data("c", 0)),
        append(table.data("bad", "x")),
        delete(a),
        delete(a),
        append(table.data("c", 0)),
        overwrite(
            remove=[b], add=[table.data("b2", 0)], base=base, validations=[no_new_data(TRUE)]
        ),
        replace(remove=[b], add=[table.data("b3", 0)]),
        append(table.data("d", 0)),
    ]
    futures = as_group(driver, table, *(table._update(update) for update in updates))
    assert outcomes(futures) == [
        type(None),
        BadRequest,
        type(None),
        ValidationError,
        ValidationError,
        ValidationError,
        type(None),
        type(None),
    ]
    check_all(table)
    assert table.live() == {"b3", "c", "d"}


def test_a_request_sees_the_group_before_it_in_its_conflicts(driver: Driver, table: Table) -> None:
    a = table.data("a", 0)
    base = table.append(a)["snapshot-id"]
    futures = as_group(
        driver,
        table,
        append(table.data("b", 0)),
        delete(a, base=base, validations=[no_new_data(TRUE), data_exists(a)]),
    )
    first = committed(answers(futures[:1])[0])[0]["snapshot-id"]
    error = futures[1].exception(TIMEOUT_S)
    assert isinstance(error, ValidationError)
    (conflict,) = error.conflicts
    assert [s["snapshot-id"] for s in conflict["snapshots"]] == [first]


def test_the_files_of_a_refused_request_are_gone(driver: Driver, table: Table) -> None:
    """Files that were written for the refused request are deleted."""
    table.append(table.data("a", 0))
    before = table.state()[1]
    futures = as_group(driver, table, append(table.data("a", 0)), append(table.data("b", 0)))
    assert outcomes(futures) == [ValidationError, type(None)]
    new = table.state()[1] - before
    kinds = sorted(file.rsplit(".", 1)[-1] for file in new)
    assert kinds == ["avro", "avro", "json"]


def test_an_update_deep_in_a_request_fails_the_whole_request(driver: Driver, table: Table) -> None:
    before = table.state()[1]
    futures = as_group(
        driver,
        table,
        [append(table.data("a", 0)), append(table.data("b", 0)), append(table.data("a", 0))],
        append(table.data("c", 0)),
    )
    assert outcomes(futures) == [ValidationError, type(None)]
    check_all(table)
    assert table.live() == {"c"}
    assert len([f for f in table.state()[1] - before if f.endswith(".avro")]) == 2


def test_classic_and_fine_grained_commits_in_one_group(driver: Driver, table: Table) -> None:
    first = table.append(table.data("a", 0))
    identifier = f"{table.namespace}.{table.name}"
    with driver.catalog._queues.holding([name(identifier)]):
        fine = driver.submit(identifier, [append(table.data("b", 0))])
        classic = driver.submit(
            identifier, [send.set_properties(x="y")], [head_is(first["snapshot-id"])]
        )
    assert outcomes([fine, classic]) == [type(None), type(None)]
    table.load()
    assert table.live() == {"a", "b"}
    assert table.metadata["properties"]["x"] == "y"


def test_a_classic_commit_goes_before_the_appends_that_would_make_it_stale(
    driver: Driver, table: Table
) -> None:
    """A stock writer's snapshot is valid on the loaded head, but not after other commits of the
    group."""
    first = table.append(table.data("a", 0))
    head = table.head()
    assert head is not None
    identifier = f"{table.namespace}.{table.name}"
    snapshot = {
        "snapshot-id": 77,
        "parent-snapshot-id": first["snapshot-id"],
        "sequence-number": 2,
        "timestamp-ms": head["timestamp-ms"] + 1,
        "manifest-list": head["manifest-list"],
        "summary": dict(head["summary"]) | {"operation": "replace"},
        "schema-id": 0,
    }
    with driver.catalog._queues.holding([name(identifier)]):
        fine = [driver.submit(identifier, [append(table.data(f"f{n}", 0))]) for n in range(3)]
        classic = driver.submit(
            identifier,
            [{"action": "add-snapshot", "snapshot": snapshot}, send.set_ref(77)],
            [head_is(first["snapshot-id"])],
        )
    assert outcomes([classic, *fine]) == [type(None)] * 4
    table.load()
    assert table.live() == {"a", "f0", "f1", "f2"}
    assert [s["snapshot-id"] for s in table.metadata["snapshots"]][1] == 77


def test_a_stale_classic_commit_is_refused_beside_appends(driver: Driver, table: Table) -> None:
    first = table.append(table.data("a", 0))
    table.append(table.data("b", 0))
    identifier = f"{table.namespace}.{table.name}"
    with driver.catalog._queues.holding([name(identifier)]):
        fine = driver.submit(identifier, [append(table.data("c", 0))])
        stale = driver.submit(
            identifier, [send.set_properties(x="y")], [head_is(first["snapshot-id"])]
        )
    assert outcomes([fine, stale]) == [type(None), CommitFailed]


@ALL_VERSIONS
def test_sixty_four_appends_in_groups(driver: Driver, table: Table) -> None:
    identifier = f"{table.namespace}.{table.name}"
    futures = [
        driver.submit(identifier, [table._update(append(table.data(f"f{n}", n % 16)))])
        for n in range(64)
    ]
    assert outcomes(futures) == [type(None)] * 64
    check_all(table)
    assert table.live() == {f"f{n}" for n in range(64)}
    assert len(table.metadata["snapshots"]) == 64
    if table.version > 1:
        numbers = sorted(s["sequence-number"] for s in table.metadata["snapshots"])
        assert numbers == list(range(1, 65))


def test_groups_over_branches(driver: Driver, table: Table) -> None:
    table.append(table.data("a", 0))
    requests: list[Json] = []
    for n in range(6):
        requests.append(append(table.data(f"m{n}", 0)))
        requests.append(append(table.data(f"s{n}", 0), branch="side"))
    # The branch starts at the head of main when its first commit is applied.
    assert outcomes(as_group(driver, table, *requests)) == [type(None)] * 12
    check_all(table)
    assert table.live(table.head("main")) == {"a", *(f"m{n}" for n in range(6))}
    assert table.live(table.head("side")) == {"a", "m0", *(f"s{n}" for n in range(6))}


def test_an_epoch_and_its_repetition_in_one_group(driver: Driver, table: Table) -> None:
    """The stream's row is not in the database yet, so the group itself must detect the
    repetition."""
    import json as text

    from frazil.wire.json_bodies import decode
    from frazil.wire.rest_messages import CommitTableRequest
    from tests.commit.requests import context

    identifier = name(f"{table.namespace}.{table.name}")
    body = {
        "requirements": [],
        "updates": [append(table.data("a", 0))],
        "once": {"id": "q", "epoch": 3},
    }
    request = decode(CommitTableRequest, text.dumps(body).encode())
    with driver.catalog._queues.holding([identifier]):
        futures = [driver.catalog.commit_table(context(), identifier, request) for _ in range(3)]
    found = answers(futures)
    assert [answer.already_committed for answer in found] == [False, True, True]
    assert len({bytes(answer.committed or b"") for answer in found}) == 1
    assert table.load().live() == {"a"}


def test_errors_of_a_group_are_errors_of_the_catalog(driver: Driver, table: Table) -> None:
    futures = as_group(driver, table, append(table.data("a", 99)), delete(row_filter={"x": 1}))
    for future in futures:
        error = future.exception(TIMEOUT_S)
        assert isinstance(error, FrazilError)
        assert error.status == 400

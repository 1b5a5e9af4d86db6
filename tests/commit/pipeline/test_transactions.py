"""A commit to several tables changes all of them or none."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from frazil.wire.errors import AlreadyExists, BadRequest, CommitFailed, NoSuchTable
from tests.commit.conftest import CatalogFactory
from tests.commit.requests import (
    TIMEOUT_S,
    Change,
    Driver,
    append,
    committed,
    head_is,
    set_property,
)


@pytest.fixture
def pair(driver: Driver) -> Driver:
    driver.create_table("u")
    return driver


def create_updates(driver: Driver, folder: str) -> list[dict[str, Any]]:
    return [
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "set-location", "location": f"file://{driver.warehouse}/{folder}"},
        {"action": "add-schema", "schema": {"type": "struct", "schema-id": 0, "fields": []}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]


CREATE = [{"type": "assert-create"}]


def test_all_tables_move_together(pair: Driver) -> None:
    answer = pair.transact(Change("u", append(1)), Change("t", append(7, sequence_number=1)))
    assert [str(table.table.identifier) for table in answer.tables] == ["ns.u", "ns.t"]
    assert [committed(table)[0]["snapshot-id"] for table in answer.tables] == [1, 7]
    assert (pair.snapshot_ids("t"), pair.snapshot_ids("u")) == ([7], [1])


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Change("u", append(1), [head_is(5)]), CommitFailed),
        (Change("u", [{"action": "set-current-schema", "schema-id": 9}]), BadRequest),
        (Change("nope", append(1)), NoSuchTable),
        (Change("u", append(1), [{"type": "assert-create"}]), CommitFailed),
        (Change("u", [set_property("write.data.path", "file:///etc")]), BadRequest),
    ],
)
def test_one_that_fails_leaves_all_untouched(
    pair: Driver, bad: Change, error: type[Exception]
) -> None:
    files = (pair.metadata_files("t"), pair.metadata_files("u"))
    with pytest.raises(error):
        pair.transact(Change("t", append(1)), bad)
    assert (pair.metadata_files("t"), pair.metadata_files("u")) == files
    assert pair.snapshot_ids("t") == []


def test_a_table_named_twice_is_refused(pair: Driver) -> None:
    with pytest.raises(BadRequest, match="named twice"):
        pair.transact(Change("t", append(1)), Change("t", append(2, 1)))


def test_tables_are_created_beside_others(pair: Driver) -> None:
    pair.transact(
        Change("t", append(1)),
        Change("born", create_updates(pair, "born") + append(1), CREATE),
    )
    assert pair.snapshot_ids("born") == [1]
    assert len(pair.load("born").metadata.metadata_log) == 0
    operations = {(str(event.identifier), event.operation) for event in pair.events()[-2:]}
    assert operations == {("ns.t", "commit"), ("ns.born", "create")}


def test_a_view_in_the_way_of_a_create_is_named(pair: Driver) -> None:
    pair.create_view("v")
    with pytest.raises(AlreadyExists, match=r"View with same name already exists: ns\.v"):
        pair.transact(Change("t", append(1)), Change("v", create_updates(pair, "v"), CREATE))


def test_sent_twice_without_a_key_it_has_already_happened(pair: Driver) -> None:
    changes = [Change("t", append(1), [head_is(None)]), Change("u", append(2), [head_is(None)])]
    first = pair.transact(*changes)
    again = pair.transact(*changes)
    assert [table.table.metadata_location for table in again.tables] == [
        table.table.metadata_location for table in first.tables
    ]


def test_only_half_happened_means_the_requirements_decide(pair: Driver) -> None:
    pair.commit("t", append(1), [head_is(None)])
    with pytest.raises(CommitFailed):
        pair.transact(
            Change("t", append(1), [head_is(None)]), Change("u", append(2), [head_is(None)])
        )
    assert pair.snapshot_ids("u") == []


def test_a_transaction_with_one_table_is_a_commit_of_it(pair: Driver) -> None:
    pair.transact(Change("t", append(1), [head_is(None)]))
    answer = pair.transact(Change("t", append(1), [head_is(None)]))
    assert committed(answer.tables[0])[0]["snapshot-id"] == 1
    created = pair.transact(Change("solo", create_updates(pair, "solo"), CREATE))
    assert str(created.tables[0].table.identifier) == "ns.solo"


def test_replicas_racing_over_the_same_tables_lose_nothing(make_catalog: CatalogFactory) -> None:
    replicas = [make_catalog(), make_catalog()]
    replicas[0].create_namespace("ns")
    for table in ("a", "b", "c"):
        replicas[0].create_table(table)
    failures: list[Exception] = []

    def work(number: int) -> None:
        replica = replicas[number % 2]
        order = ["a", "b", "c"][number % 3 :] + ["a", "b", "c"][: number % 3]
        for round_number in range(5):
            mark = set_property(f"mark-{number}-{round_number}", "x")
            try:
                replica.transact(*(Change(table, [mark]) for table in order[:2]))
                replica.commit(order[2], [mark])
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert failures == []
    for table in ("a", "b", "c"):
        marks = [key for key in replicas[0].properties(table) if key.startswith("mark-")]
        assert len(marks) == 30

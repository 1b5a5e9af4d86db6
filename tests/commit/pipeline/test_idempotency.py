"""The same Idempotency-Key gives the same result, for every operation that changes something."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import wait

import pytest

from frazil.commit.pipeline.catalog_answers import NoContent, ReplayedError, TransactionAnswer
from frazil.db.rows import Database
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    CommitFailed,
    NoSuchTable,
    UnprocessableEntity,
)
from tests.commit.conftest import CatalogFactory
from tests.commit.requests import (
    TIMEOUT_S,
    Change,
    Driver,
    append,
    body,
    committed,
    context,
    head_is,
    name,
    set_property,
    table_answer,
)


def new_key() -> str:
    return str(uuid.uuid4())


def test_a_repeated_commit_is_answered_with_current_metadata(driver: Driver) -> None:
    key = new_key()
    first = driver.commit("t", append(1), [head_is(None)], key)
    driver.commit("t", [set_property("later", "1")])
    again = driver.commit("t", append(1), [head_is(None)], key)
    assert committed(again) == committed(first)
    assert again.table.metadata.properties["later"] == "1"
    assert driver.snapshot_ids() == [1]


def test_a_repeated_create_of_a_nested_namespace_is_answered_again(driver: Driver) -> None:
    key = new_key()
    first = driver.create_namespace("x", "y", "z", key=key)
    driver.catalog.drop_namespace(context(), ("x", "y", "z"))
    assert body(driver.create_namespace("x", "y", "z", key=key)) == body(first)
    # The replay creates nothing, and the parents are still there.
    assert driver.database.namespace_properties(("x", "y", "z")) is None
    assert driver.database.namespace_properties(("x", "y")) == {}


def test_a_key_with_another_request_is_refused(driver: Driver) -> None:
    key = new_key()
    driver.commit("t", [set_property("a", "1")], key=key)
    with pytest.raises(UnprocessableEntity, match=key):
        driver.commit("t", [set_property("a", "2")], key=key)
    assert driver.properties()["a"] == "1"


def test_keys_survive_a_restart(make_catalog: CatalogFactory) -> None:
    key = new_key()
    first = make_catalog()
    first.create_namespace("ns")
    first.create_table("t")
    first.commit("t", [set_property("a", "1")], key=key)
    first.commit("t", [set_property("a", "2")])
    second = make_catalog()
    second.commit("t", [set_property("a", "1")], key=key)
    assert second.properties()["a"] == "2"


def test_sixty_four_identical_requests_at_once_commit_once(driver: Driver) -> None:
    key = new_key()
    gate = threading.Barrier(64)
    answers: list[str | None] = []

    def send() -> None:
        gate.wait()
        answer = driver.commit("t", append(1), [head_is(None)], key)
        answers.append(answer.table.metadata_location)

    threads = [threading.Thread(target=send) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert len(answers) == 64
    assert len(set(answers)) == 1
    assert driver.snapshot_ids() == [1]
    assert len([event for event in driver.events() if event.operation == "commit"]) == 1


def test_two_replicas_with_one_key_commit_once(make_catalog: CatalogFactory) -> None:
    one, two = make_catalog(), make_catalog()
    one.create_namespace("ns")
    one.create_table("t")
    for number in range(10):
        key = new_key()
        updates = [set_property("n", str(number))]
        futures = [replica.submit("t", updates, key=key) for replica in (one, two) * 4]
        wait(futures, TIMEOUT_S)
        assert [future.exception() for future in futures] == [None] * 8
    row = one.database.relation(one.load("t").identifier)
    assert row is not None
    assert row.version == 11


def test_a_terminal_refusal_is_replayed_even_when_it_would_work_now(driver: Driver) -> None:
    key = new_key()
    updates = [{"action": "set-current-schema", "schema-id": 1}]
    with pytest.raises(BadRequest):
        driver.commit("t", updates, key=key)
    schema = {
        "schema-id": 1,
        "type": "struct",
        "fields": [
            {"id": 1, "name": "id", "required": False, "type": "long"},
            {"id": 2, "name": "more", "required": False, "type": "long"},
        ],
    }
    driver.commit("t", [{"action": "add-schema", "schema": schema}])
    with pytest.raises(ReplayedError) as replayed:
        driver.commit("t", updates, key=key)
    assert replayed.value.status == 400
    assert json.loads(replayed.value.body)["error"]["type"] == "BadRequestException"


def test_a_failed_requirement_is_not_finalised(driver: Driver) -> None:
    key = new_key()
    with pytest.raises(CommitFailed):
        driver.commit("t", append(2, 1), [head_is(1)], key)
    driver.commit("t", append(1), [head_is(None)])
    driver.commit("t", append(2, 1), [head_is(1)], key)
    assert driver.snapshot_ids() == [1, 2]


def test_keys_belong_to_a_principal(driver: Driver, database: Database) -> None:
    key = new_key()
    driver.commit("t", [set_property("a", "1")], key=key)
    assert database.key("tester", key) is not None
    assert database.key("somebody else", key) is None


def test_the_kept_row_holds_no_metadata(driver: Driver, database: Database) -> None:
    key = new_key()
    driver.commit("t", append(1), key=key)
    row = database.key("tester", key)
    assert row is not None
    assert row.body is None
    assert row.status == 200
    assert row.committed is not None
    assert len(row.committed) < 200


OPERATIONS: dict[str, Callable[[Driver, str], object]] = {
    "create table": lambda d, key: d.create_table("new", key=key).table.metadata.table_uuid,
    "create namespace": lambda d, key: body(d.create_namespace("other", key=key)),
    "drop": lambda d, key: d.drop("t", key=key),
    "rename": lambda d, key: d.rename("t", "t2", key=key),
    "unregister": lambda d, key: d.unregister("t", key=key).table.metadata_location,
    "create by commit": lambda d, key: (
        d.commit(
            "staged",
            [
                {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
                {"action": "set-location", "location": f"file://{d.warehouse}/staged"},
                {
                    "action": "add-schema",
                    "schema": {"type": "struct", "schema-id": 0, "fields": []},
                },
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
                {"action": "set-default-sort-order", "sort-order-id": -1},
            ],
            [{"type": "assert-create"}],
            key,
        ).table.metadata.table_uuid
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_changing_operation_is_replayed(driver: Driver, operation: str) -> None:
    key = new_key()
    run = OPERATIONS[operation]
    first = run(driver, key)
    count = len(driver.events())
    assert run(driver, key) == first
    assert len(driver.events()) == count


def test_the_same_operation_without_the_key_is_judged_anew(driver: Driver) -> None:
    assert driver.drop("t", key=new_key()) == NoContent()
    with pytest.raises(NoSuchTable):
        driver.drop("t", key=new_key())
    driver.create_table("again", key=new_key())
    with pytest.raises(AlreadyExists):
        driver.create_table("again", key=new_key())


@pytest.mark.parametrize("tables", [1, 2])
def test_a_transaction_is_replayed(driver: Driver, tables: int) -> None:
    driver.create_table("u")
    changes = [Change("t", append(1)), Change("u", append(1))][:tables]
    key = new_key()
    first = driver.transact(*changes, key=key)
    again = driver.transact(*changes, key=key)
    assert isinstance(again, TransactionAnswer)
    assert [committed(table) for table in again.tables] == [
        committed(table) for table in first.tables
    ]
    assert driver.snapshot_ids("t") == [1]


def test_a_request_joined_by_its_duplicate_while_it_waits(driver: Driver) -> None:
    key = new_key()
    with driver.catalog._queues.holding([name("t")]):
        futures = [driver.submit("t", [set_property("a", "1")], key=key) for _ in range(3)]
        with pytest.raises(UnprocessableEntity):
            driver.submit("t", [set_property("a", "2")], key=key)
        assert not any(future.done() for future in futures)
    answers = {table_answer(f.result(TIMEOUT_S)).table.metadata_location for f in futures}
    assert len(answers) == 1

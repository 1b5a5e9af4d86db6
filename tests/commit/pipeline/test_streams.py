"""Streams that commit an epoch several times: the catalog applies only the first commit."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from frazil.commit.pipeline.catalog_answers import Answer, TableAnswer, TransactionAnswer
from frazil.db.base import DatabaseUnavailable, Relation, Transaction, TransactionOutcome
from frazil.db.rows import Database
from frazil.store.local_store import LocalStore
from frazil.wire.errors import CommitFailed
from frazil.wire.identifiers import Identifier
from frazil.wire.json_bodies import decode
from frazil.wire.rest_messages import CommitTableRequest, CommitTransactionRequest
from tests.commit.conftest import CatalogFactory
from tests.commit.requests import SCHEMA, TIMEOUT_S, Driver, context, head_is, name, set_property


def append(driver: Driver, path: str, table: str = "t", **more: Any) -> dict[str, Any]:
    file = {
        "content": "data",
        "spec-id": 0,
        "partition": [],
        "file-path": f"file://{driver.warehouse}/ns/{table}/data/{path}",
        "file-format": "parquet",
        "file-size-in-bytes": 100,
        "record-count": 10,
    }
    fields = {field.replace("_", "-"): value for field, value in more.items()}
    return {"action": "append", "add-data-files": [file], **fields}


def set_main(snapshot_id: int) -> dict[str, Any]:
    return {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": snapshot_id,
    }


def body_of(
    updates: list[dict[str, Any]], epoch: int | None, stream: str = "q", **more: Any
) -> dict[str, Any]:
    once = None if epoch is None else {"id": stream, "epoch": epoch}
    return {"requirements": [], "updates": updates, "once": once, **more}


def send(driver: Driver, body: dict[str, Any], key: str | None = None) -> Future[Answer]:
    request = decode(CommitTableRequest, json.dumps(body).encode())
    return driver.catalog.commit_table(context(key, body), name("t"), request)


def commit(
    driver: Driver, updates: list[dict[str, Any]], epoch: int | None = None, **more: Any
) -> TableAnswer:
    key = more.pop("key", None)
    answer = send(driver, body_of(updates, epoch, **more), key).result(TIMEOUT_S)
    assert isinstance(answer, TableAnswer)
    return answer


def snapshots(answer: TableAnswer) -> list[int]:
    return [entry["snapshot-id"] for entry in json.loads(answer.committed or b"[]")]


def rows(driver: Driver, table: str = "t", branch: str = "main") -> int:
    """Return the total row count in the summary of the branch's head."""
    metadata = driver.catalog.load_table(name(table)).metadata
    ref = metadata.ref(branch)
    snapshot = None if ref is None else metadata.snapshot(ref.snapshot_id)
    return 0 if snapshot is None else int(snapshot.summary["total-records"])


def row_of(driver: Driver, table: str = "t") -> Relation:
    row = driver.database.relation(name(table))
    assert row is not None
    return row


def test_an_epoch_is_applied_once(driver: Driver) -> None:
    first = commit(driver, [append(driver, "1")], 1)
    assert not first.already_committed
    again = commit(driver, [append(driver, "1")], 1)
    assert again.already_committed
    assert again.committed == first.committed
    assert again.table.metadata_location == first.table.metadata_location
    second = commit(driver, [append(driver, "2")], 2)
    assert not second.already_committed
    below = commit(driver, [append(driver, "1")], 1)
    assert (below.already_committed, below.committed) == (True, b"[]")
    assert rows(driver) == 20
    assert row_of(driver).version == 3
    metadata = driver.catalog.load_table(name("t")).metadata
    summary = metadata.snapshots[-1].summary
    assert summary["spark.sql.streaming.queryId"] == "q"
    assert summary["spark.sql.streaming.epochId"] == "2"


def test_what_failed_is_not_remembered(driver: Driver) -> None:
    stale = body_of([append(driver, "1")], 1) | {"requirements": [head_is(99)]}
    with pytest.raises(CommitFailed):
        send(driver, stale).result(TIMEOUT_S)
    assert not commit(driver, [append(driver, "1")], 1).already_committed


def test_an_epoch_that_came_again_meets_no_requirement(driver: Driver) -> None:
    """The requirement was true before the epoch was applied and is false now because of it."""
    body = body_of([append(driver, "1")], 1) | {"requirements": [head_is(None)]}
    answers = [send(driver, body).result(TIMEOUT_S) for _ in range(2)]
    said = [answer.already_committed for answer in answers if isinstance(answer, TableAnswer)]
    assert said == [False, True]


def test_streams_do_not_share_epochs(driver: Driver) -> None:
    commit(driver, [append(driver, "1")], 7, stream="q")
    assert not commit(driver, [append(driver, "2")], 7, stream="r").already_committed
    assert not commit(driver, [append(driver, "3", branch="audit")], 8).already_committed
    assert commit(driver, [append(driver, "3", branch="audit")], 8).already_committed
    assert not commit(driver, [append(driver, "4")], 8).already_committed
    assert (rows(driver), rows(driver, branch="audit")) == (30, 30)


def test_two_of_one_group_are_applied_once(make_catalog: CatalogFactory, driver: Driver) -> None:
    """All requests are queued while the table is locked, so that one group has all of them."""
    go = threading.Event()

    class Held(LocalStore):
        def get(self, location: str, max_bytes: int | None = None) -> bytes:
            go.wait(TIMEOUT_S)
            return super().get(location, max_bytes)

    held = make_catalog(store=Held())
    futures = [send(held, body_of([append(driver, f"{n % 2}")], n % 2)) for n in range(8)]
    go.set()
    answers = [future.result(TIMEOUT_S) for future in futures]
    applied = [one for one in answers if isinstance(one, TableAnswer) and not one.already_committed]
    assert len(applied) == 2
    assert rows(driver) == 20


def test_two_replicas_apply_an_epoch_once(make_catalog: CatalogFactory, driver: Driver) -> None:
    other = make_catalog()
    for epoch in range(10):
        body = body_of([append(driver, str(epoch))], epoch)
        futures = [send(one, body) for one in (driver, other)]
        answers = [future.result(TIMEOUT_S) for future in futures]
        said = [one.already_committed for one in answers if isinstance(one, TableAnswer)]
        assert sorted(said) == [False, True]
    assert rows(driver) == 100


def test_an_answer_holds_the_snapshot_that_it_names(
    make_catalog: CatalogFactory, driver: Driver
) -> None:
    """Another replica commits the epoch after the table's row and before the stream's row is
    loaded."""

    class Overtaken:
        overtaken = False

        def __getattr__(self, attribute: str) -> Any:
            return getattr(driver.database, attribute)

        def relation(self, identifier: Identifier) -> Relation | None:
            row = driver.database.relation(identifier)
            if not self.overtaken:
                self.overtaken = True
                commit(driver, [append(driver, "1")], 1)
            return row

    slow = make_catalog(database=cast(Database, Overtaken()))
    again = commit(slow, [append(driver, "1")], 1)
    assert again.already_committed
    (snapshot_id,) = snapshots(again)
    assert again.table.metadata.snapshot(snapshot_id) is not None
    assert rows(driver) == 10


def test_a_branch_that_moves_back_takes_its_epochs_with_it(driver: Driver) -> None:
    kept = snapshots(commit(driver, [append(driver, "1")], 1))[0]
    commit(driver, [append(driver, "2")], 2)
    commit(driver, [append(driver, "a", branch="audit")], 2)
    commit(driver, [set_main(kept)])
    assert commit(driver, [append(driver, "1")], 1).already_committed
    assert not commit(driver, [append(driver, "2")], 2).already_committed
    assert commit(driver, [append(driver, "2")], 2).already_committed
    assert commit(driver, [append(driver, "a", branch="audit")], 2).already_committed
    assert rows(driver) == 20


def test_a_branch_that_is_dropped_takes_its_epochs_with_it(driver: Driver) -> None:
    commit(driver, [append(driver, "1")])
    commit(driver, [append(driver, "a", branch="audit")], 1)
    commit(driver, [{"action": "remove-snapshot-ref", "ref-name": "audit"}])
    assert not commit(driver, [append(driver, "a", branch="audit")], 1).already_committed


def test_an_epoch_is_remembered_longer_than_its_snapshot(driver: Driver) -> None:
    first = snapshots(commit(driver, [append(driver, "1")], 1))
    commit(driver, [append(driver, "2")])
    commit(driver, [{"action": "remove-snapshots", "snapshot-ids": first}])
    again = commit(driver, [append(driver, "1")], 1)
    assert (again.already_committed, snapshots(again)) == (True, first)


def test_a_table_that_comes_back_is_known_by_its_history(driver: Driver) -> None:
    first = commit(driver, [append(driver, "1")], 1)
    commit(driver, [set_property("a", "b")])
    location = driver.catalog.load_table(name("t")).metadata_location
    assert location is not None
    driver.catalog.unregister_table(context(), name("t")).result(TIMEOUT_S)
    driver.register("t", location)
    again = commit(driver, [append(driver, "1")], 1)
    assert again.already_committed
    assert snapshots(again) == snapshots(first)


def test_a_file_registered_over_a_table_may_take_it_back(driver: Driver) -> None:
    commit(driver, [append(driver, "1")], 1)
    before = row_of(driver).metadata_location
    commit(driver, [append(driver, "2")], 2)
    after = row_of(driver).metadata_location
    driver.register("t", before, overwrite=True)
    assert commit(driver, [append(driver, "1")], 1).already_committed
    assert driver.database.stream(row_of(driver).uuid, "main", "q") is None
    driver.register("t", after, overwrite=True)
    assert commit(driver, [append(driver, "2")], 2).already_committed


def test_a_file_registered_over_a_lost_one_forgets_all_streams(
    make_catalog: CatalogFactory, driver: Driver
) -> None:
    """It is unknown what the registration reverts, so the history of the new metadata decides."""
    commit(driver, [append(driver, "1")], 1)
    kept = row_of(driver)
    commit(driver, [append(driver, "2")], 2)
    lost = row_of(driver).metadata_location
    Path(lost.removeprefix("file://")).unlink()
    fresh = make_catalog()
    fresh.register("t", kept.metadata_location, overwrite=True)
    assert row_of(fresh).uuid == kept.uuid
    assert commit(fresh, [append(driver, "1")], 1).already_committed
    assert not commit(fresh, [append(driver, "2")], 2).already_committed


def test_a_key_replays_what_was_said(driver: Driver) -> None:
    keys = [str(uuid.uuid4()) for _ in range(2)]
    for key, already in zip(keys, (False, True), strict=True):
        answers = [commit(driver, [append(driver, "1")], 1, key=key) for _ in range(2)]
        assert [answer.already_committed for answer in answers] == [already, already]
        assert snapshots(answers[0]) == snapshots(answers[1]) != []


@pytest.mark.parametrize("in_transaction", [0, 1, 2])
def test_a_table_is_created_with_its_first_epoch(driver: Driver, in_transaction: int) -> None:
    """The table is created by its own commit, by a transaction alone, or together with another
    table."""
    table_uuid = str(uuid.uuid4())
    other = {"requirements": [], "updates": [set_property("a", "b")]}
    others = [other | {"identifier": {"namespace": ["ns"], "name": "t"}}] * (in_transaction - 1)
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": table_uuid},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": f"file://{driver.warehouse}/ns/u"},
        append(driver, "1", "u"),
    ]
    body = body_of(updates, 4) | {"requirements": [{"type": "assert-create"}]}

    def create(body: dict[str, Any]) -> Answer:
        if in_transaction:
            change = body | {"identifier": {"namespace": ["ns"], "name": "u"}}
            changes = {"table-changes": [change, *others]}
            request = decode(CommitTransactionRequest, json.dumps(changes).encode())
            return driver.catalog.commit_transaction(context(), request).result(TIMEOUT_S)
        alone = decode(CommitTableRequest, json.dumps(body).encode())
        return driver.catalog.commit_table(context(), name("u"), alone).result(TIMEOUT_S)

    answers = [create(body), create(body)]
    tables = [a.tables[0] if isinstance(a, TransactionAnswer) else a for a in answers]
    said = [table for table in tables if isinstance(table, TableAnswer)]
    assert [table.already_committed for table in said] == [False, True]
    assert snapshots(said[0]) == snapshots(said[1]) != []
    for refused in (body | {"once": None}, body | {"once": {"id": "q", "epoch": 5}}):
        with pytest.raises(CommitFailed, match="table already exists"):
            create(refused)
    assert rows(driver, "u") == 10
    row = driver.database.stream(table_uuid, "main", "q")
    assert row is not None
    assert row.epoch == 4
    again = decode(CommitTableRequest, json.dumps(body_of([append(driver, "1", "u")], 4)).encode())
    answer = driver.catalog.commit_table(context(), name("u"), again).result(TIMEOUT_S)
    assert isinstance(answer, TableAnswer)
    assert answer.already_committed


@pytest.mark.parametrize("tables", [["t"], ["t", "u"]])
def test_each_table_of_a_transaction_has_its_own_epoch(driver: Driver, tables: list[str]) -> None:
    driver.create_table("u")
    commit(driver, [append(driver, "0")], 1)

    def run(epochs: dict[str, int], key: str | None = None) -> dict[str, bool]:
        changes = [
            body_of([append(driver, str(epochs[table]), table)], epochs[table])
            | {"identifier": {"namespace": ["ns"], "name": table}}
            for table in tables
        ]
        body = {"table-changes": changes}
        request = decode(CommitTransactionRequest, json.dumps(body).encode())
        done = driver.catalog.commit_transaction(context(key, body), request).result(TIMEOUT_S)
        assert isinstance(done, TransactionAnswer)
        return {answer.table.identifier.name: answer.already_committed for answer in done.tables}

    expected = {"t": True, "u": False}
    assert run({"t": 1, "u": 1}) == {table: expected[table] for table in tables}
    key = str(uuid.uuid4())
    for _ in range(2):
        assert run({"t": 2, "u": 1}, key) == {t: {"t": False, "u": True}[t] for t in tables}
    assert run({"t": 2, "u": 1}) == dict.fromkeys(tables, True)
    assert rows(driver) == 20
    assert rows(driver, "u") == (10 if "u" in tables else 0)


def test_a_transaction_that_has_committed_is_answered_without_the_database(
    make_catalog: CatalogFactory, driver: Driver
) -> None:
    """One table repeats its epoch and the other one changes, and then the database goes away."""

    class GoneAfterCommit:
        committed = False

        def __getattr__(self, attribute: str) -> Any:
            return getattr(driver.database, attribute)

        def commit(self, transaction: Transaction) -> TransactionOutcome:
            outcome = driver.database.commit(transaction)
            self.committed = True
            return outcome

        def relation_by_uuid(self, uuid: str) -> Relation | None:
            if self.committed:
                raise DatabaseUnavailable("connection refused")
            return driver.database.relation_by_uuid(uuid)

    driver.create_table("u")
    commit(driver, [append(driver, "0")], 1)
    changes = [
        body_of([append(driver, "1", table)], 1)
        | {"identifier": {"namespace": ["ns"], "name": table}}
        for table in ("t", "u")
    ]
    request = decode(CommitTransactionRequest, json.dumps({"table-changes": changes}).encode())
    leaving = make_catalog(database=cast(Database, GoneAfterCommit()))
    done = leaving.catalog.commit_transaction(context(), request).result(TIMEOUT_S)
    assert isinstance(done, TransactionAnswer)
    assert [answer.already_committed for answer in done.tables] == [True, False]
    assert rows(driver) == rows(driver, "u") == 10

"""With faults between the pipeline, the database and the store, the reported outcome is true.

The database is a real SQLite. Faults are injected between it and the catalog, exactly where a
connection could break. (Broken PostgreSQL connections are tested with the database.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, cast

import pytest

from frazil.commit.pipeline.table_queues import QueueLimits
from frazil.db.base import (
    DatabaseUnavailable,
    OutcomeUnknown,
    SwapLost,
    Transaction,
    TransactionOutcome,
)
from frazil.db.rows import Database
from frazil.store.local_store import LocalStore
from frazil.store.object_store import StoreError
from frazil.wire.errors import CommitStateUnknown, TooManyRequests
from tests.commit.conftest import CatalogFactory
from tests.commit.requests import TIMEOUT_S, Change, Driver, append, name, set_property


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


class FaultyDatabase:
    """A real database whose next commits fail as configured."""

    def __init__(self, real: Database) -> None:
        self._real = real
        self.faults: list[Callable[[Transaction], TransactionOutcome]] = []
        self.resolvable = True
        self.resolved: list[str] = []
        self.locked_rows = 0

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._real, attribute)

    def commit(self, transaction: Transaction) -> TransactionOutcome:
        if self.faults:
            return self.faults.pop(0)(transaction)
        return self._real.commit(transaction)

    def resolve(self, commit_id: str, uuids: Sequence[str], timeout_s: float) -> bool:
        self.resolved.append(commit_id)
        if not self.resolvable:
            raise DatabaseUnavailable("still no connection")
        return self._real.resolve(commit_id, uuids, timeout_s)

    def locked(self, uuids: Sequence[str], timeout_s: float) -> Any:
        self.locked_rows += 1
        return self._real.locked(uuids, timeout_s)

    # Faults

    def lost_before(self, transaction: Transaction) -> TransactionOutcome:
        """Fail before COMMIT reaches the database."""
        raise OutcomeUnknown("connection reset")

    def lost_after(self, transaction: Transaction) -> TransactionOutcome:
        """Apply COMMIT and lose the response."""
        self._real.commit(transaction)
        raise OutcomeUnknown("connection reset")

    def unreachable(self, transaction: Transaction) -> TransactionOutcome:
        raise DatabaseUnavailable("connection refused")

    def lose(self, transaction: Transaction) -> TransactionOutcome:
        return SwapLost(0)


class FaultyStore(LocalStore):
    """A local store that refuses to write some names."""

    def __init__(self, refuse: Callable[[str], bool]) -> None:
        super().__init__()
        self.refuse = refuse

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        if self.refuse(location):
            raise StoreError(f"no space left on device: {location}")
        super().put_new(location, chunks)

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        self.put_new(location, chunks)

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        errors: dict[str, Exception] = {}
        for location, chunks in files.items():
            try:
                self.put_new(location, chunks)
            except StoreError as error:
                errors[location] = error
        return errors


@pytest.fixture
def faulty(database: Database) -> FaultyDatabase:
    return FaultyDatabase(database)


@pytest.fixture
def driver(make_catalog: CatalogFactory, faulty: FaultyDatabase) -> Iterator[Driver]:
    driver = make_catalog(database=cast(Database, faulty))
    driver.create_namespace("ns")
    driver.create_table("t")
    driver.create_table("u")
    yield driver
    faulty.faults.clear()


def single(driver: Driver) -> None:
    driver.commit("t", append(1))


def several(driver: Driver) -> None:
    driver.transact(Change("t", append(1)), Change("u", append(2)))


COMMITS = pytest.mark.parametrize("commit", [single, several])


@COMMITS
def test_a_lost_answer_to_a_commit_that_happened_is_a_success(
    driver: Driver, faulty: FaultyDatabase, commit: Callable[[Driver], None]
) -> None:
    faulty.faults = [faulty.lost_after]
    commit(driver)
    assert driver.snapshot_ids("t") == [1]
    assert len(faulty.resolved) == 1


@COMMITS
def test_a_lost_answer_to_a_commit_that_did_not_happen_is_applied_again(
    driver: Driver, faulty: FaultyDatabase, commit: Callable[[Driver], None]
) -> None:
    before = driver.metadata_files("t")
    faulty.faults = [faulty.lost_before]
    commit(driver)
    assert driver.snapshot_ids("t") == [1]
    # The rejected attempt's file is deleted, because its rejection is certain.
    assert len(driver.metadata_files("t") - before) == 1


@COMMITS
@pytest.mark.parametrize("happened", [True, False])
def test_an_outcome_that_stays_unknown_is_told_so_and_no_file_is_deleted(
    driver: Driver, faulty: FaultyDatabase, commit: Callable[[Driver], None], happened: bool
) -> None:
    before = driver.metadata_files("t")
    faulty.resolvable = False
    faulty.faults = [faulty.lost_after if happened else faulty.lost_before]
    with pytest.raises(CommitStateUnknown):
        commit(driver)
    assert len(driver.metadata_files("t") - before) == 1
    assert driver.snapshot_ids("t") == ([1] if happened else [])
    faulty.resolvable = True
    driver.commit("t", [set_property("goes", "on")])


@COMMITS
def test_a_database_that_is_down_is_proven_not_done(
    driver: Driver, faulty: FaultyDatabase, commit: Callable[[Driver], None]
) -> None:
    before = driver.metadata_files("t")
    faulty.faults = [faulty.unreachable]
    with pytest.raises(TooManyRequests):
        commit(driver)
    assert driver.snapshot_ids("t") == []
    assert driver.metadata_files("t") == before
    commit(driver)
    assert driver.snapshot_ids("t") == [1]


@COMMITS
def test_lost_swaps_are_applied_again_and_leave_no_files(
    driver: Driver, faulty: FaultyDatabase, commit: Callable[[Driver], None]
) -> None:
    before = driver.metadata_files("t")
    faulty.faults = [faulty.lose, faulty.lose]
    commit(driver)
    assert driver.snapshot_ids("t") == [1]
    assert len(driver.metadata_files("t") - before) == 1
    # The third attempt locked the row before it loaded it.
    assert faulty.locked_rows == 1


def test_a_create_whose_answer_is_lost_happens_once(driver: Driver, faulty: FaultyDatabase) -> None:
    faulty.faults = [faulty.lost_after]
    answer = driver.create_table("new")
    assert driver.load("new").metadata_location == answer.table.metadata_location
    faulty.faults = [faulty.lost_before]
    driver.create_table("newer")
    assert [str(event.identifier) for event in driver.events()].count("ns.newer") == 1


@COMMITS
def test_a_store_that_cannot_write_is_proven_not_done(
    make_catalog: CatalogFactory, database: Database, commit: Callable[[Driver], None]
) -> None:
    store = FaultyStore(lambda location: False)
    driver = make_catalog(store=store)
    driver.create_namespace("ns")
    driver.create_table("t")
    driver.create_table("u")
    before = (driver.metadata_files("t"), driver.metadata_files("u"))
    broken = driver.load("t").metadata.location
    store.refuse = lambda location: location.startswith(broken)
    with pytest.raises(TooManyRequests, match="no space left"):
        commit(driver)
    assert (driver.metadata_files("t"), driver.metadata_files("u")) == before
    assert driver.snapshot_ids("u") == []
    store.refuse = lambda location: False
    commit(driver)
    assert driver.snapshot_ids("t") == [1]


def test_a_create_on_a_full_disk_leaves_no_row(make_catalog: CatalogFactory) -> None:
    store = FaultyStore(lambda location: True)
    driver = make_catalog(store=store)
    driver.create_namespace("ns")
    with pytest.raises(TooManyRequests):
        driver.create_table("t")
    assert driver.catalog.list_tables(("ns",), None, None) == ([], None)
    store.refuse = lambda location: False
    driver.create_table("t")


def test_a_full_queue_answers_at_once_and_takes_more_later(make_catalog: CatalogFactory) -> None:
    driver = make_catalog(limits=QueueLimits(max_queued_requests=2))
    driver.create_namespace("ns")
    driver.create_table("t")
    with driver.catalog._queues.holding([name("t")]):
        # The waiting worker takes the first request only when the table is unlocked.
        queued = [driver.submit("t", [set_property(str(n), "x")]) for n in range(2)]
        with pytest.raises(TooManyRequests):
            driver.submit("t", [set_property("late", "x")])
    for future in queued:
        future.result(TIMEOUT_S)
    driver.commit("t", [set_property("late", "x")])


def test_closing_finishes_what_is_queued_and_refuses_the_rest(
    make_catalog: CatalogFactory,
) -> None:
    driver = make_catalog()
    driver.create_namespace("ns")
    driver.create_table("t")
    with driver.catalog._queues.holding([name("t")]):
        futures = [driver.submit("t", [set_property(str(n), "x")]) for n in range(20)]
        closing = threading.Thread(target=driver.catalog.close)
        closing.start()
    for future in futures:
        future.result(TIMEOUT_S)
    closing.join(TIMEOUT_S)
    assert not closing.is_alive()
    with pytest.raises(TooManyRequests, match="shutting down"):
        driver.submit("t", [set_property("late", "x")])

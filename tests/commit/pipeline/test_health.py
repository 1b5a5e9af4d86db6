"""Readiness and the log follow what a probe can write, and service resumes by itself."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import cast

import pytest

from frazil.db.sqlite import SqliteDatabase, SqliteStatements, Written
from frazil.store.local_store import LocalStore
from frazil.store.object_store import Store, StoreError
from frazil.wire.errors import ServiceUnavailable, TooManyRequests
from tests.commit.conftest import CatalogFactory
from tests.commit.requests import Driver, append, set_property
from tests.support.patience import wait_until


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


class FailingStore(LocalStore):
    """A local store that cannot write chosen locations."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: Callable[[str], bool] = lambda location: False

    def put_new(self, location: str, chunks: Sequence[bytes]) -> None:
        self._check(location)
        super().put_new(location, chunks)

    def put_unsynced(self, location: str, chunks: Sequence[bytes]) -> None:
        self._check(location)
        super().put_unsynced(location, chunks)

    def put_many(
        self, files: Mapping[str, Sequence[bytes]], executor: Executor
    ) -> dict[str, Exception]:
        return Store.put_many(cast(Store, self), files, executor)

    def _check(self, location: str) -> None:
        if self.fails(location):
            raise StoreError("the disk said no", location=location, reason="its disk is full")


def limit_pages(database: SqliteDatabase, more: int) -> None:
    def work(sql: SqliteStatements) -> Written[None]:
        pages = sql.connection.execute("PRAGMA page_count").fetchone()[0]
        sql.connection.execute(f"PRAGMA max_page_count = {pages + more}")
        return Written(None, keep=False)

    database.run(work)


def is_ready(driver: Driver) -> bool:
    try:
        driver.catalog.ready()
    except ServiceUnavailable:
        return False
    return True


def files(driver: Driver) -> set[Path]:
    return {path for path in driver.warehouse.rglob("*") if path.is_file()}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "frazil.health"]


def test_a_full_database_is_one_episode(
    driver: Driver, database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "frazil")
    limit_pages(database, 0)
    number = itertools.count()

    def is_refused() -> bool:
        # Some rows still fit into the pages that SQLite has.
        try:
            driver.commit("t", [set_property("number", str(next(number)))])
        except TooManyRequests:
            return True
        return False

    wait_until(is_refused, "the database took every commit")
    wait_until(lambda: not is_ready(driver), "the catalog stayed ready")
    with pytest.raises(ServiceUnavailable) as red:
        driver.catalog.ready()
    assert red.value.message == "the database cannot be written: its disk is full"
    written = files(driver)
    for _ in range(20):
        with pytest.raises(TooManyRequests, match="its disk is full; nothing was changed"):
            driver.commit("t", [set_property("number", "refused")])
    assert files(driver) == written

    limit_pages(database, 100_000)
    wait_until(lambda: is_ready(driver), "the catalog stayed red")
    driver.commit("t", [set_property("number", "resumed")])
    said = lines(caplog)
    assert len(said) == 2
    assert said[0].startswith("the database cannot be written: its disk is full (SQLite")
    assert said[1].startswith("the database can be written again, after")


def test_a_folder_that_cannot_be_written_does_not_take_the_server_away(
    make_catalog: CatalogFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "frazil")
    store = FailingStore()
    driver = make_catalog(store=store)
    driver.create_namespace("ns")
    driver.create_table("t")
    driver.create_table("u")
    store.fails = lambda location: "/t-" in location
    for _ in range(3):
        with pytest.raises(TooManyRequests, match="the disk said no"):
            driver.commit("t", append(1))
    driver.commit("u", append(1))
    wait_until(lambda: lines(caplog), "nothing was logged")
    assert is_ready(driver)
    assert lines(caplog) == [
        "the warehouse failed once, and can be written again: the disk said no"
    ]


def test_a_full_warehouse_turns_red_and_commits_are_still_tried(
    make_catalog: CatalogFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Tables may lie on several disks, so a full one does not stop the others."""
    caplog.set_level(logging.INFO, "frazil")
    store = FailingStore()
    driver = make_catalog(store=store)
    driver.create_namespace("ns")
    driver.create_table("t")
    driver.create_table("u")
    store.fails = lambda location: "/u-" not in location
    with pytest.raises(TooManyRequests, match="the disk said no"):
        driver.commit("t", append(1))
    wait_until(lambda: not is_ready(driver), "the catalog stayed ready")
    driver.commit("u", append(1))
    store.fails = lambda location: False
    driver.commit("t", append(1))
    wait_until(lambda: is_ready(driver), "the catalog stayed red")
    assert len(lines(caplog)) == 2

"""A clock that is wrong is reported, in the log once an episode and at `/readyz`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.commit.pipeline.clock_watch import ClockWatch
from frazil.commit.snapshot import commit_environment
from frazil.db.rows import Database
from frazil.wire.errors import BadRequest
from tests.commit.requests import Driver, append, head_is, set_property

YEAR_MS = 365 * 24 * 3600 * 1000


class FakeClocks:
    def __init__(self) -> None:
        self.wall = time.time_ns() // 1_000_000
        self.steady = 5_000

    def pass_ms(self, duration_ms: int) -> None:
        self.wall += duration_ms
        self.steady += duration_ms

    def watch(self, database: Database) -> ClockWatch:
        return ClockWatch(database, lambda: self.wall, lambda: self.steady)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "frazil.clock"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_jump_is_one_episode(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "frazil.clock")
    clocks = FakeClocks()
    watch = clocks.watch(database)
    for _ in range(10):
        # A clock that is slewed by 50 s a minute never jumps.
        clocks.pass_ms(60_000)
        clocks.wall += 50_000
        assert watch.warnings() == []
    jumped = "the clock of this server jumped forward by 365 days"
    clocks.wall += YEAR_MS
    for _ in range(5):
        clocks.pass_ms(60_000)
        assert watch.warnings() == [jumped]
    clocks.wall -= YEAR_MS
    assert watch.warnings() == []
    assert lines(caplog) == [jumped, f"no longer: {jumped}"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_clock_that_stays_is_accepted_after_an_hour(database: Database) -> None:
    clocks = FakeClocks()
    watch = clocks.watch(database)
    clocks.wall -= YEAR_MS
    assert watch.warnings() == ["the clock of this server jumped back by 365 days"]
    clocks.pass_ms(3_700_000)
    watch.warnings()
    assert watch.warnings() == []


def test_the_clock_of_the_database_is_compared(driver: Driver, database: Database) -> None:
    clocks = FakeClocks()
    watch = clocks.watch(database)
    watch.check()
    assert watch.warnings() == []
    clocks = FakeClocks()
    clocks.wall -= YEAR_MS
    watch = clocks.watch(database)
    watch.check()
    (warning,) = watch.warnings()
    assert warning.startswith("the time of the database is 365 days")
    assert warning.endswith("365 days ahead of this server's clock")


@contextmanager
def a_year_ahead() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(time_ns=lambda: time.time_ns() + YEAR_MS * 1_000_000)
        patch.setattr(commit_environment, "time", clock)
        yield


def add(driver: Driver, file: str) -> list[dict[str, Any]]:
    added = {
        "content": "data",
        "file-path": f"{driver.load().metadata.location}/data/{file}.parquet",
        "file-format": "parquet",
        "file-size-in-bytes": 100,
        "record-count": 1,
        "spec-id": 0,
        "partition": [],
    }
    return [{"action": "append", "add-data-files": [added]}]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_table_from_the_future_is_reported_and_goes_on(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    with a_year_ahead():
        driver.commit("t", add(driver, "ahead"))
    head = driver.load().metadata.current_snapshot_id
    # Stock clients choose the timestamp themselves, by a clock that is right.
    stock = append(7, head, sequence_number=2)
    for _ in range(2):
        with pytest.raises(BadRequest, match="more than a minute before the last snapshot log"):
            driver.commit("t", stock, [head_is(head)])
    # What the documentation offers: declared files, and changes without a snapshot.
    driver.commit("t", add(driver, "declared"))
    driver.commit("t", [set_property("owner", "me")])
    table = driver.load().metadata
    assert [entry.timestamp_ms for entry in table.snapshot_log] == sorted(
        entry.timestamp_ms for entry in table.snapshot_log
    )
    warnings = driver.catalog.ready()
    assert warnings[-1] == "tables with timestamps ahead of this server's clock: 1"
    said = [line for line in lines(caplog) if line.startswith("table ns.t has a timestamp 365 d")]
    assert len(said) == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_documented_way_back_from_the_future(driver: Driver) -> None:
    driver.commit("t", add(driver, "before"))
    before = driver.load()
    assert before.metadata_location is not None
    with a_year_ahead():
        driver.commit("t", add(driver, "ahead"))
        lost = add(driver, "ahead")
    driver.register("t", before.metadata_location, overwrite=True)
    driver.commit("t", lost)
    table = driver.load().metadata
    head = table.current_snapshot_id
    assert table.last_updated_ms < time.time_ns() // 1_000_000 + YEAR_MS // 2
    timestamp: dict[str, Any] = {"timestamp-ms": time.time_ns() // 1_000_000}
    stock = append(7, head, sequence_number=3, **timestamp)
    driver.commit("t", stock, [head_is(head)])
    assert driver.load().metadata.current_snapshot_id == 7

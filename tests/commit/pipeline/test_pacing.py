"""Commits slow down if the table's timestamps are ahead of the clock; a slow group is split."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from frazil.commit.pipeline import commit_batch
from frazil.commit.pipeline.commit_batch import MAX_AHEAD_MS
from frazil.commit.snapshot.commit_environment import now_ms
from frazil.wire.errors import BadRequest
from tests.commit.requests import (
    TIMEOUT_S,
    Driver,
    append,
    committed,
    head_is,
    name,
    set_property,
    table_answer,
)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the seconds that groups would sleep."""
    seconds: list[float] = []
    clock = SimpleNamespace(sleep=seconds.append, monotonic=time.monotonic)
    monkeypatch.setattr(commit_batch, "time", clock)
    monkeypatch.setattr(commit_batch, "MAX_JUDGING_S", 3_600)
    return seconds


@pytest.mark.parametrize(
    ("ahead_ms", "requests", "seconds"),
    [
        (-5_000, 64, []),
        (0, 64, []),
        (MAX_AHEAD_MS, 64, []),
        # Sleep only until the timestamps are one second ahead again.
        (MAX_AHEAD_MS + 10, 64, [0.01]),
        # Sleep at most one millisecond for each request of the group.
        (MAX_AHEAD_MS + 10, 3, [0.003]),
        (3_600_000, 64, [0.064]),
    ],
)
def test_a_group_takes_the_time_that_it_uses_up(
    slept: list[float], ahead_ms: int, requests: int, seconds: list[float]
) -> None:
    commit_batch._pace(ahead_ms, requests)
    assert slept == seconds


def add(path: str) -> dict[str, Any]:
    file = {
        "content": "data",
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": 100,
        "record-count": 1,
        "spec-id": 0,
        "partition": [],
    }
    return {"action": "append", "add-data-files": [file]}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_commits_on_a_head_from_the_future_go_on_after_it(
    driver: Driver, slept: list[float]
) -> None:
    driver.commit("t", [add(f"{driver.load().metadata.location}/data/0.parquet")])
    assert slept == []
    future = now_ms() + 30_000
    staged = driver.load().metadata
    head = staged.current_snapshot_id
    snapshot = staged.snapshot(head or 0)
    assert snapshot is not None
    place: dict[str, Any] = {"timestamp-ms": future, "manifest-list": snapshot.manifest_list}
    late = append(7, head, sequence_number=2, **place)
    driver.commit("t", late, [head_is(head)])
    with driver.catalog._queues.holding([name("t")]):
        futures = [
            driver.submit("t", [add(f"{staged.location}/data/{number}.parquet")])
            for number in range(1, 6)
        ]
    for one in futures:
        table_answer(one.result(TIMEOUT_S))
    metadata = driver.load().metadata
    assert [entry.timestamp_ms for entry in metadata.snapshot_log][-6:] == [
        future + number for number in range(6)
    ]
    # Five requests use five milliseconds.
    assert slept == [0.005]


# --- groups that take long -------------------------------------------------------------------


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_group_that_takes_long_is_committed_in_parts(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_batch, "MAX_JUDGING_S", -1)
    location = driver.load().metadata.location
    before = driver.metadata_files()
    with driver.catalog._queues.holding([name("t")]):
        bad = driver.submit("t", [{"action": "set-current-schema", "schema-id": 77}])
        good = [driver.submit("t", [add(f"{location}/data/{n}.parquet")]) for n in range(5)]
        # The request changes nothing, so its part of the group needs no swap.
        same = driver.submit("t", [set_property("format-version", "2")])
    answers = [table_answer(future.result(TIMEOUT_S)) for future in good]
    assert isinstance(bad.exception(TIMEOUT_S), BadRequest)
    table_answer(same.result(TIMEOUT_S))
    # Each part has its own metadata file and swap, and responses with their own snapshots.
    written = driver.metadata_files() - before
    assert sum(file.endswith(".metadata.json") for file in written) == 5
    assert len({answer.table.metadata_location for answer in answers}) == 5
    for answer in answers:
        (made,) = committed(answer)
        assert answer.table.metadata.current_snapshot_id == made["snapshot-id"]
    times = [entry.timestamp_ms for entry in driver.load().metadata.snapshot_log]
    assert times == sorted(set(times))
    assert len(times) == 5

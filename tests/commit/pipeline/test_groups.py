"""Commits to one table: groups, refusals, repeated commits, and the files that are written."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from frazil.commit.pipeline.catalog_answers import Answer
from frazil.wire.errors import (
    BadRequest,
    CommitFailed,
    Forbidden,
    NoSuchTable,
    NotFound,
)
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
from tests.support.patience import wait_until


def submit_as_group(driver: Driver, requests: list[dict[str, Any]]) -> list[Future[Answer]]:
    """Queue requests while the table is locked, so that they form one group."""
    with driver.catalog._queues.holding([name("t")]):
        return [driver.submit("t", **request) for request in requests]


def test_a_group_is_one_metadata_file_and_every_request_gets_its_own_answer(
    driver: Driver,
) -> None:
    before = driver.metadata_files()
    futures = submit_as_group(driver, [{"updates": append(n, n - 1 or None)} for n in range(1, 9)])
    answers = [table_answer(future.result(TIMEOUT_S)) for future in futures]
    assert len(driver.metadata_files() - before) == 1
    assert len({answer.table.metadata_location for answer in answers}) == 1
    assert [committed(answer)[0]["snapshot-id"] for answer in answers] == list(range(1, 9))
    metadata = driver.load().metadata
    assert metadata.current_snapshot_id == 8
    # Every head is in the log, because each request runs the builder separately.
    assert [entry.snapshot_id for entry in metadata.snapshot_log] == list(range(1, 9))
    assert len(metadata.metadata_log) == 1


def test_a_request_of_a_group_that_fails_fails_alone(driver: Driver) -> None:
    futures = submit_as_group(
        driver,
        [
            {"updates": append(1), "requirements": [head_is(None)]},
            {"updates": append(2), "requirements": [head_is(None)]},
            {"updates": [{"action": "set-current-schema", "schema-id": 77}]},
            {"updates": append(3, 1), "requirements": [head_is(1)]},
        ],
    )
    outcomes = [future.exception(TIMEOUT_S) for future in futures]
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        CommitFailed,
        BadRequest,
        type(None),
    ]
    assert driver.snapshot_ids() == [1, 3]


def test_a_version_and_an_event_are_counted_for_each_request(driver: Driver) -> None:
    futures = submit_as_group(
        driver,
        [
            {"updates": [set_property("a", "1")]},
            {"updates": append(1), "requirements": [head_is(99)]},
            {"updates": [set_property("b", "2")]},
            {"updates": [set_property("a", "1")]},
        ],
    )
    for future in futures:
        future.exception(TIMEOUT_S)
    events = [event for event in driver.events() if event.identifier == name("t")]
    assert [(event.operation, event.version) for event in events] == [
        ("create", 1),
        ("commit", 2),
        ("commit", 3),
    ]
    assert json.loads(events[1].payload)["updates"] == ["set-properties"]
    row = driver.database.relation(name("t"))
    assert row is not None
    assert row.version == 3


def test_what_changes_nothing_writes_nothing(driver: Driver) -> None:
    driver.commit("t", [set_property("a", "1")])
    files, location = driver.metadata_files(), driver.load().metadata_location
    answer = driver.commit("t", [set_property("a", "1")])
    assert answer.table.metadata_location == location
    assert driver.metadata_files() == files


def test_metadata_files_are_named_as_java_names_them(driver: Driver) -> None:
    for number in range(3):
        driver.commit("t", [set_property("n", str(number))])
    versions = sorted(file.split("-")[0] for file in driver.metadata_files())
    assert versions == ["00000", "00001", "00002", "00003"]
    location = driver.load().metadata_location
    assert location is not None
    assert location.endswith(".metadata.json")
    assert "/metadata/00003-" in location


def test_gzip_metadata_is_written_and_read_again(driver: Driver) -> None:
    driver.commit("t", [set_property("write.metadata.compression-codec", "gzip")])
    answer = driver.commit("t", append(1))
    location = answer.table.metadata_location
    assert location is not None
    assert location.endswith(".gz.metadata.json")
    file = Path(location.removeprefix("file://")).read_bytes()
    assert file[:2] == b"\x1f\x8b"
    assert driver.catalog._cache.read_table(location) == answer.table.metadata


def test_the_metadata_log_is_bounded_and_old_files_go_when_the_table_says_so(
    driver: Driver,
) -> None:
    driver.commit(
        "t",
        [
            set_property("write.metadata.previous-versions-max", "2"),
            set_property("write.metadata.delete-after-commit.enabled", "true"),
        ],
    )
    for number in range(6):
        driver.commit("t", [set_property("n", str(number))])
    assert len(driver.load().metadata.metadata_log) == 2
    # Old metadata files are deleted after the response.
    wait_until(lambda: len(driver.metadata_files()) == 3, "old metadata files were not deleted")


# --- sent twice ------------------------------------------------------------------------------


def test_the_same_classic_commit_twice_without_a_key_commits_once(driver: Driver) -> None:
    first = driver.commit("t", append(1), [head_is(None)])
    again = driver.commit("t", append(1), [head_is(None)])
    assert again.table.metadata_location == first.table.metadata_location
    assert committed(again) == committed(first)
    assert driver.snapshot_ids() == [1]


def test_a_repeated_commit_is_recognised_when_others_came_after_it(driver: Driver) -> None:
    driver.commit("t", append(1), [head_is(None)])
    driver.commit("t", append(2, 1), [head_is(1)])
    answer = driver.commit("t", append(1), [head_is(None)])
    assert answer.table.metadata.current_snapshot_id == 2
    assert driver.snapshot_ids() == [1, 2]


def test_a_repeated_staged_snapshot_is_recognised(driver: Driver) -> None:
    driver.commit("t", append(1, branch=None))
    driver.commit("t", append(1, branch=None))
    assert driver.snapshot_ids() == [1]
    assert driver.load().metadata.current_snapshot_id is None


def test_an_id_that_is_there_but_not_in_the_refs_history_is_a_retryable_conflict(
    driver: Driver,
) -> None:
    driver.commit("t", append(1, branch=None))
    with pytest.raises(CommitFailed, match="not in the history"):
        driver.commit("t", append(1))
    driver.commit("t", append(2))
    with pytest.raises(CommitFailed):
        driver.commit("t", append(1, branch="other"))


# --- refused ---------------------------------------------------------------------------------


def test_a_commit_to_what_is_not_there_is_not_found(driver: Driver) -> None:
    with pytest.raises(NoSuchTable, match=r"Table does not exist: ns\.nope"):
        driver.commit("nope", [set_property("a", "1")])
    with pytest.raises(NoSuchTable, match=r"Table does not exist: nowhere\.t"):
        driver.commit("nowhere.t", [set_property("a", "1")])


def test_a_stale_sequence_number_is_a_retryable_conflict(driver: Driver) -> None:
    driver.commit("t", append(1))
    driver.commit("t", append(2, 1, branch="b"))
    with pytest.raises(CommitFailed):
        driver.commit("t", append(3, 1, sequence_number=2), [head_is(1)])


def test_a_location_outside_the_warehouse_is_refused_and_nothing_changes(driver: Driver) -> None:
    before = driver.load().metadata_location
    for update in (
        {"action": "set-location", "location": "file:///etc/frazil"},
        set_property("write.data.path", "file:///etc"),
        set_property("write.metadata.path", "s3://bucket/x"),
    ):
        with pytest.raises(BadRequest, match="outside the warehouse"):
            driver.commit("t", [update])
    assert driver.load().metadata_location == before


def test_a_location_of_another_table_is_refused_for_the_one_who_asks(driver: Driver) -> None:
    other = driver.create_table("other").table.metadata.location
    futures = submit_as_group(
        driver,
        [
            {"updates": [set_property("a", "1")]},
            {"updates": [{"action": "set-location", "location": f"{other}/inside"}]},
            {"updates": [set_property("b", "2")]},
        ],
    )
    outcomes = [type(future.exception(TIMEOUT_S)) for future in futures]
    assert outcomes == [type(None), Forbidden, type(None)]
    assert driver.properties().items() >= {"a": "1", "b": "2"}.items()
    assert driver.load().metadata.location != f"{other}/inside"


def test_a_table_may_move_and_its_old_place_becomes_free(driver: Driver) -> None:
    old = driver.load().metadata.location
    driver.commit("t", [{"action": "set-location", "location": f"{old}-moved"}])
    assert driver.load().metadata.location == f"{old}-moved"
    driver.create_table("heir", location=old)


def test_a_load_looks_at_the_file_behind_the_pointer(driver: Driver) -> None:
    location = driver.load().metadata_location
    assert location is not None
    path = Path(location.removeprefix("file://"))
    path.rename(path.with_suffix(".away"))
    with pytest.raises(NotFound, match="Failed to open input stream for file: " + location):
        driver.load()
    path.with_suffix(".away").rename(path)
    assert driver.load().metadata_location == location


def test_where_appends_are_rebased_what_cannot_be_goes_first(driver: Driver) -> None:
    """A MERGE that is valid on the head would be stale after any append of its group."""
    driver.commit("t", append(1))
    driver.commit("t", [set_property("frazil.commit.rebase-appends", "true")])
    merge = append(3, 1, sequence_number=2, summary={"operation": "overwrite"})
    futures = submit_as_group(
        driver,
        [
            {"updates": append(2, 1), "requirements": [head_is(1)]},
            {"updates": [set_property("a", "1")]},
            {"updates": merge, "requirements": [head_is(1)]},
        ],
    )
    outcomes = [future.exception(TIMEOUT_S) for future in futures]
    assert outcomes[1:] == [None, None]
    # The append must then be rebased, which fails because its manifest list does not exist.
    assert isinstance(outcomes[0], CommitFailed)
    assert "not rebased" in outcomes[0].message
    assert driver.snapshot_ids() == [1, 3]

"""Compaction keeps all rows, also those that others change meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table, ValidationError
from frazil.maintenance import rewrite_data_files
from frazil.maintenance.local_engine import LocalEngine
from frazil.maintenance.rewrite_engine import WrittenRows
from frazil.maintenance.worker_operations import WORKER_OPERATIONS, WorkerRun
from frazil.wire.errors import BadRequest
from frazil.wire.maintenance_operations import REWRITE_DATA_FILES
from tests.maintenance.conftest import (
    FILES,
    ROWS,
    data_files,
    during_the_rewrite,
    equality_delete,
    everything,
    lineage,
    parquet_files,
    row,
    rows,
)
from tests.support.duck import attach
from tests.support.duck import connect as duck_connect
from tests.support.patience import HANG_S
from tests.support.server import RunningServer

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
WITH_DELETES = pytest.mark.parametrize("version", [2, 3])


@pytest.fixture(scope="module")
def duck(catalog: RunningServer) -> Iterator[duckdb.DuckDBPyConnection]:
    with duck_connect() as connection:
        attach(connection, catalog.url)
        yield connection


# --- rows -----------------------------------------------------------------------------------------


@VERSIONS
def test_small_files_become_one(
    client: Client,
    new_table: Callable[..., Table],
    catalog: RunningServer,
    duck: duckdb.DuckDBPyConnection,
    version: int,
) -> None:
    table = new_table(version)
    before = lineage(client, table) if version == 3 else None
    result = rewrite_data_files(table)
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (FILES, 1)
    assert result.rewritten_bytes_count > 0
    assert result.failed_data_files_count == 0
    assert len(data_files(client, table)) == 1
    assert rows(client, table) == everything()
    if before is not None:
        assert lineage(client, table) == before
    stock = RestCatalog("stock", uri=catalog.url).load_table(str(table.identifier))
    assert sorted(stock.scan().to_arrow()["id"].to_pylist()) == sorted(everything())
    found = duck.execute(f"SELECT id, item FROM ice.{table.identifier}").fetchall()
    assert dict(found) == everything()
    operation = client.history(table.identifier)[0].operation
    assert operation == "replace"


@WITH_DELETES
def test_deletes_are_resolved(
    client: Client, new_table: Callable[..., Table], version: int
) -> None:
    table = new_table(version)
    client.delete(table.identifier, "id = 3 or id = 4 or id = 15")
    result = rewrite_data_files(table)
    assert rows(client, table) == everything(3, 4, 15)
    assert result.removed_delete_files_count == 2
    assert client.history(table.identifier)[0].summary["removed-delete-files"] == "2"
    tasks = client.load_table(table.identifier).plan().tasks
    assert [task.data_file.record_count for task in tasks] == [FILES * ROWS - 3]
    assert [task.delete_files for task in tasks] == [()]
    assert "total-delete-files" not in (client.history(table.identifier)[0].summary or {}) or (
        client.history(table.identifier)[0].summary["total-delete-files"] == "0"
    )


@WITH_DELETES
def test_equality_deletes_before_and_during_a_rewrite(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table = new_table(version)
    equality_delete(client, table, 7, 8)
    client.append(table.identifier, [row(7, "again")])
    during_the_rewrite(monkeypatch, lambda: equality_delete(client, table, 7, 30))
    rewrite_data_files(table)
    assert rows(client, table) == everything(7, 8, 30)


def test_the_rows_of_another_spec_go_to_their_partitions(
    client: Client, new_table: Callable[..., Table]
) -> None:
    table = new_table(3)
    before = lineage(client, table)
    client.add_partition_field(table.identifier, "kind")
    client.append(table.identifier, [row(100), row(101)])
    result = rewrite_data_files(
        client.load_table(table.identifier), options={"rewrite-all": "true"}
    )
    assert result.rewritten_data_files_count == FILES + 2
    tasks = client.load_table(table.identifier).plan().tasks
    assert {task.data_file.partition for task in tasks} == {("a",), ("b",)}
    assert rows(client, table) == everything() | {100: "old", 101: "old"}
    after = lineage(client, table)
    assert {id: after[id] for id in before} == before


@WITH_DELETES
def test_deletes_that_land_on_rows_of_several_partitions(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table = new_table(version)
    client.add_partition_field(table.identifier, "kind")
    numbers = iter([(12, 13), (31, 58)])

    def delete() -> None:
        one, other = next(numbers)
        client.delete(table.identifier, f"id = {one} or id = {other}")

    during_the_rewrite(monkeypatch, delete, rounds=2)
    result = rewrite_data_files(client.load_table(table.identifier))
    assert result.failed_data_files_count == 0
    assert len(data_files(client, table)) == 2
    assert rows(client, table) == everything(12, 13, 31, 58)


# --- other writers --------------------------------------------------------------------------------


@WITH_DELETES
def test_deletes_that_land_on_a_group(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """Stock Iceberg throws the group away; here the deletes move to the new files."""
    table = new_table(version)
    client.delete(table.identifier, "id = 11")
    numbers = iter([12, 30, 59])
    during_the_rewrite(
        monkeypatch, lambda: client.delete(table.identifier, f"id = {next(numbers)}"), rounds=3
    )
    result = rewrite_data_files(table)
    assert result.rewritten_data_files_count == FILES
    assert rows(client, table) == everything(11, 12, 30, 59)
    assert len(data_files(client, table)) == 1


@WITH_DELETES
def test_updates_that_land_on_a_group(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table = new_table(version)
    during_the_rewrite(
        monkeypatch, lambda: client.upsert(table.identifier, [row(5, "new"), row(45, "new")])
    )
    rewrite_data_files(table)
    assert rows(client, table) == everything() | {5: "new", 45: "new"}


@WITH_DELETES
@pytest.mark.parametrize("way", ["delete", "truncate", "overwrite", "rewrite"])
def test_a_file_of_the_group_disappears(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    way: str,
) -> None:
    table = new_table(version)

    def remove() -> None:
        if way == "delete":
            client.delete(table.identifier, "id >= 10 and id < 20")
        elif way == "truncate":
            (path,) = [
                task.data_file.file_path for task in table.plan("id >= 10 and id < 20").tasks
            ]
            client.load_table(table.identifier).delete_files([path])
        elif way == "overwrite":
            client.overwrite(table.identifier, [row(12, "new")], "id >= 10 and id < 20")
        else:
            rewrite_data_files(
                client.load_table(table.identifier),
                where="id >= 10 and id < 20",
                options={"rewrite-all": "true"},
            )

    during_the_rewrite(monkeypatch, remove)
    result = rewrite_data_files(table)
    assert result.failed_data_files_count == 0
    expected = {
        "delete": everything(*range(10, 20)),
        "truncate": everything(*range(10, 20)),
        "overwrite": everything(*range(10, 20)) | {12: "new"},
        "rewrite": everything(),
    }
    assert rows(client, table) == expected[way]


@WITH_DELETES
def test_all_files_of_the_group_disappear(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """Nothing is left to do, which is no failure; the new files are removed."""
    table = new_table(version)
    before = parquet_files(table)
    during_the_rewrite(monkeypatch, lambda: rewrite_data_files(client.load_table(table.identifier)))
    result = rewrite_data_files(table)
    assert (result.rewritten_data_files_count, result.failed_data_files_count) == (0, 0)
    assert result.added_data_files_count == 0
    assert len(data_files(client, table)) == 1
    assert len(parquet_files(table) - before) == 1
    assert rows(client, table) == everything()


def test_late_deletes_under_a_new_sequence_number_fail_the_group(
    client: Client, new_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(2)
    files = parquet_files(table)
    during_the_rewrite(monkeypatch, lambda: equality_delete(client, table, 3))
    with pytest.raises(ValidationError, match="found new delete"):
        rewrite_data_files(table, options={"use-starting-sequence-number": "false"})
    assert rows(client, table) == everything(3)
    assert {path.name for path in parquet_files(table) - files} == {"by-id-3.parquet"}


@WITH_DELETES
def test_writers_beside_compactions_lose_nothing(
    client: Client, new_table: Callable[..., Table], catalog: RunningServer, version: int
) -> None:
    """Deletes and upserts of single rows run until all groups have been rewritten three times."""
    table = new_table(version)
    done = threading.Event()
    changed: list[dict[int, str | None]] = []

    def change(numbers: Iterator[int]) -> None:
        own: dict[int, str | None] = {}
        changed.append(own)
        with Client(catalog.url) as writer:
            for number in numbers:
                if done.is_set():
                    return
                if number % 3:
                    writer.delete(table.identifier, f"id = {number}")
                    own[number] = None
                else:
                    writer.upsert(table.identifier, [row(number, "new")])
                    own[number] = "new"

    client.set_properties(table.identifier, {"commit.retry.num-retries": "1000"})
    threads = [
        threading.Thread(target=change, args=(iter(range(start, FILES * ROWS, 2)),))
        for start in (0, 1)
    ]
    for thread in threads:
        thread.start()
    size = max(path.stat().st_size for path in parquet_files(table))
    options = {"max-file-group-size-bytes": str(2 * size), "rewrite-all": "true"}
    failed = 0
    for _ in range(3):
        result = rewrite_data_files(client.load_table(table.identifier), options=options)
        failed += result.failed_data_files_count
    done.set()
    for thread in threads:
        thread.join()
    expected: dict[int, str | None] = dict(everything())
    for own in changed:
        expected |= own
    assert rows(client, table) == {id: item for id, item in expected.items() if item is not None}
    assert failed == 0
    assert sum(map(len, changed)) > 0


# --- what is rewritten ----------------------------------------------------------------------------


def test_a_dry_run_changes_nothing(client: Client, new_table: Callable[..., Table]) -> None:
    table = new_table(3)
    files = parquet_files(table)
    result = rewrite_data_files(table, dry_run=True)
    assert (result.rewritten_data_files_count, result.dry_run) == (FILES, True)
    assert parquet_files(table) == files
    assert len(client.history(table.identifier)) == FILES


def test_few_good_files_are_left_alone(client: Client, new_table: Callable[..., Table]) -> None:
    table = new_table(3)
    assert rewrite_data_files(table, where="id < 30").rewritten_data_files_count == 0
    options = {"min-input-files": "3"}
    assert (
        rewrite_data_files(table, where="id < 30", options=options).rewritten_data_files_count == 3
    )
    size = Path(urlsplit(data_files(client, table)[0]).path).stat().st_size
    sizes = {
        "target-file-size-bytes": str(size),
        "min-file-size-bytes": "1",
        "max-file-size-bytes": str(10 * size),
    }
    assert rewrite_data_files(table, options=sizes).rewritten_data_files_count == 0


def test_many_deletes_are_reason_enough(client: Client, new_table: Callable[..., Table]) -> None:
    table = new_table(3)
    client.delete(table.identifier, "id < 2")
    options = {"min-input-files": "100"}
    assert rewrite_data_files(table, options=options).rewritten_data_files_count == 0
    client.delete(table.identifier, "id < 4")
    # As in Iceberg, one such file is reason enough for its whole group.
    assert rewrite_data_files(table, options=options).rewritten_data_files_count == FILES
    assert rows(client, table) == everything(0, 1, 2, 3)


def test_groups_are_rewritten_by_themselves(
    client: Client, new_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(3)
    size = max(path.stat().st_size for path in parquet_files(table))
    options = {"max-file-group-size-bytes": str(2 * size), "rewrite-all": "true"}
    seen: list[tuple[int, int]] = []
    result = rewrite_data_files(table, options=options, progress=lambda *at: seen.append(at))
    assert result.added_data_files_count == FILES / 2
    assert sorted(seen) == [(1, 3), (2, 3), (3, 3)]
    assert len(client.history(table.identifier)) == FILES + FILES / 2
    assert rows(client, table) == everything()


# --- commits --------------------------------------------------------------------------------------


AT_ONCE = "max-concurrent-file-group-rewrites"
PAIRS = {"max-file-group-input-files": "2", "min-input-files": "2"}


@WITH_DELETES
def test_without_partial_progress_all_groups_are_one_commit(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table = new_table(version)
    others: list[Callable[[], object]] = [
        lambda: client.delete(table.identifier, "id = 11 or id = 35"),
        lambda: rewrite_data_files(table, where="id >= 40", options=PAIRS),
    ]
    during_the_rewrite(monkeypatch, lambda: others.pop(0)(), rounds=2)
    result = rewrite_data_files(table, options={**PAIRS, "partial-progress.enabled": "false"})
    # One group has lost all its files, so that two of three are committed.
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (4, 2)
    assert result.failed_data_files_count == 0
    assert len(data_files(client, table)) == 3
    assert len(client.history(table.identifier)) == FILES + 2 + 1
    assert rows(client, table) == everything(11, 35)


def test_a_number_of_commits_is_kept(client: Client, new_table: Callable[..., Table]) -> None:
    table = new_table(3)
    seen: list[tuple[int, int]] = []
    options = {**PAIRS, "partial-progress.max-commits": "2"}
    result = rewrite_data_files(table, options=options, progress=lambda *at: seen.append(at))
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (FILES, 3)
    assert len(client.history(table.identifier)) == FILES + 2
    assert sorted(seen) == [(1, 3), (2, 3), (3, 3)]
    assert rows(client, table) == everything()


@pytest.mark.parametrize("at_once", [None, 3])
def test_a_worker_rewrites_one_group_at_a_time(
    new_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch, at_once: int | None
) -> None:
    """A group takes much memory, and the autopilot has little."""
    rewrite, lock, active, most = LocalEngine.rewrite, threading.Lock(), [0], [0]
    together = threading.Barrier(at_once or 1)

    def counted(*args: Any) -> WrittenRows:
        with lock:
            active[0] += 1
            most[0] = max(most[0], active[0])
        together.wait(HANG_S)
        try:
            return rewrite(*args)
        finally:
            with lock:
                active[0] -= 1

    monkeypatch.setattr(LocalEngine, "rewrite", counted)
    options = PAIRS if at_once is None else PAIRS | {AT_ONCE: str(at_once)}
    run = WorkerRun(new_table(3), options, False, lambda done, total: None)
    result = WORKER_OPERATIONS[REWRITE_DATA_FILES](run)
    assert result["added-data-files-count"] == FILES // 2
    assert most == [at_once or 1]


@pytest.mark.parametrize("commits", ["alone", "together", "one"])
def test_a_group_that_cannot_be_read(
    client: Client, new_table: Callable[..., Table], commits: str
) -> None:
    """With partial progress the other groups are committed, without it nothing is."""
    table = new_table(3)
    broken = Path(urlsplit(min(data_files(client, table))).path)
    content = broken.read_bytes()
    broken.write_bytes(b"no Parquet")
    before = parquet_files(table)
    options = {
        "alone": PAIRS,
        "together": {**PAIRS, "partial-progress.max-commits": "1"},
        "one": {**PAIRS, "partial-progress.enabled": "false"},
    }[commits]
    if commits == "one":
        with pytest.raises(pa.ArrowInvalid, match="Parquet"):
            rewrite_data_files(table, options=options)
        assert parquet_files(table) == before
    else:
        result = rewrite_data_files(table, options=options)
        assert (result.rewritten_data_files_count, result.failed_data_files_count) == (4, 2)
        assert len(parquet_files(table) - before) == 2
        with pytest.raises(pa.ArrowInvalid, match="Parquet"):
            failures = {"partial-progress.max-failed-commits": "0", "rewrite-all": "true"}
            rewrite_data_files(client.load_table(table.identifier), options=options | failures)
    broken.write_bytes(content)
    assert rows(client, table) == everything()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"partial-progress.enabled": "false", "partial-progress.max-commits": "3"},
            "only with partial-progress.enabled=true",
        ),
        ({"compression-factor": "2"}, "only for the strategy sort"),
        ({"compression-factor": "0"}, "must be a number above 0"),
        ({"var-length-contribution": "16"}, "16 bits for each column, also for texts: leave it"),
        (
            {"min-input-file": "3"},
            "min-input-file is not an option: did you mean 'min-input-files'?",
        ),
        ({"min-input-files": "0"}, "must be a whole number of at least 1"),
        ({"delete-ratio-threshold": "2"}, "must be a number from 0 to 1"),
        ({"rewrite-all": "yes"}, "must be true or false"),
        ({"rewrite-job-order": "size"}, "must be one of none, bytes-asc"),
        ({"min-file-size-bytes": "9999999999"}, "must be above min-file-size-bytes"),
    ],
)
def test_wrong_options_are_named(
    new_table: Callable[..., Table], options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadRequest, match=message.replace("?", "\\?")):
        rewrite_data_files(new_table(2), options=options)


def test_a_table_without_snapshots_has_nothing_to_do(client: Client, namespace: str) -> None:
    table = client.create_table(f"{namespace}.empty", "id long")
    assert rewrite_data_files(table).rewritten_data_files_count == 0

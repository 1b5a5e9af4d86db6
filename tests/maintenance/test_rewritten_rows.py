"""Rows before and after a rewrite are the same, also where other compactions lost some.

The tests are named after the reports of what went wrong elsewhere.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table
from frazil.client.rows.write_folders import WriteFolder
from frazil.maintenance import rewrite_data_files
from frazil.maintenance.local_engine import LocalEngine
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from tests.maintenance.conftest import (
    FILES,
    data_files,
    during_the_rewrite,
    equality_delete,
    everything,
    lineage,
    row,
    rows,
)
from tests.support.server import RunningServer

WITH_DELETES = pytest.mark.parametrize("version", [2, 3])
ORDERS = pytest.mark.parametrize("sort_order", [None, "kind desc, id", "zorder(kind, id)"])
ALL = {"rewrite-all": "true"}


def totals(client: Client, table: Table) -> dict[str, int]:
    head = client.load_table(table.identifier).snapshot("main")
    return {name: int(value) for name, value in head.summary.items() if name.startswith("total-")}


@ORDERS
def test_iceberg_2195_a_huge_file_loses_no_rows(
    client: Client, namespace: str, catalog: RunningServer, sort_order: str | None
) -> None:
    """A file above the size of a group was split over two groups, and its remainder was lost."""
    table = client.create_table(
        f"{namespace}.t",
        "id long, kind string",
        format_version=3,
        properties={"write.parquet.row-group-size-bytes": "20000"},
    )
    content = pa.table({"id": range(20_000), "kind": [f"k{id % 7}" for id in range(20_000)]})
    client.append(table.identifier, content)
    before = lineage(client, table)
    (path,) = data_files(client, table)
    stock = RestCatalog("stock", uri=catalog.url)
    options = {
        "target-file-size-bytes": "8000",
        "max-file-group-size-bytes": "10000",
        "min-file-size-bytes": "1",
    }
    result = rewrite_data_files(
        client.load_table(table.identifier), sort_order=sort_order, options=options
    )
    assert result.rewritten_data_files_count == 1
    assert result.added_data_files_count > 2
    assert path not in data_files(client, table)
    found = stock.load_table(str(table.identifier)).scan().to_arrow().sort_by("id")
    assert found.cast(content.schema) == content
    assert lineage(client, table) == before


@ORDERS
@WITH_DELETES
def test_iceberg_10312_a_rewrite_revives_no_deleted_rows(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    catalog: RunningServer,
    version: int,
    sort_order: str | None,
) -> None:
    """Equality deletes before and during the rewrite, of rows that were inserted again before."""
    table = new_table(version)
    equality_delete(client, table, 7, 8)
    client.append(table.identifier, [row(7, "again")])
    client.delete(table.identifier, "id = 9 or id = 41")
    during_the_rewrite(monkeypatch, lambda: equality_delete(client, table, 7, 30))
    rewrite_data_files(table, sort_order=sort_order, options=ALL)
    expected = everything(7, 8, 9, 30, 41)
    assert rows(client, table) == expected
    # The new files have the number of the snapshot that was read, so a third rewrite sees the same.
    rewrite_data_files(client.load_table(table.identifier), sort_order=sort_order, options=ALL)
    assert rows(client, table) == expected
    stock = RestCatalog("stock", uri=catalog.url).load_table(str(table.identifier))
    assert sorted(stock.scan().to_arrow()["id"].to_pylist()) == sorted(expected)
    # Nothing applies any more, and nothing dangles.
    assert totals(client, table)["total-delete-files"] == 0
    assert totals(client, table)["total-records"] == len(expected)


@ORDERS
def test_iceberg_16699_17039_row_lineage_is_kept(
    client: Client,
    new_table: Callable[..., Table],
    catalog: RunningServer,
    sort_order: str | None,
) -> None:
    """Row ids and sequence numbers stay, for rows that were upserted and moved before too."""
    table = new_table(3)
    client.upsert(table.identifier, [row(3, "new"), row(33, "new")])
    rewrite_data_files(client.load_table(table.identifier), where="id < 30", options=ALL)
    client.append(table.identifier, [row(60), row(61)])
    client.upsert(table.identifier, [row(61, "new"), row(5, "new")])
    before = lineage(client, table)
    assert len({number for _, number in before.values()}) > FILES
    rewrite_data_files(client.load_table(table.identifier), sort_order=sort_order, options=ALL)
    assert len(data_files(client, table)) == 1
    assert lineage(client, table) == before
    head = client.load_table(table.identifier)
    stock = RestCatalog("stock", uri=catalog.url).load_table(str(table.identifier))
    assert stock.metadata.format_version == 3
    assert max(id for id, _ in before.values()) < head.metadata["next-row-id"]


def test_iceberg_16699_17039_rows_of_an_upgraded_table_get_ids_once(
    client: Client, new_table: Callable[..., Table]
) -> None:
    """Files from before version 3 have no row ids; the rewrite gives them some, which then stay."""
    table = new_table(2)
    upgrade = {"action": "upgrade-format-version", "format-version": 3}
    client.change_metadata(table.identifier, lambda _: ([upgrade], []))
    client.append(table.identifier, [row(60)])
    before = lineage(client, table)
    rewrite_data_files(client.load_table(table.identifier), sort_order="id desc", options=ALL)
    after = lineage(client, table)
    assert after[60] == before[60]
    ids = [id for id, _ in after.values()]
    assert None not in ids
    assert len(set(ids)) == len(ids) == 61
    rewrite_data_files(client.load_table(table.identifier), sort_order="kind", options=ALL)
    assert lineage(client, table) == after


@WITH_DELETES
def test_iceberg_15966_the_filter_does_not_narrow_what_is_rewritten(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """All rows of a chosen file move, and late deletes outside the filter count too."""
    table = new_table(version)
    during_the_rewrite(monkeypatch, lambda: client.delete(table.identifier, "id = 9 or id = 59"))
    result = rewrite_data_files(table, where="id < 5", sort_order="id desc", options=ALL)
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (1, 1)
    assert rows(client, table) == everything(9, 59)


def test_iceberg_11014_added_records_equal_deleted_records(
    client: Client, new_table: Callable[..., Table]
) -> None:
    table = new_table(3)
    client.delete(table.identifier, "id = 3")
    pairs = {**ALL, "max-file-group-input-files": "2"}
    rewrite_data_files(client.load_table(table.identifier), options=pairs)
    summaries = [entry.summary for entry in client.history(table.identifier)][: FILES // 2]
    added = sum(int(summary["added-records"]) for summary in summaries)
    deleted = sum(int(summary["deleted-records"]) for summary in summaries)
    assert (added, deleted) == (FILES * 10 - 1, FILES * 10)
    assert totals(client, table)["total-records"] == FILES * 10 - 1


def test_clickhouse_120165_rows_that_were_acknowledged_meanwhile_stay(
    client: Client, new_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table was loaded long before, and others append while groups are written."""
    stale = new_table(3)
    client.append(stale.identifier, [row(60), row(61)])
    numbers = itertools.count(100)

    def append() -> None:
        client.append(stale.identifier, [row(next(numbers))])

    during_the_rewrite(monkeypatch, append, rounds=3)
    one_by_one = {"max-file-group-input-files": "2", "max-concurrent-file-group-rewrites": "1"}
    rewrite_data_files(stale, options=ALL | one_by_one)
    expected = everything() | {60: "old", 61: "old", 100: "old", 101: "old", 102: "old"}
    assert rows(client, stale) == expected


def test_iceberg_7522_each_commit_has_a_sequence_number_of_its_own(
    client: Client, new_table: Callable[..., Table]
) -> None:
    """New files have the number of the snapshot that was read, but snapshots have new ones."""
    table = new_table(3)
    read = table.snapshot("main").sequence_number
    rewrite_data_files(table, options={**ALL, "max-file-group-input-files": "1"})
    loaded = client.load_table(table.identifier)
    numbers = [snapshot.sequence_number for snapshot in loaded.ancestors()]
    assert numbers == list(range(2 * FILES, 0, -1))
    tasks = loaded.plan(sequence_numbers=True).tasks
    assert {task.data_file.data_sequence_number for task in tasks} == {read}


@WITH_DELETES
def test_a_branch_is_rewritten_beside_main(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    table = new_table(version)
    table.create_branch("b")
    client.delete(table.identifier, "id = 1", branch="b")

    def delete() -> None:
        client.delete(table.identifier, "id = 2")
        client.delete(table.identifier, "id = 33", branch="b")

    during_the_rewrite(monkeypatch, delete)
    result = rewrite_data_files(table.refreshed(), branch="b", sort_order="id desc", options=ALL)
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (FILES, 1)
    assert rows(client, table) == everything(2)
    found = client.scan(table.identifier, snapshot="b").to_pylist()
    assert {row["id"] for row in found} == everything(1, 33).keys()
    assert len(data_files(client, table)) == FILES


# --- a stream of deletes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "sort_order"),
    [
        (6, None),
        (6, "id desc"),
        pytest.param(80, None, marks=pytest.mark.full),
        pytest.param(80, "kind, id desc", marks=pytest.mark.full),
    ],
)
def test_a_stream_of_deletes_and_a_rewrite_lose_nothing(
    client: Client,
    namespace: str,
    catalog: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    groups: int,
    sort_order: str | None,
) -> None:
    """A delete lands on each group after it was read, and others on any group at any time.

    Stock Iceberg loses every group.
    """
    table = client.create_table(
        f"{namespace}.t",
        "id long not null, kind string",
        format_version=3,
        properties={"write.delete.mode": "merge-on-read", "commit.retry.num-retries": "1000"},
    )
    per_file = 20
    for file in range(2 * groups):
        ids = range(file * per_file, (file + 1) * per_file)
        client.append(table.identifier, [{"id": id, "kind": "ab"[id % 2]} for id in ids])
    before = lineage(client, table)
    deleted: list[int] = []
    failures: list[Exception] = []
    done = threading.Event()

    def stream(order: Iterator[int]) -> None:
        with Client(catalog.url) as writer:
            for id in order:
                if done.is_set():
                    return
                try:
                    writer.delete(table.identifier, f"id = {id}")
                except Exception as error:
                    failures.append(error)
                    return
                deleted.append(id)

    rewrite = LocalEngine.rewrite

    def rewrite_and_delete(self: LocalEngine, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        written = rewrite(self, work, folder)
        path = urlsplit(work.group.tasks[0].file_path).path
        stream(iter([pq.read_table(path, columns=["id"])["id"][0].as_py()]))
        return written

    monkeypatch.setattr(LocalEngine, "rewrite", rewrite_and_delete)
    chosen = [id for id in range(2 * groups * per_file) if id % per_file]
    random.Random(groups).shuffle(chosen)
    half = len(chosen) // 2
    writers = [
        threading.Thread(target=stream, args=(iter(part),))
        for part in (chosen[:half], chosen[half : -half // 4])
    ]
    for writer in writers:
        writer.start()
    options: dict[str, Any] = {**ALL, "max-file-group-input-files": "2"}
    result = rewrite_data_files(
        client.load_table(table.identifier), sort_order=sort_order, options=options
    )
    done.set()
    for writer in writers:
        writer.join()
    assert not failures
    assert result.failed_data_files_count == 0
    assert result.rewritten_data_files_count == 2 * groups
    assert len([id for id in deleted if id % per_file == 0]) == groups
    after = lineage(client, table)
    assert after.keys() == before.keys() - set(deleted)
    assert {id: before[id] for id in after} == after
    live = client.load_table(table.identifier).plan().tasks
    assert all(task.data_file.first_row_id is not None for task in live)

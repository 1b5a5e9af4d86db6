"""A sorting rewrite puts rows in order and follows those that others change meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table
from frazil.maintenance import rewrite_data_files
from frazil.wire.errors import BadRequest
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

VERSIONS = pytest.mark.parametrize("version", [1, 2, 3])
WITH_DELETES = pytest.mark.parametrize("version", [2, 3])
SMALL_FILES = {
    "target-file-size-bytes": "300",
    "min-file-size-bytes": "1",
    "max-file-size-bytes": "100000",
    "rewrite-all": "true",
}
KINDS = [None, "b", "a", "ä", "B"]


def mixed(id: int) -> dict[str, Any]:
    return {"id": id, "kind": KINDS[id % 5], "item": "old"}


def stored(client: Client, table: Table) -> list[list[dict[str, Any]]]:
    """Return the rows of each file in their order."""
    return [
        pq.read_table(urlsplit(path).path, columns=["id", "kind"]).to_pylist()
        for path in sorted(data_files(client, table))
    ]


def sort_order_ids(client: Client, table: Table) -> set[int | None]:
    tasks = client.load_table(table.identifier).plan().tasks
    return {task.data_file.sort_order_id for task in tasks}


@VERSIONS
def test_files_have_the_tables_order(
    client: Client, new_table: Callable[..., Table], catalog: RunningServer, version: int
) -> None:
    table = new_table(version)
    client.append(table.identifier, [mixed(id) for id in range(60, 100)])
    client.load_table(table.identifier).set_sort_order("kind desc nulls last", "id asc")
    before = lineage(client, table) if version == 3 else None
    stock = RestCatalog("stock", uri=catalog.url)
    expected = stock.load_table(str(table.identifier)).scan().to_arrow().sort_by("id")
    result = rewrite_data_files(client.load_table(table.identifier), strategy="sort")
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (FILES + 1, 1)
    (found,) = stored(client, table)
    ranks = {"ä": 0, "b": 1, "a": 2, "B": 3, None: 4}
    keys = [(ranks[row["kind"]], row["id"]) for row in found]
    assert keys == sorted(keys)
    assert sort_order_ids(client, table) == {table.refreshed().sort_order()["order-id"]}
    assert stock.load_table(str(table.identifier)).scan().to_arrow().sort_by("id") == expected
    if before is not None:
        assert lineage(client, table) == before


def test_another_order_may_have_transforms(client: Client, new_table: Callable[..., Table]) -> None:
    table = new_table(3)
    rewrite_data_files(table, sort_order="kind DESC NULLS LAST, truncate(20, `id`), id desc")
    (found,) = stored(client, table)
    keys = [(-ord(row["kind"]), row["id"] // 20, -row["id"]) for row in found]
    assert keys == sorted(keys)
    assert sort_order_ids(client, table) == {None}


def test_an_order_that_the_table_had_is_declared(
    client: Client, new_table: Callable[..., Table]
) -> None:
    table = new_table(2)
    table.set_sort_order("id desc")
    known = table.refreshed().sort_order()["order-id"]
    table.refreshed().set_sort_order("kind")
    rewrite_data_files(table, sort_order="id DESC")
    assert sort_order_ids(client, table) == {known}


def test_a_z_order_makes_files_narrow_in_all_its_columns(client: Client, namespace: str) -> None:
    table = client.create_table(f"{namespace}.t", "a int, b string, d decimal(9, 2)")
    for start in range(0, 4096, 1024):
        client.append(
            table.identifier,
            [
                {"a": number % 64, "b": f"{number // 64:02}", "d": None}
                for number in range(start, start + 1024)
            ],
        )
    options = {**SMALL_FILES, "target-file-size-bytes": "2000"}
    rewrite_data_files(
        client.load_table(table.identifier), sort_order="zorder(a, b, d)", options=options
    )
    files = [pq.read_table(urlsplit(path).path) for path in data_files(client, table)]
    assert sum(file.num_rows for file in files) == 4096
    assert len(files) >= 4
    widths = []
    for file in files:
        numbers = [file["a"].to_pylist(), [int(text) for text in file["b"].to_pylist()]]
        widths.append([(max(each) - min(each) + 1) / 64 for each in numbers])
    for column in range(2):
        assert sum(width[column] for width in widths) / len(widths) < 0.75, widths


def test_rows_are_sorted_within_their_partitions(
    client: Client, new_table: Callable[..., Table]
) -> None:
    table = new_table(3)
    before = lineage(client, table)
    client.add_partition_field(table.identifier, "kind")
    client.append(table.identifier, [row(id) for id in range(60, 80)])
    result = rewrite_data_files(
        client.load_table(table.identifier),
        sort_order="id desc",
        options={"rewrite-all": "true"},
    )
    assert result.failed_data_files_count == 0
    for file in stored(client, table):
        assert len({row["kind"] for row in file}) == 1
        ids = [row["id"] for row in file]
        assert ids == sorted(ids, reverse=True)
    assert rows(client, table) == dict.fromkeys(range(80), "old")
    after = lineage(client, table)
    assert {id: after[id] for id in before} == before


@WITH_DELETES
def test_changes_that_land_on_sorted_rows(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """The rows of one old file go to several new files."""
    table = new_table(version)
    client.delete(table.identifier, "id = 11")

    def more() -> None:
        # A newer equality delete applies to the new files, so that it refuses no commit.
        equality_delete(client, table, 58)
        client.delete(table.identifier, "id >= 20 and id < 30")

    changes: list[Callable[[], object]] = [
        lambda: client.delete(table.identifier, "id = 12 or id = 13 or id = 30"),
        lambda: client.upsert(table.identifier, [row(5, "new"), row(45, "new")]),
        more,
    ]
    during_the_rewrite(monkeypatch, lambda: changes.pop(0)(), rounds=3)
    result = rewrite_data_files(table, sort_order="kind, id desc", options=SMALL_FILES)
    assert result.failed_data_files_count == 0
    assert result.added_data_files_count > 1
    assert not changes
    gone = [11, 12, 13, 30, 58, *range(20, 30)]
    assert rows(client, table) == everything(*gone) | {5: "new", 45: "new"}


def test_the_places_of_many_rows_are_in_a_file(
    client: Client,
    new_table: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("frazil.maintenance.row_places._MAX_ROWS_IN_MEMORY", 1)
    monkeypatch.setattr("frazil.datafiles.ordering.external_sort.RUN_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = new_table(3)
    during_the_rewrite(monkeypatch, lambda: client.delete(table.identifier, "id in (3, 31, 59)"))
    rewrite_data_files(table, sort_order="kind, id desc", options=SMALL_FILES)
    assert rows(client, table) == everything(3, 31, 59)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("strategy", "sort_order", "message"),
    [
        ("z", None, "strategy: 'z' must be binpack or sort"),
        ("sort", None, "has no sort order: name one"),
        ("binpack", "id", "binpack keeps the order of rows"),
        ("sort", "nope", "sort_order: there is no column"),
        ("sort", "id, ", "a term is empty"),
        ("sort", "zorder(id, kind), item", "a Z-order stands alone"),
        ("sort", "zorder(id, nope)", "Z-order by nope: the table has no such column"),
        ("sort", "zorder(id, ID)", "a column stands twice"),
        ("sort", "bucket(id)", "bucket takes a number and a column"),
    ],
)
def test_wrong_orders_are_named(
    new_table: Callable[..., Table], strategy: str | None, sort_order: str | None, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        rewrite_data_files(new_table(2), strategy=strategy, sort_order=sort_order)

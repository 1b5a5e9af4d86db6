"""The server rewrites manifests and removes dangling deletes as jobs; stock readers see the same
rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table
from frazil.maintenance import remove_dangling_deletes, rewrite_manifests
from frazil.wire.errors import BadRequest
from tests.maintenance.conftest import equality_delete, everything, row, rows
from tests.support.server import RunningServer

VERSIONS = pytest.mark.parametrize("version", [2, 3])


@VERSIONS
def test_manifests_are_rewritten_as_a_job(
    client: Client, catalog: RunningServer, new_table: Callable[..., Table], version: int
) -> None:
    table = new_table(version)
    client.delete(table.identifier, "id = 7")
    equality_delete(client, table, 23)
    stock = RestCatalog("stock", uri=catalog.url)
    before = stock_entries(stock, table)
    planned = rewrite_manifests(table, dry_run=True)
    assert planned.values == {
        "rewritten_manifests_count": 8,
        "added_manifests_count": 2,
        "dry_run": True,
    }
    result = rewrite_manifests(table)
    assert (result.rewritten_manifests_count, result.added_manifests_count) == (8, 2)
    assert "rewritten_manifests_count=8" in repr(result)
    assert rows(client, table) == everything(7, 23)
    assert stock_entries(stock, table) == before
    head = client.load_table(table.identifier).snapshot("main")
    assert head.summary["operation"] == "replace"
    assert rewrite_manifests(table).added_manifests_count == 0
    with pytest.raises(BadRequest, match="day is not a field of partition spec 0, which has none"):
        rewrite_manifests(table, sort_by=["day"])


def stock_entries(stock: RestCatalog, table: Table) -> set[tuple[Any, ...]]:
    """Return what PyIceberg reads of the live entries."""
    loaded = stock.load_table(str(table.identifier))
    head = loaded.current_snapshot()
    assert head is not None
    return {
        (entry.data_file.file_path, entry.sequence_number, entry.snapshot_id)
        for manifest in head.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io)
    }


@VERSIONS
def test_dangling_deletes_are_removed_as_a_job(
    client: Client, new_table: Callable[..., Table], version: int
) -> None:
    table = new_table(version)
    equality_delete(client, table, 3)
    nothing = {"removed_delete_files_count": 0, "removed_bytes_count": 0, "dry_run": False}
    assert remove_dangling_deletes(table).values == nothing
    # The data file has the sequence number of the delete, so the delete does not apply to it.
    client.overwrite(table.identifier, [row(1, "new")])
    equality_delete(client, table, 1)
    client.overwrite(table.identifier, [row(1, "newer")])
    client.append(table.identifier, [row(2, "new")])
    remove_dangling_deletes(table)
    head = client.load_table(table.identifier).snapshot("main")
    assert head.summary["total-delete-files"] == "0"
    assert rows(client, table) == {1: "newer", 2: "new"}

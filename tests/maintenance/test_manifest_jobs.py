"""The server rewrites manifests and removes dangling deletes as jobs; stock readers see the same
rows."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from frazil import Client, Table
from tests.maintenance.conftest import equality_delete, everything, row, rows
from tests.support.patience import HANG_S
from tests.support.server import RunningServer

VERSIONS = pytest.mark.parametrize("version", [2, 3])


def run_job(catalog: RunningServer, table: Table, operation: str, **request: Any) -> dict[str, Any]:
    """Run a job to its end and return its result."""
    (namespace,), name = table.identifier.namespace, table.identifier.name
    path = f"{catalog.url}/frazil/v1/namespaces/{namespace}/tables/{name}/jobs"
    body = json.dumps({"operation": operation, **request}).encode()
    headers = {"Content-Type": "application/json"}
    job = _json(urllib.request.Request(path, body, headers))
    give_up_s = time.monotonic() + HANG_S
    while job["state"] in ("queued", "running"):
        assert time.monotonic() < give_up_s, job
        job = _json(urllib.request.Request(f"{path}/{job['job-id']}"))
    assert job["state"] == "succeeded", job
    result: dict[str, Any] = job["result"]
    return result


def _json(request: urllib.request.Request) -> dict[str, Any]:
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@VERSIONS
def test_manifests_are_rewritten_as_a_job(
    client: Client, catalog: RunningServer, new_table: Callable[..., Table], version: int
) -> None:
    table = new_table(version)
    client.delete(table.identifier, "id = 7")
    equality_delete(client, table, 23)
    stock = RestCatalog("stock", uri=catalog.url)
    before = stock_entries(stock, table)
    planned = run_job(catalog, table, "rewrite_manifests", **{"dry-run": True})
    assert planned == {
        "rewritten-manifests-count": 8,
        "added-manifests-count": 2,
        "dry-run": True,
    }
    result = run_job(catalog, table, "rewrite_manifests", options={"use_caching": "true"})
    assert (result["rewritten-manifests-count"], result["added-manifests-count"]) == (8, 2)
    assert rows(client, table) == everything(7, 23)
    assert stock_entries(stock, table) == before
    head = client.load_table(table.identifier).snapshot("main")
    assert head.summary["operation"] == "replace"
    assert run_job(catalog, table, "rewrite_manifests")["added-manifests-count"] == 0


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
    client: Client, catalog: RunningServer, new_table: Callable[..., Table], version: int
) -> None:
    table = new_table(version)
    equality_delete(client, table, 3)
    nothing = {"removed-delete-files-count": 0, "removed-bytes-count": 0, "dry-run": False}
    assert run_job(catalog, table, "remove_dangling_deletes") == nothing
    # The data file has the sequence number of the delete, so the delete does not apply to it.
    client.overwrite(table.identifier, [row(1, "new")])
    equality_delete(client, table, 1)
    client.overwrite(table.identifier, [row(1, "newer")])
    client.append(table.identifier, [row(2, "new")])
    run_job(catalog, table, "remove_dangling_deletes")
    head = client.load_table(table.identifier).snapshot("main")
    assert head.summary["total-delete-files"] == "0"
    assert rows(client, table) == {1: "newer", 2: "new"}

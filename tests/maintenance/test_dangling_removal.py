"""Rewrites remove the deletes that apply to nothing any more."""

from __future__ import annotations

from typing import Any

import pytest

from frazil import Client, Table
from frazil.maintenance import (
    convert_equality_deletes,
    rewrite_data_files,
    rewrite_manifests,
    rewrite_position_delete_files,
)
from tests.maintenance.test_equality_conversion import keys_of

KEPT = {"rewrite-all": "true", "remove-dangling-deletes": "false"}


@pytest.fixture
def table(client: Client, namespace: str) -> Table:
    """Return a table whose partition `a` has deletes, and whose partition `b` is older."""
    name = f"{namespace}.t"
    table = client.create_table(
        name,
        "id long, item string",
        partition_by=["item"],
        format_version=2,
        properties={"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"},
    )
    for item in ("b", "a"):
        client.append(name, [{"id": id, "item": item} for id in range(6)])
    client.delete(name, "item = 'a' and id = 1")
    keys = keys_of(table, [{"id": 2}], ["id"], partition=("a",))
    client.row_delta(name, (), [keys], command="delete", isolation="snapshot")
    return client.load_table(name)


def delete_files(client: Client, table: Table) -> int:
    head = client.load_table(table.identifier).snapshot("main")
    return int(head.summary["total-delete-files"])


def ids(client: Client, table: Table) -> list[tuple[str, int]]:
    found = client.scan(table.identifier).to_pylist()
    return sorted((row["item"], row["id"]) for row in found)


def test_after_data_files_were_rewritten(client: Client, table: Table) -> None:
    before = ids(client, table)
    assert delete_files(client, table) == 2
    result = rewrite_data_files(table, where="item = 'a'", options={"rewrite-all": "true"})
    assert result.removed_delete_files_count == 2
    assert delete_files(client, table) == 0
    assert ids(client, table) == before


@pytest.mark.parametrize("rewrite", [convert_equality_deletes, rewrite_position_delete_files])
def test_after_deletes_were_rewritten(client: Client, table: Table, rewrite: Any) -> None:
    before = ids(client, table)
    result = rewrite_data_files(table, where="item = 'a'", options=KEPT)
    # The position deletes are for the rewritten file alone.
    assert result.removed_delete_files_count == 1
    assert delete_files(client, table) == 1
    assert rewrite(table, dry_run=True).removed_dangling_delete_files_count == 0
    assert delete_files(client, table) == 1
    assert rewrite(table).removed_dangling_delete_files_count == 1
    assert delete_files(client, table) == 0
    assert ids(client, table) == before


def test_manifests_are_rewritten_from_python(client: Client, table: Table) -> None:
    before = ids(client, table)
    result = rewrite_manifests(table, sort_by=["item"])
    assert (result.rewritten_manifests_count, result.added_manifests_count) == (4, 2)
    assert ids(client, table) == before

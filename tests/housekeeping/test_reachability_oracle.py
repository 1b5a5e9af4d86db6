"""The oracle finds what is wrong with a table: each kind of damage is an error of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil import Client
from tests.client.conftest import catalog, client, namespace
from tests.housekeeping.writers import write_statistics
from tests.support.oracle_rows import rows_of
from tests.support.reachability_oracle import (
    Lost,
    Oracle,
    TableTree,
    check_history,
    check_snapshot,
    files_below,
)

__all__ = ["catalog", "client", "namespace"]


@pytest.fixture
def tree(client: Client, namespace: str) -> TableTree:
    """Read a table with two files, a deletion vector, a tag and statistics."""
    modes = {"write.delete.mode": "merge-on-read"}
    table = client.create_table(
        f"{namespace}.t", "id long, item string", format_version=3, properties=modes
    )
    client.append(table.identifier, [{"id": id, "item": "a"} for id in range(4)])
    client.create_tag(table.identifier, "start")
    client.append(table.identifier, [{"id": id, "item": "b"} for id in range(4, 6)])
    client.delete(table.identifier, "id = 1 or id = 3")
    head = client.load_table(table.identifier).refs["main"].snapshot_id
    path = f"{Oracle().table(table.metadata_location).location}/metadata/some.stats"
    document = {
        "snapshot-id": head,
        "statistics-path": f"file://{path}",
        "file-footer-size-in-bytes": write_statistics(path, head),
        "file-size-in-bytes": Path(path).stat().st_size,
        "blob-metadata": [],
    }
    client.declare_metadata(
        table.identifier, [{"action": "set-statistics", "statistics": document}]
    )
    return Oracle().table(client.load_table(table.identifier).metadata_location)


def head_of(tree: TableTree) -> Any:
    return tree.snapshots[tree.refs["main"]["snapshot-id"]]


def test_a_table_reaches_all_of_its_files(tree: TableTree) -> None:
    Oracle().check(tree)
    assert tree.reached == files_below(tree.location)
    rows = rows_of(head_of(tree), (1, 2))
    assert [(row.values, row.row_id, row.last_updated) for row in rows] == [
        ((0, "a"), 0, 1),
        ((2, "a"), 2, 1),
        ((4, "b"), 4, 2),
        ((5, "b"), 5, 2),
    ]
    assert len(rows_of(tree.snapshots[tree.refs["start"]["snapshot-id"]], (1,))) == 4


@pytest.mark.parametrize("ending", [".parquet", ".puffin", "-m0.avro", "snap-", ".stats", "00001-"])
def test_a_missing_file_is_found(tree: TableTree, ending: str) -> None:
    victim = min(path for path in files_below(tree.location) if ending in path)
    Path(victim).unlink()
    with pytest.raises(Lost, match=r"missing"):
        Oracle().check(Oracle().table(tree.metadata_location))


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (".parquet", "no Parquet file"),
        (".puffin", "Puffin file does not begin"),
        (".stats", "Puffin file does not begin"),
        ("-m0.avro", "cannot be read as Avro"),
        ("snap-", "cannot be read as Avro"),
    ],
)
def test_a_damaged_file_is_found(tree: TableTree, ending: str, message: str) -> None:
    victim = Path(min(path for path in files_below(tree.location) if ending in path))
    victim.write_bytes(bytes(victim.stat().st_size))
    with pytest.raises(Lost, match=message):
        Oracle().check(Oracle().table(tree.metadata_location))


def test_a_torn_vector_is_found(tree: TableTree) -> None:
    (vector,) = (file for file in head_of(tree).live if file.is_vector)
    content = bytearray(Path(vector.path).read_bytes())
    content[vector.offset + vector.length - 6] ^= 1
    Path(vector.path).write_bytes(content)
    with pytest.raises(Lost, match="checksum"):
        Oracle().open(vector)


def edited(tree: TableTree, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(json.dumps(tree.metadata))
    change(metadata)
    return metadata


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["snapshots"][1].update({"sequence-number": 1}), "of several snapshots"),
        (
            lambda m: m["snapshots"][1].update({"sequence-number": 9}),
            "a snapshot is newer than",
        ),
        (
            lambda m: m["snapshots"][0].update(
                {"parent-snapshot-id": m["snapshots"][2]["snapshot-id"]}
            ),
            "not newer than its parent",
        ),
        (lambda m: m["snapshots"].pop(0), "snapshots that are gone"),
    ],
)
def test_a_history_that_contradicts_itself_is_found(
    tree: TableTree, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    check_history(tree.metadata)
    with pytest.raises(Lost, match=message):
        check_history(edited(tree, change))


def test_a_file_that_is_live_twice_is_found(tree: TableTree) -> None:
    head = head_of(tree)
    doubled = type(head)(head.snapshot, head.manifest_list, head.manifests, head.live * 2)
    with pytest.raises(Lost, match="live twice"):
        check_snapshot(tree.metadata, doubled)

"""Invariants of a table after any operation, checked on its files only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import Table

from tests.commit.finegrained.trees import Tree, check_tree, local


def audit(table: Table) -> dict[str, Any]:
    """Check the tree of every snapshot and that there are no stray files. Return the metadata."""
    metadata: dict[str, Any] = json.loads(local(table.metadata_location).read_text())
    trees = [check_tree(metadata, found["snapshot-id"]) for found in metadata.get("snapshots", ())]
    known = {local(path) for tree in trees for path in _files(tree)}
    found = set(_written(local(metadata["location"])))
    assert found - known == set(), "files that are in no snapshot"
    assert known - found == set(), "files of a snapshot that are not there"
    for tree in trees:
        _check_live_files(tree)
    return metadata


def data_files(table: Table) -> set[Path]:
    """Return every Parquet file below the table's location."""
    return {path for path in _written(local(table.location())) if path.suffix == ".parquet"}


def _written(location: Path) -> Iterator[Path]:
    for path in location.rglob("*"):
        if path.is_file() and not path.name.endswith(".metadata.json"):
            yield path


def _files(tree: Tree) -> Iterator[str]:
    yield tree.snapshot["manifest-list"]
    for manifest in tree.manifests:
        yield manifest["manifest_path"]
    for entry in tree.entries:
        yield entry.file_path


_checked: set[str] = set()


def _check_live_files(tree: Tree) -> None:
    """Check that the declared values of each file match its footer."""
    for entry in tree.live.values():
        if entry.file_path in _checked:
            continue
        path = local(entry.file_path)
        assert entry.file_size_in_bytes == path.stat().st_size
        footer = pq.read_metadata(path)
        assert entry.record_count == footer.num_rows
        offsets = [footer.row_group(number).column(0) for number in range(footer.num_row_groups)]
        starts = [
            column.data_page_offset
            if column.dictionary_page_offset is None
            else min(column.dictionary_page_offset, column.data_page_offset)
            for column in offsets
        ]
        assert entry.data_file["split_offsets"] == starts
        _checked.add(entry.file_path)


def operations(metadata: Mapping[str, Any]) -> list[str]:
    """Return the operation of each snapshot in the order of creation."""
    return [found["summary"]["operation"] for found in metadata.get("snapshots", ())]

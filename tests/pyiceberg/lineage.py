"""Row lineage of version 3, read from manifests and Parquet columns only.

The rules are those of the specification's "Row Lineage": missing values are inherited from the
file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import Table

from tests.commit.finegrained.trees import Entry, local, read_tree

ROW_ID = ("_row_id", "2147483540")
LAST_UPDATED = ("_last_updated_sequence_number", "2147483539")


@dataclass(frozen=True)
class Lineage:
    row_id: int
    last_updated: int


def metadata_of(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(local(table.metadata_location).read_text())
    return found


def lineage(table: Table, ref: str = "main") -> dict[int, Lineage]:
    """Return the lineage of each row by its `id`; row ids must be unique, and so must `id`."""
    metadata = metadata_of(table)
    tree = read_tree(metadata, metadata["refs"][ref]["snapshot-id"])
    found: dict[int, Lineage] = {}
    for entry in tree.live.values():
        for number, of_row in _rows(entry):
            assert number not in found
            found[number] = of_row
    row_ids = [of_row.row_id for of_row in found.values()]
    assert len(row_ids) == len(set(row_ids)), "two rows share a row id"
    assert max(row_ids, default=-1) < metadata["next-row-id"]
    return found


def _rows(entry: Entry) -> list[tuple[int, Lineage]]:
    file = pq.read_table(local(entry.file_path))
    given = {column: _column(file, *column) for column in (ROW_ID, LAST_UPDATED)}
    assert entry.first_row_id is not None
    assert entry.sequence_number is not None
    rows = []
    for place, number in enumerate(file["id"].to_pylist()):
        row_id, last_updated = given[ROW_ID][place], given[LAST_UPDATED][place]
        if row_id is None:
            row_id = entry.first_row_id + place
        if last_updated is None:
            last_updated = entry.sequence_number
        rows.append((number, Lineage(row_id, last_updated)))
    return rows


def _column(file: Any, name: str, field_id: str) -> list[int | None]:
    """Return a reserved column, which is identified by its field id."""
    for field in file.schema:
        if (field.metadata or {}).get(b"PARQUET:field_id") == field_id.encode():
            assert field.name == name
            values: list[int | None] = file[name].to_pylist()
            return values
    assert name not in file.column_names, "a reserved column without its field id"
    return [None] * len(file)

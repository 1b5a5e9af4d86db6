"""Reads the rows of a snapshot by the specification's rules for deletes and row lineage.

It stands on the reachability oracle and shares no code with Frazil. It is for small tables: a
snapshot is read as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from tests.support.reachability_oracle import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    SnapshotTree,
    local,
    vector_of,
)

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
POSITION_PATH, POSITION = 2147483546, 2147483545


class OracleRow(NamedTuple):
    """A row, with its values in the order of the field ids that were asked for."""

    values: tuple[Any, ...]
    row_id: int | None
    last_updated: int | None


def rows_of(tree: SnapshotTree, field_ids: Sequence[int]) -> list[OracleRow]:
    """Return the live rows of a snapshot, sorted."""
    found = [row for file in tree.data.values() for row in _live_rows(tree, file, field_ids)]
    return sorted(found, key=repr)


def _live_rows(tree: SnapshotTree, file: ContentFile, field_ids: Sequence[int]) -> list[OracleRow]:
    columns = _columns(file.path)
    gone = _deleted_positions(tree, file)
    keys = _equality_deletes(tree, file)
    wanted = [columns.get(field_id) for field_id in field_ids]
    ids, updated = columns.get(ROW_ID), columns.get(LAST_UPDATED)
    live = []
    for position in range(file.records):
        if position in gone or any(
            _values(columns, equality_ids, position) in values for equality_ids, values in keys
        ):
            continue
        row_id = None if ids is None else ids[position]
        if row_id is None and file.first_row_id is not None:
            row_id = file.first_row_id + position
        last_updated = None if updated is None else updated[position]
        if last_updated is None and file.first_row_id is not None:
            last_updated = file.file_sequence_number
        values = tuple(None if column is None else column[position] for column in wanted)
        live.append(OracleRow(values, row_id, last_updated))
    return live


def _deleted_positions(tree: SnapshotTree, file: ContentFile) -> set[int]:
    """Return the positions of a vector, or else of the position-delete files that apply."""
    gone: set[int] = set()
    for delete in tree.live:
        if delete.content != POSITION_DELETES or delete.sequence_number < file.sequence_number:
            continue
        if delete.is_vector and delete.referenced == file.path:
            content = Path(delete.path).read_bytes()
            return set(vector_of(content, delete.offset or 0, delete.length or 0))
        if not delete.is_vector and _same_partition(delete, file):
            columns = _columns(delete.path)
            named = zip(columns[POSITION_PATH], columns[POSITION], strict=True)
            gone.update(position for path, position in named if local(path) == file.path)
    return gone


def _equality_deletes(
    tree: SnapshotTree, file: ContentFile
) -> list[tuple[tuple[int, ...], set[tuple[Any, ...]]]]:
    found = []
    for delete in tree.live:
        if delete.content != EQUALITY_DELETES or delete.sequence_number <= file.sequence_number:
            continue
        # An equality delete without a partition applies to all partitions.
        if delete.partition and not _same_partition(delete, file):
            continue
        columns = _columns(delete.path)
        keys = {
            _values(columns, delete.equality_ids, position) for position in range(delete.records)
        }
        found.append((delete.equality_ids, keys))
    return found


def _same_partition(delete: ContentFile, file: ContentFile) -> bool:
    return (delete.spec_id, delete.partition) == (file.spec_id, file.partition)


def _values(
    columns: Mapping[int, Sequence[Any]], field_ids: Sequence[int], position: int
) -> tuple[Any, ...]:
    return tuple(columns[field_id][position] for field_id in field_ids)


@lru_cache(maxsize=4096)
def _columns(path: str) -> Mapping[int, Sequence[Any]]:
    """Return the top-level columns of a Parquet file by field id. Files of tables never change."""
    table = pq.ParquetFile(path).read()
    columns = {}
    for field in table.schema:
        field_id = (field.metadata or {}).get(b"PARQUET:field_id")
        if field_id is not None:
            columns[int(field_id)] = table[field.name].to_pylist()
    return columns

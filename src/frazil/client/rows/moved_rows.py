"""Follows rows to the files that a compaction has moved them to.

A statement has found rows at positions of files, and written new rows. Before its commit, a
compaction replaced the files. In format version 3 a row keeps its id when it moves, so the
statement can look its rows up in the new files, write vectors for these, and commit the new rows as
they are. If any row cannot be found unchanged, the statement has to run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from frazil.client.declare.client_table import Table
from frazil.client.rows.row_files import in_threads, planned_tasks, positions_of
from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, POSITION, ROW_ID
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import position_array
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.values.types import StructType
from frazil.wire.errors import FrazilError, ValidationError
from frazil.wire.expressions import Expression

MAX_SEARCHED_ROWS: Final = 50_000_000
"""Larger new files are not searched: running the statement again is not slower."""
_LINEAGE: Final = (POSITION, ROW_ID, LAST_UPDATED)
_MOVES: Final = frozenset({"required-data-files"})
"""The clauses that a compaction breaks if it has replaced a file whose rows are deleted."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Where rows of a statement are now."""

    rows: tuple[DeletedRows, ...]
    replaced: tuple[str, ...]
    """The files that they were in and that are not live any more."""


def find_rows(
    refused: ValidationError,
    table: Table,
    branch: str,
    base: int | None,
    filter: Expression,
    touched: Sequence[DeletedRows],
    storage: Storage,
) -> FoundRows | None:
    """Find the rows of a refused commit in the files of the branch as it is now.

    They were read at the base, and `filter` matches at least these. Returns None if the commit was
    refused for another reason than files that are gone, or if a row was changed, deleted or
    doubled since or has no id.
    """
    if base is None or not {conflict["clause"] for conflict in refused.conflicts} <= _MOVES:
        return None
    try:
        fresh = table.refreshed("refs")
        sequence_number = table.snapshot(base).sequence_number
        before = {task.file_path for task in planned_tasks(table, filter, base)}
        now = {task.file_path: task for task in planned_tasks(fresh, filter, fresh.head(branch))}
    except FrazilError:
        # The caller raises the refusal, and the statement runs again.
        return None
    gone = [rows for rows in touched if rows.file_path not in now]
    added = [task for path, task in now.items() if path not in before]
    searched = sum(task.data_file.record_count for task in (*added, *(rows.task for rows in gone)))
    if not gone or not added or searched > MAX_SEARCHED_ROWS:
        return None
    facts = PortableTable.of(table)
    wanted = _ids_of(gone, facts, storage)
    if wanted is None:
        return None
    found = _search(wanted, added, facts, storage, sequence_number)
    if found is None:
        return None
    stay = [rows for rows in touched if rows.file_path in now]
    return FoundRows((*stay, *found), tuple(rows.file_path for rows in gone))


def _ids_of(files: Sequence[DeletedRows], table: PortableTable, storage: Storage) -> Numbers | None:
    """Return the ids of the rows, sorted, or None if a row has none."""

    def ids(rows: DeletedRows) -> Numbers | None:
        positions, own, _ = _lineage(rows.task, table, storage)
        chosen = own[np.isin(positions, position_array(rows.positions))]
        return chosen if len(chosen) == len(rows.positions) and (chosen >= 0).all() else None

    parts = in_threads(ids, files)
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    distinct = np.unique(np.concatenate(known))
    return distinct if len(distinct) == sum(map(len, known)) else None


def _search(
    wanted: Numbers,
    tasks: Sequence[ScanTask],
    table: PortableTable,
    storage: Storage,
    sequence_number: int,
) -> list[DeletedRows] | None:
    """Return where the rows with these ids are, or None unless each is there once and unchanged."""

    def search(task: ScanTask) -> tuple[DeletedRows, Numbers, bool]:
        positions, ids, last_updated = _lineage(task, table, storage)
        chosen = np.isin(ids, wanted)
        # A row that was changed since the base has a later number. Null (-1) proves nothing.
        unchanged = bool(
            ((last_updated[chosen] >= 0) & (last_updated[chosen] <= sequence_number)).all()
        )
        return DeletedRows(task, positions_of([positions[chosen]])), ids[chosen], unchanged

    results = in_threads(search, tasks)
    found = np.sort(np.concatenate([ids for _, ids, _ in results]))
    if not np.array_equal(found, wanted) or not all(unchanged for *_, unchanged in results):
        return None
    return [rows for rows, _, _ in results if rows.positions]


def _lineage(
    task: ScanTask, table: PortableTable, storage: Storage
) -> tuple[Numbers, Numbers, Numbers]:
    """Return positions, ids and sequence numbers of the live rows of a file; -1 stands for null."""
    columns: list[list[Numbers]] = [[], [], []]
    for batch in read_task(task, table, storage, StructType(()), metadata_columns=_LINEAGE):
        for column, name in zip(columns, _LINEAGE, strict=True):
            values = batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False)
            column.append(values.astype(np.int64))
    positions, ids, last_updated = (
        np.concatenate(column) if column else np.empty(0, np.int64) for column in columns
    )
    return positions, ids, last_updated

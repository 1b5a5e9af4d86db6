"""Says where the rows of a rewritten group are, if deletes of the old rows are committed meanwhile.

The driver keeps no row. Tasks that have packed files tell which positions they have read, as
bitmaps. Sorted rows are looked up when they are needed, by the numbers that tasks have stored
beside the new files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
from pyspark.sql import SparkSession

from frazil.client.rows.row_files import in_threads
from frazil.client.rows.row_removal import Item
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import NO_POSITIONS, Positions, position_array
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.maintenance.row_places import FilledInOrder, MovedRows, ReadRows
from frazil.spark.executor.rewrite_tasks import (
    FindNumbers,
    FoundPositions,
    PackedShare,
    file_number,
    positions_set,
)
from frazil.spark.rows.changed_rows import run_work

_NUMBER_BYTES: Final = 8

Wanted: TypeAlias = Mapping[str, "Positions | None"]
"""Positions in old files by path; None for all rows that were read from the file."""


# --- packed files ---------------------------------------------------------------------------------


def packed_rows(shares: Sequence[PackedShare], files: Sequence[tuple[DataFile, ...]]) -> PackedRows:
    """Return the row map of tasks that have each filled their files in order."""
    parts: dict[str, list[MovedRows]] = {}
    for share, of_share in zip(shares, files, strict=True):
        read = ReadRows()
        moved = MovedRows(read, FilledInOrder(of_share))
        for path, positions in share.read:
            read.add(path, Positions.deserialize(positions))
            parts.setdefault(path, []).append(moved)
    return PackedRows(parts)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The row map of several tasks."""

    parts: Mapping[str, Sequence[MovedRows]]
    """By the path of an old file, the tasks that have read rows of it."""

    def moved(self, rows: Wanted) -> Mapping[str, Positions]:
        """Return the positions of rows in the new files."""
        found: dict[str, Positions] = {}
        for path, wanted in rows.items():
            for part in self.parts.get(path, ()):
                for new_path, positions in part.moved({path: wanted}).items():
                    found[new_path] = found.get(new_path, NO_POSITIONS) | positions
        return found


# --- sorted rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberedRows:
    """The row map of rows whose numbers are stored beside the new files."""

    spark: SparkSession
    storage: Storage
    old: Sequence[ScanTask]
    """The old files, as they were read."""
    files: Sequence[DataFile]

    def moved(self, rows: Wanted) -> Mapping[str, Positions]:
        """Return the positions of rows in the new files."""
        numbers = NO_POSITIONS
        for part in in_threads(lambda index: self._numbers(index, rows), range(len(self.old))):
            numbers |= part
        if not numbers:
            return {}
        items = [
            Item(file.file_path.encode(), file.record_count * _NUMBER_BYTES) for file in self.files
        ]
        search = FindNumbers(self.storage, numbers.serialize())
        answers = run_work(self.spark, search, items)
        found = (msgspec.msgpack.decode(answer, type=FoundPositions) for answer in answers)
        return {
            each.file_path: positions
            for each in found
            if (positions := Positions.deserialize(each.positions))
        }

    def _numbers(self, index: int, rows: Wanted) -> Positions:
        """Return the numbers of the wanted rows of an old file that it had when it was read."""
        task, first = self.old[index], file_number(index)
        if task.file_path not in rows:
            return NO_POSITIONS
        wanted = rows[task.file_path]
        if wanted is None:
            end = first + task.data_file.record_count
            return positions_set(np.arange(first, end, dtype=np.int64))
        late = wanted - deleted_positions(task, self.storage)
        return positions_set(position_array(late).astype(np.int64) + first)

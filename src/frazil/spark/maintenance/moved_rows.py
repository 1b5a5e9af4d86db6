"""Says where the rows of a rewritten group are, if deletes of the old rows are committed meanwhile.

The driver keeps no row. Tasks that have packed files tell which positions they have read, as
bitmaps. Rows that Spark has shuffled are looked up in the new files when they are needed: by their
row ids in format version 3, else by the numbers that tasks have stored beside the files.
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
from frazil.datafiles.arrow.metadata_columns import POSITION, ROW_ID
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import NO_POSITIONS, Positions, position_array
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.maintenance.row_places import FilledInOrder, MovedRows, ReadRows
from frazil.spark.executor.rewrite_tasks import (
    FindRows,
    FoundPositions,
    PackedShare,
    file_number,
    positions_set,
)
from frazil.spark.rows.changed_rows import run_work
from frazil.values.types import StructType
from frazil.wire.errors import FrazilError
from frazil.wire.scan_planning import PlannedDataFile

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


# --- shuffled rows --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShuffledRows:
    """The row map of rows that are looked up in the new files by a number."""

    spark: SparkSession
    facts: PortableTable
    storage: Storage
    old: Sequence[ScanTask]
    """The old files, as they were read."""
    files: Sequence[DataFile]
    by_row_id: bool
    """Whether rows are looked up by row id, and not by the number of their place."""

    def moved(self, rows: Wanted) -> Mapping[str, Positions]:
        """Return the positions of rows in the new files."""
        numbers = NO_POSITIONS
        for part in in_threads(lambda index: self._numbers(index, rows), range(len(self.old))):
            numbers |= part
        if not numbers:
            return {}
        found = self._found(numbers)
        if self.by_row_id and sum(map(len, found.values())) != len(numbers):
            raise FrazilError(
                f"{self.facts.name}: rows that were deleted meanwhile are not found by their row "
                "ids in the new files"
            )
        return found

    def _numbers(self, index: int, rows: Wanted) -> Positions:
        """Return the numbers of the wanted rows of an old file that it had when it was read."""
        task = self.old[index]
        if task.file_path not in rows:
            return NO_POSITIONS
        wanted = rows[task.file_path]
        if wanted is not None:
            wanted = wanted - deleted_positions(task, self.storage)
            if not wanted:
                return NO_POSITIONS
        if self.by_row_id:
            return self._row_ids(task, wanted)
        first = file_number(index)
        if wanted is None:
            end = first + task.data_file.record_count
            return positions_set(np.arange(first, end, dtype=np.int64))
        return positions_set(position_array(wanted).astype(np.int64) + first)

    def _row_ids(self, task: ScanTask, wanted: Positions | None) -> Positions:
        """Return the ids of live rows of an old file, of all if no positions are given."""
        ids = NO_POSITIONS
        places = None if wanted is None else position_array(wanted).astype(np.int64)
        for batch in read_task(
            task,
            self.facts,
            self.storage,
            StructType(()),
            metadata_columns=(POSITION, ROW_ID),
        ):
            own = batch.column(ROW_ID).to_numpy(zero_copy_only=False)
            if places is not None:
                positions = batch.column(POSITION).to_numpy(zero_copy_only=False)
                own = own[np.isin(positions, places)]
            ids |= positions_set(own)
        return ids

    def _found(self, numbers: Positions) -> Mapping[str, Positions]:
        search = FindRows(self.facts, self.storage, numbers.serialize(), self.by_row_id)
        items = [
            Item(_new_task(file).to_json(), file.record_count * _NUMBER_BYTES)
            for file in self.files
        ]
        answers = run_work(self.spark, search, items)
        found = (msgspec.msgpack.decode(answer, type=FoundPositions) for answer in answers)
        return {
            each.file_path: positions
            for each in found
            if (positions := Positions.deserialize(each.positions))
        }


def _new_task(file: DataFile) -> ScanTask:
    """Return a task for a new file. All its rows have their ids in a column."""
    return ScanTask(
        data_file=PlannedDataFile(
            file_path=file.file_path,
            file_format=file.file_format,
            spec_id=file.spec_id,
            partition=tuple(file.partition),
            file_size_in_bytes=file.file_size_in_bytes,
            record_count=file.record_count,
            first_row_id=0,
        )
    )

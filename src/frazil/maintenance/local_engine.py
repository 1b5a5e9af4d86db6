"""Rewrites groups of files in this process, with pyarrow.

Rows are streamed in batches, so memory does not grow with the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa

from frazil.client.rows.row_files import positions_of
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.data_file_writer import ROW_NUMBER, ArrowFileWriter
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import file_options
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.maintenance.row_places import FilledInOrder, MovedRows, PlacedRows, ReadRows
from frazil.wire.errors import BadRequest

NAME: Final = "local"


class LocalEngine:
    """Rewrites groups in the calling threads."""

    name = NAME

    def rewrite(self, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        """Write the live rows of a group into files below the folder."""
        return _Rewrite(work, folder, PortableTable.of(work.table)).run()


@dataclass(frozen=True, slots=True)
class _Rewrite:
    work: GroupWork
    folder: WriteFolder
    facts: PortableTable

    def run(self) -> WrittenRows:
        read = ReadRows()
        # Rows of one partition fill one file after the other.
        placed = None if self.work.group.is_one_partition else PlacedRows(self._max_rows)
        writer = self._writer(placed)
        partitioned = Partitioner(self.facts, self.work.output_spec_id)
        try:
            for batch in self._rows(read):
                writer.write(partitioned(batch))
            files = tuple(msgspec.json.decode(file, type=DataFile) for file in writer.close())
        except BaseException:
            writer.abort()
            raise
        places = FilledInOrder(files) if placed is None else placed
        return WrittenRows(files=files, row_map=MovedRows(read, places))

    def _writer(self, placed: PlacedRows | None) -> ArrowFileWriter:
        return ArrowFileWriter(
            self.facts,
            self.folder.storage,
            self.folder.location,
            uuid4().hex[:12],
            options=file_options(
                self.work.table.properties,
                target_file_size_bytes=self.work.target_file_size,
                spec_id=self.work.output_spec_id,
            ),
            lineage=self._has_lineage,
            placed=None if placed is None else placed.place,
        )

    @property
    def _has_lineage(self) -> bool:
        return self.facts.format_version >= MIN_FORMAT_VERSION

    @property
    def _max_rows(self) -> int:
        return sum(task.data_file.record_count for task in self.work.group.tasks)

    def _rows(self, read: ReadRows) -> Iterator[pa.RecordBatch]:
        """Yield the live rows with their numbers."""
        for task in self.work.group.tasks:
            yield from _numbered(task, self.facts, self.folder.storage, read)


def _numbered(
    task: ScanTask, facts: PortableTable, storage: Storage, read: ReadRows
) -> Iterator[pa.RecordBatch]:
    lineage = (ROW_ID, LAST_UPDATED) if facts.format_version >= MIN_FORMAT_VERSION else ()
    positions: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    next_number = read.count
    for batch in read_task(
        task, facts, storage, facts.schema, metadata_columns=(*lineage, POSITION)
    ):
        positions.append(batch.column(POSITION).to_numpy(zero_copy_only=False))
        numbers = pa.array(np.arange(next_number, next_number + batch.num_rows))
        next_number += batch.num_rows
        if next_number - read.count > task.data_file.record_count:
            raise BadRequest(
                f"{task.file_path}: has more rows than its record count, "
                f"{task.data_file.record_count}"
            )
        yield batch.drop_columns([POSITION]).append_column(ROW_NUMBER, numbers)
    read.add(task.file_path, positions_of(positions))

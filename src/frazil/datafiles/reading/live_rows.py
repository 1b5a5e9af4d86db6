"""The rows of a data file that stay, in the table's current columns. Runs on executors.

This is what copy-on-write spends its time on, so that nothing is done twice: row groups of which
nothing stays are not read, rows that go are dropped before anything is converted, and columns that
are as the table has them are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.datafiles.arrow.arrow import Projection, arrow_schema
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    LAST_UPDATED_FIELD,
    MIN_FORMAT_VERSION,
    ROW_ID,
    ROW_ID_FIELD,
    FileLineage,
)
from frazil.datafiles.reading.deletes_reader import equality_deletes
from frazil.datafiles.reading.file_storage import Storage, is_local
from frazil.datafiles.reading.row_positions import PositionArray, Positions
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.table_facts import TableFacts
from frazil.datafiles.reading.task_reader import name_mapping, partition_constants
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, UnsupportedOperation

_LINEAGE: Final = StructType((ROW_ID_FIELD, LAST_UPDATED_FIELD))

Mask = npt.NDArray[np.bool_]


def live_rows(
    task: ScanTask, facts: TableFacts, storage: Storage, gone: Positions
) -> Iterator[pa.RecordBatch]:
    """Batches of the columns of `copied_schema`: the rows that are neither at the given positions
    nor removed by equality deletes."""
    check_task(task, facts)
    with storage.open_input(task.file_path) as source:
        parquet = pq.ParquetFile(
            source,
            pre_buffer=not is_local(task.file_path),
            coerce_int96_timestamp_unit="us",
        )
        columns = _Columns(task, facts, storage, parquet.schema_arrow)
        positions, start = gone.to_array(), 0
        for number in range(parquet.metadata.num_row_groups):
            rows = parquet.metadata.row_group(number).num_rows
            live = _live(positions, start, rows)
            if live.any():
                table = parquet.read_row_group(number, list(columns.needed), use_threads=False)
                yield from columns.live_batches(table, start, live)
            start += rows


def _live(gone: PositionArray, start: int, rows: int) -> Mask:
    """Which of the rows from `start` on stay."""
    first, last = np.searchsorted(gone, np.array([start, start + rows], dtype=np.uint64))
    live = np.ones(rows, dtype=np.bool_)
    live[gone[first:last] - np.uint64(start)] = False
    return live


def copied_schema(task: ScanTask, facts: TableFacts) -> pa.Schema:
    return arrow_schema(facts.schema, lineage=has_lineage(task, facts))


def has_lineage(task: ScanTask, facts: TableFacts) -> bool:
    """Rows of a file from before version 3 have none until a snapshot of that version."""
    return facts.format_version >= MIN_FORMAT_VERSION and task.data_file.first_row_id is not None


def check_task(task: ScanTask, facts: TableFacts) -> None:
    file = task.data_file
    if file.file_format.lower() != "parquet":
        raise UnsupportedOperation(
            f"{file.file_path}: rows of a file in {file.file_format} cannot be copied: set the "
            "table's mode to merge-on-read"
        )
    if has_lineage(task, facts) and file.data_sequence_number is None:
        raise BadRequest(
            f"{file.file_path}: rows that are copied keep their {LAST_UPDATED}, for which the "
            "file's sequence number is needed: plan the scan with sequence_numbers=True"
        )


class _Columns:
    """What is worked out once a file."""

    def __init__(
        self, task: ScanTask, facts: TableFacts, storage: Storage, file_schema: pa.Schema
    ) -> None:
        mapping = name_mapping(facts)

        def projection(schema: StructType) -> Projection:
            constants = partition_constants(task, facts, schema)
            return Projection(file_schema, schema, arrow_schema(schema), mapping, constants)

        self._schema = copied_schema(task, facts)
        self._rows = projection(facts.schema)
        self._equality = equality_deletes(task, facts, storage)
        self._compared = [projection(one.schema) for one in self._equality]
        self._lineage = projection(_LINEAGE) if has_lineage(task, facts) else None
        file = task.data_file
        self._implied = FileLineage(file.first_row_id, file.data_sequence_number)
        parts = [self._rows, *self._compared, *([self._lineage] if self._lineage else [])]
        self.needed = tuple(dict.fromkeys(name for part in parts for name in part.columns))

    def live_batches(self, table: pa.Table, start: int, live: Mask) -> Iterator[pa.RecordBatch]:
        """Of a row group whose first row is at `start`."""
        at = 0
        for batch in _batches(table, len(live)):
            rows = self._live(batch, start + at, live[at : at + batch.num_rows])
            at += batch.num_rows
            if rows.num_rows:
                yield rows

    def _live(self, batch: pa.RecordBatch, start: int, live: Mask) -> pa.RecordBatch:
        for deletes, projection in zip(self._equality, self._compared, strict=True):
            live = live & ~deletes.deletes(projection.apply(batch))
        kept = batch if live.all() else batch.filter(pa.array(live))
        rows = self._rows.apply(kept)
        if self._lineage is None:
            return rows
        own = self._lineage.apply(kept)
        positions = np.flatnonzero(live).astype(np.int64) + start
        lineage = [
            self._implied.row_ids(positions, own.column(ROW_ID)),
            self._implied.sequence_numbers(len(positions), own.column(LAST_UPDATED)),
        ]
        return pa.RecordBatch.from_arrays([*rows.columns, *lineage], schema=self._schema)


def _batches(table: pa.Table, rows: int) -> list[pa.RecordBatch]:
    """One, where no column is so large that Arrow cuts it; also of a file that has none of the
    columns that are needed."""
    if table.num_columns == 0:
        return [pa.record_batch([pa.nulls(rows)], names=["_"])]
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return batches

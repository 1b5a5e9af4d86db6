"""Reads the live rows of a scan task: columns by field id, with all deletes applied.

The reader handles files of older schemas, deletes of every kind, and the metadata columns that a
file implies for its rows (`_file`, `_pos`, `_spec_id`, and the row lineage of version 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.datafiles.arrow.array_conversion import batch_of
from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.file_projection import Projection
from frazil.datafiles.arrow.metadata_columns import (
    FILE,
    LAST_UPDATED,
    LINEAGE,
    METADATA_FIELDS,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
    SPEC_ID,
    FileLineage,
)
from frazil.datafiles.arrow.spark_batches import to_spark
from frazil.datafiles.portable_table import PortableTable, table_name_mapping
from frazil.datafiles.reading.deletes_reader import deleted_positions, equality_deletes
from frazil.datafiles.reading.file_storage import Storage, is_local
from frazil.datafiles.reading.row_positions import PositionArray, Positions, position_array
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.values.single_value import from_json
from frazil.values.types import StructType, Type, TypeId, fields_by_id
from frazil.wire.errors import BadRequest, UnsupportedOperation

BATCH_ROWS: Final = 65_536
_MAX_BATCH_BYTES: Final = 32 << 20
_IDENTITY: Final = "identity"
_PARQUET: Final = "parquet"

Mask = npt.NDArray[np.bool_]


def read_task(
    task: ScanTask,
    table: PortableTable,
    storage: Storage,
    columns: StructType,
    *,
    metadata_columns: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Return the task's live rows in the types of the table's files, in batches.

    The batches have `columns`, then the metadata columns. The residual filter is not applied.
    """
    if task.data_file.file_format.lower() != _PARQUET:
        raise UnsupportedOperation(
            f"{task.file_path}: a file in {task.data_file.file_format} cannot be read without "
            "Iceberg's runtime on Spark's classpath"
        )
    check_metadata_columns(metadata_columns)
    deleted = position_array(deleted_positions(task, storage))
    with _open_parquet(task, storage) as parquet:
        rows = _TaskRows(task, table, storage, parquet.schema_arrow, columns, metadata_columns)
        for start, batch in _batches(parquet, task, rows.needed, batch_rows):
            live = rows.live(batch, start, _live_mask(deleted, start, batch.num_rows))
            if live.num_rows:
                yield live


@dataclass(frozen=True)
class ScanReading:
    """Reads scan tasks, given as JSON, in the types that Spark expects."""

    table: PortableTable
    storage: Storage
    columns: StructType
    metadata_columns: tuple[str, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the tasks of a frame whose first column they are; `mapInArrow` runs this."""
        return self.batches(task for batch in batches for task in batch.column(0).to_pylist())

    def batches(self, tasks: Iterable[bytes | str]) -> Iterator[pa.RecordBatch]:
        target = with_metadata(self.columns, self.metadata_columns)
        for text in tasks:
            task = ScanTask.from_json(text)
            for rows in read_task(
                task,
                self.table,
                self.storage,
                self.columns,
                metadata_columns=self.metadata_columns,
            ):
                yield to_spark(rows, target)


def with_metadata(columns: StructType, metadata_columns: Sequence[str]) -> StructType:
    """Return the columns of a scan's result."""
    return StructType((*columns.fields, *(METADATA_FIELDS[name] for name in metadata_columns)))


def check_metadata_columns(names: Sequence[str]) -> None:
    for name in names:
        if name not in METADATA_FIELDS:
            known = ", ".join(METADATA_FIELDS)
            raise BadRequest(f"metadata column {name}: there is none; there are {known}")


# --- copies of files ------------------------------------------------------------------------------


def live_rows(
    task: ScanTask, table: PortableTable, storage: Storage, deleted: Positions
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file for its copy, with the columns of `copied_schema`.

    Rows at the deleted positions and rows of equality deletes are left out. Copy-on-write spends
    most of its time here. So row groups without live rows are not read, deleted rows are dropped
    before anything is converted, and columns that need no conversion are not copied.
    """
    check_copied_task(task, table)
    with _open_parquet(task, storage) as parquet:
        metadata_columns = (ROW_ID, LAST_UPDATED) if _has_lineage(task, table) else ()
        rows = _TaskRows(task, table, storage, parquet.schema_arrow, table.schema, metadata_columns)
        positions, start = position_array(deleted), 0
        for number in range(parquet.metadata.num_row_groups):
            row_count = parquet.metadata.row_group(number).num_rows
            live = _live_mask(positions, start, row_count)
            if live.any():
                group = parquet.read_row_group(number, list(rows.needed), use_threads=False)
                yield from _live_batches(rows, group, start, live)
            start += row_count


def _live_batches(
    rows: _TaskRows, group: pa.Table, start: int, live: Mask
) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in _combined_batches(group, len(live)):
        kept = rows.live(batch, start + first, live[first : first + batch.num_rows])
        first += batch.num_rows
        if kept.num_rows:
            yield kept


def _combined_batches(group: pa.Table, rows: int) -> list[pa.RecordBatch]:
    """Return one batch, or several if a column is so large that Arrow cuts it."""
    if group.num_columns == 0:
        return [_placeholder(rows)]
    batches: list[pa.RecordBatch] = group.combine_chunks().to_batches()
    return batches


def copied_schema(task: ScanTask, table: PortableTable) -> pa.Schema:
    return arrow_schema(table.schema, lineage=_has_lineage(task, table))


def check_copied_task(task: ScanTask, table: PortableTable) -> None:
    """Refuse a task whose file cannot be copied."""
    file = task.data_file
    if file.file_format.lower() != _PARQUET:
        raise UnsupportedOperation(
            f"{file.file_path}: rows of a file in {file.file_format} cannot be copied: set the "
            "table's mode to merge-on-read"
        )
    if _has_lineage(task, table) and file.data_sequence_number is None:
        raise BadRequest(
            f"{file.file_path}: copied rows keep their {LAST_UPDATED}, for which the file's "
            "sequence number is needed: plan the scan with sequence_numbers=True"
        )


def _has_lineage(task: ScanTask, table: PortableTable) -> bool:
    """Files from before version 3 get row ids only with the first snapshot of that version."""
    return table.format_version >= MIN_FORMAT_VERSION and task.data_file.first_row_id is not None


# --- batches of a file ----------------------------------------------------------------------------


@contextmanager
def _open_parquet(task: ScanTask, storage: Storage) -> Iterator[pq.ParquetFile]:
    with storage.open_input(task.file_path) as source:
        yield pq.ParquetFile(
            source, pre_buffer=not is_local(task.file_path), coerce_int96_timestamp_unit="us"
        )


def _batches(
    parquet: pq.ParquetFile, task: ScanTask, needed: Sequence[str], batch_rows: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return batches with the position of their first row in the file."""
    groups, position = _row_groups(parquet, task)
    if not groups:
        return
    if not needed:
        # Nothing is read if rows are only counted, or if the file implies all columns.
        end = position + sum(parquet.metadata.row_group(group).num_rows for group in groups)
        for start in range(position, end, batch_rows):
            yield start, _placeholder(min(batch_rows, end - start))
        return
    for group in groups:
        # Group by group, because columns that are read ahead stay in memory until the end.
        rows = min(batch_rows, _rows_of_a_batch(parquet.metadata.row_group(group)))
        for batch in parquet.iter_batches(
            rows, row_groups=[group], columns=list(needed), use_threads=False
        ):
            yield position, batch
            position += batch.num_rows


def _rows_of_a_batch(group: pq.RowGroupMetaData) -> int:
    """Return how many rows to read at once, so that batches of large rows have few of them."""
    return max(1, int(_MAX_BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))


def _row_groups(parquet: pq.ParquetFile, task: ScanTask) -> tuple[list[int], int]:
    """Return the row groups that begin in the task's part of the file, and the rows before them."""
    end = math.inf if task.length is None else task.start + task.length
    chosen, rows_before = [], 0
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        if task.start <= _first_byte(group) < end:
            chosen.append(number)
        elif not chosen:
            rows_before += group.num_rows
    return chosen, rows_before


def _first_byte(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    return int(min(offset for offset in offsets if offset is not None))


def _placeholder(rows: int) -> pa.RecordBatch:
    """Return a batch that only has a number of rows, in a column that no table asks for."""
    return pa.record_batch([pa.nulls(rows)], names=["_"])


def _live_mask(deleted: PositionArray, start: int, rows: int) -> Mask:
    """Return which of the rows from `start` on are not at the deleted positions."""
    first, last = np.searchsorted(deleted, np.array([start, start + rows], dtype=np.uint64))
    live = np.ones(rows, dtype=np.bool_)
    live[deleted[first:last] - np.uint64(start)] = False
    return live


# --- rows -----------------------------------------------------------------------------------------


class _TaskRows:
    """Knows which columns of a file are needed, and turns its batches into those of a result."""

    def __init__(
        self,
        task: ScanTask,
        table: PortableTable,
        storage: Storage,
        file_schema: pa.Schema,
        columns: StructType,
        metadata_columns: Sequence[str],
    ) -> None:
        mapping = table_name_mapping(table.properties)

        def projection(schema: StructType) -> Projection:
            constants = _partition_constants(task, table, schema)
            return Projection(file_schema, schema, arrow_schema(schema), mapping, constants)

        self._task = task
        self._schema = arrow_schema(with_metadata(columns, metadata_columns))
        self._metadata_columns = metadata_columns
        self._rows = projection(columns)
        self._equality = equality_deletes(task, table, storage)
        self._compared = [projection(deletes.schema) for deletes in self._equality]
        file = task.data_file
        self._implied = FileLineage(file.first_row_id, file.data_sequence_number)
        self._lineage: Projection | None = None
        if ROW_ID in metadata_columns or LAST_UPDATED in metadata_columns:
            self._lineage = projection(LINEAGE)
            self._check_sequence_number()
        parts = [self._rows, *self._compared, *([self._lineage] if self._lineage else [])]
        self.needed = tuple(dict.fromkeys(name for part in parts for name in part.columns))
        """The top-level columns of the file that must be read."""

    def _check_sequence_number(self) -> None:
        file = self._task.data_file
        is_asked = LAST_UPDATED in self._metadata_columns
        if is_asked and file.first_row_id is not None and file.data_sequence_number is None:
            raise BadRequest(
                f"{file.file_path}: {LAST_UPDATED} needs the file's sequence number: plan the scan "
                "with sequence_numbers=True"
            )

    def live(self, batch: pa.RecordBatch, start: int, live: Mask) -> pa.RecordBatch:
        """Return the live rows of a batch whose first row has the position `start`."""
        for deletes, projection in zip(self._equality, self._compared, strict=True):
            live = live & ~deletes.deletes(projection.apply(batch))
        kept = batch if live.all() else batch.filter(pa.array(live))
        positions = np.flatnonzero(live).astype(np.int64) + start
        columns = [*self._rows.apply(kept).columns, *self._metadata(kept, positions)]
        return batch_of(columns, self._schema, len(positions))

    def _metadata(
        self, kept: pa.RecordBatch, positions: npt.NDArray[np.int64]
    ) -> Iterator[pa.Array]:
        rows, file = len(positions), self._task.data_file
        stored = None if self._lineage is None else self._lineage.apply(kept)
        for name in self._metadata_columns:
            if name == FILE:
                yield pa.repeat(pa.scalar(file.file_path, pa.string()), rows)
            elif name == POSITION:
                yield pa.array(positions, pa.int64())
            elif name == SPEC_ID:
                yield pa.repeat(pa.scalar(file.spec_id, pa.int32()), rows)
            elif stored is not None and name == ROW_ID:
                yield self._implied.row_ids(positions, stored.column(ROW_ID))
            elif stored is not None:
                yield self._implied.sequence_numbers(rows, stored.column(LAST_UPDATED))


# --- columns that are not in files ----------------------------------------------------------------


def _partition_constants(
    task: ScanTask, table: PortableTable, schema: StructType
) -> Mapping[int, Any]:
    """Return the values of columns that a file may omit, because its partition has their value.

    Spec, "Column Projection".
    """
    constants: dict[int, Any] = {}
    types = {field_id: found.field.type for field_id, found in fields_by_id(schema).items()}
    fields = table.spec(task.data_file.spec_id)["fields"]
    for field, value in zip(fields, task.data_file.partition, strict=False):
        source_id = field.get("source-id")
        if field["transform"] == _IDENTITY and source_id in types and value is not None:
            constants[source_id] = _partition_value(types[source_id], value)
    return constants


def _partition_value(type_: Type, value: Any) -> Any:
    """Parse a value; infinities and NaN are sent as text, because JSON has no numbers for them."""
    if type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and isinstance(value, str):
        return float(value)
    return from_json(type_, value)

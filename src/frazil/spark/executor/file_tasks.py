"""Tasks that write rows into files, or read rows from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.datafiles.arrow.array_conversion import constant
from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import positions_by_file
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import position_array
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.write_properties import FileOptions
from frazil.spark.executor.worker_tasks import ArrowTask, arrow_task, keep_archives, task_name
from frazil.values.types import StructType, TypeId
from frazil.wire.scan_planning import PlannedDeleteFile

PARQUET_SUFFIX: Final = ".parquet"
STAGING_CODEC: Final = "snappy"
"""Staged files are read once or twice and then removed: a better codec does not pay."""
_ROW_GROUP_BYTES: Final = 32 << 20
DELETE_FILE: Final = "file"
"""The column of an item that has the delete file as JSON; the others are the same for its rows."""


# --- files of a table -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FileWriting:
    """Writes the rows of a task into files of a table, and returns them as JSON."""

    facts: PortableTable
    storage: Storage
    options: FileOptions
    lineage: bool = False

    def write(self, batches: Iterable[pa.RecordBatch], folder: str) -> list[bytes]:
        """Write rows that have their `_partition_*` columns; leave no file if that fails."""
        writer = ArrowFileWriter(
            self.facts,
            self.storage,
            folder,
            task_name(),
            options=self.options,
            lineage=self.lineage,
        )
        try:
            for batch in batches:
                writer.write(batch)
            return writer.close()
        except BaseException:
            writer.abort()
            raise


def write_task(
    facts: PortableTable, storage: Storage, folder: str, options: FileOptions, lineage: bool
) -> ArrowTask:
    """Return a task that writes its rows; only the files that it returns are ever committed."""
    return arrow_task(partial(FileWriting(facts, storage, options, lineage).write, folder=folder))


@dataclass(frozen=True)
class Conform:
    """Turns batches of a frame into batches with the table's columns."""

    schema: StructType
    positions: tuple[int | None, ...]
    """The position of each of the table's columns in the frame; None if the frame lacks it."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, names = [], []
        for field, position in zip(self.schema.fields, self.positions, strict=True):
            if field.type.type_id is TypeId.UNKNOWN:
                continue
            names.append(field.name)
            if position is None:
                type_ = arrow_schema(StructType((field,))).field(0).type
                columns.append(constant(field.write_default, type_)(batch.num_rows))
            else:
                columns.append(batch.column(position))
        return pa.RecordBatch.from_arrays(columns, names=names)


@dataclass(frozen=True)
class DeleteRows:
    """Reads files of position deletes, for the table `position_deletes`.

    Each item is a stream of Arrow with one row for a file.
    """

    schema: pa.Schema
    storage: Storage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archives()
        for batch in batches:
            for item in batch.column(0).to_pylist():
                yield from self._rows(pa.ipc.open_stream(item).read_next_batch())

    def _rows(self, item: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        file = msgspec.json.decode(item.column(DELETE_FILE)[0].as_py(), type=PlannedDeleteFile)
        for path, positions in positions_by_file(file, self.storage).items():
            array = position_array(positions)
            rows = len(array)
            own = {
                "file_path": pa.repeat(pa.scalar(path), rows),
                "pos": pa.array(array, pa.int64()),
                "row": pa.nulls(rows, self.schema.field("row").type),
            }
            first = pa.array(np.zeros(rows, np.int64))
            columns = [
                own[name] if name in own else item.column(name).take(first)
                for name in self.schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


# --- staged frames --------------------------------------------------------------------------------


def staging_task(storage: Storage, folder: str) -> ArrowTask:
    """Return a task that writes its rows to one Parquet file and returns the path.

    Each attempt of a task has its own file; only files that are returned are ever read.
    """
    return arrow_task(partial(_staged, storage, folder))


def _staged(storage: Storage, folder: str, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    path = f"{folder}/{task_name()}{PARQUET_SUFFIX}"
    groups = _row_groups(batches)
    first = next(groups, None)
    if first is None:
        return []
    with (
        storage.open_output(path) as sink,
        pq.ParquetWriter(sink, first.schema, compression=STAGING_CODEC) as writer,
    ):
        for rows in chain([first], groups):
            writer.write_table(rows)
    return [path.encode()]


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pending.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def staged_rows_task(storage: Storage, names: Sequence[str]) -> ArrowTask:
    """Return a task that reads the Parquet files whose paths are its rows."""
    return partial(_staged_rows, storage, names)


def _staged_rows(
    storage: Storage, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path in batch.column(0).to_pylist():
            with storage.open_input(path) as source, pq.ParquetFile(source) as file:
                yield from file.iter_batches(columns=list(names))

"""Writes the rows of a task into Parquet files, and copies files without their deleted rows.

Rows get one or more files for each partition. A copy has the partition of its file. What a commit
declares about a file comes from the footer that the writer still has, so that no file is opened
again. NaNs, which no footer counts, are counted while rows are written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec
import pyarrow as pa

from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.spark_batches import to_table
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.footers.footer_reader import ParquetReader
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.datafiles.reading.task_reader import copied_schema, live_rows
from frazil.datafiles.writing.rolling_file import RollingFile, WrittenFile
from frazil.datafiles.writing.row_partitions import (
    PARTITION_PREFIX,
    partition_folder,
    partition_value,
    split,
)
from frazil.datafiles.writing.write_properties import FileOptions

_NO_SIZE_LIMIT: Final = 1 << 62
"""A copy is never larger than its file, so it is not split."""
ROW_NUMBER: Final = "_frazil_row_number"
"""The column with the numbers of rows whose places are wanted."""

Placed: TypeAlias = Callable[[str, pa.Array, int], None]
"""Is called with a file's path, the numbers of rows, and the position of the first in the file."""


class ArrowFileWriter:
    """Writes the files of one task, named `<folder>/<partition>/<task>-<number>.parquet`."""

    def __init__(
        self,
        table: PortableTable,
        storage: Storage,
        folder: str,
        task: str,
        *,
        options: FileOptions,
        lineage: bool = False,
        placed: Placed | None = None,
    ) -> None:
        """With `placed`, rows have numbers in the column `ROW_NUMBER`."""
        self._storage = storage
        self._folder = folder
        self._task = task
        self._options = options
        self._schema = arrow_schema(table.schema, lineage=lineage)
        self._placed = placed
        self._fields = partition_fields_of(table, options.spec_id)
        self._reader = ParquetReader(table, options.spec_id)
        self._open: OrderedDict[tuple[Any, ...], _PartitionFile] = OrderedDict()
        self._dictionary_pays: dict[str, bool] = {}
        """Which columns are worth a dictionary; shared by the files of this writer."""
        self._pending_bytes = 0
        self._next_number = 0
        self._files: list[DataFile] = []
        self._paths: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows with the table's columns in Spark's types and the `_partition_*` columns."""
        rows = to_table(batch, self._schema)
        if self._placed is not None:
            rows = rows.append_column(ROW_NUMBER, batch.column(ROW_NUMBER))
        keys = [
            batch.column(f"{PARTITION_PREFIX}{position}") for position in range(len(self._fields))
        ]
        if not keys:
            self._add((), rows)
            return
        for scalars, part in split(rows, keys):
            values = tuple(map(partition_value, self._fields, scalars))
            self._add(values, part)

    def close(self) -> list[bytes]:
        """Close the open files, and return the declarations of all files as JSON."""
        while self._open:
            self._close_file(next(iter(self._open)))
        return [msgspec.json.encode(file) for file in self._files]

    def abort(self) -> None:
        """Delete everything that this writer has written."""
        for file in self._open.values():
            file.rolling.abort()
        self._open.clear()
        self._storage.delete(self._paths)
        self._files.clear()

    # --- partitions ----------------------------------------------------------------------------

    def _add(self, values: tuple[Any, ...], rows: pa.RecordBatch) -> None:
        file = self._file(values)
        before = file.rolling.pending_bytes
        numbers: pa.Array | None = None
        if self._placed is not None:
            numbers, rows = rows.column(ROW_NUMBER), rows.drop_columns([ROW_NUMBER])
        while rows.num_rows:
            rest = file.rolling.write(rows)
            taken = rows.num_rows - rest.num_rows
            if self._placed is not None and numbers is not None:
                self._placed(file.rolling.path, numbers.slice(0, taken), file.row_count)
                numbers = numbers.slice(taken)
            file.row_count += taken
            rows = rest
            if file.rolling.is_full:
                self._roll(file)
        self._pending_bytes += file.rolling.pending_bytes - before
        # Rows usually come sorted by partition, so that only the last file gets more rows.
        while self._pending_bytes > self._options.row_group_size_bytes and len(self._open) > 1:
            self._close_file(next(iter(self._open)))

    def _file(self, values: tuple[Any, ...]) -> _PartitionFile:
        key = _key(values)
        file = self._open.get(key)
        if file is None:
            file = self._open[key] = _PartitionFile(values, self._new_file(values))
        else:
            self._open.move_to_end(key)
        return file

    def _new_file(self, values: tuple[Any, ...]) -> RollingFile:
        inner = partition_folder(self._fields, values)
        folder = f"{self._folder}/{inner}" if inner else self._folder
        path = f"{folder}/{self._task}-{self._next_number:05d}.parquet"
        self._next_number += 1
        return RollingFile(self._storage, path, self._schema, self._options, self._dictionary_pays)

    def _roll(self, file: _PartitionFile) -> None:
        self._declare(file)
        file.rolling, file.row_count = self._new_file(file.values), 0

    def _close_file(self, key: tuple[Any, ...]) -> None:
        file = self._open.pop(key)
        self._pending_bytes -= file.rolling.pending_bytes
        self._declare(file)

    def _declare(self, file: _PartitionFile) -> None:
        written = file.rolling.close()
        if written is None:
            return
        self._paths.append(written.path)
        self._files.append(_declared_file(self._reader, written, file.values, self._options))


@dataclass(slots=True)
class _PartitionFile:
    """The open file of a partition."""

    values: tuple[Any, ...]
    rolling: RollingFile
    row_count: int = 0


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key that differs for partitions whose values are equal in Python.

    These are 0 and False, or -0.0 and 0.0.
    """
    return tuple((type(value).__name__, repr(value)) for value in values)


# --- copies -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyWork:
    """Copies the files of encoded `DeletedRows`, for copy-on-write."""

    table: PortableTable
    storage: Storage
    folder: str
    options: FileOptions

    def __call__(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        for payload in payloads:
            copied = self.copy(DeletedRows.decode(payload))
            if copied is not None:
                yield msgspec.json.encode(copied)

    def copy(self, rows: DeletedRows) -> DataFile | None:
        """Copy one file; return None if no row is left."""
        task = rows.task
        deleted = rows.positions | deleted_positions(task, self.storage)
        if len(deleted) >= task.data_file.record_count:
            return None
        options = replace(
            self.options,
            target_file_size_bytes=_NO_SIZE_LIMIT,
            spec_id=task.data_file.spec_id,
            sort_order_id=task.data_file.sort_order_id,
        )
        path = f"{self.folder}/{uuid4()}.parquet"
        file = RollingFile(self.storage, path, copied_schema(task, self.table), options)
        try:
            for batch in live_rows(task, self.table, self.storage, deleted):
                while batch.num_rows:
                    batch = file.write(batch)
            written = file.close()
        except BaseException:
            file.abort()
            raise
        if written is None:
            return None
        reader = ParquetReader(self.table, options.spec_id)
        return _declared_file(reader, written, self._partition(task), options)

    def _partition(self, task: ScanTask) -> tuple[object, ...]:
        """Return the file's partition; dropped columns have no value but null."""
        fields = partition_fields_of(self.table, task.data_file.spec_id)
        return tuple(
            None if field.source is None else value
            for field, value in zip(fields, task.data_file.partition, strict=True)
        )


# --- declarations -------------------------------------------------------------------------------


def _declared_file(
    reader: ParquetReader, written: WrittenFile, values: Sequence[Any], options: FileOptions
) -> DataFile:
    """Return what a commit declares about a file, from the footer that its writer has."""
    return DataFile(
        **reader.written_file(
            written.path,
            written.size_in_bytes,
            written.metadata,
            lambda column: written.nan_counts.get(column.field_id),
            values,
            options.sort_order_id,
        )
    )

"""Tasks that rewrite data files of a table, and note where each row went.

A task that packs files reads them itself, through Arrow, and writes their rows in the same order.
So the positions that it has read say where each row is. A task that writes sorted rows gets them
from Spark with the number of their place in the old files. It stores these numbers beside each new
file, in the order of its rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, POSITION, ROW_ID
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import NO_POSITIONS, Positions, position_array
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.data_file_writer import ROW_NUMBER, ArrowFileWriter
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import FileOptions
from frazil.spark.executor.worker_tasks import ArrowTask, arrow_task, task_name
from frazil.values.types import StructType

Numbers: TypeAlias = npt.NDArray[np.int64]

NUMBERS_SUFFIX: Final = ".rows"
"""Ends the name of the file with the numbers of a data file's rows."""
_NUMBERS: Final = pa.schema([pa.field(ROW_NUMBER, pa.int64(), nullable=False)])
_POSITION_BITS: Final = 40


class PackedShare(Struct, frozen=True, array_like=True):
    """What a task has read and written."""

    read: list[tuple[str, bytes]]
    """The positions of the rows that were read from each file, in order."""
    files: list[bytes]
    """The new files as JSON, in the order in which they were filled."""


@dataclass(frozen=True)
class PackFiles:
    """Writes the live rows of shares, which are lists of scan tasks, into files of a table."""

    facts: PortableTable
    storage: Storage
    folder: str
    options: FileOptions
    lineage: bool

    def __call__(self, shares: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        for batch in shares:
            for share in batch.column(0).to_pylist():
                tasks = msgspec.msgpack.decode(share, type=list[bytes])
                yield msgspec.msgpack.encode(self._packed(tasks))

    def _packed(self, tasks: Sequence[bytes]) -> PackedShare:
        read: list[tuple[str, bytes]] = []
        writer = ArrowFileWriter(
            self.facts,
            self.storage,
            self.folder,
            task_name(),
            options=self.options,
            lineage=self.lineage,
        )
        partitioned = Partitioner(self.facts, self.options.spec_id)
        try:
            for task in map(ScanTask.from_json, tasks):
                positions = NO_POSITIONS
                for batch in self._rows(task):
                    column = batch.column(POSITION).to_numpy(zero_copy_only=False)
                    positions |= positions_set(column)
                    writer.write(partitioned(batch.drop_columns([POSITION])))
                read.append((task.file_path, positions.serialize()))
            return PackedShare(read, writer.close())
        except BaseException:
            writer.abort()
            raise

    def _rows(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        lineage = (ROW_ID, LAST_UPDATED) if self.lineage else ()
        return read_task(
            task,
            self.facts,
            self.storage,
            self.facts.schema,
            metadata_columns=(*lineage, POSITION),
        )


def pack_task(work: PackFiles) -> ArrowTask:
    """Return a task for a frame of encoded shares; its results are encoded `PackedShare`s."""
    return arrow_task(work)


# --- sorted rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberedWriting:
    """Writes rows of Spark that have their place in the old files in the column `ROW_NUMBER`."""

    facts: PortableTable
    storage: Storage
    options: FileOptions
    lineage: bool

    def write(self, batches: Iterable[pa.RecordBatch], folder: str) -> list[bytes]:
        """Write rows that have their `_partition_*` columns, and return the files as JSON."""
        with ExitStack() as stack:
            numbers = _NumberFiles(self.storage, stack)
            writer = ArrowFileWriter(
                self.facts,
                self.storage,
                folder,
                task_name(),
                options=self.options,
                lineage=self.lineage,
                placed=numbers.place,
            )
            try:
                for batch in batches:
                    writer.write(batch)
                return writer.close()
            except BaseException:
                writer.abort()
                raise


def numbered_write_task(work: NumberedWriting, folder: str) -> ArrowTask:
    """Return a task that writes its rows, and the numbers of the rows of each file beside it."""
    return arrow_task(partial(work.write, folder=folder))


class _NumberFiles:
    """The open files of numbers of one task."""

    def __init__(self, storage: Storage, stack: ExitStack) -> None:
        self._storage = storage
        self._stack = stack
        self._open: dict[str, pa.ipc.RecordBatchStreamWriter] = {}

    def place(self, path: str, numbers: pa.Array, _: int) -> None:
        """Add the numbers of rows that follow the file's rows so far."""
        writer = self._open.get(path)
        if writer is None:
            sink = self._stack.enter_context(self._storage.open_output(path + NUMBERS_SUFFIX))
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            writer = pa.ipc.new_stream(sink, _NUMBERS, options=options)
            self._open[path] = self._stack.enter_context(writer)
        writer.write_batch(pa.RecordBatch.from_arrays([numbers], schema=_NUMBERS))


# --- searches -------------------------------------------------------------------------------------


def file_number(index: int) -> int:
    """Return the number of the first row of an old file; its other rows follow."""
    return index << _POSITION_BITS


class FoundPositions(Struct, frozen=True, array_like=True):
    """The positions of wanted rows in one new file."""

    file_path: str
    positions: bytes


@dataclass(frozen=True)
class FindRows:
    """Finds rows in new files by numbers: their row ids, or those stored beside the files."""

    facts: PortableTable
    storage: Storage
    wanted: bytes
    """The numbers as encoded `Positions`."""
    by_row_id: bool

    def __call__(self, tasks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield an encoded `FoundPositions` for each scan task of a new file."""
        wanted = position_array(Positions.deserialize(self.wanted)).astype(np.int64)
        for task in map(ScanTask.from_json, tasks):
            found = NO_POSITIONS
            for start, numbers in self._numbers(task):
                indexes = np.minimum(np.searchsorted(wanted, numbers), len(wanted) - 1)
                found |= positions_set(np.flatnonzero(wanted[indexes] == numbers) + start)
            yield msgspec.msgpack.encode(FoundPositions(task.file_path, found.serialize()))

    def _numbers(self, task: ScanTask) -> Iterator[tuple[int, Numbers]]:
        """Yield the numbers of a new file's rows, with the position of the first one."""
        start = 0
        for column in self._row_ids(task) if self.by_row_id else self._stored(task):
            yield start, column.to_numpy(zero_copy_only=False)
            start += len(column)

    def _row_ids(self, task: ScanTask) -> Iterator[pa.Array]:
        columns = StructType(())
        for batch in read_task(task, self.facts, self.storage, columns, metadata_columns=(ROW_ID,)):
            yield batch.column(ROW_ID)

    def _stored(self, task: ScanTask) -> Iterator[pa.Array]:
        with (
            self.storage.open_input(task.file_path + NUMBERS_SUFFIX) as source,
            pa.ipc.open_stream(source) as stream,
        ):
            for batch in stream:
                yield batch.column(ROW_NUMBER)


def positions_set(numbers: Numbers) -> Positions:
    """Return a set of positions or other numbers."""
    # pyroaring reads an `array` four times as fast as a numpy array.
    return Positions(array("Q", numbers.astype(np.uint64).tobytes()))

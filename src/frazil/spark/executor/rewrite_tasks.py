"""Tasks that rewrite data files of a table, and note where each row went.

All of them read and write through Arrow, and rows never become rows of the JVM. A task that packs
files writes rows in the order in which it reads them, so the positions that it has read say where
each row is. Sorted rows have a number that says where they were. The task that writes them stores
these numbers beside each new file, in the order of its rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import NO_POSITIONS, Positions, position_array
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.data_file_writer import ROW_NUMBER, ArrowFileWriter
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import FileOptions
from frazil.spark.executor.worker_tasks import task_name
from frazil.values.types import StructType

NUMBERS_SUFFIX: Final = ".rows"
"""Ends the name of the file with the numbers of a data file's rows."""
_NUMBERS: Final = pa.schema([pa.field(ROW_NUMBER, pa.int64(), nullable=False)])
_POSITION_BITS: Final = 40

Numbers: TypeAlias = npt.NDArray[np.int64]


class ReadFile(Struct, frozen=True, array_like=True):
    """A file to read, or a part of it."""

    index: int
    """The number of the file in its group."""
    task: ScanTask


def file_number(index: int) -> int:
    """Return the number of the first row of an old file; its other rows follow."""
    return index << _POSITION_BITS


def decoded_shares(batches: Iterable[pa.RecordBatch]) -> Iterator[list[ReadFile]]:
    """Yield the shares in the first column of a task's rows."""
    for batch in batches:
        for share in batch.column(0).to_pylist():
            yield msgspec.msgpack.decode(share, type=list[ReadFile])


@dataclass(frozen=True)
class GroupFiles:
    """Reads the old files of a group, and writes the new ones."""

    facts: PortableTable
    storage: Storage
    folder: str
    options: FileOptions
    """They name the partition spec of the new files."""

    @property
    def has_lineage(self) -> bool:
        return self.facts.format_version >= MIN_FORMAT_VERSION

    def rows(self, task: ScanTask, columns: StructType | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the live rows with their positions; by default all columns and the lineage."""
        lineage = (ROW_ID, LAST_UPDATED) if self.has_lineage and columns is None else ()
        return read_task(
            task,
            self.facts,
            self.storage,
            self.facts.schema if columns is None else columns,
            metadata_columns=(*lineage, POSITION),
        )

    def numbered(
        self, files: Iterable[ReadFile], columns: StructType | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows with their numbers, and their partitions in `_partition_*`."""
        partitioned = Partitioner(self.facts, self.options.spec_id)
        for file in files:
            for batch in self.rows(file.task, columns):
                numbers = positions_in(batch) + file_number(file.index)
                numbered = batch.drop_columns([POSITION]).append_column(
                    ROW_NUMBER, pa.array(numbers)
                )
                yield partitioned(numbered)

    def write_numbered(self, rows: Iterable[pa.RecordBatch]) -> list[bytes]:
        """Write numbered rows, and the numbers of each file beside it; return the files as JSON."""
        with ExitStack() as stack:
            numbers = _NumberFiles(self.storage, stack)
            writer = ArrowFileWriter(
                self.facts,
                self.storage,
                self.folder,
                task_name(),
                options=self.options,
                lineage=self.has_lineage,
                placed=numbers.place,
            )
            try:
                for batch in rows:
                    writer.write(batch)
                return writer.close()
            except BaseException:
                writer.abort()
                raise


def positions_in(batch: pa.RecordBatch) -> Numbers:
    positions: Numbers = batch.column(POSITION).to_numpy(zero_copy_only=False)
    return positions


def positions_set(numbers: Numbers) -> Positions:
    """Return a set of positions or other numbers."""
    # pyroaring reads an `array` four times as fast as a numpy array.
    return Positions(array("Q", numbers.astype(np.uint64).tobytes()))


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


# --- packing --------------------------------------------------------------------------------------


class PackedShare(Struct, frozen=True, array_like=True):
    """What a task has read and written."""

    read: list[tuple[str, bytes]]
    """The positions of the rows that were read from each file, in order."""
    files: list[bytes]
    """The new files as JSON, in the order in which they were filled."""


@dataclass(frozen=True)
class PackFiles:
    """Writes the live rows of shares into files, in the order of the old files."""

    group: GroupFiles

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """Yield an encoded `PackedShare` for each share."""
        for share in decoded_shares(batches):
            yield msgspec.msgpack.encode(self._packed(share))

    def _packed(self, share: Sequence[ReadFile]) -> PackedShare:
        group = self.group
        read: list[tuple[str, bytes]] = []
        writer = ArrowFileWriter(
            group.facts,
            group.storage,
            group.folder,
            task_name(),
            options=group.options,
            lineage=group.has_lineage,
        )
        partitioned = Partitioner(group.facts, group.options.spec_id)
        try:
            for file in share:
                positions = NO_POSITIONS
                for batch in group.rows(file.task):
                    positions |= positions_set(positions_in(batch))
                    writer.write(partitioned(batch.drop_columns([POSITION])))
                read.append((file.task.file_path, positions.serialize()))
            return PackedShare(read, writer.close())
        except BaseException:
            writer.abort()
            raise


# --- searches -------------------------------------------------------------------------------------


class FoundPositions(Struct, frozen=True, array_like=True):
    """The positions of wanted rows in one new file."""

    file_path: str
    positions: bytes


@dataclass(frozen=True)
class FindNumbers:
    """Finds rows in new files by the numbers that are stored beside them."""

    storage: Storage
    wanted: bytes
    """The numbers as encoded `Positions`, at least one."""

    def __call__(self, paths: Iterable[bytes]) -> Iterator[bytes]:
        """Yield an encoded `FoundPositions` for each new file."""
        wanted = position_array(Positions.deserialize(self.wanted)).astype(np.int64)
        for path in map(bytes.decode, paths):
            found, start = NO_POSITIONS, 0
            for numbers in self._numbers(path):
                indexes = np.minimum(np.searchsorted(wanted, numbers), len(wanted) - 1)
                found |= positions_set(np.flatnonzero(wanted[indexes] == numbers) + start)
                start += len(numbers)
            yield msgspec.msgpack.encode(FoundPositions(path, found.serialize()))

    def _numbers(self, path: str) -> Iterator[Numbers]:
        with (
            self.storage.open_input(path + NUMBERS_SUFFIX) as source,
            pa.ipc.open_stream(source) as stream,
        ):
            for batch in stream:
                yield batch.column(ROW_NUMBER).to_numpy(zero_copy_only=False)

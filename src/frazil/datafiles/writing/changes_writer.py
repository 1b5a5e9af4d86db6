"""Writes the new rows of a task, and collects the positions of the rows that it deletes.

A task returns one small answer: the files that it has written, and for each data file the positions
of its deleted rows as a bitmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.metadata_columns import FILE, LAST_UPDATED, POSITION, ROW_ID
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import FilePositions, PositionCollector, Positions
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.write_properties import FileOptions

DELETE: Final = "__frazil_delete"
"""The column that says which rows are deleted from their file."""
WRITE: Final = "__frazil_write"
"""The column that says which rows are written to new files."""


class _EncodedPositions(msgspec.Struct, frozen=True, array_like=True):
    """`FilePositions` in a form that can be sent."""

    file_path: str
    positions: bytes
    duplicate: int | None


class TaskChanges(msgspec.Struct, frozen=True, array_like=True):
    """The answer of one task."""

    files: list[bytes]
    """The written files in JSON."""
    deleted: list[_EncodedPositions]
    matched: list[_EncodedPositions]
    """The rows that were matched and not changed."""


@dataclass(frozen=True, slots=True)
class ChangesTask:
    """Writes and deletes the rows of one task."""

    table: PortableTable
    storage: Storage
    folder: str
    options: FileOptions
    lineage: bool
    """Whether written rows have the columns of row lineage."""
    task_name: Callable[[], str]
    """Returns the name of the running attempt, so that two attempts never share a file name."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        changes = _Changes(self)
        try:
            for batch in batches:
                changes.add(batch)
            answer = msgspec.msgpack.encode(changes.close())
        except BaseException:
            changes.abort()
            raise
        yield answer

    def new_writer(self) -> ArrowFileWriter:
        return ArrowFileWriter(
            self.table,
            self.storage,
            self.folder,
            self.task_name(),
            options=self.options,
            lineage=self.lineage,
        )


class _Changes:
    def __init__(self, task: ChangesTask) -> None:
        self._task = task
        self._writer: ArrowFileWriter | None = None
        self._deleted = PositionCollector()
        self._matched = PositionCollector()

    def add(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        collect_positions(batch, self._deleted, self._matched)
        if WRITE not in names:
            return
        rows = _filtered(batch, batch.column(names.index(WRITE)))
        if rows.num_rows:
            if self._writer is None:
                self._writer = self._task.new_writer()
            self._writer.write(self._with_lineage(rows))

    def _with_lineage(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Add the columns of row lineage: an updated row keeps its id, but is updated now."""
        if not self._task.lineage:
            return rows
        rows = rows.append_column(LAST_UPDATED, pa.nulls(rows.num_rows, pa.int64()))
        if ROW_ID not in rows.schema.names:
            rows = rows.append_column(ROW_ID, pa.nulls(rows.num_rows, pa.int64()))
        return rows

    def close(self) -> TaskChanges:
        files = [] if self._writer is None else self._writer.close()
        return TaskChanges(files, _encoded(self._deleted), _encoded(self._matched))

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def collect_positions(
    batch: pa.RecordBatch, deleted: PositionCollector, matched: PositionCollector
) -> None:
    """Collect the positions of rows that are deleted, and of rows that were only matched.

    Inserted rows have no positions.
    """
    positions = batch.select([FILE, POSITION])
    if DELETE not in batch.schema.names:
        deleted.add(*positions.columns)
        return
    deletes = batch.column(batch.schema.names.index(DELETE))
    deleted.add(*_filtered(positions, deletes).columns)
    stays = pc.and_(pc.invert(pc.fill_null(deletes, False)), pc.is_valid(positions.column(0)))
    matched.add(*_filtered(positions, stays).columns)


def _filtered(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """Return the rows where the mask is true; if it is true for all, nothing is copied."""
    true_count = pc.sum(mask, min_count=0).as_py()
    return batch if true_count == batch.num_rows else batch.filter(mask)


def _encoded(collector: PositionCollector) -> list[_EncodedPositions]:
    return [
        _EncodedPositions(file.file_path, file.positions.serialize(), file.duplicate)
        for file in collector.collected()
    ]


def decode_changes(answer: bytes) -> TaskChanges:
    return msgspec.msgpack.decode(answer, type=TaskChanges)


def decode_positions(files: Iterable[_EncodedPositions]) -> Iterator[FilePositions]:
    """Return what a task has sent as sets."""
    for file in files:
        yield FilePositions(file.file_path, Positions.deserialize(file.positions), file.duplicate)

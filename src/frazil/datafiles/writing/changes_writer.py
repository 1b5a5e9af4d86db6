"""What one task does with rows that change: it writes some and notes where others stood.

Runs on executors. A task gives back one small answer: the files that it has written, and for each
data file the positions of its deleted rows as a bitmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, ROW_ID
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import FilePositions, PositionCollector, Positions
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.write_properties import FileOptions

FILE: Final = "_file"
POSITION: Final = "_pos"
DELETE: Final = "__frazil_delete"
WRITE: Final = "__frazil_write"


class _Found(msgspec.Struct, frozen=True, array_like=True):
    file_path: str
    positions: bytes
    twice: int | None


class TaskChanges(msgspec.Struct, frozen=True, array_like=True):
    """The answer of one task."""

    files: list[bytes]
    """The written files in JSON."""
    deleted: list[_Found]
    matched: list[_Found]
    """Rows that were looked at and stay as they are."""


@dataclass(frozen=True, slots=True)
class ChangesTask:
    facts: PortableTable
    storage: Storage
    folder: str
    options: FileOptions
    lineage: bool
    """Written rows take their ids along."""
    task_name: Callable[[], str]
    """Names the running attempt; files of two attempts must never share a name."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        changes = _Changes(self)
        try:
            for batch in batches:
                changes.add(batch)
            answer = msgspec.msgpack.encode(changes.closed())
        except BaseException:
            changes.abort()
            raise
        yield answer

    def new_writer(self) -> ArrowFileWriter:
        return ArrowFileWriter(
            self.facts,
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
        note_places(batch, self._deleted, self._matched)
        if WRITE not in names:
            return
        rows = _chosen(batch, batch.column(names.index(WRITE)))
        if rows.num_rows:
            if self._writer is None:
                self._writer = self._task.new_writer()
            self._writer.write(self._with_lineage(rows))

    def _with_lineage(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """An updated row keeps its id; the commit that is to come is its last update."""
        if not self._task.lineage:
            return rows
        rows = rows.append_column(LAST_UPDATED, pa.nulls(rows.num_rows, pa.int64()))
        if ROW_ID not in rows.schema.names:
            rows = rows.append_column(ROW_ID, pa.nulls(rows.num_rows, pa.int64()))
        return rows

    def closed(self) -> TaskChanges:
        files = [] if self._writer is None else self._writer.close()
        return TaskChanges(files, _sent(self._deleted), _sent(self._matched))

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def note_places(
    batch: pa.RecordBatch, deleted: PositionCollector, matched: PositionCollector
) -> None:
    """Sorts the places of rows by what becomes of them; those that are inserted have none."""
    places = batch.select([FILE, POSITION])
    if DELETE not in batch.schema.names:
        _collect(places, deleted)
        return
    deletes = batch.column(batch.schema.names.index(DELETE))
    _collect(_chosen(places, deletes), deleted)
    stays = pc.and_(pc.invert(pc.fill_null(deletes, False)), pc.is_valid(places.column(0)))
    _collect(_chosen(places, stays), matched)


def _chosen(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """The rows where the mask is true; a batch where that is all of them is not copied."""
    true_count = pc.sum(mask, min_count=0).as_py()
    return batch if true_count == batch.num_rows else batch.filter(mask)


def _collect(places: pa.RecordBatch, collector: PositionCollector) -> None:
    if places.num_rows:
        collector.add(places.column(0), places.column(1))


def _sent(collector: PositionCollector) -> list[_Found]:
    return [
        _Found(one.file_path, one.positions.serialize(), one.twice) for one in collector.collected()
    ]


def decode_changes(answer: bytes) -> TaskChanges:
    return msgspec.msgpack.decode(answer, type=TaskChanges)


def found_positions(found: Iterable[_Found]) -> Iterator[FilePositions]:
    """What a task has sent, as sets again."""
    for one in found:
        yield FilePositions(one.file_path, Positions.deserialize(one.positions), one.twice)

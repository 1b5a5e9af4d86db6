"""Scan tasks and deleted rows, in a form that can be sent to other processes.

A task is what the catalog planned for one data file: its delete files and the rest of the filter.
It may also cover a part of a file: the row groups that begin inside a range of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from frazil.datafiles.reading.row_positions import Positions
from frazil.wire.scan_planning import FileScanTask, PlannedDataFile, PlannedDeleteFile

EQUALITY_DELETES: Final = "equality-deletes"
POSITION_DELETES: Final = "position-deletes"
PUFFIN: Final = "puffin"


class ScanTask(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A data file, or a part of it, with the delete files that apply to it."""

    data_file: PlannedDataFile
    delete_files: tuple[PlannedDeleteFile, ...] = ()
    residual: Any = True
    """What is left of the filter for these rows, as JSON; True if all of them match."""
    start: int = 0
    """The byte of the file at which the task begins."""
    length: int | None = None
    """The number of bytes that the task covers; None up to the end of the file."""

    @property
    def file_path(self) -> str:
        return self.data_file.file_path

    @property
    def size_in_bytes(self) -> int:
        """How many bytes of the data file and of its delete files the task reads."""
        own = self.data_file.file_size_in_bytes - self.start if self.length is None else self.length
        return own + sum(
            file.file_size_in_bytes
            if file.content_size_in_bytes is None
            else file.content_size_in_bytes
            for file in self.delete_files
        )

    @property
    def position_deletes(self) -> tuple[PlannedDeleteFile, ...]:
        """The files of position deletes and the deletion vectors."""
        return tuple(file for file in self.delete_files if file.content != EQUALITY_DELETES)

    @property
    def equality_deletes(self) -> tuple[PlannedDeleteFile, ...]:
        return tuple(file for file in self.delete_files if file.content == EQUALITY_DELETES)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> ScanTask:
        return msgspec.json.decode(data, type=cls)


def task_of(planned: FileScanTask) -> ScanTask:
    return ScanTask(
        data_file=planned.data_file, delete_files=planned.delete_files, residual=planned.residual
    )


def is_deletion_vector(file: PlannedDeleteFile) -> bool:
    return file.file_format.lower() == PUFFIN


# --- parts of files -------------------------------------------------------------------------------


def split_tasks(tasks: Iterable[ScanTask], target_bytes: int) -> Iterator[ScanTask]:
    """Split tasks of large files into parts of about that size, cut between row groups."""
    for task in tasks:
        yield from _split(task, target_bytes)


def _split(task: ScanTask, target_bytes: int) -> Iterator[ScanTask]:
    size = task.data_file.file_size_in_bytes
    offsets = [offset for offset in task.data_file.split_offsets or () if 0 < offset < size]
    if size <= target_bytes + target_bytes // 2 or len(offsets) < 2:
        yield task
        return
    # The bytes before the first row group belong to its part.
    start = 0
    for end in (*offsets[1:], size):
        if end - start >= target_bytes or end == size:
            length = None if end == size else end - start
            yield msgspec.structs.replace(task, start=start, length=length)
            start = end


# --- deleted rows ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The rows of one data file that a statement deletes."""

    task: ScanTask
    """Covers the whole file, with all deletes that applied in the scanned snapshot."""
    positions: Positions
    """The positions of rows that were live in that snapshot."""

    @property
    def file_path(self) -> str:
        return self.task.file_path

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((self.task.to_json(), self.positions.serialize()))

    @classmethod
    def decode(cls, payload: bytes) -> DeletedRows:
        task, positions = msgspec.msgpack.decode(payload, type=tuple[bytes, bytes])
        return cls(ScanTask.from_json(task), Positions.deserialize(positions))

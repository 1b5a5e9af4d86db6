"""Scan tasks that travel: what is to be read of one data file, in a form that executors get.

A task is what the catalog has planned, with its deletes and what is left of the filter, and may be
a part of a file: the row groups that begin inside a range of its bytes. Runs on executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from frazil.wire.planned_files import FileScanTask, PlannedDataFile, PlannedDeleteFile

EQUALITY_DELETES: Final = "equality-deletes"
POSITION_DELETES: Final = "position-deletes"
PUFFIN: Final = "puffin"


class ScanTask(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One data file, or a part of it, with the delete files that apply to it."""

    data_file: PlannedDataFile
    delete_files: tuple[PlannedDeleteFile, ...] = ()
    residual: Any = True
    """What is left of the filter for these rows, as JSON; True: all of them match."""
    start: int = 0
    """Row groups whose first byte is at or behind this one are read."""
    length: int | None = None
    """None: up to the file's end."""

    @property
    def file_path(self) -> str:
        return self.data_file.file_path

    @property
    def size_in_bytes(self) -> int:
        """How much of the file there is to read, with the deletes that must be read for it."""
        own = self.data_file.file_size_in_bytes - self.start if self.length is None else self.length
        return own + sum(_delete_bytes(file) for file in self.delete_files)

    @property
    def position_deletes(self) -> tuple[PlannedDeleteFile, ...]:
        """Files of position deletes, and deletion vectors."""
        return tuple(one for one in self.delete_files if one.content != EQUALITY_DELETES)

    @property
    def equality_deletes(self) -> tuple[PlannedDeleteFile, ...]:
        return tuple(one for one in self.delete_files if one.content == EQUALITY_DELETES)

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


def _delete_bytes(file: PlannedDeleteFile) -> int:
    size = file.content_size_in_bytes
    return file.file_size_in_bytes if size is None else size


# --- parts of files -------------------------------------------------------------------------------


def split_tasks(tasks: Iterable[ScanTask], target_bytes: int) -> Iterator[ScanTask]:
    """Large files in parts of about that size, cut where their row groups begin."""
    for task in tasks:
        yield from _split(task, target_bytes)


def _split(task: ScanTask, target_bytes: int) -> Iterator[ScanTask]:
    size = task.data_file.file_size_in_bytes
    offsets = [at for at in task.data_file.split_offsets or () if 0 < at < size]
    if size <= target_bytes + target_bytes // 2 or len(offsets) < 2:
        yield task
        return
    # What comes before the first row group belongs to it.
    start = 0
    for end in (*offsets[1:], size):
        if end - start >= target_bytes or end == size:
            length = None if end == size else end - start
            yield msgspec.structs.replace(task, start=start, length=length)
            start = end

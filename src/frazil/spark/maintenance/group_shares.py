"""Splits the files of a group into shares for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks
from frazil.spark.executor.rewrite_tasks import ReadFile

_PART_BYTES: Final = 16 << 20
"""Larger files are read in parts, by several tasks."""


def encoded_shares(tasks: Sequence[ScanTask], count: int) -> list[bytes]:
    """Return shares as tasks of Spark take them. A file has its number among `tasks`."""
    indexes = {task.file_path: index for index, task in enumerate(tasks)}
    return [
        msgspec.msgpack.encode([ReadFile(indexes[part.file_path], part) for part in share])
        for share in shares_of(tasks, count)
    ]


def shares_of(tasks: Sequence[ScanTask], count: int) -> list[list[ScanTask]]:
    """Split tasks into shares of about equal size, in their order.

    A large file may be in several shares, each of which has some of its row groups.
    """
    parts = list(split_tasks(tasks, _PART_BYTES))
    total = sum(_size(part) for part in parts)
    shares: list[list[ScanTask]] = [[]]
    size = 0
    for part in parts:
        # A part belongs to the share that its middle is in.
        if shares[-1] and (size + _size(part) / 2) * count >= len(shares) * total:
            shares.append([])
        last = shares[-1][-1] if shares[-1] else None
        if last is not None and last.file_path == part.file_path:
            shares[-1][-1] = _joined(last, part)
        else:
            shares[-1].append(part)
        size += _size(part)
    return shares


def _size(task: ScanTask) -> int:
    own = task.length
    return task.data_file.file_size_in_bytes - task.start if own is None else own


def _joined(first: ScanTask, second: ScanTask) -> ScanTask:
    """Return one task for two parts that follow each other in a file."""
    length = None if second.length is None else second.start + second.length - first.start
    return msgspec.structs.replace(first, length=length)

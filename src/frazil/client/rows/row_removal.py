"""Removes rows from data files: by copies without the rows, or by delete files.

Copy-on-write: a copy stays in its file's partition spec and partition and keeps its sort order,
since rows are only left out; its columns are those of the current schema. In format version 3
copied rows keep their lineage. Files are copied through Arrow, not as rows of Spark.

Merge-on-read: positions of deleted rows become deletion vectors (version 3) or position deletes
(version 2). A data file of version 3 has at most one vector, so that a new vector includes the old
one and remaining position deletes of version 2, which the same commit removes (spec, "Deletion
Vectors"). In version 2 the same is done with position deletes for a single data file; those that
several files share stay and keep applying.

Threads write copies and delete files, or a runner of the caller: Spark's uses tasks where there is
much to do.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command
from frazil.client.rows.row_files import MAX_THREADS
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.footers.files_from_parquet import DataFile, PositionDeleteFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.scan_tasks import DeletedRows, is_deletion_vector
from frazil.datafiles.reading.task_reader import check_copied_task
from frazil.datafiles.writing.data_file_writer import CopyWork
from frazil.datafiles.writing.delete_file_writer import (
    PositionDeleteWork,
    VectorWork,
    encode_group,
    is_file_scoped,
)
from frazil.datafiles.writing.write_properties import delete_file_options, file_options
from frazil.wire.declared_content import DeleteFileReference
from frazil.wire.errors import BadRequest, UnsupportedOperation

_DELETES_MIN_FORMAT_VERSION: Final = 2
VECTORS_MIN_FORMAT_VERSION: Final = 3
GRANULARITY_PROPERTY: Final = "write.delete.granularity"
_GRANULARITIES: Final = ("file", "partition")
_GROUP_BYTES: Final = 64 << 10
"""The cost of opening and closing a file, as the bytes that could be copied meanwhile."""

_THREAD_BYTES: Final = 4 << 20

RemovedDeletes: TypeAlias = DeleteFileReference | str
Work: TypeAlias = Callable[[Sequence[bytes]], Iterable[bytes]]
"""Takes encoded items and returns any number of results."""


@dataclass(frozen=True, slots=True)
class Item:
    payload: bytes
    size_in_bytes: int
    """How much there is to read and write; it decides how items are shared out."""


Runner: TypeAlias = Callable[[Work, Sequence[Item]], list[bytes]]
"""Runs work on all items and returns the results in any order; the first error ends it."""


# --- modes ----------------------------------------------------------------------------------------


class Mode(StrEnum):
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"
    METADATA = "metadata"
    """Removes whole files without reading them."""


def mode_of(table: Table, command: Command, mode: str | None = None) -> Mode:
    """Return the caller's mode, or the table's `write.<command>.mode`."""
    name = f"write.{command}.mode"
    text = table.properties.get(name, Mode.COPY_ON_WRITE) if mode is None else mode
    if text.lower() not in (Mode.COPY_ON_WRITE, Mode.MERGE_ON_READ):
        source = name if mode is None else "mode"
        raise BadRequest(f"{source}: {text!r} must be copy-on-write or merge-on-read")
    return Mode(text.lower())


def check_can_delete_rows(table: Table, command: Command) -> None:
    """Refuse delete files in a table of version 1, which has none."""
    if table.format_version < _DELETES_MIN_FORMAT_VERSION:
        raise UnsupportedOperation(
            f"{table}: cannot write delete files in a table of format version "
            f"{table.format_version}: set write.{command}.mode to copy-on-write, or upgrade the "
            "table"
        )


# --- threads --------------------------------------------------------------------------------------


def run_locally(work: Work, items: Sequence[Item]) -> list[bytes]:
    """Run the work in threads; the libraries that take the time release the GIL."""
    if not items:
        return []
    total = sum(item.size_in_bytes for item in items)
    threads = min(MAX_THREADS, os.cpu_count() or 1, len(items), 1 + total // _THREAD_BYTES)
    parts = shares(items, threads)
    if len(parts) == 1:
        return list(work(parts[0]))
    with ThreadPoolExecutor(threads, thread_name_prefix="frazil-files") as pool:
        results = pool.map(lambda part: list(work(part)), parts)
        return [result for part in results for result in part]


def shares(items: Sequence[Item], count: int) -> list[list[bytes]]:
    """Split items into shares of about equal size; no share is empty."""
    heap: list[tuple[int, int]] = [(0, number) for number in range(min(count, len(items)))]
    split: list[list[bytes]] = [[] for _ in heap]
    for item in sorted(items, key=lambda each: each.size_in_bytes, reverse=True):
        size, number = heap[0]
        split[number].append(item.payload)
        heapq.heapreplace(heap, (size + item.size_in_bytes, number))
    return split


# --- removal of rows -----------------------------------------------------------------------------


def copy_files(
    table: Table,
    touched: Sequence[DeletedRows],
    folder: WriteFolder,
    run: Runner = run_locally,
) -> tuple[DataFile, ...]:
    """Write the copies; a file whose rows are all deleted has none."""
    facts = PortableTable.of(table)
    for file in touched:
        check_copied_task(file.task, facts)
    work = CopyWork(facts, folder.storage, folder.location, file_options(table.properties))
    items = [Item(file.encode(), file.task.size_in_bytes) for file in touched]
    written = run(work, items)
    return tuple(msgspec.json.decode(file, type=DataFile) for file in written)


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    added: tuple[PositionDeleteFile, ...]
    removed: tuple[RemovedDeletes, ...]
    """Deletes that the added ones include."""


def write_deletes(
    table: Table,
    touched: Sequence[DeletedRows],
    folder: WriteFolder,
    run: Runner = run_locally,
) -> WrittenDeletes:
    """Write the deletes of the touched files, each of which has at least one position.

    The table's format version is 2 or 3.
    """
    if not touched:
        return WrittenDeletes((), ())
    by_file = table.format_version >= 3 or granularity(table.properties) == "file"
    groups = [[file] for file in touched] if by_file else list(_by_partition(touched))
    written = run(_work(table, folder, by_file), [_item(group) for group in groups])
    added = tuple(msgspec.json.decode(file, type=PositionDeleteFile) for file in written)
    return WrittenDeletes(added, tuple(_included(touched)) if by_file else ())


def write_file_deletes(
    table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> tuple[PositionDeleteFile, ...]:
    """Write the deletes of new files, each of which has at least one position and no deletes yet.

    Each delete file names its data file, whatever the table's granularity is.
    """
    written = run_locally(_work(table, folder, True), [_item([file]) for file in touched])
    return tuple(msgspec.json.decode(file, type=PositionDeleteFile) for file in written)


def write_grouped_deletes(
    table: Table, groups: Iterable[Sequence[DeletedRows]], folder: WriteFolder
) -> tuple[PositionDeleteFile, ...]:
    """Write a file of position deletes for each group of data files of one partition.

    Deletes that the data files have already are not included.
    """
    work = _work(table, folder, False)
    written = run_locally(work, [_item(group) for group in groups])
    return tuple(msgspec.json.decode(file, type=PositionDeleteFile) for file in written)


def granularity(properties: Mapping[str, str]) -> str:
    """Return the table's granularity; the default is one file per data file, as in stock Spark."""
    chosen = properties.get(GRANULARITY_PROPERTY, "file").lower()
    if chosen not in _GRANULARITIES:
        raise BadRequest(f"{GRANULARITY_PROPERTY}: {chosen!r} is neither file nor partition")
    return chosen


def _work(table: Table, folder: WriteFolder, by_file: bool) -> Work:
    if table.format_version >= 3:
        return VectorWork(folder.storage, folder.location)
    return PositionDeleteWork(
        folder.storage,
        folder.location,
        delete_file_options(table.properties),
        includes_earlier=by_file,
    )


def _by_partition(touched: Sequence[DeletedRows]) -> Iterator[list[DeletedRows]]:
    groups: dict[tuple[object, ...], list[DeletedRows]] = {}
    for file in touched:
        data_file = file.task.data_file
        groups.setdefault((data_file.spec_id, *data_file.partition), []).append(file)
    yield from groups.values()


def _item(group: Sequence[DeletedRows]) -> Item:
    payload = encode_group(group)
    bytes_to_read = sum(
        deletes.content_size_in_bytes or deletes.file_size_in_bytes
        for file in group
        for deletes in file.task.position_deletes
    )
    return Item(payload, len(payload) + bytes_to_read + _GROUP_BYTES)


def _included(touched: Sequence[DeletedRows]) -> Iterator[RemovedDeletes]:
    """Yield deletes of one touched file only; other files may still need shared ones."""
    for file in touched:
        for deletes in file.task.position_deletes:
            if is_deletion_vector(deletes):
                yield DeleteFileReference(deletes.file_path, deletes.content_offset)
            elif is_file_scoped(deletes):
                yield deletes.file_path

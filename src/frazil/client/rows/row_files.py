"""Writes rows into new data files of a table, and finds rows in the files that it has."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.client.declare.client_table import Table
from frazil.client.rows.row_filters import RowFilter
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.arrow.metadata_columns import MIN_FORMAT_VERSION, POSITION
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask, task_of
from frazil.datafiles.reading.task_reader import read_task
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.row_partitions import Partitioner
from frazil.datafiles.writing.write_properties import file_options
from frazil.values.types import StructType
from frazil.wire.expressions import ALWAYS_TRUE, Expression

MAX_THREADS: Final = 8

T = TypeVar("T")
R = TypeVar("R")


def thread_count() -> int:
    return max(1, min(MAX_THREADS, os.cpu_count() or 1))


def write_rows(
    table: Table, batches: Iterable[pa.RecordBatch], folder: WriteFolder, *, lineage: bool = False
) -> tuple[DataFile, ...]:
    """Write batches with the columns of `arrow_schema(table.schema, lineage=lineage)`.

    If that fails, no file is left. Without rows there are no files.
    """
    facts = PortableTable.of(table)
    partitioned = Partitioner(facts)
    writer = ArrowFileWriter(
        facts,
        folder.storage,
        folder.location,
        uuid4().hex[:12],
        options=file_options(table.properties),
        lineage=lineage,
    )
    try:
        for batch in batches:
            writer.write(partitioned(batch))
        written = writer.close()
    except BaseException:
        writer.abort()
        raise
    return tuple(msgspec.json.decode(file, type=DataFile) for file in written)


# --- rows that match ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """What a filter matches in one snapshot."""

    whole: tuple[ScanTask, ...]
    """Files whose rows all match."""
    partial: tuple[DeletedRows, ...]
    """The matching rows of other files, each of which has some."""
    is_proven: bool = False
    """Whether the catalog knows without reading that these are all, so that the filter itself can
    be committed."""

    def __bool__(self) -> bool:
        return bool(self.whole or self.partial)


def planned_tasks(
    table: Table, filter: Expression, snapshot_id: int | None
) -> tuple[ScanTask, ...]:
    """Plan the files of a snapshot that may have matching rows, for the table's current schema.

    The tasks have the deletes of all rows of their files, because files are written again.
    """
    if snapshot_id is None:
        return ()
    plan = table.plan(
        filter,
        snapshot=snapshot_id,
        use_snapshot_schema=False,
        sequence_numbers=table.format_version >= MIN_FORMAT_VERSION,
        all_deletes=filter != ALWAYS_TRUE,
    )
    return tuple(map(task_of, plan.tasks))


def matching_rows(
    table: Table, filter: Expression, snapshot_id: int | None, storage: Storage
) -> MatchingRows:
    """Find the rows of a snapshot that match; only files that match in part are read."""
    tasks = planned_tasks(table, filter, snapshot_id)
    facts = PortableTable.of(table)
    row_filter = RowFilter(filter, table.schema)
    columns = StructType(row_filter.columns())

    def positions(task: ScanTask) -> DeletedRows:
        numbers = [
            batch.column(POSITION).filter(row_filter.mask(batch)).to_numpy(zero_copy_only=False)
            for batch in read_task(task, facts, storage, columns, metadata_columns=(POSITION,))
        ]
        return DeletedRows(task, positions_of(numbers))

    read = [task for task in tasks if task.residual is not True]
    partial = in_threads(positions, read)
    return MatchingRows(
        tuple(task for task in tasks if task.residual is True),
        tuple(rows for rows in partial if rows.positions),
        is_proven=not read,
    )


def positions_of(numbers: Sequence[npt.NDArray[np.int64]]) -> Positions:
    """Return the set of positions in several arrays."""
    if not numbers:
        return Positions()
    # pyroaring reads an `array` four times as fast as a numpy array.
    return Positions(array("Q", np.concatenate(numbers).astype(np.uint64).tobytes()))


def in_threads(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Run work on all items and return the results in their order; the first error ends it."""
    waiting = list(items)
    if len(waiting) <= 1:
        return list(map(work, waiting))
    with ThreadPoolExecutor(thread_count(), thread_name_prefix="frazil-rows") as pool:
        return list(pool.map(work, waiting))

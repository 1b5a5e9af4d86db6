"""Writes a frame of changed rows in one pass, and removes the old rows from their files.

Tasks write new rows and note which old ones go. Then copies replace the files, or delete files are
added.

The frame has one line for each target row that a statement affects and for each row that it
inserts:

    the table's columns   the row to write; they may be missing if WRITE is
    _file, _pos           where the target row is; null for an inserted row
    DELETE                whether to delete the target row; without the column, all are deleted
    WRITE                 whether to write the columns; without the column, none are written
    _row_id               of the target row, in version 3; null for an inserted row

An updated row has both DELETE and WRITE. A line with neither only serves to find target rows that
match twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.rows import row_removal
from frazil.client.rows.row_removal import Item, Work, WrittenDeletes, run_locally, shares
from frazil.datafiles.arrow.metadata_columns import FILE, MIN_FORMAT_VERSION, POSITION, ROW_ID
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.row_positions import (
    FilePositions,
    PositionCollector,
    Positions,
    unite,
)
from frazil.datafiles.reading.scan_tasks import DeletedRows
from frazil.datafiles.writing.changes_writer import (
    DELETE,
    WRITE,
    ChangesTask,
    TaskChanges,
    collect_positions,
    decode_changes,
    decode_positions,
)
from frazil.spark.core.borrowed_settings import session_settings
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, arrow_task, share_task, task_name
from frazil.spark.writing.frame_writer import WriteOptions, WritePlan
from frazil.spark.writing.write_commit import WriteFolder
from frazil.wire.errors import BadRequest, FrazilError

_CODE, _PATH = "__frazil_code", "__frazil_path"
_MAX_LOCAL_GROUPS: Final = 256
"""More than for copies, since few bytes are written for each group."""
_SHARE_BYTES: Final = 32 << 20
"""The least work of a task: starting a task for less does not pay."""
_MAX_SHARES: Final = 10_000
_MAX_LOCAL_ITEMS: Final = 32
MAX_LOCAL_BYTES: Final = 96 << 20
_UNWRITTEN: Final = frozenset({DELETE, WRITE, FILE, POSITION, ROW_ID})


@dataclass(frozen=True, slots=True)
class FileCodes:
    """Small numbers for the paths of data files, in columns that repeat a path for many rows.

    Writing, hashing and comparing a path of a hundred letters for every row costs a good part of
    finding rows. A checksum is enough, since all paths are known before; if two paths have the same
    checksum, codes are the paths themselves.
    """

    _paths: Mapping[int, str] | None
    """Paths by their codes; None where codes are paths."""

    @classmethod
    def of(cls, paths: Collection[str]) -> FileCodes:
        """Make codes for all files that a scan may read; `paths` has no path twice."""
        by_code = {crc32(path.encode()): path for path in paths}
        return cls(by_code if len(by_code) == len(paths) else None)

    def code(self, path: Column) -> Column:
        return path if self._paths is None else fn.crc32(path)

    def paths(self, codes: pa.Array) -> pa.DictionaryArray:
        """Return the paths of codes."""
        if self._paths is None:
            is_encoded = isinstance(codes, pa.DictionaryArray)
            return codes if is_encoded else pc.dictionary_encode(codes)
        known = np.array(sorted(self._paths), dtype=np.int64)
        numbers = codes.to_numpy(zero_copy_only=False)
        indices = np.searchsorted(known, numbers)
        if len(numbers) and (
            not len(known) or (known[np.minimum(indices, len(known) - 1)] != numbers).any()
        ):
            raise FrazilError("the scan has read a file which is missing in the catalog's plan")
        names = pa.array([self._paths[int(code)] for code in known], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), names)

    def with_paths(self, frame: DataFrame, name: str) -> DataFrame:
        """Return the frame with paths instead of codes in the named column."""
        if self._paths is None:
            return frame
        known = pa.table({_CODE: list(self._paths), _PATH: list(self._paths.values())})
        files = frame.sparkSession.createDataFrame(known).hint("broadcast")
        joined = frame.join(files, fn.col(name) == fn.col(_CODE), "left")
        others = (fn.col(other) for other in frame.columns if other != name)
        return joined.select(fn.col(_PATH).alias(name), *others)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    files: tuple[DataFile, ...]
    deleted: Mapping[str, Positions]
    """Positions by the path of the data file, as the table's metadata has it."""
    rows_written: int
    rows_deleted: int


def write_changes(
    context: Context,
    table: Table,
    frame: DataFrame,
    folder: WriteFolder,
    options: WriteOptions | None = None,
    *,
    check_cardinality: bool,
) -> ChangedRows:
    """Run the frame once and write its rows; if this raises, the caller removes the files."""
    plan = WritePlan.of(PortableTable.of(table), options or WriteOptions())
    lineage = table.format_version >= MIN_FORMAT_VERSION and ROW_ID in frame.columns
    if WRITE in frame.columns:
        rows = plan.distributed(frame)
    else:
        rows = frame.select(*(name for name in frame.columns if name in _UNWRITTEN - {ROW_ID}))
    task = ChangesTask(plan.facts, folder.storage, folder.location, plan.files, lineage, task_name)
    with session_settings(context.spark, plan.settings):
        results = rows.mapInArrow(arrow_task(task), RESULT_SCHEMA).collect()
    changes = [decode_changes(bytes(row[0])) for row in results]
    return united(changes, check_cardinality=check_cardinality)


def collect_deletes(frame: DataFrame, codes: FileCodes) -> ChangedRows:
    """Collect the positions of deleted rows in the driver, without a Python task.

    A Python task costs more than collecting some thousand positions. The caller must know that
    they are not too many for the driver's memory.
    """
    file = codes.code(fn.col(FILE)).alias(FILE)
    positions = frame.select(file, fn.col(POSITION)).toArrow()
    return deletes_of(positions, codes, check_cardinality=False)


def deletes_of(rows: pa.Table, codes: FileCodes, *, check_cardinality: bool) -> ChangedRows:
    """Return the deletions; `rows` has `_file` in codes, `_pos`, and possibly DELETE."""
    deleted, matched = PositionCollector(), PositionCollector()
    for batch in rows.to_batches():
        files = codes.paths(batch.column(FILE))
        collect_positions(batch.set_column(0, FILE, files), deleted, matched)
    return _changed_rows(
        (), unite(deleted.collected()), matched.collected(), check_cardinality=check_cardinality
    )


def united(changes: Sequence[TaskChanges], *, check_cardinality: bool) -> ChangedRows:
    """Unite the changes of all tasks."""
    files = tuple(
        msgspec.json.decode(file, type=DataFile) for task in changes for file in task.files
    )
    deleted = unite(chain.from_iterable(decode_positions(task.deleted) for task in changes))
    matched = chain.from_iterable(decode_positions(task.matched) for task in changes)
    return _changed_rows(files, deleted, matched, check_cardinality=check_cardinality)


def _changed_rows(
    files: tuple[DataFile, ...],
    deleted: Mapping[str, FilePositions],
    matched: Iterable[FilePositions],
    *,
    check_cardinality: bool,
) -> ChangedRows:
    if check_cardinality:
        for file in unite(chain(deleted.values(), matched)).values():
            if file.duplicate is not None:
                raise BadRequest(
                    "MERGE: a row of the target is matched by more than one row of the source, so "
                    "that it is not clear what becomes of it: make the source's keys unique, or "
                    "narrow the ON condition. The row is at position "
                    f"{file.duplicate} of {file.file_path}"
                )
    return ChangedRows(
        files,
        {path: file.positions for path, file in deleted.items()},
        sum(file.record_count for file in files),
        sum(len(file.positions) for file in deleted.values()),
    )


# --- removal of rows ------------------------------------------------------------------------------
# A job costs more than copying a small file, so little work is done in the driver. Both run the
# same code on the same encoded items.


def copy_files(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> tuple[DataFile, ...]:
    """Write the copies; a file whose rows are all deleted has none."""
    return row_removal.copy_files(table, touched, folder, partial(run_work, context.spark))


def write_deletes(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> WrittenDeletes:
    """Write the deletes of the touched files, each of which has at least one position."""
    run = partial(run_work, context.spark, max_local_items=_MAX_LOCAL_GROUPS)
    return row_removal.write_deletes(table, touched, folder, run)


def run_work(
    spark: SparkSession,
    work: Work,
    items: Sequence[Item],
    *,
    max_local_items: int = _MAX_LOCAL_ITEMS,
) -> list[bytes]:
    """Return all results in any order; the first error ends the work."""
    total = sum(item.size_in_bytes for item in items)
    if len(items) <= max_local_items and total <= MAX_LOCAL_BYTES:
        return run_locally(work, items)
    return _run_in_tasks(spark, work, items, total)


def _run_in_tasks(
    spark: SparkSession, work: Work, items: Sequence[Item], total_bytes: int
) -> list[bytes]:
    count = min(len(items), max(1, total_bytes // _SHARE_BYTES), _MAX_SHARES)
    encoded = [msgspec.msgpack.encode(share) for share in shares(items, max(count, 2))]
    frame = dealt_out(spark, "share", pa.array(encoded, pa.binary()), len(encoded))
    rows = frame.mapInArrow(share_task(work), RESULT_SCHEMA).collect()
    return [bytes(row[0]) for row in rows]

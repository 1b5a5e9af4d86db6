"""Changed rows in one pass: tasks write the new ones and note where the old ones stand.

The frame has one line for each target row that a statement has to do with and for each row that it
inserts:

    the table's columns   of the row to be written; they need not be there where WRITE is not
    _file, _pos           of the target row; null for a row that is inserted
    DELETE                whether the target row goes; without the column, all of them do
    WRITE                 whether the columns are a row to be written; without the column, none is
    _row_id               in version 3, of the target row; null for a row that is inserted

An updated row has both DELETE and WRITE. A line with neither counts only where rows that are
matched twice are looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.metadata_columns import MIN_FORMAT_VERSION, ROW_ID
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.row_positions import (
    FilePositions,
    PositionCollector,
    Positions,
    unite,
)
from frazil.datafiles.writing.changes_writer import (
    DELETE,
    FILE,
    POSITION,
    WRITE,
    ChangesTask,
    TaskChanges,
    decode_changes,
    found_positions,
    note_places,
)
from frazil.spark.core.context import Context
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, arrow_task, task_name
from frazil.spark.rows.path_codes import FileCodes
from frazil.spark.writing.frame_writer import (
    WriteOptions,
    distributed,
    options_of_files,
    write_settings,
)
from frazil.spark.writing.write_folder import WriteFolder
from frazil.wire.errors import BadRequest

_UNWRITTEN: Final = frozenset({DELETE, WRITE, FILE, POSITION, ROW_ID})


@dataclass(frozen=True, slots=True)
class ChangedRows:
    files: tuple[DataFile, ...]
    deleted: Mapping[str, Positions]
    """By the path of the data file, as the table's metadata has it."""
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
    """Runs the frame once. What was written is the caller's to discard if this raises."""
    facts = PortableTable.of(table)
    lineage = table.format_version >= MIN_FORMAT_VERSION and ROW_ID in frame.columns
    rows = frame
    if WRITE in frame.columns:
        rows = distributed(context, facts, frame, options)
    else:
        rows = frame.select(*(name for name in frame.columns if name in _UNWRITTEN - {ROW_ID}))
    task = ChangesTask(
        facts,
        folder.storage,
        folder.location,
        options_of_files(facts, options),
        lineage,
        task_name,
    )
    with write_settings(context, facts, options):
        found = rows.mapInArrow(arrow_task(task), RESULT_SCHEMA).collect()
    answers = [decode_changes(bytes(row[0])) for row in found]
    return united(answers, check_cardinality=check_cardinality)


def collect_deletes(frame: DataFrame, codes: FileCodes) -> ChangedRows:
    """The positions of rows that only go, of few files or rows: Spark brings them itself.

    What a task of Python costs is more than the work on some thousand positions. All of them pass
    through the driver, so that the caller must know that they are not too many.
    """
    file = codes.code(fn.col(FILE)).alias(FILE)
    places = frame.select(file, fn.col(POSITION)).toArrow()
    return deletes_of(places, codes, check_cardinality=False)


def deletes_of(places: pa.Table, codes: FileCodes, *, check_cardinality: bool) -> ChangedRows:
    """What goes by `_file`, in codes, `_pos` and perhaps DELETE."""
    deleted, matched = PositionCollector(), PositionCollector()
    for batch in places.to_batches():
        files = codes.paths(batch.column(FILE))
        note_places(batch.set_column(0, FILE, files), deleted, matched)
    found = unite(deleted.collected())
    if check_cardinality:
        _refuse_twice(unite(chain(found.values(), matched.collected())).values())
    return _changed_rows((), found)


def united(answers: Iterable[TaskChanges], *, check_cardinality: bool) -> ChangedRows:
    """What all tasks together have done."""
    answers = list(answers)
    files = tuple(
        msgspec.json.decode(file, type=DataFile) for answer in answers for file in answer.files
    )
    deleted = unite(chain.from_iterable(found_positions(one.deleted) for one in answers))
    if check_cardinality:
        matched = chain.from_iterable(found_positions(one.matched) for one in answers)
        _refuse_twice(unite(chain(deleted.values(), matched)).values())
    return _changed_rows(files, deleted)


def _changed_rows(files: tuple[DataFile, ...], deleted: Mapping[str, FilePositions]) -> ChangedRows:
    return ChangedRows(
        files,
        {path: one.positions for path, one in deleted.items()},
        sum(file.record_count for file in files),
        sum(len(one.positions) for one in deleted.values()),
    )


def _refuse_twice(found: Iterable[FilePositions]) -> None:
    for one in found:
        if one.twice is not None:
            raise BadRequest(
                "MERGE: a row of the target is matched by more than one row of the source, so that "
                "it is not clear what becomes of it: make the source's keys unique, or narrow the "
                f"ON condition. The row is at position {one.twice} of {one.file_path}"
            )

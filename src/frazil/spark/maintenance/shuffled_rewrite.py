"""Rewrites a group whose rows Spark sorts, or spreads over several partitions.

In format version 3 a row is found again by its id. Elsewhere each row takes the number of its place
in the old files along, and the task that writes it stores the number beside the new file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.arrow.metadata_columns import (
    FILE,
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.writing.data_file_writer import ROW_NUMBER
from frazil.datafiles.writing.write_properties import file_options
from frazil.maintenance.rewrite_engine import GroupWork, WrittenRows
from frazil.spark.core.borrowed_settings import session_settings
from frazil.spark.core.context import Context
from frazil.spark.executor.rewrite_tasks import NumberedWriting, file_number, numbered_write_task
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA
from frazil.spark.maintenance.moved_rows import ShuffledRows
from frazil.spark.reading.own_reader import OwnScan, read, with_file_numbers
from frazil.spark.writing.distribution import Layout
from frazil.spark.writing.frame_writer import WritePlan, write_planned

_FIRST_NUMBER: Final = "_frazil_first_number"


def shuffled_rewrite(context: Context, work: GroupWork, folder: WriteFolder) -> WrittenRows:
    """Write the live rows of a group into files below the folder."""
    facts = PortableTable.of(work.table)
    plan = _plan(facts, work)
    lineage = facts.format_version >= MIN_FORMAT_VERSION
    by_row_id = lineage and all(
        task.data_file.first_row_id is not None for task in work.group.tasks
    )
    tasks = work.group.tasks
    metadata = ((ROW_ID, LAST_UPDATED) if lineage else ()) + (() if by_row_id else (FILE, POSITION))
    frame = read(context, OwnScan(work.table, tasks, facts.schema, metadata))
    if by_row_id:
        files = write_planned(context, plan, frame, folder, lineage=lineage)
    else:
        files = _write_numbered(context, plan, _numbered(frame, tasks), folder, lineage=lineage)
    rows = ShuffledRows(context.spark, facts, folder.storage, tasks, files, by_row_id)
    return WrittenRows(files=files, row_map=rows)


def _plan(facts: PortableTable, work: GroupWork) -> WritePlan:
    layout = _layout(work)
    files = file_options(
        facts.properties,
        target_file_size_bytes=work.max_written_size,
        sort_order_id=None if work.order is None else work.order.sort_order_id,
        spec_id=work.output_spec_id,
    )
    rows = sum(task.data_file.record_count for task in work.group.tasks)
    row_bytes = max(1, work.group.size_in_bytes) / max(1, rows)
    max_records = max(1, int(work.max_written_size / row_bytes))
    return WritePlan(facts, layout, replace(files, max_records=max_records))


def _layout(work: GroupWork) -> Layout:
    order = work.order
    if order is None:
        return Layout("hash", None)
    return Layout("range", order.sort_order, order.z_order, work.file_count)


def _numbered(frame: DataFrame, tasks: Sequence[ScanTask]) -> DataFrame:
    """Return the frame with the number of each row's place instead of its file and position."""
    paths = [task.file_path for task in tasks]
    first = {_FIRST_NUMBER: [file_number(index) for index in range(len(paths))]}
    numbered = with_file_numbers(frame, fn.col(FILE), paths, first)
    number = fn.col(_FIRST_NUMBER) + fn.col(POSITION)
    return numbered.withColumn(ROW_NUMBER, number).drop(FILE, POSITION, _FIRST_NUMBER)


def _write_numbered(
    context: Context, plan: WritePlan, frame: DataFrame, folder: WriteFolder, *, lineage: bool
) -> tuple[DataFile, ...]:
    task = numbered_write_task(
        NumberedWriting(plan.facts, folder.storage, plan.files, lineage), folder.location
    )
    with session_settings(context.spark, plan.settings):
        rows = plan.distributed(frame).mapInArrow(task, RESULT_SCHEMA).collect()
    return tuple(msgspec.json.decode(bytes(row[0]), type=DataFile) for row in rows)

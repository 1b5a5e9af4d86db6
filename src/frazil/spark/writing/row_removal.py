"""Removes rows from data files where little work is done in the driver, and much as a Spark job.

A job costs more than copying a small file. Both run the same code on the same encoded items.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.rows import row_removal
from frazil.client.rows.row_removal import Item, Work, WrittenDeletes, run_locally, shares
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.scan_tasks import DeletedRows
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, share_task

_MAX_LOCAL_GROUPS: Final = 256
"""More than for copies, since few bytes are written for each group."""
_SHARE_BYTES: Final = 32 << 20
"""The least work of a task: starting a task for less does not pay."""
_MAX_SHARES: Final = 10_000
_MAX_LOCAL_ITEMS: Final = 32
MAX_LOCAL_BYTES: Final = 96 << 20


def copy_files(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> tuple[DataFile, ...]:
    """Write the copies; a file whose rows are all deleted has none."""
    return row_removal.copy_files(table, touched, folder, partial(_run, context.spark))


def write_deletes(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> WrittenDeletes:
    """Write the deletes of the touched files, each of which has at least one position."""
    run = partial(_run, context.spark, max_local_items=_MAX_LOCAL_GROUPS)
    return row_removal.write_deletes(table, touched, folder, run)


def _run(
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

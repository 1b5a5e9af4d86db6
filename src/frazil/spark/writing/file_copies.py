"""Copy-on-write: each touched data file is copied without the rows that go.

A copy stays in its file's partition spec and partition and keeps its sort order, since rows are
only left out; its columns are those of the current schema. In format version 3 copied rows take
their lineage along. Executors, or threads of the driver, copy through Arrow: no row becomes a row
of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.scan_tasks import DeletedRows
from frazil.datafiles.reading.task_reader import check_copied_task
from frazil.datafiles.writing.file_copier import CopyWork
from frazil.datafiles.writing.write_properties import file_options
from frazil.spark.core.context import Context
from frazil.spark.writing import file_jobs
from frazil.spark.writing.file_jobs import Item
from frazil.spark.writing.write_folder import WriteFolder


def copy_files(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> tuple[DataFile, ...]:
    """The copies; of a file with no row left there is none."""
    facts = PortableTable.of(table)
    for one in touched:
        check_copied_task(one.task, facts)
    work = CopyWork(facts, folder.storage, folder.location, file_options(table.properties))
    items = [Item(one.encode(), one.task.size_in_bytes) for one in touched]
    written = file_jobs.run(context.spark, work, items)
    return tuple(msgspec.json.decode(one, type=DataFile) for one in written)

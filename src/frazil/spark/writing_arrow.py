"""Executors write through Arrow: every type, ids at every level, sizes by bytes, any storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from frazil.client.data_files import DataFile
from frazil.spark.arrow_writer import ArrowFileWriter, task_name
from frazil.spark.binary_rows import binary_rows
from frazil.spark.folders import WriteFolder
from frazil.spark.storage import Storage
from frazil.spark.table_facts import TableFacts
from frazil.spark.write_properties import FileOptions

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_arrow(
    facts: TableFacts,
    rows: DataFrame,
    folder: WriteFolder,
    options: FileOptions,
    *,
    lineage: bool = False,
) -> tuple[DataFile, ...]:
    """Writes rows that have their `_partition_*` columns; one job."""
    task = write_task(facts, folder.storage, folder.location, options, lineage)
    found = rows.mapInArrow(task, "file binary").collect()
    return tuple(msgspec.json.decode(bytes(row[0]), type=DataFile) for row in found)


def write_task(
    facts: TableFacts, storage: Storage, folder: str, options: FileOptions, lineage: bool
) -> Task:
    """What a task does with its rows; only the files that it returns count."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = ArrowFileWriter(
            facts, storage, folder, task_name(), options=options, lineage=lineage
        )
        try:
            for batch in batches:
                writer.write(batch)
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        yield binary_rows("file", files)

    return write

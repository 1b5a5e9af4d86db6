"""Writes through Arrow: every type, ids at every level, sizes by bytes, any storage.

Executors do it. Few rows are written by the driver: then nothing has to be shuffled, and no worker
of Python be started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.writing.data_file_writer import ArrowFileWriter
from frazil.datafiles.writing.write_properties import FileOptions
from frazil.spark.executor.worker_tasks import task_name
from frazil.spark.writing.binary_rows import binary_rows
from frazil.spark.writing.write_folder import WriteFolder

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def write_arrow(
    facts: PortableTable,
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
    facts: PortableTable, storage: Storage, folder: str, options: FileOptions, lineage: bool
) -> Task:
    """What a task does with its rows; only the files that it returns count."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = ArrowFileWriter(
            facts, storage, folder, task_name(), options=options, lineage=lineage
        )
        yield binary_rows("file", _written(writer, batches))

    return write


def write_table(
    facts: PortableTable,
    rows: pa.Table,
    folder: WriteFolder,
    options: FileOptions,
    *,
    lineage: bool = False,
) -> tuple[DataFile, ...]:
    """Writes rows that are here, and have their `_partition_*` columns, as if by a task."""
    writer = ArrowFileWriter(
        facts, folder.storage, folder.location, task_name(), options=options, lineage=lineage
    )
    # In one piece, so that the rows of a partition are found together.
    files = _written(writer, rows.combine_chunks().to_batches())
    return tuple(msgspec.json.decode(file, type=DataFile) for file in files)


def _written(writer: ArrowFileWriter, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise

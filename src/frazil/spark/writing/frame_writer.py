"""Writes a frame of rows into a table's data files, by one of two engines.

Spark's Parquet writer is faster, and is used where it can write what Iceberg needs. Elsewhere
executors write through Arrow: every type, field ids at every level, file sizes in bytes, any
storage. Few rows are written through Arrow by the driver, without a shuffle and a Python worker.
Both engines write the same data; the choice is logged with its reason and can be forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.row_partitions import PARTITION_PREFIX, Partitioner
from frazil.datafiles.writing.write_properties import FileOptions, file_options
from frazil.spark.core.borrowed_settings import session_settings
from frazil.spark.core.context import LOGGER, WRITERS, Context
from frazil.spark.executor.file_tasks import FileWriting, write_task
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA
from frazil.spark.schema.partition_transforms import partition_columns
from frazil.spark.writing.distribution import Layout, layout_of, shuffle_settings, spread
from frazil.spark.writing.jvm_writer import is_flat, objections, write_jvm
from frazil.spark.writing.write_commit import WriteFolder
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

_AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    engine: str | None = None
    """`jvm`, `arrow` or `auto`; None: the session's setting."""
    distribution: str | None = None
    """`none`, `hash` or `range`; None: the table's property."""
    command: str = "write"
    """`write`, `delete`, `update` or `merge`: selects the table's distribution property."""
    zorder: tuple[str, ...] = ()
    """Columns to order rows by together, instead of by the table's sort order."""
    target_file_size_bytes: int | None = None
    spec_id: int | None = None
    """None: the table's default partition spec."""


def write_rows(
    context: Context,
    table: Table,
    frame: DataFrame,
    folder: WriteFolder,
    options: WriteOptions | None = None,
    *,
    schema: StructType | None = None,
    lineage: bool = False,
    few: bool = False,
) -> tuple[DataFile, ...]:
    """Write rows and return the files; a frame without rows gives none.

    The frame has exactly the table's columns, or those of `schema` where the write changes it, and
    with `lineage` also `_row_id` and `_last_updated_sequence_number`. With `few` the driver may
    collect the rows.
    """
    options = options or WriteOptions()
    facts = PortableTable.of(table, schema)
    layout = _layout(facts, options)
    of_files = _file_options(facts, options, layout)
    if few and can_write_here(context, table, options):
        rows = _with_partitions(facts, frame, options).toArrow()
        return _write_table(context, facts, rows, folder, of_files, lineage=lineage)
    engine = _chosen_engine(context, facts, folder, options, of_files)
    with session_settings(context.spark, _settings(facts, layout, of_files)):
        if engine == "jvm":
            return write_jvm(context, facts, frame, folder, of_files, layout, lineage=lineage)
        rows = _spread(facts, frame, options, layout)
        return write_arrow(facts, rows, folder, of_files, lineage=lineage)


def write_arrow(
    facts: PortableTable,
    rows: DataFrame,
    folder: WriteFolder,
    options: FileOptions,
    *,
    lineage: bool = False,
) -> tuple[DataFile, ...]:
    """Write rows that have their `_partition_*` columns, through Arrow, in one job."""
    task = write_task(facts, folder.storage, folder.location, options, lineage)
    return _decoded(bytes(row[0]) for row in rows.mapInArrow(task, RESULT_SCHEMA).collect())


def can_write_here(context: Context, table: Table, options: WriteOptions) -> bool:
    """Return whether the driver may write few rows; it does not sort them."""
    facts = PortableTable.of(table)
    layout = _layout(facts, options)
    engine = options.engine or context.settings.writer
    return engine == _AUTO and layout.sort_order is None and not layout.zorder and is_flat(facts)


def write_here(
    context: Context,
    table: Table,
    rows: pa.Table,
    folder: WriteFolder,
    options: WriteOptions,
    *,
    lineage: bool = False,
) -> tuple[DataFile, ...]:
    """Write Arrow rows in the driver, with Spark's Arrow types."""
    facts = PortableTable.of(table)
    of_files = _file_options(facts, options, _layout(facts, options))
    partitioned = map(Partitioner(facts, options.spec_id), rows.combine_chunks().to_batches())
    rows = pa.Table.from_batches(partitioned) if rows.num_rows else rows
    return _write_table(context, facts, rows, folder, of_files, lineage=lineage)


def _write_table(
    context: Context,
    facts: PortableTable,
    rows: pa.Table,
    folder: WriteFolder,
    options: FileOptions,
    *,
    lineage: bool,
) -> tuple[DataFile, ...]:
    LOGGER.info("%s: written by the driver: the rows are few", facts.name)
    writing = FileWriting(facts, folder.storage, options, lineage)
    # One batch, so that the rows of a partition are found together.
    return _decoded(writing.write(rows.combine_chunks().to_batches(), folder.location))


def _decoded(files: Iterable[bytes]) -> tuple[DataFile, ...]:
    return tuple(msgspec.json.decode(file, type=DataFile) for file in files)


# --- rows for an `ArrowFileWriter` ----------------------------------------------------------------


def distributed(facts: PortableTable, frame: DataFrame, options: WriteOptions) -> DataFrame:
    """Return the frame with each row's partition in `_partition_*`, distributed and sorted.

    Rows are distributed by the table's mode, and sorted by partition and sort order in each task.
    """
    return _spread(facts, frame, options, _layout(facts, options))


def options_of_files(facts: PortableTable, options: WriteOptions) -> FileOptions:
    """Return the options for writing rows that come from `distributed`."""
    return _file_options(facts, options, _layout(facts, options))


@contextmanager
def write_settings(context: Context, facts: PortableTable, options: WriteOptions) -> Iterator[None]:
    """Set what the session needs while rows from `distributed` are written."""
    layout = _layout(facts, options)
    settings = _settings(facts, layout, _file_options(facts, options, layout))
    with session_settings(context.spark, settings):
        yield


def _settings(facts: PortableTable, layout: Layout, of_files: FileOptions) -> dict[str, str]:
    return {} if layout.mode == "none" else shuffle_settings(facts, of_files.codec)


def _layout(facts: PortableTable, options: WriteOptions) -> Layout:
    return layout_of(facts, options.distribution, options.command, options.zorder, options.spec_id)


def _spread(
    facts: PortableTable, frame: DataFrame, options: WriteOptions, layout: Layout
) -> DataFrame:
    return spread(frame, _partitions(facts, options), layout, facts.schema)


def _with_partitions(facts: PortableTable, frame: DataFrame, options: WriteOptions) -> DataFrame:
    columns = _partitions(facts, options)
    return frame.select("*", *(column.alias(name) for name, column in columns.items()))


def _partitions(facts: PortableTable, options: WriteOptions) -> dict[str, Column]:
    columns = partition_columns(facts, options.spec_id)
    return {f"{PARTITION_PREFIX}{position}": column for position, column in enumerate(columns)}


def _file_options(facts: PortableTable, options: WriteOptions, layout: Layout) -> FileOptions:
    return file_options(
        facts.properties,
        target_file_size_bytes=options.target_file_size_bytes,
        sort_order_id=layout.sort_order_id,
        spec_id=options.spec_id,
    )


# --- the engine -----------------------------------------------------------------------------------


def _chosen_engine(
    context: Context,
    facts: PortableTable,
    folder: WriteFolder,
    options: WriteOptions,
    of_files: FileOptions,
) -> str:
    engine = options.engine or context.settings.writer
    if engine not in WRITERS:
        raise BadRequest(f"engine: {engine!r} is none of {', '.join(WRITERS)}")
    if engine == "arrow":
        LOGGER.info("%s: written through Arrow, as requested", facts.name)
        return engine
    is_sized = options.target_file_size_bytes is not None
    objected = objections(facts, folder.location, of_files, is_sized=is_sized)
    if engine == "jvm":
        _refuse(facts, [each.reason for each in objected if not each.is_preference])
        LOGGER.info("%s: written by Spark's Parquet writer, as requested", facts.name)
        return engine
    if objected:
        reasons = "; ".join(each.reason for each in objected)
        LOGGER.info("%s: written through Arrow: %s", facts.name, reasons)
        return "arrow"
    LOGGER.info(
        "%s: written by Spark's Parquet writer: its types are flat and its files local", facts.name
    )
    return "jvm"


def _refuse(facts: PortableTable, reasons: Sequence[str]) -> None:
    if reasons:
        raise BadRequest(
            f"{facts.name}: Spark's Parquet writer cannot write it: {'; '.join(reasons)}. Use the "
            "engine arrow, or auto to have it chosen"
        )

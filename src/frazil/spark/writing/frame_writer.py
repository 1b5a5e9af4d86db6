"""Writes a frame of rows into a table's data files, by one of two engines.

Spark's Parquet writer is faster, and is used where it can write what Iceberg needs. Elsewhere
executors write through Arrow: every type, field ids at every level, file sizes in bytes, any
storage. Few rows are written through Arrow by the driver, without a shuffle and a Python worker.
Both engines write the same data; the choice is logged with its reason and can be forced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.row_partitions import Partitioner
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


@dataclass(frozen=True)
class WritePlan:
    """How rows are distributed, sorted and written, by the table's properties and the options."""

    facts: PortableTable
    layout: Layout
    files: FileOptions

    @classmethod
    def of(cls, facts: PortableTable, options: WriteOptions) -> WritePlan:
        layout = layout_of(
            facts, options.distribution, options.command, options.zorder, options.spec_id
        )
        files = file_options(
            facts.properties,
            target_file_size_bytes=options.target_file_size_bytes,
            sort_order_id=layout.sort_order_id,
            spec_id=options.spec_id,
        )
        return cls(facts, layout, files)

    @property
    def settings(self) -> dict[str, str]:
        """What the session needs while rows from `distributed` are written."""
        if self.layout.mode == "none":
            return {}
        return shuffle_settings(self.facts, self.files.codec)

    def distributed(self, frame: DataFrame) -> DataFrame:
        """Return the frame with each row's partition in `_partition_*`, distributed and sorted.

        Rows are distributed by the table's mode, and sorted by partition and sort order in each
        task.
        """
        return spread(
            frame, partition_columns(self.facts, self.files.spec_id), self.layout, self.facts.schema
        )


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
    plan = WritePlan.of(PortableTable.of(table, schema), options)
    if few and can_write_here(context, table, options):
        partition = partition_columns(plan.facts, plan.files.spec_id).items()
        rows = frame.select("*", *(column.alias(name) for name, column in partition))
        return _write_table(plan, rows.toArrow(), folder, lineage=lineage)
    engine = _chosen_engine(context, plan, options, folder)
    with session_settings(context.spark, plan.settings):
        if engine == "jvm":
            return write_jvm(
                context, plan.facts, frame, folder, plan.files, plan.layout, lineage=lineage
            )
        frame = plan.distributed(frame)
        return write_arrow(plan.facts, frame, folder, plan.files, lineage=lineage)


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
    plan = WritePlan.of(PortableTable.of(table), options)
    engine = options.engine or context.settings.writer
    is_sorted = plan.layout.sort_order is not None or bool(plan.layout.zorder)
    return engine == _AUTO and not is_sorted and is_flat(plan.facts)


def write_here(
    table: Table, rows: pa.Table, folder: WriteFolder, options: WriteOptions, *, lineage: bool
) -> tuple[DataFile, ...]:
    """Write Arrow rows in the driver, with Spark's Arrow types."""
    plan = WritePlan.of(PortableTable.of(table), options)
    partitioned = map(Partitioner(plan.facts, options.spec_id), rows.combine_chunks().to_batches())
    rows = pa.Table.from_batches(partitioned) if rows.num_rows else rows
    return _write_table(plan, rows, folder, lineage=lineage)


def _write_table(
    plan: WritePlan, rows: pa.Table, folder: WriteFolder, *, lineage: bool
) -> tuple[DataFile, ...]:
    LOGGER.info("%s: written by the driver: the rows are few", plan.facts.name)
    writing = FileWriting(plan.facts, folder.storage, plan.files, lineage)
    # One batch, so that the rows of a partition are found together.
    return _decoded(writing.write(rows.combine_chunks().to_batches(), folder.location))


def _decoded(files: Iterable[bytes]) -> tuple[DataFile, ...]:
    return tuple(msgspec.json.decode(file, type=DataFile) for file in files)


# --- the engine -----------------------------------------------------------------------------------


def _chosen_engine(
    context: Context, plan: WritePlan, options: WriteOptions, folder: WriteFolder
) -> str:
    name = plan.facts.name
    engine = options.engine or context.settings.writer
    if engine not in WRITERS:
        raise BadRequest(f"engine: {engine!r} is none of {', '.join(WRITERS)}")
    if engine == "arrow":
        LOGGER.info("%s: written through Arrow, as requested", name)
        return engine
    is_sized = options.target_file_size_bytes is not None
    objected = objections(plan.facts, folder.location, plan.files, is_sized=is_sized)
    if engine == "jvm":
        refused = [each.reason for each in objected if not each.is_preference]
        if refused:
            raise BadRequest(
                f"{name}: Spark's Parquet writer cannot write it: {'; '.join(refused)}. Use the "
                "engine arrow, or auto to have it chosen"
            )
        LOGGER.info("%s: written by Spark's Parquet writer, as requested", name)
        return engine
    if objected:
        reasons = "; ".join(each.reason for each in objected)
        LOGGER.info("%s: written through Arrow: %s", name, reasons)
        return "arrow"
    LOGGER.info(
        "%s: written by Spark's Parquet writer: its types are flat and its files local", name
    )
    return "jvm"

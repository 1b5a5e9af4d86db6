"""Writes a frame of rows into a table's data files, by one of two engines.

Spark's own Parquet writer is the faster and is taken where it can write what Iceberg asks for;
executors write through Arrow everywhere else. Both give the same files to the table: the choice is
logged with its reason and can be forced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.writing.row_partitions import PARTITION_PREFIX, Partitioner
from frazil.datafiles.writing.write_properties import FileOptions, file_options
from frazil.spark.core.borrowed_settings import session_settings
from frazil.spark.core.context import Context
from frazil.spark.core.settings import WRITERS
from frazil.spark.schema.partition_transforms import partition_columns
from frazil.spark.writing.distribution import Layout, layout_of, shuffle_settings, spread
from frazil.spark.writing.jvm_writer import is_flat, objections, write_jvm
from frazil.spark.writing.write_folder import WriteFolder
from frazil.spark.writing.writing_arrow import write_arrow, write_table
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

_AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    engine: str | None = None
    """`jvm`, `arrow` or `auto`; None: as the session says."""
    distribution: str | None = None
    """`none`, `hash` or `range`; None: as the table says."""
    command: str = "write"
    """`write`, `delete`, `update` or `merge`: whose distribution mode of the table counts."""
    zorder: tuple[str, ...] = ()
    """Columns to order rows by at once, instead of the table's sort order."""
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
    """Writes rows and returns the files; a frame without rows gives none.

    The frame has exactly the table's columns, or those of `schema` where the write changes it, and
    with `lineage` also `_row_id` and `_last_updated_sequence_number`. Of `few` rows the driver can
    hold all.
    """
    options = options or WriteOptions()
    facts = PortableTable.of(table, schema)
    layout = _layout(facts, options)
    of_files = _file_options(facts, options, layout)
    if few and can_write_here(context, table, options):
        context.log.info("%s: written by the driver: the rows are few", facts.name)
        rows = _with_partitions(facts, frame, options).toArrow()
        return write_table(facts, rows, folder, of_files, lineage=lineage)
    engine = _chosen_engine(context, facts, folder, options, of_files)
    with session_settings(context.spark, _settings(facts, layout, of_files)):
        if engine == "jvm":
            return write_jvm(context, facts, frame, folder, of_files, layout, lineage=lineage)
        rows = _spread(facts, frame, options, layout)
        return write_arrow(facts, rows, folder, of_files, lineage=lineage)


def can_write_here(context: Context, table: Table, options: WriteOptions) -> bool:
    """Whether few rows may be written by the driver, which does not sort them."""
    facts = PortableTable.of(table)
    layout = _layout(facts, options)
    wanted = options.engine or context.settings.writer
    return wanted == _AUTO and layout.sort_order is None and not layout.zorder and is_flat(facts)


def write_here(
    context: Context,
    table: Table,
    rows: pa.Table,
    folder: WriteFolder,
    options: WriteOptions,
    *,
    lineage: bool = False,
) -> tuple[DataFile, ...]:
    """As `write_rows`, of rows that are here already, as Spark has its types in Arrow."""
    facts = PortableTable.of(table)
    of_files = _file_options(facts, options, _layout(facts, options))
    context.log.info("%s: written by the driver: the rows are few", facts.name)
    partitioned = map(Partitioner(facts, options.spec_id), rows.combine_chunks().to_batches())
    rows = pa.Table.from_batches(partitioned) if rows.num_rows else rows
    return write_table(facts, rows, folder, of_files, lineage=lineage)


def distributed(
    context: Context,
    table: Table | PortableTable,
    frame: DataFrame,
    options: WriteOptions | None = None,
    schema: StructType | None = None,
) -> DataFrame:
    """The frame with the partition of each row in `_partition_*`, its rows brought together by the
    table's distribution mode and sorted by partition and sort order within each task."""
    options = options or WriteOptions()
    facts = table if isinstance(table, PortableTable) else PortableTable.of(table, schema)
    return _spread(facts, frame, options, _layout(facts, options))


def options_of_files(
    table: Table | PortableTable, options: WriteOptions | None = None
) -> FileOptions:
    """How an `ArrowFileWriter` has to write rows that come from `distributed`."""
    options = options or WriteOptions()
    facts = table if isinstance(table, PortableTable) else PortableTable.of(table)
    return _file_options(facts, options, _layout(facts, options))


@contextmanager
def write_settings(
    context: Context, table: Table | PortableTable, options: WriteOptions | None = None
) -> Iterator[None]:
    """What the session needs while rows from `distributed` are written, as `write_rows` has it."""
    options = options or WriteOptions()
    facts = table if isinstance(table, PortableTable) else PortableTable.of(table)
    layout = _layout(facts, options)
    wanted = _settings(facts, layout, _file_options(facts, options, layout))
    with session_settings(context.spark, wanted):
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


# --- the choice ---------------------------------------------------------------------------------


def _chosen_engine(
    context: Context,
    facts: PortableTable,
    folder: WriteFolder,
    options: WriteOptions,
    of_files: FileOptions,
) -> str:
    wanted = options.engine or context.settings.writer
    if wanted not in WRITERS:
        raise BadRequest(f"engine: {wanted!r} is none of {', '.join(WRITERS)}")
    if wanted == "arrow":
        context.log.info("%s: written through Arrow, as it was asked for", facts.name)
        return wanted
    is_sized = options.target_file_size_bytes is not None
    found = objections(facts, folder.location, of_files, is_sized=is_sized)
    if wanted == "jvm":
        _refuse(facts, [one.reason for one in found if not one.is_preference])
        context.log.info("%s: written by Spark's Parquet writer, as it was asked for", facts.name)
        return wanted
    if found:
        reasons = "; ".join(one.reason for one in found)
        context.log.info("%s: written through Arrow: %s", facts.name, reasons)
        return "arrow"
    context.log.info(
        "%s: written by Spark's Parquet writer: its types are flat and its files local", facts.name
    )
    return "jvm"


def _refuse(facts: PortableTable, reasons: Sequence[str]) -> None:
    if reasons:
        raise BadRequest(
            f"{facts.name}: Spark's Parquet writer cannot write it: {'; '.join(reasons)}. Use the "
            "engine arrow, or auto to have it chosen"
        )

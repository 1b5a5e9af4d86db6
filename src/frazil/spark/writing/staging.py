"""Evaluates a frame once into temporary Parquet files, however often it is used afterwards.

A cache does not guarantee that: what an executor loses of it is computed again, and a source that
has changed meanwhile gives other rows to the second half of a MERGE than to the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.types as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.datafiles.reading.file_storage import Storage, is_local, storage_of
from frazil.spark.core.borrowed_settings import PARQUET_SETTINGS, session_settings
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.executor.file_tasks import (
    PARQUET_SUFFIX,
    STAGING_CODEC,
    staged_rows_task,
    staging_task,
)
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA
from frazil.spark.writing.write_commit import data_location

SMALL_BYTES: Final = 64 << 20
_FLAT_BYTES: Final = 8
_OTHER_BYTES: Final = 40
_FLAT: Final = (st.NumericType, st.DateType, st.TimestampType, st.TimestampNTZType, st.BooleanType)


def is_small(schema: st.StructType, rows: int | None) -> bool:
    """Return whether so many rows fit into one process, by a generous guess from their types.

    None is an unknown number of rows.
    """
    if rows is None:
        return False
    row_bytes = sum(
        _FLAT_BYTES if isinstance(field.dataType, _FLAT) else _OTHER_BYTES
        for field in schema.fields
    )
    return rows * row_bytes <= SMALL_BYTES


@dataclass(frozen=True)
class Staged:
    """Rows in temporary files."""

    frame: DataFrame
    _storage: Storage
    _paths: tuple[str, ...] | None
    """None if the driver may not see the files."""

    @cached_property
    def _footers(self) -> Mapping[str, pq.FileMetaData]:
        """The files' footers by path, which are read once."""
        footers = {}
        for path in self._paths or ():
            with self._storage.open_input(path) as source:
                footers[path] = pq.read_metadata(source)
        return footers

    def size_here(self) -> int | None:
        """Return the uncompressed size of the rows; None if the driver cannot read the files."""
        if self._paths is None:
            return None
        size = 0
        for footer in self._footers.values():
            groups = range(footer.num_row_groups)
            size += sum(footer.row_group(group).total_byte_size for group in groups)
        return size

    def read_here(self, names: Sequence[str], max_rows: int) -> pa.Table | None:
        """Read columns without Spark; None if there are more rows, or the files cannot be read."""
        rows = sum(footer.num_rows for footer in self._footers.values())
        if not self._paths or rows > max_rows:
            return None
        columns = [f"c{self.frame.columns.index(name)}" for name in names]
        parts = []
        for path, footer in self._footers.items():
            with (
                self._storage.open_input(path) as source,
                pq.ParquetFile(source, metadata=footer) as file,
            ):
                parts.append(file.read(columns=columns, use_threads=False).select(columns))
        return pa.concat_tables(parts).rename_columns(list(names))


@contextmanager
def staged(context: Context, frame: DataFrame, table: Table) -> Iterator[Staged]:
    """Store the rows of a frame for the block.

    They are stored in the session's `temp-dir`. Without one, they are in the machine's temporary
    folder if Spark runs on this machine alone, else beside the data of `table`.
    """
    folder = f"{_temp_folder(context, table)}/frazil-{uuid4().hex}"
    storage = storage_of(context.properties, table.config)
    try:
        if is_local(folder):
            yield _through_spark(context, frame, folder, storage)
        else:
            yield _through_arrow(context, frame, folder, storage)
    finally:
        storage.delete_folder(folder)


def _temp_folder(context: Context, table: Table) -> str:
    if context.settings.temp_dir is not None:
        return context.settings.temp_dir.rstrip("/")
    if _is_single_machine(context):
        return tempfile.gettempdir()
    return data_location(table)


def _is_single_machine(context: Context) -> bool:
    return (context.spark.conf.get("spark.master", None) or "").startswith("local")


# --- columns ------------------------------------------------------------------------------------


def _storable(frame: DataFrame) -> tuple[DataFrame, st.StructType]:
    """Return the frame with names and types that Parquet can store, and its types.

    A frame may have a name twice, and columns of nulls without a type.
    """
    fields = frame.schema.fields
    renamed = frame.toDF(*(f"c{position}" for position in range(len(fields))))
    types = [
        st.StructField(f"c{position}", field.dataType, True)
        for position, field in enumerate(fields)
        if not _has_no_type(field)
    ]
    if len(types) == len(fields):
        return renamed, st.StructType(types)
    # An expression without a type may still fail when it is evaluated, as `assert_true` does.
    rows = renamed.select(
        *(
            fn.col(name).isNull().alias(name) if _has_no_type(field) else fn.col(name)
            for name, field in zip(renamed.columns, fields, strict=True)
        )
    )
    return rows, st.StructType(types)


def _has_no_type(field: st.StructField) -> bool:
    return isinstance(field.dataType, st.NullType)


def _restored(rows: DataFrame, frame: DataFrame) -> DataFrame:
    """Return stored rows with the frame's columns."""
    fields = frame.schema.fields
    if not any(map(_has_no_type, fields)):
        return rows.toDF(*(field.name for field in fields))
    return rows.select(
        *(
            fn.lit(None).alias(field.name)
            if _has_no_type(field)
            else fn.col(f"c{position}").alias(field.name)
            for position, field in enumerate(fields)
        )
    )


# --- through Spark or Arrow -----------------------------------------------------------------------


def _through_spark(context: Context, frame: DataFrame, folder: str, storage: Storage) -> Staged:
    rows, types = _storable(frame)
    # Looking for repeated values is a quarter of the work, and often there are none.
    options = {"compression": STAGING_CODEC, "parquet.enable.dictionary": "false"}
    with session_settings(context.spark, PARQUET_SETTINGS):
        rows.write.options(**options).parquet(folder)
    read = _restored(context.spark.read.schema(types).parquet(folder), frame)
    paths = None
    # On Spark Connect that single machine need not be this one.
    if _is_single_machine(context) and storage.has_folder(folder):
        paths = tuple(path for path in storage.list(folder) if path.endswith(PARQUET_SUFFIX))
    return Staged(read, storage, paths)


def _through_arrow(context: Context, frame: DataFrame, folder: str, storage: Storage) -> Staged:
    """Store rows where Spark has no file system of its own, as in object stores."""
    rows, types = _storable(frame)
    written = rows.mapInArrow(staging_task(storage, folder), RESULT_SCHEMA).collect()
    paths = tuple(bytes(row[0]).decode() for row in written)
    if not paths:
        empty = context.spark.createDataFrame([], types)
        return Staged(_restored(empty, frame), storage, paths)
    files = dealt_out(context.spark, "path", pa.array(paths, pa.string()), len(paths))
    names = [field.name for field in types.fields]
    read = files.mapInArrow(staged_rows_task(storage, names), types)
    return Staged(_restored(read, frame), storage, paths)

"""A frame evaluated once, into temporary Parquet, however often it is used afterwards.

A cache is no such thing: what an executor loses of it is computed again, and a source that has
changed meanwhile gives other rows to the second half of a MERGE than to the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import NullType, StructField, StructType

from frazil.client.declare.client_table import Table
from frazil.datafiles.reading.file_storage import Storage, is_local, storage_of
from frazil.spark.core.borrowed_settings import PARQUET_SETTINGS, session_settings
from frazil.spark.core.context import Context
from frazil.spark.executor.worker_tasks import task_name
from frazil.spark.writing.write_folder import data_location
from frazil.wire.errors import BadRequest

Task: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_ROW_GROUP_BYTES: Final = 32 << 20
_CODEC: Final = "snappy"
"""What is read once or twice and then removed is not worth the work of a better one."""
_SUFFIX: Final = ".parquet"
_PATHS: Final = pa.schema([pa.field("path", pa.string())])


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows that lie in temporary files."""

    frame: DataFrame
    _storage: Storage
    _paths: tuple[str, ...] | None
    """None where they are not known to be seen from here."""

    def size_here(self) -> int | None:
        """How many bytes the rows have before they are compressed; None as below."""
        if self._paths is None:
            return None
        size = 0
        for path in self._paths:
            with self._storage.open_input(path) as source:
                metadata = pq.read_metadata(source)
            groups = range(metadata.num_row_groups)
            size += sum(metadata.row_group(group).total_byte_size for group in groups)
        return size

    def read_here(self, names: Sequence[str], max_rows: int) -> pa.Table | None:
        """Columns without Spark; None where there are more rows, or where the files cannot be read
        from here."""
        if self._paths is None:
            return None
        columns = [f"c{self.frame.columns.index(name)}" for name in names]
        read, rows = [], 0
        for path in self._paths:
            with self._storage.open_input(path) as source, pq.ParquetFile(source) as file:
                rows += file.metadata.num_rows
                if rows > max_rows:
                    return None
                read.append(file.read(columns=columns, use_threads=False).select(columns))
        if not read:
            return None
        return pa.concat_tables(read).rename_columns(list(names))


@contextmanager
def staged(context: Context, frame: DataFrame, table: Table | None = None) -> Iterator[Staged]:
    """The rows of a frame as they are now; they are gone when the block ends.

    They lie in the session's `temp-dir`; without one in this machine's, if Spark runs here alone,
    else beside the data of `table`.
    """
    folder = f"{_place(context, table)}/frazil-{uuid4().hex}"
    storage = storage_of(context.properties, {} if table is None else table.config)
    try:
        if is_local(folder):
            yield _through_spark(context, frame, folder, storage)
        else:
            yield _through_arrow(context, frame, folder, storage)
    finally:
        storage.delete_folder(folder)


def _place(context: Context, table: Table | None) -> str:
    if context.settings.temp_dir is not None:
        return context.settings.temp_dir.rstrip("/")
    if _is_here(context):
        return tempfile.gettempdir()
    if table is not None:
        return data_location(table)
    raise BadRequest(
        "a frame has to be evaluated once, and there is no place that driver and executors share: "
        "name one as spark.frazil.temp-dir"
    )


def _is_here(context: Context) -> bool:
    """Whether Spark runs on one machine alone."""
    return (context.spark.conf.get("spark.master", None) or "").startswith("local")


# --- columns ------------------------------------------------------------------------------------


def _numbered(frame: DataFrame) -> tuple[DataFrame, StructType]:
    """The columns that Parquet can have, under names that it can have, and their types.

    A frame may have a name twice, and columns of nulls that have no type.
    """
    fields = frame.schema.fields
    renamed = frame.toDF(*(f"c{at}" for at in range(len(fields))))
    if not any(map(_has_no_type, fields)):
        return renamed, StructType([_stored(at, field) for at, field in enumerate(fields)])
    # What has no type may still fail when it is evaluated, as `assert_true` does.
    rows = renamed.select(
        *(
            fn.col(f"c{at}").isNull().alias(f"c{at}") if _has_no_type(field) else fn.col(f"c{at}")
            for at, field in enumerate(fields)
        )
    )
    types = [_stored(at, field) for at, field in enumerate(fields) if not _has_no_type(field)]
    return rows, StructType(types)


def _stored(at: int, field: StructField) -> StructField:
    return StructField(f"c{at}", field.dataType, True)


def _has_no_type(field: StructField) -> bool:
    return isinstance(field.dataType, NullType)


def _named(rows: DataFrame, frame: DataFrame) -> DataFrame:
    """The columns as the frame had them."""
    fields = frame.schema.fields
    if not any(map(_has_no_type, fields)):
        return rows.toDF(*(field.name for field in fields))
    return rows.select(
        *(
            fn.lit(None).alias(field.name)
            if _has_no_type(field)
            else fn.col(f"c{at}").alias(field.name)
            for at, field in enumerate(fields)
        )
    )


# --- through Spark ------------------------------------------------------------------------------


def _through_spark(context: Context, frame: DataFrame, folder: str, storage: Storage) -> Staged:
    rows, types = _numbered(frame)
    # To look for repeated values where there are none is a quarter of the work.
    options = {"compression": _CODEC, "parquet.enable.dictionary": "false"}
    with session_settings(context.spark, PARQUET_SETTINGS):
        rows.write.options(**options).parquet(folder)
    read = _named(context.spark.read.schema(types).parquet(folder), frame)
    # On Connect that one machine need not be this one.
    seen = _is_here(context) and storage.has_folder(folder)
    paths = tuple(path for path in storage.list(folder) if path.endswith(_SUFFIX)) if seen else None
    return Staged(read, storage, paths)


# --- through Arrow ------------------------------------------------------------------------------


def _through_arrow(context: Context, frame: DataFrame, folder: str, storage: Storage) -> Staged:
    """For places that Spark itself has no file system for."""
    rows, types = _numbered(frame)
    written = rows.mapInArrow(_write_task(storage, folder), "path string").collect()
    paths = tuple(str(row[0]) for row in written)
    if not paths:
        empty = context.spark.createDataFrame([], types)
        return Staged(_named(empty, frame), storage, paths)
    files = context.spark.createDataFrame(pa.table({"path": list(paths)}, _PATHS))
    names = [field.name for field in types.fields]
    spread = files.coalesce(1).repartition(len(paths))
    read = spread.mapInArrow(_read_task(storage, names), types)
    return Staged(_named(read, frame), storage, paths)


def _write_task(storage: Storage, folder: str) -> Task:
    """A file for each attempt of a task; only those that are returned are ever read."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = f"{folder}/{task_name()}{_SUFFIX}"
        groups = _row_groups(batches)
        first = next(groups, None)
        if first is not None:
            with (
                storage.open_output(path) as sink,
                pq.ParquetWriter(sink, first.schema, compression=_CODEC) as writer,
            ):
                for rows in chain([first], groups):
                    writer.write_table(rows)
        found = [] if first is None else [path]
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.string())], schema=_PATHS)

    return write


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        pending.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _read_task(storage: Storage, names: Sequence[str]) -> Task:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                with storage.open_input(path) as source, pq.ParquetFile(source) as file:
                    yield from file.iter_batches(columns=list(names))

    return read

"""Scans of a table's rows: planned by the catalog, read here, returned as Arrow.

Files are read in threads, in the order of the plan, with their deletes applied. The columns are
those of the scanned schema, whatever schema a file was written with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import datetime
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypedDict

import pyarrow as pa

from frazil.client.declare.client_table import Table, schema_of, snapshot_at
from frazil.client.declare.file_operations import check_options
from frazil.client.rows.row_files import thread_count
from frazil.client.rows.row_filters import RowFilter
from frazil.datafiles.arrow.array_conversion import batch_of
from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.metadata_columns import (
    LAST_UPDATED,
    METADATA_FIELDS,
    MIN_FORMAT_VERSION,
    ROW_ID,
)
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import storage_of
from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks, task_of
from frazil.datafiles.reading.task_reader import read_task
from frazil.values.types import NestedField, StructType, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import ALWAYS_TRUE, AlwaysFalse, Expression
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, expression_of
from frazil.wire.near_names import no_column

_SPLIT_BYTES: Final = 64 << 20
"""How much of a file one thread reads before it hands over the rows."""


class ScanOptions(TypedDict, total=False):
    """Options of a scan."""

    snapshot: str | int | None
    """A branch, a tag or an id."""
    as_of: datetime | int | None
    """A datetime with a zone, or milliseconds since 1970."""
    limit: int | None


def scan_of(
    table: Table, filter: Filter | None, columns: Sequence[str] | None, options: ScanOptions
) -> TableScan:
    """Return a scan; raise BadRequest if a column or an option is wrong."""
    check_options(options, ScanOptions)
    snapshot, as_of, limit = options.get("snapshot"), options.get("as_of"), options.get("limit")
    if snapshot is not None and as_of is not None:
        raise BadRequest("scan: give either snapshot or as_of")
    if limit is not None and limit < 0:
        raise BadRequest(f"scan: the limit {limit} is negative")
    if as_of is not None:
        snapshot = snapshot_at(table, _milliseconds(as_of))
    snapshot_id, schema = _pinned(table, snapshot)
    expression = ALWAYS_TRUE if filter is None else expression_of(filter)
    scan = TableScan(table, snapshot_id, schema, expression, _names(schema, columns), limit)
    RowFilter(expression, schema).check()
    scan.check_metadata_columns()
    return scan


@dataclass(frozen=True)
class TableScan:
    """The rows of one snapshot that match a filter. Each call reads them again."""

    table: Table
    snapshot_id: int | None
    """None before the first snapshot."""
    schema: StructType = attribute(repr=False)
    """The schema whose names the filter and the columns use."""
    filter: Expression
    columns: tuple[str, ...]
    limit: int | None

    def to_arrow(self) -> pa.Table:
        """Read all rows into a table."""
        return pa.Table.from_batches(self._batches(), self.arrow_schema)

    def to_batches(self) -> pa.RecordBatchReader:
        """Return a reader of the rows, which keeps few of them in memory at a time."""
        return pa.RecordBatchReader.from_batches(self.arrow_schema, self._batches())

    def to_pandas(self, **options: Any) -> Any:
        """Read all rows into a frame of pandas; the options are those of `pa.Table.to_pandas`."""
        _needs("pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Read all rows into a frame of polars."""
        return _needs("polars").from_arrow(self.to_arrow())

    def to_pylist(self) -> list[dict[str, Any]]:
        """Read all rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def count(self) -> int:
        """Return the number of rows; files without deletes that match as a whole are not opened."""
        known = 0
        read: list[ScanTask] = []
        counted = TableScan(self.table, self.snapshot_id, self.schema, self.filter, (), None)
        with self.table.leased_plans() as table:
            for task in self._tasks(table):
                if task.residual is True and not task.delete_files:
                    known += task.data_file.record_count
                else:
                    read.append(task)
            total: int = known + sum(batch.num_rows for batch in counted._read(read))
        return total if self.limit is None else min(self.limit, total)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let DuckDB, polars and other libraries of Arrow read the rows."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([_result_field(field) for field in self._fields])

    def check_metadata_columns(self) -> None:
        lineage = [name for name in self._metadata_columns if name in (ROW_ID, LAST_UPDATED)]
        if lineage and self.table.format_version < MIN_FORMAT_VERSION:
            raise BadRequest(
                f"column {lineage[0]}: {self.table} has format version "
                f"{self.table.format_version}, and rows have it since version {MIN_FORMAT_VERSION}"
            )

    # --- columns -------------------------------------------------------------------------------

    @cached_property
    def _own(self) -> dict[str, NestedField]:
        return {field.name: field for field in self.schema.fields}

    @cached_property
    def _fields(self) -> tuple[NestedField, ...]:
        return tuple(self._own.get(name) or METADATA_FIELDS[name] for name in self.columns)

    @cached_property
    def _metadata_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self._own)

    @cached_property
    def _row_filter(self) -> RowFilter:
        return RowFilter(self.filter, self.schema)

    # --- rows ----------------------------------------------------------------------------------

    def _tasks(self, table: Table) -> tuple[ScanTask, ...]:
        if self.snapshot_id is None or isinstance(self.filter, AlwaysFalse) or self.limit == 0:
            return ()
        plan = table.plan(
            self.filter,
            snapshot=self.snapshot_id,
            use_snapshot_schema=self.schema is not self.table.schema,
            sequence_numbers=LAST_UPDATED in self._metadata_columns,
        )
        return tuple(map(task_of, plan.tasks))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        left = self.limit
        with self.table.leased_plans() as table:
            for batch in self._read(self._tasks(table)):
                if left is None:
                    yield batch
                    continue
                yield batch.slice(0, left)
                left -= batch.num_rows
                if left <= 0:
                    return

    def _read(self, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
        """Read tasks in threads, a few ahead of the caller."""
        parts = split_tasks(tasks, _SPLIT_BYTES)
        threads = 1 if len(tasks) == 1 else thread_count()
        with ThreadPoolExecutor(threads, thread_name_prefix="frazil-scan") as pool:
            running: deque[Future[list[pa.RecordBatch]]] = deque()
            try:
                for part in islice(parts, threads + 1):
                    running.append(pool.submit(self._rows, part))
                while running:
                    batches = running.popleft().result()
                    for part in islice(parts, 1):
                        running.append(pool.submit(self._rows, part))
                    yield from batches
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _rows(self, task: ScanTask) -> list[pa.RecordBatch]:
        """Return the matching rows of a task, with the columns of the result."""
        filtered = task.residual is not True
        needed = {field.name for field in self._row_filter.columns()} if filtered else set()
        read = StructType(
            tuple(
                field
                for field in self.schema.fields
                if field.name in needed or field.name in self.columns
            )
        )
        batches = []
        for batch in read_task(
            task,
            self._facts,
            self._storage,
            read,
            metadata_columns=self._metadata_columns,
        ):
            if filtered:
                batch = batch.filter(self._row_filter.mask(batch))
            if batch.num_rows:
                batches.append(self._result(batch))
        return batches

    @cached_property
    def _facts(self) -> PortableTable:
        return PortableTable.of(self.table)

    @cached_property
    def _storage(self) -> Any:
        return storage_of(self.table.config)

    def _result(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self._fields:
            if field.type.type_id is TypeId.UNKNOWN:
                columns.append(pa.nulls(batch.num_rows))
                continue
            column = batch.column(field.name)
            if isinstance(column.type, pa.ExtensionType) and not _is_known(column.type):
                column = column.storage
            columns.append(column)
        return batch_of(columns, self.arrow_schema, batch.num_rows)


# --- columns of the result ------------------------------------------------------------------------


def _result_field(field: NestedField) -> pa.Field:
    if field.type.type_id is TypeId.UNKNOWN:
        return pa.field(field.name, pa.null())
    return _plain(arrow_schema(StructType((field,))).field(0))


def _plain(field: pa.Field) -> pa.Field:
    """Return a field without field ids, which are those of files."""
    return pa.field(field.name, _plain_type(field.type), nullable=field.nullable)


def _plain_type(type_: Any) -> pa.DataType:
    if isinstance(type_, pa.ExtensionType) and not _is_known(type_):
        return type_.storage_type
    if pa.types.is_struct(type_):
        return pa.struct([_plain(part) for part in type_])
    if pa.types.is_list(type_):
        return pa.list_(_plain(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_field), _plain(type_.item_field))
    return type_


def _is_known(type_: Any) -> bool:
    """Whether other libraries know an extension type; geometries are returned as their binary."""
    return isinstance(type_, pa.UuidType)


# --- arguments ------------------------------------------------------------------------------------


def _pinned(table: Table, snapshot: str | int | None) -> tuple[int | None, StructType]:
    """Return the snapshot and its schema; a branch is read with the table's schema, as in Java."""
    if snapshot is None or (snapshot == MAIN and MAIN not in table.refs):
        return (table.refs[MAIN].snapshot_id if MAIN in table.refs else None), table.schema
    snapshot_id = table.snapshot(snapshot).snapshot_id
    ref = table.refs.get(snapshot) if isinstance(snapshot, str) else None
    if ref is not None and ref.type == "branch":
        return snapshot_id, table.schema
    schema = schema_of(table, snapshot_id)
    return snapshot_id, table.schema if schema == table.schema else schema


def _names(schema: StructType, columns: Sequence[str] | None) -> tuple[str, ...]:
    known = [field.name for field in schema.fields]
    if columns is None:
        return tuple(known)
    if isinstance(columns, str):
        raise BadRequest(f"columns: give a list of names, such as [{columns!r}]")
    for name in columns:
        if name not in known and name not in METADATA_FIELDS:
            raise BadRequest(f"columns: {no_column(name, known)}")
    if len(set(columns)) < len(columns):
        raise BadRequest("columns: a name is given twice")
    return tuple(columns)


def _milliseconds(time: datetime | int) -> int:
    if isinstance(time, int):
        return time
    if time.tzinfo is None:
        raise BadRequest("as_of: give the datetime a zone, such as datetime.now(timezone.utc)")
    return int(time.timestamp() * 1000)


def _needs(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise BadRequest(f"{package} is not installed: install it, or use to_arrow()") from None

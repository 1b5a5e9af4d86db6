"""Reads a table for `spark.read.format("frazil")`: the catalog plans, tasks read through Arrow.

Spark does not tell a Python source which columns it needs: `option("columns", …)` and `schema(…)`
do. It could hand down filters, but keeps what was planned by the filters of one query for all later
ones on the same frame (seen in Spark 4.1), whose rows would be missing: so it is given none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.spark_batches import to_spark
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks, task_of
from frazil.datafiles.reading.task_reader import read_task
from frazil.spark.schema.spark_types import spark_schema, spark_type
from frazil.spark.streams.source_options import SourceOptions
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

SPLIT_BYTES: Final = 64 << 20
OPEN_BYTES: Final = 4 << 20
"""What opening a file is reckoned as, as Iceberg does in `read.split.open-file-cost`."""


@dataclass(frozen=True)
class TaskReader:
    """Reads tasks on executors."""

    facts: PortableTable
    storage: Storage
    columns: StructType

    def batches(self, tasks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            for rows in read_task(ScanTask.from_json(task), self.facts, self.storage, self.columns):
                yield to_spark(rows, self.columns)


class TasksPartition(InputPartition):
    """What one task of Spark's reads."""

    def __init__(self, tasks: Sequence[ScanTask]) -> None:
        super().__init__(tuple(task.to_json() for task in tasks))


def task_reader(
    options: SourceOptions, table: Table, schema: SparkStruct, of_table: StructType
) -> TaskReader:
    columns = wanted_columns(table, schema, of_table)
    return TaskReader(PortableTable.of(table), options.storage(table.config), columns)


def wanted_columns(table: Table, schema: SparkStruct, of_table: StructType) -> StructType:
    """The table's columns that a schema of Spark's names, with the types that they have."""
    by_name = {field.name: field for field in of_table.fields}
    found = []
    for asked in schema.fields:
        field = by_name.get(asked.name)
        if field is None:
            raise BadRequest(f"{table} has no column {asked.name}; it has {', '.join(by_name)}")
        of_spark = spark_type(field.type)
        if _plain(asked.dataType) != _plain(of_spark):
            raise BadRequest(
                f"{table}: column {field.name} is read as {of_spark.simpleString()}, not as "
                f"{asked.dataType.simpleString()}: cast it afterwards"
            )
        found.append(field)
    return StructType(tuple(found))


def _plain(type_: Any) -> str:
    """Types compared without what may be null."""
    text: str = type_.simpleString()
    return text


def partitions_of(tasks: Iterable[ScanTask]) -> list[InputPartition]:
    """Large files in parts, small ones together, in their order."""
    found: list[InputPartition] = []
    pending: list[ScanTask] = []
    size = 0
    for task in split_tasks(tasks, SPLIT_BYTES):
        cost = max(task.size_in_bytes, OPEN_BYTES)
        if pending and size + cost > SPLIT_BYTES:
            found.append(TasksPartition(pending))
            pending, size = [], 0
        pending.append(task)
        size += cost
    if pending:
        found.append(TasksPartition(pending))
    return found


# --- one snapshot ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pinned:
    """What is read, chosen once: a frame that is evaluated twice sees the same rows."""

    snapshot_id: int | None
    is_named: bool
    """Whether the snapshot was asked for, and is read with its own schema."""

    def schema(self, table: Table) -> StructType:
        if self.snapshot_id is None or not self.is_named:
            return table.schema
        schema_id = table.snapshot(self.snapshot_id).schema_id
        return table.schema if schema_id is None else table.schema_by_id(schema_id)


def pin(options: SourceOptions, table: Table) -> Pinned:
    named = {
        "snapshot-id": options.snapshot_id,
        "as-of-timestamp": options.as_of_timestamp_ms,
        "tag": options.tag,
    }
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise BadRequest(f"{table}: give one of {' and '.join(given)}")
    if options.snapshot_id is not None:
        return Pinned(table.snapshot(options.snapshot_id).snapshot_id, True)
    if options.tag is not None:
        return Pinned(table.snapshot(options.tag).snapshot_id, True)
    if options.as_of_timestamp_ms is not None:
        return Pinned(_at(table, options.as_of_timestamp_ms), True)
    if options.branch in table.refs:
        return Pinned(table.refs[options.branch].snapshot_id, False)
    if not table.refs:
        return Pinned(None, False)
    return Pinned(table.snapshot(options.branch).snapshot_id, False)


def _at(table: Table, timestamp_ms: int) -> int:
    found: int | None = None
    for entry in table.metadata.get("snapshot-log") or ():
        if entry["timestamp-ms"] <= timestamp_ms:
            found = int(entry["snapshot-id"])
    if found is None:
        raise BadRequest(f"{table} had no snapshot yet at {timestamp_ms} ms since 1970")
    return found


def read_schema(options: SourceOptions, table: Table, of_table: StructType) -> SparkStruct:
    """The columns of the frame."""
    if options.columns is None:
        return spark_schema(of_table)
    by_name = {field.name: field for field in of_table.fields}
    for name in options.columns:
        if name not in by_name:
            raise BadRequest(
                f"option columns: {table} has no column {name}; it has {', '.join(by_name)}"
            )
    return spark_schema(StructType(tuple(by_name[name] for name in options.columns)))


class TableReader(DataSourceReader):
    """Rows of one snapshot."""

    def __init__(self, options: SourceOptions, schema: SparkStruct, pinned: Pinned | None) -> None:
        table = options.load()
        self._options = options
        self._pinned = pinned or pin(options, table)
        self._schema = self._pinned.schema(table)
        self._reader = task_reader(options, table, schema, self._schema)

    def partitions(self) -> list[InputPartition]:
        if self._pinned.snapshot_id is None:
            return []
        plan = self._options.load().plan(
            snapshot=self._pinned.snapshot_id,
            use_snapshot_schema=self._pinned.is_named,
        )
        return partitions_of(task_of(task) for task in plan.tasks)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark asks for one partition even where there are none.
        return self._reader.batches(() if partition is None else partition.value)

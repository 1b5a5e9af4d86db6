"""Reads a table for `spark.read` and `spark.readStream` with `format("frazil")`.

The catalog plans, and tasks read through Arrow. Spark does not pass the needed columns to a Python
source, so users name them with `option("columns", …)` or `schema(…)`. Spark 4.1 could pass filters,
but it reuses the plan of one query for all later queries on the same frame, which would then miss
rows. Filters are therefore not supported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from frazil.client.declare.client_table import Snapshot, Table, schema_of, snapshot_at
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.scan_tasks import ScanTask, split_tasks, task_of
from frazil.datafiles.reading.task_reader import ScanReading
from frazil.spark.core.name_matching import NameMatcher
from frazil.spark.core.write_audit import BRANCH_SETTING, is_audited
from frazil.spark.executor.worker_tasks import task_settings
from frazil.spark.schema.spark_types import spark_schema, spark_type
from frazil.spark.streams.micro_batches import Limits, MicroBatches, Offset, offset_of
from frazil.spark.streams.source_options import SourceOptions
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest

SPLIT_BYTES: Final = 64 << 20
OPEN_BYTES: Final = 4 << 20
"""The cost of opening a file in bytes, like Iceberg's `read.split.open-file-cost`."""

_NAMES: Final = NameMatcher(case_sensitive=True)
"""Options and schemas name columns exactly."""


class TasksPartition(InputPartition):
    """The scan tasks that one task of Spark reads."""

    number = 0
    """The partition's number in its scan, which has `count` partitions."""
    count = 1

    def __init__(self, tasks: Sequence[ScanTask]) -> None:
        super().__init__(tuple(task.to_json() for task in tasks))


def scan_reading(
    options: SourceOptions, table: Table, schema: SparkStruct, of_table: StructType
) -> ScanReading:
    columns = wanted_columns(table, schema, of_table)
    return ScanReading(PortableTable.of(table), options.storage(table.config), columns)


def wanted_columns(table: Table, schema: SparkStruct, of_table: StructType) -> StructType:
    """Return the table's columns that Spark's schema names; refuse other types."""
    columns = _NAMES.chosen(of_table, schema.names, table)
    for asked, field in zip(schema.fields, columns, strict=True):
        of_spark = spark_type(field.type)
        # The text of a type does not say what may be null.
        if asked.dataType.simpleString() != of_spark.simpleString():
            raise BadRequest(
                f"{table}: column {field.name} is read as {of_spark.simpleString()}, not as "
                f"{asked.dataType.simpleString()}: cast it afterwards"
            )
    return StructType(columns)


def partitions_of(tasks: Iterable[ScanTask]) -> list[TasksPartition]:
    """Split large files and put small ones together, in their order."""
    partitions: list[TasksPartition] = []
    pending: list[ScanTask] = []
    size = 0
    for task in split_tasks(tasks, SPLIT_BYTES):
        cost = max(task.size_in_bytes, OPEN_BYTES)
        if pending and size + cost > SPLIT_BYTES:
            partitions.append(TasksPartition(pending))
            pending, size = [], 0
        pending.append(task)
        size += cost
    if pending:
        partitions.append(TasksPartition(pending))
    return partitions


# --- one snapshot ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PinnedSnapshot:
    """The snapshot to read, chosen once, so that each evaluation of a frame sees the same rows."""

    snapshot_id: int | None
    is_named: bool
    """Whether an option names the snapshot, which is then read with its own schema."""

    def schema(self, table: Table) -> StructType:
        if self.snapshot_id is None or not self.is_named:
            return table.schema
        return schema_of(table, self.snapshot_id)


def pin(options: SourceOptions, table: Table) -> PinnedSnapshot:
    named = {
        "snapshot-id": options.snapshot_id,
        "as-of-timestamp": options.as_of_timestamp_ms,
        "tag": options.tag,
    }
    chosen = [name for name, value in named.items() if value is not None]
    if len(chosen) > 1:
        raise BadRequest(f"{table}: give one of {' and '.join(chosen)}")
    if options.as_of_timestamp_ms is not None:
        return PinnedSnapshot(snapshot_at(table, options.as_of_timestamp_ms), True)
    selector = options.tag if options.snapshot_id is None else options.snapshot_id
    if selector is not None:
        return PinnedSnapshot(table.snapshot(selector).snapshot_id, True)
    if options.branch in table.refs:
        return PinnedSnapshot(table.refs[options.branch].snapshot_id, False)
    if not table.refs:
        return PinnedSnapshot(None, False)
    return PinnedSnapshot(table.snapshot(options.branch).snapshot_id, False)


def read_schema(options: SourceOptions, table: Table, of_table: StructType) -> SparkStruct:
    """Return the columns of the frame."""
    if options.columns is None:
        return spark_schema(of_table)
    columns = _NAMES.chosen(of_table, options.columns, f"option columns: {table}")
    return spark_schema(StructType(columns))


class TableReader(DataSourceReader):
    """Reads the rows of one snapshot."""

    def __init__(
        self, options: SourceOptions, schema: SparkStruct, pinned: PinnedSnapshot | None
    ) -> None:
        table = options.load()
        self._options = options
        self._pinned = pinned or pin(options, table)
        self._schema = self._pinned.schema(table)
        self._reader = scan_reading(options, table, schema, self._schema)
        self._audits: Mapping[str | None, int] = {}
        """The heads of the branches that `spark.wap.branch` may name."""
        if is_audited(table.properties) and not self._pinned.is_named and not options.has_branch:
            self._audits = {name: ref.snapshot_id for name, ref in table.refs.items()}

    def partitions(self) -> list[TasksPartition]:
        partitions = self._planned(self._pinned.snapshot_id)
        for number, partition in enumerate(partitions):
            partition.number, partition.count = number, len(partitions)
        return partitions

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TasksPartition):
            # Spark reads one partition even if there are none.
            partition = TasksPartition(())
        branch = task_settings(BRANCH_SETTING).get(BRANCH_SETTING) if self._audits else None
        if branch not in self._audits:
            return self._reader.batches(partition.value)
        # Spark passes its settings to tasks, but not to the process that has planned them.
        planned = self._planned(self._audits[branch])[partition.number :: partition.count]
        return self._reader.batches(task for share in planned for task in share.value)

    def _planned(self, snapshot_id: int | None) -> list[TasksPartition]:
        if snapshot_id is None:
            return []
        plan = self._options.load().plan(
            snapshot=snapshot_id, use_snapshot_schema=self._pinned.is_named
        )
        return partitions_of(task_of(task) for task in plan.tasks)


_KEPT_PLANS: Final = 64


class TableStreamReader(DataSourceStreamReader):
    """Reads a stream of micro-batches.

    The driver has one instance as long as the query runs, and asks it for offsets. The catalog
    plans the files between two offsets.
    """

    def __init__(self, options: SourceOptions, schema: SparkStruct) -> None:
        table = options.load()
        self._options = options
        self._reader = scan_reading(options, table, schema, table.schema)
        self._seen: Offset | None = None
        """The end of the last batch that Spark has named."""
        self._last: int | None = None
        """The last snapshot to read, for a query with the trigger AvailableNow."""
        self._plans: dict[tuple[int, bool], Sequence[ScanTask]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors need."""
        return {**self.__dict__, "_plans": {}}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._seen = self._batches().first()
        return self._seen.to_json()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return the end of the next batch.

        Spark up to 4.1 does not pass the start of the batch. It is the end of the last batch that
        was planned, also after a restart. It passes no limit either, so that a batch has everything
        that is available.
        """
        batches = self._batches()
        if start is not None:
            self._seen = offset_of(start)
        if self._seen is None:
            self._seen = batches.first()
        return batches.end_after(self._seen, limits_of(limit, self._options.limits)).to_json()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[TasksPartition]:
        self._seen = offset_of(end)
        if start == end:
            return []
        return partitions_of(self._batches(whole=True).between(offset_of(start), self._seen))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.batches(partition.value)

    def commit(self, end: Mapping[str, Any]) -> None:
        self._seen = offset_of(end)

    # --- since Spark 4.2 ------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        datasource: Any = import_module("pyspark.sql.streaming.datasource")
        limits = self._options.limits
        # Spark takes one limit; `limits_of` applies the other one too.
        if limits.max_files is not None:
            return datasource.ReadMaxFiles(limits.max_files)
        if limits.max_rows is not None:
            return datasource.ReadMaxRows(limits.max_rows)
        return datasource.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        history = _history(self._options.load(), self._options.branch)
        self._last = history[-1].snapshot_id if history else None

    # --- the table ------------------------------------------------------------------------------

    def _batches(self, *, whole: bool = False) -> MicroBatches:
        """Return the batches of the table as it is now; with `whole` also those after `_last`."""
        table = self._options.load()
        history = _history(table, self._options.branch)
        if self._last is not None and not whole:
            indices = {snapshot.snapshot_id: index for index, snapshot in enumerate(history)}
            history = history[: indices.get(self._last, len(history) - 1) + 1]

        def files_of(snapshot: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
            return self._planned(table, snapshot, scan_all)

        return MicroBatches(
            history,
            files_of,
            skips=self._options.skips,
            from_timestamp_ms=self._options.from_timestamp_ms,
        )

    def _planned(self, table: Table, snapshot: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
        """Plan a snapshot once, since it never changes."""
        key = (snapshot.snapshot_id, scan_all)
        tasks = self._plans.get(key)
        if tasks is None:
            tasks = plan(table, snapshot, scan_all)
            while len(self._plans) >= _KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = tasks
        return tasks


def plan(table: Table, snapshot: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
    """Plan a snapshot's files, sorted by path, so that a position always means the same file.

    Files that it has added are read without deletes, which came later; with `scan_all`, all files
    that are live in it are read with their deletes.
    """
    if scan_all:
        planned = table.plan(snapshot=snapshot.snapshot_id, use_snapshot_schema=False)
    else:
        planned = table.plan(
            from_snapshot=snapshot.parent_snapshot_id,
            to_snapshot=snapshot.snapshot_id,
            use_snapshot_schema=False,
        )
    tasks = (task_of(task) for task in planned.tasks)
    return sorted(tasks, key=lambda task: task.file_path)


def limits_of(limit: Any, own: Limits) -> Limits:
    """Combine Spark's limit with the options; none if Spark asks for everything, or names none."""
    max_files, max_rows = getattr(limit, "max_files", None), getattr(limit, "max_rows", None)
    if max_files is None and max_rows is None:
        return Limits()
    return Limits(max_files or own.max_files, max_rows or own.max_rows)


def _history(table: Table, branch: str) -> list[Snapshot]:
    """Return the known snapshots of the branch, oldest first."""
    if not table.refs:
        return []
    return list(table.ancestors(branch))[::-1]

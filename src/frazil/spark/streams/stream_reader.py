"""Reads a table as a stream for `spark.readStream.format("frazil")`.

One instance lives on the driver as long as the query does and is asked for offsets; the files
between two of them are planned by the catalog and read through Arrow in tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType as SparkStruct

from frazil.client.declare.client_table import Snapshot, Table
from frazil.datafiles.reading.scan_tasks import ScanTask, task_of
from frazil.spark.streams.micro_batches import Limits, MicroBatches, Offset, offset_of
from frazil.spark.streams.source_options import SourceOptions
from frazil.spark.streams.source_readers import partitions_of, task_reader

_KEPT_PLANS: Final = 64


class TableStreamReader(DataSourceStreamReader):
    def __init__(self, options: SourceOptions, schema: SparkStruct) -> None:
        table = options.load()
        self._options = options
        self._reader = task_reader(options, table, schema, table.schema)
        self._seen: Offset | None = None
        """The end of the last batch that Spark has spoken of."""
        self._last: int | None = None
        """The snapshot that a query which reads what is there now ends with."""
        self._plans: dict[tuple[int, bool], Sequence[ScanTask]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What executors need."""
        return {**self.__dict__, "_plans": {}}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        self._seen = self._batches().first()
        return self._seen.to_json()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Spark up to 4.1 does not say where the batch begins, but it has said so before: by the
        end of the last batch that was planned, also after a restart."""
        batches = self._batches()
        if start is not None:
            self._seen = offset_of(start)
        if self._seen is None:
            self._seen = batches.first()
        limits = self._options.limits if limit is None else limits_of(limit, self._options.limits)
        return batches.end_after(self._seen, limits).to_json()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        self._seen = offset_of(end)
        if start == end:
            return []
        return partitions_of(self._batches(whole=True).between(offset_of(start), self._seen))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.batches(partition.value)

    def commit(self, end: Mapping[str, Any]) -> None:
        self._seen = offset_of(end)

    # --- asked for from Spark 4.2 on ----------------------------------------------------------

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        datasource: Any = import_module("pyspark.sql.streaming.datasource")
        limits = self._options.limits
        # Spark takes one limit; the other holds all the same, see `limits_of`.
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
        """As the table is now; a batch that was begun is planned in the whole history."""
        table = self._options.load()
        history = _history(table, self._options.branch)
        if self._last is not None and not whole:
            places = {snapshot.snapshot_id: at for at, snapshot in enumerate(history)}
            history = history[: places.get(self._last, len(history) - 1) + 1]

        def files_of(snapshot: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
            return self._planned(table, snapshot, scan_all)

        return MicroBatches(
            history,
            files_of,
            skips=self._options.skips,
            from_timestamp_ms=self._options.from_timestamp_ms,
        )

    def _planned(self, table: Table, snapshot: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
        """A snapshot never changes, so that it is planned once."""
        key = (snapshot.snapshot_id, scan_all)
        found = self._plans.get(key)
        if found is None:
            found = plan(table, snapshot, scan_all)
            while len(self._plans) >= _KEPT_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = found
        return found


def plan(table: Table, snapshot: Snapshot, scan_all: bool) -> Sequence[ScanTask]:
    """The files of a snapshot by their paths: a position means the same file whoever counts.

    What it has added is read without deletes, which are later ones; what was live in it with them.
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
    """What Spark asks for, together with what the options say, unless everything is wanted."""
    max_files, max_rows = getattr(limit, "max_files", None), getattr(limit, "max_rows", None)
    if max_files is None and max_rows is None:
        return Limits()
    return Limits(max_files or own.max_files, max_rows or own.max_rows)


def _history(table: Table, branch: str) -> list[Snapshot]:
    """The branch's snapshots that are known, oldest first; of an empty table none."""
    if not table.refs:
        return []
    return list(table.ancestors(branch))[::-1]

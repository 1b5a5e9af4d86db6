"""Copy-on-write: rewrite files without the rows that match a predicate."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterable

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    _expression_to_complementary_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata

from frazil.pyiceberg.manifest_reading import RowFilter
from frazil.pyiceberg.row_lineage import RowLineage, UpdatedRows, lineage_metadata

Rewritten = tuple[DataFile, list[DataFile]]
"""A file, and the new files with its remaining rows."""


class Rewriter:
    """Rewrites files of the state that a transaction sees."""

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        predicate: BooleanExpression,
        case_sensitive: bool,
        updated_rows: UpdatedRows | None,
    ) -> None:
        self.commit_uuid = uuid.uuid4()
        self._metadata = metadata
        self._io = io
        self._predicate = predicate
        self._case_sensitive = case_sensitive
        self._updated_rows = updated_rows
        self._counter = itertools.count(0)

    def rewritten_files(self, metadata: TableMetadata, snapshot_id: int | None) -> list[Rewritten]:
        """Rewrite the files of a snapshot that contain matching rows."""
        self._metadata = metadata
        tasks = self._tasks(snapshot_id)
        lineage = self._lineage(tasks, snapshot_id)
        bound = bind(metadata.schema(), self._predicate, self._case_sensitive)
        remains = _expression_to_complementary_pyarrow(bound, metadata.schema())
        rewritten: list[Rewritten] = []
        for task in tasks:
            rows = self._rows(task, lineage)
            remaining = rows.filter(remains)
            if self._updated_rows is not None:
                self._updated_rows.note(rows.filter(~remains))
            if len(remaining) == 0:
                rewritten.append((task.file, []))
            elif len(remaining) != len(rows):
                rewritten.append((task.file, list(self._write(remaining, lineage))))
        return rewritten

    def note_rows_of(self, dropped: Collection[DataFile], snapshot_id: int | None) -> None:
        """Remember the row ids of dropped files, because an upsert may add their rows again."""
        if not dropped:
            return
        tasks = [task for task in self._tasks(snapshot_id) if task.file in dropped]
        lineage = self._lineage(tasks, snapshot_id)
        if lineage is not None and self._updated_rows is not None:
            for task in tasks:
                self._updated_rows.note(lineage.rows(task))

    def _lineage(self, tasks: list[FileScanTask], snapshot_id: int | None) -> RowLineage | None:
        if self._metadata.format_version < 3 or snapshot_id is None:
            return None
        paths = {task.file.file_path for task in tasks}
        matching = RowFilter(self._predicate, self._metadata.schema(), self._case_sensitive)
        return RowLineage.of(self._metadata, self._io, snapshot_id, paths, matching)

    def _tasks(self, snapshot_id: int | None) -> list[FileScanTask]:
        scan = DataScan(
            table_metadata=self._metadata,
            io=self._io,
            row_filter=self._predicate,
            case_sensitive=self._case_sensitive,
            snapshot_id=snapshot_id,
        )
        return list(scan.plan_files())

    def _rows(self, task: FileScanTask, lineage: RowLineage | None) -> pa.Table:
        """Return all live rows of a file in the current schema, with position deletes applied."""
        if lineage is not None:
            return lineage.rows(task)
        return ArrowScan(
            table_metadata=self._metadata,
            io=self._io,
            projected_schema=self._metadata.schema(),
            row_filter=AlwaysTrue(),
        ).to_table(tasks=[task])

    def _write(self, rows: pa.Table, lineage: RowLineage | None) -> Iterable[DataFile]:
        metadata = self._metadata if lineage is None else lineage_metadata(self._metadata)
        return _dataframe_to_data_files(
            io=self._io,
            df=rows,
            table_metadata=metadata,
            write_uuid=self.commit_uuid,
            counter=self._counter,
        )

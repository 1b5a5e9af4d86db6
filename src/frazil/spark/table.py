"""`SparkTable`, a handle for reading a table into frames and writing frames into it.

Each method loads the table when it is called, so that a handle is never out of date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.iceberg_filters import spark_condition
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import column
from frazil.spark.core.progress import progress
from frazil.spark.core.statement_runs import Result, Target
from frazil.spark.reading import frame_scans
from frazil.spark.rows import row_changes
from frazil.spark.rows.merge_clauses import Merge, on_condition
from frazil.spark.rows.merge_statement import MergeBuilder, Source
from frazil.spark.schema.spark_types import iceberg_schema
from frazil.spark.sql.statement_tables import frame_of_view
from frazil.spark.sql.table_names import SqlSession
from frazil.spark.streams import stream_statements
from frazil.spark.writing.frame_statements import FrameStatement
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.wire.errors import BadRequest, NoSuchTable
from frazil.wire.expressions import Expression
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Condition: TypeAlias = "str | Column | Expression"
"""SQL, a Column, or a filter of the client."""


@dataclass(frozen=True)
class SparkTable:
    context: Context
    identifier: Identifier
    branch: str = MAIN
    """The branch that is read and written."""

    def __str__(self) -> str:
        return str(self.identifier)

    def load(self) -> Table:
        """Load the table as it is now, by the client."""
        return self.context.client.load_table(self.identifier)

    def on_branch(self, name: str) -> SparkTable:
        return replace(self, branch=name)

    # --- reading ----------------------------------------------------------------------------------

    def scan(
        self,
        filter: Condition | None = None,
        columns: Sequence[str] | None = None,
        *,
        snapshot: int | None = None,
        timestamp: datetime | int | str | None = None,
        ref: str | None = None,
        from_snapshot: int | None = None,
        to_snapshot: int | None = None,
        metadata_columns: Sequence[str] = (),
    ) -> DataFrame:
        """Return the rows of one snapshot as a frame.

        The snapshot is chosen now: the newest of the branch, a `snapshot` by its id, the one that
        was current at a `timestamp`, or that of a `ref`. With `from_snapshot` the rows are those
        that were appended after it, up to `to_snapshot`. A view has only `filter` and `columns`.
        """
        try:
            table = self.load()
        except NoSuchTable:
            moments = (snapshot, timestamp, ref, from_snapshot, to_snapshot)
            chooses = self.branch != MAIN or any(value is not None for value in moments)
            view = self._view(filter, columns, chooses=chooses or bool(metadata_columns))
            if view is None:
                raise
            return view
        return frame_scans.scan_of(
            self.context,
            table,
            filter=filter,
            columns=columns,
            snapshot=snapshot,
            timestamp=timestamp,
            ref=ref if ref is not None or self.branch == MAIN else self.branch,
            from_snapshot=from_snapshot,
            to_snapshot=to_snapshot,
            metadata_columns=metadata_columns,
        )

    # --- writing frames ---------------------------------------------------------------------------

    def append(
        self,
        frame: DataFrame,
        *,
        merge_schema: bool = False,
        options: WriteOptions | None = None,
        **commit_options: Any,
    ) -> Result:
        """Add the frame's rows, with columns matched by name.

        `merge_schema` adds columns that the table lacks and widens types, in the same commit.
        """
        with progress(self.context, f"append to {self}"):
            return self._statement(frame, merge_schema, options, commit_options).append()

    def overwrite(
        self,
        frame: DataFrame,
        where: Condition | None = None,
        *,
        merge_schema: bool = False,
        options: WriteOptions | None = None,
        **commit_options: Any,
    ) -> Result:
        """Replace all rows, or those that match `where`, which must cover whole files."""
        with progress(self.context, f"overwrite {self}"):
            return self._statement(frame, merge_schema, options, commit_options).overwrite(where)

    def overwrite_partitions(
        self,
        frame: DataFrame,
        *,
        merge_schema: bool = False,
        options: WriteOptions | None = None,
        **commit_options: Any,
    ) -> Result:
        """Replace the partitions that the frame has rows for."""
        with progress(self.context, f"overwrite partitions of {self}"):
            statement = self._statement(frame, merge_schema, options, commit_options)
            return statement.overwrite_partitions()

    # --- changing rows ----------------------------------------------------------------------------

    def delete(self, where: Condition, **options: Any) -> Result:
        """Delete the rows that match; `"true"` deletes all rows."""
        if where is None:  # A variable that was not set must not delete everything.
            raise BadRequest(f'where: give a condition; "true" deletes all rows of {self}')
        with progress(self.context, f"delete from {self}"):
            return row_changes.delete(self.context, self._target(), where, **options)

    def update(
        self, set: Mapping[str, str | Column], where: Condition | None = None, **options: Any
    ) -> Result:
        """Set columns to expressions, as SQL or Columns, in the rows that match."""
        with progress(self.context, f"update {self}"):
            return row_changes.update(self.context, self._target(), set, where, **options)

    def merge(
        self,
        source: Source,
        on: str | Column | Sequence[str],
        *,
        target_alias: str = "target",
        source_alias: str = "source",
    ) -> MergeBuilder:
        """Start a MERGE: add its clauses, then `execute`.

        `on` is a condition, or the name of a column that both sides have, or several such names.
        """
        merge = Merge(
            on=on_condition(on, target_alias, source_alias),
            target_alias=target_alias,
            source_alias=source_alias,
        )
        return MergeBuilder(self.context, self._target(), source, merge)

    # --- streams ----------------------------------------------------------------------------------

    def write_stream(self, frame: DataFrame, **options: Any) -> StreamingQuery:
        """Write a streaming frame, each epoch exactly once."""
        return stream_statements.write_stream(self.context, self._target(), frame, **options)

    def read_stream(self, **options: Any) -> DataFrame:
        """Return existing rows, and those that are appended later, as a stream.

        The options set where it starts, and how much it reads at once.
        """
        return stream_statements.read_stream(self.context, self._target(), **options)

    # --- parts ------------------------------------------------------------------------------------

    def _view(
        self, filter: Condition | None, columns: Sequence[str] | None, *, chooses: bool
    ) -> DataFrame | None:
        """Return the rows of the view of this name; None if there is none."""
        frame = frame_of_view(SqlSession(self.context), self.identifier)
        if frame is None:
            return None
        if chooses:
            raise BadRequest(f"{self} is a view, so it has no snapshots and no metadata columns")
        if isinstance(filter, Expression):
            filter = spark_condition(filter, iceberg_schema(frame.schema))
        if filter is not None:
            frame = frame.where(filter)
        return frame if columns is None else frame.select(*(column(name) for name in columns))

    def _target(self) -> Target:
        return Target(self.identifier, self.branch)

    def _statement(
        self,
        frame: DataFrame,
        merge_schema: bool,
        options: WriteOptions | None,
        commit_options: Mapping[str, Any],
    ) -> FrameStatement:
        return FrameStatement(
            self.context, self._target(), frame, merge_schema, options, commit_options
        )

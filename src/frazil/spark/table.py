"""A table as a Spark user has it: frames come out of it and go into it.

Nothing is loaded until a verb is called, and each verb loads the table anew, so that a handle never
grows old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column, DataFrame

from frazil.client.declare.catalog_paths import identifier_of
from frazil.client.declare.client_table import Table
from frazil.spark.core.context import Context
from frazil.spark.core.progress import progress
from frazil.spark.core.results import Result
from frazil.spark.core.targets import Target
from frazil.spark.reading import frame_scans
from frazil.spark.rows import row_changes
from frazil.spark.rows.merge_clauses import MergeBuilder, Source
from frazil.spark.writing import frame_statements
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.wire.expressions import Expression
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Condition: TypeAlias = "str | Column | Expression"
"""SQL, a Column, or one of the client's filters."""


@dataclass(frozen=True)
class SparkTable:
    context: Context
    identifier: Identifier
    branch: str = MAIN
    """Which branch is read and written."""

    def __str__(self) -> str:
        return str(self.identifier)

    def load(self) -> Table:
        """The table as it is now, by the client."""
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
        """The rows as a frame, of one snapshot that is chosen now: the newest of the branch, a
        `snapshot` by its id, the one that was current at a `timestamp`, or that of a `ref`; or the
        rows that were appended after `from_snapshot`, up to `to_snapshot`."""
        return frame_scans.scan_of(
            self.context,
            self.load(),
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
        """Adds the frame's rows; its columns are found by name.

        `merge_schema` adds columns that the table lacks and widens types, in the same commit.
        """
        with progress(self.context, f"append to {self}"):
            return frame_statements.append(
                self.context, self._target(), frame, merge_schema, options, commit_options
            )

    def overwrite(
        self,
        frame: DataFrame,
        where: Condition | None = None,
        *,
        merge_schema: bool = False,
        options: WriteOptions | None = None,
        **commit_options: Any,
    ) -> Result:
        """Replaces all rows, or those that match `where`, which must cover whole files."""
        with progress(self.context, f"overwrite {self}"):
            return frame_statements.overwrite(
                self.context, self._target(), frame, where, merge_schema, options, commit_options
            )

    def overwrite_partitions(
        self,
        frame: DataFrame,
        *,
        merge_schema: bool = False,
        options: WriteOptions | None = None,
        **commit_options: Any,
    ) -> Result:
        """Replaces the partitions that the frame has rows for."""
        with progress(self.context, f"overwrite partitions of {self}"):
            return frame_statements.overwrite_partitions(
                self.context, self._target(), frame, merge_schema, options, commit_options
            )

    # --- changing rows ----------------------------------------------------------------------------

    def delete(self, where: Condition | None = None, **options: Any) -> Result:
        """Deletes the rows that match; without a condition all of them."""
        with progress(self.context, f"delete from {self}"):
            return row_changes.delete(self.context, self._target(), where, **options)

    def update(
        self, set: Mapping[str, str | Column], where: Condition | None = None, **options: Any
    ) -> Result:
        """Sets columns to expressions, as SQL or Columns, in the rows that match."""
        with progress(self.context, f"update {self}"):
            return row_changes.update(self.context, self._target(), set, where, **options)

    def merge(
        self,
        source: Source,
        on: str | Column,
        *,
        target_alias: str = "target",
        source_alias: str = "source",
    ) -> MergeBuilder:
        """Begins a MERGE: add its clauses, then `execute`."""
        return MergeBuilder(
            self.context,
            self._target(),
            source,
            on,
            target_alias=target_alias,
            source_alias=source_alias,
        )

    # --- streams ----------------------------------------------------------------------------------

    def write_stream(self, frame: DataFrame, **options: Any) -> StreamingQuery:
        """Writes a streaming frame, each epoch exactly once."""
        from frazil.spark.streams import stream_statements

        return stream_statements.write_stream(self.context, self._target(), frame, **options)

    def read_stream(self, **options: Any) -> DataFrame:
        """The rows that are there and those that are appended later, as a stream; `options` say
        from where, and how much at once."""
        from frazil.spark.streams import stream_statements

        return stream_statements.read_stream(self.context, self._target(), **options)

    # --- parts ------------------------------------------------------------------------------------

    def _target(self) -> Target:
        return Target(self.identifier, self.branch)


def spark_table(context: Context, name: str | tuple[str, ...] | Identifier) -> SparkTable:
    return SparkTable(context, identifier_of(name))

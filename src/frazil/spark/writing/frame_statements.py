"""Writes frames into tables: append, overwrite, and replacement of partitions.

Each is a statement: it loads the table, fits the frame to the table's schema, writes files into a
folder of its own, and commits them with one request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import TableVerbs
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.spark.conditions.sql_conditions import exact_filter
from frazil.spark.core.context import Context
from frazil.spark.core.statement_runs import Result, Target, complete_options, run_statement
from frazil.spark.schema.frame_fitting import fit
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.writing.frame_writer import WriteOptions, write_rows
from frazil.spark.writing.write_commit import commit_files, removed_by, writing
from frazil.wire.expressions import AlwaysTrue, Expression

Declare: TypeAlias = Callable[[TableVerbs[Any], Sequence[DataFile]], Any]
"""Declares the written files by one of the client's operations."""


@dataclass(frozen=True)
class FrameStatement:
    """A frame to write into a table, independent of the table's state."""

    context: Context
    target: Target
    frame: DataFrame
    merge_schema: bool = False
    options: WriteOptions | None = None
    commit_options: Mapping[str, Any] = field(default_factory=dict)

    def append(self) -> Result:
        return self._run("append", TableVerbs.append_files)

    def overwrite(self, where: str | Column | Expression | None = None) -> Result:
        """Replace all rows, or those that match; the condition must cover whole files."""

        def row_filter(table: Table) -> Mapping[str, Any]:
            if where is None:
                return {"row_filter": AlwaysTrue()}
            return {"row_filter": exact_filter(self.context, table, where)}

        return self._run("overwrite", TableVerbs.overwrite_files, row_filter, even_empty=True)

    def overwrite_partitions(self) -> Result:
        return self._run("overwrite", TableVerbs.replace_partitions)

    def _run(
        self,
        operation: str,
        method: Callable[..., Any],
        arguments: Callable[[Table], Mapping[str, Any]] = lambda _: {},
        *,
        even_empty: bool = False,
    ) -> Result:
        """Run the statement; `method` is the client's operation, with further `arguments`."""

        def attempt() -> Result:
            table = self.target.load(self.context)
            options = {
                **complete_options(self.context, self.target, self.commit_options, table),
                **arguments(table),
            }
            return write_frame(
                self.context,
                table,
                self.frame,
                operation,
                lambda changes, files: method(changes, files, **options),
                self.merge_schema,
                self.options,
                even_empty=even_empty,
            )

        return run_statement(self.context, self.target, attempt)


def write_frame(
    context: Context,
    table: Table,
    frame: DataFrame,
    operation: str,
    declare: Declare,
    merge_schema: bool = False,
    options: WriteOptions | None = None,
    *,
    change: Evolution | None = None,
    even_empty: bool = False,
) -> Result:
    """Run one attempt: write and commit the files, or leave nothing behind.

    `change` makes the table what it is already here. With `even_empty` it commits even without
    files, since it also removes something.
    """
    fitted = fit(frame, table, merge_schema=merge_schema)
    with writing(context, table) as pending:
        files = write_rows(
            context, table, fitted.frame, pending.folder, options, schema=fitted.evolution.schema
        )
        change = change or fitted.evolution
        if not files and not even_empty and not change.updates and not table.is_staged:
            return Result(commit=None, operation=operation)
        commit = commit_files(
            pending,
            context,
            table,
            change,
            files,
            lambda changes: declare(changes, files),
            even_empty=even_empty,
        )
    removed = removed_by(context, commit)
    return Result(
        commit=commit,
        operation=operation,
        rows_written=sum(file.record_count for file in files),
        rows_deleted=removed.rows,
        files_added=len(files),
        files_removed=removed.files,
    )

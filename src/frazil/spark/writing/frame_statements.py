"""Frames into tables: append, overwrite, replacement of partitions, create as select.

Each is a statement: the table is loaded, the frame is held against its schema, the files are
written into a folder of their own, and one request commits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.table_verbs import TableVerbs
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.spark.conditions.sql_conditions import exact_filter
from frazil.spark.core import statement_runs
from frazil.spark.core.context import Context
from frazil.spark.core.results import Result
from frazil.spark.core.targets import Target
from frazil.spark.schema.frame_fitting import fit
from frazil.spark.writing.commit_options import audited_options
from frazil.spark.writing.frame_writer import WriteOptions, write_rows
from frazil.spark.writing.write_commit import submitted, writing
from frazil.wire.expressions import AlwaysTrue, Expression
from frazil.wire.file_actions import MAIN

Options: TypeAlias = Mapping[str, Any]
Declare: TypeAlias = Callable[[TableVerbs[Any], Sequence[DataFile]], Any]
"""Declares the written files by one of the client's operations."""


def append(
    context: Context,
    target: Target,
    frame: DataFrame,
    merge_schema: bool,
    options: WriteOptions | None,
    commit_options: Options,
) -> Result:
    plan = _Plan(context, target, frame, merge_schema, options, commit_options)
    return plan.run("append", TableVerbs.append_files)


def overwrite(
    context: Context,
    target: Target,
    frame: DataFrame,
    where: str | Column | Expression | None,
    merge_schema: bool,
    options: WriteOptions | None,
    commit_options: Options,
) -> Result:
    def row_filter(table: Table) -> Options:
        found = AlwaysTrue() if where is None else exact_filter(context, table, where)
        return {"row_filter": found}

    plan = _Plan(context, target, frame, merge_schema, options, commit_options)
    return plan.run("overwrite", TableVerbs.overwrite_files, row_filter, even_empty=True)


def overwrite_partitions(
    context: Context,
    target: Target,
    frame: DataFrame,
    merge_schema: bool,
    options: WriteOptions | None,
    commit_options: Options,
) -> Result:
    plan = _Plan(context, target, frame, merge_schema, options, commit_options)
    return plan.run("overwrite", TableVerbs.replace_partitions)


@dataclass(frozen=True)
class _Plan:
    """A frame on its way into a table, whatever state that is found in."""

    context: Context
    target: Target
    frame: DataFrame
    merge_schema: bool
    options: WriteOptions | None
    commit_options: Options

    def run(
        self,
        operation: str,
        verb: Callable[..., Any],
        further: Callable[[Table], Options] = lambda _: {},
        *,
        even_empty: bool = False,
    ) -> Result:
        """`verb` is the client's operation, `further` what it takes beside files and options."""

        def attempt(_: int) -> Result:
            table = self.target.load(self.context)
            placed = placed_options(self.context, self.target, self.commit_options, table)
            given = {**placed, **further(table)}
            return write(
                self.context,
                table,
                self.frame,
                operation,
                lambda changes, files: verb(changes, files, **given),
                self.merge_schema,
                self.options,
                even_empty=even_empty,
            )

        return statement_runs.run(self.context, attempt)


def write(
    context: Context,
    table: Table,
    frame: DataFrame,
    operation: str,
    declare: Declare,
    merge_schema: bool = False,
    options: WriteOptions | None = None,
    *,
    even_empty: bool = False,
) -> Result:
    """One attempt: the files are written and committed, or nothing is left of them.

    `even_empty` commits where no file was written, because something is removed all the same.
    """
    fitted = fit(frame, table, merge_schema=merge_schema)
    with writing(context, table) as one:
        files = write_rows(
            context,
            table,
            fitted.frame,
            one.folder,
            options or WriteOptions(),
            schema=fitted.schema,
        )
        if not files and not even_empty and not fitted.updates and not table.is_staged:
            return Result(commit=None, operation=operation)
        commit = one.commit(
            {file.file_path for file in files},
            lambda: submitted(
                context,
                table,
                fitted,
                lambda changes: declare(changes, files),
                has_files=bool(files) or even_empty,
            ),
        )
    return Result(
        commit=commit,
        operation=operation,
        rows_written=sum(file.record_count for file in files),
        rows_deleted=None if even_empty else 0,
        files_added=len(files),
    )


def placed_options(
    context: Context, target: Target, given: Options, table: Table | None = None
) -> dict[str, Any]:
    """The branch, and in the summary which application this was, as stock Spark notes it; of a
    table that is there also what Spark's settings say of an audit."""
    has_branch = "branch" in given or target.branch != MAIN
    audited = {} if table is None else audited_options(context, table, has_branch)
    options = {"branch": target.branch, **audited, **given}
    summary = {**audited.get("summary", {}), **(given.get("summary") or {})}
    application = context.spark.conf.get("spark.app.id", None)
    if application is not None:
        summary.setdefault("spark.app.id", application)
    return {**options, "summary": summary}

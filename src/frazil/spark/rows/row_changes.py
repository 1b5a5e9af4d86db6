"""DELETE, UPDATE and MERGE: rows are read at one snapshot, changed, and committed against it.

Each is a statement that is run again from a new scan if others have changed what it has read. The
snapshot of the scan is the base of the commit, and the conflict filter says what was read, as far
as the statement's text tells it: of conditions that are Columns it tells nothing, so that one can
be given.

Conditions and expressions name columns alone, or behind the table's alias, which is its name
without the namespace where none is given.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.datafiles.arrow.metadata_columns import ROW_ID
from frazil.datafiles.writing.changes_writer import FILE, POSITION, WRITE
from frazil.spark.conditions.sql_conditions import Condition, needed_columns
from frazil.spark.core import statement_runs
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import quoted
from frazil.spark.core.results import Result
from frazil.spark.core.targets import Target
from frazil.spark.rows.assigned_columns import Rows
from frazil.spark.rows.merge_clauses import Assignments, Merge, Source
from frazil.spark.rows.merge_frames import numbered_source
from frazil.spark.rows.merge_statement import run_merge
from frazil.spark.rows.row_commit import Mode
from frazil.spark.rows.row_statements import Attempt, Statement
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.spark.writing.staging import staged
from frazil.wire.expressions import AlwaysFalse
from frazil.wire.filter_builders import Filter


def delete(
    context: Context,
    target: Target,
    where: Condition | None = None,
    *,
    alias: str | None = None,
    mode: str | None = None,
    conflict_filter: Filter | None = None,
    options: WriteOptions | None = None,
    **commit_options: Any,
) -> Result:
    """Deletes the rows that match; without a condition all of them.

    Where the plan shows that only whole files match, they are dropped without reading them.
    """
    statement = Statement(
        context=context,
        target=target,
        command="delete",
        where=where,
        alias=alias,
        mode=mode,
        conflict_filter=conflict_filter,
        options=options,
        commit_options=commit_options,
    )
    return statement_runs.run(context, lambda _: _deleted(statement.attempt()))


def update(
    context: Context,
    target: Target,
    set: Assignments,
    where: Condition | None = None,
    *,
    alias: str | None = None,
    mode: str | None = None,
    conflict_filter: Filter | None = None,
    options: WriteOptions | None = None,
    **commit_options: Any,
) -> Result:
    """Sets columns to expressions in the rows that match."""
    statement = Statement(
        context=context,
        target=target,
        command="update",
        where=where,
        alias=alias,
        mode=mode,
        conflict_filter=conflict_filter,
        options=options,
        commit_options=commit_options,
    )
    return statement_runs.run(context, lambda _: _updated(statement.attempt(), set))


def merge(
    context: Context,
    target: Target,
    source: Source,
    merge: Merge,
    *,
    mode: str | None = None,
    conflict_filter: Filter | None = None,
    options: WriteOptions | None = None,
    **commit_options: Any,
) -> Result:
    """Merges the rows of a source into the table.

    The source is evaluated once, also where the statement is run again; one that is made for the
    table of each run is evaluated once for each.
    """
    merge.check()
    statement = Statement(
        context=context,
        target=target,
        command="merge",
        alias=merge.target_alias,
        mode=mode,
        conflict_filter=conflict_filter,
        options=options,
        commit_options=commit_options,
    )
    own_conflicts = conflict_filter is None
    if not isinstance(source, DataFrame | str):
        made = source

        def with_own_source(_: int) -> Result:
            attempt = statement.attempt()
            numbered = numbered_source(made(attempt.table))
            with staged(context, numbered, attempt.table) as rows:
                return run_merge(attempt, merge, rows, own_conflicts=own_conflicts)

        return statement_runs.run(context, with_own_source)
    frame = context.spark.table(source) if isinstance(source, str) else source
    with staged(context, numbered_source(frame), target.load(context)) as rows:
        return statement_runs.run(
            context,
            lambda _: run_merge(statement.attempt(), merge, rows, own_conflicts=own_conflicts),
        )


# --- one attempt of each --------------------------------------------------------------------------


def _deleted(attempt: Attempt) -> Result:
    tasks = attempt.tasks() if not isinstance(attempt.reads, AlwaysFalse) else {}
    if not tasks:
        return attempt.nothing()
    if attempt.is_exact and all(task.residual is True for task in tasks.values()):
        return _dropped(attempt, len(tasks))
    columns = needed_columns([attempt.condition], attempt.names)
    frame = attempt.matching(columns, lineage=False)
    return attempt.run_deletes(frame.select(*_places(attempt)), tasks)


def _dropped(attempt: Attempt, files: int) -> Result:
    """The catalog judges again by the filter when it commits, so that nothing has to be checked:
    matching files that were added meanwhile go as well, as if they had been there before."""
    options = {name: given for name, given in attempt.options.items() if name != "isolation"}
    commit = attempt.table.delete_files(row_filter=attempt.reads, **options)
    return Result(
        commit=commit,
        operation=attempt.command,
        mode=Mode.METADATA,
        rows_deleted=None,
        files_removed=files,
    )


def _updated(attempt: Attempt, assignments: Assignments) -> Result:
    if isinstance(attempt.reads, AlwaysFalse) or attempt.snapshot_id is None:
        return attempt.nothing()
    frame = attempt.matching(None, lineage=attempt.has_lineage)
    rows = Rows(
        frame,
        attempt.table.schema,
        attempt.alias,
        case_sensitive=attempt.names.case_sensitive,
        table=str(attempt.table),
    )
    columns = [
        column.alias(field.name)
        for column, field in zip(
            rows.updated(assignments), attempt.table.schema.fields, strict=True
        )
    ]
    lineage = [fn.col(quoted(attempt.alias, ROW_ID))] if attempt.has_lineage else []
    changed = frame.select(*columns, *_places(attempt), *lineage, fn.lit(True).alias(WRITE))
    return attempt.run(changed)


def _places(attempt: Attempt) -> list[Any]:
    return [fn.col(quoted(attempt.alias, name)) for name in (FILE, POSITION)]

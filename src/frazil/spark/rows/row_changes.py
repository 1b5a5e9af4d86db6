"""DELETE and UPDATE, and what they share with MERGE: a statement, and one attempt of it.

A statement reads rows at one snapshot, changes them, and commits against that snapshot. After a
conflict it runs again from a new scan. The conflict filter describes what was read, as far as the
statement's text shows it. Conditions that are Columns cannot be analyzed, so that callers can give
the filter themselves.

Conditions and expressions name columns alone, or behind the table's alias, which by default is the
table's name without the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command
from frazil.client.declare.table_verbs import Commit
from frazil.client.rows.moved_rows import find_rows
from frazil.client.rows.row_removal import (
    VECTORS_MIN_FORMAT_VERSION,
    Mode,
    check_can_delete_rows,
    mode_of,
)
from frazil.datafiles.arrow.metadata_columns import (
    FILE,
    LAST_UPDATED,
    MIN_FORMAT_VERSION,
    POSITION,
    ROW_ID,
)
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.datafiles.writing.changes_writer import WRITE
from frazil.spark.conditions.iceberg_filters import spark_condition
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.conditions.sql_conditions import Condition, filter_of, needed_columns
from frazil.spark.core.analysis_errors import own_columns
from frazil.spark.core.context import LOGGER, Context
from frazil.spark.core.name_matching import names_of, quoted
from frazil.spark.core.statement_runs import Result, Target, complete_options, run_statement
from frazil.spark.reading.frame_scans import plan_tasks, scan
from frazil.spark.rows.assigned_columns import Assignments, Rows
from frazil.spark.rows.changed_rows import (
    ChangedRows,
    FileCodes,
    collect_deletes,
    copy_files,
    write_changes,
    write_deletes,
)
from frazil.spark.rows.row_dependence import has_subquery
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.spark.writing.write_commit import Write, commit_files, removed_by, writing
from frazil.wire.errors import BadRequest, FrazilError, ValidationError
from frazil.wire.expressions import AlwaysFalse, Expression
from frazil.wire.filter_builders import Filter, expression_of

MAX_COLLECTED_ROWS: Final = 5_000_000
"""The driver collects the positions of deleted rows if the files have no more rows than this."""
_COMMIT_OPTIONS: Final[Sequence[str]] = ("branch", "summary", "stage_only", "once", "isolation")


def delete(
    context: Context, target: Target, where: Condition | None = None, **options: Any
) -> Result:
    """Delete the rows that match; without a condition all of them.

    The options are those of `row_statement`. Where the plan shows that only whole files match, they
    are removed without reading them.
    """
    statement = row_statement(context, target, "delete", where, expressions=(where,), **options)
    return run_statement(context, target, lambda: statement.run(_delete))


def update(
    context: Context,
    target: Target,
    assignments: Assignments,
    where: Condition | None = None,
    **options: Any,
) -> Result:
    """Set columns to expressions in the rows that match; the options are as in `delete`."""
    values = (*assignments.values(), where)
    statement = row_statement(context, target, "update", where, expressions=values, **options)
    return run_statement(
        context, target, lambda: statement.run(lambda attempt: _update(attempt, assignments))
    )


def row_statement(
    context: Context,
    target: Target,
    command: Command,
    where: Condition | None = None,
    *,
    expressions: Iterable[Condition | None],
    **options: Any,
) -> RowStatement:
    """Return a statement; the options are its members and those of the client's commits.

    `expressions` are all that the statement evaluates.
    """
    known = ("alias", "mode", "conflict_filter", "options", *_COMMIT_OPTIONS)
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise BadRequest(f"{command}: no option {', '.join(unknown)}; there are {', '.join(known)}")
    commit_options = {name: options.pop(name) for name in _COMMIT_OPTIONS if name in options}
    subquery = has_subquery(expressions)
    # A target is pinned where the text of the statement reads it once more.
    merges_vectors = target.pinned is None and not subquery
    return RowStatement(
        context, target, command, where, commit_options, subquery, merges_vectors, **options
    )


@dataclass(frozen=True)
class RowStatement:
    """What DELETE, UPDATE or MERGE is asked to do, independent of the table's state."""

    context: Context
    target: Target
    command: Command
    where: Condition | None
    commit_options: Mapping[str, Any]
    has_subquery: bool
    """Whether expressions may name columns of other tables."""
    merges_vectors: bool
    """Whether the server may merge the statement's deletion vectors with those of others."""
    alias: str | None = None
    mode: str | None = None
    conflict_filter: Filter | None = None
    options: WriteOptions | None = None

    def run(self, do: Callable[[RowAttempt], Result]) -> Result:
        """Run one attempt."""
        attempt = self.attempt()
        with self.own_columns(attempt.table):
            return do(attempt)

    def own_columns(
        self, table: Table, others: Mapping[str, Iterable[str]] | None = None
    ) -> AbstractContextManager[None]:
        """Suggest columns of the table, or `others`, where an expression names an unknown one."""
        names = [field.name for field in table.schema.fields]
        known = {self.table_alias: names, **(others or {})}
        return own_columns(table, {} if self.has_subquery else known)

    @property
    def table_alias(self) -> str:
        return self.alias or self.target.identifier.name

    def attempt(self) -> RowAttempt:
        """Load the table and pin its snapshot."""
        table = self.target.load(self.context)
        _check_lineage_names(table)
        alias = self.table_alias
        options = complete_options(self.context, self.target, self.commit_options, table)
        read = filter_of(self.context, table, self.where, alias=alias)
        conflict_filter = read.expression
        if self.conflict_filter is not None:
            conflict_filter = expression_of(self.conflict_filter)
        return RowAttempt(
            context=self.context,
            table=table,
            snapshot_id=table.head(options["branch"]),
            command=self.command,
            mode=mode_of(table, self.command, self.mode),
            alias=alias,
            condition=self.where,
            reads=read.expression,
            is_exact=read.exact,
            conflict_filter=conflict_filter,
            merges_vectors=self.merges_vectors,
            options=options,
            write_options=replace(self.options or WriteOptions(), command=self.command),
            evolution=Evolution(table.schema),
        )


@dataclass(frozen=True, kw_only=True)
class RowAttempt:
    """One run of a statement, on the table as it was loaded for the run."""

    context: Context
    table: Table
    snapshot_id: int | None
    """The snapshot that is read, and the base of the commit; None before the first snapshot."""
    command: Command
    mode: Mode
    conflict_filter: Expression
    merges_vectors: bool
    options: Mapping[str, Any]
    """Branch, summary, isolation and the like, as the client takes them."""
    evolution: Evolution
    """How the table's schema changes in the same commit; `table` has the new schema already."""
    alias: str
    condition: Condition | None
    reads: Expression
    """A filter for at least the rows that the condition is true for."""
    is_exact: bool
    """Whether `reads` matches exactly those rows."""
    write_options: WriteOptions

    @property
    def has_lineage(self) -> bool:
        return self.table.format_version >= MIN_FORMAT_VERSION

    @property
    def names(self) -> ColumnNames:
        case_sensitive = names_of(self.context.spark).case_sensitive
        return ColumnNames(self.table.schema, self.alias, case_sensitive)

    def tasks(self) -> Mapping[str, ScanTask]:
        """Plan every file that the scan may read, by the file's path."""
        if self.snapshot_id is None:
            return {}
        return plan_tasks(self.context, self.table, self.reads, self.snapshot_id)

    def rows(self, columns: Sequence[str] | None, *, lineage: bool) -> DataFrame:
        """Return the rows that may match, and others of their files, under the table's alias."""
        return scan(
            self.context,
            self.table,
            filter=self.reads,
            exact=False,
            columns=columns,
            snapshot_id=self.snapshot_id,
            metadata_columns=(FILE, POSITION, ROW_ID) if lineage else (FILE, POSITION),
            schema=self.table.schema,
        ).alias(self.alias)

    def matching(self, columns: Sequence[str] | None, *, lineage: bool) -> DataFrame:
        """Return the rows that the condition is true for."""
        rows = self.rows(columns, lineage=lineage)
        condition = self.condition
        if isinstance(condition, Expression):
            condition = spark_condition(condition, self.table.schema)
        return rows if condition is None else rows.where(condition)

    def columns(self, *names: str) -> list[Column]:
        """Return columns of the rows, such as the metadata columns."""
        return [fn.col(quoted(self.alias, name)) for name in names]

    def run(self, frame: DataFrame, *, check_cardinality: bool = False) -> Result:
        """Write and commit what the frame of changed rows describes."""
        with writing(self.context, self.table) as write:
            changes = self.written(frame, write, check_cardinality=check_cardinality)
            tasks = self.tasks() if changes.deleted else {}
            return self.commit(write, changes, tasks)

    def run_deletes(self, frame: DataFrame, tasks: Mapping[str, ScanTask]) -> Result:
        """Write and commit the deletion of the frame's rows, which are in the planned files."""
        rows = sum(task.data_file.record_count for task in tasks.values())
        with writing(self.context, self.table) as write:
            if rows <= MAX_COLLECTED_ROWS:
                changes = collect_deletes(frame, FileCodes.of(tasks.keys()))
            else:
                changes = self.written(frame, write, check_cardinality=False)
            return self.commit(write, changes, tasks)

    def written(self, frame: DataFrame, write: Write, *, check_cardinality: bool) -> ChangedRows:
        return write_changes(
            self.context,
            self.table,
            frame,
            write.folder,
            self.write_options,
            check_cardinality=check_cardinality,
        )

    # --- commit ---------------------------------------------------------------------------------

    def nothing(self) -> Result:
        return Result(commit=None, operation=self.command, mode=self.mode)

    def commit(self, write: Write, changes: ChangedRows, tasks: Mapping[str, ScanTask]) -> Result:
        """Commit the changes; `tasks` has the plan of every file that the scan may have read."""
        touched = [
            DeletedRows(_task(tasks, path), positions)
            for path, positions in changes.deleted.items()
        ]
        if not touched and not changes.files and not self.evolution.updates:
            return self.nothing()
        if self.mode is Mode.MERGE_ON_READ:
            return self._merge_on_read(write, changes, touched)
        return self._copy_on_write(write, changes, touched)

    def _copy_on_write(
        self, write: Write, changes: ChangedRows, touched: Sequence[DeletedRows]
    ) -> Result:
        copies = copy_files(self.context, self.table, touched, write.folder)
        files = (*changes.files, *copies)
        paths = [rows.file_path for rows in touched]
        commit = commit_files(
            write,
            self.context,
            self.table,
            self.evolution,
            files,
            lambda table: table.overwrite_files(files, paths, **self._checks),
            even_empty=bool(paths),
        )
        return self._result(commit, changes, len(files), len(paths))

    def _merge_on_read(
        self,
        write: Write,
        changes: ChangedRows,
        touched: Sequence[DeletedRows],
        replaced: tuple[str, ...] = (),
    ) -> Result:
        """Commit new files and deletes. `replaced` are files that the rows have moved from."""
        if touched:
            check_can_delete_rows(self.table, self.command)
        has_vectors = self.table.format_version >= VECTORS_MIN_FORMAT_VERSION
        merges_vectors = self.merges_vectors and has_vectors
        deletes = write_deletes(self.context, self.table, touched, write.folder)
        files = (*changes.files, *deletes.added)
        try:
            commit = commit_files(
                write,
                self.context,
                self.table,
                self.evolution,
                files,
                lambda table: table.row_delta(
                    changes.files,
                    deletes.added,
                    remove_deletes=deletes.removed,
                    referenced_data_files=[rows.file_path for rows in touched],
                    replaced_data_files=replaced,
                    rebase_deletion_vectors=merges_vectors,
                    **self._checks,
                ),
            )
        except ValidationError as refused:
            branch, storage = self.options["branch"], write.folder.storage
            base, reads = self.snapshot_id, self.reads
            found = find_rows(refused, self.table, branch, base, reads, touched, storage)
            if found is None or not merges_vectors:
                raise
            LOGGER.info("a compaction has moved rows of the statement, which keeps its work")
            replaced = (*replaced, *found.replaced)
            return self._merge_on_read(write, changes, found.rows, replaced)
        return self._result(commit, changes, len(files), len(deletes.removed))

    @property
    def _checks(self) -> dict[str, Any]:
        return {
            "base_snapshot_id": self.snapshot_id,
            "conflict_filter": self.conflict_filter,
            "command": self.command,
            **self.options,
        }

    def _result(self, commit: Commit, changes: ChangedRows, added: int, removed: int) -> Result:
        return Result(
            commit=commit,
            operation=self.command,
            mode=self.mode,
            rows_written=changes.rows_written,
            rows_deleted=changes.rows_deleted,
            files_added=added,
            files_removed=removed,
        )


def _task(tasks: Mapping[str, ScanTask], path: str) -> ScanTask:
    task = tasks.get(path)
    if task is None:
        raise FrazilError(f"the scan has read {path}, which is missing in the catalog's plan")
    return task


def _check_lineage_names(table: Table) -> None:
    """Refuse own columns with the names of the lineage columns that rewritten rows get."""
    taken = {field.name for field in table.schema.fields} & {ROW_ID, LAST_UPDATED}
    if taken and table.format_version >= MIN_FORMAT_VERSION:
        raise BadRequest(
            f"{table}: its own column {min(taken)} has a name that format version "
            f"{MIN_FORMAT_VERSION} keeps for row lineage: rename it before rows are changed"
        )


# --- one attempt ----------------------------------------------------------------------------------


def _delete(attempt: RowAttempt) -> Result:
    tasks = attempt.tasks() if not isinstance(attempt.reads, AlwaysFalse) else {}
    if tasks and attempt.is_exact and all(task.residual is True for task in tasks.values()):
        return _remove_files(attempt)
    columns = needed_columns([attempt.condition], attempt.names)
    frame = attempt.matching(columns, lineage=False)
    if not tasks:
        return attempt.nothing()
    return attempt.run_deletes(frame.select(*attempt.columns(FILE, POSITION)), tasks)


def _remove_files(attempt: RowAttempt) -> Result:
    """Remove whole files by the filter.

    The catalog evaluates the filter again in the commit, so that nothing has to be validated:
    matching files that were added meanwhile are removed as well.
    """
    options = {name: value for name, value in attempt.options.items() if name != "isolation"}
    commit = attempt.table.delete_files(row_filter=attempt.reads, **options)
    removed = removed_by(attempt.context, commit)
    return Result(
        commit=commit,
        operation=attempt.command,
        mode=Mode.METADATA,
        rows_deleted=removed.rows,
        files_removed=removed.files,
    )


def _update(attempt: RowAttempt, assignments: Assignments) -> Result:
    schema = attempt.table.schema
    frame = attempt.matching(None, lineage=attempt.has_lineage)
    rows = Rows(
        frame,
        schema,
        attempt.alias,
        case_sensitive=attempt.names.case_sensitive,
        table=str(attempt.table),
    )
    columns = [
        column.alias(field.name)
        for column, field in zip(rows.updated(assignments), schema.fields, strict=True)
    ]
    if isinstance(attempt.reads, AlwaysFalse) or attempt.snapshot_id is None:
        return attempt.nothing()
    location = attempt.columns(FILE, POSITION, *([ROW_ID] if attempt.has_lineage else []))
    return attempt.run(frame.select(*columns, *location, fn.lit(True).alias(WRITE)))

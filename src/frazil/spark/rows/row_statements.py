"""One run of a statement that changes rows, held against the table as it was loaded for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command
from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, MIN_FORMAT_VERSION, ROW_ID
from frazil.datafiles.reading.scan_tasks import ScanTask
from frazil.datafiles.writing.changes_writer import FILE, POSITION
from frazil.spark.conditions.iceberg_filters import spark_condition
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.conditions.sql_conditions import Condition, filter_of, is_case_sensitive
from frazil.spark.core.context import Context
from frazil.spark.core.results import Result
from frazil.spark.core.targets import Target
from frazil.spark.reading.frame_scans import plan_tasks, scan
from frazil.spark.rows.changed_rows import ChangedRows, collect_deletes, write_changes
from frazil.spark.rows.path_codes import FileCodes
from frazil.spark.rows.row_commit import Mode, RowCommit, mode_of
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.writing.frame_statements import placed_options
from frazil.spark.writing.frame_writer import WriteOptions
from frazil.spark.writing.write_commit import Write, writing
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import Expression
from frazil.wire.filter_builders import Filter, expression_of

COLLECTED_ROWS: Final = 5_000_000
"""Of files with no more rows the driver can have the positions of all, should all of them go."""
_COMMIT_OPTIONS: Final = ("branch", "summary", "stage_only", "once", "isolation")


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What is to be done, whatever state the table is found in."""

    context: Context
    target: Target
    command: Command
    where: Condition | None = None
    alias: str | None = None
    mode: str | None = None
    conflict_filter: Filter | None = None
    options: WriteOptions | None = None
    commit_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(self.commit_options.keys() - set(_COMMIT_OPTIONS))
        if unknown:
            known = ", ".join(("alias", "mode", "conflict_filter", "options", *_COMMIT_OPTIONS))
            raise BadRequest(f"{self.command}: no option {', '.join(unknown)}; there are {known}")

    def attempt(self) -> Attempt:
        """Loads the table and pins its snapshot."""
        table = self.target.load(self.context)
        _check_lineage_names(table)
        alias = self.alias or self.target.identifier.name
        placed = placed_options(self.context, self.target, self.commit_options, table)
        found = filter_of(self.context, table, self.where, alias=alias)
        given = None if self.conflict_filter is None else expression_of(self.conflict_filter)
        return Attempt(
            context=self.context,
            table=table,
            snapshot_id=table.head(placed["branch"]),
            command=self.command,
            mode=mode_of(table, self.command, self.mode),
            alias=alias,
            condition=self.where,
            reads=found.expression,
            is_exact=found.exact,
            conflict_filter=found.expression if given is None else given,
            options=placed,
            write_options=replace(self.options or WriteOptions(), command=self.command),
            evolution=Evolution(table.schema),
        )


@dataclass(frozen=True, kw_only=True)
class Attempt:
    context: Context
    table: Table
    snapshot_id: int | None
    """What is read, and the base of the commit; None before the first snapshot."""
    command: Command
    mode: Mode
    alias: str
    condition: Condition | None
    reads: Expression
    """At least the rows that the condition is true for."""
    is_exact: bool
    """Whether it is exactly those."""
    conflict_filter: Expression
    options: Mapping[str, Any]
    write_options: WriteOptions
    evolution: Evolution
    """How the table's schema changes with the statement; the table is as it will be then."""

    @property
    def has_lineage(self) -> bool:
        return self.table.format_version >= MIN_FORMAT_VERSION

    @property
    def names(self) -> ColumnNames:
        return ColumnNames(self.table.schema, self.alias, is_case_sensitive(self.context))

    def tasks(self) -> Mapping[str, ScanTask]:
        """The plan of every file that the scan can read."""
        if self.snapshot_id is None:
            return {}
        return plan_tasks(self.table, self.reads, self.snapshot_id)

    def rows(self, columns: Sequence[str] | None, *, lineage: bool) -> DataFrame:
        """The rows that may be concerned, and others of their files, under the table's alias."""
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
        """The rows that the condition is true for."""
        rows = self.rows(columns, lineage=lineage)
        condition = self._spark_condition()
        return rows if condition is None else rows.where(condition)

    def _spark_condition(self) -> Column | None:
        if isinstance(self.condition, str):
            return fn.expr(self.condition)
        if isinstance(self.condition, Expression):
            return spark_condition(self.condition, self.table.schema)
        return self.condition

    def run(self, frame: DataFrame, *, check_cardinality: bool = False) -> Result:
        """Writes what the frame of changed rows says, and commits it."""
        with writing(self.context, self.table) as write:
            changes = self.written(frame, write, check_cardinality=check_cardinality)
            tasks = self.tasks() if changes.deleted else {}
            return self.commit(write, changes, tasks)

    def run_deletes(self, frame: DataFrame, tasks: Mapping[str, ScanTask]) -> Result:
        """The same for rows that only go, of planned files."""
        rows = sum(task.data_file.record_count for task in tasks.values())
        with writing(self.context, self.table) as write:
            if rows <= COLLECTED_ROWS:
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

    def commit(self, write: Write, changes: ChangedRows, tasks: Mapping[str, ScanTask]) -> Result:
        """`tasks` has the plan of every file that the scan can have read."""
        commit = RowCommit(
            context=self.context,
            table=self.table,
            snapshot_id=self.snapshot_id,
            command=self.command,
            mode=self.mode,
            conflict_filter=self.conflict_filter,
            options=self.options,
            evolution=self.evolution,
        )
        return commit.commit(write, changes, tasks)

    def nothing(self) -> Result:
        return Result(commit=None, operation=self.command, mode=self.mode)


def _check_lineage_names(table: Table) -> None:
    """Files of rows that are moved have columns of these names."""
    taken = {field.name for field in table.schema.fields} & {ROW_ID, LAST_UPDATED}
    if taken and table.format_version >= MIN_FORMAT_VERSION:
        raise BadRequest(
            f"{table}: its own column {min(taken)} has a name that format version "
            f"{MIN_FORMAT_VERSION} keeps for row lineage: rename it before rows are changed"
        )

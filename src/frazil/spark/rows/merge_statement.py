"""MERGE: the builder that users call, the statement, and one attempt of it.

    table.merge(changes, "target.id = source.id")
        .when_matched_delete("source.is_gone")
        .when_matched_update({"item": "source.item"})
        .when_not_matched_insert_all()
        .execute()

Large sources are joined with the target in one pass of tasks. Small sources are sent to the
target's rows: the matches are stored, and say which rows to delete and which to write. Few rows are
written by the driver, since starting workers and shuffling costs more than writing the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import isolation_of
from frazil.datafiles.arrow.metadata_columns import FILE, LAST_UPDATED, POSITION, ROW_ID
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.writing.changes_writer import DELETE
from frazil.spark.conditions.sql_conditions import needed_columns
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import names_of
from frazil.spark.core.statement_runs import Result, Target, run_statement
from frazil.spark.parse.parsed_statements import BY_SOURCE, MATCHED, NOT_MATCHED
from frazil.spark.rows.assigned_columns import Assignments, Value
from frazil.spark.rows.changed_rows import ChangedRows, FileCodes, deletes_of
from frazil.spark.rows.merge_clauses import STAR, Clause, Merge, evolved_merge
from frazil.spark.rows.merge_filter import merge_reads
from frazil.spark.rows.merge_frames import (
    CHOSEN,
    MATCHED_ROW,
    SOURCE_ROW,
    MergeFrames,
    numbered_source,
    source_columns,
    source_schema,
)
from frazil.spark.rows.row_changes import MAX_COLLECTED_ROWS, RowAttempt, row_statement
from frazil.spark.rows.row_dependence import reads_only_other_data
from frazil.spark.schema.spark_types import spark_schema
from frazil.spark.writing.frame_writer import can_write_here, write_here, write_rows
from frazil.spark.writing.staging import SMALL_BYTES, Staged, is_small, staged
from frazil.spark.writing.write_commit import Write, writing
from frazil.wire.expressions import AlwaysFalse

Source: TypeAlias = "DataFrame | str | Staged | Callable[[Table], DataFrame]"
"""A frame, the name of a view or table of Spark, a numbered source that is stored already, or a
function that makes a frame for the table as an attempt has loaded it: a source that reads the
target must read the attempt's snapshot."""

_LOCATION: Final = (FILE, POSITION, DELETE)


@dataclass(frozen=True)
class MergeBuilder:
    """A MERGE to be executed; each method returns a new builder with one more clause."""

    context: Context
    target: Target
    source: Source
    merge: Merge
    is_apart: bool | None = None
    """Whether the source reads other tables only; None if its plan has to show it."""

    def with_schema_evolution(self) -> MergeBuilder:
        """Add columns that only the source has, and widen types, in the same commit."""
        return replace(self, merge=replace(self.merge, evolves=True))

    def when(self, clause: Clause) -> MergeBuilder:
        return replace(self, merge=replace(self.merge, clauses=(*self.merge.clauses, clause)))

    def when_matched_update(self, set: Assignments, condition: Value | None = None) -> MergeBuilder:
        return self.when(Clause(MATCHED, dict(set), condition))

    def when_matched_update_all(self, condition: Value | None = None) -> MergeBuilder:
        """Set every column to the source's column of that name, like UPDATE SET *."""
        return self.when(Clause(MATCHED, STAR, condition))

    def when_matched_delete(self, condition: Value | None = None) -> MergeBuilder:
        return self.when(Clause(MATCHED, None, condition))

    def when_not_matched_insert(
        self, values: Assignments, condition: Value | None = None
    ) -> MergeBuilder:
        """Insert a row; columns without a value get their default, or null."""
        return self.when(Clause(NOT_MATCHED, dict(values), condition))

    def when_not_matched_insert_all(self, condition: Value | None = None) -> MergeBuilder:
        return self.when(Clause(NOT_MATCHED, STAR, condition))

    def when_not_matched_by_source_update(
        self, set: Assignments, condition: Value | None = None
    ) -> MergeBuilder:
        return self.when(Clause(BY_SOURCE, dict(set), condition))

    def when_not_matched_by_source_delete(self, condition: Value | None = None) -> MergeBuilder:
        return self.when(Clause(BY_SOURCE, None, condition))

    def execute(self, **options: Any) -> Result:
        """Run the MERGE; the options are those of `row_statement`, without an alias."""
        return _merge(
            self.context, self.target, self.source, self.merge, is_apart=self.is_apart, **options
        )


def _merge(
    context: Context,
    target: Target,
    source: Source,
    merge: Merge,
    *,
    is_apart: bool | None,
    **options: Any,
) -> Result:
    """Merge the rows of a source into the table.

    The source is evaluated once, also where the statement runs again; a source that is made for the
    table of each attempt is evaluated once per attempt.
    """
    merge.check()
    statement = row_statement(
        context,
        target,
        "merge",
        alias=merge.target_alias,
        expressions=merge.given_expressions(),
        **options,
    )
    statement = replace(statement, merges_vectors=statement.merges_vectors and bool(is_apart))
    own_conflicts = statement.conflict_filter is None
    if isinstance(source, DataFrame | str):
        frame = context.spark.table(source) if isinstance(source, str) else source
        table = target.load(context)
        if is_apart is None:
            is_apart = reads_only_other_data(frame, table)
        with staged(context, numbered_source(frame), table) as rows:
            return _merge(context, target, rows, merge, is_apart=is_apart, **options)

    def run() -> Result:
        attempt = statement.attempt()
        if isinstance(source, Staged):
            return run_on(attempt, source)
        numbered = numbered_source(source(attempt.table))
        with staged(context, numbered, attempt.table) as rows:
            return run_on(attempt, rows)

    def run_on(attempt: RowAttempt, rows: Staged) -> Result:
        others = {merge.source_alias: source_columns(rows.frame)}
        with statement.own_columns(attempt.table, others):
            return _run(attempt, merge, rows, own_conflicts=own_conflicts)

    return run_statement(context, target, run)


# --- one attempt ----------------------------------------------------------------------------------


def _run(attempt: RowAttempt, merge: Merge, source: Staged, *, own_conflicts: bool) -> Result:
    """Run an attempt; with `own_conflicts` the filter of what it reads decides about conflicts."""
    if merge.evolves:
        columns = source_schema(source.frame)
        names = names_of(attempt.context.spark)
        table, merge, evolution = evolved_merge(attempt.table, merge, columns, names)
        attempt = replace(attempt, table=table, evolution=evolution)
    reads, source_rows = merge_reads(attempt.context, attempt.table, merge, source.frame)
    conflicts = reads if own_conflicts else attempt.conflict_filter
    isolation = isolation_of(attempt.table.properties, "merge", attempt.options.get("isolation"))
    merges_vectors = attempt.merges_vectors and merge.changes_every_match(isolation)
    attempt = replace(
        attempt, reads=reads, conflict_filter=conflicts, merges_vectors=merges_vectors
    )
    reads_nothing = isinstance(attempt.reads, AlwaysFalse)
    if reads_nothing and not merge.of(NOT_MATCHED) and not attempt.evolution.updates:
        return attempt.nothing()
    frames = MergeFrames(
        attempt.table,
        merge,
        attempt.rows(
            needed_columns(merge.expressions(attempt.names), attempt.names),
            lineage=attempt.has_lineage,
        ),
        source.frame,
        case_sensitive=attempt.names.case_sensitive,
        lineage=attempt.has_lineage,
        is_small_source=is_small(source.frame.schema, source_rows),
    )
    if not frames.matches_first:
        return attempt.run(frames.changes(), check_cardinality=merge.checks_cardinality)
    tasks = attempt.tasks()
    codes = FileCodes.of(tasks.keys())
    with (
        writing(attempt.context, attempt.table) as write,
        staged(attempt.context, frames.matches(codes), attempt.table) as matches,
    ):
        stored = _StoredMatches(attempt, frames, source, source_rows or 0, matches, codes)
        return attempt.commit(write, stored.changes(write), tasks)


@dataclass(frozen=True)
class _StoredMatches:
    """A small source and its matches, both in temporary files."""

    attempt: RowAttempt
    frames: MergeFrames
    source: Staged
    source_rows: int
    matches: Staged
    codes: FileCodes
    """Codes of all files that matches can be in."""

    def changes(self, write: Write) -> ChangedRows:
        names = [*_LOCATION, MATCHED_ROW, CHOSEN, *([ROW_ID] if self.frames.lineage else [])]
        matches = self.matches.read_here(names, MAX_COLLECTED_ROWS)
        checks = self.frames.merge.checks_cardinality
        if matches is None:
            deletes = self.codes.with_paths(self.matches.frame.select(*_LOCATION), FILE)
            changes = self.attempt.written(deletes, write, check_cardinality=checks)
            files = self._write(write, few=False)
        else:
            deleted = matches.select(_LOCATION)
            changes = deletes_of(deleted, self.codes, check_cardinality=checks)
            files = self._write_few(matches, write)
        rows = sum(file.record_count for file in files)
        return replace(changes, files=files, rows_written=rows)

    def _write_few(self, matches: pa.Table, write: Write) -> tuple[DataFile, ...]:
        attempt = self.attempt
        here = can_write_here(attempt.context, attempt.table, attempt.write_options)
        if not here or not self._are_few(matches):
            return self._write(write, few=False)
        rows = self._upserted(matches)
        if rows is None:
            return self._write(write, few=True)
        return write_here(
            attempt.table,
            rows,
            write.folder,
            attempt.write_options,
            lineage=self.frames.lineage,
        )

    def _are_few(self, matches: pa.Table) -> bool:
        """Decide by number and by bytes, since texts may be of any length."""
        _, times = np.unique(matches.column(MATCHED_ROW).to_numpy(), return_counts=True)
        unmatched = self.source_rows - len(times)
        schema = spark_schema(self.attempt.table.schema)
        if not is_small(schema, matches.num_rows + unmatched):
            return False
        source_bytes, match_bytes = self.source.size_here(), self.matches.size_here()
        if source_bytes is None or match_bytes is None:
            return False
        # A source row is written as often as it matches.
        return source_bytes * int(times.max(initial=1)) + match_bytes <= SMALL_BYTES

    def _upserted(self, matches: pa.Table) -> pa.Table | None:
        """Return the rows to write if they are rows of the source."""
        columns = self.frames.upserted_columns()
        if columns is None:
            return None
        rows = self.source.read_here([*columns, SOURCE_ROW], self.source_rows)
        if rows is None:
            return None
        names = [field.name for field in self.attempt.table.schema.fields]
        return upserted_rows(
            rows.drop_columns([SOURCE_ROW]).rename_columns(names),
            rows.column(SOURCE_ROW),
            matches,
            self.frames.update_numbers,
            lineage=self.frames.lineage,
        )

    def _write(self, write: Write, *, few: bool) -> tuple[DataFile, ...]:
        return write_rows(
            self.attempt.context,
            self.attempt.table,
            self.frames.written(self.matches.frame),
            write.folder,
            self.attempt.write_options,
            lineage=self.frames.lineage,
            few=few,
        )


def upserted_rows(
    source: pa.Table,
    numbers: pa.ChunkedArray,
    matches: pa.Table,
    updates: Sequence[int],
    *,
    lineage: bool,
) -> pa.Table:
    """Return the source rows that update a match, once per match, and those that match nothing.

    The most common MERGE updates all columns of matches and inserts the other rows, so that the
    rows to write are stored already and need no Spark job. `source` has the rows, `numbers` their
    numbers. `matches` has, for each match, the number of its source row, the number of its clause
    (`updates` are the numbers of update clauses), and with lineage the old row's id.
    """
    source_numbers = numbers.to_numpy()
    order = np.argsort(source_numbers, kind="stable")
    matched_numbers = matches.column(MATCHED_ROW).to_numpy()
    matched = order[np.searchsorted(source_numbers, matched_numbers, sorter=order)]
    is_update = np.isin(matches.column(CHOSEN).to_numpy(), updates)
    is_new = np.ones(len(source_numbers), dtype=bool)
    is_new[matched] = False
    new = np.flatnonzero(is_new)
    rows = source.take(pa.array(np.concatenate([matched[is_update], new])))
    if not lineage:
        return rows
    kept_ids = matches.column(ROW_ID).filter(pa.array(is_update)).chunks
    row_ids = pa.chunked_array([*kept_ids, pa.nulls(len(new), pa.int64())], pa.int64())
    last_updated = pa.nulls(rows.num_rows, pa.int64())
    return rows.append_column(ROW_ID, row_ids).append_column(LAST_UPDATED, last_updated)

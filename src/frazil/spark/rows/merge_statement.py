"""One run of a MERGE, held against the table as it was loaded for it.

Large sources go through one join and one pass of tasks. Small ones are sent to where the target's
rows are; the matches are stored, and tell what goes and what is to be written. Few rows are then
written by the driver itself, since starting workers and shuffling would cost more than the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from frazil.datafiles.arrow.metadata_columns import ROW_ID
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.writing.changes_writer import DELETE, FILE, POSITION
from frazil.spark.conditions.sql_conditions import needed_columns
from frazil.spark.core.name_matching import names_of
from frazil.spark.core.results import Result
from frazil.spark.rows.changed_rows import ChangedRows, deletes_of
from frazil.spark.rows.merge_clauses import Merge
from frazil.spark.rows.merge_evolution import evolved_merge
from frazil.spark.rows.merge_frames import CHOSEN, MATCHED, SOURCE_ROW, MergeFrames, source_schema
from frazil.spark.rows.merge_reads import merge_reads
from frazil.spark.rows.path_codes import FileCodes
from frazil.spark.rows.row_statements import COLLECTED_ROWS, Attempt
from frazil.spark.rows.upserted_rows import upserted_rows
from frazil.spark.schema.spark_types import spark_schema
from frazil.spark.writing.frame_writer import can_write_here, write_here, write_rows
from frazil.spark.writing.row_sizes import SMALL_BYTES, is_small
from frazil.spark.writing.staging import Staged, staged
from frazil.spark.writing.write_commit import Write, writing
from frazil.wire.expressions import AlwaysFalse

_PLACES: Final = (FILE, POSITION, DELETE)


def run_merge(attempt: Attempt, merge: Merge, source: Staged, *, own_conflicts: bool) -> Result:
    """`own_conflicts`: where others are in conflict is told by what the statement reads."""
    if merge.evolves:
        given = source_schema(source.frame)
        made = evolved_merge(attempt.table, merge, given, names_of(attempt.context.spark))
        attempt = replace(attempt, table=made.table, evolution=made.evolution)
        merge = made.merge
    reads = merge_reads(attempt.context, attempt.table, merge, source.frame)
    conflicts = reads.filter if own_conflicts else attempt.conflict_filter
    attempt = replace(attempt, reads=reads.filter, conflict_filter=conflicts)
    reads_nothing = isinstance(attempt.reads, AlwaysFalse)
    if reads_nothing and not merge.inserts and not attempt.evolution.updates:
        return attempt.nothing()
    # What is asked of a target row, and what an updated one keeps.
    columns = needed_columns(merge.expressions(attempt.names), attempt.names)
    frames = MergeFrames(
        attempt.table,
        merge,
        attempt.rows(columns, lineage=attempt.has_lineage),
        source.frame,
        case_sensitive=attempt.names.case_sensitive,
        lineage=attempt.has_lineage,
        is_small_source=is_small(source.frame.schema, reads.source_rows),
    )
    if not frames.matches_first:
        return attempt.run(frames.changes(), check_cardinality=merge.checks_cardinality)
    tasks = attempt.tasks()
    codes = FileCodes.of(tasks.keys())
    with (
        writing(attempt.context, attempt.table) as write,
        staged(attempt.context, frames.matches(codes), attempt.table) as matches,
    ):
        stored = _Stored(attempt, frames, source, reads.source_rows or 0, matches, codes)
        return attempt.commit(write, stored.changes(write), tasks)


@dataclass(frozen=True)
class _Stored:
    """A small source and what it has matched, both in temporary files."""

    attempt: Attempt
    frames: MergeFrames
    source: Staged
    source_rows: int
    matches: Staged
    codes: FileCodes
    """Of the files that matches can be of."""

    def changes(self, write: Write) -> ChangedRows:
        names = [*_PLACES, MATCHED, CHOSEN, *([ROW_ID] if self.frames.lineage else [])]
        found = self.matches.read_here(names, COLLECTED_ROWS)
        checks = self.frames.merge.checks_cardinality
        if found is None:
            places = self.codes.with_paths(self.matches.frame.select(*_PLACES), FILE)
            changes = self.attempt.written(places, write, check_cardinality=checks)
            files = self._write(write, few=False)
        else:
            places = found.select(_PLACES)
            changes = deletes_of(places, self.codes, check_cardinality=checks)
            files = self._write_few(found, write)
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
            attempt.context,
            attempt.table,
            rows,
            write.folder,
            attempt.write_options,
            lineage=self.frames.lineage,
        )

    def _are_few(self, matches: pa.Table) -> bool:
        """By their number, and by the bytes that they are made of: a text may be of any length."""
        _, times = np.unique(matches.column(MATCHED).to_numpy(), return_counts=True)
        unmatched = self.source_rows - len(times)
        schema = spark_schema(self.attempt.table.schema)
        if not is_small(schema, matches.num_rows + unmatched):
            return False
        source, found = self.source.size_here(), self.matches.size_here()
        if source is None or found is None:
            return False
        # A row of the source may be written as often as it matches.
        return source * int(times.max(initial=1)) + found <= SMALL_BYTES

    def _upserted(self, matches: pa.Table) -> pa.Table | None:
        """The rows, if they are the source's own."""
        columns = self.frames.upserted_columns()
        if columns is None:
            return None
        rows = self.source.read_here([*columns, SOURCE_ROW], self.source_rows)
        if rows is None:
            return None
        names = [field.name for field in self.attempt.table.schema.fields]
        own = rows.drop_columns([SOURCE_ROW]).rename_columns(names)
        return upserted_rows(
            own,
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

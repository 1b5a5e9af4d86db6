"""Deletes the files of a table that nothing reaches any more, once their quarantine is over.

A sweep collects candidates: files of expired snapshots, leftovers of writers, orphans that were
found, and old metadata files. It takes away whatever the table, a lease or a live intent needs.
Then it marks the rest in a transaction that holds the table's row and has seen its newest metadata,
and deletes what it has marked. Large sweeps do that in chunks, data files first, so that a sweep
that was interrupted finds the rest again.

Several servers may sweep a table at once. They do the same work twice, and no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from frazil.db.base import Relation
from frazil.db.housekeeping_rows import database_now_ms
from frazil.db.rows import Database
from frazil.housekeeping.deletion.deleted_counts import DeletedFiles, SweepResult
from frazil.housekeeping.deletion.deletion_marks import Marks, RowsChanged
from frazil.housekeeping.deletion.due_rows import (
    DueRows,
    forget_expired,
    is_metadata_file,
    named_by_rows,
    run_many,
)
from frazil.housekeeping.deletion.marked_files import (
    chunked,
    delete_marked,
    in_order,
    kind_of_reason,
)
from frazil.housekeeping.expiration_plan import gc_is_enabled
from frazil.housekeeping.purged_tables import sweep_purged
from frazil.housekeeping.reachability import (
    UNWATCHED,
    FileKind,
    FoundFile,
    KeptFiles,
    TreeReader,
    Watch,
    tree_reader,
    unreachable_files,
)
from frazil.housekeeping.server_operations import JobRun, ServerTools

logger = logging.getLogger("frazil.housekeeping")

_ROUNDS: Final = 5
_MAX_PROBLEMS: Final = 20


def tables_due(database: Database, now_ms: int | None = None) -> list[str]:
    """Return the uuids of tables that may have something to delete."""
    time_ms = database_now_ms(database) if now_ms is None else now_ms
    return [row[0] for row in database.fetch("tables_with_work", {"now_ms": time_ms})]


def delete_unreachable_files(tools: ServerTools, job: JobRun) -> SweepResult:
    """Delete what is due of the table of a job."""
    watch = Watch(job.progress, job.cancelled)
    return sweep_table(tools, job.uuid, dry_run=job.dry_run, watch=watch)


def sweep_table(
    tools: ServerTools, uuid: str, *, dry_run: bool = False, watch: Watch = UNWATCHED
) -> SweepResult:
    """Delete what is due of a table, also of one that was purged. `dry_run` only counts it.

    Raises ValidationError if something that the table needs cannot be read. Then nothing is
    deleted.
    """
    for _ in range(_ROUNDS):
        try:
            row = tools.database.relation_by_uuid(uuid)
            if row is None:
                return sweep_purged(tools, uuid, dry_run, watch)
            return _TableSweep(tools, row, dry_run, watch).run()
        except RowsChanged:
            logger.info("sweep of %s begins again, because its rows have changed", uuid)
    return SweepResult(problems=("the rows of the table change too often: sweep it again",))


@dataclass(slots=True)
class _TableSweep:
    """One round of a sweep. Its marks are in the database, so another round may follow."""

    tools: ServerTools
    row: Relation
    dry_run: bool
    watch: Watch
    deleted: DeletedFiles = field(default_factory=DeletedFiles)
    problems: list[str] = field(default_factory=list)

    def run(self) -> SweepResult:
        metadata = self.tools.catalog.metadata_at(self.row.metadata_location)
        if not gc_is_enabled(metadata):
            return SweepResult(problems=("gc.enabled is false: all files stay",))
        rows = DueRows.read(self.tools.database, self.row.uuid, metadata)
        if rows.is_empty:
            return SweepResult()
        reader = tree_reader(self.tools)
        light = rows.are_old_metadata
        kept = KeptFiles(reader, self.watch)
        marks = Marks(self.tools, self.row.uuid, kept, only_metadata=light)
        marks.keep(self.row.metadata_location)
        if not light:
            kept.add(named_by_rows(rows.kept), in_quarantine=True)
        self._delete_leftovers(rows, marks)
        self._delete_doomed(rows, marks)
        self._delete_expired(rows, marks, reader)
        self._delete_retired(rows, marks)
        if not self.dry_run:
            forget_expired(self.tools.database, self.row.uuid, rows)
            marks.remove_empty_folders()
        return SweepResult(
            deleted=self.deleted,
            expired_snapshots_count=len(rows.due),
            ended_intents_count=len(rows.ended),
            problems=tuple(self.problems),
        )

    def _delete_leftovers(self, rows: DueRows, marks: Marks) -> None:
        """Delete what ended writers have left. An intent is marked with the last of its files, so
        that a sweep that was interrupted lists its folder again."""
        for intent in rows.ended:
            listed = self.tools.store.list(intent.prefix)
            files = [FoundFile(info.location, FileKind.UNKNOWN) for info in listed]
            chunks = list(chunked(files)) or [()]
            for number, chunk in enumerate(chunks, start=1):
                ids = (intent.intent_id,) if number == len(chunks) else ()
                self._delete(marks, chunk, intent_ids=ids)
            if not self.dry_run:
                self.tools.store.remove_empty_folders(intent.prefix)

    def _delete_doomed(self, rows: DueRows, marks: Marks) -> None:
        files = in_order(FoundFile(row.path, kind_of_reason(row.reason)) for row in rows.doomed)
        for chunk in chunked(files):
            self._delete(marks, chunk)
            if not self.dry_run:
                marks.forget_needed(chunk)

    def _delete_expired(self, rows: DueRows, marks: Marks, reader: TreeReader) -> None:
        if not rows.due:
            return
        found = unreachable_files(
            reader,
            named_by_rows(rows.due),
            marks.kept,
            marks.is_own,
            problem=self._problem,
            watch=self.watch,
        )
        ids = tuple(row.snapshot_id for row in rows.due)
        for chunk in chain(chunked(found), [()]):
            # They cannot come back from now on. After a crash their files are found again.
            self._delete(marks, chunk, snapshot_ids=ids)
            ids = ()

    def _delete_retired(self, rows: DueRows, marks: Marks) -> None:
        for paths in chunked(rows.retired):
            self._delete(marks, [FoundFile(path, _retired_kind(path)) for path in paths])
            if not self.dry_run:
                drop = [{"uuid": self.row.uuid, "path": path} for path in paths]
                run_many(self.tools.database, "drop_retired_metadata", drop)

    def _delete(
        self,
        marks: Marks,
        files: Sequence[FoundFile],
        *,
        snapshot_ids: tuple[int, ...] = (),
        intent_ids: tuple[str, ...] = (),
    ) -> None:
        if self.dry_run:
            marked = marks.deletable(files)
        elif files or snapshot_ids or intent_ids:
            marked = marks.mark(files, snapshot_ids, intent_ids)
            delete_marked(self.tools.database, self.tools.store, self.row.uuid, marked)
        else:
            return
        self.deleted = self.deleted + DeletedFiles.of(file.kind for file in marked)

    def _problem(self, message: str) -> None:
        logger.warning("sweep of %s: %s", self.row.identifier, message)
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(message)


def _retired_kind(path: str) -> FileKind:
    """Return what a file is that the metadata no longer names."""
    return FileKind.METADATA if is_metadata_file(path) else FileKind.STATISTICS

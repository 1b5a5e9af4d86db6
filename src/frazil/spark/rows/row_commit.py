"""Writes changed rows to files and commits them: the second half of DELETE, UPDATE and MERGE.

Copy-on-write replaces each touched data file by a copy without the deleted rows. Merge-on-read
keeps the data files and adds delete files. Both are validated against everything that was committed
since the snapshot that the statement has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command
from frazil.client.declare.table_verbs import Commit
from frazil.client.rows.row_removal import Mode as Mode
from frazil.client.rows.row_removal import check_can_delete_rows
from frazil.client.rows.row_removal import mode_of as mode_of
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.spark.core.context import Context
from frazil.spark.core.statement_runs import Result
from frazil.spark.rows.changed_rows import ChangedRows
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.writing.row_removal import copy_files, write_deletes
from frazil.spark.writing.write_commit import Write, commit_files
from frazil.wire.errors import FrazilError
from frazil.wire.expressions import Expression


@dataclass(frozen=True, kw_only=True)
class RowCommit:
    """Where changed rows are committed to, and what was read for them."""

    context: Context
    table: Table
    snapshot_id: int | None
    """The snapshot that is read, and the base of the commit; None before the first snapshot."""
    command: Command
    mode: Mode
    conflict_filter: Expression
    options: Mapping[str, Any]
    """Branch, summary, isolation and the like, as the client takes them."""
    evolution: Evolution
    """How the table's schema changes in the same commit; `table` has the new schema already."""

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
        added = (*changes.files, *copies)
        removed = [file.file_path for file in touched]
        commit = commit_files(
            write,
            self.context,
            self.table,
            self.evolution,
            added,
            lambda table: table.overwrite_files(added, removed, **self._checks()),
            even_empty=bool(removed),
        )
        return self._result(commit, changes, len(added), len(removed))

    def _merge_on_read(
        self, write: Write, changes: ChangedRows, touched: Sequence[DeletedRows]
    ) -> Result:
        if touched:
            check_can_delete_rows(self.table, self.command)
        deletes = write_deletes(self.context, self.table, touched, write.folder)
        files = (*changes.files, *deletes.added)
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
                referenced_data_files=[file.file_path for file in touched],
                **self._checks(),
            ),
        )
        return self._result(commit, changes, len(files), len(deletes.removed))

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

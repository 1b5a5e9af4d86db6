"""The second half of DELETE, UPDATE and MERGE: changed rows become files, and files a commit.

Copy-on-write writes the touched data files anew without the rows that go and replaces them;
merge-on-read leaves them and adds delete files. Both are checked against everything that was
committed since the snapshot that the statement has read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command
from frazil.client.declare.table_verbs import Commit, TableVerbs
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.spark.core.context import Context
from frazil.spark.core.results import Result
from frazil.spark.rows.changed_rows import ChangedRows
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.writing.file_copies import copy_files
from frazil.spark.writing.row_removal import write_deletes
from frazil.spark.writing.write_commit import Write, submitted
from frazil.wire.errors import BadRequest, FrazilError, UnsupportedOperation
from frazil.wire.expressions import Expression

DELETES_MIN_FORMAT_VERSION: Final = 2


class Mode(StrEnum):
    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"
    METADATA = "metadata"
    """Whole files go, and none is read."""


def mode_of(table: Table, command: Command, given: str | None = None) -> Mode:
    """What the caller asks for, or else the table's `write.<command>.mode`."""
    name = f"write.{command}.mode"
    text = table.properties.get(name, Mode.COPY_ON_WRITE) if given is None else given
    if text.lower() not in (Mode.COPY_ON_WRITE, Mode.MERGE_ON_READ):
        where = name if given is None else "mode"
        raise BadRequest(f"{where}: {text!r} must be copy-on-write or merge-on-read")
    return Mode(text.lower())


@dataclass(frozen=True, kw_only=True)
class RowCommit:
    """Where changed rows are committed to, and what was read for them."""

    context: Context
    table: Table
    snapshot_id: int | None
    """The snapshot that was scanned; None before the first."""
    command: Command
    mode: Mode
    conflict_filter: Expression
    options: Mapping[str, Any]
    """Branch, summary, isolation and the like, as the client takes them."""
    evolution: Evolution
    """How the schema changes in the same commit."""

    def commit(self, write: Write, changes: ChangedRows, tasks: Mapping[str, ScanTask]) -> Result:
        """`tasks` has the plan of every file that the scan can have read."""
        touched = [
            DeletedRows(_task(tasks, path), found) for path, found in changes.deleted.items()
        ]
        if not touched and not changes.files and not self.evolution.updates:
            return Result(commit=None, operation=self.command, mode=self.mode)
        if self.mode is Mode.MERGE_ON_READ:
            return self._merge_on_read(write, changes, touched)
        return self._copy_on_write(write, changes, touched)

    def _copy_on_write(
        self, write: Write, changes: ChangedRows, touched: Sequence[DeletedRows]
    ) -> Result:
        copies = copy_files(self.context, self.table, touched, write.folder)
        added = (*changes.files, *copies)
        removed = [one.file_path for one in touched]
        commit = write.commit(
            {file.file_path for file in added},
            lambda: self._submitted(
                lambda table: table.overwrite_files(added, removed, **self._checks()),
                has_files=bool(added or removed),
            ),
        )
        return self._result(commit, changes, len(added), len(removed))

    def _merge_on_read(
        self, write: Write, changes: ChangedRows, touched: Sequence[DeletedRows]
    ) -> Result:
        self._check_version(touched)
        deletes = write_deletes(self.context, self.table, touched, write.folder)
        files = (*changes.files, *deletes.added)
        commit = write.commit(
            {file.file_path for file in files},
            lambda: self._submitted(
                lambda table: table.row_delta(
                    changes.files,
                    deletes.added,
                    remove_deletes=deletes.removed,
                    referenced_data_files=[one.file_path for one in touched],
                    **self._checks(),
                ),
                has_files=bool(files),
            ),
        )
        return self._result(commit, changes, len(files), len(deletes.removed))

    def _check_version(self, touched: Sequence[DeletedRows]) -> None:
        """As in stock Spark, a statement that comes to need no deletes is none the worse for it."""
        if touched and self.table.format_version < DELETES_MIN_FORMAT_VERSION:
            raise UnsupportedOperation(
                f"{self.table}: cannot write delete files in a table of format version "
                f"{self.table.format_version}: set write.{self.command}.mode to copy-on-write, or "
                "upgrade the table"
            )

    def _submitted(self, declare: Callable[[TableVerbs[Any]], Any], *, has_files: bool) -> Commit:
        return submitted(self.context, self.table, self.evolution, declare, has_files=has_files)

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
    found = tasks.get(path)
    if found is None:
        raise FrazilError(f"the scan has read {path}, which the catalog's plan does not have")
    return found

"""Writes changed rows to files and commits them: the second half of DELETE, UPDATE and MERGE.

Copy-on-write replaces each touched data file by a copy without the deleted rows. Merge-on-read
keeps the data files and adds delete files. Both are validated against everything that was committed
since the snapshot that the statement has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Command
from frazil.client.declare.table_verbs import TableVerbs
from frazil.client.rows import row_removal
from frazil.client.rows.row_removal import Item, Work, WrittenDeletes, run_locally, shares
from frazil.client.rows.write_modes import Mode as Mode
from frazil.client.rows.write_modes import check_can_delete_rows
from frazil.client.rows.write_modes import mode_of as mode_of
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask
from frazil.spark.core.context import Context, dealt_out
from frazil.spark.core.statement_runs import Result
from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, share_task
from frazil.spark.rows.changed_rows import ChangedRows
from frazil.spark.schema.schema_evolution import Evolution
from frazil.spark.writing.write_commit import Write, WriteFolder, commit_files
from frazil.wire.declared_content import DeclaredContentFile
from frazil.wire.errors import FrazilError
from frazil.wire.expressions import Expression

_MAX_LOCAL_GROUPS: Final = 256
"""More than for copies, since few bytes are written for each group."""
_SHARE_BYTES: Final = 32 << 20
"""The least work of a task: starting a task for less does not pay."""
_MAX_SHARES: Final = 10_000
_MAX_LOCAL_ITEMS: Final = 32
MAX_LOCAL_BYTES: Final = 96 << 20


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
        paths = [file.file_path for file in touched]
        checks = {
            "base_snapshot_id": self.snapshot_id,
            "conflict_filter": self.conflict_filter,
            "command": self.command,
            **self.options,
        }
        added: Sequence[DeclaredContentFile]
        if self.mode is Mode.MERGE_ON_READ:
            if touched:
                check_can_delete_rows(self.table, self.command)
            deletes = write_deletes(self.context, self.table, touched, write.folder)
            added, removed = (*changes.files, *deletes.added), len(deletes.removed)
            checks |= {"remove_deletes": deletes.removed, "referenced_data_files": paths}

            def declare(table: TableVerbs[Any]) -> Any:
                return table.row_delta(changes.files, deletes.added, **checks)

        else:
            copies = copy_files(self.context, self.table, touched, write.folder)
            files = (*changes.files, *copies)
            added, removed = files, len(paths)

            def declare(table: TableVerbs[Any]) -> Any:
                return table.overwrite_files(files, paths, **checks)

        commit = commit_files(
            write,
            self.context,
            self.table,
            self.evolution,
            added,
            declare,
            even_empty=self.mode is not Mode.MERGE_ON_READ and bool(paths),
        )
        return Result(
            commit=commit,
            operation=self.command,
            mode=self.mode,
            rows_written=changes.rows_written,
            rows_deleted=changes.rows_deleted,
            files_added=len(added),
            files_removed=removed,
        )


def _task(tasks: Mapping[str, ScanTask], path: str) -> ScanTask:
    task = tasks.get(path)
    if task is None:
        raise FrazilError(f"the scan has read {path}, which is missing in the catalog's plan")
    return task


# --- removal of rows ------------------------------------------------------------------------------
# A job costs more than copying a small file, so little work is done in the driver. Both run the
# same code on the same encoded items.


def copy_files(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> tuple[DataFile, ...]:
    """Write the copies; a file whose rows are all deleted has none."""
    return row_removal.copy_files(table, touched, folder, partial(_run, context.spark))


def write_deletes(
    context: Context, table: Table, touched: Sequence[DeletedRows], folder: WriteFolder
) -> WrittenDeletes:
    """Write the deletes of the touched files, each of which has at least one position."""
    run = partial(_run, context.spark, max_local_items=_MAX_LOCAL_GROUPS)
    return row_removal.write_deletes(table, touched, folder, run)


def _run(
    spark: SparkSession,
    work: Work,
    items: Sequence[Item],
    *,
    max_local_items: int = _MAX_LOCAL_ITEMS,
) -> list[bytes]:
    """Return all results in any order; the first error ends the work."""
    total = sum(item.size_in_bytes for item in items)
    if len(items) <= max_local_items and total <= MAX_LOCAL_BYTES:
        return run_locally(work, items)
    return _run_in_tasks(spark, work, items, total)


def _run_in_tasks(
    spark: SparkSession, work: Work, items: Sequence[Item], total_bytes: int
) -> list[bytes]:
    count = min(len(items), max(1, total_bytes // _SHARE_BYTES), _MAX_SHARES)
    encoded = [msgspec.msgpack.encode(share) for share in shares(items, max(count, 2))]
    frame = dealt_out(spark, "share", pa.array(encoded, pa.binary()), len(encoded))
    rows = frame.mapInArrow(share_task(work), RESULT_SCHEMA).collect()
    return [bytes(row[0]) for row in rows]

"""Commits the new files of rewritten groups, also if others change the rows meanwhile.

The engine has remembered where each row went. So if deletes of old rows are committed while a group
is rewritten, deletes for the new files are written, and the group is committed again, instead of
throwing its work away. A file of the group that another commit has removed is treated in the same
way: its rows are deleted from the new files, because they are gone or live in other files.

The commit keeps the snapshot that was read as its base, and with it the sequence number of the new
files: newer equality deletes still apply to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.client.declare.client_table import Table
from frazil.client.rows.row_removal import RemovedDeletes, write_file_deletes
from frazil.client.rows.write_folders import Write
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.deletes_reader import deleted_positions
from frazil.datafiles.reading.file_storage import Storage
from frazil.datafiles.reading.scan_tasks import (
    DeletedRows,
    ScanTask,
    is_deletion_vector,
    task_of,
)
from frazil.datafiles.writing.delete_file_writer import is_file_scoped
from frazil.maintenance.file_groups import FileGroup
from frazil.maintenance.rewrite_engine import WrittenRows
from frazil.wire.errors import ValidationError
from frazil.wire.expressions import ALWAYS_TRUE
from frazil.wire.scan_planning import PlannedDataFile

_MAX_ROUNDS: Final = 20
"""How often groups are committed again because of new deletes."""
_OTHERS_REMOVED_ROWS: Final = frozenset(
    {
        "not-allowed-new-deletes-for-data-files",
        "required-data-files",
        "required-delete-files",
        "removed-file-not-live",
    }
)


@dataclass(frozen=True, slots=True)
class RewrittenGroup:
    """A group whose new files are not committed yet."""

    group: FileGroup
    rows: WrittenRows


@dataclass(frozen=True, slots=True)
class CommittedGroups:
    """What a commit has replaced."""

    replaced: tuple[ScanTask, ...] = ()
    """The old files. Files that other commits had removed before are missing here."""
    files: tuple[DataFile, ...] = ()
    removed_delete_files: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupCommit:
    """One commit of rewritten groups."""

    table: Table
    """The table as it was loaded when the groups were planned."""
    branch: str
    snapshot_id: int
    """The snapshot that was read."""
    use_starting_sequence_number: bool
    groups: Sequence[RewrittenGroup]

    def send(self, write: Write) -> CommittedGroups:
        """Commit the groups. Carry deletes of other commits over to the new files."""
        state = _Seen(self.snapshot_id, {task.file_path: task for task in self._tasks()})
        for number in range(1, _MAX_ROUNDS + 1):
            try:
                return self._sent(write, state, lost_rounds=number - 1)
            except ValidationError as refused:
                clauses = {conflict["clause"] for conflict in refused.conflicts}
                # With a new sequence number, newer equality deletes would no longer apply.
                can_follow = clauses <= _OTHERS_REMOVED_ROWS and self._new_number is not None
                if not can_follow or number == _MAX_ROUNDS:
                    raise
                newer = self._seen_now(write.folder.storage)
                if newer is None or newer.snapshot_id == state.snapshot_id:
                    raise
                if not newer.live:
                    write.fail()
                    return CommittedGroups()
                state = newer
        raise AssertionError("unreachable: the loop ends by returning or raising")

    def _tasks(self) -> Iterator[ScanTask]:
        for group in self.groups:
            yield from group.group.tasks

    def _sent(self, write: Write, seen: _Seen, lost_rounds: int) -> CommittedGroups:
        live = tuple(seen.live.values())
        files = tuple(
            file
            for group in self.groups
            if any(task.file_path in seen.live for task in group.group.tasks)
            for file in group.rows.files
        )
        added = {file.file_path for file in files}
        late = [rows for rows in seen.deleted if rows.file_path in added]
        deletes = write_file_deletes(self.table, late, write.folder)
        removed = tuple(_own_deletes(live))
        write.commit(
            added | {file.file_path for file in deletes},
            lambda: self.table.rewrite_files(
                seen.live,
                files,
                remove_deletes=removed,
                add_deletes=deletes,
                data_sequence_number=self._new_number,
                deletes_seen_at=seen.snapshot_id,
                lost_rounds=lost_rounds,
                base_snapshot_id=self.snapshot_id,
                branch=self.branch,
            ),
        )
        vectors = sum(any(map(is_deletion_vector, task.delete_files)) for task in live)
        return CommittedGroups(live, files, len(removed) + vectors)

    @property
    def _new_number(self) -> int | None:
        """The sequence number of the new files, or None for that of the commit."""
        if not self.use_starting_sequence_number or self.table.format_version < 2:
            return None
        return self.table.snapshot(self.snapshot_id).sequence_number

    def _seen_now(self, storage: Storage) -> _Seen | None:
        """Return what others have removed since the groups were read; None without a branch."""
        fresh = self.table.refreshed("refs")
        head = fresh.head(self.branch)
        if head is None:
            return None
        plan = fresh.plan(ALWAYS_TRUE, snapshot=head, use_snapshot_schema=False)
        planned = {task.data_file.file_path: task for task in plan.tasks}
        live = {
            path: task_of(planned[path])
            for path in (task.file_path for task in self._tasks())
            if path in planned
        }
        deleted = tuple(
            rows for group in self.groups for rows in _moved_deletes(group, live, storage)
        )
        return _Seen(head, live, deleted)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of the branch for which a commit is built."""

    snapshot_id: int
    live: Mapping[str, ScanTask]
    """The files of the groups that are live, with their deletes, by path."""
    deleted: tuple[DeletedRows, ...] = ()
    """The rows of the new files that were deleted since the groups were read."""


def _moved_deletes(
    group: RewrittenGroup, live: Mapping[str, ScanTask], storage: Storage
) -> Iterator[DeletedRows]:
    """Yield the rows of a group's new files that are deleted in the old files or gone with them."""
    deleted = {
        task.file_path: deleted_positions(live[task.file_path], storage)
        if task.file_path in live
        else None
        for task in group.group.tasks
    }
    files = {file.file_path: file for file in group.rows.files}
    for path, positions in group.rows.row_map.moved(deleted).items():
        if positions:
            yield DeletedRows(_task_of(files[path]), positions)


def _own_deletes(tasks: Sequence[ScanTask]) -> Iterator[RemovedDeletes]:
    """Yield the position deletes that apply to one of the files only.

    The server removes the vectors of removed files by itself.
    """
    for task in tasks:
        for file in task.position_deletes:
            if is_file_scoped(file) and not is_deletion_vector(file):
                yield file.file_path


def _task_of(file: DataFile) -> ScanTask:
    """Return a task for a file that is not committed yet, and so has no deletes."""
    return ScanTask(
        data_file=PlannedDataFile(
            file_path=file.file_path,
            file_format=file.file_format,
            spec_id=file.spec_id,
            partition=tuple(file.partition),
            file_size_in_bytes=file.file_size_in_bytes,
            record_count=file.record_count,
        )
    )

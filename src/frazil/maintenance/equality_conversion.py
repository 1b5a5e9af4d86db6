"""`convert_equality_deletes`: turns equality deletes into deletion vectors or position deletes.

Streaming upserts write the keys of old rows into files of equality deletes, and every reader has to
look each row up in them. The conversion finds these rows once and deletes them by position.

A file of equality deletes may be removed only if its rows were looked for in every data file that
it can apply to. So delete files and data files that are connected form a group, and a commit has
whole groups. It requires that all of these data files are still there: if a compaction has replaced
one meanwhile, its rows are looked for in the new file.

The snapshot is a `delete`, as if the rows were deleted now. Compactions do not look for new deletes
in the snapshots of a `replace`, so one that has read the data files before would bring the rows
back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Isolation
from frazil.client.declare.table_verbs import Commit
from frazil.client.rows.row_files import in_threads
from frazil.client.rows.row_removal import (
    VECTORS_MIN_FORMAT_VERSION,
    WrittenDeletes,
    write_deletes,
)
from frazil.client.rows.write_folders import Write, committing, new_folder
from frazil.datafiles.portable_table import PortableTable
from frazil.datafiles.reading.equality_matches import EqualityMatches
from frazil.datafiles.reading.row_positions import Positions
from frazil.datafiles.reading.scan_tasks import DeletedRows, ScanTask, task_of
from frazil.maintenance.dangling_removal import remove_dangling_after
from frazil.maintenance.data_file_rewrite import Progress
from frazil.maintenance.leased_operation import leased
from frazil.maintenance.planned_again import FAILURES, packed, until_committed
from frazil.wire.expressions import ALWAYS_TRUE
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, expression_of

_LOGGER: Final = logging.getLogger("frazil.maintenance")
_MAX_SIZE: Final = 5_000
"""How many files a commit names, unless one group has more."""


@dataclass(frozen=True, kw_only=True)
class ConversionResult:
    """What a conversion has done, or would do."""

    converted_equality_delete_files_count: int = 0
    added_position_delete_files_count: int = 0
    """Deletion vectors, or files of position deletes in format version 2."""
    deleted_rows_count: int = 0
    searched_data_files_count: int = 0
    failed_equality_delete_files_count: int = 0
    removed_dangling_delete_files_count: int = 0
    dry_run: bool = False


@leased
def convert_equality_deletes(
    table: Table,
    *,
    where: Filter | None = None,
    branch: str = MAIN,
    properties: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ConversionResult:
    """Replace equality deletes by deletion vectors, in format version 2 by position deletes.

    `where` chooses the delete files that apply to a file that may have matching rows. `properties`
    say how to reach the files, if the table does not. With `dry_run` nothing is written.
    """
    table = table.refreshed()
    snapshot_id = table.head(branch)
    if snapshot_id is None:
        return ConversionResult(dry_run=dry_run)
    groups = _groups(_tasks(table, snapshot_id))
    if where is not None:
        wanted = _paths_that_match(table, where, snapshot_id)
        groups = [group for group in groups if not wanted.isdisjoint(group.data_files)]
    if dry_run:
        return ConversionResult(
            converted_equality_delete_files_count=sum(len(group.deletes) for group in groups),
            searched_data_files_count=sum(len(group.tasks) for group in groups),
            dry_run=True,
        )
    results: list[_Converted] = []
    failed: list[tuple[_Group, Exception]] = []
    batches = [_joined(some) for some in packed(groups, _Group.size, _MAX_SIZE)]
    for number, group in enumerate(batches, start=1):
        conversion = _Conversion(table, branch, properties or {}, group.deletes)
        try:
            results.append(conversion.run(snapshot_id, group))
        except FAILURES as error:
            _LOGGER.warning("%d delete files were not converted: %s", len(group.deletes), error)
            failed.append((group, error))
        if progress is not None:
            progress(number, len(batches))
    if failed and not results:
        raise failed[0][1]
    return ConversionResult(
        converted_equality_delete_files_count=sum(done.deletes for done in results),
        added_position_delete_files_count=sum(done.added for done in results),
        deleted_rows_count=sum(done.rows for done in results),
        searched_data_files_count=sum(done.data_files for done in results),
        failed_equality_delete_files_count=sum(len(group.deletes) for group, _ in failed),
        removed_dangling_delete_files_count=remove_dangling_after(table, branch),
    )


# --- groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Data files and the equality deletes that can apply to them, and to no other file."""

    tasks: tuple[ScanTask, ...]
    deletes: frozenset[str]

    @property
    def data_files(self) -> set[str]:
        return {task.file_path for task in self.tasks}

    def size(self) -> int:
        """Return how large its commit is: the number of files that it names, at most."""
        return len(self.deletes) + 2 * len(self.tasks)


def _joined(groups: Sequence[_Group]) -> _Group:
    return _Group(
        tuple(task for group in groups for task in group.tasks),
        frozenset().union(*(group.deletes for group in groups)),
    )


def _tasks(table: Table, snapshot_id: int) -> Iterator[ScanTask]:
    """Yield the data files that equality deletes can apply to."""
    plan = table.plan(
        ALWAYS_TRUE,
        snapshot=snapshot_id,
        use_snapshot_schema=False,
        sequence_numbers=True,
        all_deletes=True,
    )
    for planned in plan.tasks:
        task = task_of(planned)
        if task.equality_deletes:
            yield task


def _paths_that_match(table: Table, where: Filter, snapshot_id: int) -> set[str]:
    plan = table.plan(expression_of(where), snapshot=snapshot_id, use_snapshot_schema=False)
    return {task.data_file.file_path for task in plan.tasks}


def _groups(tasks: Iterable[ScanTask]) -> list[_Group]:
    """Join the data files that share a delete file."""
    waiting = list(tasks)
    roots: dict[str, str] = {}

    def root(path: str) -> str:
        while roots.setdefault(path, path) != path:
            roots[path] = roots[roots[path]]
            path = roots[path]
        return path

    for task in waiting:
        first, *others = (file.file_path for file in task.equality_deletes)
        for other in others:
            roots[root(other)] = root(first)
    by_root: dict[str, list[ScanTask]] = {}
    for task in waiting:
        by_root.setdefault(root(task.equality_deletes[0].file_path), []).append(task)
    deletes: dict[str, set[str]] = {}
    for path in roots:
        deletes.setdefault(root(path), set()).add(path)
    return [_Group(tuple(own), frozenset(deletes[at])) for at, own in by_root.items()]


# --- one group ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Converted:
    deletes: int = 0
    added: int = 0
    rows: int = 0
    data_files: int = 0


@dataclass(slots=True)
class _Conversion:
    """The conversion of one group, which is planned again if other commits change its files."""

    table: Table
    branch: str
    properties: Mapping[str, str]
    deletes: frozenset[str]
    _known: dict[str, Positions] = field(default_factory=dict)
    """The deleted rows of the data files that were read for these deletes."""

    def run(self, snapshot_id: int, group: _Group) -> _Converted:
        with committing(new_folder(self.table, self.properties), self.table.intent) as write:
            done = until_committed(
                write,
                (snapshot_id, group),
                lambda plan: self._convert(write, *plan),
                self._planned_now,
            )
            return done or _Converted()

    def _convert(self, write: Write, snapshot_id: int, group: _Group) -> _Converted:
        rows = self._deleted_rows(write, group.tasks)
        written = write_deletes(self.table, rows, write.folder)
        paths = {file.file_path for file in written.added}
        write.commit(paths, lambda: self._send(snapshot_id, group, written))
        return _Converted(
            len(group.deletes),
            len(written.added),
            sum(len(each.positions) for each in rows),
            len(group.tasks),
        )

    def _send(self, snapshot_id: int, group: _Group, written: WrittenDeletes) -> Commit:
        removed, required = sorted(group.deletes), sorted(group.data_files)
        if not written.added:
            return self.table.rewrite_files(
                remove_deletes=removed,
                required_data_files=required,
                base_snapshot_id=snapshot_id,
                branch=self.branch,
            )
        return self.table.row_delta(
            add_deletes=written.added,
            remove_deletes=(*removed, *written.removed),
            referenced_data_files=required,
            rebase_deletion_vectors=self.table.format_version >= VECTORS_MIN_FORMAT_VERSION,
            command="delete",
            isolation=Isolation.SNAPSHOT,
            base_snapshot_id=snapshot_id,
            branch=self.branch,
        )

    def _deleted_rows(self, write: Write, tasks: Sequence[ScanTask]) -> list[DeletedRows]:
        new = [task for task in tasks if task.file_path not in self._known]
        matches = EqualityMatches(PortableTable.of(self.table), write.folder.storage)
        self._known |= matches.find(new, in_threads)
        found = ((task, self._known[task.file_path]) for task in tasks)
        return [DeletedRows(task, positions) for task, positions in found if positions]

    def _planned_now(self) -> tuple[int, _Group] | None:
        """Return the group as it is now, with no other deletes; None if nothing of it is left."""
        self.table = self.table.refreshed()
        head = self.table.head(self.branch)
        if head is None:
            return None
        tasks = [
            task
            for task in map(self._with_own_deletes, _tasks(self.table, head))
            if task.equality_deletes
        ]
        live = frozenset(file.file_path for task in tasks for file in task.equality_deletes)
        if not live:
            return None
        if live != self.deletes:
            self.deletes = live
            self._known.clear()
        return head, _Group(tuple(tasks), live)

    def _with_own_deletes(self, task: ScanTask) -> ScanTask:
        own = tuple(file for file in task.equality_deletes if file.file_path in self.deletes)
        return msgspec.structs.replace(task, delete_files=(*task.position_deletes, *own))

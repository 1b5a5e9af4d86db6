"""`rewrite_position_delete_files`: joins small files of position deletes, without dangling rows.

In format version 2 the delete files of a partition become few, or one for each data file, as the
table's `write.delete.granularity` says. In version 3 they become deletion vectors, whatever their
sizes are: writers of version 3 add no position deletes any more.

Only deletes of data files that are live and that the old files apply to are written. So rows that
point at removed data files are dropped. A commit has the groups of some partitions, and requires
that their old delete files are live. If another commit has replaced one, the groups are planned
again without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from frazil.client.declare.client_table import Table
from frazil.client.rows.row_files import in_threads
from frazil.client.rows.row_removal import (
    VECTORS_MIN_FORMAT_VERSION,
    RemovedDeletes,
    granularity,
    write_deletes,
    write_grouped_deletes,
)
from frazil.client.rows.write_folders import Write, WriteFolder, committing, new_folder
from frazil.datafiles.footers.files_from_parquet import PositionDeleteFile
from frazil.datafiles.reading.deletes_reader import positions_by_file
from frazil.datafiles.reading.row_positions import NO_POSITIONS, Positions
from frazil.datafiles.reading.scan_tasks import (
    DeletedRows,
    ScanTask,
    is_deletion_vector,
    task_of,
)
from frazil.datafiles.writing.write_properties import positive_property
from frazil.maintenance.dangling_removal import remove_dangling_after
from frazil.maintenance.data_file_rewrite import Progress
from frazil.maintenance.leased_operation import leased
from frazil.maintenance.planned_again import FAILURES, packed, until_committed
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import ALWAYS_TRUE
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, expression_of
from frazil.wire.maintenance_operations import (
    REWRITE_POSITION_DELETE_FILES,
    check_options,
    operation_of,
)
from frazil.wire.scan_planning import PlannedDeleteFile

_LOGGER: Final = logging.getLogger("frazil.maintenance")
_TARGET_SIZE: Final = "write.delete.target-file-size-bytes"
_TARGET_SIZE_DEFAULT_BYTES: Final = 64 << 20
_MAX_FILES: Final = 2_000
"""The most old delete files of a commit, unless one group has more."""


@dataclass(frozen=True, kw_only=True)
class DeleteRewriteResult:
    """What a rewrite has done, or would do. The names are those of Iceberg's procedure."""

    rewritten_delete_files_count: int = 0
    added_delete_files_count: int = 0
    rewritten_bytes_count: int = 0
    added_bytes_count: int = 0
    failed_delete_files_count: int = 0
    removed_dangling_delete_files_count: int = 0
    dry_run: bool = False


@leased
def rewrite_position_delete_files(
    table: Table,
    *,
    where: Filter | None = None,
    branch: str = MAIN,
    options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> DeleteRewriteResult:
    """Rewrite small files of position deletes into few, or into deletion vectors.

    `where` chooses the partitions of files that may have matching rows. The options are those of
    Iceberg's procedure `rewrite_position_delete_files`. `properties` say how to reach the files, if
    the table does not. With `dry_run` nothing is written.
    """
    chosen = DeleteRewriteOptions.of(options or {}, table.properties)
    table = table.refreshed()
    snapshot_id = table.head(branch)
    if snapshot_id is None:
        return DeleteRewriteResult(dry_run=dry_run)
    tasks = _tasks(table, snapshot_id)
    groups = list(_groups(table, tasks, chosen))
    if where is not None:
        plan = table.plan(expression_of(where), snapshot=snapshot_id, use_snapshot_schema=False)
        wanted = {task.data_file.file_path for task in plan.tasks}
        groups = [group for group in groups if not wanted.isdisjoint(group.data_files)]
    # A vector includes all position deletes of its file, so all of them must be removed.
    whole = table.format_version >= VECTORS_MIN_FORMAT_VERSION
    groups = list(_limited(groups, chosen.max_files, whole=whole))
    if dry_run:
        return DeleteRewriteResult(
            rewritten_delete_files_count=sum(len(group.files) for group in groups),
            rewritten_bytes_count=sum(group.size_in_bytes for group in groups),
            dry_run=True,
        )
    done: list[_Rewritten] = []
    failed: list[tuple[int, Exception]] = []
    batches = list(packed(groups, lambda group: len(group.files), _MAX_FILES))
    for number, batch in enumerate(batches, start=1):
        rewrite = _Rewrite(table, branch, properties or {}, chosen)
        try:
            done.append(rewrite.run(snapshot_id, batch))
        except FAILURES as error:
            files = sum(len(group.files) for group in batch)
            _LOGGER.warning("%d delete files were not rewritten: %s", files, error)
            failed.append((files, error))
        if progress is not None:
            progress(number, len(batches))
    limit = chosen.max_failed_commits
    if failed and (not done or (limit is not None and len(failed) > limit)):
        raise failed[0][1]
    return DeleteRewriteResult(
        rewritten_delete_files_count=sum(len(each.old) for each in done),
        added_delete_files_count=sum(len(each.new) for each in done),
        rewritten_bytes_count=sum(file.file_size_in_bytes for each in done for file in each.old),
        added_bytes_count=sum(each.added_bytes for each in done),
        failed_delete_files_count=sum(files for files, _ in failed),
        removed_dangling_delete_files_count=remove_dangling_after(table, branch),
    )


# --- options --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DeleteRewriteOptions:
    """How to choose delete files. Sizes are in bytes."""

    target_file_size: int
    min_file_size: int
    max_file_size: int
    min_input_files: int
    max_file_group_size: int
    rewrite_all: bool
    max_files: int | None
    max_failed_commits: int | None
    job_order: str

    @classmethod
    def of(cls, options: Mapping[str, str], properties: Mapping[str, str]) -> DeleteRewriteOptions:
        operation = operation_of(REWRITE_POSITION_DELETE_FILES)
        check_options(operation, options)
        values: dict[str, Any] = {
            name: operation.options[name](text) for name, text in options.items()
        }
        default = positive_property(properties, _TARGET_SIZE, _TARGET_SIZE_DEFAULT_BYTES)
        target = values.get("target-file-size-bytes", default)
        chosen = cls(
            target_file_size=target,
            min_file_size=values.get("min-file-size-bytes", int(target * 0.75)),
            max_file_size=values.get("max-file-size-bytes", int(target * 1.8)),
            min_input_files=values.get("min-input-files", 5),
            max_file_group_size=values.get("max-file-group-size-bytes", 100 << 30),
            rewrite_all=values.get("rewrite-all", False),
            max_files=values.get("max-files-to-rewrite"),
            max_failed_commits=values.get("partial-progress.max-failed-commits"),
            job_order=values.get("rewrite-job-order", "none"),
        )
        if not chosen.min_file_size < target < chosen.max_file_size:
            raise BadRequest(
                f"target-file-size-bytes: {target} must be above min-file-size-bytes "
                f"({chosen.min_file_size}) and below max-file-size-bytes ({chosen.max_file_size})"
            )
        return chosen


# --- groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Delete files of one partition, and the data files that they apply to."""

    files: tuple[PlannedDeleteFile, ...]
    tasks: tuple[ScanTask, ...]

    @property
    def size_in_bytes(self) -> int:
        return sum(file.file_size_in_bytes for file in self.files)

    @property
    def data_files(self) -> set[str]:
        return {task.file_path for task in self.tasks}


def _tasks(table: Table, snapshot_id: int) -> list[ScanTask]:
    """Return the data files that files of position deletes apply to."""
    plan = table.plan(ALWAYS_TRUE, snapshot=snapshot_id, use_snapshot_schema=False)
    tasks = map(task_of, plan.tasks)
    return [task for task in tasks if any(True for _ in _position_files(task))]


def _position_files(task: ScanTask) -> Iterator[PlannedDeleteFile]:
    return (file for file in task.position_deletes if not is_deletion_vector(file))


def _groups(
    table: Table, tasks: Sequence[ScanTask], options: DeleteRewriteOptions
) -> Iterator[_Group]:
    by_partition: dict[tuple[int, str], list[ScanTask]] = {}
    for task in tasks:
        key = task.data_file.spec_id, repr(task.data_file.partition)
        by_partition.setdefault(key, []).append(task)
    found = []
    for own in by_partition.values():
        files = {file.file_path: file for task in own for file in _position_files(task)}
        if table.format_version >= VECTORS_MIN_FORMAT_VERSION:
            found.append(_group_of(files.values(), own))
            continue
        chosen = [
            file for file in files.values() if options.rewrite_all or _has_wrong_size(file, options)
        ]
        for some in packed(
            chosen, lambda file: file.file_size_in_bytes, options.max_file_group_size
        ):
            group = _group_of(some, own)
            if options.rewrite_all or _pays(table, group, options):
                found.append(group)
    yield from _in_order(found, options.job_order)


def _group_of(files: Iterable[PlannedDeleteFile], tasks: Iterable[ScanTask]) -> _Group:
    files = tuple(files)
    paths = {file.file_path for file in files}
    own = (task for task in tasks if any(file.file_path in paths for file in _position_files(task)))
    return _Group(files, tuple(own))


def _has_wrong_size(file: PlannedDeleteFile, options: DeleteRewriteOptions) -> bool:
    return not options.min_file_size <= file.file_size_in_bytes <= options.max_file_size


def _pays(table: Table, group: _Group, options: DeleteRewriteOptions) -> bool:
    """Return whether the rules of Iceberg choose the group, and it will have fewer files."""
    count, size = len(group.files), group.size_in_bytes
    if granularity(table.properties) == "file" and count <= len(group.tasks):
        return False
    return (
        size > options.max_file_size
        or (count > 1 and count >= options.min_input_files)
        or (count > 1 and size > options.target_file_size)
    )


def _in_order(groups: list[_Group], order: str) -> list[_Group]:
    if order == "none":
        return groups
    what, _, direction = order.partition("-")
    return sorted(
        groups,
        key=lambda group: group.size_in_bytes if what == "bytes" else len(group.files),
        reverse=direction == "desc",
    )


def _limited(groups: Iterable[_Group], max_files: int | None, *, whole: bool) -> Iterator[_Group]:
    """Yield groups until there are so many files, the last one in part unless `whole` is set."""
    left = max_files
    for group in groups:
        if left is not None and left <= 0:
            return
        yield group if left is None or whole else _group_of(group.files[:left], group.tasks)
        left = None if left is None else left - len(group.files)


# --- one commit -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rewritten:
    old: tuple[PlannedDeleteFile, ...] = ()
    new: tuple[PositionDeleteFile, ...] = ()

    @property
    def added_bytes(self) -> int:
        return sum(
            file.file_size_in_bytes
            if file.content_size_in_bytes is None
            else file.content_size_in_bytes
            for file in self.new
        )


_Written: TypeAlias = tuple[tuple[PositionDeleteFile, ...], tuple[RemovedDeletes, ...]]
"""The new delete files of a group, and the old ones that they include."""


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """A rewrite of some groups, which is planned again if other commits change their files."""

    table: Table
    branch: str
    properties: Mapping[str, str]
    options: DeleteRewriteOptions
    _known: dict[tuple[str, ...], tuple[_Group, _Written]] = field(default_factory=dict)
    """What was written for each group, by the paths of its files."""

    def run(self, snapshot_id: int, groups: Sequence[_Group]) -> _Rewritten:
        with committing(new_folder(self.table, self.properties), self.table.intent) as write:
            done = until_committed(
                write,
                (snapshot_id, groups),
                lambda plan: self._rewrite(write, *plan),
                lambda: self._planned_now(groups),
            )
            return done or _Rewritten()

    def _rewrite(self, write: Write, snapshot_id: int, groups: Sequence[_Group]) -> _Rewritten:
        written = [self._written_once(write.folder, group) for group in groups]
        added = tuple(file for new, _ in written for file in new)
        old = {file.file_path: file for group in groups for file in group.files}
        included = dict.fromkeys(each for _, some in written for each in some)
        removed = [*old, *(each for each in included if each not in old)]
        write.commit(
            {file.file_path for file in added},
            lambda: self.table.rewrite_files(
                remove_deletes=removed,
                add_deletes=added,
                rebase_deletion_vectors=self._has_vectors,
                base_snapshot_id=snapshot_id,
                branch=self.branch,
            ),
        )
        return _Rewritten(tuple(old.values()), added)

    @property
    def _has_vectors(self) -> bool:
        return self.table.format_version >= VECTORS_MIN_FORMAT_VERSION

    def _written_once(self, folder: WriteFolder, group: _Group) -> _Written:
        """Write a group again only if other commits have changed it."""
        paths = tuple(file.file_path for file in group.files)
        before, written = self._known.get(paths, (None, None))
        if written is None or before != group:
            written = self._written(folder, group)
            self._known[paths] = group, written
        return written

    def _written(self, folder: WriteFolder, group: _Group) -> _Written:
        """Write the new deletes. Return also the old ones that they include."""
        rows = self._deleted_rows(folder, group)
        if self._has_vectors:
            written = write_deletes(self.table, rows, folder)
            return written.added, written.removed
        bare = [
            DeletedRows(msgspec.structs.replace(each.task, delete_files=()), each.positions)
            for each in rows
        ]
        return write_grouped_deletes(self.table, self._new_files(group, bare), folder), ()

    def _deleted_rows(self, folder: WriteFolder, group: _Group) -> list[DeletedRows]:
        """Read the positions that the old files delete in live data files."""
        positions: dict[str, Positions] = {}
        live = {task.file_path: task for task in group.tasks}
        for found in in_threads(lambda file: positions_by_file(file, folder.storage), group.files):
            for path, of_file in found.items():
                if path in live:
                    positions[path] = positions.get(path, NO_POSITIONS) | of_file
        return [DeletedRows(live[path], of_file) for path, of_file in positions.items()]

    def _new_files(self, group: _Group, rows: Sequence[DeletedRows]) -> Iterator[list[DeletedRows]]:
        """Share the rows out to new files: one for each data file, or of about the target size."""
        if granularity(self.table.properties) == "file":
            yield from ([each] for each in rows)
            return
        records = max(1, sum(file.record_count for file in group.files))
        most = max(1, self.options.target_file_size * records // max(1, group.size_in_bytes))
        shared: list[DeletedRows] = []
        count = 0
        for each in rows:
            if shared and count + len(each.positions) > most:
                yield shared
                shared, count = [], 0
            shared.append(each)
            count += len(each.positions)
        if shared:
            yield shared

    def _planned_now(self, groups: Sequence[_Group]) -> tuple[int, Sequence[_Group]] | None:
        """Return the groups as they are now, without other files; None if nothing is left."""
        table = self.table.refreshed("refs")
        head = table.head(self.branch)
        if head is None:
            return None
        tasks = _tasks(table, head)
        live = {file.file_path for task in tasks for file in _position_files(task)}
        now = [
            _group_of((file for file in group.files if file.file_path in live), tasks)
            for group in groups
        ]
        left = [group for group in now if group.files]
        return (head, left) if left else None

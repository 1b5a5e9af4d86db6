"""`rewrite_data_files`: compacts the data files of a table.

The files of each partition are packed into groups. Each group is rewritten by itself, and by
default committed by itself: a group that fails does not undo the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from frazil.client.declare.client_table import Table
from frazil.client.rows.row_files import planned_tasks
from frazil.client.rows.write_folders import Write, WriteFolder, committing, new_folder
from frazil.maintenance.dangling_removal import remove_dangling_after
from frazil.maintenance.engine_choice import ChosenEngine, choose_engine
from frazil.maintenance.file_groups import FileGroup, file_groups
from frazil.maintenance.group_commit import CommittedGroups, GroupCommit, RewrittenGroup
from frazil.maintenance.leased_operation import leased
from frazil.maintenance.rewrite_engine import GroupWork, RewriteEngine, WrittenRows
from frazil.maintenance.rewrite_options import (
    RewriteOptions,
    check_order_options,
    parse_options,
)
from frazil.maintenance.rewrite_order import RewriteOrder, rewrite_order
from frazil.wire.errors import BadRequest, FrazilError
from frazil.wire.expressions import ALWAYS_TRUE
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, expression_of

_LOGGER: Final = logging.getLogger("frazil.maintenance")
_FAILURES: Final = (FrazilError, OSError, pa.ArrowException)
"""The errors of a group that do not stop the others: refusals, and files that cannot be read or
written."""

Progress = Callable[[int, int], None]
"""Is called with the number of finished groups and the number of all groups."""


@dataclass(frozen=True, kw_only=True)
class RewriteResult:
    """What a rewrite has done, or would do. The names are those of Iceberg's procedure."""

    rewritten_data_files_count: int = 0
    added_data_files_count: int = 0
    rewritten_bytes_count: int = 0
    failed_data_files_count: int = 0
    removed_delete_files_count: int = 0
    dry_run: bool = False
    engine: str = ""
    """What has written the new files: `local` or `spark`. Empty if there was nothing to do."""
    engine_reason: str = ""


@leased
def rewrite_data_files(
    table: Table,
    *,
    strategy: str | None = None,
    sort_order: str | None = None,
    where: Filter | None = None,
    branch: str = MAIN,
    options: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    spark_engine: RewriteEngine | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RewriteResult:
    """Rewrite small, large and partly deleted files into files of the target size.

    The strategy `binpack` keeps the order of rows. `sort` sorts the rows of each group by
    `sort_order`, such as `c1 DESC NULLS LAST, bucket(4, c2)` or `zorder(c1, c2)`, by default by the
    table's sort order. `where` chooses the files that may have matching rows. The options are those
    of Iceberg's procedure `rewrite_data_files`. `properties` say how to reach the files, if the
    table does not. Large rewrites are left to `spark_engine`, if there is one. With `dry_run`
    nothing is written.
    """
    chosen = parse_options(options or {}, table.properties)
    table = table.refreshed()
    order = rewrite_order(table, strategy, sort_order)
    check_order_options(options or {}, order is not None)
    snapshot_id = table.head(branch)
    if snapshot_id is None:
        return RewriteResult(dry_run=dry_run)
    output_spec_id = int(table.spec(chosen.output_spec_id)["spec-id"])
    expression = ALWAYS_TRUE if where is None else expression_of(where)
    tasks = planned_tasks(table, expression, snapshot_id)
    for task in tasks:
        if task.data_file.file_format.lower() != "parquet":
            raise BadRequest(f"{task.file_path}: only Parquet files are rewritten")
    groups = file_groups(tasks, chosen, output_spec_id)
    size = sum(group.size_in_bytes for group in groups)
    engine = choose_engine(chosen, size, spark_engine)
    if dry_run:
        return RewriteResult(
            rewritten_data_files_count=sum(len(group.tasks) for group in groups),
            rewritten_bytes_count=size,
            dry_run=True,
            engine=engine.engine.name if groups else "",
            engine_reason=engine.reason if groups else "",
        )
    if not groups:
        return RewriteResult()
    _LOGGER.info("%s: rewritten by the engine %s: %s", table, engine.engine.name, engine.reason)
    run = _Run(
        table=table,
        branch=branch,
        snapshot_id=snapshot_id,
        options=chosen,
        output_spec_id=output_spec_id,
        properties=properties or {},
        engine=engine,
        order=order,
        progress=progress,
        groups=groups,
    )
    result = run.all()
    if not chosen.remove_dangling_deletes or not result.rewritten_data_files_count:
        return result
    dangling = remove_dangling_after(table, branch)
    removed = result.removed_delete_files_count + dangling
    return replace(result, removed_delete_files_count=removed)


@dataclass(slots=True, kw_only=True)
class _Run:
    table: Table
    branch: str
    snapshot_id: int
    options: RewriteOptions
    output_spec_id: int
    properties: Mapping[str, str]
    engine: ChosenEngine
    order: RewriteOrder | None
    progress: Progress | None
    groups: Sequence[FileGroup]
    finished: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def all(self) -> RewriteResult:
        commits = list(_shares(self.groups, self.options.commit_count(len(self.groups))))
        workers = min(self.options.max_concurrent_rewrites, len(self.groups))
        with (
            ThreadPoolExecutor(workers, thread_name_prefix="frazil-rewrite") as pool,
            ThreadPoolExecutor(
                max(1, workers // len(commits[0])), thread_name_prefix="frazil-rewrite-commit"
            ) as commit_pool,
        ):
            results = list(commit_pool.map(lambda groups: self._committed(groups, pool), commits))
        errors = [result.error for result in results if result.error is not None]
        limit = self.options.max_failed_commits
        done = [result.done for result in results]
        if errors and (
            not any(each.replaced for each in done) or (limit is not None and len(errors) > limit)
        ):
            raise errors[0]
        replaced = [task.data_file for each in done for task in each.replaced]
        return RewriteResult(
            rewritten_data_files_count=len(replaced),
            added_data_files_count=sum(len(each.files) for each in done),
            rewritten_bytes_count=sum(file.file_size_in_bytes for file in replaced),
            failed_data_files_count=sum(result.failed_files for result in results),
            removed_delete_files_count=sum(each.removed_delete_files for each in done),
            engine=self.engine.engine.name,
            engine_reason=self.engine.reason,
        )

    def _committed(self, groups: Sequence[FileGroup], pool: Executor) -> _Outcome:
        """Rewrite groups and commit those that succeed in one commit."""
        try:
            with committing(new_folder(self.table, self.properties), self.table.intent) as write:
                rewritten = [pool.submit(self._rewritten, group, write.folder) for group in groups]
                return self._commit(write, groups, [each.result() for each in rewritten])
        except _FAILURES as error:
            _LOGGER.warning("%d groups of files were not rewritten: %s", len(groups), error)
            return _Outcome(failed_files=_file_count(groups), error=error)

    def _commit(
        self,
        write: Write,
        groups: Sequence[FileGroup],
        rewritten: Sequence[WrittenRows | Exception],
    ) -> _Outcome:
        done, failed, errors = [], [], []
        for group, rows in zip(groups, rewritten, strict=True):
            if isinstance(rows, Exception):
                failed.append(group)
                errors.append(rows)
            else:
                done.append(RewrittenGroup(group, rows))
        if errors and (not done or not self.options.partial_progress):
            raise errors[0]
        commit = GroupCommit(
            table=self.table,
            branch=self.branch,
            snapshot_id=self.snapshot_id,
            use_starting_sequence_number=self.options.use_starting_sequence_number,
            groups=done,
        )
        error = errors[0] if errors else None
        return _Outcome(commit.send(write), _file_count(failed), error)

    def _rewritten(self, group: FileGroup, folder: WriteFolder) -> WrittenRows | Exception:
        work = GroupWork(
            table=self.table,
            group=group,
            output_spec_id=self.output_spec_id,
            order=self.order,
            options=self.options,
        )
        try:
            return self.engine.engine.rewrite(work, folder)
        except _FAILURES as error:
            _LOGGER.warning("a group of %d files was not rewritten: %s", len(group.tasks), error)
            return error
        finally:
            with self.lock:
                self.finished += 1
                if self.progress is not None:
                    self.progress(self.finished, len(self.groups))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of the groups of one commit."""

    done: CommittedGroups = field(default_factory=CommittedGroups)
    failed_files: int = 0
    error: Exception | None = None
    """Why the commit, or the first group that is not in it, failed."""


def _file_count(groups: Iterable[FileGroup]) -> int:
    return sum(len(group.tasks) for group in groups)


def _shares(groups: Sequence[FileGroup], count: int) -> Iterator[Sequence[FileGroup]]:
    """Split groups into shares of about the same length, in their order."""
    size = -(-len(groups) // count)
    for start in range(0, len(groups), size):
        yield groups[start : start + size]

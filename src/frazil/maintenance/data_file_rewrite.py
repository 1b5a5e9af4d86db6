"""`rewrite_data_files`: compacts the data files of a table.

The files of each partition are packed into groups, and each group is rewritten and committed by
itself. A group that fails does not undo the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from frazil.client.declare.client_table import Table
from frazil.client.rows.row_files import planned_tasks
from frazil.client.rows.write_folders import committing, new_folder
from frazil.maintenance.engine_choice import ChosenEngine, choose_engine
from frazil.maintenance.file_groups import FileGroup, file_groups
from frazil.maintenance.group_commit import CommittedGroups, GroupCommit, RewrittenGroup
from frazil.maintenance.rewrite_engine import GroupWork, RewriteEngine
from frazil.maintenance.rewrite_options import RewriteOptions, parse_options
from frazil.maintenance.rewrite_order import RewriteOrder, rewrite_order
from frazil.wire.errors import BadRequest, FrazilError
from frazil.wire.expressions import ALWAYS_TRUE
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, expression_of

_LOGGER: Final = logging.getLogger("frazil.maintenance")

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
        groups=len(groups),
    )
    return run.all(groups)


@dataclass(slots=True)
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
    groups: int
    finished: int = 0

    def all(self, groups: list[FileGroup]) -> RewriteResult:
        workers = min(self.options.max_concurrent_rewrites, max(1, len(groups)))
        with ThreadPoolExecutor(workers, thread_name_prefix="frazil-rewrite") as pool:
            results = list(pool.map(self._one, groups))
        done = [result for result in results if isinstance(result, CommittedGroups)]
        failed = [result for result in results if isinstance(result, FrazilError)]
        limit = self.options.max_failed_commits
        if failed and (not done or (limit is not None and len(failed) > limit)):
            raise failed[0]
        replaced = [task.data_file for result in done for task in result.replaced]
        return RewriteResult(
            rewritten_data_files_count=len(replaced),
            added_data_files_count=sum(len(result.files) for result in done),
            rewritten_bytes_count=sum(file.file_size_in_bytes for file in replaced),
            failed_data_files_count=sum(
                len(group.tasks)
                for group, result in zip(groups, results, strict=True)
                if isinstance(result, FrazilError)
            ),
            removed_delete_files_count=sum(result.removed_delete_files for result in done),
            engine=self.engine.engine.name,
            engine_reason=self.engine.reason,
        )

    def _one(self, group: FileGroup) -> CommittedGroups | FrazilError:
        work = GroupWork(
            table=self.table,
            group=group,
            output_spec_id=self.output_spec_id,
            order=self.order,
            options=self.options,
        )
        try:
            with committing(new_folder(self.table, self.properties)) as write:
                rows = self.engine.engine.rewrite(work, write.folder)
                return self._commit_of(RewrittenGroup(group, rows)).send(write)
        except FrazilError as error:
            _LOGGER.warning("a group of %d files was not rewritten: %s", len(group.tasks), error)
            return error
        finally:
            self.finished += 1
            if self.progress is not None:
                self.progress(self.finished, self.groups)

    def _commit_of(self, *groups: RewrittenGroup) -> GroupCommit:
        return GroupCommit(
            table=self.table,
            branch=self.branch,
            snapshot_id=self.snapshot_id,
            use_starting_sequence_number=self.options.use_starting_sequence_number,
            groups=groups,
        )

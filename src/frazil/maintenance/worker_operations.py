"""The operations of maintenance that a worker runs, each as a function of a table and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from frazil.client.declare.client_table import Table
from frazil.wire.file_actions import MAIN
from frazil.wire.maintenance_operations import (
    CONVERT_EQUALITY_DELETES,
    REWRITE_DATA_FILES,
    REWRITE_POSITION_DELETE_FILES,
)

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class WorkerRun:
    """One run of an operation by a worker."""

    table: Table
    options: Mapping[str, str]
    dry_run: bool
    progress: Progress
    """Reports how much is done, and of how much."""

    def without(self, *names: str) -> dict[str, str]:
        """Return the options but those that are arguments of their own."""
        return {name: text for name, text in self.options.items() if name not in names}


_ONE_GROUP: Final[Mapping[str, str]] = {"max-concurrent-file-group-rewrites": "1"}
"""A worker has little memory, and each group takes up to half a gigabyte of it."""

WorkerOperation: TypeAlias = Callable[[WorkerRun], Mapping[str, Any]]


def _rewrite_data_files(run: WorkerRun) -> Mapping[str, Any]:
    from frazil.maintenance.data_file_rewrite import rewrite_data_files

    result = rewrite_data_files(
        run.table,
        where=run.options.get("where"),
        branch=run.options.get("branch", MAIN),
        strategy=run.options.get("strategy"),
        sort_order=run.options.get("sort_order"),
        options={**_ONE_GROUP, **run.without("where", "branch", "strategy", "sort_order")},
        dry_run=run.dry_run,
        progress=run.progress,
    )
    return _kebab(asdict(result))


def _convert_equality_deletes(run: WorkerRun) -> Mapping[str, Any]:
    from frazil.maintenance.equality_conversion import convert_equality_deletes

    result = convert_equality_deletes(
        run.table,
        where=run.options.get("where"),
        branch=run.options.get("branch", MAIN),
        dry_run=run.dry_run,
        progress=run.progress,
    )
    return _kebab(asdict(result))


def _rewrite_position_delete_files(run: WorkerRun) -> Mapping[str, Any]:
    from frazil.maintenance.position_delete_rewrite import rewrite_position_delete_files

    result = rewrite_position_delete_files(
        run.table,
        where=run.options.get("where"),
        branch=run.options.get("branch", MAIN),
        options=run.without("where", "branch"),
        dry_run=run.dry_run,
        progress=run.progress,
    )
    return _kebab(asdict(result))


def _kebab(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in values.items()}


WORKER_OPERATIONS: Final[dict[str, WorkerOperation]] = {
    CONVERT_EQUALITY_DELETES: _convert_equality_deletes,
    REWRITE_DATA_FILES: _rewrite_data_files,
    REWRITE_POSITION_DELETE_FILES: _rewrite_position_delete_files,
}
"""By name. Other workers may know more."""

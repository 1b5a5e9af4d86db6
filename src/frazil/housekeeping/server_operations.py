"""The operations of maintenance that the server runs, each as a function of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from msgspec import Struct

from frazil.commit.catalog.manifest_maintenance import (
    RemovedDanglingDeletes,
    RewrittenManifests,
)
from frazil.commit.pipeline.pending_requests import Context
from frazil.wire.errors import NoSuchTable
from frazil.wire.file_actions import MAIN
from frazil.wire.identifiers import Identifier
from frazil.wire.maintenance_operations import (
    DELETE_UNREACHABLE_FILES,
    EXPIRE_SNAPSHOTS,
    REMOVE_DANGLING_DELETES,
    REMOVE_ORPHAN_FILES,
    REWRITE_MANIFESTS,
    UNDO,
)

if TYPE_CHECKING:
    from frazil.commit.catalog.operations import Catalog
    from frazil.db.rows import Database
    from frazil.store.object_store import Store


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What the operations work with."""

    database: Database
    store: Store
    catalog: Catalog


class JobCancelled(Exception):
    """The job ends because somebody has asked for it."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job."""

    identifier: Identifier
    """The name of the table when the job was started; it may have another one now."""
    uuid: str
    options: Mapping[str, str]
    dry_run: bool
    principal: str
    progress: Callable[[int, int], None]
    """Reports how much is done, and of how much."""
    cancelled: Callable[[], bool]
    """Says whether to stop: raise JobCancelled, or return what was done until now."""


ServerOperation: TypeAlias = Callable[[ServerTools, JobRun], Struct]


def current_name(tools: ServerTools, run: JobRun) -> Identifier:
    """Return the name that the table of a job has now."""
    row = tools.database.relation_by_uuid(run.uuid)
    if row is None:
        raise NoSuchTable(f"Table does not exist: {run.identifier}")
    return row.identifier


def sender(run: JobRun) -> Context:
    """Return the sender of a job's commits."""
    return Context(run.principal, str(uuid4()))


def rewrite_manifests(tools: ServerTools, run: JobRun) -> RewrittenManifests:
    spec_id, sort_by = run.options.get("spec_id"), run.options.get("sort_by", "")
    return tools.catalog.rewrite_manifests(
        sender(run),
        current_name(tools, run),
        branch=run.options.get("branch", MAIN),
        spec_id=None if spec_id is None else int(spec_id),
        sort_by=[name.strip() for name in sort_by.split(",") if name.strip()],
        dry_run=run.dry_run,
        progress=run.progress,
        cancelled=run.cancelled,
    )


def remove_dangling_deletes(tools: ServerTools, run: JobRun) -> RemovedDanglingDeletes:
    return tools.catalog.remove_dangling_deletes(
        sender(run),
        current_name(tools, run),
        branch=run.options.get("branch", MAIN),
        dry_run=run.dry_run,
    )


def _later(module: str, function: str) -> ServerOperation:
    """Return an operation whose module imports this one."""

    def run(tools: ServerTools, job: JobRun) -> Struct:
        operation: ServerOperation = getattr(import_module(module), function)
        return operation(tools, job)

    return run


SERVER_OPERATIONS: Final[dict[str, ServerOperation]] = {
    EXPIRE_SNAPSHOTS: _later("frazil.housekeeping.expiration", "expire_snapshots"),
    DELETE_UNREACHABLE_FILES: _later("frazil.housekeeping.sweep", "delete_unreachable_files"),
    REMOVE_ORPHAN_FILES: _later("frazil.housekeeping.orphan_files", "remove_orphan_files"),
    UNDO: _later("frazil.housekeeping.undo", "undo"),
    REWRITE_MANIFESTS: rewrite_manifests,
    REMOVE_DANGLING_DELETES: remove_dangling_deletes,
}
"""By name. An operation that the server runs and that is missing here is refused."""

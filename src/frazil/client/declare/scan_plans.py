"""Scans planned by the catalog: the files to read, their deletes and residual filters.

The catalog may return a plan in pages, and a slow plan must be polled. This module does both, so
the caller gets one complete plan. Planning changes nothing, so every failure can be retried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict
from urllib.parse import quote

import msgspec
from msgspec import Struct

from frazil.client.declare.file_operations import check_options
from frazil.client.send.catalog_calls import Calls, decode, table_path
from frazil.client.send.error_answers import CatalogUnreachable, error_of
from frazil.client.send.http_transport import Answer
from frazil.wire.errors import BadRequest, FrazilError, ServiceUnavailable, UnsupportedOperation
from frazil.wire.file_actions import MAIN
from frazil.wire.filter_builders import Filter, optional_filter_json
from frazil.wire.identifiers import Identifier
from frazil.wire.leases import PLAN_LEASE_HEADER
from frazil.wire.scan_planning import (
    FetchScanTasksRequest,
    FileScanTask,
    PlannedDataFile,
    PlannedDeleteFile,
    PlanTableScanRequest,
)

if TYPE_CHECKING:
    from frazil.client.declare.client_table import Table

EXPLAIN_HEADER: Final = "X-Frazil-Explain"
SEQUENCE_NUMBERS_HEADER: Final = "X-Frazil-Sequence-Numbers"
ALL_DELETES_HEADER: Final = "X-Frazil-All-Deletes"
_ENDPOINT: Final = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/plan"
_PARALLEL_PAGES: Final = 4
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


# --- results --------------------------------------------------------------------------------------


class Walk(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Counts of what the planner read and skipped at each level."""

    data_manifests: int
    data_manifests_skipped_by_partition: int
    data_manifests_without_live_files: int
    data_files: int
    data_files_skipped_by_partition: int
    data_files_skipped_by_statistics: int
    delete_manifests: int
    delete_manifests_skipped_by_partition: int
    delete_manifests_without_live_files: int
    delete_files: int
    delete_files_skipped: int
    data_files_planned: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned files of a scan."""

    tasks: tuple[FileScanTask, ...]
    walk: Walk | None = None
    """Set if it was requested and the catalog returned it."""
    is_whole: bool = True
    """False if `max_files` cut the plan short."""
    is_leased: bool = False
    """Whether the catalog took the lease of the option `lease_id`."""

    @property
    def files(self) -> tuple[PlannedDataFile, ...]:
        return tuple(task.data_file for task in self.tasks)


# --- requests -------------------------------------------------------------------------------------


class PlanOptions(TypedDict, total=False):
    """Options of a scan's plan."""

    select: Sequence[str] | None
    snapshot: str | int | None
    from_snapshot: str | int | None
    to_snapshot: str | int | None
    case_sensitive: bool
    stats_fields: Sequence[str]
    """Columns whose statistics the plan includes."""
    use_snapshot_schema: bool | None
    """The schema for column names in the filter. By default it is the table's schema for a branch,
    and the snapshot's own for a tag or an id."""
    sequence_numbers: bool
    """Add the sequence number of each file, if the catalog is Frazil."""
    all_deletes: bool
    """Add equality deletes whose values cannot occur in a data file or do not match the filter, if
    the catalog is Frazil. Needed to write planned files again."""
    explain: bool
    """Add counts of what the planner read and skipped."""
    max_files: int | None
    """The number of files at most."""
    lease_id: str
    """A UUID for a lease of this plan, if the catalog is Frazil. `Table.leased_plans` sets it."""


def plan_request(table: Table, filter: Filter | None, options: PlanOptions) -> PlanTableScanRequest:
    """Return the request for a scan of the table as it was loaded."""
    check_options(options, PlanOptions)
    snapshot, select = options.get("snapshot"), options.get("select")
    first, last = options.get("from_snapshot"), options.get("to_snapshot")
    incremental = first is not None or last is not None
    if incremental and snapshot is not None:
        raise BadRequest("plan: give either a snapshot, or from_snapshot and to_snapshot")
    start = end = at = None
    if incremental:
        start = None if first is None else _snapshot_id(table, first)
        end = table.head() if last is None else _snapshot_id(table, last)
    else:
        at = table.head() if snapshot is None else _snapshot_id(table, snapshot)
    use_snapshot_schema = options.get("use_snapshot_schema")
    if use_snapshot_schema is None:
        use_snapshot_schema = _reads_own_schema(table, snapshot)
    return PlanTableScanRequest(
        snapshot_id=at,
        start_snapshot_id=start,
        end_snapshot_id=end,
        select=None if select is None else tuple(select),
        filter_json=optional_filter_json(filter),
        case_sensitive=options.get("case_sensitive", True),
        use_snapshot_schema=use_snapshot_schema,
        stats_fields=tuple(options.get("stats_fields", ())) or None,
    )


def _snapshot_id(table: Table, snapshot: str | int) -> int:
    """Return the id of a snapshot.

    An id is not checked: the table may know only the heads of refs.
    """
    return snapshot if isinstance(snapshot, int) else table.snapshot(snapshot).snapshot_id


def _reads_own_schema(table: Table, snapshot: str | int | None) -> bool:
    """Check whether a scan uses the schema of its snapshot, like Java's SnapshotUtil.schemaFor.

    A branch is read with the table's schema, a tag or an older snapshot with its own.
    """
    if snapshot is None or snapshot == MAIN:
        return False
    ref = table.refs.get(snapshot) if isinstance(snapshot, str) else None
    return ref is None or ref.type != "branch"


# --- planning -------------------------------------------------------------------------------------


class _Task(Struct, frozen=True, rename="kebab"):
    data_file: PlannedDataFile
    delete_file_references: tuple[int, ...] = ()
    residual_filter: Any = True


class _Page(Struct, frozen=True, rename="kebab"):
    """A part of a plan, or the status of a plan that is not ready."""

    status: str = "completed"
    plan_id: str | None = None
    plan_tasks: tuple[str, ...] = ()
    file_scan_tasks: tuple[_Task, ...] = ()
    delete_files: tuple[PlannedDeleteFile, ...] = ()
    walk: Walk | None = None
    error: dict[str, Any] | None = None

    def tasks(self) -> Iterator[FileScanTask]:
        for task in self.file_scan_tasks:
            deletes = tuple(self.delete_files[at] for at in task.delete_file_references)
            yield FileScanTask(task.data_file, deletes, task.residual_filter)


class Planning:
    """Plans one scan of one table."""

    def __init__(self, calls: Calls, identifier: Identifier, options: PlanOptions) -> None:
        self._calls = calls
        self._path = table_path(identifier)
        requested = {
            EXPLAIN_HEADER: options.get("explain"),
            SEQUENCE_NUMBERS_HEADER: options.get("sequence_numbers"),
            ALL_DELETES_HEADER: options.get("all_deletes"),
        }
        self._headers = {name: "true" for name, is_requested in requested.items() if is_requested}
        self._lease_id = options.get("lease_id")
        self._max_files = options.get("max_files")

    def plan(self, request: PlanTableScanRequest) -> Plan:
        if _ENDPOINT not in (self._calls.config.endpoints or ()):
            raise UnsupportedOperation("this catalog does not plan scans")
        max_files = self._max_files
        first, is_leased = self._completed(request)
        tasks = list(first.tasks())
        waiting = list(first.plan_tasks)
        with ThreadPoolExecutor(_PARALLEL_PAGES, "frazil-plan") as pool:
            while waiting and (max_files is None or len(tasks) < max_files):
                wave, waiting = waiting[:_PARALLEL_PAGES], waiting[_PARALLEL_PAGES:]
                for task, fetched in zip(wave, pool.map(self._tasks_at_once, wave), strict=True):
                    page = fetched or self._tasks(task)
                    tasks += page.tasks()
                    waiting += page.plan_tasks
        is_whole = not waiting and (max_files is None or len(tasks) <= max_files)
        return Plan(tuple(tasks[:max_files]), first.walk, is_whole, is_leased)

    def _completed(self, request: PlanTableScanRequest) -> tuple[_Page, bool]:
        """Return the first page, and whether the plan took its lease."""
        body = msgspec.json.encode(request)
        lease = {} if self._lease_id is None else {PLAN_LEASE_HEADER: self._lease_id}
        answer = self._calls.post_read(f"{self._path}/plan", body, {**self._headers, **lease})
        is_leased = self._lease_id is not None and PLAN_LEASE_HEADER.lower() in answer.headers
        return self._ready(decode(answer, _Page)), is_leased

    def _ready(self, page: _Page) -> _Page:
        """Return the first page, after waiting for a plan that takes long."""
        if page.status != "submitted":
            return self._checked(page)
        if page.plan_id is None:
            raise FrazilError("the catalog is still planning, but did not return a plan id")
        path = f"{self._path}/plan/{quote(page.plan_id, safe='')}"
        with self._cancelled_on_failure(path):
            return self._polled(path)

    def _polled(self, path: str) -> _Page:
        pause_s, clock = _FIRST_PAUSE_S, self._calls.clock
        timeout_s = self._calls.total_timeout_s
        deadline_s = clock.now_s() + timeout_s
        while True:
            page = decode(self._calls.get(path, headers=self._headers), _Page)
            if page.status != "submitted":
                return self._checked(page)
            if clock.now_s() + pause_s > deadline_s:
                raise ServiceUnavailable(f"the plan was not ready after {timeout_s:g} s")
            clock.sleep_s(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    @contextmanager
    def _cancelled_on_failure(self, path: str) -> Iterator[None]:
        """Cancel the plan on the server if waiting for it fails."""
        try:
            yield
        except BaseException:
            with suppress(FrazilError):
                self._calls.cancel(path)
            raise

    def _checked(self, page: _Page) -> _Page:
        if page.status == "completed":
            return page
        if page.status == "cancelled":
            raise ServiceUnavailable("the plan was cancelled: plan the scan again")
        if page.status != "failed" or page.error is None:
            raise FrazilError(f"the catalog returned the plan status {page.status!r}")
        code = page.error.get("code")
        body = msgspec.json.encode({"error": page.error})
        raise error_of(Answer(code if isinstance(code, int) else 500, {}, body))

    def _tasks_at_once(self, plan_task: str) -> _Page | None:
        """Fetch a page; None if the server is away.

        Threads of the pool do not wait for it, because Ctrl-C could not interrupt them.
        """
        try:
            return self._tasks(plan_task, waits=False)
        except (CatalogUnreachable, ServiceUnavailable):
            return None

    def _tasks(self, plan_task: str, *, waits: bool = True) -> _Page:
        body = msgspec.json.encode(FetchScanTasksRequest(plan_task))
        return decode(self._calls.post_read(f"{self._path}/tasks", body, waits=waits), _Page)

"""Decides what maintenance of a table pays, in which order, and what it saves.

The decision depends on the health of the table and on nothing else, so that it can be tested and
explained. Deletes are resolved before data files are rewritten, data files before manifests, and
snapshots expire after that, so that one run frees what the steps before it have replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from frazil.wire.job_messages import Job, JobState
from frazil.wire.maintenance_operations import (
    CONVERT_EQUALITY_DELETES,
    DELETE_UNREACHABLE_FILES,
    EXPIRE_SNAPSHOTS,
    OPERATIONS,
    REMOVE_DANGLING_DELETES,
    REMOVE_ORPHAN_FILES,
    REWRITE_DATA_FILES,
    REWRITE_MANIFESTS,
    REWRITE_POSITION_DELETE_FILES,
    RunBy,
)
from frazil.wire.maintenance_settings import MaintenanceSettings, maintenance_settings
from frazil.wire.table_health import TableHealth

FIRST_BACKOFF_MS: Final = 10 * 60_000
LAST_BACKOFF_MS: Final = 24 * 3_600_000
PAUSE_MS: Final = 10 * 60_000
"""How long an operation that depends on the clock rests after a success."""
_BY_TIME: Final = (EXPIRE_SNAPSHOTS, REMOVE_ORPHAN_FILES, DELETE_UNREACHABLE_FILES)
_MAX_FILES: Final = "max-files-to-rewrite"
_DAY_MS: Final = 24 * 3_600_000
_MANY_POSITION_DELETES: Final = 10
_MIN_SAVED_MANIFESTS: Final = 2
_FILE_COST_BYTES: Final = 4 << 20
"""Opening a file costs a reader about as much as reading so many bytes."""


@dataclass(frozen=True, kw_only=True)
class PlannedAction:
    """An operation that pays, or that would pay if it were allowed now."""

    operation: str
    options: Mapping[str, str] = field(default_factory=dict)
    reason: str
    saved_files: int = 0
    saved_bytes: int = 0
    work_bytes: int = 0
    """How much data the operation reads."""
    held_back: str | None = None
    """Why the operation does not run now."""


@dataclass(frozen=True)
class MaintenancePlan:
    """The actions for a table, in the order in which they run."""

    actions: tuple[PlannedAction, ...]

    @property
    def runnable(self) -> tuple[PlannedAction, ...]:
        return tuple(action for action in self.actions if action.held_back is None)

    @property
    def saved_files(self) -> int:
        return sum(action.saved_files for action in self.runnable)

    @property
    def saved_bytes(self) -> int:
        return sum(action.saved_bytes for action in self.runnable)

    def score(self, scans_per_day: int) -> float:
        """Return how much the plan pays, to compare tables. Tables that are read often come
        first."""
        saved = self.saved_files * _FILE_COST_BYTES + self.saved_bytes
        return saved * (1 + scans_per_day) + len(self.runnable)


def plan_maintenance(
    health: TableHealth,
    settings: MaintenanceSettings | None = None,
    *,
    for_user: bool = False,
    available: frozenset[str] = frozenset(OPERATIONS),
) -> MaintenancePlan:
    """Plan the maintenance of a table.

    `for_user` means that somebody asks for it now: then neither `enabled` nor a backoff holds an
    operation back. `available` are the operations that can run.
    """
    settings = settings or maintenance_settings(health.settings)
    budget = _Budget.of(health, settings)
    actions = []
    for operation, propose in _PROPOSALS.items():
        if operation not in settings.operations or operation not in available:
            continue
        for action in propose(health, settings):
            held = None
            if not for_user:
                held = (
                    _disabled(settings) or _backoff(health, operation) or _in_vain(health, action)
                )
            held = held or _running(health, operation)
            actions.append(budget.spent_on(action, held))
    return MaintenancePlan(tuple(actions))


# --- what pays ------------------------------------------------------------------------------------


def _convert(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    deletes = health.deletes
    if deletes.equality_delete_count:
        yield PlannedAction(
            operation=CONVERT_EQUALITY_DELETES,
            reason=f"{deletes.equality_delete_count} equality-delete files apply to every scan",
            saved_files=deletes.equality_delete_count,
            work_bytes=deletes.equality_delete_bytes,
        )


def _dangling(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    """Look for dangling deletes after rewrites, and where more rows are deleted than exist."""
    deletes = health.deletes
    has_any = deletes.position_delete_count or deletes.vector_count or deletes.equality_delete_count
    if has_any and (
        health.data_files.count == 0
        or deletes.deleted_record_count > health.data_files.record_count
        or _newest(health, REWRITE_DATA_FILES) > _newest(health, REMOVE_DANGLING_DELETES)
    ):
        yield PlannedAction(
            operation=REMOVE_DANGLING_DELETES,
            reason="deletes may apply to files that were rewritten",
        )


def _position_deletes(
    health: TableHealth, settings: MaintenanceSettings
) -> Iterator[PlannedAction]:
    deletes = health.deletes
    if deletes.position_delete_count >= _MANY_POSITION_DELETES:
        yield PlannedAction(
            operation=REWRITE_POSITION_DELETE_FILES,
            reason=f"{deletes.position_delete_count} position-delete files",
            saved_files=deletes.position_delete_count - 1,
            work_bytes=deletes.position_delete_bytes,
        )


def _data_files(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    files = health.data_files
    if not files.rewritable_count:
        return
    options = {
        "target-file-size-bytes": str(health.target_file_size_bytes),
        "min-input-files": str(settings.min_input_files),
    }
    yield PlannedAction(
        operation=REWRITE_DATA_FILES,
        options=options,
        reason=(
            f"{files.rewritable_count} of {files.count} data files are small, too large or "
            "mostly deleted"
        ),
        saved_files=max(0, files.rewritable_count - files.rewritten_count),
        saved_bytes=files.deleted_bytes,
        work_bytes=files.rewritable_bytes,
    )


def _manifests(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    manifests = health.manifests
    saved = manifests.count - manifests.rewritten_count
    if saved >= _MIN_SAVED_MANIFESTS:
        yield PlannedAction(
            operation=REWRITE_MANIFESTS,
            reason=f"{manifests.count} manifests could be {manifests.rewritten_count}",
            saved_files=saved,
        )


def _expire(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    snapshots = health.snapshots
    if not snapshots.expirable_count or not health.gc_enabled:
        return
    options: dict[str, str] = {}
    if settings.max_snapshot_age_ms is not None:
        options["older_than"] = str(health.now_ms - settings.max_snapshot_age_ms)
    if settings.min_snapshots_to_keep is not None:
        options["retain_last"] = str(settings.min_snapshots_to_keep)
    yield PlannedAction(
        operation=EXPIRE_SNAPSHOTS,
        options=options,
        reason=f"{snapshots.expirable_count} of {snapshots.count} snapshots are too old",
        saved_files=snapshots.expirable_count,
        saved_bytes=snapshots.expirable_bytes,
    )


def _orphans(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    if not health.gc_enabled or not health.snapshots.count:
        return
    last_ms = _newest(health, REMOVE_ORPHAN_FILES)
    # A young table has no orphan that is old enough.
    begun_ms = last_ms or health.snapshots.oldest_at_ms or health.now_ms
    wait_ms = settings.orphan_interval_ms if last_ms else settings.orphan_age_ms
    if health.now_ms - begun_ms >= wait_ms:
        yield PlannedAction(
            operation=REMOVE_ORPHAN_FILES,
            options={"older_than": str(health.now_ms - settings.orphan_age_ms)},
            reason="the files were not compared with a listing for a while",
        )


def _sweep(health: TableHealth, settings: MaintenanceSettings) -> Iterator[PlannedAction]:
    quarantine = health.quarantine
    if quarantine.due_count and health.gc_enabled:
        yield PlannedAction(
            operation=DELETE_UNREACHABLE_FILES,
            reason=f"the quarantine of {quarantine.due_count} snapshots or files is over",
            saved_files=quarantine.due_count,
            saved_bytes=quarantine.size_bytes,
        )


_PROPOSALS: Final[
    Mapping[str, Callable[[TableHealth, MaintenanceSettings], Iterator[PlannedAction]]]
] = {
    CONVERT_EQUALITY_DELETES: _convert,
    REWRITE_POSITION_DELETE_FILES: _position_deletes,
    REWRITE_DATA_FILES: _data_files,
    REMOVE_DANGLING_DELETES: _dangling,
    REWRITE_MANIFESTS: _manifests,
    EXPIRE_SNAPSHOTS: _expire,
    REMOVE_ORPHAN_FILES: _orphans,
    DELETE_UNREACHABLE_FILES: _sweep,
}
"""The operations in the order in which they run."""


# --- what is allowed ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Budget:
    """The bytes that a run may still rewrite."""

    of_run: int
    of_day: int

    @classmethod
    def of(cls, health: TableHealth, settings: MaintenanceSettings) -> _Budget:
        since_ms = health.now_ms - _DAY_MS
        used = sum(
            int((job.result or {}).get("rewritten-bytes-count", 0))
            for job in health.runs
            if (job.finished_at_ms or 0) >= since_ms
        )
        return cls(settings.max_bytes_per_run, max(0, settings.max_bytes_per_day - used))

    def spent_on(self, action: PlannedAction, held_back: str | None) -> PlannedAction:
        """Return the action within the budget: all of it, a part of its files, or held back."""
        if held_back is not None:
            return replace(action, held_back=held_back)
        left = min(self.of_run, self.of_day)
        if action.work_bytes > left:
            files = int(action.saved_files * left / action.work_bytes)
            if action.operation != REWRITE_DATA_FILES or files < 2:
                which = "run" if self.of_run <= self.of_day else "day"
                return replace(action, held_back=f"the budget of bytes per {which} is used up")
            action = replace(
                action,
                options={**action.options, _MAX_FILES: str(files)},
                saved_files=files - 1,
                work_bytes=left,
            )
        if OPERATIONS[action.operation].run_by is RunBy.WORKER:
            self.of_run -= action.work_bytes
            self.of_day -= action.work_bytes
        return action


def _disabled(settings: MaintenanceSettings) -> str | None:
    return None if settings.enabled else "frazil.maintenance.enabled is false"


def _running(health: TableHealth, operation: str) -> str | None:
    for job in health.runs:
        if job.operation == operation and not job.state.is_final and not job.dry_run:
            return f"job {job.job_id} is {job.state.value}"
    return None


def _backoff(health: TableHealth, operation: str) -> str | None:
    """Return why an operation waits after failures: twice as long after each, up to a day."""
    failures = 0
    last_ms = 0
    for job in _ended(health, operation):
        if job.state is not JobState.FAILED:
            break
        failures += 1
        last_ms = max(last_ms, job.finished_at_ms or 0)
    if not failures:
        return None
    pause_ms = min(LAST_BACKOFF_MS, FIRST_BACKOFF_MS << min(failures - 1, 20))
    left_ms = last_ms + pause_ms - health.now_ms
    if left_ms <= 0:
        return None
    return f"{failures} runs have failed; the next one may begin in {left_ms // 1000} s"


def _in_vain(health: TableHealth, action: PlannedAction) -> str | None:
    """Return why an operation that has just run would find nothing new."""
    last = next(_ended(health, action.operation), None)
    if last is None or last.state is not JobState.SUCCEEDED:
        return None
    finished_ms = last.finished_at_ms or 0
    if action.operation in _BY_TIME:
        left_ms = finished_ms + PAUSE_MS - health.now_ms
        return f"it ran just now; again in {left_ms // 1000} s" if left_ms > 0 else None
    is_partial = _MAX_FILES in last.options
    if finished_ms >= (health.snapshots.newest_at_ms or 0) and not is_partial:
        return "it has run since the last commit"
    return None


def _newest(health: TableHealth, operation: str) -> int:
    """Return when the operation has last succeeded, or 0."""
    times = [
        job.finished_at_ms or 0
        for job in _ended(health, operation)
        if job.state is JobState.SUCCEEDED
    ]
    return max(times, default=0)


def _ended(health: TableHealth, operation: str) -> Iterator[Job]:
    """Yield the ended runs of an operation, newest first."""
    for job in health.runs:
        if job.operation == operation and job.state.is_final and not job.dry_run:
            yield job

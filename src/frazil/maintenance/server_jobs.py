"""Maintenance that the server does by itself: start a job, wait for it, return its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from frazil.client.declare.client_table import Table
from frazil.client.send.catalog_calls import IdentifierName
from frazil.client.send.error_answers import error_of_type
from frazil.client.send.job_calls import JobCalls
from frazil.wire.errors import Conflict, FrazilError
from frazil.wire.job_messages import Job, JobState, StartedBy
from frazil.wire.maintenance_operations import (
    DELETE_UNREACHABLE_FILES,
    EXPIRE_SNAPSHOTS,
    REMOVE_DANGLING_DELETES,
    REMOVE_ORPHAN_FILES,
    REWRITE_MANIFESTS,
    UNDO,
)

Progress = Callable[[int, int], None]
Time = datetime | str | int
"""A time, its text in ISO 8601, or milliseconds since 1970."""

_FIRST_POLL_S: Final = 0.05
_LAST_POLL_S: Final = 1.0


class JobCancelled(Conflict):
    """Somebody cancelled the job."""


@dataclass(frozen=True, repr=False)
class JobResult:
    """What a job has done. The fields of its result are attributes, such as
    `deleted_data_files_count`."""

    job: Job

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the fields of the result by name."""
        found = self.job.result or {}
        return {name.replace("-", "_"): value for name, value in found.items()}

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in self.values.items())
        return f"JobResult({self.job.operation}: {', '.join(fields)})"

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"the result of {self.job.operation} has no {name}") from None


def run_job(
    jobs: JobCalls,
    table: IdentifierName,
    operation: str,
    options: Mapping[str, str] | None = None,
    *,
    dry_run: bool = False,
    started_by: StartedBy = StartedBy.REQUEST,
    progress: Progress | None = None,
) -> JobResult:
    """Start a job and wait until it has ended. An interrupt cancels it. Raises the job's error."""
    job = jobs.start(table, operation, options, dry_run=dry_run, started_by=started_by)
    try:
        return result_of(wait_for(jobs, job, progress))
    except KeyboardInterrupt:
        with suppress(FrazilError):
            jobs.cancel(job)
        raise


def wait_for(jobs: JobCalls, job: Job, progress: Progress | None = None) -> Job:
    """Return the job when it has ended."""
    pause_s = _FIRST_POLL_S
    while not job.state.is_final:
        time.sleep(pause_s)
        pause_s = min(_LAST_POLL_S, pause_s * 1.5)
        job = jobs.get(job)
        if progress is not None:
            done, total = (
                (0, 1) if job.progress is None else (job.progress.done, job.progress.total)
            )
            progress(done, total)
    return job


def result_of(job: Job) -> JobResult:
    """Return the result of a job that has ended, or raise its error."""
    if job.state is JobState.CANCELLED:
        raise JobCancelled(f"job {job.job_id} ({job.operation} of {job.identifier}) was cancelled")
    if job.error is not None:
        raise error_of_type(job.error.type, job.error.code, job.error.message)
    return JobResult(job)


# --- the operations -------------------------------------------------------------------------------


def expire_snapshots(
    table: Table,
    *,
    older_than: Time | None = None,
    retain_last: int | None = None,
    snapshot_ids: Iterable[int] = (),
    clean_expired_metadata: bool = False,
    delete_files: bool = True,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> JobResult:
    """Expire snapshots. By default those go that the table's properties do not keep."""
    options = _texts(
        older_than=_time_text(older_than),
        retain_last=retain_last,
        snapshot_ids=",".join(map(str, snapshot_ids)) or None,
        clean_expired_metadata=clean_expired_metadata or None,
        delete_files=None if delete_files else False,
    )
    return _run(table, EXPIRE_SNAPSHOTS, options, dry_run, progress)


def remove_orphan_files(
    table: Table,
    *,
    older_than: Time | None = None,
    location: str | None = None,
    options: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> JobResult:
    """Delete files below the table's location that nothing names. `options` are further options."""
    named = _texts(older_than=_time_text(older_than), location=location)
    return _run(table, REMOVE_ORPHAN_FILES, {**(options or {}), **named}, dry_run, progress)


def delete_unreachable_files(
    table: Table, *, dry_run: bool = False, progress: Progress | None = None
) -> JobResult:
    """Delete the files of expired snapshots and ended writers whose quarantine is over."""
    return _run(table, DELETE_UNREACHABLE_FILES, {}, dry_run, progress)


def rewrite_manifests(
    table: Table,
    *,
    spec_id: int | None = None,
    sort_by: Iterable[str] = (),
    branch: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> JobResult:
    """Rewrite manifests so that each has the files of few partitions."""
    options = _texts(spec_id=spec_id, sort_by=",".join(sort_by) or None, branch=branch)
    return _run(table, REWRITE_MANIFESTS, options, dry_run, progress)


def remove_dangling_deletes(
    table: Table,
    *,
    branch: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> JobResult:
    """Remove delete files and vectors that apply to no live data file."""
    return _run(table, REMOVE_DANGLING_DELETES, _texts(branch=branch), dry_run, progress)


def undo(
    table: Table,
    snapshot_id: int,
    *,
    tag: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> JobResult:
    """Bring back an expired snapshot whose files are in quarantine, with a tag on it."""
    options = _texts(snapshot_id=snapshot_id, tag=tag)
    return _run(table, UNDO, options, dry_run, progress)


def _run(
    table: Table,
    operation: str,
    options: Mapping[str, str],
    dry_run: bool,
    progress: Progress | None,
) -> JobResult:
    return run_job(
        table.jobs, table.identifier, operation, options, dry_run=dry_run, progress=progress
    )


def _texts(**values: str | int | bool | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None
    }


def _time_text(moment: Time | None) -> str | int | None:
    if not isinstance(moment, datetime):
        return moment
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)

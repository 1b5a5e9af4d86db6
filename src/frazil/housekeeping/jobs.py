"""Jobs: operations on tables that are stored in the database and run by one worker each.

A worker is a thread of a server, or a process such as `frazil maintain auto`. It claims a job and
reports regularly that it is alive. A job whose worker was silent for too long is claimed by another
one, so that a killed process loses no job. All times are those of the database's clock.

Of the jobs of one table that exclude each other, one runs at a time: its worker holds a row of
`job_locks`, which expires like the claim.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from frazil.db.housekeeping_rows import database_now_ms
from frazil.db.rows import Database, namespace_key, namespace_of, text
from frazil.db.sql import Fetch, Row, Statements
from frazil.wire.errors import BadRequest, Conflict, FrazilError, NotFound, UnprocessableEntity
from frazil.wire.identifiers import Identifier
from frazil.wire.job_messages import (
    MAX_WORKER_CHARS,
    Job,
    JobError,
    JobProgress,
    JobState,
    StartedBy,
    StartJobRequest,
)
from frazil.wire.maintenance_operations import OPERATIONS, RunBy, check_options, operation_of
from frazil.wire.rest_messages import table_identifier

HEARTBEAT_S: Final = 5.0
"""How often a worker reports that it is alive."""
SILENT_AFTER_S: Final = 60.0
"""After so long without a report, a worker counts as dead."""
MAX_ATTEMPTS: Final = 3
"""A job fails when so many workers have died with it."""
KEEP_S: Final = 90 * 24 * 3600.0
"""How long finished jobs are kept."""

_OPEN_JOBS: Final = 1_000
_LAST_MS: Final = 2**62
_LAST_ID: Final = "\x7f"


class NoSuchJob(NotFound):
    """A job that does not exist, or that belongs to another table."""


class JobIsTaken(Conflict):
    """Another job of the table runs, or another worker runs the job."""


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, and where the next page begins."""

    jobs: tuple[Job, ...]
    after: str | None = None


class Jobs:
    """The jobs of a catalog. All methods block and are safe for use from several threads."""

    def __init__(self, database: Database, silent_after_s: float = SILENT_AFTER_S) -> None:
        self._database = database
        self._silent_ms = int(silent_after_s * 1000)

    def now_ms(self) -> int:
        """Return the time by the database's clock."""
        return database_now_ms(self._database)

    # --- for clients ------------------------------------------------------------------------------

    def start(
        self,
        identifier: Identifier,
        table_uuid: str,
        request: StartJobRequest,
        principal: str,
        key: str | None = None,
    ) -> Job:
        """Store a job, and claim it if the request names a worker.

        `key` is the idempotency key of the request; a repeated request returns its first job.
        Raises BadRequest for a wrong operation or option, JobIsTaken if a worker cannot begin.
        """
        operation = operation_of(request.operation)
        check_options(operation, request.options)
        if request.worker is not None:
            _check_worker(request.worker)
            if operation.run_by is not RunBy.WORKER:
                raise BadRequest(f"worker: {operation.name} is run by the server: leave it out")
        job_id = str(uuid.uuid4()) if key is None else str(uuid.uuid5(uuid.UUID(key), principal))
        parameters = {
            "job_id": job_id,
            "uuid": table_uuid,
            "namespace": namespace_key(identifier.namespace),
            "name": text(identifier.name, "table name"),
            "operation": operation.name,
            "options": json.dumps(request.options, sort_keys=True),
            "dry_run": int(request.dry_run),
            "started_by": request.started_by.value,
            "principal": text(principal, "principal"),
        }

        def work(sql: Statements) -> Job:
            now_ms = database_now_ms(sql)
            is_new = sql.execute("insert_job", {**parameters, "now_ms": now_ms})
            stored = _found(sql, job_id)
            if is_new and request.worker is not None:
                self._take(sql, stored, request.worker, now_ms)
            return _found(sql, job_id)

        job = self._database.run_rows(work)
        if (job.operation, job.table_uuid) != (operation.name, table_uuid):
            raise UnprocessableEntity("the Idempotency-Key was used for another job")
        return job

    def get(self, job_id: str) -> Job:
        return _found(self._database, text(job_id, "job id"))

    def list(self, table_uuid: str | None, after: str | None, limit: int) -> Page:
        """Return a page of all jobs, or of those of a table."""
        before_ms, before = (_LAST_MS, _LAST_ID) if after is None else _place(after)
        parameters = {"before_ms": before_ms, "before": before, "limit": limit + 1}
        if table_uuid is None:
            rows = self._database.fetch("all_jobs", parameters)
        else:
            rows = self._database.fetch("jobs_of_table", {**parameters, "uuid": table_uuid})
        jobs = tuple(_job(row) for row in rows[:limit])
        more = len(rows) > limit
        return Page(jobs, f"{jobs[-1].created_at_ms}:{jobs[-1].job_id}" if more else None)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job that waits, and ask the worker of one that runs to stop."""

        def work(sql: Statements) -> Job:
            asked = {"job_id": text(job_id, "job id"), "now_ms": database_now_ms(sql)}
            if not sql.execute("cancel_queued_job", asked):
                sql.execute("ask_to_cancel_job", asked)
            return _found(sql, job_id)

        return self._database.run_rows(work)

    # --- for workers ------------------------------------------------------------------------------

    def claim(self, worker: str, operations: Collection[str]) -> Job | None:
        """Return the oldest job of these operations that can run now, or None.

        The name of a worker belongs to one claim: asked again, the same job is returned.
        """
        _check_worker(worker)
        for row in self._database.fetch("job_of_worker", {"worker": worker}):
            return _job(row)
        for job in self._open_jobs():
            if job.operation in operations and self._claim(job, worker):
                claimed = self.get(job.job_id)
                if not self._is_over(claimed, worker):
                    return claimed
        return None

    def beat(self, job_id: str, worker: str, progress: JobProgress | None = None) -> Job:
        """Note that the worker is alive. Raises JobIsTaken if the job is no longer its own."""
        claim = {"job_id": text(job_id, "job id"), "worker": text(worker, "worker")}
        shown = _encoded(progress)

        def work(sql: Statements) -> Job:
            now = {**claim, "now_ms": database_now_ms(sql)}
            renewed = sql.execute("renew_job_lock", now)
            beaten = sql.execute("beat_job", {**now, "progress": shown})
            job = _found(sql, job_id)
            if not (renewed and beaten):
                raise _not_its_own(job, worker)
            return job

        return self._database.run_rows(work)

    def end(
        self,
        job_id: str,
        worker: str,
        state: JobState,
        *,
        progress: JobProgress | None = None,
        result: Mapping[str, Any] | None = None,
        error: JobError | None = None,
    ) -> Job:
        """Store the outcome. Raises JobIsTaken if the job is no longer the worker's own."""
        if not state.is_final:
            raise BadRequest(f"state: {state.value} is not a final state")
        claim = {"job_id": text(job_id, "job id"), "worker": text(worker, "worker")}
        outcome = {
            **claim,
            "state": state.value,
            "progress": _encoded(progress),
            "result": None if result is None else json.dumps(result),
            "error": None if error is None else msgspec.json.encode(error).decode(),
        }

        def work(sql: Statements) -> Job:
            ended = sql.execute("end_job", {**outcome, "now_ms": database_now_ms(sql)})
            sql.execute("drop_job_lock", claim)
            job = _found(sql, job_id)
            # The work may run twice after a lost answer.
            if not ended and not (job.worker == worker and job.state is state):
                raise _not_its_own(job, worker)
            return job

        return self._database.run_rows(work)

    def requeue(self, job_id: str, worker: str) -> None:
        """Give a job back, so that another worker runs it from the start."""
        claim = {"job_id": job_id, "worker": worker}

        def work(sql: Statements) -> None:
            sql.execute("requeue_job", claim)
            sql.execute("drop_job_lock", claim)

        self._database.run_rows(work)

    def open_counts(self) -> dict[tuple[str, ...], int]:
        """Return how many jobs wait and run, by operation and state."""
        rows = self._database.fetch("open_job_counts", {})
        return {(operation, state): number for operation, state, number in rows}

    def forget(self, keep_s: float = KEEP_S) -> int:
        """Delete jobs that ended longer ago than this; return how many."""
        before_ms = self.now_ms() - int(keep_s * 1000)
        return self._database.execute("forget_jobs", {"before_ms": before_ms})

    # --- claims -----------------------------------------------------------------------------------

    def _claim(self, job: Job, worker: str) -> bool:
        def work(sql: Statements) -> None:
            self._take(sql, job, worker, database_now_ms(sql))

        try:
            self._database.run_rows(work)
        except JobIsTaken:
            return False
        return True

    def _take(self, sql: Statements, job: Job, worker: str, now_ms: int) -> None:
        """Take the lock of the job's kind and mark the job as running. Raises JobIsTaken."""
        claim = {
            "job_id": job.job_id,
            "worker": worker,
            "now_ms": now_ms,
            "silent_ms": now_ms - self._silent_ms,
        }
        lock = {"uuid": job.table_uuid, "exclusion": OPERATIONS[job.operation].exclusion}
        if not sql.execute("take_job_lock", {**claim, **lock}):
            for job_id, holder, _ in sql.fetch("job_lock", lock):
                raise JobIsTaken(
                    f"job {job_id} of {holder} works on {job.identifier}: wait until it has ended"
                )
            raise JobIsTaken(f"another job worked on {job.identifier}: try again")
        if not sql.execute("start_job", claim):
            stored = _found(sql, job.job_id)
            if stored.state is not JobState.RUNNING or stored.worker != worker:
                raise _not_its_own(stored, worker)

    def _is_over(self, job: Job, worker: str) -> bool:
        """End a claimed job that must not run again."""
        if job.cancel_requested:
            self.end(job.job_id, worker, JobState.CANCELLED)
            return True
        if job.attempts > MAX_ATTEMPTS:
            message = f"{MAX_ATTEMPTS} workers have died, one after the other, while they ran it"
            error = JobError(message, FrazilError.type)
            self.end(job.job_id, worker, JobState.FAILED, error=error)
            return True
        return False

    def _open_jobs(self) -> Iterator[Job]:
        silent_ms = self.now_ms() - self._silent_ms
        asked = {"silent_ms": silent_ms, "limit": _OPEN_JOBS}
        return map(_job, self._database.fetch("open_jobs", asked))


def _found(sql: Fetch, job_id: str) -> Job:
    rows = sql.fetch("job", {"job_id": job_id})
    if not rows:
        raise NoSuchJob(f"there is no job {job_id[:100]}")
    return _job(rows[0])


def _not_its_own(job: Job, worker: str) -> JobIsTaken:
    return JobIsTaken(f"job {job.job_id} is {job.state.value}, and {worker[:100]} does not run it")


def _encoded(progress: JobProgress | None) -> str | None:
    return None if progress is None else json.dumps([progress.done, progress.total])


def _check_worker(worker: str) -> None:
    if not 0 < len(text(worker, "worker")) <= MAX_WORKER_CHARS:
        raise BadRequest(f"worker: give a name of 1 to {MAX_WORKER_CHARS} characters")


def _place(after: str) -> tuple[int, str]:
    """Parse where a page begins."""
    created_ms, _, job_id = after.partition(":")
    if not created_ms.isdecimal():
        raise BadRequest("pageToken is not one of this list")
    return int(created_ms), job_id


def _job(row: Row) -> Job:
    (job_id, table_uuid, namespace, name, operation, options, dry_run, state) = row[:8]
    (started_by, principal, worker, progress, result, error) = row[8:14]
    (attempts, cancel_requested, created_ms, started_ms, heartbeat_ms, finished_ms) = row[14:]
    return Job(
        job_id=job_id,
        table=table_identifier(Identifier(namespace_of(namespace), name)),
        table_uuid=table_uuid,
        operation=operation,
        options=json.loads(options),
        dry_run=bool(dry_run),
        state=JobState(state),
        started_by=StartedBy(started_by).value,
        principal=principal,
        attempts=attempts,
        cancel_requested=bool(cancel_requested),
        created_at_ms=created_ms,
        worker=worker,
        progress=None if progress is None else JobProgress(*json.loads(progress)),
        result=None if result is None else json.loads(result),
        error=None if error is None else msgspec.json.decode(error, type=JobError),
        started_at_ms=started_ms,
        heartbeat_at_ms=heartbeat_ms,
        finished_at_ms=finished_ms,
    )

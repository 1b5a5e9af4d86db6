"""Runs the jobs of the server's own operations, on threads of the server.

Every server of a catalog has a runner. They share the jobs through the database, so that any server
finishes what another one has left behind.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from frazil.db.base import DatabaseUnavailable
from frazil.housekeeping.jobs import HEARTBEAT_S, SILENT_AFTER_S, JobIsTaken, Jobs
from frazil.housekeeping.server_operations import (
    JobCancelled,
    JobRun,
    ServerOperation,
    ServerTools,
)
from frazil.store.object_store import StoreError
from frazil.wire.errors import FrazilError
from frazil.wire.job_messages import Job, JobError, JobProgress, JobState

_log = logging.getLogger("frazil.jobs")

_POLL_S: Final = 2.0
_THREADS: Final = 2
_FORGET_EVERY_S: Final = 3600.0
_CLOSE_TIMEOUT_S: Final = 30.0


@dataclass(slots=True)
class _Running:
    """A claimed job on one thread of this process."""

    job: Job
    worker: str
    heard_s: float = field(default_factory=time.monotonic)
    """When the database last took a report of this job."""
    progress: JobProgress | None = None
    is_cancelled: bool = False
    is_taken: bool = False
    saw_cancel: bool = False
    """The operation was told to stop."""


class JobRunner:
    """Claims jobs and runs them until it is closed."""

    def __init__(
        self,
        jobs: Jobs,
        tools: ServerTools,
        operations: Mapping[str, ServerOperation],
        *,
        poll_s: float = _POLL_S,
        heartbeat_s: float = HEARTBEAT_S,
        silent_after_s: float = SILENT_AFTER_S,
        threads: int = _THREADS,
    ) -> None:
        self._jobs = jobs
        self._tools = tools
        self._operations = operations
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._silent_after_s = silent_after_s
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self.outcomes: dict[tuple[str, ...], int] = {}
        """How many jobs this process has ended, by operation and state."""
        self._threads = [
            threading.Thread(target=self._work, name=f"frazil-job-{number}", daemon=True)
            for number in range(threads)
        ]
        self._beats = threading.Thread(target=self._beat, name="frazil-job-beats", daemon=True)

    def start(self) -> None:
        for thread in (*self._threads, self._beats):
            thread.start()

    def wake(self) -> None:
        """Look for jobs now, because one was started."""
        self._wake.set()

    def close(self) -> None:
        """Stop the running jobs and give them back, so that another server runs them."""
        self._stop.set()
        self._wake.set()
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for thread in (*self._threads, self._beats):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    # --- threads ----------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                running = self._claim()
            except DatabaseUnavailable:
                # The catalog reports an outage of its database.
                running = None
            if running is not None:
                self._run(running)
                continue
            self._wake.wait(self._poll_s)
            self._wake.clear()

    def _claim(self) -> _Running | None:
        worker = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        job = self._jobs.claim(worker, self._operations)
        if job is None:
            return None
        running = _Running(job, worker)
        with self._lock:
            self._running[job.job_id] = running
        return running

    def _beat(self) -> None:
        forget_at_s = time.monotonic() + _FORGET_EVERY_S
        while not self._stop.wait(self._heartbeat_s):
            with self._lock:
                claimed = list(self._running.values())
            for running in claimed:
                self._report(running)
            if time.monotonic() >= forget_at_s:
                forget_at_s = time.monotonic() + _FORGET_EVERY_S
                _tolerant(self._jobs.forget)

    def _report(self, running: _Running) -> None:
        try:
            job = self._jobs.beat(running.job.job_id, running.worker, running.progress)
        except JobIsTaken:
            running.is_taken = True
        except DatabaseUnavailable:
            # Another worker may have the job by now.
            silent_s = time.monotonic() - running.heard_s
            running.is_taken = running.is_taken or silent_s > self._silent_after_s
        else:
            running.heard_s = time.monotonic()
            running.is_cancelled = job.cancel_requested

    # --- one job ----------------------------------------------------------------------------------

    def _run(self, running: _Running) -> None:
        job = running.job
        started_s = time.monotonic()
        _log.info("started", extra=_fields(job))
        try:
            state, result, error = self._outcome(running)
            if state is None:
                _tolerant(lambda: self._jobs.requeue(job.job_id, running.worker))
                _log.info("given back", extra=_fields(job))
                return
            self._end(running, state, result, error)
        finally:
            with self._lock:
                self._running.pop(job.job_id, None)
        with self._lock:
            key = job.operation, state.value
            self.outcomes[key] = self.outcomes.get(key, 0) + 1
        fields = {**_fields(job), "s": round(time.monotonic() - started_s, 2)}
        if error is not None:
            _log.warning("failed: %s", error.message, extra=fields)
        else:
            _log.info("%s", state.value, extra={**fields, "result": result})

    def _outcome(
        self, running: _Running
    ) -> tuple[JobState | None, dict[str, Any] | None, JobError | None]:
        """Run the operation. The state is None if the job is to be given back."""
        job = running.job

        def progress(done: int, total: int) -> None:
            running.progress = JobProgress(done, total)

        def cancelled() -> bool:
            stopped = running.is_cancelled or running.is_taken or self._stop.is_set()
            running.saw_cancel = running.saw_cancel or stopped
            return stopped

        run = JobRun(
            identifier=job.identifier,
            uuid=job.table_uuid,
            options=job.options,
            dry_run=job.dry_run,
            principal=job.principal,
            progress=progress,
            cancelled=cancelled,
        )
        try:
            result = msgspec.to_builtins(self._operations[job.operation](self._tools, run))
        except JobCancelled:
            return self._stopped_state(running), None, None
        except FrazilError as error:
            return JobState.FAILED, None, JobError(error.message, error.type, error.status)
        except (DatabaseUnavailable, StoreError) as error:
            return JobState.FAILED, None, JobError(str(error), "ServiceUnavailableException", 503)
        except Exception as error:
            _log.exception("unexpected failure", extra=_fields(job))
            return JobState.FAILED, None, JobError(repr(error), FrazilError.type)
        if running.saw_cancel:
            return self._stopped_state(running), result, None
        return JobState.SUCCEEDED, result, None

    def _stopped_state(self, running: _Running) -> JobState | None:
        return JobState.CANCELLED if running.is_cancelled else None

    def _end(
        self,
        running: _Running,
        state: JobState,
        result: dict[str, Any] | None,
        error: JobError | None,
    ) -> None:
        """Store the outcome. If the database is away, try until the claim has expired."""
        while True:
            try:
                self._jobs.end(
                    running.job.job_id,
                    running.worker,
                    state,
                    progress=running.progress,
                    result=result,
                    error=error,
                )
            except JobIsTaken as taken:
                _log.warning("outcome not stored: %s", taken, extra=_fields(running.job))
            except DatabaseUnavailable:
                if time.monotonic() - running.heard_s < self._silent_after_s and not (
                    self._stop.wait(self._poll_s)
                ):
                    continue
            return


def _fields(job: Job) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "operation": job.operation,
        "table": str(job.identifier),
        "attempt": job.attempts,
    }


def _tolerant(call: Callable[[], object]) -> None:
    """Do what another worker does later if the database is away now."""
    try:
        call()
    except DatabaseUnavailable as error:
        _log.warning("%s", error)

"""Runs one job as a worker: reports that it is alive, and stores the outcome.

While a thread reports, the work runs on the thread of the caller. A job that was cancelled, or that
another worker has taken, stops at its next progress.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

from frazil.client.send.job_calls import JobCalls
from frazil.wire.errors import Conflict, FrazilError, NotFound
from frazil.wire.job_messages import Job, JobError, JobProgress, JobState

_LOGGER: Final = logging.getLogger("frazil.maintenance")
_HEARTBEAT_S: Final = 5.0

Progress = Callable[[int, int], None]
Work = Callable[[Progress], Mapping[str, Any]]


class JobStopped(FrazilError):
    """The job was cancelled, or another worker has taken it."""


def new_worker() -> str:
    """Return the name of a worker for one claim."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"


class _Heartbeat:
    """Reports that a worker is alive, until it is stopped."""

    def __init__(self, jobs: JobCalls, job: Job, worker: str) -> None:
        self._jobs = jobs
        self._job_id = job.job_id
        self._worker = worker
        self._end = threading.Event()
        self.progress: JobProgress | None = None
        self.stopped: str | None = None
        """Why the work must stop."""
        self._thread = threading.Thread(target=self._beat, name="frazil-job-beats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def report(self, done: int, total: int) -> None:
        """Note the progress. Raises JobStopped if the work must stop."""
        self.progress = JobProgress(done, total)
        self.check()

    def check(self) -> None:
        if self.stopped is not None:
            raise JobStopped(self.stopped)

    def _beat(self) -> None:
        while not self._end.wait(_HEARTBEAT_S):
            try:
                job = self._jobs.report(self._job_id, self._worker, progress=self.progress)
            except (Conflict, NotFound) as error:
                self.stopped = f"another worker has the job: {error.message}"
                return
            except FrazilError as error:
                # If the server stays away, another worker may take the job, and the next report
                # says so.
                _LOGGER.warning("job %s: no report: %s", self._job_id, error)
                continue
            if job.cancel_requested:
                self.stopped = "the job was cancelled"


@contextmanager
def _alive(jobs: JobCalls, job: Job, worker: str) -> Iterator[_Heartbeat]:
    heartbeat = _Heartbeat(jobs, job, worker)
    heartbeat.start()
    try:
        yield heartbeat
    finally:
        heartbeat.end()


def run_as_worker(
    jobs: JobCalls, job: Job, worker: str, work: Work, *, gives_back: bool = False
) -> Job:
    """Run the work of a claimed job and return the job with its outcome.

    If this process is interrupted, the job is cancelled, or given back to other workers.
    """
    with _alive(jobs, job, worker) as heartbeat:
        state, result, error = JobState.SUCCEEDED, None, None
        try:
            result = work(heartbeat.report)
        except JobStopped:
            state = JobState.CANCELLED
        except FrazilError as failure:
            state = JobState.FAILED
            error = JobError(failure.message, failure.type, failure.status)
        except Exception as failure:
            _LOGGER.exception("job %s (%s) has failed", job.job_id, job.operation)
            state, error = JobState.FAILED, JobError(repr(failure), FrazilError.type)
        except BaseException:
            state = JobState.QUEUED if gives_back else JobState.CANCELLED
            _end(jobs, job, worker, state, heartbeat.progress, None, None)
            raise
    return _end(jobs, job, worker, state, heartbeat.progress, result, error)


def _end(
    jobs: JobCalls,
    job: Job,
    worker: str,
    state: JobState,
    progress: JobProgress | None,
    result: Mapping[str, Any] | None,
    error: JobError | None,
) -> Job:
    try:
        return jobs.report(
            job.job_id, worker, progress=progress, state=state, result=result, error=error
        )
    except (Conflict, NotFound) as taken:
        _LOGGER.warning("the outcome of job %s was not stored: %s", job.job_id, taken)
        return jobs.get(job)

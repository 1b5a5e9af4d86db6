"""Jobs of maintenance over REST: start, watch and cancel them, and claim them as a worker."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from frazil.client.send.catalog_calls import (
    OWN_ROUTES,
    Calls,
    IdentifierName,
    decode,
    identifier_of,
    own_table_path,
)
from frazil.client.send.http_transport import Request
from frazil.wire.errors import CommitStateUnknown
from frazil.wire.files import FileReason
from frazil.wire.job_messages import (
    ClaimJobRequest,
    ClaimJobResponse,
    Job,
    JobError,
    JobProgress,
    JobState,
    ListJobsResponse,
    ReportJobRequest,
    StartedBy,
    StartJobRequest,
)
from frazil.wire.table_health import TableHealth

_T = TypeVar("_T")


class JobCalls:
    """The jobs of one catalog."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def start(
        self,
        table: IdentifierName,
        operation: str,
        options: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        started_by: StartedBy = StartedBy.REQUEST,
        worker: str | None = None,
    ) -> Job:
        """Start a job and return it before it runs."""
        request = StartJobRequest(operation, dict(options or {}), dry_run, started_by, worker)
        path = f"{own_table_path(identifier_of(table))}/jobs"
        with self._calls.hints(path):
            return self._post(path, request, Job)

    def get(self, job: Job) -> Job:
        """Return the job as it is now."""
        return decode(self._calls.get(_job_path(job)), Job)

    def list(self, table: IdentifierName | None = None) -> Iterator[Job]:
        """Yield the jobs of a table, or of all tables, newest first."""
        path = f"{OWN_ROUTES}jobs"
        if table is not None:
            path = f"{own_table_path(identifier_of(table))}/jobs"
        with self._calls.hints(path):
            for page in self._calls.pages(path):
                yield from msgspec.convert(page, ListJobsResponse).jobs

    def find(self, job_id: str) -> Job | None:
        """Return the job with this id, of whatever table."""
        return next((job for job in self.list() if job.job_id == job_id), None)

    def cancel(self, job: Job) -> Job:
        """Cancel a job that waits, and ask the worker of one that runs to stop."""
        path = self._calls.path(_job_path(job))
        accepted = self._calls.submit(lambda: Request("DELETE", path))
        return decode(accepted.answer, Job, CommitStateUnknown)

    def health(self, table: IdentifierName) -> TableHealth:
        """Return what maintenance of a table depends on."""
        path = f"{own_table_path(identifier_of(table))}/health"
        return decode(self._calls.get(path), TableHealth)

    def why(self, path: str) -> FileReason:
        """Return what needs a file, or when and why it will be deleted."""
        return decode(self._calls.get(f"{OWN_ROUTES}files", {"path": path}), FileReason)

    # --- for workers ------------------------------------------------------------------------------

    def claim(self, worker: str, operations: Collection[str]) -> Job | None:
        """Return a job to run now, or None. The name of a worker belongs to one claim."""
        request = ClaimJobRequest(worker, tuple(operations))
        return self._post(f"{OWN_ROUTES}jobs/claim", request, ClaimJobResponse).job

    def report(
        self,
        job_id: str,
        worker: str,
        *,
        progress: JobProgress | None = None,
        state: JobState = JobState.RUNNING,
        result: Mapping[str, Any] | None = None,
        error: JobError | None = None,
    ) -> Job:
        """Say that the worker is alive, or how the job has ended. Raises Conflict if the job is no
        longer its own."""
        found = None if result is None else dict(result)
        request = ReportJobRequest(worker, progress, state, found, error)
        return self._post(f"{OWN_ROUTES}jobs/{quote(job_id, safe='')}/progress", request, Job)

    def _post(self, path: str, request: msgspec.Struct, kind: type[_T]) -> _T:
        body = msgspec.json.encode(request)
        post = Request("POST", self._calls.path(path), body)
        return decode(self._calls.submit(lambda: post).answer, kind, CommitStateUnknown)


def _job_path(job: Job) -> str:
    return f"{own_table_path(job.identifier)}/jobs/{quote(job.job_id, safe='')}"

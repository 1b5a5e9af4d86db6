"""The requests and responses about jobs: work on a table that a server or a worker does."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import Request, Response, TableIdentifier


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


class StartedBy(StrEnum):
    """Why a job was started."""

    REQUEST = "request"
    RUN = "run"
    """`frazil maintain run`."""
    AUTOPILOT = "autopilot"


class StartJobRequest(Request, frozen=True):
    operation: str
    options: dict[str, str] = msgspec.field(default_factory=dict)
    dry_run: bool = False
    started_by: StartedBy = StartedBy.REQUEST
    worker: str | None = None
    """A worker that begins at once. Without it the job waits for the server, or for a worker."""


class ClaimJobRequest(Request, frozen=True):
    worker: str
    operations: tuple[str, ...]


class JobProgress(Request, frozen=True):
    done: int
    total: int


class JobError(Request, frozen=True):
    """The error model of the REST specification."""

    message: str
    type: str
    code: int = 500


class ReportJobRequest(Request, frozen=True):
    """What the worker of a job has done. With a final state the job ends."""

    worker: str
    progress: JobProgress | None = None
    state: JobState = JobState.RUNNING
    result: dict[str, Any] | None = None
    error: JobError | None = None


class Job(Response, frozen=True, kw_only=True):
    job_id: str
    table: TableIdentifier
    table_uuid: str
    operation: str
    options: dict[str, str]
    dry_run: bool
    state: JobState
    started_by: str
    principal: str
    attempts: int
    cancel_requested: bool
    created_at_ms: int
    worker: str | None = None
    progress: JobProgress | None = None
    result: dict[str, Any] | None = None
    error: JobError | None = None
    started_at_ms: int | None = None
    heartbeat_at_ms: int | None = None
    finished_at_ms: int | None = None

    @property
    def identifier(self) -> Identifier:
        return Identifier(self.table.namespace, self.table.name)


class ListJobsResponse(Response, frozen=True):
    jobs: tuple[Job, ...]
    next_page_token: str | None = None


class ClaimJobResponse(Response, frozen=True):
    job: Job | None = None
    """None if there is nothing to do."""


MAX_WORKER_CHARS: Final = 200

"""The autopilot: does what pays on one table, or on all tables of a catalog.

A run on a table is a job itself (`maintain`), which one worker has at a time. The health is
measured again after the run has begun, so that two autopilots never do the same work one after the
other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from frazil.client.catalog_client import Client
from frazil.client.send.catalog_calls import IdentifierName
from frazil.maintenance.job_worker import JobStopped, Progress, new_worker, run_as_worker
from frazil.maintenance.maintenance_policy import (
    MaintenancePlan,
    PlannedAction,
    plan_maintenance,
)
from frazil.maintenance.server_jobs import wait_for
from frazil.maintenance.worker_operations import WORKER_OPERATIONS, WorkerRun
from frazil.wire.errors import BadRequest, Conflict, FrazilError, NotFound
from frazil.wire.identifiers import Identifier, Namespace
from frazil.wire.job_messages import Job, JobState, StartedBy
from frazil.wire.maintenance_operations import MAINTAIN, OPERATIONS, RunBy
from frazil.wire.maintenance_settings import maintenance_settings
from frazil.wire.table_health import TableHealth

_LOGGER: Final = logging.getLogger("frazil.maintenance")

AVAILABLE: Final = frozenset(
    name
    for name, operation in OPERATIONS.items()
    if operation.run_by is RunBy.SERVER or name in WORKER_OPERATIONS
)
"""The operations that an autopilot can run."""

ActionProgress = Callable[[str], Progress]
"""Returns the progress of an operation."""


@dataclass(frozen=True)
class TableStatus:
    """A table, what pays on it, and what it would save."""

    health: TableHealth
    plan: MaintenancePlan


class Autopilot:
    """Maintains the tables of a catalog as a worker."""

    def __init__(self, client: Client, *, started_by: StartedBy = StartedBy.AUTOPILOT) -> None:
        self._client = client
        self._started_by = started_by

    # --- looking ----------------------------------------------------------------------------------

    def status(self, table: IdentifierName, started_by: StartedBy | None = None) -> TableStatus:
        """Return the health of a table and what would be done."""
        health = self._client.jobs.health(table)
        for_user = (started_by or self._started_by) is not StartedBy.AUTOPILOT
        return TableStatus(health, plan_maintenance(health, for_user=for_user, available=AVAILABLE))

    def statuses(self) -> Iterator[tuple[Identifier, TableStatus | FrazilError]]:
        """Yield every table with its status, or with the reason why it cannot be measured."""
        for table in self.tables():
            try:
                yield table, self.status(table)
            except FrazilError as error:
                yield table, error

    def tables(self) -> Iterator[Identifier]:
        """Yield the names of all tables."""
        for namespace in self._namespaces(()):
            yield from self._client.list_tables(namespace)

    def _namespaces(self, parent: Namespace) -> Iterator[Namespace]:
        for namespace in self._client.list_namespaces(parent or None):
            yield namespace
            yield from self._namespaces(namespace)

    # --- all tables -------------------------------------------------------------------------------

    def run_once(self) -> list[Job]:
        """Run the jobs that wait for a worker, then do what pays most first. Return the jobs."""
        done = self.run_waiting()
        due: list[tuple[float, Identifier]] = []
        for table in self.tables():
            found = self._tolerant(table, partial(self.status, table))
            if found is not None and found.plan.runnable:
                due.append((found.plan.score(found.health.scans_per_day), table))
        for _, table in sorted(due, key=lambda each: each[0], reverse=True):
            job = self._tolerant(table, partial(self.maintain, table))
            if job is not None:
                done.append(job)
        return done

    def run_waiting(self) -> list[Job]:
        """Run the jobs that wait for a worker."""
        return list(self._waiting_jobs())

    def _tolerant(self, table: Identifier, work: Callable[[], Any]) -> Any:
        """Go on with the next table if this one fails."""
        try:
            return work()
        except Conflict as taken:
            _LOGGER.info("%s: %s", table, taken)
        except NotFound as gone:
            _LOGGER.info("%s is gone: %s", table, gone)
        except FrazilError as error:
            _LOGGER.warning("%s was not maintained: %s", table, error)
        return None

    def _waiting_jobs(self) -> Iterator[Job]:
        """Claim and run jobs that others have started."""
        operations = (*WORKER_OPERATIONS, MAINTAIN)
        while True:
            worker = new_worker()
            job = self._client.jobs.claim(worker, operations)
            if job is None:
                return
            yield self._run_claimed(job, worker)

    def _run_claimed(self, job: Job, worker: str) -> Job:
        claimed = job

        def work(progress: Progress) -> Mapping[str, Any]:
            if claimed.operation == MAINTAIN:
                return self._maintain(claimed, progress)
            return self._operate(claimed, progress)

        return run_as_worker(self._client.jobs, job, worker, work, gives_back=True)

    # --- one table --------------------------------------------------------------------------------

    def maintain(self, table: IdentifierName, progress: ActionProgress | None = None) -> Job | None:
        """Do everything that pays on a table. None if nothing does. Raises Conflict if somebody
        else is doing it."""
        if not self.status(table).plan.runnable:
            return None
        worker = new_worker()
        job = self._client.jobs.start(table, MAINTAIN, started_by=self._started_by, worker=worker)
        return run_as_worker(
            self._client.jobs,
            job,
            worker,
            lambda report: self._maintain(job, report, progress),
        )

    def _maintain(
        self, run: Job, report: Progress, progress: ActionProgress | None = None
    ) -> Mapping[str, Any]:
        """Run the actions one after the other. Each is planned on what the one before has left."""
        begun_s = time.monotonic()
        started_by = StartedBy(run.started_by)
        if run.dry_run:
            plan = self.status(run.identifier, started_by).plan
            return {"actions": [_planned(action) for action in plan.runnable]}
        done: list[dict[str, Any]] = []
        tried: set[str] = set()
        while True:
            report(len(done), len(done) + 1)
            found = self.status(run.identifier, started_by)
            settings = maintenance_settings(found.health.settings)
            todo = [action for action in found.plan.runnable if action.operation not in tried]
            if not todo or time.monotonic() - begun_s > settings.max_seconds_per_run:
                return {"actions": done}
            action = todo[0]
            tried.add(action.operation)
            own = None if progress is None else progress(action.operation)
            done.append(self._act(run, action, report, own))

    def _act(
        self, run: Job, action: PlannedAction, report: Progress, progress: Progress | None
    ) -> dict[str, Any]:
        started: dict[str, Any] = {"operation": action.operation, "reason": action.reason}
        try:
            job = self._run_action(run, action, report, progress)
        except (Conflict, BadRequest) as refused:
            return {**started, "state": JobState.CANCELLED.value, "message": refused.message}
        message = {} if job.error is None else {"message": job.error.message}
        return {**started, "job-id": job.job_id, "state": job.state.value, **message}

    def _run_action(
        self, run: Job, action: PlannedAction, report: Progress, progress: Progress | None
    ) -> Job:
        jobs, table = self._client.jobs, run.identifier

        def both(done: int, total: int) -> None:
            report(done, total)
            if progress is not None:
                progress(done, total)

        started_by = StartedBy(run.started_by)
        if OPERATIONS[action.operation].run_by is RunBy.SERVER:
            job = jobs.start(table, action.operation, action.options, started_by=started_by)
            try:
                return wait_for(jobs, job, both)
            except (JobStopped, KeyboardInterrupt):
                jobs.cancel(job)
                raise
        worker = new_worker()
        job = jobs.start(
            table, action.operation, action.options, started_by=started_by, worker=worker
        )

        def work(own: Progress) -> Mapping[str, Any]:
            def all_three(done: int, total: int) -> None:
                own(done, total)
                both(done, total)

            return self._operate(job, all_three)

        return run_as_worker(jobs, job, worker, work)

    def _operate(self, job: Job, progress: Progress) -> Mapping[str, Any]:
        operation = WORKER_OPERATIONS[job.operation]
        table = self._client.load_table(job.identifier)
        return operation(WorkerRun(table, job.options, job.dry_run, progress))


def _planned(action: PlannedAction) -> dict[str, Any]:
    return {
        "operation": action.operation,
        "reason": action.reason,
        "state": "planned",
        "saved-files": action.saved_files,
        "saved-bytes": action.saved_bytes,
    }

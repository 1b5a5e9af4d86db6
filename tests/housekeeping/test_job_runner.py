"""The threads of a server that run its operations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from frazil.db.rows import Database
from frazil.housekeeping.job_runner import JobRunner
from frazil.housekeeping.jobs import Jobs
from frazil.housekeeping.server_operations import JobCancelled, JobRun, ServerOperation, ServerTools
from frazil.wire.errors import ValidationError
from frazil.wire.identifiers import Identifier
from frazil.wire.job_messages import Job, JobState, StartJobRequest
from tests.support.patience import HANG_S

OPERATION = "expire_snapshots"
MakeRunner = Callable[[ServerOperation], JobRunner]


class Result(msgspec.Struct, frozen=True, rename="kebab"):
    deleted_files: int


@pytest.fixture
def jobs(database: Database) -> Jobs:
    return Jobs(database)


@pytest.fixture
def make_runner(jobs: Jobs) -> Iterator[MakeRunner]:
    runners: list[JobRunner] = []

    def make(operation: ServerOperation) -> JobRunner:
        tools = cast(ServerTools, None)
        runner = JobRunner(jobs, tools, {OPERATION: operation}, poll_s=0.02, heartbeat_s=0.02)
        runners.append(runner)
        runner.start()
        return runner

    yield make
    for runner in runners:
        runner.close()


def start(jobs: Jobs, **request: Any) -> Job:
    asked = StartJobRequest(OPERATION, **request)
    return jobs.start(Identifier(("shop",), "orders"), "uuid-1", asked, "ann")


def wait_for(jobs: Jobs, job: Job, check: Callable[[Job], bool]) -> Job:
    for _ in range(int(HANG_S / 0.02)):
        found = jobs.get(job.job_id)
        if check(found):
            return found
        threading.Event().wait(0.02)
    raise AssertionError(jobs.get(job.job_id))


def ended(jobs: Jobs, job: Job) -> Job:
    return wait_for(jobs, job, lambda found: found.state.is_final)


def test_a_job_is_run_with_its_options(jobs: Jobs, make_runner: MakeRunner) -> None:
    seen: list[JobRun] = []

    def operation(_: ServerTools, run: JobRun) -> Result:
        seen.append(run)
        run.progress(2, 3)
        return Result(7)

    runner = make_runner(operation)
    job = start(jobs, options={"retain_last": "2"}, dry_run=True)
    runner.wake()
    found = ended(jobs, job)
    assert (found.state, found.result) == (JobState.SUCCEEDED, {"deleted-files": 7})
    assert found.progress is not None
    assert (found.progress.done, found.progress.total) == (2, 3)
    (run,) = seen
    assert (run.uuid, dict(run.options), run.dry_run, run.principal) == (
        "uuid-1",
        {"retain_last": "2"},
        True,
        "ann",
    )
    assert runner.outcomes == {(OPERATION, "succeeded"): 1}


def test_an_error_is_the_outcome_of_its_job(jobs: Jobs, make_runner: MakeRunner) -> None:
    def refused(_: ServerTools, run: JobRun) -> Result:
        if run.dry_run:
            raise ZeroDivisionError("a bug")
        raise ValidationError("a snapshot is leased", [])

    make_runner(refused)
    failed = ended(jobs, start(jobs))
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert (failed.error.type, failed.error.code) == ("ValidationException", 409)
    broken = ended(jobs, start(jobs, dry_run=True))
    assert broken.error is not None
    assert (broken.state, broken.error.code) == (JobState.FAILED, 500)


def test_a_running_job_is_cancelled(jobs: Jobs, make_runner: MakeRunner) -> None:
    def until_cancelled(_: ServerTools, run: JobRun) -> Result:
        while not run.cancelled():
            threading.Event().wait(0.01)
        if run.dry_run:
            raise JobCancelled
        return Result(3)

    make_runner(until_cancelled)
    for dry_run, result in ((False, {"deleted-files": 3}), (True, None)):
        job = start(jobs, dry_run=dry_run)
        wait_for(jobs, job, lambda found: found.state is JobState.RUNNING)
        jobs.cancel(job.job_id)
        found = ended(jobs, job)
        assert (found.state, found.result) == (JobState.CANCELLED, result)


def test_a_server_that_stops_gives_its_jobs_to_another(jobs: Jobs, make_runner: MakeRunner) -> None:
    def until_stopped(_: ServerTools, run: JobRun) -> Result:
        while not run.cancelled():
            threading.Event().wait(0.01)
        raise JobCancelled

    first = make_runner(until_stopped)
    job = start(jobs)
    wait_for(jobs, job, lambda found: found.state is JobState.RUNNING)
    first.close()
    assert jobs.get(job.job_id).state is JobState.QUEUED
    make_runner(lambda tools, run: Result(1))
    found = ended(jobs, job)
    assert (found.state, found.attempts) == (JobState.SUCCEEDED, 1)


def test_a_worker_that_is_alive_keeps_its_job(database: Database, make_runner: MakeRunner) -> None:
    """A job may run for longer than the time after which a silent worker counts as dead."""
    jobs = Jobs(database)
    beats = threading.Event()
    release = threading.Event()

    def operation(_: ServerTools, run: JobRun) -> Result:
        run.progress(1, 2)
        beats.set()
        release.wait(HANG_S)
        return Result(0)

    make_runner(operation)
    job = start(jobs)
    assert beats.wait(HANG_S)
    first = wait_for(jobs, job, lambda found: found.progress is not None).heartbeat_at_ms
    assert first is not None
    wait_for(jobs, job, lambda found: (found.heartbeat_at_ms or 0) > first)
    release.set()
    assert ended(jobs, job).attempts == 1

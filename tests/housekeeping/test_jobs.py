"""Jobs in the database: claims, workers that die, exclusion and cancellation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from frazil.db.rows import Database
from frazil.housekeeping.jobs import MAX_ATTEMPTS, JobIsTaken, Jobs, NoSuchJob
from frazil.wire.errors import BadRequest, UnprocessableEntity
from frazil.wire.identifiers import Identifier
from frazil.wire.job_messages import Job, JobError, JobProgress, JobState, StartJobRequest
from frazil.wire.maintenance_operations import (
    EXPIRE_SNAPSHOTS,
    MAINTAIN,
    REMOVE_ORPHAN_FILES,
    REWRITE_DATA_FILES,
)

ALL = (EXPIRE_SNAPSHOTS, REMOVE_ORPHAN_FILES, REWRITE_DATA_FILES)
TABLE = Identifier(("shop",), "orders")


@pytest.fixture
def jobs(database: Database) -> Jobs:
    return Jobs(database)


@pytest.fixture
def impatient(database: Database) -> Jobs:
    """Jobs for which every worker is dead as soon as it has claimed one."""
    return Jobs(database, silent_after_s=0)


def start(
    jobs: Jobs,
    operation: str = EXPIRE_SNAPSHOTS,
    table: str = "uuid-1",
    key: str | None = None,
    **request: object,
) -> Job:
    asked = StartJobRequest(operation, **request)  # type: ignore[arg-type]
    return jobs.start(TABLE, table, asked, "ann", key)


def claimed(jobs: Jobs, worker: str, operations: tuple[str, ...] = ALL) -> Job:
    job = jobs.claim(worker, operations)
    assert job is not None
    return job


def test_a_job_from_its_start_to_its_result(jobs: Jobs) -> None:
    stored = start(jobs, options={"retain_last": "3"}, dry_run=True)
    assert (stored.state, stored.attempts, stored.worker) == (JobState.QUEUED, 0, None)
    assert stored.identifier == TABLE
    running = claimed(jobs, "w")
    assert running.job_id == stored.job_id
    assert (running.state, running.attempts, running.worker) == (JobState.RUNNING, 1, "w")
    assert (running.options, running.dry_run, running.principal) == (
        {"retain_last": "3"},
        True,
        "ann",
    )
    beaten = jobs.beat(stored.job_id, "w", JobProgress(1, 2))
    assert beaten.progress == JobProgress(1, 2)
    ended = jobs.end(stored.job_id, "w", JobState.SUCCEEDED, result={"deleted": 7})
    assert (ended.state, ended.result, ended.error) == (JobState.SUCCEEDED, {"deleted": 7}, None)
    assert ended.finished_at_ms is not None
    assert jobs.claim("w2", ALL) is None


def test_an_operation_that_does_not_exist_is_refused(jobs: Jobs) -> None:
    with pytest.raises(BadRequest, match=r"is not an operation: .*'expire_snapshots'"):
        start(jobs, "expire_snapshot")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retain_lst": "3"}, "options.retain_lst: .*did you mean 'retain_last'"),
        ({"retain_last": "0"}, "options.retain_last: '0' must be a whole number of at least 1"),
        ({"older_than": "yesterday"}, "options.older_than: .*2026-05-01T12:00:00Z"),
        ({"snapshot_ids": "1,x"}, "options.snapshot_ids: .*ids with commas"),
        ({"retain_last": "9" * 5000}, "options.retain_last: .*below 2.63"),
        ({"older_than": "9" * 5000}, "options.older_than: .*2026-05-01T12:00:00Z"),
        ({"snapshot_ids": "9" * 19}, "options.snapshot_ids: .*ids with commas"),
        ({"clean_expired_metadata": "yes"}, "options.clean_expired_metadata: .*true or false"),
    ],
)
def test_an_option_that_is_wrong_is_refused(
    jobs: Jobs, options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        start(jobs, options=options)
    assert jobs.list(None, None, 10).jobs == ()


def test_a_filter_that_cannot_be_read_is_refused(jobs: Jobs) -> None:
    with pytest.raises(BadRequest, match=r"options\.where: '\(\(' is not a filter"):
        start(jobs, "rewrite_data_files", options={"where": "(("})


def test_jobs_that_exclude_each_other_run_one_after_the_other(jobs: Jobs) -> None:
    own = {start(jobs).job_id, start(jobs).job_id}
    first = claimed(jobs, "w1")
    (second,) = own - {first.job_id}
    other_table, other_kind = start(jobs, table="uuid-2"), start(jobs, REMOVE_ORPHAN_FILES)
    assert {claimed(jobs, "w2").job_id, claimed(jobs, "w3").job_id} == {
        other_table.job_id,
        other_kind.job_id,
    }
    assert jobs.claim("w4", ALL) is None
    jobs.end(first.job_id, "w1", JobState.FAILED, error=JobError("no", "BadRequestException", 400))
    assert claimed(jobs, "w4").job_id == second


def test_a_worker_claims_only_what_it_can_run(jobs: Jobs) -> None:
    start(jobs, EXPIRE_SNAPSHOTS)
    rewrite = start(jobs, REWRITE_DATA_FILES)
    assert claimed(jobs, "w", (REWRITE_DATA_FILES,)).job_id == rewrite.job_id


def test_a_claim_that_is_repeated_returns_its_job(jobs: Jobs) -> None:
    start(jobs)
    start(jobs, table="uuid-2")
    assert claimed(jobs, "w") == claimed(jobs, "w")


def test_the_job_of_a_dead_worker_is_run_by_another(jobs: Jobs, impatient: Jobs) -> None:
    job = start(jobs)
    claimed(jobs, "dead")
    assert jobs.claim("early", ALL) is None
    taken = claimed(impatient, "w2")
    assert (taken.job_id, taken.attempts) == (job.job_id, 2)
    with pytest.raises(JobIsTaken):
        jobs.beat(job.job_id, "dead")
    with pytest.raises(JobIsTaken):
        jobs.end(job.job_id, "dead", JobState.SUCCEEDED, result={"by": "dead"})
    assert jobs.get(job.job_id).state is JobState.RUNNING
    assert jobs.end(job.job_id, "w2", JobState.SUCCEEDED, result={"by": "w2"}).result == {
        "by": "w2"
    }


def test_the_lock_of_a_dead_worker_does_not_stop_the_next_job(jobs: Jobs, impatient: Jobs) -> None:
    first = start(jobs)
    claimed(jobs, "dead")
    second = start(jobs)
    jobs.cancel(first.job_id)
    # The first is cancelled instead of being run again.
    assert claimed(impatient, "w2").job_id == second.job_id
    assert jobs.get(first.job_id).state is JobState.CANCELLED


def test_a_job_that_kills_its_workers_fails(jobs: Jobs, impatient: Jobs) -> None:
    job = start(jobs)
    for number in range(MAX_ATTEMPTS):
        assert claimed(impatient, f"w{number}").job_id == job.job_id
    assert impatient.claim("last", ALL) is None
    failed = jobs.get(job.job_id)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert "workers have died" in failed.error.message


def test_a_job_that_waits_is_cancelled_at_once(jobs: Jobs) -> None:
    job = start(jobs)
    assert jobs.cancel(job.job_id).state is JobState.CANCELLED
    assert jobs.claim("w", ALL) is None
    assert jobs.cancel(job.job_id).state is JobState.CANCELLED


def test_the_worker_of_a_job_is_asked_to_cancel_it(jobs: Jobs) -> None:
    job = start(jobs)
    claimed(jobs, "w")
    assert jobs.cancel(job.job_id).state is JobState.RUNNING
    assert jobs.beat(job.job_id, "w").cancel_requested
    assert jobs.end(job.job_id, "w", JobState.CANCELLED).state is JobState.CANCELLED


def test_a_job_that_is_given_back_waits_again(jobs: Jobs) -> None:
    job = start(jobs)
    claimed(jobs, "w")
    jobs.requeue(job.job_id, "w")
    again = claimed(jobs, "w2")
    assert (again.job_id, again.attempts) == (job.job_id, 1)


def test_a_worker_begins_its_own_job_at_once(jobs: Jobs) -> None:
    job = start(jobs, MAINTAIN, worker="w")
    assert (job.state, job.worker) == (JobState.RUNNING, "w")
    with pytest.raises(JobIsTaken, match=job.job_id):
        start(jobs, MAINTAIN, worker="w2")
    assert [each.job_id for each in jobs.list(None, None, 10).jobs] == [job.job_id]
    jobs.end(job.job_id, "w", JobState.SUCCEEDED)
    assert start(jobs, MAINTAIN, worker="w2").state is JobState.RUNNING


def test_a_worker_cannot_begin_what_the_server_runs(jobs: Jobs) -> None:
    with pytest.raises(BadRequest, match="worker: expire_snapshots is run by the server"):
        start(jobs, worker="w")


def test_a_repeated_request_starts_one_job(jobs: Jobs) -> None:
    key = str(uuid4())
    first = start(jobs, key=key)
    assert start(jobs, key=key).job_id == first.job_id
    assert len(jobs.list(None, None, 10).jobs) == 1
    with pytest.raises(UnprocessableEntity):
        start(jobs, REMOVE_ORPHAN_FILES, key=key)


def test_lists_are_pages_with_the_newest_first(jobs: Jobs) -> None:
    own = [start(jobs).job_id for _ in range(3)]
    start(jobs, table="uuid-2")
    page = jobs.list("uuid-1", None, 2)
    rest = jobs.list("uuid-1", page.after, 2)
    assert {each.job_id for each in (*page.jobs, *rest.jobs)} == set(own)
    assert (len(page.jobs), len(rest.jobs), rest.after) == (2, 1, None)
    times = [each.created_at_ms for each in (*page.jobs, *rest.jobs)]
    assert times == sorted(times, reverse=True)
    assert len(jobs.list(None, None, 10).jobs) == 4


def test_a_job_that_does_not_exist(jobs: Jobs) -> None:
    for call in (jobs.get, jobs.cancel):
        with pytest.raises(NoSuchJob):
            call("none")


def test_old_jobs_are_forgotten_and_open_ones_are_not(jobs: Jobs) -> None:
    old = start(jobs)
    claimed(jobs, "w")
    jobs.end(old.job_id, "w", JobState.SUCCEEDED)
    waiting = start(jobs)
    assert jobs.forget() == 0
    assert jobs.forget(keep_s=-1) == 1
    assert [each.job_id for each in jobs.list(None, None, 10).jobs] == [waiting.job_id]
    assert jobs.open_counts() == {(EXPIRE_SNAPSHOTS, "queued"): 1}


def test_many_workers_run_each_job_once(jobs: Jobs) -> None:
    """Eight workers, four tables, twenty jobs: none twice, and one at a time for each table."""
    wanted = {start(jobs, table=f"uuid-{number % 4}").job_id for number in range(20)}
    busy: set[str] = set()
    done: list[str] = []
    clashes: list[str] = []
    lock = threading.Lock()

    def work(worker: int) -> None:
        claims = 0
        while len(done) < len(wanted):
            claims += 1
            name = f"{worker}:{claims}"
            job = jobs.claim(name, ALL)
            if job is None:
                continue
            with lock:
                if job.table_uuid in busy:
                    clashes.append(job.job_id)
                busy.add(job.table_uuid)
            with lock:
                busy.discard(job.table_uuid)
                done.append(job.job_id)
            jobs.end(job.job_id, name, JobState.SUCCEEDED)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(done) == sorted(wanted)
    assert clashes == []

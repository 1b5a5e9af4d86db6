"""Several autopilots on one catalog, and workers that are killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frazil import Client
from frazil.maintenance.autopilot import Autopilot
from frazil.wire.job_messages import Job, JobState
from tests.support.server import COMMAND, RunningServer, clean_environment, running_server

pytestmark = pytest.mark.process

TABLES = tuple(f"shop.t{number}" for number in range(3))
FILES = 6
AGE_JOBS = "UPDATE {} SET heartbeat_ms = heartbeat_ms - 3600000"
HANGING_WORKER = """
import sys, time
from frazil import Client
from frazil.maintenance.autopilot_loop import end_by_signal
from frazil.maintenance.job_worker import new_worker, run_as_worker

end_by_signal()

client = Client(sys.argv[1])
worker = new_worker()
job = client.jobs.claim(worker, ["rewrite_data_files"])

def work(progress):
    print(job.job_id, flush=True)
    time.sleep(3600)

run_as_worker(client.jobs, job, worker, work, gives_back=True)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.url) as client:
        client.create_namespace("shop")
        for table in TABLES:
            client.create_table(table, "id bigint")
            for id in range(FILES):
                client.append(table, [{"id": id}])
        yield client


def rewrites(client: Client) -> list[Job]:
    return [job for job in client.jobs.list() if job.operation == "rewrite_data_files"]


def silence_workers(server: RunningServer) -> None:
    """Let the workers of all jobs count as dead."""
    with sqlite3.connect(server.directory / "frazil.db") as database:
        for table in ("jobs", "job_locks"):
            database.execute(AGE_JOBS.format(table))
    database.close()


def hanging_worker(server: RunningServer, client: Client) -> tuple[subprocess.Popen[str], str]:
    """Start a worker that claims a job of the first table and never ends it."""
    waiting = client.jobs.start(TABLES[0], "rewrite_data_files", {"min-input-files": "2"})
    command = [sys.executable, "-c", HANGING_WORKER, server.url]
    worker = subprocess.Popen(command, env=clean_environment(), stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline().strip() == waiting.job_id
    return worker, waiting.job_id


def test_two_autopilots_share_the_work_and_do_nothing_twice(
    server: RunningServer, client: Client
) -> None:
    command = [*COMMAND, "maintain", "auto", "--once", "--uri", server.url]
    both = [subprocess.Popen(command, env=clean_environment()) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    done = rewrites(client)
    assert {str(job.identifier) for job in done} == set(TABLES)
    assert len(done) == len(TABLES)
    assert {(job.result or {})["rewritten-data-files-count"] for job in done} == {FILES}
    for table in TABLES:
        assert client.jobs.health(table).data_files.count == 1
        assert len(client.scan(table).to_pylist()) == FILES


def test_the_job_of_a_killed_worker_is_finished_by_another(
    server: RunningServer, client: Client
) -> None:
    worker, job_id = hanging_worker(server, client)
    worker.kill()
    worker.wait()
    Autopilot(client).run_once()
    # As long as the worker may be alive, nobody else rewrites the table.
    assert [job.state for job in rewrites(client) if job.job_id == job_id] == [JobState.RUNNING]
    assert client.jobs.health(TABLES[0]).data_files.count == FILES
    assert client.jobs.health(TABLES[1]).data_files.count == 1
    silence_workers(server)
    Autopilot(client).run_once()
    (job,) = (job for job in rewrites(client) if job.job_id == job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)
    assert client.jobs.health(TABLES[0]).data_files.count == 1


def test_a_worker_that_is_ended_gives_its_job_back(server: RunningServer, client: Client) -> None:
    worker, job_id = hanging_worker(server, client)
    worker.terminate()
    worker.wait()
    (job,) = (job for job in rewrites(client) if job.job_id == job_id)
    assert (job.state, job.worker) == (JobState.QUEUED, None)
    Autopilot(client).run_once()
    (job,) = (job for job in rewrites(client) if job.job_id == job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)

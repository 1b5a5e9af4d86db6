"""`frazil serve --maintain`: a real server and its real child process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from frazil import Client
from frazil.server.maintenance_process import Connection, MaintenanceProcess, resident_bytes
from frazil.wire.job_messages import JobState
from tests.support.certificates import make_pair
from tests.support.patience import wait_until
from tests.support.server import RunningServer, running_server, start_server

pytestmark = pytest.mark.process

TOKEN = "not-a-secret"
EVERY_SECOND = ("--maintain", "--maintain-interval-s", "1")
EXPIRE_AT_ONCE = {"frazil.maintenance.max-snapshot-age-ms": "0"}


def entry(name: str, token: str) -> str:
    return f"{name}:{sha256(token.encode()).hexdigest()}\n"


def child_of(server: RunningServer) -> int | None:
    """Return the process id of the child that maintains."""
    folder = Path(f"/proc/{server.process.pid}/task")
    children = [int(pid) for path in folder.glob("*/children") for pid in path.read_text().split()]
    return children[0] if children else None


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def append_files(client: Client, table: str, count: int = 6) -> None:
    for number in range(count):
        client.append(table, [{"id": number, "item": "ice"}])


def is_compact(client: Client, table: str) -> bool:
    health = client.jobs.health(table)
    open_jobs = [job for job in health.runs if not job.state.is_final]
    return health.data_files.rewritable_count == 0 and not open_jobs


@pytest.fixture
def tokens_path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(entry("etl", TOKEN))
    return path


def test_a_server_compacts_and_expires_by_itself(tmp_path: Path, tokens_path: Path) -> None:
    """With tokens and a certificate, which are both replaced meanwhile."""
    first, second = make_pair(), make_pair()
    cert, key, trusted = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "trusted.pem"
    first.write(cert, key)
    trusted.write_bytes(first.certificate + second.certificate)
    flags = (
        *EVERY_SECOND,
        *("--tokens-file", str(tokens_path), "--tls-cert", str(cert), "--tls-key", str(key)),
    )
    with (
        running_server(tmp_path / "server", *flags, ca_file=trusted) as server,
        Client(server.url, token=TOKEN, ca_file=str(trusted)) as client,
    ):
        client.create_namespace("shop", EXPIRE_AT_ONCE)
        client.create_table("shop.orders", "id bigint, item string")
        append_files(client, "shop.orders")
        wait_until(lambda: is_compact(client, "shop.orders"), "the table was not compacted")
        wait_until(
            lambda: client.jobs.health("shop.orders").snapshots.expirable_count == 0,
            "the snapshots did not expire",
        )
        assert len(client.scan("shop.orders").to_pylist()) == 6
        (run, *_) = [job for job in client.jobs.list() if job.operation == "rewrite_data_files"]
        assert (run.principal, run.started_by) == ("local:maintain", "autopilot")

        tokens_path.write_text(entry("etl", TOKEN) + entry("other", "another-token"))
        second.write(cert, key)
        wait_until(lambda: "tokens_file reloaded" in server.log, "the tokens were not read again")
        wait_until(
            lambda: "there is a new certificate" in server.log, "the child was not started again"
        )
        append_files(client, "shop.orders")
        wait_until(lambda: is_compact(client, "shop.orders"), "the table was not compacted again")


def test_a_child_that_dies_is_started_again_and_ends_with_its_server(tmp_path: Path) -> None:
    server = start_server(tmp_path, *EVERY_SECOND)
    try:
        wait_until(lambda: child_of(server) is not None, "there is no child")
        first = child_of(server)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: child_of(server) not in (None, first), "no other child was started")
        second = child_of(server)
        assert second is not None
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not is_running(second), "the child outlived its server")
    finally:
        server.process.kill()


@pytest.fixture
def small_child() -> Iterator[MaintenanceProcess]:
    def connect() -> Connection:
        return Connection("http://127.0.0.1:1", None, None, "text")

    child = MaintenanceProcess(connect, memory_bytes=1, interval_s=60)
    yield child
    child.close()


def test_a_child_with_too_much_memory_is_ended(
    small_child: MaintenanceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    small_child.start()
    wait_until(
        lambda: caplog.text.count("more than --maintain-memory allows") >= 2,
        "the child was not ended twice",
    )


def test_the_memory_of_a_process_is_measured() -> None:
    assert resident_bytes(os.getpid()) > 10 << 20


def test_the_job_of_a_killed_server_is_finished_by_the_next(tmp_path: Path) -> None:
    server = start_server(tmp_path)
    with Client(server.url) as client:
        client.create_namespace("shop")
        client.create_table("shop.orders", "id bigint, item string")
        append_files(client, "shop.orders")
        job = client.jobs.start("shop.orders", "rewrite_manifests")
        server.process.kill()
        server.process.wait()
    with running_server(tmp_path) as again, Client(again.url) as client:
        wait_until(lambda: client.jobs.get(job).state.is_final, "the job did not end")
        assert client.jobs.get(job).state is JobState.SUCCEEDED
        assert client.jobs.health("shop.orders").manifests.count == 1


def test_two_servers_share_the_jobs_and_one_finishes_what_the_other_has_left(
    tmp_path: Path, postgres_database: str
) -> None:
    import psycopg

    flags = ("--database", postgres_database, "--warehouse", str(tmp_path / "warehouse"))
    tables = [f"shop.t{number}" for number in range(4)]
    one = start_server(tmp_path / "one", *flags)
    with running_server(tmp_path / "two", *flags) as two, Client(two.url) as client:
        client.create_namespace("shop")
        for table in tables:
            client.create_table(table, "id bigint, item string")
            append_files(client, table, 3)
        with Client(one.url) as first:
            jobs = [
                first.jobs.start(table, operation)
                for operation in ("rewrite_manifests", "expire_snapshots")
                for table in tables
            ]
        one.process.kill()
        one.process.wait()
        # What the killed server was running is free as soon as it counts as dead.
        with psycopg.connect(postgres_database, autocommit=True) as database:
            for rows in ("jobs", "job_locks"):
                aged = f"UPDATE {rows} SET heartbeat_ms = heartbeat_ms - 3600000"
                database.execute(aged.encode())
        wait_until(
            lambda: all(client.jobs.get(job).state.is_final for job in jobs), "a job did not end"
        )
        assert {client.jobs.get(job).state for job in jobs} == {JobState.SUCCEEDED}
        assert {client.jobs.health(table).manifests.count for table in tables} == {1}

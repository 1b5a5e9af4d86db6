"""The health of a table, measured on a real catalog, and jobs over its routes."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest

from frazil import Client
from frazil.maintenance import remove_dangling_deletes, rewrite_data_files, rewrite_manifests
from frazil.maintenance.autopilot import Autopilot
from frazil.maintenance.maintenance_policy import plan_maintenance
from frazil.wire.errors import BadRequest, Forbidden, NoSuchTable
from frazil.wire.job_messages import JobState, StartedBy
from tests.support.server import RunningServer, running_server

V3: dict[str, Any] = {"format_version": 3, "properties": {"write.delete.mode": "merge-on-read"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("health")) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def make_table(client: Client, name: str, files: int = 6, **options: Any) -> str:
    client.create_namespace("shop", if_not_exists=True)
    table = f"shop.{name}"
    client.create_table(table, "id bigint not null, item string", **options)
    for number in range(files):
        rows = [{"id": number * 10 + row, "item": "ice"} for row in range(10)]
        client.append(table, rows)
    return table


def test_small_files_manifests_and_snapshots_are_counted(client: Client) -> None:
    table = make_table(client, "counted")
    health = client.jobs.health(table)
    files, manifests = health.data_files, health.manifests
    assert (files.count, files.small_count, files.record_count) == (6, 6, 60)
    assert (files.rewritable_count, files.rewritten_count) == (6, 1)
    assert files.size_bytes == files.rewritable_bytes > 0
    assert (manifests.count, manifests.rewritten_count) == (6, 1)
    assert (health.snapshots.count, health.snapshots.expirable_count) == (6, 0)
    assert health.metadata_location == client.load_table(table).metadata_location


def test_few_small_files_are_left_alone(client: Client) -> None:
    table = make_table(client, "few", files=3)
    files = client.jobs.health(table).data_files
    assert (files.small_count, files.rewritable_count) == (3, 0)


def test_a_file_with_many_deletes_pays_by_itself(client: Client) -> None:
    table = make_table(client, "deleted", files=2, **V3)
    client.delete(table, "id < 4")
    health = client.jobs.health(table)
    assert (health.deletes.vector_count, health.deletes.deleted_record_count) == (1, 4)
    # The other file is too small as well, so it is rewritten with it.
    assert health.data_files.rewritable_count == 2
    # Four of twenty rows are deleted.
    assert health.data_files.deleted_bytes == pytest.approx(
        health.data_files.size_bytes / 5, rel=0.1
    )


def test_an_empty_table_needs_nothing(client: Client) -> None:
    table = make_table(client, "empty", files=0)
    assert plan_maintenance(client.jobs.health(table)).actions == ()


def test_a_table_that_does_not_exist(client: Client) -> None:
    with pytest.raises(NoSuchTable):
        client.jobs.health("shop.nothing")
    with pytest.raises(NoSuchTable):
        client.jobs.start("shop.nothing", "rewrite_manifests")


def test_settings_come_from_namespaces_and_the_table_wins(client: Client) -> None:
    prefix = "frazil.maintenance."
    client.create_namespace("outer", {f"{prefix}min-input-files": "3", f"{prefix}enabled": "false"})
    client.create_namespace(("outer", "inner"), {f"{prefix}min-input-files": "4"})
    client.create_table(
        ("outer", "inner", "t"), "id bigint", properties={f"{prefix}enabled": "true"}
    )
    assert client.jobs.health(("outer", "inner", "t")).settings == {
        f"{prefix}min-input-files": "4",
        f"{prefix}enabled": "true",
    }
    with pytest.raises(BadRequest, match="min-input-files"):
        client.update_namespace("outer", {f"{prefix}min-input-files": "few"})


def test_a_job_is_run_by_the_server(client: Client) -> None:
    table = make_table(client, "manifests")
    loaded = client.load_table(table)
    planned = rewrite_manifests(loaded, dry_run=True)
    assert (planned.rewritten_manifests_count, planned.added_manifests_count) == (6, 1)
    assert client.jobs.health(table).manifests.count == 6
    done = rewrite_manifests(loaded)
    assert done.job.state is JobState.SUCCEEDED
    assert client.jobs.health(table).manifests.count == 1
    remove_dangling_deletes(loaded)
    operations = [job.operation for job in client.jobs.list(table)]
    assert operations == ["remove_dangling_deletes", "rewrite_manifests", "rewrite_manifests"]
    assert client.jobs.find(done.job.job_id) == done.job


def test_snapshots_expire_by_the_settings(client: Client) -> None:
    table = make_table(
        client, "expired", properties={"frazil.maintenance.max-snapshot-age-ms": "0"}
    )
    assert client.jobs.health(table).snapshots.expirable_count == 5
    job = Autopilot(client, started_by=StartedBy.RUN).maintain(table)
    assert job is not None
    health = client.jobs.health(table)
    assert (health.snapshots.count, health.snapshots.expirable_count) == (1, 0)
    assert health.quarantine.snapshot_count >= 5


def test_what_expiry_frees_is_estimated(client: Client) -> None:
    table = make_table(client, "freed")
    size_bytes = client.jobs.health(table).data_files.size_bytes
    rewrite_data_files(client.load_table(table))
    client.load_table(table).set_properties({"frazil.maintenance.max-snapshot-age-ms": "0"})
    health = client.jobs.health(table)
    assert health.snapshots.expirable_count == 6
    assert health.snapshots.expirable_bytes == size_bytes


def test_a_mistake_is_refused_before_a_job_exists(client: Client) -> None:
    table = make_table(client, "mistakes", files=0)
    with pytest.raises(BadRequest, match="did you mean 'rewrite_manifests'"):
        client.jobs.start(table, "rewrite_manifest")
    with pytest.raises(BadRequest, match=r"options\.spec_di: .*did you mean 'spec_id'"):
        client.jobs.start(table, "rewrite_manifests", {"spec_di": "1"})
    assert list(client.jobs.list(table)) == []


def test_the_error_of_a_job_is_raised(client: Client) -> None:
    table = make_table(client, "errors", files=1)
    with pytest.raises(BadRequest, match="branch"):
        rewrite_manifests(client.load_table(table), branch="nothing")


def test_a_job_that_waits_for_a_worker_is_cancelled(client: Client) -> None:
    table = make_table(client, "waiting", files=0)
    job = client.jobs.start(table, "rewrite_data_files")
    assert client.jobs.get(job).state is JobState.QUEUED
    assert client.jobs.cancel(job).state is JobState.CANCELLED


def test_one_run_does_everything_that_pays(client: Client) -> None:
    table = make_table(client, "run", **V3)
    client.delete(table, "id < 4")
    before = sorted(row["id"] for row in client.scan(table).to_pylist())
    autopilot = Autopilot(client, started_by=StartedBy.RUN)
    job = autopilot.maintain(table)
    assert job is not None
    done = {each["operation"]: each["state"] for each in (job.result or {})["actions"]}
    assert done["rewrite_data_files"] == "succeeded"
    health = client.jobs.health(table)
    assert (health.data_files.count, health.deletes.vector_count) == (1, 0)
    assert sorted(row["id"] for row in client.scan(table).to_pylist()) == before
    assert not autopilot.status(table).plan.runnable
    assert autopilot.maintain(table) is None
    runs = {each.operation: each.started_by for each in client.jobs.list(table)}
    assert runs["maintain"] == runs["rewrite_data_files"] == "run"


def test_an_autopilot_runs_jobs_that_wait_for_a_worker(client: Client) -> None:
    table = make_table(client, "queued")
    job = client.jobs.start(table, "rewrite_data_files", {"min-input-files": "2"})
    Autopilot(client).run_once()
    done = client.jobs.get(job)
    assert done.state is JobState.SUCCEEDED
    assert (done.result or {})["rewritten-data-files-count"] == 6


def test_a_run_that_somebody_asks_for_is_done_by_a_worker(client: Client) -> None:
    """Also on a table that the autopilot leaves alone, and a dry run changes nothing."""
    table = make_table(client, "asked", properties={"frazil.maintenance.enabled": "false"})
    dry = client.jobs.start(table, "maintain", dry_run=True)
    Autopilot(client).run_once()
    planned = (client.jobs.get(dry).result or {})["actions"]
    assert ("rewrite_data_files", "planned") in {(a["operation"], a["state"]) for a in planned}
    assert client.jobs.health(table).data_files.count == 6
    asked = client.jobs.start(table, "maintain")
    Autopilot(client).run_once()
    assert client.jobs.get(asked).state is JobState.SUCCEEDED
    assert client.jobs.health(table).data_files.count == 1


def test_a_read_only_token_watches_jobs_and_starts_none(tmp_path: Any) -> None:
    digests = [sha256(token.encode()).hexdigest() for token in ("not-a-secret", "also-no-secret")]
    tokens = {"FRAZIL_TOKENS": f"etl:{digests[0]},reader:{digests[1]}:read"}
    with running_server(tmp_path, env=tokens) as server:
        with Client(server.url, token="not-a-secret") as client:
            make_table(client, "t", files=0)
            client.jobs.start("shop.t", "rewrite_data_files")
        with Client(server.url, token="also-no-secret") as reader:
            (job,) = reader.jobs.list("shop.t")
            assert job.principal == "etl"
            with pytest.raises(Forbidden):
                reader.jobs.start("shop.t", "rewrite_manifests")
            with pytest.raises(Forbidden):
                reader.jobs.cancel(job)
            with pytest.raises(Forbidden):
                reader.jobs.claim("w", ["rewrite_data_files"])

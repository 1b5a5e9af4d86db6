"""`frazil maintain`: runs, status, jobs and the autopilot against a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from frazil import Client
from frazil.cli.app import app
from frazil.maintenance import autopilot_loop
from frazil.maintenance.autopilot import Autopilot
from frazil.maintenance.autopilot_loop import run_rounds
from frazil.wire.errors import BadRequest
from tests.cli.shop import Shop
from tests.support.server import running_server


def small_files(shop: Shop, count: int = 6) -> None:
    for number in range(count):
        shop.append(f"{number}.parquet", [number])


def actions_of(document: dict[str, Any]) -> list[str]:
    return [action["operation"] for action in document["actions"] if not action["held-back"]]


def test_a_run_prints_its_plan_and_then_does_it(shop: Shop) -> None:
    small_files(shop)
    planned = shop.json("maintain", "run", shop.name, "--dry-run")
    assert [action["operation"] for action in planned] == [
        "rewrite_data_files",
        "rewrite_manifests",
    ]
    assert planned[0]["saved-files"] == 5
    assert "data files are small" in shop.ok("maintain", "run", shop.name, "--dry-run")
    assert shop.json("maintain", "jobs", shop.name) == []

    done = shop.json("maintain", "run", shop.name)
    assert [(action["operation"], action["state"]) for action in done["actions"]] == [
        ("rewrite_data_files", "succeeded")
    ]
    assert "nothing to do" in shop.ok("maintain", "run", shop.name)
    jobs = {job["operation"]: job for job in shop.json("maintain", "jobs", shop.name)}
    assert jobs["rewrite_data_files"]["result"]["rewritten-data-files-count"] == 6
    assert jobs["maintain"]["job-id"] == done["job-id"]
    assert "rewrite_data_files" in shop.ok("maintain", "jobs", shop.name, "-n", "5")


def test_the_status_shows_health_plan_and_runs(shop: Shop) -> None:
    small_files(shop)
    status = shop.json("maintain", "status", shop.name)
    assert status["health"]["data-files"]["small-count"] == 6
    assert actions_of(status) == ["rewrite_data_files", "rewrite_manifests"]
    shop.ok("maintain", "rewrite-manifests", shop.name)
    text = shop.ok("maintain", "status", shop.name)
    assert "6 small" in text
    assert "last runs" in text
    everything = shop.json("maintain", "status")
    names = {
        ".".join((*each["health"]["table"]["namespace"], each["health"]["table"]["name"]))
        for each in everything
        if "health" in each
    }
    assert shop.name in names
    assert shop.name in shop.ok("maintain", "status")


def test_a_job_is_run_watched_and_cancelled(shop: Shop) -> None:
    small_files(shop, 2)
    dry = shop.json("maintain", "expire-snapshots", shop.name, "--retain-last", "1", "--dry-run")
    assert dry["expired-snapshots-count"] == 0
    done = shop.json(
        "maintain", "expire-snapshots", shop.name, "--older-than", "2100-01-01T00:00:00Z"
    )
    assert done["expired-snapshots-count"] == 1
    (expired,) = shop.json("maintain", "jobs", shop.name, "-n", "1")
    assert expired["job-id"] == done["job-id"]
    waiting = shop.client.jobs.start(shop.name, "rewrite_data_files")
    assert shop.json("maintain", "cancel", waiting.job_id)["state"] == "cancelled"
    assert shop.run("maintain", "cancel", "no-such-job").exit_code == 1


def test_an_expired_snapshot_comes_back(shop: Shop) -> None:
    first = shop.append("a.parquet", [1])
    shop.append("b.parquet", [2])
    shop.ok("maintain", "expire-snapshots", shop.name, "--older-than", "2100-01-01T00:00:00Z")
    restored = shop.json("maintain", "undo", shop.name, "--snapshot-id", str(first))
    assert (restored["snapshot-id"], restored["tag"]) == (first, f"undo-{first}")
    (tag,) = shop.json("tag", shop.name)["refs"]
    assert tag["snapshot-id"] == first


def test_mistakes_are_named(shop: Shop) -> None:
    wrong = shop.run("maintain", "auto", "--every", "often")
    assert wrong.exit_code == 2
    assert "10m" in wrong.output
    refused = shop.run("maintain", "rewrite-manifests", shop.name, "--option", "spec_di=1")
    assert refused.exit_code == 1
    assert "did you mean 'spec_id'" in refused.output
    missing = shop.run("maintain", "run", "shop.nothing", "-o", "json")
    assert missing.exit_code == 1
    assert json.loads(missing.stderr)["error"]["type"] == "NoSuchTableException"


def test_a_table_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, Client(server.url) as client:
        client.create_namespace("n")
        for name in ("n.good", "n.broken"):
            client.create_table(name, "id bigint")
            client.append(name, [{"id": 1}])
        (snapshot,) = client.history("n.broken")
    assert snapshot.manifest_list is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with running_server(tmp_path) as server:
        done = CliRunner().invoke(app, ["maintain", "status", "--uri", server.url])
        shown = CliRunner().invoke(app, ["maintain", "status", "--uri", server.url, "-o", "json"])
    assert done.exit_code == shown.exit_code == 0
    assert "n.good" in done.stdout
    assert "n.broken: " in done.stderr
    good, broken = json.loads(shown.stdout)
    assert good["health"]["data-files"]["count"] == 1
    assert broken["table"] == "n.broken"
    assert broken["error"]["message"]


def test_an_expiry_says_what_is_deleted_when_and_how_it_comes_back(shop: Shop) -> None:
    first = shop.append("a.parquet", [1])
    shop.append("b.parquet", [2])
    expire = ("maintain", "expire-snapshots", shop.name)
    assert "none is old enough" in shop.ok(*expire)
    assert "none with these ids" in shop.ok(*expire, "--snapshot-id", "17")
    everything = (*expire, "--older-than", "2100-01-01")
    dry = shop.ok(*everything, "--dry-run")
    assert "nothing was changed: would expire 1 snapshot\n" in dry
    assert "after a quarantine of 3 days: 1 manifest list\n" in dry
    done = shop.ok(*everything)
    assert f"{shop.name}: expired 1 snapshot\n" in done
    assert "will be deleted after 20" in done
    assert f"frazil maintain undo {shop.name} --snapshot-id ID" in done
    assert str(first) in shop.run("maintain", "undo", shop.name).output
    undo = ("maintain", "undo", shop.name, "--snapshot-id", str(first))
    assert "would come back" in shop.ok(*undo, "--dry-run")
    back = shop.ok(*undo)
    assert f"snapshot {first} is back, with the tag undo-{first}" in back
    assert f"frazil tag {shop.name} undo-{first} --delete" in back
    assert "it is in the table" in shop.run(*undo).output


def test_an_expiry_without_deletion_says_so(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    shop.append("b.parquet", [2])
    kept = shop.ok(
        "maintain", "expire-snapshots", shop.name, "--older-than", "2100-01-01", "--keep-files"
    )
    assert "the snapshots cannot come back" in kept
    assert "none of its snapshots" in shop.run("maintain", "undo", shop.name).output


def test_orphans_are_counted_listed_and_explained(shop: Shop) -> None:
    shop.append("a.parquet", [1])
    orphan = shop.write("orphan.parquet", [2])
    os.utime(orphan.removeprefix("file://"), (0, 0))
    search = ("maintain", "remove-orphan-files", shop.name)
    dry = shop.ok(*search, "--dry-run")
    assert "found 1 orphan file (" in dry
    assert orphan in dry
    assert "without --dry-run, they are recorded" in dry
    assert "they are deleted after 20" in shop.ok(*search)
    again = shop.ok(*search)
    assert "found no new orphan file" in again
    assert "1 file recorded before" in again
    assert "found as an orphan file, and is deleted after" in shop.ok("why", orphan)
    assert "no file is due" in shop.ok("maintain", "delete-unreachable-files", shop.name)


def test_the_status_says_that_nothing_is_deleted(shop: Shop) -> None:
    assert "gc.enabled is false" not in shop.ok("maintain", "status", shop.name)
    shop.ok("set", shop.name, "gc.enabled=false")
    assert "gc.enabled is false" in shop.ok("maintain", "status", shop.name)


def test_a_drop_now_needs_purge(shop: Shop) -> None:
    refused = shop.run("drop", shop.name, "--now")
    assert refused.exit_code == 2
    assert "give --purge" in refused.output
    dry = shop.json("drop", shop.name, "--purge", "--now", "--dry-run")
    assert dry["path"].endswith("?purgeRequested=true&frazil-now=true")
    with pytest.raises(BadRequest, match="frazil-now"):
        shop.client.drop_table(shop.name, now=True)
    assert f"frazil maintain undo {shop.name}" in shop.ok("drop", shop.name, "--purge")
    assert "the purged table is back" in shop.ok("maintain", "undo", shop.name)


def test_a_purged_table_comes_back_beside_one_with_its_name(shop: Shop) -> None:
    old, other = shop.table.uuid, f"{shop.name}_old"
    undo = ("maintain", "undo", shop.name)
    assert "no purged table" in shop.run(*undo, "--as", other).output
    shop.ok("drop", shop.name, "--purge")
    shop.client.create_table(shop.name, "id bigint")
    assert "with the option as" in shop.run(*undo).output
    assert f"is back as {other}" in shop.ok(*undo, "--as", other)
    assert shop.client.load_table(other).uuid == old


def test_a_job_does_not_wait_for_the_next_round(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autopilot_loop, "_CLAIM_INTERVAL_S", 0.01)
    monkeypatch.setattr(Autopilot, "tables", lambda own: iter(()))
    rounds = run_rounds(shop.client, 3600)
    next(rounds)
    started = shop.client.jobs.start(shop.name, "rewrite_data_files")
    assert started.job_id in [job.job_id for job in next(rounds)]


def test_a_run_says_what_it_has_done(shop: Shop) -> None:
    small_files(shop)
    text = shop.ok("maintain", "run", shop.name)
    assert "rewrite_data_files succeeded\n  why: 6 of 6 data files are small" in text
    assert "rewrote 6 data files (" in text

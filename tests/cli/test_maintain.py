"""`frazil maintain`: runs, status, jobs and the autopilot against a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from frazil import Client
from frazil.cli.app import app
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

"""`GET /metrics` returns the counters of all packages in Prometheus format."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as families

import frazil
from frazil import Client, Table
from frazil.commit.pipeline.commit_metrics import OPERATIONS, Outcome
from frazil.wire.conflicts import ConflictClause
from frazil.wire.declared_content import ValueMap
from frazil.wire.errors import NotFound, ValidationError
from scripts.java import ROOT
from tests.client.conftest import BY_DAY, SCHEMA, declared
from tests.support.patience import HANG_S
from tests.support.server import RunningServer, running_server

pytestmark = pytest.mark.process

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
Scrape = Callable[..., float]


def scraped(server: RunningServer, **headers: str) -> tuple[str, str]:
    request = urllib.request.Request(f"{server.url}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


class Counted:
    """The counter values of a server. A counter that does not exist yet has the value 0."""

    def __init__(self, server: RunningServer) -> None:
        text, _ = scraped(server)
        self._samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._samples.get((f"frazil_{name}", tuple(sorted(labels.items()))), 0.0)

    def known(self, name: str, **labels: str) -> bool:
        return (f"frazil_{name}", tuple(sorted(labels.items()))) in self._samples


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp("metrics")
    flags = ("--plan-page-files", "2", "--manifest-cache-folder", str(directory / "columns"))
    with running_server(directory, *flags) as started:
        with Client(started.url) as client:
            client.create_namespace("m")
        yield started


@pytest.fixture
def table(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Table]:
    with Client(server.url) as client:
        name = f"m.{request.node.name}"
        client.create_table(name, SCHEMA, partition_spec=BY_DAY)
        table = client.load_table(name)
        for day in (1, 2):
            partition = f"2026-05-{day:02}"
            low, high = ValueMap((1,), (10 * day,)), ValueMap((1,), (10 * day + 9,))
            files = [
                declared(table, f"{day}-{n}", partition, lower_bounds=low, upper_bounds=high)
                for n in range(3)
            ]
            client.append_files(name, files)
        yield client.load_table(name)


def differences(server: RunningServer, action: Callable[[], object]) -> Scrape:
    before = Counted(server)
    action()
    after = Counted(server)
    return lambda name, **labels: after(name, **labels) - before(name, **labels)


def test_plans_are_counted_by_what_they_saw(server: RunningServer, table: Table) -> None:
    grown = differences(server, lambda: table.plan("day = '2026-05-01' and id > 19"))
    assert grown("plans_total", outcome="completed") == 1
    assert grown("plans_total", outcome="failed") == 0
    assert grown("plan_manifests_total", content="data", result="read") == 1
    assert grown("plan_manifests_total", content="data", result="skipped-by-partition") == 1
    assert grown("plan_files_total", content="data", result="skipped-by-statistics") == 3
    assert grown("plan_files_total", content="data", result="planned") == 0
    assert grown("plan_seconds_count") == 1
    assert grown("plan_seconds_bucket", le="+Inf") == 1
    assert grown("plan_seconds_sum") > 0


def test_pages_are_counted(server: RunningServer, table: Table) -> None:
    grown = differences(server, lambda: table.plan())
    assert grown("plan_files_total", content="data", result="planned") == 6
    assert grown("plan_task_pages_total") == 2
    assert grown("plan_task_files_total") == 4


def test_a_plan_that_fails_is_counted(server: RunningServer, table: Table) -> None:
    """The plan fails because the metadata of a registered table names a manifest list that is
    missing."""
    metadata = json.loads(json.dumps(table.metadata))
    metadata["table-uuid"] = str(uuid.uuid4())
    for snapshot in metadata["snapshots"]:
        snapshot["manifest-list"] += ".gone"
    location = f"{table.location}/metadata/00099-{uuid.uuid4()}.metadata.json"
    Path(location.removeprefix("file://")).write_text(json.dumps(metadata))

    def plan() -> None:
        with pytest.raises(NotFound, match="is missing"):
            broken.plan()

    with Client(server.url) as client:
        client.drop_table(table.identifier)
        broken = client.register_table("m.broken", location)
        grown = differences(server, plan)
    assert grown("plans_total", outcome="failed") == 1
    assert grown("plan_seconds_count") == 1
    assert grown("http_requests_total", operation="planTableScan", status="404") == 1


def test_the_cache_counts_what_it_holds(server: RunningServer, table: Table) -> None:
    table.plan()
    grown = differences(server, lambda: table.plan("id = 12"))
    assert grown("manifest_cache_hits_total", kind="manifest-lists") >= 1
    assert grown("manifest_cache_hits_total", kind="columns") >= 2
    assert grown("manifest_cache_misses_total", kind="columns") == 0
    assert grown("manifest_reads_total", kind="manifests") == 0
    now = Counted(server)
    for kind in ("manifest-lists", "columns", "contents"):
        assert now("manifest_cache_entries", kind=kind) > 0
        assert 0 < now("manifest_cache_bytes", kind=kind) < now("manifest_cache_max_bytes")
    for kind in ("manifest-lists", "columns", "statistics", "contents", "new-manifests"):
        assert now.known("manifest_cache_evictions_total", kind=kind)
    assert now.known("manifest_folder_lookups_total", result="hit")


def test_requests_are_counted_by_operation_and_status(server: RunningServer) -> None:
    def ask() -> None:
        with Client(server.url) as client:
            assert not client.table_exists("m.nothing")
            assert client.namespace_exists("m")

    grown = differences(server, ask)
    assert grown("http_requests_total", operation="tableExists", status="404") == 1
    assert grown("http_requests_total", operation="namespaceExists", status="204") == 1
    assert grown("http_request_seconds_count", operation="namespaceExists") == 1
    assert grown("http_requests_total", operation="getMetrics", status="200") == 1
    assert Counted(server)("http_requests_in_flight") == 1


def test_commits_are_counted_by_operation_and_outcome(server: RunningServer, table: Table) -> None:
    name = f"m.{table.identifier.name}"
    with Client(server.url) as client:
        client.create_table("m.second", SCHEMA)
        file = declared(table, "counted", "2026-05-03")
        path = f"{server.url}/v1/namespaces/m/tables/{table.identifier.name}"
        stale = {"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}
        properties = [{"action": "set-properties", "updates": {"k": "v"}}]

        def commit(body: Any, key: str | None = None, url: str = path) -> int:
            headers = {"Idempotency-Key": key} if key else {}
            return requests.post(url, json=body, headers=headers, timeout=HANG_S).status_code

        def run() -> None:
            client.append_files(name, [file])
            with pytest.raises(ValidationError):
                client.append_files(name, [file])
            key = str(uuid.uuid4())
            for _ in range(2):
                assert commit({"requirements": [], "updates": properties}, key) == 200
            assert commit({"requirements": [stale], "updates": properties}) == 409
            changes = [
                {
                    "identifier": {"namespace": ["m"], "name": each},
                    "requirements": [],
                    "updates": properties,
                }
                for each in (table.identifier.name, "second")
            ]
            url = f"{server.url}/v1/transactions/commit"
            assert commit({"table-changes": changes}, url=url) == 204
            client.drop_table("m.second")

        grown = differences(server, run)
    assert grown("commits_total", operation="append", outcome="committed") == 1
    assert grown("commits_total", operation="append", outcome="conflict") == 1
    assert grown("commit_conflicts_total", clause="duplicate-file") == 1
    assert grown("commits_total", operation="metadata", outcome="committed") == 1
    assert grown("commits_total", operation="metadata", outcome="repeated") == 1
    assert grown("commits_total", operation="metadata", outcome="stale") == 1
    assert grown("commits_total", operation="transaction", outcome="committed") == 1
    # The repeated commit was answered before it reached the queue.
    assert grown("commit_group_requests_count") == 5
    assert grown("commit_group_requests_sum") == 5
    assert grown("commit_queue_seconds_count") == 5
    # A dropped table is a round of its own; a refused commit writes and swaps nothing.
    assert grown("commit_phase_seconds_count", phase="build") == 6
    assert grown("commit_phase_seconds_count", phase="swap") == 4
    assert grown("commit_phase_seconds_sum", phase="write") > 0
    assert Counted(server)("commit_queued_requests") == 0


def test_every_outcome_is_there_before_it_happens(server: RunningServer) -> None:
    now = Counted(server)
    for outcome in get_args(Outcome):
        for operation in OPERATIONS:
            assert now.known("commits_total", operation=operation, outcome=outcome)
    for clause in get_args(ConflictClause):
        assert now.known("commit_conflicts_total", clause=clause)


def test_the_disks_and_the_version_are_shown(server: RunningServer) -> None:
    now = Counted(server)
    for content, path in (("warehouse", server.warehouse), ("database", server.directory)):
        assert now("disk_bytes", content=content) == shutil.disk_usage(path).total
        assert 0 < now("disk_free_bytes", content=content) < now("disk_bytes", content=content)
    assert now("build_info", version=frazil.__version__) == 1


def test_both_formats_can_be_parsed(server: RunningServer) -> None:
    text, kind = scraped(server)
    assert kind.startswith("text/plain; version=0.0.4")
    assert {"frazil_plans", "process_cpu_seconds"} <= {one.name for one in families(text)}
    text, kind = scraped(server, Accept=OPEN_METRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    parsed = open_metrics(text)  # type: ignore[no-untyped-call]
    assert "frazil_plans" in {one.name for one in parsed}


def test_every_metric_is_documented(server: RunningServer) -> None:
    text, _ = scraped(server)
    known = {one.name for one in families(text) if one.name.startswith("frazil_")}
    document = (ROOT / "docs" / "operations.md").read_text()
    section = document.partition("## Metrics")[2].partition("\n### ")[0]
    named = re.findall(r"`(frazil_[a-z_]+)`", section)
    assert {name.removesuffix("_total") for name in named} == known
    assert len(named) == len(set(named))


def test_a_token_is_needed_where_tokens_are(tmp_path: Path) -> None:
    tokens = {"FRAZIL_TOKENS": f"prometheus:{hashlib.sha256(b'secret').hexdigest()}"}
    with running_server(tmp_path, env=tokens) as server:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            scraped(server)
        text, _ = scraped(server, Authorization="Bearer secret")
        assert "frazil_plans_total" in text

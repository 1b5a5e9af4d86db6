"""The page about operating a server: its alerts, its proxy, and its backup that is restored."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as families

import frazil.pyiceberg
from frazil import Client
from frazil.db.connect import connect
from frazil.rest.prometheus import metrics_text
from frazil.server.assembly import open_app
from frazil.server.uvicorn_server import KEEP_ALIVE_S
from frazil.settings import Settings
from frazil.wire.identifiers import Identifier
from frazil.wire.job_messages import StartJobRequest
from scripts.java import ROOT
from tests.client.conftest import BY_DAY, SCHEMA, declared
from tests.support.readme import Block, Reader, read_blocks
from tests.support.server import running_server

PAGE = ROOT / "docs" / "operations.md"
TEXT = PAGE.read_text()
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "docs" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}
PROMETHEUS_LABELS = {"job", "instance", "le"}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """Return the labels of each series of a server, by the name that a query uses."""
    folder = tmp_path_factory.mktemp("metrics")
    settings = Settings(database=f"sqlite:///{folder}/frazil.db", warehouse=str(folder / "w"))
    with open_app(settings, {}) as app:
        app.request_counts.add("getConfig", 503, 0.1)
        app.housekeeping.runner.outcomes["expire_snapshots", "failed"] = 1
        app.housekeeping.jobs.start(
            Identifier(("shop",), "orders"), "uuid", StartJobRequest("rewrite_data_files"), "me"
        )
        text, _ = metrics_text(app, "")
    known: dict[str, list[dict[str, str]]] = {}
    for family in families(text.decode()):
        for suffix in SUFFIXES[family.type]:
            known[family.name + suffix] = [sample.labels for sample in family.samples]
    return known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_exist(
    rule: dict[str, Any], metrics: dict[str, list[dict[str, str]]]
) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"]["summary"]
    expression = rule["expr"]
    assert expression.count("(") == expression.count(")")
    named = re.findall(r"\b((?:frazil|process)_[a-z_]+)(?:\{([^}]*)\})?", expression)
    assert named or "up{" in expression
    for name, selector in named:
        assert name in metrics, f"there is no {name}"
        for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selector):
            if label in PROMETHEUS_LABELS:
                continue
            pattern = value if operator == "=~" else re.escape(value)
            values = {labels.get(label, "") for labels in metrics[name]}
            assert any(re.fullmatch(pattern, each) for each in values), f"{name}: {label}={value}"


def test_the_page_names_alerts_that_exist() -> None:
    named = set(re.findall(r"`(Frazil[A-Za-z]+)`", TEXT)) - set(frazil.pyiceberg.__all__)
    assert named
    assert named <= {rule["alert"] for rule in RULES}


def test_the_proxy_fits_the_limits_of_the_server() -> None:
    (nginx,) = re.findall(r"```nginx\n(.*?)```", TEXT, re.DOTALL)

    def number(directive: str) -> int:
        match = re.search(rf"^ +{directive} \D*(\d+)[ms];", nginx, re.MULTILINE)
        assert match is not None, directive
        return int(match[1])

    assert number("client_max_body_size") << 20 == Settings().max_request_bytes
    assert number("keepalive_timeout") < KEEP_ALIVE_S
    assert "proxy_next_upstream off;" in nginx
    # A path after the address would make nginx decode the names in it.
    assert re.search(r"proxy_pass http://\w+;", nginx)


def blocks_of(heading: str, folder: Path) -> list[Block]:
    """Return the blocks of one section."""
    section = TEXT.partition(f"\n{heading}\n")[2]
    document = folder / "section.md"
    document.write_text(re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0])
    blocks = read_blocks(document)
    assert blocks
    return blocks


@pytest.mark.process
def test_a_server_with_tls_and_a_token_is_started_and_asked(tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        answers = [reader.run(block) for block in blocks_of("## TLS", tmp_path)]
        answers += [reader.run(block) for block in blocks_of("## Tokens", tmp_path)]
        replaced = json.loads((tmp_path / "etl.json").read_text())["token"]
        ask = f"while FRAZIL_TOKEN={replaced} frazil ls; do sleep 0.2; done"
        refused = reader.run(Block("sh", ask, 0))
    assert '"defaults"' in answers[1]
    assert "token" in refused


@pytest.mark.process
def test_a_backup_is_repeated_and_restored(tmp_path: Path) -> None:
    place, papers = tmp_path / "catalog", tmp_path / "papers"
    papers.mkdir()
    with running_server(place) as server, Client(server.url) as client, Reader(place) as reader:
        client.create_namespace("shop")
        client.create_table("shop.orders", SCHEMA, partition_spec=BY_DAY)
        for day in ("2026-05-01", "2026-05-02"):
            orders = client.load_table("shop.orders")
            orders.append_files([declared(orders, day, day)])
            for block in blocks_of("## Back up", papers):
                reader.run(block)
        saved = client.load_table("shop.orders").metadata
        client.append_files("shop.orders", [declared(orders, "later", "2026-05-03")])
        client.create_namespace("later")
    assert {path.name for path in (place / "backup").iterdir()} == {"frazil.db", "warehouse"}

    # The database is damaged, with leftovers of its log, and the warehouse is gone.
    (place / "frazil.db").write_bytes(b"damaged")
    (place / "frazil.db-wal").write_bytes(b"leftover")
    shutil.rmtree(place / "warehouse")
    with Reader(place) as reader:
        for block in blocks_of("### Restore", papers):
            reader.run(block)
    with running_server(place) as server, Client(server.url) as client:
        assert client.load_table("shop.orders").metadata == saved
        assert len(client.load_table("shop.orders").plan().files) == 2
        assert client.list_namespaces() == [("shop",)]
        client.append_files("shop.orders", [declared(orders, "again", "2026-05-03")])
        assert len(client.load_table("shop.orders").plan().files) == 3


@pytest.mark.process
def test_a_table_from_the_future_is_put_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, _ = blocks_of("## When a clock is wrong", tmp_path)
    with running_server(tmp_path) as server, Client(server.url) as client:
        monkeypatch.setenv("FRAZIL_URI", server.url)
        put_right(client, program, monkeypatch)


def put_right(client: Client, program: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create_namespace("shop")
    client.create_table("shop.orders", "id long")
    client.append("shop.orders", [{"id": 1}])
    right_s = client.load_table("shop.orders").metadata["last-updated-ms"] / 1000
    for row in (2, 3):
        time.sleep(0.002)
        client.append("shop.orders", [{"id": row}])
    files = client.load_table("shop.orders").plan().tasks
    with monkeypatch.context() as clock:
        clock.setattr(time, "time", lambda: right_s)
        exec(program.text, {})
    table = client.load_table("shop.orders")
    assert len(table.snapshots) == 2
    assert {task.data_file.file_path for task in table.plan().tasks} == {
        task.data_file.file_path for task in files
    }
    assert sorted(client.scan("shop.orders").to_arrow()["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.process
def test_a_table_that_cannot_be_put_right_is_not_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, _ = blocks_of("## When a clock is wrong", tmp_path)
    with running_server(tmp_path) as server, Client(server.url) as client:
        monkeypatch.setenv("FRAZIL_URI", server.url)
        before_s = time.time() - 1
        client.create_namespace("shop")
        client.create_table("shop.orders", "id long")

        def outcome(at_s: float) -> str:
            at = client.load_table("shop.orders").metadata_location
            with monkeypatch.context() as clock:
                clock.setattr(time, "time", lambda: at_s)
                exec(program.text, {})
            assert client.load_table("shop.orders").metadata_location == at
            return capsys.readouterr().out

        created_s = client.load_table("shop.orders").metadata["last-updated-ms"] / 1000
        assert "has no snapshot from the future" in outcome(before_s)
        time.sleep(0.002)
        client.append("shop.orders", [{"id": 1}, {"id": 2}])
        assert "has no snapshot from the future" in outcome(time.time())
        assert "has no metadata from before the jump" in outcome(before_s)
        client.delete("shop.orders", "id = 1")
        assert "did more than append" in outcome(created_s)


@pytest.mark.process
def test_the_first_rows_of_a_table_may_be_from_the_future(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, _ = blocks_of("## When a clock is wrong", tmp_path)
    with running_server(tmp_path) as server, Client(server.url) as client:
        monkeypatch.setenv("FRAZIL_URI", server.url)
        client.create_namespace("shop")
        client.create_table("shop.orders", "id long")
        created_s = client.load_table("shop.orders").metadata["last-updated-ms"] / 1000
        time.sleep(0.002)
        client.append("shop.orders", [{"id": 1}])
        with monkeypatch.context() as clock:
            clock.setattr(time, "time", lambda: created_s)
            exec(program.text, {})
        assert client.scan("shop.orders").to_arrow()["id"].to_pylist() == [1]
        assert len(client.load_table("shop.orders").metadata["metadata-log"]) == 1


def test_rows_from_the_future_are_dated_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, program = blocks_of("## When a clock is wrong", tmp_path)
    with closing(connect(f"sqlite:///{tmp_path}/frazil.db")) as database:
        database.migrate()
        with closing(sqlite3.connect(tmp_path / "frazil.db", isolation_level=None)) as connection:
            later_ms = int((time.time() + 365 * 24 * 3600) * 1000)
            connection.execute("INSERT INTO commits VALUES ('a', 'committed', ?)", (later_ms,))
        assert database.clock_skew_ms(int(time.time() * 1000)) > 0
        monkeypatch.chdir(tmp_path)
        exec(program.text, {})
        assert database.clock_skew_ms(int(time.time() * 1000)) == 0

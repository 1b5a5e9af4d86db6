"""Tokens of a running server: read-only tokens, and a tokens file that changes."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from frazil import Client
from frazil.wire.errors import Forbidden
from tests.client.conftest import SCHEMA
from tests.support.patience import HANG_S, wait_until
from tests.support.server import COMMAND, RunningServer, clean_environment, running_server

pytestmark = pytest.mark.process

TABLES = "/v1/namespaces/n/tables"


def entry(name: str, suffix: str = "") -> str:
    """Return the entry of a token that is the name itself."""
    return f"{name}:{hashlib.sha256(name.encode()).hexdigest()}{suffix}\n"


class Guarded:
    def __init__(self, server: RunningServer, tokens_path: Path) -> None:
        self.server = server
        self._tokens_path = tokens_path

    def write(self, *entries: str) -> None:
        self._tokens_path.write_text("# users\n" + "".join(entries))

    def ask(
        self, token: str, method: str, path: str, body: Any = None, key: str | None = None
    ) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        url = f"{self.server.url}{path}"
        return requests.request(method, url, json=body, headers=headers, timeout=HANG_S)

    def status(self, token: str) -> int:
        return self.ask(token, "GET", "/v1/namespaces").status_code

    def may_change(self, token: str) -> bool:
        body = {"updates": {"k": "v"}}
        status = self.ask(token, "POST", "/v1/namespaces/n/properties", body).status_code
        assert status in (200, 401, 403)
        return status == 200


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tokens")
    path = folder / "tokens"
    path.write_text(entry("etl") + entry("bi", ":read"))
    with running_server(folder, "--tokens-file", str(path)) as server:
        with Client(server.url, token="etl") as client:
            client.create_namespace("n")
            client.create_table("n.t", SCHEMA)
        yield Guarded(server, path)


@pytest.fixture
def guarded(started: Guarded) -> Guarded:
    """Put the two tokens back that the server began with."""
    started.write(entry("etl"), entry("bi", ":read"))
    wait_until(
        lambda: started.may_change("etl") and started.status("bi") == 200, "the tokens are not back"
    )
    wait_until(lambda: not started.may_change("bi"), "the token is not read-only again")
    return started


def test_a_read_only_token_reads_and_plans(guarded: Guarded) -> None:
    with Client(guarded.server.url, token="bi") as client:
        table = client.load_table("n.t")
        assert table.plan().files == ()
        assert client.list_tables("n")
        with pytest.raises(Forbidden, match="the token 'bi' is read-only"):
            client.create_namespace("other")
        with pytest.raises(Forbidden, match="does not end with `:read`"):
            client.drop_table("n.t")
    assert guarded.ask("bi", "GET", "/metrics").status_code == 200


def test_403_is_not_stored_under_a_key(guarded: Guarded) -> None:
    key, body = str(uuid.uuid4()), {"updates": {"by": "bi"}}
    path = "/v1/namespaces/n/properties"
    assert guarded.ask("bi", "POST", path, body, key).status_code == 403
    assert guarded.ask("bi", "POST", path, body, key).status_code == 403
    guarded.write(entry("etl"), entry("bi"))
    wait_until(lambda: guarded.may_change("bi"), "the token is still read-only")
    assert guarded.ask("bi", "POST", path, body, key).status_code == 200


def test_a_finished_commit_is_answered_although_its_token_became_read_only(
    guarded: Guarded,
) -> None:
    """Spark deletes its data files after a 403, also those of a commit whose answer was lost."""
    key = str(uuid.uuid4())
    body = {"updates": [{"action": "set-properties", "updates": {"a": "1"}}], "requirements": []}
    first = guarded.ask("etl", "POST", f"{TABLES}/t", body, key)
    assert first.status_code == 200
    guarded.write(entry("etl", ":read"), entry("bi", ":read"))
    wait_until(lambda: not guarded.may_change("etl"), "the token is not read-only")
    again = guarded.ask("etl", "POST", f"{TABLES}/t", body, key)
    assert (again.status_code, again.json()["metadata"]) == (200, first.json()["metadata"])
    for other_key in (str(uuid.uuid4()), None):
        assert guarded.ask("etl", "POST", f"{TABLES}/t", body, other_key).status_code == 403


def test_a_token_is_revoked_without_a_restart(guarded: Guarded) -> None:
    assert guarded.status("etl") == 200
    guarded.write(entry("bi", ":read"), entry("new"))
    wait_until(lambda: guarded.status("etl") == 401, "the token is not revoked")
    assert [guarded.status(name) for name in ("bi", "new")] == [200, 200]
    guarded.write()
    wait_until(lambda: guarded.status("bi") == 401, "the last token is not revoked")
    assert requests.get(f"{guarded.server.url}{TABLES}", timeout=HANG_S).status_code == 401


def test_a_broken_file_keeps_the_old_tokens(guarded: Guarded) -> None:
    def errors() -> int:
        return guarded.server.log.count("tokens_file not reloaded, the old one stays in use")

    before = errors()
    secret = "a-token-instead-of-its-digest"
    guarded.write(entry("bi", ":read"), f"etl:{secret}\n")
    wait_until(lambda: errors() == before + 1, "the broken file is not logged")
    assert guarded.may_change("etl")
    assert secret not in guarded.server.log
    guarded._tokens_path.unlink()
    wait_until(lambda: errors() == before + 2, "the missing file is not logged")
    assert guarded.may_change("etl")


def test_sighup_reads_the_file_again(guarded: Guarded) -> None:
    reloads = guarded.server.log.count("tokens_file reloaded")
    guarded.server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: guarded.server.log.count("tokens_file reloaded") == reloads + 1, "no reload")
    assert guarded.may_change("etl")


@contextmanager
def sighup_of_children(is_ignored: bool) -> Iterator[None]:
    """Choose what a child process begins with: `nohup` ignores SIGHUP, also for this test run."""
    handler = signal.SIG_IGN if is_ignored else (lambda number, frame: None)
    previous = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_sighup_stops_a_server_that_has_nothing_to_reload(tmp_path: Path) -> None:
    with sighup_of_children(is_ignored=False), running_server(tmp_path) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.process.wait(HANG_S) == 0


def test_a_server_under_nohup_ignores_sighup(tmp_path: Path) -> None:
    with sighup_of_children(is_ignored=True), running_server(tmp_path) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
        assert int(ignored.split()[1], 16) & 1 << signal.SIGHUP - 1


def test_the_ready_message_names_the_public_url_and_the_tokens(tmp_path: Path) -> None:
    url = "https://catalog.example.com"
    flags = ("--public-url", url, "--output", "json", "--port", "0")
    env = {"FRAZIL_TOKENS": entry("bi", ":read").strip()}
    process = subprocess.Popen(
        [*COMMAND, "serve", *flags],
        cwd=tmp_path,
        env=clean_environment(env),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 0
    process.stdout.close()
    assert said["url"] == url
    assert said["listening"].startswith("http://127.0.0.1:")
    assert f'uri="{url}"' in said["snippets"]["PyIceberg"]

"""`frazil serve` in its own process: how it starts, answers, refuses to start and stops."""

from __future__ import annotations

import hashlib
import json
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from frazil.db.connect import connect
from frazil.server.listen import StartRefused
from frazil.server.uvicorn_server import serve
from frazil.settings import Settings, SettingsError
from tests.store.faulty_proxy import faulty_proxy
from tests.support.patience import HANG_S
from tests.support.s3 import S3Server
from tests.support.server import clean_environment


@dataclass
class Running:
    process: subprocess.Popen[str]
    announced: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.announced["url"])

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Stop the server and return its exit code and its stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, errors


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "frazil", "serve", "--output", "json", *arguments]


@contextmanager
def serving(cwd: Path, *arguments: str, **environ: str) -> Iterator[Running]:
    process = subprocess.Popen(
        command("--port", "0", *arguments),
        cwd=cwd,
        env=clean_environment(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"the server did not start: {process.communicate()[1]}")
        yield Running(process, json.loads(line))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refused(cwd: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    """Return the exit code and the message of a server that must not start."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=clean_environment(environ),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.stdout == ""
    # Lines of the log may come before the error.
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    return done.returncode, error["message"]


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def curl(pasted: str) -> tuple[int, dict[str, str], bytes]:
    """Send what a shell and curl would send for this line. This machine may not have curl."""
    program, *arguments = shlex.split(pasted)
    assert program == "curl"
    headers = {}
    while len(arguments) > 1:
        option = arguments.pop(0)
        if option == "-H":
            name, _, value = arguments.pop(0).partition(": ")
            headers[name] = value
        else:
            assert option == "-s"
    return get(arguments[0], **headers)


@pytest.mark.process
def test_it_starts_with_nothing_but_a_folder(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.announced["warehouse"] == f"file://{tmp_path}/warehouse"
        assert server.announced["database"] == f"sqlite:///{tmp_path}/frazil.db"
        assert server.announced["authentication"] == "none"
        assert set(server.announced["snippets"]) == {"curl", "PyIceberg", "DuckDB shell", "Spark"}
        assert all(server.url in text for text in server.announced["snippets"].values())
        assert (tmp_path / "frazil.db").is_file()
        assert list((tmp_path / "warehouse").iterdir()) == []
        assert get(f"{server.url}/healthz")[0] == 200
        assert get(f"{server.url}/readyz")[0] == 200
        status, headers, body = get(f"{server.url}/v1/config?warehouse=any")
        assert (status, "endpoints" in json.loads(body)) == (200, True)
        request_id = next(v for k, v in headers.items() if k.lower() == "x-request-id")
        code, log = server.stop()
    assert code == 0
    (line,) = [line for line in log.splitlines() if request_id in line]
    assert "frazil.access" in line
    assert "status=200" in line


@pytest.mark.process
def test_the_curl_snippet_works_as_pasted(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert curl(server.announced["snippets"]["curl"])[0] == 200
        assert server.stop(signal.SIGINT)[0] == 0


@pytest.mark.process
def test_text_output_is_for_people(tmp_path: Path) -> None:
    arguments = [a for a in command("--port", "0") if a not in ("--output", "json")]
    process = subprocess.Popen(
        arguments,
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "SIGTERM" not in said and (line := process.stdout.readline()):
            said += line
        url = said.splitlines()[0].removeprefix("Frazil is ready at ")
        assert get(f"{url}/healthz")[0] == 200
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert f'uri="{url}"' in said
    assert "ATTACH '' AS frazil" in said


@pytest.mark.process
def test_a_second_process_on_the_same_file_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        code, message = refused(tmp_path, "--port", "0")
        assert code == 1
        assert "already in use" in message
        assert str(server.process.pid) in message
        assert get(f"{server.url}/readyz")[0] == 200
        with serving(tmp_path, "--database", "sqlite:///other.db") as beside:
            assert get(f"{beside.url}/readyz")[0] == 200
    with serving(tmp_path) as again:
        assert get(f"{again.url}/readyz")[0] == 200


@pytest.mark.process
def test_a_new_catalog_is_reported(tmp_path: Path) -> None:
    new, unknown = "created a new, empty catalog in the database", "has tables that the new catalog"
    with serving(tmp_path) as server:
        assert server.announced["database"] == f"sqlite:///{tmp_path}/frazil.db"
        log = server.stop()[1]
    assert f"{new} sqlite:///{tmp_path}/frazil.db" in log
    assert unknown not in log
    with serving(tmp_path) as server:
        assert new not in server.stop()[1]
    table = tmp_path / "warehouse" / "ns" / "t" / "metadata"
    table.mkdir(parents=True)
    (table / "00000-x.metadata.json").write_text("{}")
    with serving(tmp_path, "--database", "sqlite:///other.db") as server:
        log = server.stop()[1]
    assert f"{new} sqlite:///{tmp_path}/other.db" in log
    assert f"the warehouse file://{tmp_path}/warehouse {unknown}" in log


@pytest.mark.process
def test_a_database_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """Its disk may not be mounted, and an empty catalog would look like lost data."""
    flags = ("--database", f"sqlite:///{tmp_path}/mnt/frazil.db")
    code, message = refused(tmp_path, "--port", "0", *flags)
    assert code == 1
    assert f"the folder {tmp_path}/mnt does not exist; create it, mount its disk" in message
    assert not (tmp_path / "mnt").exists()


@pytest.mark.process
def test_stopping_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path, "--shutdown-timeout-s", "7") as server:
        _, log = server.stop()
    *_, stopping, stopped = log.splitlines()
    assert stopping.endswith("frazil.server stopping: running requests have 7 s to finish")
    assert stopped.endswith("frazil.server stopped; the database is closed")


@pytest.mark.process
def test_a_killed_server_leaves_no_lock(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.process.kill()
        server.process.wait()
    with serving(tmp_path) as again:
        assert get(f"{again.url}/readyz")[0] == 200


@pytest.mark.process
def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, message = refused(tmp_path, "--port", port)
    assert code == 1
    assert f"port {port}" in message
    assert "--port" in message


@pytest.mark.process
def test_beyond_loopback_only_with_tokens_or_insecure(tmp_path: Path) -> None:
    code, message = refused(tmp_path, "--host", "0.0.0.0", "--port", "0")
    assert code == 2
    assert "FRAZIL_TOKENS" in message
    assert "--insecure" in message
    assert list(tmp_path.iterdir()) == []
    with serving(tmp_path, "--host", "0.0.0.0", "--insecure") as server:
        assert get(f"{server.url}/v1/config")[0] == 200


@pytest.mark.process
def test_only_a_known_token_is_let_in(tmp_path: Path) -> None:
    entry = f"etl:{hashlib.sha256(b'open sesame').hexdigest()}"
    with serving(tmp_path, "--host", "0.0.0.0", FRAZIL_TOKENS=entry) as server:
        assert server.announced["authentication"] == "token"
        config = f"{server.url}/v1/config"
        assert get(f"{server.url}/healthz")[0] == 200
        assert get(config)[0] == 401
        assert get(config, Authorization="Bearer guess")[0] == 401
        assert get(config, Authorization="Bearer open sesame")[0] == 200
        pasted = server.announced["snippets"]["curl"]
        assert curl(pasted.replace("$FRAZIL_TOKEN", "open sesame"))[0] == 200
        _, log = server.stop()
    assert "principal=etl" in log
    assert "open sesame" not in log


@pytest.mark.process
def test_settings_reach_the_server(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('log_format = "json"\nmax_request_bytes = 2048\n')
    with serving(tmp_path, "--config", "f.toml", "--idempotency-lifetime-s", "90") as server:
        config = json.loads(get(f"{server.url}/v1/config")[2])
        assert config["idempotency-key-lifetime"] == "PT90S"
        body = json.dumps({"namespace": ["n" * 4096]}).encode()
        request = urllib.request.Request(
            f"{server.url}/v1/namespaces", body, {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=HANG_S)
        assert caught.value.code == 413
        _, log = server.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    statuses = [line["status"] for line in lines if line["logger"] == "frazil.access"]
    assert statuses == [200, 413]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"warehouse": "ftp://host/x"}, "ftp"),
        ({"warehouse": "/proc/nowhere"}, "/proc/nowhere"),
        ({"database": "mysql://db/x"}, "mysql"),
        ({"database": "sqlite:////proc/nowhere/frazil.db"}, "/proc/nowhere/frazil.db"),
        ({"allow_location": ("gopher://x",)}, "gopher"),
        ({"s3_endpoint": "nowhere"}, "FRAZIL_S3_ENDPOINT"),
        ({"tokens_file": "none"}, "tokens_file none cannot be read"),
        ({"tokens_file": "/dev/null"}, "tokens_file /dev/null has no entry"),
        ({"tls_cert": "none", "tls_key": "none"}, "tls_cert none cannot be read"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((StartRefused, SettingsError)) as caught:
        serve(Settings(port=0, **wrong), pytest.fail)
    assert message in str(caught.value)
    # The failed start closed the database again: it can be opened.
    with closing(connect("sqlite:///frazil.db")) as database:
        database.migrate()


@pytest.mark.process
def test_a_host_that_is_no_address_is_refused(tmp_path: Path) -> None:
    code, message = refused(tmp_path, "--port", "0", "--host", "no..name")
    assert code == 2
    assert "is not an address of this machine" in message


@pytest.mark.process
def test_sigterm_finishes_what_is_in_flight(tmp_path: Path) -> None:
    """A request whose body is still arriving when the signal comes still gets its answer."""
    with serving(tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({"namespace": ["late"], "properties": {}}).encode()
        head = (
            f"POST /v1/namespaces HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
            connection.sendall(head + body[:10])
            # Once the server has answered a later request, it has read this head.
            assert get(f"{server.url}/healthz")[0] == 200
            server.process.send_signal(signal.SIGTERM)
            # From now on new connections fail. The kernel may refuse or reset them.
            with pytest.raises(OSError):
                while True:
                    time.sleep(0.01)
                    socket.create_connection((host, int(port)), timeout=1).close()
            connection.sendall(body[10:])
            answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"late"' in answer
        server.process.communicate(timeout=HANG_S)
        assert server.process.returncode == 0
    with serving(tmp_path) as again:
        assert b"late" in get(f"{again.url}/v1/namespaces")[2]


def test_an_s3_warehouse_is_proven_and_told_to_clients(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    warehouse = f"{s3_bucket}/wh"
    with serving(tmp_path, "--warehouse", warehouse, **s3_server.environ()) as server:
        assert server.announced["warehouse"] == warehouse
        assert get(f"{server.url}/readyz")[0] == 200
        config = json.loads(get(f"{server.url}/v1/config")[2])
        assert config["defaults"]["s3.endpoint"] == s3_server.endpoint
        assert config["defaults"]["s3.region"] == "us-east-1"
        assert config["defaults"]["s3.path-style-access"] == "true"
        told = json.dumps([config, server.announced])
    assert s3_server.environ()["AWS_SECRET_ACCESS_KEY"] not in told
    assert not (tmp_path / "warehouse").exists()


def test_a_store_without_put_if_absent_is_refused(
    tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    with faulty_proxy(s3_server.endpoint) as proxy:
        proxy.strip_conditions = True
        environ = s3_server.environ() | {"FRAZIL_S3_ENDPOINT": proxy.endpoint}
        code, message = refused(tmp_path, "--port", "0", "--warehouse", s3_bucket, **environ)
    assert code == 1
    assert "no working put-if-absent" in message


def test_two_servers_share_a_postgresql_database(tmp_path: Path, postgres_database: str) -> None:
    flags = ("--database", postgres_database)
    with serving(tmp_path, *flags) as one, serving(tmp_path, *flags) as other:
        body = json.dumps({"namespace": ["shared"]}).encode()
        request = urllib.request.Request(
            f"{one.url}/v1/namespaces", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=HANG_S).close()
        assert get(f"{other.url}/v1/namespaces/shared")[0] == 200
        assert one.stop()[0] == 0
        assert other.stop()[0] == 0

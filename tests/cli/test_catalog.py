"""How CLI commands choose their catalog, and their exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pyiceberg.catalog
import pytest
from typer.testing import CliRunner, Result

import frazil.pyiceberg
from frazil import Client, DataFile
from frazil.cli.app import app
from tests.cli.shop import SCHEMA, Shop
from tests.support.patience import HANG_S, wait_until
from tests.support.proxy import DropAnswer, DropRequest, HoldAnswer, Respond, running_proxy
from tests.support.readme import free_port
from tests.support.s3 import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server
from tests.support.server import ServerFactory


def test_the_catalog_comes_from_the_configuration(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    file = tmp_path / ".pyiceberg.yaml"
    file.write_text(f"catalog:\n  default:\n    uri: {shop.server.url}\n  other:\n    uri: gone\n")
    assert CliRunner().invoke(app, ["show", shop.name]).exit_code == 0
    wrong = CliRunner().invoke(app, ["show", shop.name, "--catalog", "other"])
    assert wrong.exit_code == 2
    assert "'gone' must begin with http" in wrong.stderr
    unknown = CliRunner().invoke(app, ["show", shop.name, "--catalog", "third", "-o", "json"])
    assert unknown.exit_code == 2
    assert "known are default, other" in json.loads(unknown.stderr)["error"]["message"]
    environ = {"PYICEBERG_CATALOG__THIRD__URI": shop.server.url}
    done = CliRunner().invoke(app, ["show", shop.name, "--catalog", "third"], env=environ)
    assert done.exit_code == 0


@pytest.fixture
def closed(server: ServerFactory) -> tuple[str, str]:
    """Start a server that needs a token; return its address and the token."""
    made = json.loads(CliRunner().invoke(app, ["token", "new", "etl", "-o", "json"]).stdout)
    return server(env={"FRAZIL_TOKENS": made["entry"]}).url, made["token"]


def test_all_clients_read_the_same_variables(
    closed: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uri, token = closed
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FRAZIL_URI", uri)
    monkeypatch.setenv("FRAZIL_TOKEN", token)
    with Client() as client:
        client.create_namespace("shop")
        table = client.create_table("shop.orders", SCHEMA)
    assert token not in repr(table)
    assert CliRunner().invoke(app, ["ls"]).stdout == "shop\n"
    implementation = {"py-catalog-impl": "frazil.pyiceberg.FrazilCatalog"}
    for catalog in (
        frazil.pyiceberg.load_catalog(),
        frazil.pyiceberg.load_catalog("any"),
        pyiceberg.catalog.load_catalog("any", **implementation),
        frazil.pyiceberg.FrazilCatalog("any", uri=uri),
    ):
        assert isinstance(catalog, frazil.pyiceberg.FrazilCatalog)
        assert catalog.list_namespaces() == [("shop",)]
    shown = CliRunner().invoke(app, ["config", "show", "-o", "json"]).stdout
    rows = {row["env"]: row for row in json.loads(shown)["client"]}
    assert rows["FRAZIL_URI"]["value"] == uri
    assert rows["FRAZIL_TOKEN"]["value"] == "***"
    assert rows["FRAZIL_TOKEN"]["source"] == "environment FRAZIL_TOKEN"
    assert token not in shown
    monkeypatch.setenv("FRAZIL_URI", "http://127.0.0.1:9")
    refused = CliRunner().invoke(app, ["ls", "--uri", uri, "-o", "json"])
    assert refused.exit_code == 1
    assert "FRAZIL_TOKEN was not used" in json.loads(refused.stderr)["error"]["message"]
    for failing in (
        lambda: Client(uri).list_namespaces(),
        lambda: frazil.pyiceberg.FrazilCatalog("any", uri=uri),
    ):
        with pytest.raises(Exception, match=r"(?i)unauthori|token"):
            failing()


def test_a_configured_token_is_sent_to_its_own_server_alone(closed: tuple[str, str]) -> None:
    uri, token = closed
    environ = {
        "PYICEBERG_CATALOG__DEFAULT__URI": uri,
        "PYICEBERG_CATALOG__DEFAULT__TOKEN": token,
    }
    for arguments, code in (
        (["ls"], 0),
        (["ls", "--uri", uri], 1),
        (["ls", "--uri", uri, "--token", token], 0),
        (["ls", "--uri", uri, "--catalog", "default"], 0),
    ):
        done = CliRunner().invoke(app, arguments, env=environ)
        assert done.exit_code == code, (arguments, done.output)


def test_an_outcome_that_nobody_knows_has_its_exit_code(shop: Shop) -> None:
    patience = {"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"}
    shop.table.set_properties(patience)
    path = shop.write("a.parquet", [1])
    with running_proxy(shop.server.url, [DropAnswer(), *[DropRequest()] * 1_000]) as proxy:
        arguments = ["commit", shop.name, "--add", path, "--uri", proxy.url, "-o", "json"]
        done = CliRunner().invoke(app, [*arguments, "--wait", "0.1"])
    assert (done.exit_code, done.stdout) == (4, "")
    assert json.loads(done.stderr)["error"]["type"] == "CommitStateUnknownException"
    # Only the answer was lost: the commit itself succeeded.
    assert shop.files() == ["a.parquet"]


def test_an_interrupted_commit_is_an_unknown_outcome(shop: Shop) -> None:
    path = shop.write("a.parquet", [1])
    with running_proxy(shop.server.url, [HoldAnswer()]) as proxy:
        arguments = ("commit", shop.name, "--add", path, "--uri", proxy.url)
        process = subprocess.Popen(
            [sys.executable, "-m", "frazil", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # If the test run ignores SIGINT, as a background job does, the child would inherit
            # that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        wait_until(
            lambda: process.poll() is not None or any(one.statuses for one in proxy.changes),
            "the commit was never sent",
        )
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, said) == (4, "")
    assert "its outcome is unknown" in err
    assert shop.files() == ["a.parquet"]


def test_long_work_shows_its_progress_on_a_terminal_alone(shop: Shop) -> None:
    paths = [shop.write(f"{number}.parquet", [number]) for number in range(3)]
    command = [sys.executable, "-m", "frazil", "commit", shop.name, "--uri", shop.server.url]
    terminal, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [*command, "--add", *paths[:2]],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            timeout=HANG_S,
        )
        os.close(theirs)
        shown = os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
    assert done.returncode == 0
    assert b"reading footers" not in done.stdout
    assert "reading footers" in shown
    quiet = shop.run("commit", shop.name, "--add", paths[2])
    assert (quiet.exit_code, quiet.stderr) == (0, "")


def test_a_server_that_is_not_there_is_one_message() -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    done = CliRunner().invoke(app, ["ls", "--uri", uri, "--wait", "0"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("frazil: ")
    assert uri in done.stderr
    as_json = CliRunner().invoke(app, ["ls", "--uri", uri, "--wait", "0.1", "-o", "json"])
    assert "connection refused" in json.loads(as_json.stderr)["error"]["message"]


def test_no_wait_is_no_wait_for_a_server_that_asks_to_wait_either(shop: Shop) -> None:
    with running_proxy(shop.server.url, [Respond(429, 3)] * 9) as proxy:
        arguments = ["ns", "create", "other", "--uri", proxy.url, "--wait", "0"]
        done = CliRunner().invoke(app, arguments)
        assert len(proxy.changes) == 1
    assert (done.exit_code, done.stdout) == (1, "")


def test_a_missing_metadata_file_is_named(shop: Shop) -> None:
    location = shop.table.metadata_location
    assert location is not None
    Path(location.removeprefix("file://")).unlink()
    done = shop.run("show", shop.name)
    assert done.exit_code == 1
    assert done.stderr == f"frazil: Failed to open input stream for file: {location}\n"


def test_the_source_of_an_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("FRAZIL_OUTAGE_TIMEOUT_S", "0")
    monkeypatch.setenv("FRAZIL_URI", gone)
    assert "refused (the address of environment FRAZIL_URI)\n" in ls().stderr
    assert ls("--uri", gone).stderr.endswith("connection refused\n")
    monkeypatch.delenv("FRAZIL_URI")
    monkeypatch.setattr("frazil.client.catalog_config.DEFAULT_URI", gone)
    assert (
        "(the default address: start `frazil serve`, pass --uri, or set FRAZIL_URI)" in ls().stderr
    )
    for wrong in (ls("--wait", "soon"), ls(FRAZIL_OUTAGE_TIMEOUT_S="soon")):
        assert wrong.exit_code == 2
        assert "it is set by --wait, FRAZIL_OUTAGE_TIMEOUT_S or the configuration" in wrong.stderr


def ls(*options: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["ls", *options], env=environ)


def test_a_table_that_is_not_there_is_one_message(shop: Shop) -> None:
    for arguments in (("show",), ("log",), ("branch",), ("diff", "main")):
        done = shop.run(arguments[0], "shop.none", *arguments[1:])
        assert (done.exit_code, done.stdout) == (1, "")
        assert "shop.none" in done.stderr
    missing = shop.run("show", f"{shop.name}@nothing")
    assert missing.exit_code == 1
    assert "nothing" in missing.stderr
    assert shop.run("show", "orders").exit_code == 2


def test_as_a_user_types_it(shop: Shop, tmp_path: Path) -> None:
    path = shop.write("a.parquet", [1])
    environ = {**os.environ, "PYICEBERG_CATALOG__DEFAULT__URI": shop.server.url}
    command = [sys.executable, "-m", "frazil"]
    for arguments in (["commit", shop.name, "--add", path], ["log", shop.name, "-o", "json"]):
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environ, capture_output=True, timeout=HANG_S
        )
        assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["snapshots"]) == 1


def test_manifests_are_read_from_s3(
    server: ServerFactory, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = server("--warehouse", f"{s3_bucket}/warehouse", env=s3_server.environ())
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with Client(started.url) as client:
        client.create_namespace("shop")
        table = client.create_table("shop.orders", SCHEMA)
        file = DataFile(
            spec_id=0,
            partition=(),
            file_path=f"{table.location}/data/a.parquet",
            file_format="parquet",
            file_size_in_bytes=10,
            record_count=1,
        )
        table.append_files([file])
    environ = {
        "PYICEBERG_CATALOG__DEFAULT__URI": started.url,
        "PYICEBERG_CATALOG__DEFAULT__S3__ACCESS_KEY_ID": ACCESS_KEY_ID,
        "PYICEBERG_CATALOG__DEFAULT__S3__SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
    }
    done = CliRunner().invoke(app, ["ls", "shop.orders", "-o", "json"], env=environ)
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["files"]
    assert found["file-path"] == file.file_path

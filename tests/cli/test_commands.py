"""The commands that need no server, each in its own process."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import frazil
from frazil.cli.app import app
from frazil.settings import Settings, Token, all_settings, all_tokens, resolve, token_name
from tests.support.patience import HANG_S
from tests.support.server import clean_environment


def run(
    *arguments: str, cwd: Path, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "frazil", *arguments],
        cwd=cwd,
        env=clean_environment(environ),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.process
def test_version(tmp_path: Path) -> None:
    done = run("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"frazil {frazil.__version__}\n")


@pytest.mark.process
def test_version_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['frazil', '--version']\n"
        "from frazil.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} & "
        "{'uvicorn', 'starlette', 'pyarrow', 'psycopg', 'obstore', 'sqlite3', 'msgspec'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.process
def test_config_show_prints_each_setting_and_its_source(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('s3_region = "eu-1"\n')
    environ = {
        "FRAZIL_HOST": "::1",
        "FRAZIL_DATABASE": "postgresql://etl:hidden@db/x",
        "FRAZIL_TOKENS": f"ops:{'a' * 64}",
        "FRAZIL_TYPO": "1",
        "FRAZIL_URI": "https://ann:hidden@catalog.example",
    }
    flags = ("--port", "0", "--config", "f.toml", "--allow-location", "a", "--allow-location", "b")
    done = run("config", "show", "-o", "json", *flags, cwd=tmp_path, environ=environ)
    answer = json.loads(done.stdout)
    rows = {row["name"]: row for row in answer["settings"]}
    assert list(rows) == [setting.name for setting in all_settings()]
    assert (rows["port"]["value"], rows["port"]["source"]) == (0, "flag --port")
    assert (rows["host"]["value"], rows["host"]["source"]) == ("::1", "environment FRAZIL_HOST")
    assert (rows["s3_region"]["value"], rows["s3_region"]["source"]) == ("eu-1", "file f.toml")
    assert (rows["insecure"]["value"], rows["insecure"]["source"]) == (False, "default")
    assert rows["allow_location"]["value"] == ["a", "b"]
    assert rows["tokens"]["value"] == {"ops": "***"}
    assert rows["database"]["value"] == "postgresql://etl:***@db/x"
    assert answer["unknown-variables"] == ["FRAZIL_TYPO"]
    assert answer["client"][0]["value"] == "https://ann:***@catalog.example"

    text = run("config", "show", *flags, cwd=tmp_path, environ=environ)
    lines = {line.split()[0]: line for line in text.stdout.splitlines() if line}
    assert set(rows) <= set(lines)
    assert lines["port"].split()[1:] == ["0", "flag", "--port"]
    assert "FRAZIL_TYPO" in text.stderr
    for output in (done.stdout, text.stdout):
        assert "hidden" not in output
        assert "a" * 64 not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "x"), "port (flag --port) must be a whole number"),
        (("--config", "none.toml"), "does not exist"),
        (("--log-format", "xml"), "one of text, json"),
    ],
)
def test_a_wrong_setting_is_a_usage_error(arguments: tuple[str, str], message: str) -> None:
    done = CliRunner().invoke(app, ["config", "show", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    done = CliRunner().invoke(app, ["config", "show", "--output", "json", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in json.loads(done.stderr)["error"]["message"]


def test_a_flag_can_take_back_what_the_environment_says() -> None:
    arguments = ["config", "show", "--no-insecure", "-o", "json"]
    done = CliRunner().invoke(app, arguments, env={"FRAZIL_INSECURE": "true"})
    rows = {row["name"]: row for row in json.loads(done.stdout)["settings"]}
    assert (rows["insecure"]["value"], rows["insecure"]["source"]) == (False, "flag --insecure")


def test_a_new_token_is_one_the_server_will_know(tmp_path: Path) -> None:
    made = json.loads(CliRunner().invoke(app, ["token", "new", "etl", "-o", "json"]).stdout)
    digest = hashlib.sha256(made["token"].encode()).hexdigest()
    assert made["entry"] == f"etl:{digest}"
    assert resolve({}, {"FRAZIL_TOKENS": made["entry"]}).settings.tokens == {"etl": Token(digest)}
    kept = tmp_path / "tokens"
    kept.write_text(f"{made['entry']}\n")
    assert all_tokens(Settings(tokens_file=str(kept))) == {"etl": Token(digest)}

    text = CliRunner().invoke(app, ["token", "new", "etl"]).stdout
    token, entry = (line.strip() for line in text.splitlines() if line.startswith("  "))
    assert entry == f"etl:{hashlib.sha256(token.encode()).hexdigest()}"
    assert token != made["token"]


def test_a_new_token_can_be_read_only() -> None:
    arguments = ["token", "new", "bi", "--read-only"]
    made = json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"]).stdout)
    digest = hashlib.sha256(made["token"].encode()).hexdigest()
    assert (made["read-only"], made["entry"]) == (True, f"bi:{digest}:read")
    tokens = resolve({}, {"FRAZIL_TOKENS": made["entry"]}).settings.tokens
    assert tokens == {"bi": Token(digest, read_only=True)}
    assert ":read\n" in CliRunner().invoke(app, arguments).stdout


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "-a", "ü", "x" * 65, "a\nb"])
def test_a_token_needs_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="is not a token name"):
        token_name(name)


def test_a_token_without_a_plain_name_is_a_usage_error() -> None:
    done = CliRunner().invoke(app, ["token", "new", "a b"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "'a b' is not a token name" in done.stderr

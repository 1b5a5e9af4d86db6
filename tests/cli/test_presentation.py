"""Help, usage errors, colors and completion."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from frazil.cli.app import app
from tests.cli.shop import FIRST, SECOND, Shop
from tests.support.patience import HANG_S

ESCAPE = re.compile(r"\x1b\[")
LONG = "List namespaces, the tables and views of one, or the live files of a table."


@pytest.mark.process
@pytest.mark.parametrize("columns", ["60", "200"])
def test_help_is_wrapped_to_the_terminal_and_never_cut(columns: str) -> None:
    command = [sys.executable, "-m", "frazil", "--help"]
    environ = {**os.environ, "COLUMNS": columns}
    shown = subprocess.run(command, env=environ, capture_output=True, text=True).stdout
    assert max(len(line) for line in shown.splitlines()) <= int(columns)
    assert LONG in " ".join(shown.split())
    assert (LONG in shown) == (columns == "200")


@pytest.mark.parametrize("group", [[], ["spark"], ["config"]])
def test_the_list_of_commands_is_not_cut(group: list[str]) -> None:
    assert not re.search(r"\w\.\.\.|…", CliRunner().invoke(app, [*group, "--help"]).stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "-o", "json"], "Missing argument"),
        (["show", "--output=json", "a.b", "--nothing"], "No such option: --nothing"),
        (["sow", "-ojson"], "Did you mean 'show'"),
        (["commit", "a.b", "--isolation", "none", "--output", "json"], "--isolation"),
        (["token", "nw", "--output", "json"], "No such command 'nw'"),
    ],
)
def test_a_usage_error_is_json_if_asked(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in json.loads(done.stderr)["error"]["message"]
    plain = [word for word in arguments if not re.search("json|-o", word)]
    assert "Usage: " in CliRunner().invoke(app, plain).stderr


def test_an_option_before_its_command_is_explained() -> None:
    done = CliRunner().invoke(app, ["--output", "text", "ls"])
    assert done.exit_code == 2
    assert "No such option: --output; options follow the command: frazil COMMAND" in done.stderr


def test_the_exit_code_of_a_command_is_the_same_with_json(shop: Shop) -> None:
    assert shop.run("show", "shop.none", "-o", "json").exit_code == 1
    assert shop.run("show", "none", "-o", "json").exit_code == 2
    assert shop.run("show", shop.name, "-o", "json").exit_code == 0


def on_a_terminal(shop: Shop, *arguments: str, **environ: str) -> str:
    """Run a command whose output is a terminal, and return what it shows."""
    terminal, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "frazil", *arguments, "--uri", shop.server.url],
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "COLUMNS": "200", **environ},
            timeout=HANG_S,
            check=True,
        )
        os.close(theirs)
        assert done.returncode == 0
        return os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)


@pytest.mark.process
@pytest.mark.parametrize(
    ("environ", "escapes", "boxes"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False, True),
        ({"TERM": "dumb"}, False, False),
    ],
    ids=["color", "no-color", "dumb"],
)
def test_colors_and_boxes(shop: Shop, environ: dict[str, str], escapes: bool, boxes: bool) -> None:
    shop.append("a.parquet", [1], FIRST)
    shop.append("b.parquet", [2], SECOND)
    shown = on_a_terminal(shop, "plan", shop.name, "--filter", "id = 1", **environ)
    assert "1 planned" in shown
    assert bool(ESCAPE.search(shown)) is escapes
    assert ("└──" in shown) is boxes


@pytest.mark.process
def test_rows_can_be_copied(shop: Shop) -> None:
    """A path stays on one line, and no line ends with spaces."""
    shop.append("a.parquet", [1], FIRST)
    shop.append("b.parquet", [2, 3], SECOND)
    shown = on_a_terminal(shop, "ls", shop.name, COLUMNS="40", TERM="dumb").splitlines()
    assert sum(line.endswith(("a.parquet", "b.parquet")) for line in shown) == 2
    for lines in (shown, shop.ok("show", shop.name).splitlines()):
        assert [line for line in lines if line != line.rstrip()] == []


def completed(folder: Path, typed: str, uri: str | None = None) -> str:
    """Type into a real Bash, press the tabulator, and return the line that Bash made of it."""
    environ = {**os.environ, "PS1": "ready>", "TERM": "dumb"}
    environ |= {} if uri is None else {"FRAZIL_URI": uri}
    start = folder / "start.sh"
    python = shlex.quote(sys.executable)
    start.write_text(
        f"frazil() {{ {python} -m frazil \"$@\"; }}\n. <(frazil completion bash)\nPS1='ready>'\n"
    )
    ours, theirs = pty.openpty()
    command = ["bash", "--noprofile", "--rcfile", str(start), "-i"]
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as bash:
        os.close(theirs)
        _read_until(ours, b"ready>")
        # Ctrl-A and Ctrl-E put the finished line between quotes, in place of running it.
        os.write(ours, f"{typed}\t\x01echo 'line:\x05:end'\r".encode())
        line = re.search(rb"\nline:(.*?):end", _read_until(ours, b":end\r\n"))
        os.write(ours, b"exit\r")
        bash.wait(HANG_S)
    os.close(ours)
    assert line is not None
    return line[1].decode()


def _read_until(terminal: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        shown += os.read(terminal, 4096)
    return shown


@pytest.fixture
def names(shop: Shop) -> str:
    """Create a namespace that contains a table and a namespace."""
    name = shop.name.replace("shop.", "mall_of_") + "_end"
    shop.client.create_namespace(name)
    shop.client.create_namespace((name, "in:ner"))
    shop.client.create_table(f"{name}.orders", "id long")
    return name


@pytest.mark.process
def test_bash_completes_after_a_url(shop: Shop, names: str, tmp_path: Path) -> None:
    """Bash itself ends a word at each colon and each equals sign."""
    (tmp_path / f"{names}.log").touch()
    url = shop.server.url
    for option in (f"--uri {url}", f"--uri={url}", f'--uri "{url}"', f"--warehouse= --uri={url}"):
        line = completed(tmp_path, f"frazil show {option} {names[:-1]}")
        assert line == f"frazil show {option} {names}.", option
    line = completed(tmp_path, f"frazil show --uri {url} {names}.o")
    assert line == f"frazil show --uri {url} {names}.orders "
    assert completed(tmp_path, f"frazil ls {names}.in", url) == f"frazil ls {names}.in:ner."
    assert completed(tmp_path, f"frazil ls {names}.in:", url) == f"frazil ls {names}.in:ner."
    assert completed(tmp_path, "frazil ls --output=j", url) == "frazil ls --output=json "
    assert completed(tmp_path, "frazil che") == "frazil cherry-pick "
    assert completed(tmp_path, f"frazil show --uri http://127.0.0.1:9 {names}").endswith(".log ")


@pytest.mark.process
def test_namespace_commands_complete_namespaces(shop: Shop, names: str, tmp_path: Path) -> None:
    for command in ("ns drop", "ns ls"):
        line = completed(tmp_path, f"frazil {command} {names[:-1]}", shop.server.url)
        assert line == f"frazil {command} {names} "
    shop.ok("ns", "show", f"{names}.")
    shop.ok("ns", "drop", f"{names}.in:ner.")


def completions(shop: Shop, words: str) -> list[str]:
    environ = {
        "_FRAZIL_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": words,
        "FRAZIL_URI": shop.server.url,
    }
    command = [sys.executable, "-m", "frazil"]
    done = subprocess.run(
        command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split("\t")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.process
def test_the_shell_completes_commands_and_tables(shop: Shop) -> None:
    assert completions(shop, "frazil che") == ["cherry-pick"]
    assert shop.name in completions(shop, "frazil show sh")
    assert completions(shop, f"frazil show {shop.name}") == [shop.name]
    shop.ok("view", "create", f"{shop.name}_seen", "SELECT 1 AS id", "--schema", "id int")
    assert completions(shop, f"frazil view drop {shop.name}_") == [f"{shop.name}_seen"]
    assert completions(shop, "frazil show --uri http://127.0.0.1:9 sh") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_for_each_shell(shell: str) -> None:
    script = CliRunner().invoke(app, ["completion", shell]).stdout
    assert "_FRAZIL_COMPLETE" in script
    document = json.loads(CliRunner().invoke(app, ["completion", shell, "-o", "json"]).stdout)
    assert document == {"shell": shell, "script": script.rstrip("\n")}

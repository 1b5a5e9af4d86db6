"""docs/cli.md lists every command and option, and its examples run in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from frazil.cli.app import app
from frazil.settings import all_settings
from scripts.java import ROOT
from tests.support.readme import Reader, read_blocks

DOCUMENT = ROOT / "docs" / "cli.md"
TEXT = DOCUMENT.read_text()
SETTINGS = {setting.flag for setting in all_settings()} | {"--config"}
OF_ALL = {"--help"}


def commands(command: Any, prefix: str = "frazil") -> dict[str, Any]:
    children = getattr(command, "commands", None)
    if not children:
        return {prefix: command}
    return {
        path: found
        for name, child in children.items()
        for path, found in commands(child, f"{prefix} {name}").items()
    }


COMMANDS = commands(get_command(app))


def flags(command: Any) -> set[str]:
    found = {
        flag
        for parameter in command.params
        if getattr(parameter, "param_type_name", "") == "option" and not parameter.hidden
        for flag in parameter.opts
        if flag.startswith("--")
    }
    return found - SETTINGS - OF_ALL


def section(title: str) -> str:
    """Return the text from a heading to the next one."""
    match = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert match is not None, f"docs/cli.md has no section '## {title}'"
    return match[1]


SHARED = set(re.findall(r"`(--[a-z-]+)", section("Which catalog")))


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_of_a_command_is_documented(name: str) -> None:
    described = set(re.findall(r"(--[a-z][a-z-]*)", section(name)))
    undocumented = flags(COMMANDS[name]) - described - SHARED
    assert undocumented == set()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_a_command_names_no_option_that_it_lacks(name: str) -> None:
    rows = [line for line in section(name).splitlines() if line.startswith("| `")]
    named = {flag for row in rows for flag in re.findall(r"(--[a-z][a-z-]*)", row.split("|")[1])}
    assert named <= flags(COMMANDS[name])


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"frazil serve"}))
def test_every_command_has_an_example(name: str) -> None:
    assert f"\n{name}" in "\n".join(block.text for block in read_blocks(DOCUMENT))


def test_every_section_about_a_command_is_about_one() -> None:
    assert set(re.findall(r"^## (frazil .+)$", TEXT, re.MULTILINE)) == set(COMMANDS)


class QuickReader(Reader):
    """Runs plain commands in this process, which takes a tenth of the time. Commands that need a
    shell still run in one, and `frazil serve` still runs in its own process."""

    def _command(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] != "frazil" or words[1] == "serve" or set(command) & set("$<>|"):
            return super()._command(command)
        done = CliRunner().invoke(app, words[1:], env=self._environment)
        assert done.exit_code == 0, f"{command}\nended with {done.exit_code}:\n{done.output}"
        return done.output


# The last commands of the page use the shared Spark session.
@pytest.mark.usefixtures("spark")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with QuickReader(tmp_path) as reader:
        said = [reader.run(block) for block in read_blocks(DOCUMENT)]
    printed = "".join(said)
    assert "(overwrite), on main" in printed
    assert "what to do" in printed
    assert "skipped by column statistics" in printed
    assert "oat milk" in printed
    assert (tmp_path / "conflict.json").exists()

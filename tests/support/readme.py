"""Runs the commands of a document, block by block and in order.

Bash runs a fence marked `sh`, this Python runs `python`, and DuckDB runs `sql`. Fences with any
other mark do not run. Each command is a process of its own, but `export NAME=value` and `cd FOLDER`
last, as in a terminal. `frazil serve` starts in the background and must be ready before the next
line. `make ...` is a dry run, because the tests themselves run inside one, and `.venv` is the
environment of the tests. A free port replaces the port 8181.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from scripts.java import ROOT
from tests.support.duck import connect
from tests.support.patience import HANG_S
from tests.support.server import clean_environment, running_server

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)")
LANGUAGES = ("sh", "python", "sql")
PORT = "8181"


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def read_blocks(document: Path) -> list[Block]:
    text = document.read_text()
    found = []
    for match in FENCE.finditer(text):
        if match[1] in LANGUAGES:
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(match[1], match[2], line))
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Reader:
    """Runs the blocks of a document in its own folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = str(free_port())
        self._stack = ExitStack()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        # Each command has its own shell, so a variable that the document exports is set here.
        address = f"http://127.0.0.1:{self._port}"
        self._environment = clean_environment({"PATH": path, "FRAZIL_URI": address})

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def run(self, block: Block) -> str:
        """Run one block and return its output; fail if a command fails."""
        text = block.text.replace(PORT, self._port)
        match block.language:
            case "sh":
                return "".join(self._command(command) for command in _commands(text))
            case "python":
                return self._output([sys.executable, "-c", text])
            case _:
                return self._sql(text)

    def _command(self, command: str) -> str:
        if HERE_DOCUMENT.search(command):
            return self._bash(command)
        words = shlex.split(command, comments=True)
        if words[:1] == ["export"]:
            name = words[1].partition("=")[0]
            self._environment[name] = self._bash(f'{command}; printf %s "${name}"')
            return ""
        if words[:1] == ["cd"]:
            self._directory /= words[1]
            return ""
        if words == [".", ".venv/bin/activate"]:
            assert (Path(sys.prefix) / "bin" / "activate").is_file()
            return ""
        if words[:2] == ["frazil", "serve"] or words[:2] == ["make", "serve"]:
            flags = [word for word in words[2:] if word != "&"]
            if "--port" not in flags:
                flags += ["--port", self._port]
            with_tls = "--tls-cert" in flags
            ca_file = self._directory / flags[flags.index("--tls-cert") + 1] if with_tls else None
            server = running_server(self._directory, *flags, ca_file=ca_file)
            self._stack.enter_context(server)
            return ""
        if words[:1] == ["make"]:
            return self._output(["make", "--dry-run", *words[1:]], ROOT)
        return self._bash(command)

    def _bash(self, command: str) -> str:
        return self._output(["bash", "-euo", "pipefail", "-c", command])

    def _output(self, command: list[str], directory: Path | None = None) -> str:
        finished = subprocess.run(
            command,
            cwd=directory or self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        shown = f"{command[-1]}\nended with {finished.returncode}:\n{finished.stdout}"
        assert finished.returncode == 0, shown
        return finished.stdout

    def _sql(self, text: str) -> str:
        # The extensions come from wheels, because installing them would use the network.
        statements = [part.strip() for part in text.split(";")]
        wanted = [part for part in statements if part and not re.match(r"(INSTALL|LOAD)\b", part)]
        with connect() as connection:
            return "".join(f"{connection.execute(part).fetchall()}\n" for part in wanted)


def _commands(text: str) -> Iterator[str]:
    """Join lines that end in a backslash or an open quote into whole commands."""
    pending = ""
    for line in text.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        if pending.endswith("\\") or _is_open(pending):
            continue
        if pending.strip() and not pending.lstrip().startswith("#"):
            yield pending
        pending = ""
    assert not pending, f"a command without an end: {pending}"


def _is_open(command: str) -> bool:
    if marker := HERE_DOCUMENT.search(command):
        return command.rpartition("\n")[2].strip() != marker[1]
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False

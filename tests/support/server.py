"""Runs a real `frazil serve` as a child process."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.patience import HANG_S

ADDRESS = re.compile(r"https?://[0-9A-Za-z_.\[\]-]+:[0-9]+")
COMMAND = (sys.executable, "-m", "frazil")


@dataclass(frozen=True)
class RunningServer:
    url: str
    process: subprocess.Popen[bytes]
    directory: Path
    """The working directory, which contains `warehouse/` and `frazil.db` by default."""
    log_path: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def stop(self) -> int:
        """Stop the server with SIGTERM, as an operator does; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            # SIGABRT makes Python's faulthandler log the stack of each thread.
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(HANG_S)
            raise AssertionError(
                f"the server did not end within {HANG_S} s of SIGTERM; its log:\n{self.log}"
            ) from None


class ServerFactory(Protocol):
    def __call__(
        self, *flags: str, env: Mapping[str, str] | None = None, directory: Path | None = None
    ) -> RunningServer: ...


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without the caller's FRAZIL_* and AWS_* variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FRAZIL_", "AWS_"))}
    return {**kept, "PYTHONFAULTHANDLER": "1", **(extra or {})}


def start_server(
    directory: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
    ca_file: Path | None = None,
) -> RunningServer:
    """Start a server on a free port in the directory; wait until `/readyz` succeeds."""
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / f"server-{time.time_ns()}.log"
    arguments = [*command, "serve", *flags]
    if "--port" not in flags:
        arguments += ["--port", "0"]
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            arguments,
            cwd=directory,
            env=clean_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        url = _wait_until_ready(process, log_path, ca_file)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return RunningServer(url, process, directory, log_path)


def _wait_until_ready(
    process: subprocess.Popen[bytes], log_path: Path, ca_file: Path | None
) -> str:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        said = log_path.read_text(errors="replace")
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}:\n{said}")
        address = ADDRESS.search(said)
        if address is not None and is_ready(address[0], ca_file):
            return address[0]
        time.sleep(0.02)
    raise AssertionError(f"the server was not ready after {HANG_S} s:\n{said}")


def is_ready(url: str, ca_file: Path | None = None) -> bool:
    """Return whether a server at the URL is ready."""
    context = None if ca_file is None else ssl.create_default_context(cafile=ca_file)
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def running_server(
    directory: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
    ca_file: Path | None = None,
) -> Iterator[RunningServer]:
    """Run a server for one block; it must end cleanly, unless the block ends it."""
    server = start_server(directory, *flags, env=env, command=command, ca_file=ca_file)
    try:
        yield server
    except BaseException:
        server.process.kill()
        server.process.wait()
        print(f"--- the server's log ({server.log_path}) ---\n{server.log}")
        raise
    ended_by_test = server.process.poll() is not None
    code = server.stop()
    assert ended_by_test or code == 0, f"the server ended with {code}:\n{server.log}"

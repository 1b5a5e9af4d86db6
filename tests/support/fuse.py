"""Kills processes with SIGKILL at a chosen operation: the n-th change of a file or of a database.

A fuse is a small file that a test and a child process share. While it is armed, the child counts
what it does: files that it links, syncs or removes, each COMMIT before and after it is sent, and
each request of a client. At the chosen number it kills itself. Children are forked from a process
that has imported everything, so that one costs a fraction of a second.
"""

from __future__ import annotations

import functools
import mmap
import multiprocessing
import os
import signal
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.support.patience import HANG_S

_STATE = struct.Struct("<qq")
"""The operation at which to kill, and the number of operations. -1: not armed, 0: only count."""
PRELOADED = [
    "tests.support.fuse",
    "frazil.cli.app",
    "frazil.cli.server.server_commands",
    "frazil.server.assembly",
    "frazil.db.postgres",
    "frazil.server.uvicorn_server",
    "frazil.maintenance.data_file_rewrite",
    "frazil.maintenance.equality_conversion",
    "frazil.client.rows.row_statements",
    "frazil.client.rows.row_upserts",
    "frazil.client.rows.table_scan",
    "tests.housekeeping.killable_jobs",
]
"""Modules that children need. One that cannot be imported is left out."""


class Fuse:
    """The test's side: arms the fuse and reads how many operations there were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_STATE.pack(-1, 0))

    def arm(self, kill_at: int = 0) -> None:
        self._write(kill_at)

    def disarm(self) -> None:
        self._write(-1)

    @property
    def count(self) -> int:
        count: int = _STATE.unpack(self.path.read_bytes())[1]
        return count

    def _write(self, kill_at: int) -> None:
        with open(self.path, "r+b") as file:
            file.write(_STATE.pack(kill_at, 0))


class _Burning:
    """The child's side."""

    def __init__(self, path: Path) -> None:
        with open(path, "r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _STATE.size)
        self._lock = threading.Lock()

    def tick(self) -> None:
        with self._lock:
            kill_at, count = _STATE.unpack(self._shared[:])
            if kill_at < 0:
                return
            self._shared[:] = _STATE.pack(kill_at, count + 1)
            if count + 1 == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def install(path: Path) -> None:
    """Count the operations of this process from now on."""
    burning = _Burning(path)
    for name in ("link", "unlink", "rmdir", "fsync"):
        setattr(os, name, _before(getattr(os, name), burning))
    _watch_sqlite(burning)
    _watch_postgres(burning)
    _watch_client(burning)


def _before(function: Callable[..., Any], burning: _Burning) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        burning.tick()
        return function(*args, **kwargs)

    return called


def _around(function: Callable[..., Any], burning: _Burning) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        burning.tick()
        answer = function(*args, **kwargs)
        burning.tick()
        return answer

    return called


def _watch_sqlite(burning: _Burning) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            run = super().execute
            return (_around(run, burning) if sql == "COMMIT" else run)(sql, *args)

    connect = sqlite3.connect
    sqlite3.connect = functools.partial(connect, factory=Connection)  # type: ignore[assignment]


def _watch_postgres(burning: _Burning) -> None:
    import psycopg

    execute = psycopg.Connection.execute

    def called(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        run = functools.partial(execute, self)
        if _commits(self, query):
            run = _around(run, burning)  # type: ignore[assignment]
        return run(query, *args, **kwargs)

    psycopg.Connection.execute = called  # type: ignore[method-assign]


def _commits(connection: Any, query: Any) -> bool:
    """Return whether the statement makes changes durable: COMMIT, or a change outside of BEGIN."""
    if query == b"COMMIT":
        return True
    words = [line.strip() for line in bytes(query).splitlines() if not line.startswith(b"--")]
    first = b" ".join(words).split(b" ", 1)[0].upper()
    is_idle = connection.info.transaction_status.name == "IDLE"
    return is_idle and first in (b"INSERT", b"UPDATE", b"DELETE", b"WITH")


def _watch_client(burning: _Burning) -> None:
    from frazil.client.send.http_transport import HttpTransport
    from frazil.datafiles.reading.file_storage import Storage

    HttpTransport.send = _around(HttpTransport.send, burning)  # type: ignore[method-assign]
    for name in ("open_output", "_delete", "delete_folder", "make_folder"):
        setattr(Storage, name, _before(getattr(Storage, name), burning))


# --- children -------------------------------------------------------------------------------------


@functools.cache
def forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def start_child(target: Callable[..., None], *args: Any, fuse: Path | None = None) -> BaseProcess:
    """Run a function in a child process. Its arguments are pickled."""
    child = forks().Process(target=_child, args=(fuse, target, args), daemon=True)
    child.start()
    return child


def _child(fuse: Path | None, target: Callable[..., None], args: tuple[Any, ...]) -> None:
    if fuse is not None:
        install(fuse)
    target(*args)


def run_child(target: Callable[..., None], *args: Any, fuse: Path | None = None) -> int:
    """Run a function in a child process until it ends; return its exit code."""
    child = start_child(target, *args, fuse=fuse)
    return wait_for(child)


def wait_for(child: BaseProcess) -> int:
    child.join(HANG_S)
    assert child.exitcode is not None, "a child process hangs"
    return child.exitcode


def serve(directory: Path, log: Path, flags: tuple[str, ...]) -> None:
    """Run `frazil serve` in this process."""
    from frazil.cli.app import app

    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(directory)
    for name in [name for name in os.environ if name.startswith(("FRAZIL_", "AWS_"))]:
        del os.environ[name]
    app(["serve", *flags])


@contextmanager
def ended(child: BaseProcess) -> Iterator[None]:
    """Kill a child at the end of the block, if it still runs."""
    try:
        yield
    finally:
        if child.is_alive():
            child.kill()
        child.join(HANG_S)

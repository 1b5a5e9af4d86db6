"""Processes under measurement: their CPU and memory, and the start of the Java server."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.jars import JARS_DIR
from scripts.java import Java

JAVA_SERVER_JAR = JARS_DIR / "iceberg-open-api-1.10.1.jar"
JAVA_SERVER_CLASS = "org.apache.iceberg.rest.RESTCatalogServer"
JAVA_HEAP = "-Xmx1g"
START_SECONDS = 60
STOP_SECONDS = 20

_CHILDREN_USER_TICKS, _CHILDREN_SYSTEM_TICKS = 13, 14
"""The indexes of cutime and cstime in /proc/PID/stat, counted after the command's name."""


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of all threads and of all children that have ended.

    The process's own time comes from its CPU clock, which counts nanoseconds. /proc/PID/stat
    rounds the same figure to hundredths of a second, but it is the only source for children.
    They matter: Hadoop's file system starts some for each file.
    """
    own = time.clock_gettime(_cpu_clock(pid))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_CHILDREN_USER_TICKS]) + int(fields[_CHILDREN_SYSTEM_TICKS])
    return own + ticks / os.sysconf("SC_CLK_TCK")


def _cpu_clock(pid: int) -> int:
    """Return what clock_getcpuclockid(3) returns on Linux: the pid's complement and the clock's
    kind."""
    return (~pid << 3) | 2


def peak_memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    raise LookupError(f"/proc/{pid}/status has no VmHWM")


@dataclass(frozen=True, slots=True)
class RunningJava:
    url: str
    pid: int


@contextmanager
def running_java_server(java: Java, folder: Path, io_impl: str | None) -> Iterator[RunningJava]:
    """Start Iceberg's reference server with a JdbcCatalog on SQLite and its tables in the
    folder."""
    folder.mkdir(parents=True)
    port = _free_port()
    environment = {
        **os.environ,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
        **({} if io_impl is None else {"CATALOG_IO__IMPL": io_impl}),
    }
    command = [str(java.executable), JAVA_HEAP, "-cp", str(JAVA_SERVER_JAR), JAVA_SERVER_CLASS]
    log_path = folder / "server.log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_answers(url, process, log_path)
        yield RunningJava(url, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_answers(url: str, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log_path.read_text(errors="replace")
            raise RuntimeError(f"the Java server ended with {process.returncode}:\n{said}")
        try:
            with urllib.request.urlopen(f"{url}/v1/config", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    said = log_path.read_text(errors="replace")
    raise RuntimeError(f"the Java server did not answer within {START_SECONDS} s:\n{said}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

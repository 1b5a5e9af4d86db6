"""Runs a real Trino with one Iceberg REST catalog, for the full test target."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trino.dbapi import connect

from scripts.jars import fetch
from scripts.java import ROOT, Java, find_system_java
from tests.support.patience import HANG_S

OLDEST_JAVA, NEWEST_JAVA = 22, 99
CATALOG = "ice"
JVM_FLAGS = (
    "-Xmx2G",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
)
SERVER = {
    "coordinator": "true",
    "node-scheduler.include-coordinator": "true",
    "query.max-memory": "512MB",
    "query.max-memory-per-node": "512MB",
    "memory.heap-headroom-per-node": "256MB",
    "node.environment": "tests",
}


def trino_java() -> Java:
    java = find_system_java(OLDEST_JAVA, NEWEST_JAVA)
    assert java is not None, f"Trino needs Java {OLDEST_JAVA} or later: install one in /usr/lib/jvm"
    return java


def unpack_trino() -> Path:
    """Unpack the server's libraries and its Iceberg plugin, once."""
    (archive,) = fetch(["trino"])
    target = ROOT / ".cache" / archive.name.removesuffix(".tar.gz")
    if target.is_dir():
        return target
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    # Unpack all of it, because jars are hard links between plugins; then remove other plugins.
    with tarfile.open(archive, "r|gz") as tar:
        tar.extractall(draft, filter="data")
    (unpacked,) = draft.iterdir()
    for plugin in (unpacked / "plugin").iterdir():
        if plugin.name != "iceberg":
            shutil.rmtree(plugin)
    unpacked.rename(target)
    shutil.rmtree(draft)
    return target


def _write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_trino(directory: Path, url: str, **catalog: str) -> Iterator[TrinoSession]:
    """Start Trino with the catalog at the URL; `catalog` adds properties, e.g. for storage."""
    home, java, port = unpack_trino(), trino_java(), _free_port()
    directory.mkdir(parents=True, exist_ok=True)
    address = f"http://127.0.0.1:{port}"
    config = directory / "etc" / "config.properties"
    settings = {
        **SERVER,
        "http-server.http.port": str(port),
        "discovery.uri": address,
        "node.id": "tests",
        "plugin.dir": str(home / "plugin"),
        "catalog.config-dir": str(directory / "etc" / "catalog"),
    }
    _write_properties(config, settings)
    rest = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": url,
    }
    _write_properties(directory / "etc" / "catalog" / f"{CATALOG}.properties", {**rest, **catalog})
    # Trino expects the Hadoop part of the plugin below the working directory.
    (directory / "plugin").symlink_to(home / "plugin")
    command = [str(java.executable), *JVM_FLAGS, f"-Dconfig={config}"]
    command += ["-cp", str(home / "lib" / "*"), "io.trino.server.TrinoServer"]
    log = directory / "trino.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        _wait_until_started(process, address, log)
        yield TrinoSession(port)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_started(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/v1/info", timeout=5) as answer:
                if not json.load(answer)["starting"]:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass  # Trino does not listen yet
        time.sleep(0.5)
    raise AssertionError(f"Trino did not start:\n{log.read_text(errors='replace')[-4000:]}")


class TrinoSession:
    def __init__(self, port: int) -> None:
        self._connection = connect(host="127.0.0.1", port=port, user="tests", catalog=CATALOG)

    def rows(self, statement: str) -> list[list[Any]]:
        cursor = self._connection.cursor()
        cursor.execute(statement)
        found: list[list[Any]] = cursor.fetchall()
        return found

    def value(self, statement: str) -> Any:
        ((value,),) = self.rows(statement)
        return value

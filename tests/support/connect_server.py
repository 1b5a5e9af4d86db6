"""A real Spark Connect server as a child process, from PySpark's own package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from scripts.java import Java
from tests.support.patience import HANG_S
from tests.support.server import clean_environment
from tests.support.spark import runtime_settings

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class ConnectServer:
    url: str
    """`sc://…`, the value of SPARK_REMOTE."""
    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


def spark_home() -> Path:
    return Path(pyspark.__file__).parent


def spark_environment(java: Java) -> dict[str, str]:
    """Return the environment for Spark's scripts, without the settings of the caller's Spark."""
    kept = {k: v for k, v in clean_environment().items() if not k.startswith(("SPARK_", "PYSPARK"))}
    return {
        **kept,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


@contextmanager
def connect_server(java: Java, directory: Path) -> Iterator[ConnectServer]:
    """Run the server for one block, with Iceberg's runtime on its classpath."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        **runtime_settings(),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", SERVER_CLASS, "--driver-java-options", "-XX:TieredStopAtLevel=1"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log_path = directory / "connect.log"
    with open(log_path, "wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=directory,
            env=spark_environment(java),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # The launcher consists of shell scripts; a new session lets us stop all their children.
            start_new_session=True,
        )
    server = ConnectServer(f"sc://127.0.0.1:{port}", process, log_path)
    try:
        _wait_until_it_listens(server, port)
        yield server
    finally:
        stop_group(process)


GRACE_S = 30
"""A process that still runs this long after SIGTERM is killed."""


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """End a session leader and all processes of its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _wait_until_it_listens(server: ConnectServer, port: int) -> None:
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise AssertionError(
                f"Spark Connect ended with {server.process.returncode}:\n{server.log}"
            )
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"Spark Connect was not ready after {HANG_S} s:\n{server.log}")

"""A real standalone Spark cluster: a master and two workers, from PySpark's own package.

The second worker uses 127.0.0.2, because a speculative copy never runs on the host of the
original task. Jobs must ship their code, because the cluster's Python has no `frazil`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.java import ROOT, Java
from tests.support.connect_server import free_port, spark_environment, spark_home, stop_group
from tests.support.patience import HANG_S

HOSTS = ("127.0.0.1", "127.0.0.2")
PACKAGE = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    url: str
    """`spark://…`"""
    directory: Path
    environ: Mapping[str, str]

    def submit(
        self, script: Path, arguments: Sequence[str], settings: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a script with spark-submit; its driver is a child process."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.url]
        for name, value in {**_DRIVER, **settings}.items():
            command += ["--conf", f"{name}={value}"]
        return subprocess.run(
            [*command, str(script), *arguments],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    @property
    def logs(self) -> str:
        """Return what the executors have written to stderr."""
        found = sorted(self.directory.glob("work-*/app-*/*/stderr"))
        return "\n".join(
            f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in found
        )


_DRIVER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.pyspark.driver.python": sys.executable,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_cluster(java: Java, directory: Path) -> Iterator[Cluster]:
    """Run a cluster for one block; each worker has one core."""
    directory.mkdir(parents=True, exist_ok=True)
    environ = {**spark_environment(java), "SPARK_NO_DAEMONIZE": "1"}
    port, page = free_port(), free_port()
    url = f"spark://{HOSTS[0]}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        flags = ["--host", HOSTS[0], "--port", str(port), "--webui-port", str(page)]
        started.append(_start("master", [f"{PACKAGE}.master.Master", *flags], directory, environ))
        for number, host in enumerate(HOSTS):
            flags = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "768m"]
            flags += ["--work-dir", str(directory / f"work-{number}"), url]
            started.append(
                _start(
                    f"worker-{number}",
                    [f"{PACKAGE}.worker.Worker", *flags],
                    directory,
                    {**environ, "SPARK_LOCAL_IP": host},
                )
            )
        _wait_for_workers(page, started, directory)
        yield Cluster(url, directory, environ)
    finally:
        for process in reversed(started):
            stop_group(process)


def _start(
    name: str, command: Sequence[str], directory: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with open(directory / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), *command],
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_for_workers(
    page: int, started: Sequence[subprocess.Popen[bytes]], directory: Path
) -> None:
    """Wait until the master's page shows both workers as alive."""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        ended = [process.args for process in started if process.poll() is not None]
        if ended:
            break
        try:
            with urllib.request.urlopen(f"http://{HOSTS[0]}:{page}/json/", timeout=5) as answer:
                found = re.search(rb'"aliveworkers" *: *([0-9]+)', answer.read())
        except OSError:
            found = None
        if found is not None and int(found[1]) == len(HOSTS):
            return
        time.sleep(0.1)
    logs = "\n".join(path.read_text(errors="replace") for path in directory.glob("*.log"))
    raise AssertionError(f"the cluster was not ready after {HANG_S} s:\n{logs}")


# --- what is shipped ------------------------------------------------------------------------------


def zipped_package(directory: Path) -> Path:
    """Pack Frazil's modules for --py-files."""
    path = directory / "frazil.zip"
    source = ROOT / "src"
    with zipfile.ZipFile(path, "w") as archive:
        for module in sorted((source / "frazil").rglob("*.py")):
            archive.write(module, module.relative_to(source))
    return path


def bare_environment(directory: Path) -> Path:
    """Create a virtual environment with the packages of this one, without `frazil`.

    The path file of `frazil` has no effect from another environment.
    """
    folder = directory / "environment"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "others.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return folder


def packed_environment(directory: Path) -> Path:
    """Pack an environment with `frazil` for spark.archives."""
    folder = bare_environment(directory)
    (packages,) = folder.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(zipped_package(directory)) as archive:
        archive.extractall(packages)
    path = directory / "environment.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as packed:
        packed.add(folder, arcname=".")
    return path

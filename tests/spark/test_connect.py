"""The core tests pass on a real Spark Connect server, in a process without a JVM.

PySpark decides once per process whether it uses a JVM or a server, so the tests run in a child
process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.java import ROOT, Java
from tests.support.connect_server import ConnectServer, connect_server
from tests.support.patience import HANG_S


@pytest.fixture(scope="module")
def connect(
    java: Java, jars_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectServer]:
    with connect_server(java, tmp_path_factory.mktemp("connect")) as server:
        yield server


@pytest.mark.parametrize("streams", ["not stream", "stream"])
@pytest.mark.parametrize("reader", ["own", "not own"])
def test_the_core_runs_on_a_connect_server(
    connect: ConnectServer, tmp_path: Path, reader: str, streams: str
) -> None:
    """The core tests run in parts, by reader and by streams, to fit the time limit."""
    part = f"{reader} and {streams}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", part]
    command += [f"--basetemp={tmp_path / 'core'}", "tests/spark/test_core.py"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYSPARK"))}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environ, "SPARK_REMOTE": connect.url},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    log = connect.log
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n--- the server ---\n{log[-4000:]}"
    passed = re.search(r"^([0-9]+) passed", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= (2 if streams == "stream" else 6)

"""What Spark's JVM prints while it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from frazil.cli.spark.startup_output import THREAD_NAME, quiet_startup

pytestmark = pytest.mark.process

CHILD = """
echo ':: loading settings :: url = jar:file:ivysettings.xml' >&2
echo ':: ERRORS  module not found: org.example#thing' >&2
echo 'Ivy settings'
echo started > "$1"
read line
echo 'later' >&2
echo 'later, too'
"""


def test_only_errors_of_the_start_are_shown(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with quiet_startup():
        child = start(tmp_path)
        print("a warning", file=sys.stderr)
        print("a result")
    end(child)
    shown = capfd.readouterr()
    assert shown.out == "a result\n"
    assert "settings" not in shown.err
    for line in ("a warning", "module not found", "later", "later, too"):
        assert line in shown.err


def test_everything_is_shown_if_the_start_fails(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="no Spark"), quiet_startup():
        child = start(tmp_path)
        raise ValueError("no Spark")
    end(child)
    assert "loading settings" in capfd.readouterr().err


def start(directory: Path) -> subprocess.Popen[str]:
    """Start a process that has printed its first lines."""
    fifo = directory / "started"
    os.mkfifo(fifo)
    command = ["sh", "-c", CHILD, "child", str(fifo)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert fifo.read_text() == "started\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.communicate("go on\n")
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join()

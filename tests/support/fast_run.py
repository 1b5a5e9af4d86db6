"""The fast run, `pytest --fast`: no Spark, no PostgreSQL and no other child process.

It skips a test that has the mark `process` or uses the fixture `processes`, also indirectly. An
audit hook fails any other test that starts a process.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

LEFT_OUT_FOLDERS = {
    "benchmarks",
    "conformance",
    "hostile",
    "oracle",
    "pyiceberg",
    "stock_clients",
}
"""All tests of these folders need a process, so they are not even imported."""

FIXTURE = "processes"
MARK = "process"
_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}


class ProcessStarted(Exception):
    """A test of the fast run started a process; the message says how to exclude the test."""


class FastRun:
    """The plugin of `pytest --fast`."""

    def __init__(self) -> None:
        self._test: str | None = None

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        is_left_out = collection_path.name in LEFT_OUT_FOLDERS
        return True if is_left_out and collection_path.parent.name == "tests" else None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._test = nodeid

    def pytest_runtest_logfinish(self) -> None:
        self._test = None

    def watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._test is not None and event in _EVENTS:
            raise ProcessStarted(
                f"{self._test} starts a process ({event}: {arguments[:2]}), which `--fast` does "
                f"not allow: mark the test with `pytest.mark.{MARK}`, or let the fixture that "
                f"starts the process ask for the fixture `{FIXTURE}`"
            )


def install(config: pytest.Config) -> None:
    plugin = FastRun()
    config.pluginmanager.register(plugin)
    sys.addaudithook(plugin.watch)


def needs_process(item: pytest.Item) -> bool:
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return FIXTURE in fixtures or item.get_closest_marker(MARK) is not None

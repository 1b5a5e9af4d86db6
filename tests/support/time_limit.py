"""Enforces the time limit of a test, and gives later tests fresh components.

The limit raises an exception from a signal handler. It can interrupt a py4j call after the
request was sent and before the answer was read. Every later call of that thread would then read
the answer of the previous call. So the JVM is killed before the test fails, and all shared
fixtures end with the test. The next test that uses Spark gets a new JVM.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest
from pytest_timeout import Settings, timeout_sigalrm  # type: ignore[import-untyped]

from tests.support.spark import kill_spark, spark_is_dead

_TIMED_OUT = pytest.StashKey[bool]()


@pytest.hookimpl
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """Set the timer; pytest-timeout does this itself if the method is not signal."""
    if settings.method != "signal":
        return None

    def fire(*_: Any) -> None:
        __tracebackhide__ = True
        try:
            timeout_sigalrm(item, settings)
        except BaseException:
            item.stash[_TIMED_OUT] = True
            kill_spark()
            raise

    signal.signal(signal.SIGALRM, fire)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    item.cancel_timeout = _cancel  # type: ignore[attr-defined]
    return True


def _cancel() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """End all shared fixtures after a test that timed out, or that left a dead JVM behind."""
    try:
        yield
    finally:
        if item.stash.get(_TIMED_OUT, False) or spark_is_dead():
            _end_shared_fixtures(item)


def _end_shared_fixtures(item: pytest.Item) -> None:
    """Tear down every fixture of the session; pytest sets them up again on demand.

    Any error here is a consequence of the failure that the test reports.
    """
    try:
        item.session._setupstate.teardown_exact(None)
    except Exception as error:
        item.add_report_section("teardown", "shared fixtures", repr(error))

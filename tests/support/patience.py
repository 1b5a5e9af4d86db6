"""Waits of tests. Their limits guard against hangs and do not measure the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 300.0
"""A child process, a server or a condition that takes longer is assumed to hang."""


def wait_until(condition: Callable[[], object], message: str, *, pause_s: float = 0.01) -> None:
    """Return as soon as the condition is true; fail with the message if it never becomes so."""
    give_up_at = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < give_up_at, message
        time.sleep(pause_s)

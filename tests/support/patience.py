"""Waits for tests. The limits only guard against hangs and are independent of machine speed."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 300.0
"""A child process, a server or a condition that takes longer is assumed to hang."""


def wait_until(condition: Callable[[], object], message: str, *, pause_s: float = 0.01) -> None:
    """Return once the condition is true; fail with the message if it does not become true."""
    give_up_at = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < give_up_at, message
        time.sleep(pause_s)

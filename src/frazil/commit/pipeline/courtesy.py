"""Room for stock clients beside fine-grained commits.

A fine-grained commit fits on any head, a classic one only on the head it was built on, so that
beside busy fine-grained writers it would be stale for ever. When one was refused for that, those
who can wait do so until the next classic commit of the table comes: for half a second at most, and
for no more than a third of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from frazil.wire.identifiers import Identifier

MAX_PAUSE_S: Final = 0.5
_REST: Final = 2
"""A pause is followed by at least so many times its length without one."""


@dataclass(slots=True)
class _Pause:
    began: float
    ends: float
    next_from: float
    """Before this no other pause begins."""


class Pauses:
    """The pauses of all tables. Its user holds a lock around every call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[Identifier, _Pause] = {}

    def refused(self, identifier: Identifier) -> None:
        """A classic commit was refused because its head had moved on."""
        now = self._clock()
        known = self._tables.get(identifier)
        if known is not None and now < max(known.ends, known.next_from):
            return
        self._forget_old(now)
        ends = now + MAX_PAUSE_S
        self._tables[identifier] = _Pause(now, ends, ends + _REST * MAX_PAUSE_S)

    def came(self, identifier: Identifier) -> None:
        """A classic commit of the table is there: whoever waited for it need not any more."""
        pause, now = self._tables.get(identifier), self._clock()
        if pause is not None and now < pause.ends:
            pause.ends = now
            pause.next_from = now + _REST * (now - pause.began)

    def remaining_s(self, identifier: Identifier) -> float:
        """How long those who can wait still have to; 0: not at all."""
        pause = self._tables.get(identifier)
        return 0.0 if pause is None else max(0.0, pause.ends - self._clock())

    def _forget_old(self, now: float) -> None:
        over = [name for name, pause in self._tables.items() if pause.next_from < now]
        for name in over:
            del self._tables[name]

"""Warns when this server's clock is wrong, or tables have timestamps of a wrong clock.

A wrong clock refuses nothing here. But Iceberg allows a snapshot to be at most a minute older than
the one before it, so commits of stock clients fail after a clock was ahead. `docs/operations.md`
describes the way back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from frazil.commit.snapshot.commit_environment import now_ms
from frazil.db.rows import Database
from frazil.values.durations import duration_text
from frazil.wire.identifiers import Identifier

logger = logging.getLogger("frazil.clock")

TOLERANCE_MS: Final = 60_000
"""The minute that Iceberg's libraries tolerate between clocks."""

_REMEMBER_JUMP_MS: Final = 3_600_000
_MAX_TABLES: Final = 1000
_JUMP: Final = "jump"
_DATABASE: Final = "database"


def steady_ms() -> int:
    """Return a time that nobody sets. On Linux it also runs while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class ClockWatch:
    """Compares the clock with a steady one, with the database's, and with tables."""

    def __init__(
        self,
        database: Database,
        wall_ms: Callable[[], int] = now_ms,
        steady_ms: Callable[[], int] = steady_ms,
    ) -> None:
        self._database = database
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._offset_ms = wall_ms() - steady_ms()
        self._jumped_at_ms: int | None = None
        self._lock = threading.Lock()
        self._warnings: dict[str, str] = {}
        self.tables_ahead: set[Identifier] = set()
        """The tables whose newest timestamp was ahead of the clock when a commit loaded them."""

    def check(self) -> None:
        """Compare the clocks. Raises DatabaseUnavailable."""
        self._check_jump()
        skew_ms = self._database.clock_skew_ms(self._wall_ms())
        text = None
        if abs(skew_ms) > TOLERANCE_MS:
            relation = "ahead of" if skew_ms > 0 else "behind"
            skew = f"{duration_text(skew_ms / 1000)} {relation} this server's clock"
            text = f"the time of the database is {skew}"
        self._set(_DATABASE, text)

    def saw_tables(self, times: Iterable[tuple[Identifier, int]]) -> None:
        """Note the newest timestamps of tables that a commit has loaded."""
        for identifier, time_ms in times:
            ahead_ms = time_ms - self._wall_ms()
            if ahead_ms > TOLERANCE_MS:
                self._saw_ahead(identifier, ahead_ms)
            elif identifier in self.tables_ahead:
                with self._lock:
                    self.tables_ahead.discard(identifier)

    def warnings(self) -> list[str]:
        """Return what is wrong now. Each text is fit for everybody, so it names no table."""
        self._check_jump()
        with self._lock:
            texts = list(self._warnings.values())
            tables = len(self.tables_ahead)
        if tables:
            texts.append(f"tables with timestamps ahead of this server's clock: {tables}")
        return texts

    def _check_jump(self) -> None:
        steady_ms = self._steady_ms()
        offset_ms = self._wall_ms() - steady_ms
        jump_ms = offset_ms - self._offset_ms
        if abs(jump_ms) <= TOLERANCE_MS:
            # Follow a clock that is slewed.
            self._offset_ms, self._jumped_at_ms = offset_ms, None
            self._set(_JUMP, None)
            return
        if self._jumped_at_ms is None:
            self._jumped_at_ms = steady_ms
        elif steady_ms - self._jumped_at_ms > _REMEMBER_JUMP_MS:
            self._offset_ms = offset_ms
        direction = "forward" if jump_ms > 0 else "back"
        self._set(
            _JUMP, f"the clock of this server jumped {direction} by {duration_text(jump_ms / 1000)}"
        )

    def _saw_ahead(self, identifier: Identifier, ahead_ms: int) -> None:
        with self._lock:
            if identifier in self.tables_ahead or len(self.tables_ahead) >= _MAX_TABLES:
                return
            self.tables_ahead.add(identifier)
        logger.warning(
            "table %s has a timestamp %s ahead of this server's clock: commits of stock clients "
            "fail with 400 until then, see docs/operations.md",
            identifier,
            duration_text(ahead_ms / 1000),
        )

    def _set(self, name: str, text: str | None) -> None:
        """Set or remove a warning. Log the beginning and the end of each episode."""
        with self._lock:
            before = self._warnings.get(name)
            if text is None:
                self._warnings.pop(name, None)
            else:
                self._warnings[name] = text
        if text is not None and before is None:
            logger.warning("%s", text)
        elif text is None and before is not None:
            logger.info("no longer: %s", before)

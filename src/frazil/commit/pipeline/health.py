"""Knows whether the server can write, and probes what failed until it works again.

A failed request starts a probe of the part that failed: the database, or the root that contains
the failed location. The part is unhealthy while its probe fails. So readiness is a fact about the
server and not about one table, a nearly full disk does not turn it on and off, and an episode is
two lines in the log. Decision 0051 has the reasons.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import Final

from frazil.db.base import DatabaseFailure
from frazil.db.rows import Database
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import Store, StoreError
from frazil.wire.errors import BadRequest, TooManyRequests

logger = logging.getLogger("frazil.health")

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0
_QUIET_S: Final = 60.0
"""The time between two log lines about single failures of a part whose probe succeeds."""

_PROBE_BYTES: Final = 256 * 1024
_MAX_PROBE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a part of the server cannot be written."""

    text: str
    stops_changes: bool
    """Whether changes are refused before they write files."""
    retry_after_s: int


class Watch:
    """Probes one part of the server while it fails, on a thread that ends with the episode."""

    def __init__(self, part: str, probe: Callable[[], None]) -> None:
        self._part = part
        self._probe = probe
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._quiet_until = -math.inf
        self.problem: Problem | None = None

    def suspect(self, cause: DatabaseFailure | StoreError) -> None:
        """Start to probe, unless a probe is already running."""
        with self._lock:
            if self._stop.is_set() or self._thread is not None:
                return
            self._thread = threading.Thread(
                target=self._run, args=(cause,), name="frazil-probe", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._stop.set()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _run(self, cause: Exception) -> None:
        began = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        while not self._works(pause_s):
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        with self._lock:
            problem, self.problem = self.problem, None
            self._thread = None
        if problem is not None:
            seconds = time.monotonic() - began
            logger.info("%s can be written again, after %.1f s", self._part, seconds)
        elif time.monotonic() > self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            logger.warning("%s failed once, and can be written again: %s", self._part, cause)

    def _works(self, pause_s: float) -> bool:
        """Probe once. Log the first failure of an episode."""
        try:
            self._probe()
        except Exception as error:
            problem = self._problem(error, pause_s)
            if self.problem is None:
                logger.warning("%s (%s)", problem.text, error)
            self.problem = problem
            return False
        return True

    def _problem(self, error: Exception, pause_s: float) -> Problem:
        reason, stops_changes = None, False
        if isinstance(error, DatabaseFailure):
            reason, stops_changes = error.trouble.reason, error.trouble.stops_writes
        elif isinstance(error, StoreError):
            reason = error.reason
        text = f"{self._part} cannot be written: {reason or 'the log of the server has the error'}"
        return Problem(text, stops_changes, math.ceil(pause_s))


class Health:
    """Watches the database and the roots of all locations."""

    def __init__(self, database: Database, store: Store, allowed: AllowedLocations) -> None:
        self._store = store
        self._allowed = allowed
        self.database = Watch("the database", database.prove_writable)
        self._probe_bytes = _PROBE_BYTES
        self._roots = {
            str(root): Watch(
                "the warehouse" if root == allowed.warehouse else "an allowed location",
                partial(self._prove_writable, str(root)),
            )
            for root in allowed.roots
        }

    def notice(self, error: BaseException, file_bytes: int = 0) -> None:
        """Probe the part that caused the error of a request, if an operator has to look at it.

        `file_bytes` is the size of a file that could not be written. A probe has at least this
        size, so that it does not succeed on a disk that has room only for less.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, DatabaseFailure) and cause.trouble.reason is not None:
                self.database.suspect(cause)
            elif isinstance(cause, StoreError) and cause.reason is not None:
                self._probe_bytes = min(max(self._probe_bytes, file_bytes), _MAX_PROBE_BYTES)
                self._root_of(cause.location).suspect(cause)
            cause = cause.__cause__

    def check_changes(self) -> None:
        """Refuse a change that would fail in the database, before it writes files."""
        problem = self.database.problem
        if problem is not None and problem.stops_changes:
            raise TooManyRequests(
                f"{problem.text}; nothing was changed", retry_after_s=problem.retry_after_s
            )

    def problems(self) -> list[str]:
        """Return why the server is not ready. Each text is fit for everybody."""
        watches = (self.database, *self._roots.values())
        problems = [watch.problem for watch in watches]
        return [problem.text for problem in problems if problem is not None]

    def close(self) -> None:
        for watch in (self.database, *self._roots.values()):
            watch.close()

    def _root_of(self, location: str | None) -> Watch:
        try:
            root = None if location is None else self._allowed.root_of(location)
        except (BadRequest, OSError):
            root = None
        return self._roots[str(root or self._allowed.warehouse)]

    def _prove_writable(self, root: str) -> None:
        location = f"{root.rstrip('/')}/frazil-probe-{uuid.uuid4()}"
        # Random bytes, because some file systems compress.
        content = token_bytes(self._probe_bytes)
        try:
            self._store.put_new(location, [content])
        finally:
            self._store.delete([location])

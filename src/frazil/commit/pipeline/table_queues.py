"""One queue a table: whoever holds the table drains it, a group at a time.

A queue holds jobs. Jobs that can share one swap (commits of one table) are handed to the runner
together; a job that must be alone (a drop, a rename, a create) is a group of one. Within what may
share a swap, jobs that cannot wait go first; after one of them was refused because it came too
late, those that can wait leave it some time (`courtesy`). A transaction over several tables takes
their locks instead, always in the order of their names, so that two of them can never wait for each
other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from frazil.wire.errors import TooManyRequests
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


# After a group of many, the next is waited for so long, if it begins soon.
_MANY = 4
_SOON_S = 0.02
_GATHER_S = 0.004
_GATHER_STEP_S = 0.0003
_MAX_REMEMBERED = 10_000


class Job(Protocol):
    """Something queued. Jobs with the same, non-None `group_key` may run as one group."""

    @property
    def group_key(self) -> str | None: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def can_wait(self) -> bool:
        """Whether the job fits on any state of its table, so that others may go before it."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    max_queued_requests: int = 4096
    """For one table."""
    max_queued_bytes: int = 1 << 30
    """For the whole server."""
    max_group_requests: int = 64
    max_group_bytes: int = 32 << 20
    """A request of more is a group of its own."""


@dataclass(slots=True, eq=False)
class _TableQueue:
    jobs: deque[Job] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)
    scheduled: bool = False
    timer: threading.Timer | None = None
    """Runs while all jobs wait out a pause."""
    users: int = 0
    """Drains and holders that still need this object; at 0 it is forgotten."""


class Queues:
    def __init__(
        self,
        executor: Executor,
        run_group: Callable[[Identifier, Sequence[Job]], None],
        limits: QueueLimits,
    ) -> None:
        self._executor = executor
        self._run_group = run_group
        self._limits = limits
        self._queues: dict[Identifier, _TableQueue] = {}
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._bytes = 0
        self._closed = False
        self._pauses = Pauses()
        self._last_groups: dict[Identifier, tuple[int, float]] = {}

    def submit(self, identifier: Identifier, job: Job) -> None:
        """Queues a job. Raises TooManyRequests, with nothing queued, when there is no room."""
        with self._mutex:
            if self._closed:
                raise TooManyRequests("the server is shutting down: send the request again")
            queue = self._queues.get(identifier)
            if queue and len(queue.jobs) >= self._limits.max_queued_requests:
                raise TooManyRequests(f"the queue of {identifier} is full: send it again later")
            if self._bytes and self._bytes + job.size_bytes > self._limits.max_queued_bytes:
                raise TooManyRequests("too many bytes are queued: send the request again later")
            if queue is None:
                queue = self._queues[identifier] = _TableQueue()
            queue.jobs.append(job)
            self._bytes += job.size_bytes
            if not job.can_wait and job.group_key is not None:
                self._pauses.came(identifier)
            if not queue.scheduled:
                self._schedule(identifier, queue)

    def refused_late(self, identifier: Identifier) -> None:
        """A job that could not wait was refused because others had gone before it."""
        with self._mutex:
            self._pauses.refused(identifier)

    @contextmanager
    def holding(self, identifiers: Sequence[Identifier]) -> Iterator[None]:
        """Holds several tables at once; their queues wait."""
        ordered = sorted(set(identifiers))
        with self._mutex:
            queues = [self._queues.setdefault(name, _TableQueue()) for name in ordered]
            for queue in queues:
                queue.users += 1
        try:
            with ExitStack() as stack:
                for queue in queues:
                    stack.enter_context(queue.lock)
                yield
        finally:
            with self._mutex:
                for name, queue in zip(ordered, queues, strict=True):
                    self._release(name, queue)

    def close(self, timeout_s: float) -> bool:
        """Takes no more jobs and waits until all are done; False when time ran out."""
        with self._idle:
            self._closed = True
            for identifier, queue in list(self._queues.items()):
                if queue.timer is not None:
                    self._schedule(identifier, queue)
            return self._idle.wait_for(lambda: not self._queues, timeout_s)

    def _schedule(self, identifier: Identifier, queue: _TableQueue) -> None:
        """Has the queue drained, at once or when the pause is over that all its jobs wait for."""
        pause_s = 0.0 if self._closed else self._pauses.remaining_s(identifier)
        if pause_s and all(job.can_wait for job in queue.jobs):
            if queue.timer is None:
                queue.timer = threading.Timer(pause_s, self._pause_over, (identifier, queue))
                queue.timer.daemon = True
                queue.timer.start()
            return
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        queue.scheduled = True
        queue.users += 1
        self._executor.submit(self._drain, identifier, queue)

    def _pause_over(self, identifier: Identifier, queue: _TableQueue) -> None:
        with self._mutex:
            # Another job may have ended the pause in the meantime.
            if queue.timer is threading.current_thread():
                queue.timer = None
                if queue.jobs and not queue.scheduled:
                    self._schedule(identifier, queue)

    def _drain(self, identifier: Identifier, queue: _TableQueue) -> None:
        try:
            with queue.lock:
                self._gather(identifier, queue)
                # Taken only now: whatever came while another held the table joins this group.
                with self._mutex:
                    group = self._take_group(queue)
                self._run_group(identifier, group)
                self._remember(identifier, len(group))
        finally:
            with self._mutex:
                queue.scheduled = False
                if queue.jobs:
                    # To the end of the executor's line: other tables and waiting transactions
                    # get their turn between two groups.
                    self._schedule(identifier, queue)
                self._release(identifier, queue)

    def _gather(self, identifier: Identifier, queue: _TableQueue) -> None:
        """Leaves the others a moment to come. Writers that were answered together send their next
        request together: the first of them would be a group of its own, and all others wait for
        it."""
        jobs, ended = self._last_groups.get(identifier, (0, 0.0))
        now = time.monotonic()
        if jobs < _MANY or now > ended + _SOON_S:
            return
        wanted, until = jobs * 3 // 4, now + _GATHER_S
        while len(queue.jobs) < wanted and time.monotonic() < until:
            time.sleep(_GATHER_STEP_S)

    def _remember(self, identifier: Identifier, jobs: int) -> None:
        if len(self._last_groups) >= _MAX_REMEMBERED:
            self._last_groups.clear()
        self._last_groups[identifier] = jobs, time.monotonic()

    def _take_group(self, queue: _TableQueue) -> list[Job]:
        _impatient_first(queue.jobs, self._limits.max_group_requests // 2)
        first = queue.jobs.popleft()
        group, size = [first], first.size_bytes
        while (
            queue.jobs
            and first.group_key is not None
            and queue.jobs[0].group_key == first.group_key
            and len(group) < self._limits.max_group_requests
            and size + queue.jobs[0].size_bytes <= self._limits.max_group_bytes
        ):
            job = queue.jobs.popleft()
            group.append(job)
            size += job.size_bytes
        self._bytes -= size
        return group

    def _release(self, identifier: Identifier, queue: _TableQueue) -> None:
        queue.users -= 1
        if queue.users == 0 and not queue.jobs:
            self._queues.pop(identifier, None)
            self._idle.notify_all()


def _impatient_first(jobs: deque[Job], most: int) -> None:
    """Jobs that cannot wait go before those that can, among the ones that may share a group with
    the first; all that comes behind a job that must be alone stays behind it. Only so many do: the
    others of a group are for those who have waited."""
    if len(jobs) < 2 or jobs[0].group_key is None:
        return
    key = jobs[0].group_key
    together: list[Job] = []
    while jobs and jobs[0].group_key == key:
        together.append(jobs.popleft())
    first = list(islice((job for job in together if not job.can_wait), max(1, most)))
    ahead = {id(job) for job in first}
    jobs.extendleft(job for job in reversed(together) if id(job) not in ahead)
    jobs.extendleft(reversed(first))

"""Queues the jobs of each table. One thread at a time drains a queue, one group after another.

Jobs that can share a swap (commits of one table) are passed to the runner together. A job that
must run alone (a drop, a rename, a create) is a group of one. Among jobs that may share a swap,
those that cannot wait are first. A transaction over several tables locks their queues instead,
always in the order of their names, so that two transactions never deadlock.

A fine-grained commit can be applied to any head, a classic one only to the head it was built on.
Classic commits would always be stale next to busy fine-grained writers. After a classic commit
was refused for this reason, the jobs that can wait pause until the next classic commit of the
table arrives. A pause lasts at most half a second, and pauses take at most a third of the time.
A compaction that has lost to deletes three times is treated like a classic commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from frazil.wire.errors import TooManyRequests
from frazil.wire.identifiers import Identifier

MAX_PAUSE_S: Final = 0.5
_PAUSE_REST_FACTOR: Final = 2
"""The minimum time between two pauses, as a multiple of the first one's length."""


@dataclass(slots=True)
class _Pause:
    began: float
    ends: float
    next_from: float
    """The earliest time of the next pause."""


class Pauses:
    """The pauses of all tables, shared by the queues and the commit loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables: dict[Identifier, _Pause] = {}
        self._lock = threading.Lock()

    def refused(self, identifier: Identifier) -> None:
        """Begin a pause, because a commit that cannot wait was refused: others were faster."""
        with self._lock:
            now = self._clock()
            known = self._tables.get(identifier)
            if known is not None and now < max(known.ends, known.next_from):
                return
            self._forget_old(now)
            ends = now + MAX_PAUSE_S
            self._tables[identifier] = _Pause(now, ends, ends + _PAUSE_REST_FACTOR * MAX_PAUSE_S)

    def arrived(self, identifier: Identifier) -> None:
        """End the pause, because a commit of the table that cannot wait has arrived."""
        with self._lock:
            pause, now = self._tables.get(identifier), self._clock()
            if pause is not None and now < pause.ends:
                pause.ends = now
                pause.next_from = now + _PAUSE_REST_FACTOR * (now - pause.began)

    def remaining_s(self, identifier: Identifier) -> float:
        """Return how long jobs that can wait must still wait, or 0."""
        pause = self._tables.get(identifier)
        return 0.0 if pause is None else max(0.0, pause.ends - self._clock())

    def _forget_old(self, now: float) -> None:
        over = [name for name, pause in self._tables.items() if pause.next_from < now]
        for name in over:
            del self._tables[name]


# If the last group was large and recent, wait a few milliseconds for more requests of its writers.
_LARGE_GROUP = 4
_RECENT_S = 0.02
_GATHER_S = 0.004
_GATHER_STEP_S = 0.0003
_MAX_REMEMBERED_GROUPS = 10_000


class Job(Protocol):
    """A queued job. Jobs with the same `group_key` may run as one group, unless it is None."""

    @property
    def group_key(self) -> Hashable | None: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def can_wait(self) -> bool:
        """Whether the job can be applied to any state of its table, so that others may run
        before it."""


J = TypeVar("J", bound=Job)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    max_queued_requests: int = 4096
    """The limit for one table."""
    max_queued_bytes: int = 1 << 30
    """The limit for the whole server."""
    max_group_requests: int = 64
    max_group_bytes: int = 32 << 20
    """A larger request is a group of its own."""


@dataclass(slots=True, eq=False)
class _TableQueue(Generic[J]):
    jobs: deque[J] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)
    scheduled: bool = False
    timer: threading.Timer | None = None
    """Set while a pause delays all jobs."""
    users: int = 0
    """The number of threads and waiting transactions that use this object. At 0 it is removed."""


class Queues(Generic[J]):
    def __init__(
        self,
        executor: Executor,
        run_group: Callable[[Identifier, Sequence[J]], None],
        limits: QueueLimits,
        pauses: Pauses | None = None,
    ) -> None:
        self._executor = executor
        self._run_group = run_group
        self._limits = limits
        self._queues: dict[Identifier, _TableQueue[J]] = {}
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._bytes = 0
        self._closed = False
        self._pauses = pauses or Pauses()
        self._last_groups: dict[Identifier, tuple[int, float]] = {}

    def submit(self, identifier: Identifier, job: J) -> None:
        """Queue a job. Raises TooManyRequests, without queueing anything, if a queue is full."""
        with self._mutex:
            self._check_open()
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
                self._pauses.arrived(identifier)
            if not queue.scheduled:
                self._schedule(identifier, queue)

    def waiting(self) -> int:
        """Return the number of queued jobs."""
        with self._mutex:
            return sum(len(queue.jobs) for queue in self._queues.values())

    def submit_holding(self, identifiers: Sequence[Identifier], job: J) -> None:
        """Run a job that locks several tables at once, while their queues wait."""
        with self._mutex:
            self._check_open()
        self._executor.submit(self._run_holding, identifiers, job)

    def _run_holding(self, identifiers: Sequence[Identifier], job: J) -> None:
        with self.holding(identifiers):
            self._run_group(identifiers[0], [job])

    def _check_open(self) -> None:
        if self._closed:
            raise TooManyRequests("the server is shutting down: send the request again")

    @contextmanager
    def holding(self, identifiers: Sequence[Identifier]) -> Iterator[None]:
        """Block the queues of several tables until the block ends."""
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
        """Accept no more jobs and wait until all are done. Return False if time ran out."""
        with self._idle:
            self._closed = True
            for identifier, queue in list(self._queues.items()):
                if queue.timer is not None:
                    self._schedule(identifier, queue)
            return self._idle.wait_for(lambda: not self._queues, timeout_s)

    def _schedule(self, identifier: Identifier, queue: _TableQueue[J]) -> None:
        """Drain the queue now, or after the pause if all of its jobs can wait."""
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

    def _pause_over(self, identifier: Identifier, queue: _TableQueue[J]) -> None:
        with self._mutex:
            # Another job may have already ended the pause.
            if queue.timer is threading.current_thread():
                queue.timer = None
                if queue.jobs and not queue.scheduled:
                    self._schedule(identifier, queue)

    def _drain(self, identifier: Identifier, queue: _TableQueue[J]) -> None:
        try:
            with queue.lock:
                self._gather(identifier, queue)
                # Take the group late, so that jobs that arrived while the table was locked join it.
                with self._mutex:
                    group = self._take_group(queue)
                self._run_group(identifier, group)
                self._remember(identifier, len(group))
        finally:
            with self._mutex:
                queue.scheduled = False
                if queue.jobs:
                    # This appends to the executor's queue, so that other tables and waiting
                    # transactions run between two groups.
                    self._schedule(identifier, queue)
                self._release(identifier, queue)

    def _gather(self, identifier: Identifier, queue: _TableQueue[J]) -> None:
        """Wait briefly for other jobs. Writers that were answered together send their next
        requests together. Without the wait, the first request would run alone and all others
        would wait for it."""
        jobs, ended = self._last_groups.get(identifier, (0, 0.0))
        now = time.monotonic()
        if jobs < _LARGE_GROUP or now > ended + _RECENT_S:
            return
        wanted, until = jobs * 3 // 4, now + _GATHER_S
        while len(queue.jobs) < wanted and time.monotonic() < until:
            time.sleep(_GATHER_STEP_S)

    def _remember(self, identifier: Identifier, jobs: int) -> None:
        if len(self._last_groups) >= _MAX_REMEMBERED_GROUPS:
            self._last_groups.clear()
        self._last_groups[identifier] = jobs, time.monotonic()

    def _take_group(self, queue: _TableQueue[J]) -> list[J]:
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

    def _release(self, identifier: Identifier, queue: _TableQueue[J]) -> None:
        queue.users -= 1
        if queue.users == 0 and not queue.jobs:
            self._queues.pop(identifier, None)
            self._idle.notify_all()


def _impatient_first(jobs: deque[J], at_most: int) -> None:
    """Move jobs that cannot wait before those that can, among the jobs that may share a group
    with the first. At most `at_most` jobs move, so that the others are not starved. No job
    moves past a job that must run alone."""
    if len(jobs) < 2 or jobs[0].group_key is None:
        return
    key = jobs[0].group_key
    together: list[J] = []
    while jobs and jobs[0].group_key == key:
        together.append(jobs.popleft())
    first = list(islice((job for job in together if not job.can_wait), max(1, at_most)))
    ahead = {id(job) for job in first}
    jobs.extendleft(job for job in reversed(together) if id(job) not in ahead)
    jobs.extendleft(reversed(first))

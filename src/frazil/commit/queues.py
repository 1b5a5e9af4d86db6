"""One queue a table: whoever holds the table drains it, a group at a time.

A queue holds jobs. Jobs that can share one swap (commits of one table) are handed to the runner
together; a job that must be alone (a drop, a rename, a create) is a group of one. A transaction
over several tables takes their locks instead, always in the order of their names, so that two
of them can never wait for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from frazil.wire.errors import TooManyRequests
from frazil.wire.identifiers import Identifier


class Job(Protocol):
    """Something queued. Jobs with the same, non-None `group_key` may run as one group."""

    @property
    def group_key(self) -> str | None: ...

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class QueueLimits:
    max_queued_requests: int = 4096
    """For one table."""
    max_queued_bytes: int = 1 << 30
    """For the whole server."""
    max_group_requests: int = 64
    max_group_bytes: int = 256 << 20


@dataclass(slots=True, eq=False)
class _TableQueue:
    jobs: deque[Job] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)
    scheduled: bool = False
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
            if not queue.scheduled:
                self._schedule(identifier, queue)

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
            return self._idle.wait_for(lambda: not self._queues, timeout_s)

    def _schedule(self, identifier: Identifier, queue: _TableQueue) -> None:
        queue.scheduled = True
        queue.users += 1
        self._executor.submit(self._drain, identifier, queue)

    def _drain(self, identifier: Identifier, queue: _TableQueue) -> None:
        try:
            with queue.lock:
                # Taken only now: whatever came while another held the table joins this group.
                with self._mutex:
                    group = self._take_group(queue)
                self._run_group(identifier, group)
        finally:
            with self._mutex:
                queue.scheduled = False
                if queue.jobs:
                    # To the end of the executor's line: other tables and waiting transactions
                    # get their turn between two groups.
                    self._schedule(identifier, queue)
                self._release(identifier, queue)

    def _take_group(self, queue: _TableQueue) -> list[Job]:
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

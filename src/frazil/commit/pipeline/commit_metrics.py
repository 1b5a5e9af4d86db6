"""Counts commits by operation and outcome, and measures the phases of the commit loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from frazil.commit.pipeline.catalog_answers import ReplayedError, TableAnswer
from frazil.commit.pipeline.pending_requests import PendingCommit
from frazil.commit.pipeline.relation_kinds import ViewKind
from frazil.read.counters import Histogram, HistogramCounts
from frazil.wire.conflicts import ConflictClause
from frazil.wire.errors import CommitFailed, FrazilError, TooManyRequests, ValidationError
from frazil.wire.file_actions import FineGrainedUpdate
from frazil.wire.rest_updates import AddSnapshot

Outcome: TypeAlias = Literal[
    "committed", "repeated", "conflict", "stale", "refused", "busy", "failed"
]
"""Committed; answered from an earlier request or epoch; refused by a clause; refused because the
head has changed; any other 4xx; 429; a defect or an unknown outcome."""
Phase: TypeAlias = Literal["build", "write", "swap"]

_ACTIONS: Final = tuple(str(kind.__struct_config__.tag) for kind in get_args(FineGrainedUpdate))
OPERATIONS: Final = (*_ACTIONS, "snapshot", "create", "metadata", "view", "transaction", "several")
"""The actions on files; the snapshot of a stock client; a created table; only metadata; a view; a
transaction over several tables; several actions in one request."""

_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
_REQUESTS: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What was counted since the server started."""

    outcomes: Mapping[tuple[str, ...], int]
    """By operation and outcome."""
    conflicts: Mapping[str, int]
    """By clause. A commit counts once for each clause that failed."""
    lost_swaps: int
    queued: int
    """The number of requests in queues now."""
    group_requests: HistogramCounts
    queue_seconds: HistogramCounts
    phase_seconds: Mapping[Phase, HistogramCounts]


class CommitMetrics:
    """Counters of all commits of a process. It is thread-safe.

    Every combination is counted from the start, because Prometheus does not see the first increase
    of a series that did not exist before.
    """

    def __init__(self) -> None:
        self._outcomes = {
            (operation, outcome): 0 for operation in OPERATIONS for outcome in get_args(Outcome)
        }
        self._conflicts: dict[str, int] = dict.fromkeys(get_args(ConflictClause), 0)
        self._lost_swaps = 0
        self._lock = threading.Lock()
        self._group_requests = Histogram(_REQUESTS)
        self._queue_seconds = Histogram(_SECONDS)
        self._phase_seconds: dict[Phase, Histogram] = {
            phase: Histogram(_SECONDS) for phase in get_args(Phase)
        }

    def watch(self, pending: PendingCommit) -> None:
        """Count the commit when it is answered."""
        pending.future.add_done_callback(lambda _: self._answered(pending))

    def began(self, group: Sequence[PendingCommit]) -> None:
        """Count a group that leaves its queue."""
        now = time.perf_counter()
        self._group_requests.add(len(group))
        for pending in group:
            self._queue_seconds.add(now - pending.received_s)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Measure a phase of a round."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._phase_seconds[phase].add(time.perf_counter() - started)

    def lost_swap(self) -> None:
        with self._lock:
            self._lost_swaps += 1

    def read(self, queued: int) -> CommitCounts:
        with self._lock:
            outcomes, conflicts = dict(self._outcomes), dict(self._conflicts)
            lost_swaps = self._lost_swaps
        return CommitCounts(
            outcomes,
            conflicts,
            lost_swaps,
            queued,
            self._group_requests.read(),
            self._queue_seconds.read(),
            {phase: histogram.read() for phase, histogram in self._phase_seconds.items()},
        )

    def _answered(self, pending: PendingCommit) -> None:
        error = pending.future.exception()
        outcome = _outcome_of(pending) if error is None else _outcome_of_error(error)
        conflicts = error.conflicts if isinstance(error, ValidationError) else ()
        clauses = {str(conflict.get("clause")) for conflict in conflicts}
        with self._lock:
            self._outcomes[operation_of(pending), outcome] += 1
            for clause in clauses:
                self._conflicts[clause] = self._conflicts.get(clause, 0) + 1


def operation_of(pending: PendingCommit) -> str:
    """Return what a commit does, one of OPERATIONS."""
    if len(pending.changes) > 1:
        return "transaction"
    if isinstance(pending.kind, ViewKind):
        return "view"
    (change,) = pending.changes
    updates = change.request.updates
    actions = {
        str(update.__struct_config__.tag)
        for update in updates
        if isinstance(update, FineGrainedUpdate)
    }
    if actions:
        return actions.pop() if len(actions) == 1 else "several"
    if change.creates:
        return "create"
    return "snapshot" if any(isinstance(each, AddSnapshot) for each in updates) else "metadata"


def _outcome_of(pending: PendingCommit) -> Outcome:
    answer = pending.future.result()
    repeated = isinstance(answer, TableAnswer) and answer.already_committed
    return "repeated" if repeated or pending.replayed else "committed"


def _outcome_of_error(error: BaseException) -> Outcome:
    match error:
        case ReplayedError():
            return "repeated"
        case ValidationError():
            return "conflict"
        case CommitFailed():
            return "stale"
        case TooManyRequests():
            return "busy"
        case FrazilError() if error.status < 500:
            return "refused"
    return "failed"

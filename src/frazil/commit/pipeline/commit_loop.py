"""The commit loop, which executes every change of the catalog.

Each round loads the rows, checks the waiting requests, makes their files durable and sends one
database transaction. If another replica wins the race, the requests run in another round,
because a request can be applied to any head. Files are deleted only if the transaction provably
did not happen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from frazil.commit.pipeline.commit_batch import Batch, BatchTools
from frazil.commit.pipeline.commit_metrics import CommitMetrics
from frazil.commit.pipeline.health import Health
from frazil.commit.pipeline.idempotency import Idempotency
from frazil.commit.pipeline.pending_requests import Attempt, Operation, Pending, PendingCommit, Work
from frazil.commit.snapshot.file_writer import FileWriter, Writing, not_written
from frazil.db.base import (
    Committed,
    DatabaseUnavailable,
    KeysTaken,
    OutcomeUnknown,
    Refused,
    Relation,
    SwapLost,
    Transaction,
    TransactionOutcome,
)
from frazil.db.rows import Database, Session
from frazil.wire.errors import CommitStateUnknown, Forbidden, FrazilError, TooManyRequests
from frazil.wire.identifiers import Identifier

logger = logging.getLogger("frazil.commit")

# After two lost swaps the rows are locked before they are loaded. Otherwise a replica with slow
# commits could lose every race against a fast one.
LOCK_AFTER_LOST = 2
LOCK_TIMEOUT_S = 10.0
GIVE_UP_AFTER_S = 60.0
RESOLVE_TIMEOUT_S = 20.0


Committer: TypeAlias = Database | Session


class CommitLoop:
    def __init__(
        self,
        database: Database,
        writer: FileWriter,
        idempotency: Idempotency,
        batch_tools: BatchTools,
        metrics: CommitMetrics,
        health: Health,
    ) -> None:
        self._database = database
        self._writer = writer
        self._idempotency = idempotency
        self._batch_tools = batch_tools
        self._metrics = metrics
        self._health = health

    def run_group(self, _: Identifier, group: Sequence[Pending]) -> None:
        """Execute a group of requests from a queue."""
        first = group[0]
        if isinstance(first, Operation):
            self.run(first)
        else:
            commits = [pending for pending in group if isinstance(pending, PendingCommit)]
            self._metrics.began(commits)
            self.run(Batch(self._batch_tools, commits))

    def run_unless_finished(self, operation: Operation) -> None:
        """Execute an operation that was not queued."""
        try:
            self._idempotency.replay_finished([operation])
        except DatabaseUnavailable as error:
            self._refuse([operation], database_unavailable(error))
        try:
            operation.context.check_may_change()
        except Forbidden as error:
            self._refuse(operation.waiting(), error)
        self.run(operation)

    def run(self, work: Work) -> None:
        """Answer every request of the work, even after unexpected errors."""
        try:
            if self._health.database.problem is not None:
                self._health.check_changes()
            self._run_rounds(work)
        except FrazilError as error:
            self._refuse(work.waiting(), error)
        except DatabaseUnavailable as error:
            self._refuse(work.waiting(), database_unavailable(error))
        except Exception as error:
            for pending in work.waiting():
                logger.exception("request %s failed", pending.context.request_id)
                pending.future.set_exception(error)

    def _run_rounds(self, work: Work) -> None:
        lost_swaps = 0
        give_up = time.monotonic() + GIVE_UP_AFTER_S
        while work.waiting():
            with self._loaded_rows(work.identifiers, lost_swaps) as (rows, committer):
                outcome = self._round(work, rows, committer)
            match outcome:
                case SwapLost():
                    lost_swaps += 1
                    self._metrics.lost_swap()
                    self._idempotency.replay_finished(work.waiting())
                    if time.monotonic() > give_up:
                        raise TooManyRequests("too many others change the same rows: send it again")
                    continue
                case KeysTaken(key_rows):
                    self._idempotency.replay_taken(work.waiting(), key_rows)
                case Refused(_, error):
                    self._refuse_alone(work, error)
            lost_swaps, give_up = 0, time.monotonic() + GIVE_UP_AFTER_S

    @contextmanager
    def _loaded_rows(
        self, identifiers: Sequence[Identifier], lost_swaps: int
    ) -> Iterator[tuple[list[Relation | None], Committer]]:
        """Load the rows. After repeated losses, lock them until the block ends."""
        rows = [self._database.relation(identifier) for identifier in identifiers]
        uuids = sorted(row.uuid for row in rows if row is not None)
        if lost_swaps < LOCK_AFTER_LOST or not uuids:
            yield rows, self._database
            return
        with self._database.locked(uuids, LOCK_TIMEOUT_S) as session:
            yield [row and session.relation_by_uuid(row.uuid) for row in rows], session

    def _round(
        self, work: Work, rows: Sequence[Relation | None], committer: Committer
    ) -> TransactionOutcome:
        """Check, write and swap once."""
        writing = self._writer.begin(at_once=len(work.waiting()) == 1)
        try:
            with self._metrics.phase("build"):
                attempt = work.attempt(rows, writing)
        except BaseException:
            self._writer.discard(writing.abandon())
            raise
        if attempt.transaction is None:
            self._answer(attempt)
            return Committed()
        with self._metrics.phase("write"):
            failed = writing.finish(attempt.files)
        if failed:
            self._writer.discard(writing.locations)
            self._refuse_unwritten(attempt, failed)
            return Committed()
        outcome = self._send(attempt.transaction, attempt.uuids, committer, writing)
        if isinstance(outcome, Committed):
            self._answer(attempt)
        return outcome

    def _send(
        self,
        transaction: Transaction,
        uuids: Sequence[str],
        committer: Committer,
        writing: Writing,
    ) -> TransactionOutcome:
        """Commit the transaction, and delete its files if it provably did not happen."""
        try:
            with self._metrics.phase("swap"):
                outcome = _commit(self._database, committer, transaction, uuids)
        except TooManyRequests:
            self._writer.discard(writing.locations)
            raise
        if not isinstance(outcome, Committed):
            self._writer.discard(writing.locations)
        return outcome

    def _answer(self, attempt: Attempt) -> None:
        for pending, outcome in attempt.outcomes():
            if isinstance(outcome, FrazilError):
                self._idempotency.refuse(pending, outcome)
            else:
                pending.future.set_result(outcome)

    def _refuse(self, requests: Iterable[Pending], error: FrazilError) -> None:
        self._health.notice(error)
        for pending in requests:
            self._idempotency.refuse(pending, error)

    def _refuse_unwritten(self, attempt: Attempt, failed: dict[str, Exception]) -> None:
        """Refuse the requests whose own files could not be written. The others keep waiting. The
        transaction was never sent, so each request may be sent again."""
        for location, cause in failed.items():
            self._health.notice(cause, sum(map(len, attempt.files.get(location, ()))))
            if location not in attempt.file_owners:
                raise not_written("the metadata file could not be written", cause) from cause
        for location, cause in failed.items():
            pending = attempt.file_owners[location]
            if not pending.future.done():
                self._idempotency.refuse(pending, not_written("a file could not be written", cause))

    def _refuse_alone(self, work: Work, error: FrazilError) -> None:
        """Commit the requests one by one after the database refused their transaction, for
        example because another table owns a location. This finds the request that caused the
        error."""
        parts = work.split()
        if len(parts) == 1:
            self._refuse(work.waiting(), error)
            return
        for part in parts:
            self.run(part)


def _commit(
    database: Database, committer: Committer, transaction: Transaction, uuids: Sequence[str]
) -> TransactionOutcome:
    """Commit the transaction. If the answer is lost, find out whether it was committed.

    Raises TooManyRequests if nothing happened, and CommitStateUnknown if this could not be
    determined in time. In the second case no file of this commit may be deleted.
    """
    try:
        return committer.commit(transaction)
    except DatabaseUnavailable as error:
        raise database_unavailable(error) from error
    except OutcomeUnknown as error:
        logger.warning("commit %s: the answer was lost (%s)", transaction.commit_id, error)
        return _resolve(database, transaction, uuids)


def _resolve(
    database: Database, transaction: Transaction, uuids: Sequence[str]
) -> TransactionOutcome:
    try:
        happened = database.resolve(transaction.commit_id, uuids, RESOLVE_TIMEOUT_S)
    except DatabaseUnavailable as error:
        raise CommitStateUnknown(
            "the database did not answer whether the commit took effect; "
            "read the table before you send it again"
        ) from error
    logger.warning(
        "commit %s: %s", transaction.commit_id, "took effect" if happened else "did not happen"
    )
    # A transaction that did not happen is treated like a lost race: the requests are applied again.
    return Committed() if happened else SwapLost(0)


def database_unavailable(error: DatabaseUnavailable) -> TooManyRequests:
    """Return the answer for a request of which nothing has happened."""
    return TooManyRequests(f"the database is not available: {error}")

"""The group commit: N requests for one table, one metadata file, one swap, N answers.

This is the only retry loop of a commit. Each round loads the head, applies every request that
still waits, in turn, to the metadata in memory, makes all files durable and swaps the pointer.
A request that fails its checks fails alone. What was refused is told only when the state it was
judged by is committed: after a lost swap it is judged again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from frazil.commit.pipeline.catalog_answers import Answer, TableAnswer, TransactionAnswer
from frazil.commit.pipeline.idempotency import Idempotency
from frazil.commit.pipeline.outbox_events import commit_payload, event
from frazil.commit.pipeline.pending_requests import Pending, commit_rows
from frazil.commit.pipeline.relation_kinds import NextFile, Subject, missing
from frazil.commit.pipeline.swap import Committer, send
from frazil.commit.snapshot.apply_request import Applied
from frazil.commit.snapshot.commit_environment import Environments, now_ms
from frazil.commit.snapshot.committed_snapshots import committed_json
from frazil.commit.snapshot.file_writer import FileWriter, Writing, not_written
from frazil.commit.snapshot.stream_epochs import Streams
from frazil.db.base import (
    Committed,
    Database,
    DatabaseUnavailable,
    EventRow,
    KeyRow,
    KeysTaken,
    Refused,
    Relation,
    SwapLost,
    SwapRelation,
    Transaction,
)
from frazil.wire.errors import CommitFailed, FrazilError, TooManyRequests
from frazil.wire.identifiers import Identifier

logger = logging.getLogger("frazil.commit")

M = TypeVar("M")
R = TypeVar("R")

# After so many lost swaps the row is locked before it is loaded, so that a replica with slow
# commits does not lose for ever against a fast one.
LOCK_AFTER_LOST = 2
LOCK_TIMEOUT_S = 10.0
GIVE_UP_AFTER_S = 60.0
MAX_AHEAD_MS = 1000
# What is applied by then is committed; the rest of the group follows.
MAX_JUDGING_S = 1.0


@dataclass(frozen=True, slots=True)
class _Accepted(Generic[M, R]):
    pending: Pending[R]
    applied: Applied[M]
    changed: bool


@dataclass(frozen=True, slots=True)
class _Round(Generic[M, R]):
    """Every waiting request, judged against one head."""

    requests: list[Pending[R]]
    """All of them, in their order: after a lost swap each is judged again."""
    relation: Relation
    base: M
    new: M
    accepted: list[_Accepted[M, R]]
    rejected: list[tuple[Pending[R], FrazilError]]
    postponed: list[Pending[R]]
    """Not judged: those before them took long, and are not to wait for them too."""
    streams: Streams

    @property
    def changed(self) -> list[_Accepted[M, R]]:
        return [one for one in self.accepted if one.changed]

    def files(self) -> dict[str, Sequence[bytes]]:
        return {name: [data] for one in self.accepted for name, data in one.applied.files}


class GroupCommit:
    def __init__(
        self,
        database: Database,
        writer: FileWriter,
        idempotency: Idempotency,
        environments: Environments,
    ) -> None:
        self._database = database
        self._writer = writer
        self._idempotency = idempotency
        self._environments = environments
        self._refused_late: Callable[[Identifier], None] = lambda _: None

    def when_refused_late(self, tell: Callable[[Identifier], None]) -> None:
        """Who is told that a request was refused because others had gone before it."""
        self._refused_late = tell

    def run(
        self, subject: Subject[M, R], identifier: Identifier, group: Sequence[Pending[R]]
    ) -> None:
        """Answers every request of the group, whatever happens."""
        waiting = list(group)
        try:
            self._rounds(subject, identifier, waiting)
        except FrazilError as error:
            for pending in _unanswered(group):
                self._reject(pending, error)
        except Exception as error:
            logger.exception("commit to %s failed", identifier)
            for pending in _unanswered(group):
                pending.future.set_exception(error)

    def _rounds(
        self, subject: Subject[M, R], identifier: Identifier, waiting: list[Pending[R]]
    ) -> None:
        lost = 0
        give_up = time.monotonic() + GIVE_UP_AFTER_S
        while waiting:
            if lost:
                waiting = self._without_finalised(waiting)
            with self._held(identifier, lost) as (relation, committer):
                if relation is None or relation.kind is not subject.kind:
                    raise missing(subject.kind, identifier)
                waiting, swap_was_lost = self._round(subject, relation, committer, waiting)
            if swap_was_lost:
                lost += 1
            else:
                lost, give_up = 0, time.monotonic() + GIVE_UP_AFTER_S
            if waiting and time.monotonic() > give_up:
                raise TooManyRequests(f"too many others commit to {identifier}: send it again")

    @contextmanager
    def _held(
        self, identifier: Identifier, lost: int
    ) -> Iterator[tuple[Relation | None, Committer]]:
        """The table's row, locked in the database after repeated losses."""
        try:
            relation = self._database.relation(identifier)
            if relation is None or lost < LOCK_AFTER_LOST:
                yield relation, self._database
                return
            with self._database.locked([relation.uuid], LOCK_TIMEOUT_S) as session:
                held = session.relation_by_uuid(relation.uuid)
                renamed = held is not None and held.identifier != identifier
                yield (None if renamed else held), session
        except DatabaseUnavailable as error:
            raise TooManyRequests(f"the database is not available: {error}") from error

    # --- one round ---------------------------------------------------------------------------

    def _round(
        self,
        subject: Subject[M, R],
        relation: Relation,
        committer: Committer,
        waiting: list[Pending[R]],
    ) -> tuple[list[Pending[R]], int]:
        """One attempt; returns who still waits and how many swaps were lost (0 or 1)."""
        writing = self._writer.begin(at_once=len(waiting) == 1)
        try:
            judged = self._judge(subject, relation, waiting, writing)
        except BaseException:
            self._writer.discard(writing.abandon())
            raise
        if not judged.changed:
            self._answer_all(subject, judged, self._location_now(judged))
            return judged.postponed, 0
        file = subject.next_file(judged.base, relation.metadata_location, judged.new)
        files = {**judged.files(), file.location: file.chunks}
        failed = writing.finish({file.location: file.chunks})
        if failed:
            self._writer.discard(files)
            return self._drop_failed(judged, failed, file.location), 0
        return self._swap(subject, judged, committer, file, files)

    def _judge(
        self,
        subject: Subject[M, R],
        relation: Relation,
        waiting: list[Pending[R]],
        writing: Writing,
    ) -> _Round[M, R]:
        base = subject.load(relation.metadata_location)
        _pace(subject.time_ms(base) - now_ms(), len(waiting))
        state = base
        accepted: list[_Accepted[M, R]] = []
        rejected: list[tuple[Pending[R], FrazilError]] = []
        streams = Streams(relation.uuid, self._database.stream)
        shared = self._environments.round(relation.uuid, streams)
        # The sort is stable: who came first stays first among equals.
        in_order = sorted(waiting, key=lambda one: not subject.goes_first(base, one.request))
        time_is_up = time.monotonic() + MAX_JUDGING_S
        postponed: list[Pending[R]] = []
        for before_last, pending in zip(range(len(in_order) - 1, -1, -1), in_order, strict=True):
            if accepted and time.monotonic() > time_is_up:
                postponed = in_order[len(in_order) - 1 - before_last :]
                break
            # Each snapshot of a group has a time of its own, and the last one has the present.
            environment = shared.of(pending.commit_uuid, shared.now_ms - before_last)
            try:
                applied = subject.apply(state, pending.request, environment)
                # Judged request by request: a bad location is the fault of one alone.
                for place in subject.owned_if_changed(state, applied.metadata) or ():
                    self._database.check_location_is_free(place, relation.uuid)
            except FrazilError as error:
                rejected.append((pending, error))
                continue
            accepted.append(_Accepted(pending, applied, applied.metadata is not state))
            shared.pending.update(applied.files)
            writing.add(applied.files)
            subject.remember_streams(streams, state, applied)
            state = applied.metadata
        return _Round(waiting, relation, base, state, accepted, rejected, postponed, streams)

    def _swap(
        self,
        subject: Subject[M, R],
        judged: _Round[M, R],
        committer: Committer,
        file: NextFile[M],
        files: dict[str, Sequence[bytes]],
    ) -> tuple[list[Pending[R]], int]:
        relation = judged.relation
        new = moved(relation, file.location, len(judged.changed))
        locations = subject.owned_if_changed(judged.base, file.metadata)
        transaction = Transaction(
            commit_id=str(uuid.uuid4()),
            changes=(SwapRelation(relation, new, locations),),
            keys=tuple(row for one in judged.accepted for row in _key_rows(one, relation)),
            events=tuple(self._events(judged, file.location)),
            forget_streams=judged.streams.forgotten,
            streams=judged.streams.written,
        )
        with self._writer.discarded_if_not_done(files):
            outcome = send(self._database, committer, transaction, [relation.uuid])
        match outcome:
            case Committed():
                subject.remember(file)
                self._answer_all(subject, judged, file.location)
                base, metadata = judged.base, file.metadata
                self._writer.discard_later(lambda: subject.superseded(base, metadata))
                return judged.postponed, 0
            case SwapLost():
                self._writer.discard(files)
                return judged.requests, 1
            case KeysTaken(rows):
                self._writer.discard(files)
                return self._replay_taken(judged.requests, rows), 0
            case Refused(_, error):
                self._writer.discard(files)
                return self._one_by_one(subject, judged, error), 0

    def _drop_failed(
        self, judged: _Round[M, R], failed: dict[str, Exception], metadata_location: str
    ) -> list[Pending[R]]:
        """Takes out the requests whose own files could not be written; the rest goes on. The
        swap was never sent, so each of them may simply be sent again."""
        if metadata_location in failed:
            cause = failed[metadata_location]
            raise not_written("the metadata file could not be written", cause) from cause
        out: set[int] = set()
        for one in judged.accepted:
            broken = [failed[name] for name, _ in one.applied.files if name in failed]
            if broken:
                out.add(id(one.pending))
                self._reject(one.pending, not_written("a file could not be written", broken[0]))
        return [pending for pending in judged.requests if id(pending) not in out]

    def _one_by_one(
        self, subject: Subject[M, R], judged: _Round[M, R], error: FrazilError
    ) -> list[Pending[R]]:
        """The database refused the swap (a location taken by another table): find out whose
        fault it is by committing one at a time."""
        everyone = judged.requests
        if len(everyone) == 1:
            self._reject(everyone[0], error)
            return []
        for pending in everyone:
            self.run(subject, judged.relation.identifier, [pending])
        return []

    # --- answers -----------------------------------------------------------------------------

    def _answer_all(self, subject: Subject[M, R], judged: _Round[M, R], location: str) -> None:
        identifier = judged.relation.identifier
        for one in judged.accepted:
            answer = subject.answer(identifier, location, one.applied)
            if not judged.changed:
                # Nothing was swapped, so the key could not be written along with it.
                self._idempotency.finalise(_key_rows(one, judged.relation))
            _resolve(one.pending, answer)
        for pending, error in judged.rejected:
            if isinstance(error, CommitFailed) and subject.came_late(pending.request):
                self._refused_late(identifier)
            self._reject(pending, error)

    def _location_now(self, judged: _Round[M, R]) -> str:
        """Where nothing was swapped, a stream's row may be newer than the head that was loaded
        before it: the answer must hold the snapshots that it names."""
        relation = judged.relation
        if any(one.applied.already_committed for one in judged.accepted):
            relation = self._database.relation_by_uuid(relation.uuid) or relation
        return relation.metadata_location

    def _reject(self, pending: Pending[Any], error: FrazilError) -> None:
        self._idempotency.refuse(pending.future, pending.context, error)

    def _without_finalised(self, waiting: list[Pending[R]]) -> list[Pending[R]]:
        """Another replica may have finished the same request in the meantime."""
        rows = [row for p in waiting if (row := self._idempotency.find(p.context)) is not None]
        return self._replay_taken(waiting, tuple(rows))

    def _replay_taken(
        self, waiting: Sequence[Pending[R]], rows: tuple[KeyRow, ...]
    ) -> list[Pending[R]]:
        taken = {(row.principal, row.key): row for row in rows}
        still: list[Pending[R]] = []
        for pending in waiting:
            key = pending.context.key
            row = key and taken.get((pending.context.principal, key.key))
            if row:
                self._idempotency.replay_into(pending.future, pending.context, row)
            else:
                still.append(pending)
        return still

    def _events(self, judged: _Round[M, R], location: str) -> Iterator[EventRow]:
        for number, one in enumerate(judged.changed, start=1):
            payload = commit_payload(one.pending.request, one.applied.committed, location)
            row = moved(judged.relation, location, number)
            yield event(one.pending.context, row, "commit", payload)


def moved(relation: Relation, location: str, requests: int) -> Relation:
    return Relation(
        kind=relation.kind,
        identifier=relation.identifier,
        uuid=relation.uuid,
        metadata_location=location,
        version=relation.version + requests,
    )


def _pace(ahead_ms: int, requests: int) -> None:
    """Every snapshot is at least a millisecond younger than its parent. Where more come in a second
    than it has milliseconds, or another clock is ahead, the table's times run into the future: then
    a group takes as long as the time that it uses up."""
    if ahead_ms > MAX_AHEAD_MS:
        time.sleep(min(requests, ahead_ms - MAX_AHEAD_MS) / 1000)


def _unanswered(group: Sequence[Pending[R]]) -> list[Pending[R]]:
    return [pending for pending in group if not pending.future.done()]


def _key_rows(one: _Accepted[M, R], relation: Relation) -> tuple[KeyRow, ...]:
    return commit_rows(
        one.pending.context,
        relation.uuid,
        committed_json(one.applied.committed),
        in_transaction=one.pending.in_transaction,
        already_committed=one.applied.already_committed,
    )


def _resolve(pending: Pending[Any], answer: Answer) -> None:
    if pending.in_transaction and isinstance(answer, TableAnswer):
        answer = TransactionAnswer((answer,))
    pending.future.set_result(answer)

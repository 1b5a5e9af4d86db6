"""A batch: requests for one table or view, or one transaction over several tables.

The requests of a batch are applied one after another to the metadata in memory. A request that
fails its checks does not affect the others. All accepted requests share one metadata file for
each table and one swap, and each gets its own answer. A transaction is a batch of one request
with several tables. Either all its tables change or none, and nothing in it is rebased.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from frazil.commit.pipeline.catalog_answers import Answer, TableAnswer, TransactionAnswer
from frazil.commit.pipeline.clock_watch import TOLERANCE_MS, ClockWatch
from frazil.commit.pipeline.created_tables import CreatedTable
from frazil.commit.pipeline.idempotency import KeptCommit, commit_row, transaction_row
from frazil.commit.pipeline.pending_requests import Attempt, Outcome, PendingCommit, Work
from frazil.commit.pipeline.relation_kinds import RelationChange, updates_of
from frazil.commit.pipeline.table_queues import Pauses
from frazil.commit.snapshot.apply_request import Applied
from frazil.commit.snapshot.commit_environment import Environment, Environments, now_ms
from frazil.commit.snapshot.file_writer import FileWriter, NextFile, Writing
from frazil.commit.snapshot.stream_epochs import Streams, committed_json
from frazil.db.base import (
    Change,
    CreateRelation,
    EventRow,
    KeyRow,
    Relation,
    SwapRelation,
    Transaction,
)
from frazil.db.housekeeping_changes import HousekeepingChange
from frazil.db.rows import Database
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier

# If a table's timestamps are further ahead of the clock, its commits slow down.
MAX_AHEAD_MS = 1000
# The time for checking requests. The rest of the batch waits for the next round.
MAX_JUDGING_S = 1.0


@dataclass(frozen=True, slots=True)
class BatchTools:
    """The services that every batch uses."""

    database: Database
    writer: FileWriter
    environments: Environments
    pauses: Pauses
    clock: ClockWatch


@dataclass(frozen=True, slots=True)
class _Accepted:
    """An accepted request, with the result for each of its tables."""

    pending: PendingCommit
    applied: tuple[Applied[Any], ...]


@dataclass(slots=True)
class _Head:
    """A table or view during a round: its row, and its metadata after the accepted requests."""

    identifier: Identifier
    row: Relation | None
    """None if the relation does not exist or is being created."""
    base: Any
    """The metadata that was loaded."""
    state: Any
    environment: Environment
    streams: Streams
    accepted: list[tuple[PendingCommit, RelationChange, Applied[Any]]] = field(default_factory=list)
    """The requests that changed this table or view."""
    created: CreatedTable | None = None
    file: NextFile[Any] | None = None
    """The metadata file that the round writes."""

    @property
    def new_row(self) -> Relation:
        """The row after the swap."""
        if self.created is not None:
            return self.created.relation
        assert self.row is not None
        if self.file is None:
            return self.row
        return _moved(self.row, self.file.location, len(self.accepted))


class Batch:
    """Work for the commit loop: commits that share one transaction."""

    def __init__(self, tools: BatchTools, requests: Sequence[PendingCommit]) -> None:
        self._tools = tools
        self._requests = requests
        self._kind = requests[0].kind
        self.identifiers = [change.identifier for change in requests[0].changes]

    def waiting(self) -> list[PendingCommit]:
        return [pending for pending in self._requests if not pending.future.done()]

    def split(self) -> Sequence[Work]:
        return [Batch(self._tools, [pending]) for pending in self.waiting()]

    def attempt(self, rows: Sequence[Relation | None], writing: Writing) -> Attempt:
        waiting = self.waiting()
        heads = [
            self._head(identifier, row)
            for identifier, row in zip(self.identifiers, rows, strict=True)
        ]
        times_ms = [0 if head.base is None else self._kind.time_ms(head.base) for head in heads]
        ahead_ms = max(times_ms) - now_ms()
        if ahead_ms > TOLERANCE_MS or self._tools.clock.tables_ahead:
            self._tools.clock.saw_tables(zip(self.identifiers, times_ms, strict=True))
        _pace(ahead_ms, len(waiting))
        accepted, rejected = self._judge(heads, waiting, writing)
        changed = sorted(
            (head for head in heads if head.accepted), key=lambda head: head.new_row.uuid
        )
        for head in changed:
            head.file = self._next_file(head)
        self._reload_repeated(heads, accepted)
        keys = tuple(row for item in accepted for row in _key_rows(item, heads))
        return Attempt(
            outcomes=lambda: self._outcomes(heads, accepted, rejected),
            transaction=self._transaction(changed, keys) if changed or keys else None,
            files={head.file.location: head.file.chunks for head in changed if head.file},
            file_owners={
                location: item.pending
                for item in accepted
                for applied in item.applied
                for location, _ in applied.files
            },
        )

    # --- load --------------------------------------------------------------------------------

    def _head(self, identifier: Identifier, row: Relation | None) -> _Head:
        kind = self._kind
        if row is not None and row.identifier != identifier:
            row = None  # The relation was renamed after its name was looked up.
        base = None
        if row is not None and row.kind is kind.kind:
            base = kind.load(row.metadata_location)
        table_uuid = "" if row is None else row.uuid
        streams = Streams(table_uuid, self._tools.database.stream)
        environment = self._tools.environments.round(table_uuid, streams)
        return _Head(identifier, row, base, base, environment, streams)

    # --- judge -------------------------------------------------------------------------------

    def _judge(
        self, heads: Sequence[_Head], waiting: Sequence[PendingCommit], writing: Writing
    ) -> tuple[list[_Accepted], list[tuple[PendingCommit, FrazilError]]]:
        """Apply the requests in order. When the time is up, the rest waits for the next round,
        so that the first requests are not delayed by all others."""
        accepted: list[_Accepted] = []
        rejected: list[tuple[PendingCommit, FrazilError]] = []
        # The sort is stable, so requests of equal priority stay in the order of arrival.
        in_order = sorted(waiting, key=lambda pending: not self._goes_first(heads, pending))
        time_is_up = time.monotonic() + MAX_JUDGING_S
        for number, pending in enumerate(in_order, start=1):
            if accepted and time.monotonic() > time_is_up:
                break
            try:
                # Each snapshot of a group gets a different time. The last one gets the current
                # time.
                applied = self._applied(heads, pending, number - len(in_order))
            except FrazilError as error:
                rejected.append((pending, error))
                continue
            accepted.append(_Accepted(pending, applied))
            self._accept(heads, pending, applied, writing)
        return accepted, rejected

    def _goes_first(self, heads: Sequence[_Head], pending: PendingCommit) -> bool:
        """Return whether a request must be applied first, because any commit before it makes it
        stale."""
        base = heads[0].base
        return base is not None and self._kind.is_exclusive(base, pending.changes[0].request)

    def _applied(
        self, heads: Sequence[_Head], pending: PendingCommit, offset_ms: int
    ) -> tuple[Applied[Any], ...]:
        """Return the result of a request for each of its tables. `offset_ms` is the difference of
        its time to that of the round."""
        alone = len(heads) == 1
        if not alone and all(map(self._happened, heads, pending.changes)):
            return tuple(Applied(head.state) for head in heads)
        environments = _environments(heads, pending, offset_ms)
        applied = tuple(
            self._applied_to(head, change, environment, alone)
            for head, change, environment in zip(heads, pending.changes, environments, strict=True)
        )
        for head in heads:
            if head.created is not None:
                self._kind.make_folders(head.created)
        return applied

    def _applied_to(
        self, head: _Head, change: RelationChange, environment: Environment, alone: bool
    ) -> Applied[Any]:
        applied, head.created = self._kind.apply(head.state, change, environment, alone=alone)
        if head.created is None and head.row is not None:
            # Check locations here, because the transaction would fail for the whole batch.
            for location in self._kind.owned_if_changed(head.state, applied.metadata) or ():
                self._tools.database.check_location_is_free(location, head.row.uuid)
        return applied

    def _happened(self, head: _Head, change: RelationChange) -> bool:
        return head.base is not None and self._kind.has_happened(head.base, change.request)

    def _accept(
        self,
        heads: Sequence[_Head],
        pending: PendingCommit,
        applied: Sequence[Applied[Any]],
        writing: Writing,
    ) -> None:
        for head, change, item in zip(heads, pending.changes, applied, strict=True):
            writing.add(item.files)
            head.environment.pending.update(item.files)
            moved_back = self._kind.branches_moved_back(head.state, item.metadata)
            head.streams.accept(moved_back, item.streams)
            if item.metadata is not head.state:
                head.accepted.append((pending, change, item))
                head.state = item.metadata

    def _reload_repeated(self, heads: Sequence[_Head], accepted: Sequence[_Accepted]) -> None:
        """Load again the rows of tables that only answer a repeated epoch.

        A stream's row may be newer than the loaded head, and the metadata of the answer must
        contain the snapshots that the stream's row names. This is done before the transaction: once
        it has committed, no read may fail its answer.
        """
        for index, head in enumerate(heads):
            repeated = any(item.applied[index].already_committed for item in accepted)
            if repeated and not head.accepted:
                assert head.row is not None
                head.row = self._tools.database.relation_by_uuid(head.row.uuid) or head.row
                self._kind.load(head.row.metadata_location)

    # --- swap --------------------------------------------------------------------------------

    def _next_file(self, head: _Head) -> NextFile[Any]:
        if head.created is not None:
            return head.created.file
        assert head.row is not None
        return self._kind.next_file(head.base, head.row.metadata_location, head.state)

    def _transaction(self, changed: Sequence[_Head], keys: tuple[KeyRow, ...]) -> Transaction:
        return Transaction(
            commit_id=str(uuid.uuid4()),
            changes=tuple(map(self._change, changed)),
            keys=keys,
            events=tuple(row for head in changed for row in _events(head)),
            forget_streams=tuple(row for head in changed for row in head.streams.forgotten),
            streams=tuple(row for head in changed for row in head.streams.written),
            housekeeping=tuple(row for head in changed for row in self._recorded(head)),
        )

    def _recorded(self, head: _Head) -> Iterable[HousekeepingChange]:
        assert head.file is not None
        accepted = [(change, applied) for _, change, applied in head.accepted]
        written = [location for _, applied in accepted for location, _ in applied.files]
        written.append(head.file.location)
        return self._kind.recorded(
            head.base, head.file.metadata, head.new_row.uuid, accepted, written
        )

    def _change(self, head: _Head) -> Change:
        if head.created is not None:
            return CreateRelation(head.created.relation, head.created.locations)
        assert head.row is not None
        locations = self._kind.owned_if_changed(head.base, head.state)
        return SwapRelation(head.row, head.new_row, locations)

    # --- answer ------------------------------------------------------------------------------

    def _outcomes(
        self,
        heads: Sequence[_Head],
        accepted: Sequence[_Accepted],
        rejected: Sequence[tuple[PendingCommit, FrazilError]],
    ) -> Iterator[Outcome]:
        for head in heads:
            if head.file is not None:
                self._kind.remember(head.file)
        for item in accepted:
            answers = [
                self._kind.answer(head.identifier, head.new_row.metadata_location, applied)
                for head, applied in zip(heads, item.applied, strict=True)
            ]
            yield item.pending, _answer(item.pending, answers)
        for pending, error in rejected:
            self._note_stale(pending, error)
            yield pending, error
        for head in heads:
            if head.base is not None and head.file is not None:
                superseded = partial(self._kind.superseded, head.base, head.file.metadata)
                self._tools.writer.discard_later(superseded)

    def _note_stale(self, pending: PendingCommit, error: FrazilError) -> None:
        """Pause commits that can wait after others have overtaken one that cannot."""
        if len(pending.changes) == 1:
            (change,) = pending.changes
            if self._kind.is_overtaken(change.request, error):
                self._tools.pauses.refused(change.identifier)


def _environments(
    heads: Sequence[_Head], pending: PendingCommit, offset_ms: int
) -> Iterator[Environment]:
    """Yield the environment for each table. In a transaction each table gets its own snapshot
    ids."""
    if len(heads) == 1:
        (shared,) = (head.environment for head in heads)
        yield shared.of(pending.commit_uuid, shared.now_ms + offset_ms)
        return
    namespace = uuid.UUID(bytes=pending.commit_uuid)
    for index, head in enumerate(heads):
        commit_uuid = uuid.uuid5(namespace, str(index)).bytes
        environment = head.environment.of(commit_uuid, head.environment.now_ms)
        yield replace(environment, json_prefix=f"table-changes[{index}].")


def _pace(ahead_ms: int, requests: int) -> None:
    """Wait one millisecond per request if the timestamps of the table are ahead of the clock.

    Every snapshot is at least a millisecond newer than its parent. If there are more than a
    thousand per second, or another clock is ahead, the timestamps move into the future.
    """
    if ahead_ms > MAX_AHEAD_MS:
        time.sleep(min(requests, ahead_ms - MAX_AHEAD_MS) / 1000)


def _moved(row: Relation, location: str, requests: int) -> Relation:
    return replace(row, metadata_location=location, version=row.version + requests)


def _events(head: _Head) -> Iterator[EventRow]:
    """Yield one event for each request: the kinds of its updates and the snapshots they made. The
    version counts requests, not swaps."""
    assert head.file is not None
    location = head.file.location
    for number, (pending, change, applied) in enumerate(head.accepted, start=1):
        row = head.new_row if head.row is None else _moved(head.row, location, number)
        operation = "create" if head.row is None else "commit"
        updates = updates_of(change, applied)
        actions = [type(update).__struct_config__.tag for update in updates]
        payload = {
            "metadata-location": location,
            "updates": actions,
            "committed": applied.committed,
        }
        yield pending.context.event(row, operation, payload)


def _key_rows(item: _Accepted, heads: Sequence[_Head]) -> tuple[KeyRow, ...]:
    context = item.pending.context
    if context.key is None:
        return ()
    kept = [
        KeptCommit(
            uuid=head.new_row.uuid,
            committed=msgspec.Raw(committed_json(applied.committed)),
            already_committed=applied.already_committed,
        )
        for head, applied in zip(heads, item.applied, strict=True)
    ]
    if item.pending.in_transaction:
        return transaction_row(context, kept)
    return commit_row(context, kept[0])


def _answer(pending: PendingCommit, answers: Sequence[Answer]) -> Answer:
    if not pending.in_transaction:
        return answers[0]
    return TransactionAnswer(tuple(answer for answer in answers if isinstance(answer, TableAnswer)))

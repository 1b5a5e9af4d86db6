"""A commit over several tables: all of them move, or none.

It goes alone, holding the queues of its tables. The row of each table is swapped in the same
database transaction, in the order of the table uuids, so that two replicas can never wait for
each other's rows. Nothing is rebased here.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from frazil.commit.pipeline.catalog_answers import LoadedTable, TableAnswer, TransactionAnswer
from frazil.commit.pipeline.commit_loop import (
    GIVE_UP_AFTER_S,
    LOCK_AFTER_LOST,
    LOCK_TIMEOUT_S,
    moved,
)
from frazil.commit.pipeline.idempotency import Idempotency
from frazil.commit.pipeline.outbox_events import commit_payload, event
from frazil.commit.pipeline.pending_requests import Pending, transaction_rows
from frazil.commit.pipeline.relation_kinds import NextFile, TableSubject, missing
from frazil.commit.pipeline.swap import Committer, send
from frazil.commit.pipeline.table_creation import created_by_commit, is_create
from frazil.commit.snapshot.apply_request import (
    Applied,
    AppliedTable,
    added_snapshots,
    already_happened,
    apply_table_commit_as_is,
)
from frazil.commit.snapshot.commit_environment import Environments, now_ms
from frazil.commit.snapshot.committed_snapshots import KeptCommit, committed_json
from frazil.commit.snapshot.file_writer import FileWriter, not_written
from frazil.commit.snapshot.stream_epochs import Streams, branches_moved_back, repeated_epoch
from frazil.commit.snapshot.table_locations import Territory
from frazil.db.base import (
    Change,
    Committed,
    CreateRelation,
    Database,
    DatabaseUnavailable,
    EventRow,
    KeyRow,
    KeysTaken,
    Kind,
    Refused,
    Relation,
    SwapLost,
    SwapRelation,
    Transaction,
)
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.metadata_cache import CachedTable, MetadataCache
from frazil.wire.errors import AlreadyExists, CommitFailed, FrazilError, TooManyRequests
from frazil.wire.identifiers import Identifier
from frazil.wire.rest_messages import CommitTableRequest

logger = logging.getLogger("frazil.commit")


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a transaction."""

    identifier: Identifier
    request: CommitTableRequest


@dataclass(frozen=True, slots=True)
class _Part:
    """One table's part, judged: what it becomes."""

    change: TableChange
    relation: Relation
    """The row as it will be."""
    applied: AppliedTable
    base: TableMetadata | None
    file: NextFile[TableMetadata] | None
    """None where this table does not change."""
    swap: Change | None
    streams: Streams | None = None


class MultiTableCommit:
    def __init__(
        self,
        database: Database,
        writer: FileWriter,
        cache: MetadataCache,
        territory: Territory,
        idempotency: Idempotency,
        subject: TableSubject,
        environments: Environments,
    ) -> None:
        self._environments = environments
        self._database = database
        self._writer = writer
        self._cache = cache
        self._territory = territory
        self._idempotency = idempotency
        self._subject = subject

    def run(self, pending: Pending[Sequence[TableChange]]) -> None:
        """Answers the request, whatever happens."""
        try:
            self._rounds(pending)
        except FrazilError as error:
            self._idempotency.refuse(pending.future, pending.context, error)
        except Exception as error:
            logger.exception("transaction failed")
            pending.future.set_exception(error)

    def _rounds(self, pending: Pending[Sequence[TableChange]]) -> None:
        lost = 0
        give_up = time.monotonic() + GIVE_UP_AFTER_S
        while not pending.future.done():
            row = self._idempotency.find(pending.context) if lost else None
            if row is not None:
                self._idempotency.replay_into(pending.future, pending.context, row)
                return
            with self._held(pending.request, lost) as (rows, committer):
                lost += self._round(pending, rows, committer)
            if time.monotonic() > give_up and not pending.future.done():
                raise TooManyRequests("too many others commit to these tables: send it again")

    @contextmanager
    def _held(
        self, changes: Sequence[TableChange], lost: int
    ) -> Iterator[tuple[list[Relation | None], Committer]]:
        try:
            rows = [self._database.relation(change.identifier) for change in changes]
            uuids = [row.uuid for row in rows if row is not None]
            if lost < LOCK_AFTER_LOST or not uuids:
                yield rows, self._database
                return
            with self._database.locked(sorted(uuids), LOCK_TIMEOUT_S) as session:
                yield [row and session.relation_by_uuid(row.uuid) for row in rows], session
        except DatabaseUnavailable as error:
            raise TooManyRequests(f"the database is not available: {error}") from error

    def _round(
        self,
        pending: Pending[Sequence[TableChange]],
        rows: Sequence[Relation | None],
        committer: Committer,
    ) -> int:
        """One attempt; returns how many swaps were lost (0 or 1)."""
        parts = self._judge(pending.request, rows, pending.commit_uuid)
        files = {name: chunks for part in parts for name, chunks in _files(part)}
        if not files:
            self._idempotency.finalise(_key_rows(pending, parts))
            self._answer(pending, parts)
            return 0
        failed = self._writer.write(files)
        if failed:
            self._writer.discard(files)
            raise not_written("a file could not be written", next(iter(failed.values())))
        changed = sorted((p for p in parts if p.swap), key=lambda part: part.relation.uuid)
        transaction = Transaction(
            commit_id=str(uuid.uuid4()),
            changes=tuple(part.swap for part in changed if part.swap),
            keys=_key_rows(pending, parts),
            events=tuple(_event(pending, part) for part in changed),
            forget_streams=tuple(
                row for part in changed if part.streams for row in part.streams.forgotten
            ),
            streams=tuple(row for part in changed if part.streams for row in part.streams.written),
        )
        uuids = [part.relation.uuid for part in changed]
        with self._writer.discarded_if_not_done(files):
            outcome = send(self._database, committer, transaction, uuids)
        match outcome:
            case Committed():
                self._committed(pending, parts)
                return 0
            case SwapLost():
                self._writer.discard(files)
                return 1
            case KeysTaken(taken):
                self._writer.discard(files)
                self._idempotency.replay_into(pending.future, pending.context, taken[0])
                return 0
            case Refused(_, error):
                self._writer.discard(files)
                raise error

    def _judge(
        self, changes: Sequence[TableChange], rows: Sequence[Relation | None], commit_uuid: bytes
    ) -> list[_Part]:
        present = list(zip(changes, rows, strict=True))
        if all(self._happened(change, row) for change, row in present):
            return [
                _Part(change, row, Applied(state, ()), state, None, None)
                for change, row in present
                if row is not None
                for state in (self._subject.load(row.metadata_location),)
            ]
        # Each table's snapshots have ids of their own.
        uuids = (uuid.uuid5(uuid.UUID(bytes=commit_uuid), str(at)).bytes for at in range(len(rows)))
        return [
            self._judge_one(change, row, own, f"table-changes[{at}].")
            for at, ((change, row), own) in enumerate(zip(present, uuids, strict=True))
        ]

    def _happened(self, change: TableChange, row: Relation | None) -> bool:
        if row is None or row.kind is not Kind.TABLE:
            return False
        state = self._subject.load(row.metadata_location)
        updates = change.request.updates
        try:
            return already_happened(state, updates, added_snapshots(updates))
        except CommitFailed:
            # For this table the request is stale: its requirements will say so.
            return False

    def _judge_one(
        self, change: TableChange, row: Relation | None, commit_uuid: bytes, place: str
    ) -> _Part:
        if is_create(change.request):
            return self._judge_create(change, row, commit_uuid, place)
        if row is None or row.kind is not Kind.TABLE or row.identifier != change.identifier:
            raise missing(Kind.TABLE, change.identifier)
        base = self._subject.load(row.metadata_location)
        streams = Streams(row.uuid, self._database.stream)
        environment = self._environments.round(row.uuid, streams).of(commit_uuid, now_ms())
        environment = replace(environment, place=place)
        applied = apply_table_commit_as_is(base, change.request, environment)
        streams.accept(branches_moved_back(base, applied.metadata), applied.streams)
        self._territory.check_statistics(base, applied.metadata)
        if applied.metadata is base:
            return _Part(change, row, applied, base, None, None)
        file = self._subject.next_file(base, row.metadata_location, applied.metadata)
        new = moved(row, file.location, 1)
        locations = self._territory.owned_if_changed(base, applied.metadata)
        return _Part(change, new, applied, base, file, SwapRelation(row, new, locations), streams)

    def _judge_create(
        self, change: TableChange, row: Relation | None, commit_uuid: bytes, place: str
    ) -> _Part:
        if row is not None and row.kind is Kind.VIEW:
            raise AlreadyExists(f"View with same name already exists: {change.identifier}")
        if row is not None:
            return self._judge_repeated(change, row)
        created = created_by_commit(
            change.identifier,
            change.request,
            self._territory,
            self._database.last_version,
            replace(self._environments.round().of(commit_uuid, now_ms()), place=place),
        )
        streams = Streams(created.relation.uuid, self._database.stream)
        streams.accept((), created.applied.streams)
        return _Part(
            change,
            created.relation,
            created.applied,
            None,
            created.file,
            CreateRelation(created.relation, created.locations),
            streams,
        )

    def _judge_repeated(self, change: TableChange, row: Relation) -> _Part:
        """The table is there: right only where a stream sends its first epoch again."""
        state = self._subject.load(row.metadata_location)
        load = Streams(row.uuid, self._database.stream)
        committed = repeated_epoch(state, change.request, load)
        if committed is None:
            raise CommitFailed(f"Requirement failed: table already exists: {change.identifier}")
        applied = Applied(state, committed, already_committed=True)
        return _Part(change, row, applied, state, None, None)

    def _committed(self, pending: Pending[Sequence[TableChange]], parts: Sequence[_Part]) -> None:
        for part in parts:
            if part.file:
                self._cache.remember_table(part.file.location, CachedTable(part.file.metadata))
        self._answer(pending, parts)
        for part in parts:
            if part.base and part.file:
                doomed = self._subject.superseded(part.base, part.file.metadata)
                self._writer.discard(doomed)

    def _answer(self, pending: Pending[Sequence[TableChange]], parts: Sequence[_Part]) -> None:
        pending.future.set_result(
            TransactionAnswer(
                tuple(
                    TableAnswer(
                        LoadedTable(
                            part.change.identifier,
                            self._cache.table(part.relation.metadata_location),
                            part.relation.metadata_location,
                        ),
                        committed_json(part.applied.committed),
                        part.applied.already_committed,
                    )
                    for part in parts
                )
            )
        )


def _files(part: _Part) -> Iterator[tuple[str, Sequence[bytes]]]:
    """What must be durable before the swap."""
    if part.file is not None:
        yield from ((name, [data]) for name, data in part.applied.files)
        yield part.file.location, part.file.chunks


def _event(pending: Pending[Sequence[TableChange]], part: _Part) -> EventRow:
    payload = commit_payload(
        part.change.request, part.applied.committed, part.relation.metadata_location
    )
    operation = "create" if part.base is None else "commit"
    return event(pending.context, part.relation, operation, payload)


def _key_rows(
    pending: Pending[Sequence[TableChange]], parts: Sequence[_Part]
) -> tuple[KeyRow, ...]:
    tables = [
        KeptCommit(
            uuid=part.relation.uuid,
            committed=msgspec.Raw(committed_json(part.applied.committed)),
            already_committed=part.applied.already_committed,
        )
        for part in parts
    ]
    return transaction_rows(pending.context, tables)

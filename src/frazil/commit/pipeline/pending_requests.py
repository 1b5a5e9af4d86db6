"""Defines queued requests and the attempts that execute them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

from frazil.commit.pipeline.catalog_answers import Answer
from frazil.commit.pipeline.relation_kinds import RelationChange, RelationKind
from frazil.commit.snapshot.file_writer import Writing
from frazil.db.base import (
    Change,
    DropRelation,
    EventRow,
    KeyRow,
    Relation,
    SwapRelation,
    Transaction,
)
from frazil.db.housekeeping_changes import HousekeepingChange
from frazil.wire.errors import Forbidden, FrazilError
from frazil.wire.identifiers import Identifier


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's key, and a hash of the method, path and body of its request."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Context:
    """The sender of a request, for logs, idempotency keys and events."""

    principal: str
    request_id: str
    key: IdempotencyKey | None = None
    request_bytes: int = 0
    """The decoded size of the body. Queues have a limit in bytes too."""
    read_only: bool = False
    """Whether the sender may change nothing."""

    def check_may_change(self) -> None:
        """Raise Forbidden if the sender may change nothing."""
        if self.read_only:
            raise Forbidden(
                f"the token {self.principal!r} is read-only: send changes with a token whose entry "
                "does not end with `:read`"
            )

    def event(self, relation: Relation, operation: str, payload: object) -> EventRow:
        """Return the event of a change by this sender. It is written in the transaction of the
        change, and has the version that the relation has after it."""
        return EventRow(
            uuid=relation.uuid,
            version=relation.version,
            kind=relation.kind,
            operation=operation,
            identifier=relation.identifier,
            principal=self.principal,
            request_id=self.request_id,
            payload=msgspec.json.encode(payload),
        )


@dataclass(slots=True, eq=False, kw_only=True)
class Pending:
    """A request and the future of its answer."""

    context: Context
    group_key: Hashable | None = None
    """Requests with the same key may share a swap. With None the request runs alone."""
    can_wait: bool = False
    """Whether the request can be applied to any head, because the server builds its snapshots."""
    future: Future[Answer] = field(default_factory=Future)
    replayed: bool = False
    """Whether the answer is one that was stored for an earlier request with the same key."""

    @property
    def size_bytes(self) -> int:
        return self.context.request_bytes


@dataclass(slots=True, eq=False, kw_only=True)
class PendingCommit(Pending):
    """A commit to one table or view, or a transaction over several tables."""

    kind: RelationKind[Any, Any]
    changes: tuple[RelationChange, ...]
    in_transaction: bool = False
    """Whether the request used the route for transactions, which has a different answer."""
    commit_uuid: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    """Drawn once, so that snapshots have the same ids in every attempt."""
    received_s: float = field(default_factory=time.perf_counter)


Outcome: TypeAlias = tuple[Pending, Answer | FrazilError]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to execute requests: a transaction, its files, and the answers if it commits."""

    outcomes: Callable[[], Iterable[Outcome]]
    """Called after the transaction is committed, or immediately if there is none."""
    transaction: Transaction | None = None
    files: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    """Written before the transaction, in addition to files that are already being written."""
    file_owners: Mapping[str, Pending] = field(default_factory=dict)
    """Files that only one request needs. If any other file is missing, the whole attempt fails."""

    @property
    def uuids(self) -> list[str]:
        """The rows to wait for if the answer of the database is lost."""
        changes = () if self.transaction is None else self.transaction.changes
        return [
            change.expected.uuid
            for change in changes
            if isinstance(change, SwapRelation | DropRelation)
        ]


class Work(Protocol):
    """Requests that are executed by one database transaction."""

    @property
    def identifiers(self) -> Sequence[Identifier]:
        """The tables or views whose rows are loaded before each attempt."""

    def waiting(self) -> Sequence[Pending]:
        """Return the requests that have no answer yet."""

    def attempt(self, rows: Sequence[Relation | None], writing: Writing) -> Attempt:
        """Check the waiting requests against the rows. `writing` accepts files that are ready."""

    def split(self) -> Sequence[Work]:
        """Return separate work for each waiting request."""


@dataclass(slots=True, eq=False, kw_only=True)
class Operation(Pending):
    """A change of rows that runs in a transaction of its own, such as a drop."""

    prepare: Callable[[Operation], Attempt]
    """Reads the rows and may refuse the request. It is called again after a lost swap."""
    identifiers: Sequence[Identifier] = ()

    def waiting(self) -> Sequence[Pending]:
        return () if self.future.done() else (self,)

    def attempt(self, rows: Sequence[Relation | None], writing: Writing) -> Attempt:
        return self.prepare(self)

    def split(self) -> Sequence[Work]:
        return (self,)

    def carry_out(
        self,
        changes: Sequence[Change],
        keys: tuple[KeyRow, ...],
        events: Sequence[EventRow],
        answer: Callable[[], Answer],
        *,
        files: Mapping[str, Sequence[bytes]] | None = None,
        forget_streams: tuple[tuple[str, str], ...] = (),
        housekeeping: tuple[HousekeepingChange, ...] = (),
    ) -> Attempt:
        """Return an attempt with these changes."""
        transaction = Transaction(
            str(uuid.uuid4()),
            tuple(changes),
            keys,
            tuple(events),
            forget_streams,
            housekeeping=housekeeping,
        )
        return Attempt(lambda: [(self, answer())], transaction, files or {})

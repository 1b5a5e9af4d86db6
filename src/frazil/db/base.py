"""Defines the rows of the catalog and the one transaction that changes them.

Everything that changes the catalog is a `Transaction`: the changed rows, the commit id that
proves that it happened, the idempotency keys that it answers and the events that it causes, all
or nothing. The outcome is a type, not an exception: `Committed`, `SwapLost`, `KeysTaken` or
`Refused`. Only a lost answer to COMMIT is an exception, `OutcomeUnknown`; `resolve` finds out
what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from frazil.db.failures import Trouble
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier, Namespace

SECRET_BYTES: Final = 32


class Kind(StrEnum):
    """The kind of a relation. Tables and views share one namespace of names."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Relation:
    """The row of a table or view. Its one mutable cell is `metadata_location`."""

    kind: Kind
    identifier: Identifier
    uuid: str
    metadata_location: str
    version: int
    """The number of requests that changed this relation; an event is (uuid, version)."""


# --- what a transaction changes -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """Insert a namespace, and its ancestors that do not exist, without properties."""

    namespace: Namespace
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class SetNamespaceProperties:
    """Replace the properties if they are still `expected`; otherwise the swap is lost."""

    namespace: Namespace
    expected: dict[str, str]
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class DropNamespace:
    """Drop a namespace. Refused with NamespaceNotEmpty if it has tables, views or child
    namespaces."""

    namespace: Namespace


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """Insert a row.

    Refused with NoSuchNamespace or AlreadyExists, or with Forbidden if one of the locations
    equals, lies in or contains a location of another table.
    """

    relation: Relation
    locations: tuple[str, ...] = ()
    """The canonical locations that this table owns; empty for a view."""


@dataclass(frozen=True, slots=True)
class SwapRelation:
    """Compare and swap a row.

    `new` has the uuid of `expected`; name, pointer and version may differ (a rename is a swap
    that changes the name). If the name or the locations change, it is refused as CreateRelation
    is.
    """

    expected: Relation
    new: Relation
    locations: tuple[str, ...] | None = None
    """None leaves them unchanged."""


@dataclass(frozen=True, slots=True)
class DropRelation:
    expected: Relation


Change: TypeAlias = (
    CreateNamespace
    | SetNamespaceProperties
    | DropNamespace
    | CreateRelation
    | SwapRelation
    | DropRelation
)


@dataclass(frozen=True, slots=True)
class KeyRow:
    """The stored outcome of a finished request under its Idempotency-Key, enough to answer
    again."""

    principal: str
    key: str
    fingerprint: str
    """A hash of method, path and body: the same key with another request is an error."""
    status: int
    body: bytes | None = None
    """The body of an error, or of a small answer without table metadata."""
    relation_uuid: str | None = None
    """The table or view whose current metadata a replay returns."""
    committed: bytes | None = None
    """The `committed` list of the answer, as JSON."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """A row of the outbox, unique by (uuid, version). A relay assigns positions later."""

    uuid: str
    version: int
    kind: Kind
    operation: str
    identifier: Identifier
    principal: str
    request_id: str
    payload: bytes
    """JSON that describes what happened; its shape depends on the operation."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The highest epoch that a stream has committed to a branch of a table."""

    uuid: str
    """The uuid of the table."""
    branch: str
    id: str
    epoch: int
    committed: bytes
    """The `committed` list of that epoch's answer, as JSON."""


@dataclass(frozen=True, slots=True)
class Transaction:
    commit_id: str
    changes: tuple[Change, ...]
    keys: tuple[KeyRow, ...] = ()
    events: tuple[EventRow, ...] = ()
    forget_streams: tuple[tuple[str, str], ...] = ()
    """(uuid, branch) pairs whose stream rows are deleted before `streams` are written. Dropping a
    table deletes its rows by itself.
    """
    streams: tuple[StreamRow, ...] = ()
    """Rows of tables that this transaction swaps or creates; the swap separates the writers. A row
    whose epoch is not above the stored one changes nothing.
    """


# --- how a transaction ends -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    pass


@dataclass(frozen=True, slots=True)
class SwapLost:
    """The row of change `index` was no longer as expected: reload and apply again."""

    index: int


@dataclass(frozen=True, slots=True)
class KeysTaken:
    """Another replica has finalised these keys: nothing was changed."""

    keys: tuple[KeyRow, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Change `index` conflicts with the rows of the catalog; nothing was changed."""

    index: int
    error: FrazilError


TransactionOutcome: TypeAlias = Committed | SwapLost | KeysTaken | Refused


class DatabaseFailure(Exception):
    """The database could not do what it was asked."""

    def __init__(self, message: str, trouble: Trouble | None = None) -> None:
        super().__init__(message)
        self.trouble = trouble or Trouble()


class OutcomeUnknown(DatabaseFailure):
    """COMMIT was sent, and its answer was lost or proves nothing. `Database.resolve` finds out."""


class DatabaseUnavailable(DatabaseFailure):
    """The database could not be reached, or could not write; nothing of this call has happened."""


class CommitIdTaken(DatabaseUnavailable):
    """This commit id was used before, or `resolve` has answered that it never commits.

    Nothing of this call has happened.
    """


class DatabaseRefused(Exception):
    """This database cannot be used: another process uses it, it is too old or too new, or its URL
    is not reachable. The message says what to do.
    """


class Session(Protocol):
    """Reads, and one write, that see the locked rows.

    After any outcome but `Committed` the rows stay locked, so that the rest of a group can be
    applied again. After `Committed` the session accepts no more writes.
    """

    def relation_by_uuid(self, uuid: str) -> Relation | None: ...

    def stream(self, uuid: str, branch: str, stream_id: str) -> StreamRow | None: ...

    def commit(self, transaction: Transaction) -> TransactionOutcome: ...


class Database(Protocol):
    """SQLite or PostgreSQL with the same behavior. All methods block and are thread-safe."""

    def migrate(self) -> int:
        """Update the schema to this version, under a lock; refuse a newer schema.

        Return the version before, 0 if the database was empty.
        """

    def ping(self) -> None:
        """Raise DatabaseUnavailable if the database does not answer."""

    def clock_skew_ms(self, now_ms: int) -> int:
        """Return how far the database's clock is ahead of this time.

        SQLite has no other clock: the newest row is compared, and only if it is ahead.
        """

    def prove_writable(self) -> None:
        """Write and delete as much as a commit writes. Raises DatabaseUnavailable."""

    # namespaces
    def namespace_properties(self, namespace: Namespace) -> dict[str, str] | None: ...

    def list_namespaces(
        self, parent: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Return a page of the direct children of `parent`, and the `after` of the next page.

        The children are their last levels, ordered by code point, strictly after `after`; () is
        the root. The second value is None on the last page. Every ancestor of a namespace exists.
        """

    # tables and views
    def relation(self, identifier: Identifier) -> Relation | None: ...

    def relation_by_uuid(self, uuid: str) -> Relation | None: ...

    def last_version(self, uuid: str) -> int:
        """Return the highest version of any event of this uuid, 0 if there is none.

        A relation that is registered again under its old uuid continues counting from here.
        """

    def list_relations(
        self, kind: Kind, namespace: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Return a page of names, ordered by code point, as `list_namespaces` does."""

    def owner_of_location(self, location: str) -> str | None:
        """Return the uuid of the table that owns this canonical location or one that contains
        it."""

    def check_location_is_free(self, location: str, uuid: str) -> None:
        """Raise Forbidden or BadRequest, as `commit` would, if this table may not own the location.

        Callers ask before they write files; `commit` decides again.
        """

    # the one write
    def commit(self, transaction: Transaction) -> TransactionOutcome:
        """Commit. Raises DatabaseUnavailable if nothing happened, OutcomeUnknown if it may have."""

    def resolve(self, commit_id: str, uuids: Sequence[str], timeout_s: float) -> bool:
        """Return whether the transaction with an unknown outcome was committed.

        On a new connection, wait for the rows of `uuids`, then claim the commit id, so that a
        transaction that is still running can never commit. Raises DatabaseUnavailable if the
        answer is not known in time.
        """

    def locked(self, uuids: Sequence[str], timeout_s: float) -> AbstractContextManager[Session]:
        """Lock the rows of these relations, in the order of their uuids, until the block ends.

        Raises DatabaseUnavailable if the locks are not free in time.
        """

    # streams
    def stream(self, uuid: str, branch: str, stream_id: str) -> StreamRow | None:
        """Return what the stream has committed to this branch; None if nothing is stored."""

    # idempotency keys
    def key(self, principal: str, key: str) -> KeyRow | None: ...

    def finalise(self, row: KeyRow) -> KeyRow:
        """Insert the row, or return the row that already exists."""

    def forget_keys(self, older_than_s: int) -> int:
        """Delete rows older than this by the database's own clock; return how many."""

    # commit ids
    def forget_commits(self, older_than_s: int) -> int:
        """Delete commit ids older than this by the database's own clock; return how many.

        Keep them for days, not minutes: an id that somebody can still pass to `resolve` must not
        be deleted.
        """

    # signing secrets
    def secret(self, name: str) -> bytes:
        """Return SECRET_BYTES random bytes, drawn once for all processes on this database."""

    # events
    def assign_positions(self, limit: int) -> int:
        """Assign the next global positions to outbox rows without one, under a lock; return how
        many."""

    def events(self, after_position: int, limit: int) -> Sequence[tuple[int, EventRow]]:
        """Return events that have a position, ordered by it."""

    def close(self) -> None: ...

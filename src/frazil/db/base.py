"""The rows of the catalog, and the one transaction that changes them.

Everything that changes the catalog is a `Transaction`: the rows it changes, the commit id that
proves it happened, the idempotency keys it answers and the events it causes, all or nothing.
The outcome is a type, not an exception: `Committed`, `SwapLost`, `KeysTaken` or a `Refused`.
Only a lost answer to COMMIT is an exception, `OutcomeUnknown`, and `resolve` finds the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier, Namespace

SECRET_BYTES: Final = 32


class Kind(StrEnum):
    """Tables and views share one space of names."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table's or view's row: the one mutable cell of it is `metadata_location`."""

    kind: Kind
    identifier: Identifier
    uuid: str
    metadata_location: str
    version: int
    """Counts the requests that changed this relation; an event is (uuid, version)."""


# --- what a transaction changes -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    namespace: Namespace
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class SetNamespaceProperties:
    """Replaces the properties if they are still `expected`; otherwise the swap is lost."""

    namespace: Namespace
    expected: dict[str, str]
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class DropNamespace:
    """Refused with NamespaceNotEmpty while it holds tables, views or child namespaces."""

    namespace: Namespace


@dataclass(frozen=True, slots=True)
class CreateRelation:
    """A new row. Refused with NoSuchNamespace, AlreadyExists, or Forbidden when one of the
    locations is, lies in, or holds a location of another table."""

    relation: Relation
    locations: tuple[str, ...] = ()
    """Canonical locations this table owns; empty for a view."""


@dataclass(frozen=True, slots=True)
class SwapRelation:
    """The compare-and-swap. `new` has the uuid of `expected`; name, pointer and version may
    differ (a rename is a swap that changes the name). Refused as CreateRelation is where the
    name or the locations change."""

    expected: Relation
    new: Relation
    locations: tuple[str, ...] | None = None
    """None: they stay as they are."""


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
    """What is kept of a finished request under its Idempotency-Key: enough to answer again."""

    principal: str
    key: str
    fingerprint: str
    """A hash over method, path and body: the same key with another request is an error."""
    status: int
    body: bytes | None = None
    """The answer where it is small and holds no table metadata; an error's body."""
    relation_uuid: str | None = None
    """The table or view whose current metadata a replay renders."""
    committed: bytes | None = None
    """The `committed` list of the answer, as JSON."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """An outbox row, unique by (uuid, version). A relay assigns positions later."""

    uuid: str
    version: int
    kind: Kind
    operation: str
    identifier: Identifier
    principal: str
    request_id: str
    payload: bytes
    """JSON; what happened, by operation."""


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The highest epoch that a stream has committed to a branch of a table."""

    uuid: str
    """The table's."""
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
    """(uuid, branch) whose stream rows are deleted, before `streams` are written. Those of a table
    that is dropped go by themselves."""
    streams: tuple[StreamRow, ...] = ()
    """Of tables that this transaction swaps or creates: the swap is what keeps writers apart.
    A row whose epoch is not above the one that is there changes nothing."""


# --- how a transaction ends -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Committed:
    pass


@dataclass(frozen=True, slots=True)
class SwapLost:
    """The row of change number `index` was no longer as expected: reload and apply again."""

    index: int


@dataclass(frozen=True, slots=True)
class KeysTaken:
    """These keys had been finalised by another replica: nothing was changed."""

    keys: tuple[KeyRow, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Change number `index` does not fit the catalog's rows; nothing was changed."""

    index: int
    error: FrazilError


TransactionOutcome: TypeAlias = Committed | SwapLost | KeysTaken | Refused


class OutcomeUnknown(Exception):
    """COMMIT was sent and its answer was lost. `Database.resolve` finds out."""


class DatabaseUnavailable(Exception):
    """The database could not be reached; nothing of this call has happened."""


class CommitIdTaken(DatabaseUnavailable):
    """This commit id was used before, or `resolve` has answered that it never commits; nothing
    of this call has happened."""


class DatabaseRefused(Exception):
    """This database cannot be used as it is: in use by another process, too old, too new, or not
    reachable by the given URL. The message says what to do."""


class Session(Protocol):
    """Reads and one write that see the rows a lock holds.

    After any outcome but `Committed` the rows are still held, so that the rest of a group can be
    applied again; `Committed` ends the session's writing.
    """

    def relation_by_uuid(self, uuid: str) -> Relation | None: ...

    def stream(self, uuid: str, branch: str, stream_id: str) -> StreamRow | None: ...

    def commit(self, transaction: Transaction) -> TransactionOutcome: ...


class Database(Protocol):
    """SQLite or PostgreSQL behind one behaviour. All methods block and are thread-safe."""

    def migrate(self) -> None:
        """Brings the schema up to this version, under a lock; a newer one is refused."""

    def ping(self) -> None:
        """Raises DatabaseUnavailable."""

    # namespaces
    def namespace_properties(self, namespace: Namespace) -> dict[str, str] | None: ...

    def list_namespaces(
        self, parent: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """The last levels of the direct children of `parent` (() is the root), ordered by code
        point, strictly after `after`; and the value to pass as `after` for the next page, None
        on the last page. A namespace exists only if it was created itself."""

    # tables and views
    def relation(self, identifier: Identifier) -> Relation | None: ...

    def relation_by_uuid(self, uuid: str) -> Relation | None: ...

    def last_version(self, uuid: str) -> int:
        """The highest version any event of this uuid carries, 0 where there is none. A relation
        that is registered again under its old uuid goes on counting from here."""

    def list_relations(
        self, kind: Kind, namespace: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Names, ordered by code point, as `list_namespaces` pages them."""

    def owner_of_location(self, location: str) -> str | None:
        """The uuid of the table that owns this canonical location or one that holds it."""

    def check_location_is_free(self, location: str, uuid: str) -> None:
        """Raises what `commit` would, Forbidden or BadRequest, where a table with this uuid may not
        own the location. To be asked before files are written; `commit` decides again."""

    # the one write
    def commit(self, transaction: Transaction) -> TransactionOutcome:
        """Raises DatabaseUnavailable when nothing happened, OutcomeUnknown when it may have."""

    def resolve(self, commit_id: str, uuids: Sequence[str], timeout_s: float) -> bool:
        """Whether the transaction in doubt was committed, on a new connection: waits for the
        rows of `uuids`, then claims the commit id, so that a transaction still on its way can
        never commit afterwards. Raises DatabaseUnavailable when it cannot be known in time."""

    def locked(self, uuids: Sequence[str], timeout_s: float) -> AbstractContextManager[Session]:
        """Holds the rows of these relations, in the order of their uuids, until the block ends.
        Raises DatabaseUnavailable when they cannot be had in time."""

    # streams
    def stream(self, uuid: str, branch: str, stream_id: str) -> StreamRow | None:
        """What the stream has committed to this branch; None: nothing that is remembered."""

    # idempotency keys
    def key(self, principal: str, key: str) -> KeyRow | None: ...

    def finalise(self, row: KeyRow) -> KeyRow:
        """Inserts the row on its own; if one is there already, that one is the answer."""

    def forget_keys(self, older_than_s: int) -> int:
        """Deletes rows older than this by the database's own clock; returns how many."""

    # commit ids
    def forget_commits(self, older_than_s: int) -> int:
        """Deletes commit ids older than this by the database's own clock; returns how many. Only
        ids that nobody can still ask `resolve` about may be forgotten: keep days, not minutes."""

    # what the server signs with
    def secret(self, name: str) -> bytes:
        """SECRET_BYTES of chance, drawn once for all processes on this database."""

    # events
    def assign_positions(self, limit: int) -> int:
        """Gives outbox rows without a global position the next ones, under a lock; how many."""

    def events(self, after_position: int, limit: int) -> Sequence[tuple[int, EventRow]]:
        """Events that have a position, in its order."""

    def close(self) -> None: ...

"""Defines the rows of the catalog and the one transaction that changes them.

Everything that changes the catalog is a `Transaction`: the changed rows, the commit id that
proves that it happened, the idempotency keys that it answers and the events that it causes, all
or nothing. The outcome is a type, not an exception: `Committed`, `SwapLost`, `KeysTaken` or
`Refused`. Only a lost answer to COMMIT is an exception, `OutcomeUnknown`; `resolve` finds out
what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from frazil.db.database_failures import Trouble
from frazil.db.housekeeping_changes import HousekeepingChange
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
    housekeeping: tuple[HousekeepingChange, ...] = ()
    """Applied after the swaps, whose row locks keep leases and deletions of the tables away."""


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

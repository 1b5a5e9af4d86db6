"""Declares `Database`, with what both databases share: rows, reads, and who owns a location.

No table's location equals, lies in or contains a location of another table. Locations are
canonical texts. A location contains another if the other continues after a `/`, so that
`s3://b/table` does not contain `s3://b/table_other`. Locations of one table may nest.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from secrets import token_bytes
from typing import Any, Final, TypeVar
from uuid import uuid4

from frazil.db.base import (
    SECRET_BYTES,
    EventRow,
    KeyRow,
    Kind,
    Relation,
    StreamRow,
    Transaction,
    TransactionOutcome,
)
from frazil.db.sql import Fetch, Parameters, QueryName, Row, Statements
from frazil.wire.errors import BadRequest, Forbidden
from frazil.wire.identifiers import Identifier, Namespace

T = TypeVar("T")

_SEPARATOR: Final = "\x1f"
_KINDS: Final = {kind.value: kind for kind in Kind}
_PROBE_BYTES: Final = 64 * 1024

MAX_KEY_BYTES: Final = 2048
"""The longest namespace in bytes. PostgreSQL refuses to index a row of more than a third of a page
(2,704 bytes); with a name of 255 bytes beside it, a namespace of this length still fits. Both
databases use this limit.
"""


def text(value: str, field: str) -> str:
    """Return the text, or refuse a NUL, which PostgreSQL cannot store in a text."""
    if "\0" in value:
        raise BadRequest(f"{field} {value!r} has a NUL character: remove it")
    return value


def namespace_key(namespace: Namespace) -> str:
    """Join the levels with 0x1F, as the REST specification joins them in a path."""
    key = _SEPARATOR.join(namespace)
    if key.count(_SEPARATOR) >= len(namespace) > 0:
        raise BadRequest(
            f"namespace {'.'.join(namespace)!r} has the separator 0x1F inside a level: remove it"
        )
    return text(key, "namespace")


def namespace_of(key: str) -> Namespace:
    return tuple(key.split(_SEPARATOR)) if key else ()


def check_indexable(value: str, field: str) -> None:
    length = len(value.encode())
    if length > MAX_KEY_BYTES:
        raise BadRequest(f"{field} is {length} bytes long: at most {MAX_KEY_BYTES} are allowed")


def properties_text(properties: Mapping[str, str]) -> str:
    """Encode the properties. Sorting makes equal maps equal texts; escaping makes every string
    storable.
    """
    return json.dumps(properties, sort_keys=True, separators=(",", ":"))


def json_list(values: Sequence[str]) -> str:
    """Encode a list as one parameter. Both databases can read a JSON array."""
    return json.dumps(list(values), ensure_ascii=False)


def relation_parameters(relation: Relation) -> dict[str, Any]:
    return {
        "uuid": relation.uuid,
        "kind": relation.kind.value,
        "namespace": namespace_key(relation.identifier.namespace),
        "name": text(relation.identifier.name, f"{relation.kind.value} name"),
        "metadata_location": text(relation.metadata_location, "metadata-location"),
        "version": relation.version,
    }


def expected_parameters(relation: Relation) -> dict[str, Any]:
    return {
        "uuid": relation.uuid,
        "expected_namespace": namespace_key(relation.identifier.namespace),
        "expected_name": relation.identifier.name,
        "expected_metadata_location": relation.metadata_location,
        "expected_version": relation.version,
    }


def relation_at(identifier: Identifier, row: Row) -> Relation:
    kind, uuid, metadata_location, version = row
    return Relation(_KINDS[kind], identifier, uuid, metadata_location, version)


def relation_with(uuid: str, row: Row) -> Relation:
    kind, namespace, name, metadata_location, version = row
    identifier = Identifier(namespace_of(namespace), name)
    return Relation(_KINDS[kind], identifier, uuid, metadata_location, version)


def key_parameters(row: KeyRow, commit_id: str | None) -> dict[str, Any]:
    return {
        "commit_id": commit_id,
        "principal": row.principal,
        "idempotency_key": row.key,
        "fingerprint": row.fingerprint,
        "status": row.status,
        "body": row.body,
        "relation_uuid": row.relation_uuid,
        "committed": row.committed,
    }


def stream_key(uuid: str, branch: str, stream_id: str) -> dict[str, Any]:
    return {
        "uuid": text(uuid, "uuid"),
        "branch": text(branch, "branch"),
        "stream": text(stream_id, "once.id"),
    }


def stream_parameters(row: StreamRow) -> dict[str, Any]:
    check_indexable(row.branch + row.id, "once.id with the branch")
    key = stream_key(row.uuid, row.branch, row.id)
    return {**key, "epoch": row.epoch, "committed": row.committed}


def event_parameters(event: EventRow) -> dict[str, Any]:
    return {
        "uuid": event.uuid,
        "version": event.version,
        "kind": event.kind.value,
        "operation": event.operation,
        "namespace": namespace_key(event.identifier.namespace),
        "name": event.identifier.name,
        "principal": event.principal,
        "request_id": event.request_id,
        "payload": event.payload,
    }


def event_of(row: Row) -> tuple[int, EventRow]:
    position, uuid, version, kind, operation, namespace, name, principal, request_id, payload = row
    event = EventRow(
        uuid=uuid,
        version=version,
        kind=_KINDS[kind],
        operation=operation,
        identifier=Identifier(namespace_of(namespace), name),
        principal=principal,
        request_id=request_id,
        payload=payload,
    )
    return position, event


def without_slash(location: str) -> str:
    """Remove a trailing `/`: a folder is one location with and without it."""
    return text(location, "location").rstrip("/")


def prefixes(location: str) -> list[str]:
    """Return the location itself and every folder above it."""
    above: list[str] = []
    location = without_slash(location)
    while location:
        above.append(location)
        location = location.rpartition("/")[0]
    return above


def owns_exactly(sql: Statements, relation: Relation, locations: Iterable[str]) -> bool:
    """Return whether the table owns exactly these locations. Its row is locked, so this stays
    true."""
    stored = {row[0] for row in sql.fetch("locations_of", {"uuid": relation.uuid})}
    return stored == {without_slash(location) for location in locations}


def claim_locations(sql: Statements, relation: Relation, locations: Iterable[str]) -> None:
    """Check and insert the locations; the caller holds the lock `hold_locations`. Raises
    Forbidden."""
    for location in dict.fromkeys(without_slash(location) for location in locations):
        check_free(sql, location, relation.uuid, str(relation.identifier))
        sql.execute("create_location", {"location": location, "uuid": relation.uuid})


def check_free(sql: Fetch, location: str, uuid: str, owner: str) -> None:
    """Raise Forbidden if another table owns, contains or lies in the location."""
    location = without_slash(location)
    check_indexable(location, f"location {location[:100]}…")
    above = {"prefixes": json_list(prefixes(location)), "uuid": uuid}
    if owned_above := sql.fetch("location_at_or_above", above):
        owned = owned_above[0][0]
        how = "is" if owned == location else "lies in"
        raise _forbidden(owner, location, how, owned)
    below = {"first": location + "/", "last": location + "0", "uuid": uuid}
    if owned_below := sql.fetch("location_below", below):
        raise _forbidden(owner, location, "holds", owned_below[0][0])


def _forbidden(owner: str, location: str, how: str, owned: str) -> Forbidden:
    return Forbidden(
        f"Location {location} of {owner} {how} {owned}, a location of another "
        "table: choose one that is apart from every other table's"
    )


_ALL: Final = 2**62
"""A LIMIT that neither database ever reaches; the two write "no limit" differently."""


class Reads(ABC):
    """Implements the reads of `Database` over anything that can fetch a named statement."""

    @abstractmethod
    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]:
        """Fetch the rows of a named statement. Raises DatabaseUnavailable."""

    def ping(self) -> None:
        """Raise DatabaseUnavailable if the database does not answer."""
        self.fetch("schema_version", {})

    def clock_skew_ms(self, now_ms: int) -> int:
        """Return how far the database's clock is ahead of this time.

        SQLite has no other clock: the newest row is compared, and only if it is ahead.
        """
        return int(self.fetch("database_clock", {})[0][0]) - now_ms

    def namespace_properties(self, namespace: Namespace) -> dict[str, str] | None:
        rows = self.fetch("namespace_properties", {"namespace": namespace_key(namespace)})
        return json.loads(rows[0][0]) if rows else None

    def list_namespaces(
        self, parent: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Return a page of the direct children of `parent`, and the `after` of the next page.

        The children are their last levels, ordered by code point, strictly after `after`; () is
        the root. The second value is None on the last page. Every ancestor of a namespace exists.
        """
        scope = {"parent": namespace_key(parent)}
        return self._page("list_namespaces", scope, after, limit)

    def relation(self, identifier: Identifier) -> Relation | None:
        rows = self.fetch(
            "relation",
            {
                "namespace": namespace_key(identifier.namespace),
                "name": text(identifier.name, "name"),
            },
        )
        return relation_at(identifier, rows[0]) if rows else None

    def relation_by_uuid(self, uuid: str) -> Relation | None:
        rows = self.fetch("relation_by_uuid", {"uuid": text(uuid, "uuid")})
        return relation_with(uuid, rows[0]) if rows else None

    def last_version(self, uuid: str) -> int:
        """Return the highest version of any event of this uuid, 0 if there is none.

        A relation that is registered again under its old uuid continues counting from here.
        """
        return self.fetch("last_version", {"uuid": text(uuid, "uuid")})[0][0] or 0

    def list_relations(
        self, kind: Kind, namespace: Namespace, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Return a page of names, ordered by code point, as `list_namespaces` does."""
        scope = {"kind": kind.value, "namespace": namespace_key(namespace)}
        return self._page("list_relations", scope, after, limit)

    def owner_of_location(self, location: str) -> str | None:
        """Return the uuid of the table that owns this canonical location or one that contains
        it."""
        above = json_list(prefixes(location))
        rows = self.fetch("location_at_or_above", {"prefixes": above, "uuid": ""})
        return rows[0][1] if rows else None

    def check_location_is_free(self, location: str, uuid: str) -> None:
        """Raise Forbidden or BadRequest, as `commit` would, if this table may not own the location.

        Callers ask before they write files; `commit` decides again.
        """
        check_free(self, location, text(uuid, "uuid"), "a table")

    def key(self, principal: str, key: str) -> KeyRow | None:
        rows = self.fetch(
            "key",
            {
                "principal": text(principal, "principal"),
                "idempotency_key": text(key, "Idempotency-Key"),
            },
        )
        return KeyRow(principal, key, *rows[0]) if rows else None

    def stream(self, uuid: str, branch: str, stream_id: str) -> StreamRow | None:
        """Return what the stream has committed to this branch; None if nothing is stored."""
        rows = self.fetch("stream", stream_key(uuid, branch, stream_id))
        return StreamRow(uuid, branch, stream_id, *rows[0]) if rows else None

    def events(self, after_position: int, limit: int) -> Sequence[tuple[int, EventRow]]:
        """Return events that have a position, ordered by it."""
        rows = self.fetch("events", {"after": after_position, "limit": limit})
        return [event_of(row) for row in rows]

    def _page(
        self, name: QueryName, scope: Parameters, after: str | None, limit: int | None
    ) -> tuple[Sequence[str], str | None]:
        """Return one page of names and the value for the next page.

        One row more than requested shows whether there is a next page. Names are never empty, so
        every name sorts after ''.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}: at least 1 row is asked for")
        start = text(after or "", "page token")
        ask = _ALL if limit is None else limit + 1
        rows = self.fetch(name, {**scope, "after": start, "limit": ask})
        names = [row[0] for row in rows]
        if limit is None or len(names) <= limit:
            return names, None
        return names[:limit], names[limit - 1]


class Session(Reads):
    """Reads, and one write, that see the locked rows.

    After any outcome but `Committed` the rows stay locked, so that the rest of a group can be
    applied again. After `Committed` the session accepts no more writes.
    """

    @abstractmethod
    def commit(self, transaction: Transaction) -> TransactionOutcome: ...


class Database(Reads):
    """SQLite or PostgreSQL with the same behavior. All methods block and are thread-safe."""

    @abstractmethod
    def migrate(self) -> int:
        """Update the schema to this version, under a lock; refuse a newer schema.

        Return the version before, 0 if the database was empty.
        """

    @abstractmethod
    def execute(self, name: QueryName, parameters: Parameters) -> int:
        """Run one statement in a transaction of its own; return how many rows it changed.

        The statement may run twice after a lost answer. Raises DatabaseUnavailable.
        """

    @abstractmethod
    def run_rows(self, work: Callable[[Statements], T]) -> T:
        """Run statements in a transaction of their own, and commit unless `work` raises.

        The work may run twice after a lost answer. Raises DatabaseUnavailable.
        """

    @abstractmethod
    def commit(self, transaction: Transaction) -> TransactionOutcome:
        """Commit. Raises DatabaseUnavailable if nothing happened, OutcomeUnknown if it may have."""

    @abstractmethod
    def resolve(self, commit_id: str, uuids: Sequence[str], timeout_s: float) -> bool:
        """Return whether the transaction with an unknown outcome was committed.

        On a new connection, wait for the rows of `uuids`, then claim the commit id, so that a
        transaction that is still running can never commit. Raises DatabaseUnavailable if the
        answer is not known in time.
        """

    @abstractmethod
    def locked(self, uuids: Sequence[str], timeout_s: float) -> AbstractContextManager[Session]:
        """Lock the rows of these relations, in the order of their uuids, until the block ends.

        Raises DatabaseUnavailable if the locks are not free in time.
        """

    @abstractmethod
    def assign_positions(self, limit: int) -> int:
        """Assign the next global positions to outbox rows without one, under a lock; return how
        many."""

    @abstractmethod
    def close(self) -> None: ...

    def finalise(self, row: KeyRow) -> KeyRow:
        """Insert the row, or return the row that already exists."""
        if self.execute("insert_key", key_parameters(row, commit_id=None)):
            return row
        return self.key(row.principal, row.key) or row

    def prove_writable(self) -> None:
        """Write and delete as much as a commit writes. Raises DatabaseUnavailable."""
        # Random bytes, because PostgreSQL would compress others. `forget_keys` removes the row if
        # it cannot be deleted now.
        probe = KeyRow("", f"probe-{uuid4()}", "", 0, body=token_bytes(_PROBE_BYTES))
        self.execute("insert_key", key_parameters(probe, commit_id=None))
        self.execute("drop_key", {"principal": probe.principal, "idempotency_key": probe.key})

    def secret(self, name: str) -> bytes:
        """Return SECRET_BYTES random bytes, drawn once for all processes on this database."""
        stored = self.fetch("secret", {"name": name})
        if not stored:
            self.execute("insert_secret", {"name": name, "value": token_bytes(SECRET_BYTES)})
            stored = self.fetch("secret", {"name": name})
        return bytes(stored[0][0])

    def forget_keys(self, older_than_s: int) -> int:
        """Delete rows older than this by the database's own clock; return how many."""
        return self.execute("forget_keys", {"older_than_ms": older_than_s * 1000})

    def forget_commits(self, older_than_s: int) -> int:
        """Delete commit ids older than this by the database's own clock; return how many.

        Keep them for days, not minutes: an id that somebody can still pass to `resolve` must not
        be deleted.
        """
        return self.execute("forget_commits", {"older_than_ms": older_than_s * 1000})

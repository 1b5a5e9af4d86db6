"""Applies a transaction to the rows, in the same way on both databases.

The order inside a transaction is fixed, so that two transactions never deadlock: the commit id,
the idempotency keys (sorted), the rows in the given order, then all locations under one lock,
then the rows of the streams, then those of housekeeping, then the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from frazil.db import rows
from frazil.db.base import (
    Change,
    CommitIdTaken,
    Committed,
    CreateNamespace,
    CreateRelation,
    DropNamespace,
    DropRelation,
    KeyRow,
    KeysTaken,
    Kind,
    Refused,
    Relation,
    SetNamespaceProperties,
    SwapLost,
    SwapRelation,
    Transaction,
    TransactionOutcome,
)
from frazil.db.housekeeping_rows import RowsMoved, apply_housekeeping, take_back_purged
from frazil.db.sql import Statements
from frazil.wire.errors import (
    AlreadyExists,
    BadRequest,
    FrazilError,
    NamespaceNotEmpty,
    NoSuchNamespace,
)
from frazil.wire.identifiers import Identifier, Namespace, namespace_text


class _Lost(Exception):
    """The row is no longer as expected."""


@dataclass(slots=True)
class Attempt:
    """One run of a transaction. `index` is the current change, for error reports."""

    transaction: Transaction
    index: int = 0

    def apply(self, sql: Statements) -> TransactionOutcome:
        """Apply the transaction. The caller rolls back anything but `Committed`.

        Raises CommitIdTaken.
        """
        _claim_commit(sql, self.transaction)
        if taken := _insert_keys(sql, self.transaction):
            return taken
        try:
            self._apply_rows(sql)
            self._apply_locations(sql)
            self._write_streams(sql)
            apply_housekeeping(sql, self.transaction.housekeeping)
        except (_Lost, RowsMoved):
            return SwapLost(self.index)
        except FrazilError as error:
            return Refused(self.index, error)
        return self._insert_events(sql)

    def _apply_rows(self, sql: Statements) -> None:
        for index, change in enumerate(self.transaction.changes):
            self.index = index
            _APPLY[type(change)](sql, change)

    def _apply_locations(self, sql: Statements) -> None:
        """Release all locations that move before claiming any, because tables may swap
        locations."""
        moving: list[tuple[int, Relation, tuple[str, ...]]] = []
        for index, change in enumerate(self.transaction.changes):
            if isinstance(change, CreateRelation) and change.locations:
                moving.append((index, change.relation, change.locations))
            elif isinstance(change, SwapRelation) and change.locations is not None:
                self.index = index
                if not rows.owns_exactly(sql, change.new, change.locations):
                    moving.append((index, change.new, change.locations))
        if not moving:
            return
        sql.fetch("hold_locations", {})
        for index, change in enumerate(self.transaction.changes):
            if isinstance(change, CreateRelation):
                self.index = index
                take_back_purged(sql, change.relation.uuid)
        for _, relation, _ in moving:
            sql.execute("drop_locations", {"uuid": relation.uuid})
        for self.index, relation, wanted in moving:
            rows.claim_locations(sql, relation, wanted)

    def _write_streams(self, sql: Statements) -> None:
        """Write the rows of streams after the swaps, whose row locks keep writers of a stream
        apart.
        """
        transaction = self.transaction
        if transaction.forget_streams:
            gone = [{"uuid": uuid, "branch": branch} for uuid, branch in transaction.forget_streams]
            sql.execute_many("forget_streams", gone)
        if transaction.streams:
            sql.execute_many("write_stream", list(map(rows.stream_parameters, transaction.streams)))

    def _insert_events(self, sql: Statements) -> TransactionOutcome:
        events = self.transaction.events
        if not events:
            return Committed()
        inserted = sql.execute_many("insert_event", [rows.event_parameters(e) for e in events])
        # The outbox already has such a version: this uuid existed before, and its history grew
        # after the caller asked for `last_version`.
        return Committed() if inserted == len(events) else SwapLost(self._index_of_used_version())

    def _index_of_used_version(self) -> int:
        """Return the index of the change that the events belong to: a drop or create of an old
        uuid."""
        uuids = {event.uuid for event in self.transaction.events}
        for index, change in enumerate(self.transaction.changes):
            if uuids & set(touched((change,))):
                return index
        return 0


def name_taken(kind: Kind, taken_by: Kind, identifier: Identifier) -> AlreadyExists:
    """Return the error with Java's texts, which differ for the same kind and for the other kind."""
    if taken_by is kind:
        return AlreadyExists(f"{_title(kind)} already exists: {identifier}")
    return AlreadyExists(f"{_title(taken_by)} with same name already exists: {identifier}")


def touched(changes: tuple[Change, ...]) -> frozenset[str]:
    """Return the uuids of the relations whose rows these changes write."""
    uuids = set()
    for change in changes:
        match change:
            case CreateRelation(relation):
                uuids.add(relation.uuid)
            case SwapRelation(expected) | DropRelation(expected):
                uuids.add(expected.uuid)
    return frozenset(uuids)


def resolve(sql: Statements, commit_id: str) -> bool:
    """Claim the commit id. Return whether it is committed. If it is not, it can never be
    committed."""
    sql.execute("claim_commit", {"commit_id": commit_id, "state": "void"})
    state: str = sql.fetch("commit_state", {"commit_id": commit_id})[0][0]
    return state == "committed"


def place_events(sql: Statements, limit: int) -> int:
    """Assign the next global positions to at most `limit` outbox rows."""
    sql.execute("lock_position", {})
    last: int = sql.fetch("last_position", {})[0][0]
    placed = sql.execute("assign_positions", {"last": last, "limit": limit})
    sql.execute("set_last_position", {"last": last + placed})
    return placed


def _claim_commit(sql: Statements, transaction: Transaction) -> None:
    claim = {"commit_id": transaction.commit_id, "state": "committed"}
    if not sql.execute("claim_commit", claim):
        raise CommitIdTaken(
            f"commit id {transaction.commit_id} was used before or declared void; "
            "nothing was changed"
        )


def _insert_keys(sql: Statements, transaction: Transaction) -> KeysTaken | None:
    keys = sorted(transaction.keys, key=lambda row: (row.principal, row.key))
    if not keys:
        return None
    if len({(row.principal, row.key) for row in keys}) < len(keys):
        raise ValueError("an Idempotency-Key stands twice in one transaction")
    commit_id = transaction.commit_id
    inserted = sql.execute_many("insert_key", [rows.key_parameters(k, commit_id) for k in keys])
    return None if inserted == len(keys) else KeysTaken(tuple(_taken(sql, keys, commit_id)))


def _taken(sql: Statements, keys: list[KeyRow], commit_id: str) -> Iterator[KeyRow]:
    """Yield the keys that existed before, which are those whose row another transaction wrote."""
    for row in keys:
        asked = {"principal": row.principal, "idempotency_key": row.key, "commit_id": commit_id}
        for stored in sql.fetch("key_of_another", asked):
            yield KeyRow(row.principal, row.key, *stored)


def _create_namespace(sql: Statements, change: CreateNamespace) -> None:
    """Create a namespace and its missing ancestors, as Iceberg's reference server allows."""
    namespace = change.namespace
    if not namespace:
        raise BadRequest("namespace is empty: give it at least one level")
    rows.check_indexable(rows.namespace_key(namespace), "namespace")
    # All transactions lock from the root downwards, so that they never deadlock.
    for depth in range(1, len(namespace)):
        _hold_or_create_namespace(sql, namespace[:depth])
    if not _insert_namespace(sql, namespace, change.properties):
        raise AlreadyExists(f"Namespace already exists: {namespace_text(namespace)}")


def _hold_or_create_namespace(sql: Statements, namespace: Namespace) -> None:
    if _is_held(sql, namespace) or _insert_namespace(sql, namespace, {}):
        return
    # Another transaction created it in between.
    if not _is_held(sql, namespace):
        raise _Lost


def _insert_namespace(sql: Statements, namespace: Namespace, properties: dict[str, str]) -> bool:
    """Return whether the namespace was created, and did not exist before."""
    inserted = sql.execute(
        "create_namespace",
        {
            "namespace": rows.namespace_key(namespace),
            "parent": rows.namespace_key(namespace[:-1]),
            "level": namespace[-1],
            "properties": rows.properties_text(properties),
        },
    )
    return inserted == 1


def _set_namespace_properties(sql: Statements, change: SetNamespaceProperties) -> None:
    key = rows.namespace_key(change.namespace)
    swapped = sql.execute(
        "set_namespace_properties",
        {
            "namespace": key,
            "expected": rows.properties_text(change.expected),
            "properties": rows.properties_text(change.properties),
        },
    )
    if not swapped:
        _hold_namespace(sql, change.namespace)
        raise _Lost


def _drop_namespace(sql: Statements, change: DropNamespace) -> None:
    """Drop a namespace if it is empty, by the rules of InMemoryCatalog.dropNamespace, children
    first."""
    key = {"namespace": rows.namespace_key(change.namespace)}
    shown = namespace_text(change.namespace)
    if not sql.fetch("hold_namespace_alone", key):
        raise NoSuchNamespace(f"Namespace does not exist: {shown}")
    contents = zip(
        ("child namespaces", "tables", "views"),
        sql.fetch("namespace_contents", key)[0],
        strict=True,
    )
    held = [kind for kind, exist in contents if exist]
    if held:
        raise NamespaceNotEmpty(
            f"Namespace {shown} is not empty. It holds {' and '.join(held)}: drop them first"
        )
    sql.execute("drop_namespace", key)


def _create_relation(sql: Statements, change: CreateRelation) -> None:
    relation = change.relation
    _hold_namespace(sql, relation.identifier.namespace)
    if not sql.execute("create_relation", rows.relation_parameters(relation)):
        _raise_taken(sql, relation)


def _raise_taken(sql: Statements, relation: Relation) -> None:
    """Raise AlreadyExists, because the name or the uuid is taken."""
    taken_by = _kind_at(sql, relation.identifier)
    if taken_by is not None:
        raise name_taken(relation.kind, taken_by, relation.identifier)
    stored = sql.fetch("relation_by_uuid", {"uuid": relation.uuid})
    if stored:
        other = rows.relation_with(relation.uuid, stored[0])
        raise AlreadyExists(
            f"{_title(other.kind)} with same UUID {relation.uuid} already exists: "
            f"{other.identifier}"
        )
    raise _Lost  # The conflicting row is gone now.


def _swap_relation(sql: Statements, change: SwapRelation) -> None:
    expected, new = change.expected, change.new
    if expected.uuid != new.uuid or expected.kind is not new.kind:
        raise ValueError("a swap keeps the uuid and the kind of its relation")
    if new.identifier != expected.identifier:
        _check_rename(sql, expected, new)
    swapped = sql.execute(
        "swap_relation", {**rows.relation_parameters(new), **rows.expected_parameters(expected)}
    )
    if not swapped:
        raise _Lost


def _check_rename(sql: Statements, expected: Relation, new: Relation) -> None:
    """Check that the new name is free. If it is taken later, the unique index fails the swap,
    and the transaction runs again."""
    if new.identifier.namespace != expected.identifier.namespace:
        _hold_namespace(sql, new.identifier.namespace)
    taken_by = _kind_at(sql, new.identifier)
    if taken_by is not None:
        raise AlreadyExists(
            f"Cannot rename {expected.identifier} to {new.identifier}. "
            f"{_title(taken_by)} already exists"
        )


def _drop_relation(sql: Statements, change: DropRelation) -> None:
    if not sql.execute("drop_relation", rows.expected_parameters(change.expected)):
        raise _Lost


def _hold_namespace(sql: Statements, namespace: Namespace) -> None:
    if not _is_held(sql, namespace):
        raise NoSuchNamespace(f"Namespace does not exist: {namespace_text(namespace)}")


def _is_held(sql: Statements, namespace: Namespace) -> bool:
    """Lock a namespace against a drop. Return False if it does not exist."""
    return bool(sql.fetch("hold_namespace", {"namespace": rows.namespace_key(namespace)}))


def _kind_at(sql: Statements, identifier: Identifier) -> Kind | None:
    asked = {"namespace": rows.namespace_key(identifier.namespace), "name": identifier.name}
    stored = sql.fetch("relation", asked)
    return rows.relation_at(identifier, stored[0]).kind if stored else None


def _title(kind: Kind) -> str:
    return kind.value.capitalize()


_APPLY: Final[dict[type, Callable[[Statements, Any], None]]] = {
    CreateNamespace: _create_namespace,
    SetNamespaceProperties: _set_namespace_properties,
    DropNamespace: _drop_namespace,
    CreateRelation: _create_relation,
    SwapRelation: _swap_relation,
    DropRelation: _drop_relation,
}

"""Helpers for the tests of database rows."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from frazil.db.base import (
    Change,
    Committed,
    CreateNamespace,
    CreateRelation,
    EventRow,
    KeyRow,
    Kind,
    Refused,
    Relation,
    SwapRelation,
    Transaction,
    TransactionOutcome,
)
from frazil.db.rows import Database
from frazil.wire.errors import FrazilError
from frazil.wire.identifiers import Identifier

T = TypeVar("T")


def transaction(*changes: Change, **others: Any) -> Transaction:
    return Transaction(commit_id=uuid.uuid4().hex, changes=changes, **others)


def commit(database: Database, *changes: Change, **others: Any) -> TransactionOutcome:
    return database.commit(transaction(*changes, **others))


def must(database: Database, *changes: Change, **others: Any) -> None:
    assert commit(database, *changes, **others) == Committed()


def refusal(outcome: TransactionOutcome, index: int = 0) -> FrazilError:
    assert isinstance(outcome, Refused), outcome
    assert outcome.index == index
    return outcome.error


def relation(name: str, kind: Kind = Kind.TABLE, namespace: tuple[str, ...] = ("ns",)) -> Relation:
    unique = str(uuid.uuid4())
    location = f"s3://bucket/{unique}/metadata/00000.metadata.json"
    return Relation(kind, Identifier(namespace, name), unique, location, 1)


def view(name: str) -> Relation:
    return relation(name, Kind.VIEW)


def make_namespace(database: Database, *levels: str) -> None:
    must(database, CreateNamespace(levels or ("ns",), {}))


def make(database: Database, name: str = "t", *locations: str) -> Relation:
    made = relation(name)
    must(database, CreateRelation(made, locations))
    return made


def next_version(of: Relation, metadata_location: str | None = None) -> Relation:
    where = metadata_location or f"s3://bucket/{uuid.uuid4()}.metadata.json"
    return replace(of, metadata_location=where, version=of.version + 1)


def swap(of: Relation) -> SwapRelation:
    return SwapRelation(of, next_version(of))


def renamed(of: Relation, name: str, namespace: tuple[str, ...] | None = None) -> SwapRelation:
    target = Identifier(namespace or of.identifier.namespace, name)
    return SwapRelation(of, replace(of, identifier=target, version=of.version + 1))


def key_row(key: str | None = None, principal: str = "anna", **others: Any) -> KeyRow:
    fields = {"fingerprint": "f", "status": 200, **others}
    return KeyRow(principal=principal, key=key or str(uuid.uuid4()), **fields)


def event(of: Relation, operation: str = "commit") -> EventRow:
    return EventRow(
        uuid=of.uuid,
        version=of.version,
        kind=of.kind,
        operation=operation,
        identifier=of.identifier,
        principal="anna",
        request_id="request-1",
        payload=b'{"a":1}',
    )


def race(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run all calls at once, each on its own thread, and return their results in order."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))

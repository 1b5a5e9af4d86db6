"""A request on its way through a queue, and what is kept of it under its idempotency key."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from frazil.commit.pipeline.catalog_answers import Answer
from frazil.commit.snapshot.committed_snapshots import KeptCommit
from frazil.db.base import KeyRow
from frazil.wire.errors import CommitFailed, FrazilError, TooManyRequests


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's key and a hash over method, path and body of the request it came with."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Context:
    principal: str
    request_id: str
    key: IdempotencyKey | None = None
    request_bytes: int = 0
    """The decoded size of the body: queues are bounded by bytes too."""


R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Pending(Generic[R]):
    """Intent and the promise to answer it. The request itself is never changed."""

    context: Context
    request: R
    group_key: str | None
    in_transaction: bool = False
    """Whether the request came as a transaction over this one table: only its answer differs."""
    can_wait: bool = False
    """Whether it fits on any head, because the server builds its snapshots."""
    future: Future[Answer] = field(default_factory=Future)
    commit_uuid: bytes = field(default_factory=lambda: uuid.uuid4().bytes)
    """Drawn once: however often the request is applied, its snapshots keep their ids."""

    @property
    def size_bytes(self) -> int:
        return self.context.request_bytes


def key_row(
    context: Context,
    status: int,
    *,
    body: bytes | None = None,
    relation_uuid: str | None = None,
    committed: bytes | None = None,
) -> tuple[KeyRow, ...]:
    """The row for this request's key, or nothing where the request carries no key."""
    if context.key is None:
        return ()
    return (
        KeyRow(
            principal=context.principal,
            key=context.key.key,
            fingerprint=context.key.fingerprint,
            status=status,
            body=body,
            relation_uuid=relation_uuid,
            committed=committed,
        ),
    )


def commit_rows(
    context: Context,
    relation_uuid: str,
    committed: bytes,
    *,
    in_transaction: bool = False,
    already_committed: bool = False,
) -> tuple[KeyRow, ...]:
    """The row of a commit to one table, however it came."""
    kept = KeptCommit(committed=Raw(committed), already_committed=already_committed)
    if in_transaction:
        return transaction_rows(context, [replace(kept, uuid=relation_uuid)])
    content = msgspec.json.encode(kept) if already_committed else committed
    return key_row(context, 200, relation_uuid=relation_uuid, committed=content)


def transaction_rows(context: Context, tables: Sequence[KeptCommit]) -> tuple[KeyRow, ...]:
    """The row of a transaction; each table is named by its uuid."""
    return key_row(context, 204, committed=msgspec.json.encode(tables))


def error_row(context: Context, error: FrazilError) -> tuple[KeyRow, ...]:
    """Terminal errors are finalised; what a retry may turn into a success is not."""
    terminal = 400 <= error.status < 500 and not isinstance(error, CommitFailed | TooManyRequests)
    if not terminal:
        return ()
    return key_row(context, error.status, body=msgspec.json.encode(error.body()))

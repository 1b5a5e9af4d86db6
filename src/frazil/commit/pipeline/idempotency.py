"""Answers requests with the same Idempotency-Key with the same outcome.

Inside this process a duplicate joins the running request. Between replicas the unique index on
the key's row decides. The row is written in the same transaction that changes the catalog, so
there is no reservation that expires and nothing to clean up after a crash.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from frazil.commit.pipeline.catalog_answers import (
    Answer,
    JsonAnswer,
    LoadedTable,
    LoadedView,
    NoContent,
    ReplayedError,
    TableAnswer,
    TransactionAnswer,
    ViewAnswer,
)
from frazil.commit.pipeline.pending_requests import Context, Pending
from frazil.commit.pipeline.relation_kinds import missing
from frazil.db.base import DatabaseUnavailable, KeyRow, Kind
from frazil.db.rows import Database
from frazil.read.metadata_cache import MetadataCache
from frazil.wire.errors import (
    CommitFailed,
    Forbidden,
    FrazilError,
    TooManyRequests,
    UnprocessableEntity,
)
from frazil.wire.identifiers import Identifier

logger = logging.getLogger("frazil.commit")


@dataclass(frozen=True, slots=True)
class _Running:
    fingerprint: str
    future: Future[Answer]


class Idempotency:
    def __init__(self, database: Database, cache: MetadataCache) -> None:
        self._database = database
        self._cache = cache
        self._running: dict[tuple[str, str], _Running] = {}
        self._lock = threading.Lock()

    def join(self, context: Context, answered: Future[Answer]) -> Future[Answer] | None:
        """Return the future of a running request with the same key, or None if this request is
        the first.

        `answered` is the future that later duplicates of this request get.
        """
        if context.key is None:
            return None
        name = (context.principal, context.key.key)
        with self._lock:
            running = self._running.get(name)
            if running is not None:
                _check_fingerprint(context, running.fingerprint)
                return running.future
            self._running[name] = _Running(context.key.fingerprint, answered)
        answered.add_done_callback(lambda _: self._forget_running(name))
        return None

    def replay_finished(self, requests: Iterable[Pending]) -> None:
        """Answer the requests that were already finished, possibly by another replica."""
        for pending in requests:
            key = pending.context.key
            row = key and self._database.key(pending.context.principal, key.key)
            if row:
                self._replay(pending, row)

    def replay_taken(self, requests: Iterable[Pending], rows: Sequence[KeyRow]) -> None:
        """Answer the requests whose keys are among these rows."""
        taken = {(row.principal, row.key): row for row in rows}
        for pending in requests:
            key = pending.context.key
            row = key and taken.get((pending.context.principal, key.key))
            if row:
                self._replay(pending, row)

    def refuse(self, pending: Pending, error: FrazilError) -> None:
        """Answer a request with an error. A terminal error is stored under the request's key. If
        another replica already finished the same request, answer with its outcome."""
        standing: KeyRow | None = None
        try:
            for row in error_row(pending.context, error):
                standing = self._database.finalise(row)
                if standing == row:
                    standing = None
        except DatabaseUnavailable:
            # The error is sent even without its row. A retry is then checked again.
            logger.warning("could not keep a refusal under its key")
        if standing is None:
            pending.future.set_exception(error)
        else:
            self._replay(pending, standing)

    def _forget_running(self, name: tuple[str, str]) -> None:
        with self._lock:
            del self._running[name]

    # --- replay ------------------------------------------------------------------------------

    def _replay(self, pending: Pending, row: KeyRow) -> None:
        """Send the stored answer again, with the catalog's current metadata."""
        try:
            _check_fingerprint(pending.context, row.fingerprint)
            pending.replayed = True
            if row.status >= 400:
                raise ReplayedError(row.status, row.body or b"{}")
            pending.future.set_result(self._render(row))
        except (FrazilError, ReplayedError) as error:
            pending.future.set_exception(error)

    def _render(self, row: KeyRow) -> Answer:
        if row.body is not None:
            return JsonAnswer(row.body, row.status)
        if row.relation_uuid is not None:
            kept = None if row.committed is None else kept_from_json(row.committed)
            return self._render_relation(row.relation_uuid, kept)
        if row.committed is None:
            return NoContent()
        if row.status == 200:
            return self._render_unregistered(msgspec.json.decode(row.committed))
        tables = msgspec.json.decode(row.committed, type=list[KeptCommit])
        answers = [self._render_relation(kept.uuid or "", kept) for kept in tables]
        return TransactionAnswer(tuple(a for a in answers if isinstance(a, TableAnswer)))

    def _render_unregistered(self, kept: dict[str, Any]) -> Answer:
        identifier = Identifier(tuple(kept["identifier"][:-1]), kept["identifier"][-1])
        return TableAnswer(LoadedTable.at(self._cache, identifier, kept["at"]))

    def _render_relation(self, uuid: str, kept: KeptCommit | None) -> Answer:
        relation = self._database.relation_by_uuid(uuid)
        if relation is None:
            raise missing(Kind.TABLE, Identifier((), uuid))
        location = relation.metadata_location
        if relation.kind is Kind.VIEW:
            return ViewAnswer(LoadedView.at(self._cache, relation.identifier, location))
        table = LoadedTable.at(self._cache, relation.identifier, location)
        if kept is None:
            return TableAnswer(table)
        return TableAnswer(table, bytes(kept.committed), kept.already_committed)


def _check_fingerprint(context: Context, fingerprint: str) -> None:
    if context.key is not None and context.key.fingerprint != fingerprint:
        raise UnprocessableEntity(
            f"Idempotency-Key {context.key.key} was used with another method, path or body: "
            "draw a new key for a new request"
        )


_NEVER_FINAL = (CommitFailed, Forbidden, TooManyRequests)
"""Errors after which the same request may succeed, with other metadata, rights or load."""


# --- what is kept under a key ----------------------------------------------------------------


class KeptCommit(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The stored fields that a replay of a commit needs for one table, besides its metadata."""

    committed: msgspec.Raw
    already_committed: bool = False
    uuid: str | None = None
    """The uuid of a table in a transaction. For a commit of one table, the key's row has it."""


_KEPT: msgspec.json.Decoder[KeptCommit] = msgspec.json.Decoder(KeptCommit)


def kept_from_json(content: bytes) -> KeptCommit:
    """Decode a key's row, which is either only the `committed` list or an object with more
    fields."""
    if content.startswith(b"["):
        return KeptCommit(committed=Raw(content))
    return _KEPT.decode(content)


def key_row(
    context: Context,
    status: int,
    *,
    body: bytes | None = None,
    relation_uuid: str | None = None,
    committed: bytes | None = None,
) -> tuple[KeyRow, ...]:
    """Return the row for this request's key, or nothing if the request has no key."""
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


def commit_row(context: Context, kept: KeptCommit) -> tuple[KeyRow, ...]:
    """Return the row of a commit to one table or view through its own route."""
    own = bytes(kept.committed)
    if kept.already_committed:
        own = msgspec.json.encode(replace(kept, uuid=None))
    return key_row(context, 200, relation_uuid=kept.uuid, committed=own)


def transaction_row(context: Context, tables: Sequence[KeptCommit]) -> tuple[KeyRow, ...]:
    """Return the row of a transaction. Each table is identified by its uuid."""
    return key_row(context, 204, committed=msgspec.json.encode(tables))


def error_row(context: Context, error: FrazilError) -> tuple[KeyRow, ...]:
    """Return the row of a terminal error. Errors that a retry may resolve have no row."""
    if not 400 <= error.status < 500 or isinstance(error, _NEVER_FINAL):
        return ()
    return key_row(context, error.status, body=msgspec.json.encode(error.body()))

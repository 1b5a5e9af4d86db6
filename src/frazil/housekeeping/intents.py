"""Intents of writers: declare, renew, end, list.

An intent names a folder that one write uses alone. While it lives, no file in it is deleted. When
it has ended, whatever is in the folder and was not committed is known to be left over.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from frazil.commit.pipeline.catalog_answers import LoadedTable
from frazil.commit.pipeline.pending_requests import Context
from frazil.db.base import DatabaseUnavailable, Relation
from frazil.db.housekeeping_rows import IntentRow, database_now_ms, intent_row
from frazil.db.rows import Database, check_indexable, json_list, prefixes, text
from frazil.db.sql import Statements
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.object_store import Store
from frazil.wire.errors import (
    BadRequest,
    Conflict,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    UnprocessableEntity,
)
from frazil.wire.identifiers import Identifier
from frazil.wire.leases import (
    INTENT_TTL_MS,
    DeclareIntentRequest,
    IntentResponse,
    ListedIntent,
    ListIntentsResponse,
    RenewRequest,
)

MAX_LIVE_INTENTS: Final = 10_000
"""The live intents of one table."""

T = TypeVar("T")


class WrittenTables(Protocol):
    """The part of the catalog that intents use."""

    @property
    def database(self) -> Database: ...

    @property
    def store(self) -> Store: ...

    def load_table(self, identifier: Identifier) -> LoadedTable: ...

    def table_row(self, identifier: Identifier) -> Relation: ...

    def check_write_folder(self, metadata: TableMetadata, folder: str, field: str) -> str: ...


class Intents:
    """An intent belongs to the principal that declared it. Only that one may renew it.

    Whoever may change tables may end the intents of others.
    """

    def __init__(self, tables: WrittenTables, max_live: int = MAX_LIVE_INTENTS) -> None:
        self._tables = tables
        self._max_live = max_live

    def declare(
        self, context: Context, identifier: Identifier, request: DeclareIntentRequest
    ) -> IntentResponse:
        context.check_may_change()
        loaded = self._tables.load_table(identifier)
        uuid = loaded.relation_uuid or ""
        prefix = self._tables.check_write_folder(loaded.metadata, request.prefix, "prefix")
        check_indexable(prefix, "prefix")
        intent_id = str(uuid4()) if context.key is None else context.key.key
        known = self._known(context, uuid, intent_id, prefix)
        if known is not None:
            return _response(known)
        self._check_empty(prefix)
        ttl_ms = request.ttl_ms or INTENT_TTL_MS
        holder = text(request.holder or context.principal, "holder")

        def work(sql: Statements) -> IntentResponse:
            now_ms = database_now_ms(sql)
            self._check_others(sql, uuid, prefix, now_ms)
            row = {
                "intent_id": intent_id,
                "uuid": uuid,
                "prefix": prefix,
                "principal": context.principal,
                "holder": holder,
                "now_ms": now_ms,
                "expires_ms": now_ms + ttl_ms,
            }
            sql.execute("insert_intent", row)
            return IntentResponse(intent_id, prefix, now_ms + ttl_ms)

        return self._run(work)

    def renew(
        self, context: Context, identifier: Identifier, intent_id: str, request: RenewRequest
    ) -> IntentResponse:
        context.check_may_change()
        uuid = self._uuid(identifier)

        def work(sql: Statements) -> IntentResponse:
            now_ms = database_now_ms(sql)
            intent = _intent(sql, uuid, intent_id)
            if intent is None or intent.principal != context.principal:
                raise _missing(identifier, intent_id)
            wanted_ms = now_ms + (request.ttl_ms or INTENT_TTL_MS)
            expires_ms = max(wanted_ms, intent.expires_ms)
            asked = {"intent_id": intent_id, "now_ms": now_ms, "expires_ms": expires_ms}
            if not sql.execute("renew_intent", asked):
                raise _missing(identifier, intent_id)
            return IntentResponse(intent_id, intent.prefix, expires_ms)

        return self._run(work)

    def end(
        self, context: Context, identifier: Identifier, intent_id: str, *, is_clean: bool = False
    ) -> None:
        """End an intent. With `is_clean` the writer has left nothing behind, so nobody looks."""
        context.check_may_change()
        uuid = self._uuid(identifier)

        def work(sql: Statements) -> None:
            if _intent(sql, uuid, intent_id) is None:
                raise _missing(identifier, intent_id)
            asked = {"intent_id": intent_id, "now_ms": database_now_ms(sql)}
            sql.execute("drop_live_intent" if is_clean else "end_intent", asked)

        self._run(work)

    def list(self, identifier: Identifier) -> ListIntentsResponse:
        uuid, database = self._uuid(identifier), self._tables.database
        now_ms = database_now_ms(database)
        rows = database.fetch("live_intents", {"uuid": uuid, "now_ms": now_ms})
        return ListIntentsResponse(tuple(ListedIntent(*row) for row in rows))

    # --- checks ------------------------------------------------------------------------------

    def _known(self, context: Context, uuid: str, intent_id: str, prefix: str) -> IntentRow | None:
        """Return the intent that an earlier attempt of this request has declared."""
        if context.key is None:
            return None
        found = self._tables.database.fetch("intent", {"intent_id": intent_id})
        if not found:
            return None
        intent = intent_row(intent_id, found[0])
        if (intent.uuid, intent.prefix, intent.principal) != (uuid, prefix, context.principal):
            raise UnprocessableEntity(
                "Idempotency-Key: was used for another intent: send a new one"
            )
        return intent

    def _check_empty(self, prefix: str) -> None:
        """Refuse a folder with files, because they may be another writer's."""
        for found in islice(self._tables.store.list(prefix), 1):
            raise BadRequest(
                f"prefix: {prefix!r} has files already, such as {found.location}: declare a new "
                "folder, which no other write uses"
            )

    def _check_others(self, sql: Statements, uuid: str, prefix: str, now_ms: int) -> None:
        asked = {"uuid": uuid, "now_ms": now_ms}
        count = sql.fetch("count_intents", asked)[0][0]
        if count >= self._max_live:
            raise TooManyRequests(
                f"the table has {count} intents, and at most {self._max_live} are allowed: end some"
            )
        above = json_list(prefixes(prefix))
        below = {"first": f"{prefix}/", "last": f"{prefix}0"}
        found = sql.fetch("overlapping_intents", {**asked, "prefixes": above, **below})
        if found:
            raise Conflict(
                f"prefix: {prefix!r} overlaps {found[0][0]!r}, which another write has declared: "
                "declare a folder of its own"
            )

    def _uuid(self, identifier: Identifier) -> str:
        return self._tables.table_row(identifier).uuid

    def _run(self, work: Callable[[Statements], T]) -> T:
        try:
            return self._tables.database.run_rows(work)
        except DatabaseUnavailable as error:
            raise ServiceUnavailable("the database cannot be reached now: try again") from error


def _intent(sql: Statements, uuid: str, intent_id: str) -> IntentRow | None:
    found = sql.fetch("intent", {"intent_id": text(intent_id, "intent-id")})
    intent = intent_row(intent_id, found[0]) if found else None
    return intent if intent is not None and intent.uuid == uuid else None


def _response(row: IntentRow) -> IntentResponse:
    return IntentResponse(row.intent_id, row.prefix, row.expires_ms)


def _missing(identifier: Identifier, intent_id: str) -> NotFound:
    return NotFound(
        f"{identifier} has no live intent {intent_id[:64]!r} of yours; it may have ended, and then "
        "the files below its prefix may be deleted"
    )

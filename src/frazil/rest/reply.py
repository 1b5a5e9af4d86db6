"""HTTP replies: from the catalog's answers, and from errors."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import UNSET, Raw

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
from frazil.db.base import DatabaseUnavailable
from frazil.rest.routing import Route
from frazil.store.object_store import StoreError
from frazil.wire.errors import CommitStateUnknown, FrazilError, ServiceUnavailable
from frazil.wire.frazil_properties import SCAN_PLANNING, ScanPlanningMode
from frazil.wire.json_bodies import encode
from frazil.wire.rest_messages import (
    MinimalCommitResponse,
    MinimalTransactionResponse,
    table_identifier,
)
from frazil.wire.scan_planning import SCAN_PLANNING_MODE

_log = logging.getLogger("frazil.rest")

_JSON = b"application/json"
_MAX_JOINED_BYTES = 256 * 1024
_LARGE_CHUNK_BYTES = 64 * 1024
_MINIMAL_APPLIED = (b"preference-applied", b"return=minimal")

Header: TypeAlias = tuple[bytes, bytes]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, headers and body of a response."""

    status: int
    chunks: Sequence[bytes] = ()
    headers: tuple[Header, ...] = ()
    error_type: str | None = None
    """Type of the error, for the log."""
    content_type: bytes = _JSON

    async def send(self, send: Send, method: str, more_headers: Sequence[Header]) -> None:
        chunks = () if method == "HEAD" else self.chunks
        headers = [*self.headers, *more_headers]
        if self.chunks:
            headers.append((b"content-type", self.content_type))
        if self.status not in (204, 304):
            headers.append((b"content-length", b"%d" % sum(map(len, chunks))))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        last = b""
        for body in _joined_chunks(chunks):
            if last:
                await send({"type": "http.response.body", "body": last, "more_body": True})
            last = body
        await send({"type": "http.response.body", "body": last})


NO_CONTENT = Reply(204)


def json_reply(value: object) -> Reply:
    return Reply(200, (encode(value),))


def _joined_chunks(chunks: Sequence[bytes]) -> Iterator[bytes]:
    """Join small chunks; yield large ones as they are, so that a long history is not copied."""
    small: list[bytes] = []
    size = 0
    for chunk in chunks:
        is_large = len(chunk) >= _LARGE_CHUNK_BYTES
        if small and (is_large or size + len(chunk) > _MAX_JOINED_BYTES):
            yield b"".join(small)
            small, size = [], 0
        if is_large:
            yield chunk
        else:
            small.append(chunk)
            size += len(chunk)
    if small:
        yield b"".join(small)


# --- the catalog's answers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ConfigSuffix:
    """What a table's config adds to the body and to the ETag of a loaded table."""

    body: bytes
    etag: str
    """The config is part of the body, so another config must give another tag."""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> _ConfigSuffix:
        text = encode(dict(config))
        tag = f'-{hashlib.sha256(text).hexdigest()[:8]}"' if config else '"'
        return cls(b',"config":' + text + b"}", tag)


class Renderer:
    """Renders tables and views: the JSON of their metadata with a few fields around it."""

    def __init__(self, table_config: Mapping[str, str]) -> None:
        # Clients must obey a planning mode, so it is sent only if a table property asks for it.
        server_side = {**table_config, SCAN_PLANNING_MODE: str(ScanPlanningMode.SERVER)}
        self._config_suffixes = {
            False: _ConfigSuffix.of(table_config),
            True: _ConfigSuffix.of(server_side),
        }

    def table_etag(self, table: LoadedTable, refs_only: bool = False) -> str:
        return table.etag(refs_only).removesuffix('"') + self._config_suffix(table).etag

    def loaded_table(self, table: LoadedTable, refs_only: bool = False) -> Reply:
        metadata = table.cached.refs_chunks() if refs_only else table.cached.chunks()
        suffix = self._config_suffix(table).body
        chunks = (_metadata_prefix(table.metadata_location), *metadata, suffix)
        return Reply(200, chunks, self._table_headers(table, refs_only))

    def _config_suffix(self, table: LoadedTable) -> _ConfigSuffix:
        mode = table.cached.metadata.properties.get(SCAN_PLANNING)
        return self._config_suffixes[mode == ScanPlanningMode.SERVER]

    def loaded_view(self, view: LoadedView) -> Reply:
        prefix = _metadata_prefix(view.metadata_location)
        chunks = (prefix, *view.cached.chunks(), b',"config":{}}')
        return Reply(200, chunks, (_etag_header(view.etag()),))

    def answer(self, answer: Answer, *, minimal: bool = False) -> Reply:
        """Return the reply to a change of the catalog. A commit is answered without config."""
        if isinstance(answer, NoContent):
            return NO_CONTENT
        if isinstance(answer, JsonAnswer):
            return Reply(answer.status, (answer.body,))
        if isinstance(answer, ViewAnswer):
            return self.loaded_view(answer.view)
        if isinstance(answer, TransactionAnswer):
            return _transaction(answer) if minimal else NO_CONTENT
        return self._commit(answer, minimal)

    def created(self, answer: Answer) -> Reply:
        """Return the reply to creating or registering, which is that of loading."""
        if isinstance(answer, TableAnswer):
            return self.loaded_table(answer.table)
        return self.answer(answer)

    def unregistered(self, answer: Answer) -> Reply:
        """Return the reply to unregistering; without a tag, because the table is gone."""
        if isinstance(answer, TableAnswer):
            return Reply(200, _metadata_chunks(answer.table, b"}"))
        return self.answer(answer)

    def _commit(self, answer: TableAnswer, minimal: bool) -> Reply:
        headers = self._table_headers(answer.table)
        if minimal and answer.table.metadata_location is not None:
            return Reply(200, (encode(_minimal(answer)),), (*headers, _MINIMAL_APPLIED))
        return Reply(200, _metadata_chunks(answer.table, _commit_suffix(answer)), headers)

    def _table_headers(self, table: LoadedTable, refs_only: bool = False) -> tuple[Header, ...]:
        # A staged table has no version that a client could ask for again.
        if table.metadata_location is None:
            return ()
        return (_etag_header(self.table_etag(table, refs_only)),)


def not_modified(etag: str) -> Reply:
    return Reply(304, headers=(_etag_header(etag),))


def _etag_header(etag: str) -> Header:
    return (b"etag", etag.encode())


def _metadata_prefix(metadata_location: str | None) -> bytes:
    if metadata_location is None:
        return b'{"metadata":'
    return b'{"metadata-location":' + encode(metadata_location) + b',"metadata":'


def _metadata_chunks(table: LoadedTable, suffix: bytes) -> tuple[bytes, ...]:
    return (_metadata_prefix(table.metadata_location), *table.cached.chunks(), suffix)


def _commit_suffix(answer: TableAnswer) -> bytes:
    """Return the JSON that follows the metadata in the reply to a commit."""
    committed = b"" if answer.committed is None else b',"committed":' + answer.committed
    return committed + (b',"already-committed":true}' if answer.already_committed else b"}")


def _minimal(answer: TableAnswer, *, named: bool = False) -> MinimalCommitResponse:
    return MinimalCommitResponse(
        metadata_location=answer.table.metadata_location or "",
        committed=Raw(b"[]" if answer.committed is None else answer.committed),
        identifier=table_identifier(answer.table.identifier) if named else UNSET,
        already_committed=answer.already_committed or UNSET,
    )


def _transaction(answer: TransactionAnswer) -> Reply:
    tables = tuple(_minimal(table, named=True) for table in answer.tables)
    return Reply(200, (encode(MinimalTransactionResponse(tables)),), (_MINIMAL_APPLIED,))


# --- errors ---------------------------------------------------------------------------------------


def error_reply(error: Exception, route: Route | None, request_id: str) -> Reply:
    """Return the reply to a failed request, in the standard shape of errors."""
    if isinstance(error, ReplayedError):
        return Reply(error.status, (error.body,), error_type="Replayed")
    known = error if isinstance(error, FrazilError) else _unexpected(error, route, request_id)
    headers = tuple(
        (name.lower().encode(), text.encode()) for name, text in known.headers().items()
    )
    return Reply(known.status, (encode(known.body()),), headers, known.type)


def _unexpected(error: Exception, route: Route | None, request_id: str) -> FrazilError:
    """Return the error for a failure that was not meant for a client, and log the failure.

    A read can be repeated, so it is answered with 503. After a change nobody knows how far it got,
    so the answer is a 500, which Iceberg's clients treat as an unknown outcome. This includes
    commits that failed before they were submitted, because they cannot be told apart here.
    """
    changes = route is not None and route.changes
    if isinstance(error, DatabaseUnavailable | StoreError) and not changes:
        _log.warning("a read failed: %r", error, extra={"id": request_id})
        service = "database" if isinstance(error, DatabaseUnavailable) else "object store"
        return ServiceUnavailable(f"the {service} cannot be reached now: try again")
    _log.error("unexpected failure", exc_info=error, extra={"id": request_id})
    message = f"something failed inside the server; its log says what, by request id {request_id}"
    if route is not None and route.commits:
        return CommitStateUnknown(f"{message}. Whether the commit happened is not known")
    return FrazilError(message)

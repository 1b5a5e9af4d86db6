"""An answer on its way out, and how the catalog's answers become one."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET, Raw
from starlette.types import Send

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
from frazil.store.base import StoreError
from frazil.wire.errors import CommitStateUnknown, FrazilError, ServiceUnavailable
from frazil.wire.json import encode
from frazil.wire.planning import SCAN_PLANNING_MODE, SCAN_PLANNING_PROPERTY, ScanPlanningMode
from frazil.wire.responses import (
    MinimalCommitResponse,
    MinimalTransactionResponse,
    table_identifier,
)

_JSON = b"application/json"
_PIECE_BYTES = 256 * 1024
_LARGE_BYTES = 64 * 1024
_MINIMAL = (b"preference-applied", b"return=minimal")

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    chunks: Sequence[bytes] = ()
    headers: tuple[Header, ...] = ()
    error_type: str | None = None
    """For the log."""
    content_type: bytes = _JSON

    async def send(self, send: Send, method: str, more_headers: Sequence[Header]) -> None:
        chunks = () if method == "HEAD" else self.chunks
        headers = [*self.headers, *more_headers]
        if self.chunks:
            headers.append((b"content-type", self.content_type))
        if self.status not in (204, 304):
            headers.append((b"content-length", b"%d" % sum(map(len, chunks))))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        held = b""
        for piece in _pieces(chunks):
            if held:
                await send({"type": "http.response.body", "body": held, "more_body": True})
            held = piece
        await send({"type": "http.response.body", "body": held})


NO_CONTENT = Reply(204)


def json_reply(value: object, status: int = 200) -> Reply:
    return Reply(status, (encode(value),))


def _pieces(chunks: Sequence[bytes]) -> Iterator[bytes]:
    """Small chunks together, large ones as they are: a long history is not copied to be sent."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        is_large = len(chunk) >= _LARGE_BYTES
        if held and (is_large or size + len(chunk) > _PIECE_BYTES):
            yield b"".join(held)
            held, size = [], 0
        if is_large:
            yield chunk
        else:
            held.append(chunk)
            size += len(chunk)
    if held:
        yield b"".join(held)


# --- the catalog's answers ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ending:
    """What follows from a table's config."""

    of_body: bytes
    of_tag: str
    """The config is part of a load's answer: when it changes, so must the tag."""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> _Ending:
        text = encode(dict(config))
        tag = f'-{hashlib.sha256(text).hexdigest()[:8]}"' if config else '"'
        return cls(b',"config":' + text + b"}", tag)


class Renderer:
    """Renders what holds metadata: the metadata's own JSON with a few fields around it."""

    def __init__(self, table_config: Mapping[str, str]) -> None:
        # Clients must obey a planning mode, so a table's owner decides whether they are told one.
        server_side = {**table_config, SCAN_PLANNING_MODE: str(ScanPlanningMode.SERVER)}
        self._endings = {False: _Ending.of(table_config), True: _Ending.of(server_side)}

    def table_etag(self, table: LoadedTable, refs_only: bool = False) -> str:
        return table.etag(refs_only).removesuffix('"') + self._ending(table).of_tag

    def loaded_table(self, table: LoadedTable, refs_only: bool = False) -> Reply:
        ending = self._ending(table).of_body
        chunks = (_opening(table.metadata_location), *table.json_chunks(refs_only), ending)
        return Reply(200, chunks, self._table_headers(table, refs_only))

    def _ending(self, table: LoadedTable) -> _Ending:
        mode = table.metadata.properties.get(SCAN_PLANNING_PROPERTY)
        return self._endings[mode == ScanPlanningMode.SERVER]

    def loaded_view(self, view: LoadedView) -> Reply:
        chunks = (_opening(view.metadata_location), *view.json_chunks(), b',"config":{}}')
        return Reply(200, chunks, (_etag_header(view.etag()),))

    def answer(self, answer: Answer, *, minimal: bool = False) -> Reply:
        """What a change of the catalog answers; a commit's answer carries no config."""
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
        """What creating or registering a table answers: the same as loading it."""
        if isinstance(answer, TableAnswer):
            return self.loaded_table(answer.table)
        return self.answer(answer)

    def unregistered(self, answer: Answer) -> Reply:
        """The table is gone, so its answer carries no tag to ask for it again."""
        if isinstance(answer, TableAnswer):
            return Reply(200, _metadata_chunks(answer.table, b"}"))
        return self.answer(answer)

    def _commit(self, answer: TableAnswer, minimal: bool) -> Reply:
        headers = self._table_headers(answer.table)
        if minimal and answer.table.metadata_location is not None:
            return Reply(200, (encode(_minimal(answer)),), (*headers, _MINIMAL))
        return Reply(200, _metadata_chunks(answer.table, _commit_ending(answer)), headers)

    def _table_headers(self, table: LoadedTable, refs_only: bool = False) -> tuple[Header, ...]:
        # What is only staged has no version that could be asked for again.
        if table.metadata_location is None:
            return ()
        return (_etag_header(self.table_etag(table, refs_only)),)


def not_modified(etag: str) -> Reply:
    return Reply(304, headers=(_etag_header(etag),))


def _etag_header(etag: str) -> Header:
    return (b"etag", etag.encode())


def _opening(metadata_location: str | None) -> bytes:
    if metadata_location is None:
        return b'{"metadata":'
    return b'{"metadata-location":' + encode(metadata_location) + b',"metadata":'


def _metadata_chunks(table: LoadedTable, ending: bytes) -> tuple[bytes, ...]:
    return (_opening(table.metadata_location), *table.json_chunks(), ending)


def _commit_ending(answer: TableAnswer) -> bytes:
    """What a commit's answer says behind the metadata."""
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
    return Reply(200, (encode(MinimalTransactionResponse(tables)),), (_MINIMAL,))


_log = logging.getLogger("frazil.rest")


def failure(error: Exception, route: Route | None, request_id: str) -> Reply:
    if isinstance(error, ReplayedError):
        return Reply(error.status, (error.body,), error_type="Replayed")
    known = error if isinstance(error, FrazilError) else _expected(error, route, request_id)
    headers = tuple(
        (name.lower().encode(), text.encode()) for name, text in known.headers().items()
    )
    return Reply(known.status, (encode(known.body()),), headers, known.type)


def _expected(error: Exception, route: Route | None, request_id: str) -> FrazilError:
    """What no room meant for a client. A client is told where to look, not what it was.

    A read can simply be sent again. After a change nothing is known about how far it came, so
    the answer is a 500, which Iceberg's clients read as 'unknown' on a commit; that holds for a
    commit that failed before it was submitted too, because here nobody can tell them apart.
    """
    changes = route is not None and route.changes
    if isinstance(error, DatabaseUnavailable | StoreError) and not changes:
        _log.warning("a read failed: %r", error, extra={"id": request_id})
        what = "database" if isinstance(error, DatabaseUnavailable) else "object store"
        return ServiceUnavailable(f"the {what} cannot be reached now: try again")
    _log.error("unexpected failure", exc_info=error, extra={"id": request_id})
    message = f"something failed inside the server; its log says what, by request id {request_id}"
    if route is not None and route.commits:
        return CommitStateUnknown(f"{message}. Whether the commit happened is not known")
    return FrazilError(message)

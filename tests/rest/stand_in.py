"""The REST layer over a stand-in for the catalog."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from frazil.commit.pipeline.catalog_answers import (
    Answer,
    JsonAnswer,
    LoadedTable,
    LoadedView,
    NoContent,
    TableAnswer,
    TransactionAnswer,
    ViewAnswer,
)
from frazil.read.metadata_cache import CachedTable, CachedView
from frazil.rest.rest_app import RestApp
from frazil.wire.identifiers import Identifier, Namespace
from tests.support.patience import HANG_S

LOCATION = "file:///warehouse/ns/t/metadata/00001.metadata.json"
ALL = [b'{"snapshots":[1,', b"2]}"]
REFS = [b'{"snapshots":[2]}']
NAMES = {
    "namespace": "a",
    "table": "t",
    "view": "v",
    "plan-id": "p",
    "job-id": "j",
    "lease-id": "l",
    "intent-id": "i",
}
"""Values for the path parameters of a route."""


def loaded_table(
    identifier: Identifier,
    location: str | None = LOCATION,
    chunks: list[bytes] | None = None,
    properties: dict[str, str] | None = None,
) -> LoadedTable:
    """Return a loaded table. The REST layer reads only the properties of its metadata."""
    metadata = cast(Any, SimpleNamespace(properties=properties or {}))
    return LoadedTable(identifier, CachedTable(metadata, chunks or ALL, REFS), location)


class StandInCatalog:
    """Records the calls of the REST layer, and returns or raises what a test configured."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.raises: dict[str, Exception] = {}
        self.answers: dict[str, Any] = {}
        self.names: list[str] = []
        self.hold: Future[Answer] | None = None
        """A future that the test completes itself."""

    def asked(self, name: str) -> tuple[Any, ...]:
        """Return the arguments of the only call with this name."""
        found = [arguments for called, arguments in self.calls if called == name]
        assert len(found) == 1, self.calls
        return found[0]

    def _note(self, name: str, *arguments: Any) -> Any:
        self.calls.append((name, arguments))
        if name in self.raises:
            raise self.raises[name]
        return self.answers.get(name)

    def _future(self, name: str, answer: Answer, *arguments: Any) -> Future[Answer]:
        given = self._note(name, *arguments)
        if self.hold is not None:
            return self.hold
        future: Future[Answer] = Future()
        if isinstance(given, Exception):
            future.set_exception(given)
        else:
            future.set_result(answer if given is None else given)
        return future

    def _page(self, after: str | None, size: int | None) -> tuple[list[str], str | None]:
        names = [name for name in self.names if after is None or name > after]
        if size is None or len(names) <= size:
            return names, None
        return names[:size], names[size - 1]

    # namespaces

    def list_namespaces(
        self, parent: Namespace, token: str | None, size: int | None
    ) -> tuple[list[Namespace], str | None]:
        self._note("list_namespaces", parent, token, size)
        names, after = self._page(token, size)
        return [(*parent, name) for name in names], after

    def load_namespace(self, namespace: Namespace) -> dict[str, str]:
        return self._note("load_namespace", namespace) or {"owner": "me"}

    def namespace_exists(self, namespace: Namespace) -> None:
        self._note("namespace_exists", namespace)

    def create_namespace(self, *arguments: Any) -> Answer:
        return self._note("create_namespace", *arguments) or JsonAnswer(b'{"namespace":["a"]}')

    def update_namespace_properties(self, *arguments: Any) -> Answer:
        return self._note("update_namespace_properties", *arguments) or JsonAnswer(b"{}")

    def drop_namespace(self, *arguments: Any) -> Answer:
        return self._note("drop_namespace", *arguments) or NoContent()

    # tables

    def list_tables(
        self, namespace: Namespace, token: str | None, size: int | None
    ) -> tuple[list[Identifier], str | None]:
        self._note("list_tables", namespace, token, size)
        names, after = self._page(token, size)
        return [Identifier(namespace, name) for name in names], after

    def load_table(self, identifier: Identifier) -> LoadedTable:
        return self._note("load_table", identifier) or loaded_table(identifier)

    def table_exists(self, identifier: Identifier) -> None:
        self._note("table_exists", identifier)

    def count_scan(self, identifier: Identifier) -> None:
        self._note("count_scan", identifier)

    def create_table(self, context: Any, identifier: Identifier, request: Any) -> Answer:
        given = self._note("create_table", context, identifier, request)
        return given or TableAnswer(loaded_table(identifier))

    def register_table(self, context: Any, identifier: Identifier, request: Any) -> Answer:
        given = self._note("register_table", context, identifier, request)
        return given or TableAnswer(loaded_table(identifier))

    def commit_table(self, context: Any, identifier: Identifier, request: Any) -> Future[Answer]:
        answer = TableAnswer(loaded_table(identifier), b'[{"update":0,"snapshot-id":7}]')
        return self._future("commit_table", answer, context, identifier, request)

    def commit_transaction(self, context: Any, request: Any) -> Future[Answer]:
        tables = (TableAnswer(loaded_table(Identifier(("a",), "t")), b"[]"),)
        return self._future("commit_transaction", TransactionAnswer(tables), context, request)

    def drop_table(self, *arguments: Any) -> Future[Answer]:
        return self._future("drop_table", NoContent(), *arguments)

    def unregister_table(self, context: Any, identifier: Identifier) -> Future[Answer]:
        answer = TableAnswer(loaded_table(identifier))
        return self._future("unregister_table", answer, context, identifier)

    def rename_table(self, *arguments: Any) -> Future[Answer]:
        return self._future("rename_table", NoContent(), *arguments)

    # views

    def _view(self, identifier: Identifier) -> LoadedView:
        return LoadedView(identifier, CachedView(cast(Any, None), [b'{"view-uuid":"u"}']), LOCATION)

    def list_views(
        self, namespace: Namespace, token: str | None, size: int | None
    ) -> tuple[list[Identifier], str | None]:
        self._note("list_views", namespace, token, size)
        names, after = self._page(token, size)
        return [Identifier(namespace, name) for name in names], after

    def load_view(self, identifier: Identifier) -> LoadedView:
        return self._note("load_view", identifier) or self._view(identifier)

    def view_exists(self, identifier: Identifier) -> None:
        self._note("view_exists", identifier)

    def create_view(self, context: Any, identifier: Identifier, request: Any) -> Answer:
        given = self._note("create_view", context, identifier, request)
        return given or ViewAnswer(self._view(identifier))

    def register_view(self, context: Any, identifier: Identifier, request: Any) -> Answer:
        given = self._note("register_view", context, identifier, request)
        return given or ViewAnswer(self._view(identifier))

    def commit_view(self, context: Any, identifier: Identifier, request: Any) -> Future[Answer]:
        answer = ViewAnswer(self._view(identifier))
        return self._future("commit_view", answer, context, identifier, request)

    def drop_view(self, *arguments: Any) -> Future[Answer]:
        return self._future("drop_view", NoContent(), *arguments)

    def rename_view(self, *arguments: Any) -> Future[Answer]:
        return self._future("rename_view", NoContent(), *arguments)

    def ready(self) -> list[str]:
        return self._note("ready") or []


class StandInPlanner:
    """The stand-in's planner. It records its calls in the stand-in."""

    def __init__(self, catalog: StandInCatalog) -> None:
        self._note = catalog._note
        self.hold: Event | None = None
        """If set, plans wait for this event."""
        self.explained: list[bool] = []
        """For each call, whether it asked for the walk."""
        self.numbered: list[bool] = []
        """For each plan, whether it asked for sequence numbers."""

    def plan(self, *arguments: Any, explain: bool, sequence_numbers: bool, **_: bool) -> bytes:
        self.explained.append(explain)
        self.numbered.append(sequence_numbers)
        answer = self._note("plan", *arguments) or b'{"status":"submitted","plan-id":"p"}'
        assert self.hold is None or self.hold.wait(HANG_S)
        return cast(bytes, answer)

    def fetch(self, *arguments: Any, explain: bool) -> bytes:
        self.explained.append(explain)
        return self._note("fetch", *arguments) or b'{"status":"submitted"}'

    def cancel(self, *arguments: Any) -> None:
        self._note("cancel", *arguments)

    def tasks(self, *arguments: Any) -> bytes:
        return self._note("tasks", *arguments) or b'{"file-scan-tasks":[]}'


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    body: bytes
    pieces: list[bytes] = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, after a check of its shape."""
        error: dict[str, Any] = self.json["error"]
        assert error["code"] == self.status >= 400
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error["type"], str)
        return error


async def exchange(
    app: RestApp,
    method: str,
    target: str | bytes,
    headers: dict[str, str] | None = None,
    parts: Sequence[bytes] = (b"",),
    disconnect: bool = False,
) -> Got:
    """Send one request exactly as given. With `disconnect` the client disconnects after its
    parts."""
    raw = target if isinstance(target, bytes) else target.encode()
    raw_path, _, query = raw.partition(b"?")
    scope = {
        "type": "http",
        "method": method,
        "path": raw_path.decode("latin-1"),
        "raw_path": raw_path,
        "query_string": query,
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in (headers or {}).items()],
    }
    incoming = [
        {"type": "http.request", "body": part, "more_body": disconnect or index < len(parts) - 1}
        for index, part in enumerate(parts)
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    if not sent:
        return Got(0, {}, b"", [])
    pieces = [message["body"] for message in sent[1:]]
    names = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Got(sent[0]["status"], names, b"".join(pieces), pieces)


class Client:
    def __init__(self, catalog: StandInCatalog, app: RestApp) -> None:
        self.catalog = catalog
        self.app = app

    def __call__(
        self,
        method: str,
        target: str | bytes,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        parts: Sequence[bytes] | None = None,
        disconnect: bool = False,
    ) -> Got:
        if parts is None:
            parts = (body if isinstance(body, bytes) else b"" if body is None else dumped(body),)
        return asyncio.run(exchange(self.app, method, target, headers, parts, disconnect))


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()

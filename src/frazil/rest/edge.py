"""The way of a request: route, principal, body, handler, answer, one line in the log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from frazil.commit.pipeline.pending_requests import IdempotencyKey
from frazil.rest.app_settings import AppSettings
from frazil.rest.call import Call, key_of
from frazil.rest.http_counts import HttpCounts
from frazil.rest.reply import Renderer, Reply, failure
from frazil.rest.request_body import BodyBudget, BodyLimits, ClientGone, Lease, read_body
from frazil.rest.request_headers import Headers, principal_of, request_id
from frazil.rest.routing import Match, Route, Router, no_such_route
from frazil.wire.errors import TooManyRequests
from frazil.wire.json import decode

if TYPE_CHECKING:
    from frazil.commit.catalog.operations import Catalog
    from frazil.plan.service import Planner

P = ParamSpec("P")
T = TypeVar("T")

_access = logging.getLogger("frazil.access")

_INLINE_BYTES = 64 * 1024
"""Larger bodies are hashed, decoded and checked on a worker thread: the event loop is for all."""

_CLIENT_GONE = 499
"""Only in the log: a client that closed its connection gets no answer."""

_UNKNOWN_OPERATION = "unknown"
_PLAN_ID_IN_LOG = 12


class Edge:
    """Everything that the handlers share, and the ASGI application itself."""

    def __init__(
        self,
        catalog: Catalog,
        planner: Planner,
        settings: AppSettings,
        routes: tuple[Route, ...],
    ) -> None:
        self.catalog = catalog
        self.planner = planner
        self.settings = settings
        self.routes = routes
        self.render = Renderer(settings.table_config)
        self.http = HttpCounts()
        self.draining = False
        self._router = Router(routes)
        self._budget = BodyBudget(settings.max_bytes_in_flight)
        self._limits = BodyLimits(settings.max_request_bytes, settings.body_timeout_s)
        self._in_flight = 0
        self._threads = ThreadPoolExecutor(settings.worker_threads, "frazil-rest")
        self._planning_threads = ThreadPoolExecutor(settings.planning_threads, "frazil-plans")

    def close(self) -> None:
        """Waits for the calls that run; none may follow."""
        self._threads.shutdown(wait=True)
        self._planning_threads.shutdown(wait=True)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    # --- what handlers use ------------------------------------------------------------------------

    async def blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a call of the catalog on a worker thread, to its end whatever the client does."""
        future = self._threads.submit(call, *args, **kwargs)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def planning(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a call of the planner on a thread of its own kind: slow plans wait for each other,
        and never does a load or a commit wait for them."""
        future = self._planning_threads.submit(call, *args, **kwargs)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def by_size(
        self, size_bytes: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs a call at once for a small body, on a worker thread for a large one."""
        if size_bytes <= _INLINE_BYTES:
            return call(*args, **kwargs)
        return await self.blocking(call, *args, **kwargs)

    async def submitted(self, future: Future[T]) -> T:
        """Waits for what was submitted. Nobody who stops waiting takes it back."""
        return await asyncio.shield(asyncio.wrap_future(future))

    # --- the application --------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        method: str = scope["method"]
        headers = Headers(scope["headers"])
        own_id = request_id(headers.get("x-request-id"))
        exchange = _Exchange(self, scope, headers, own_id)
        # Stays so where the client is gone or the server gives up on it.
        reply = Reply(_CLIENT_GONE, error_type="ClientGone")
        self._in_flight += 1
        try:
            reply = await exchange.answer(receive)
            await reply.send(send, method, ((b"x-request-id", own_id.encode()),))
        except ClientGone:
            return  # Nobody is there to be told; the log is.
        finally:
            self._in_flight -= 1
            exchange.lease.end()
            took_s = time.perf_counter() - started
            self.http.add(exchange.operation, reply.status, took_s)
            exchange.log(method, reply, took_s * 1000)

    def check_room(self, route: Route) -> None:
        """Refuses, before anything has begun, what the server should not take on now."""
        if self.draining and route.changes:
            raise TooManyRequests("the server is shutting down: send this to another one")
        if self._in_flight > self.settings.max_requests_in_flight and not route.open:
            raise TooManyRequests("the server has as many requests as it may: try again")

    def new_lease(self) -> Lease:
        return Lease(self._budget)

    async def read(
        self,
        route: Route,
        headers: Headers,
        path: tuple[bytes, bytes],
        receive: Receive,
        lease: Lease,
    ) -> tuple[Any, int, IdempotencyKey | None]:
        """The decoded body, its size, and the client's key over the whole request."""
        if route.request is None:
            return None, 0, key_of(route, headers, *path, b"")
        body = await read_body(receive, headers, self._limits, lease)

        def take_in() -> tuple[Any, int, IdempotencyKey | None]:
            key = key_of(route, headers, *path, body)
            return decode(route.request, body), len(body), key  # type: ignore[arg-type]

        return await self.by_size(len(body), take_in)

    def find(self, raw_path: bytes) -> Match | None:
        return self._router.find(raw_path)


class _Exchange:
    """One request from its first byte to its line in the log."""

    def __init__(self, edge: Edge, scope: Scope, headers: Headers, own_id: str) -> None:
        self._edge = edge
        self._method: str = scope["method"]
        self._raw_path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        self._query_string: bytes = scope.get("query_string", b"")
        self._headers = headers
        self._id = own_id
        self._route: Route | None = None
        self._call: Call | None = None
        self._principal: str | None = None
        self.lease = edge.new_lease()

    async def answer(self, receive: Receive) -> Reply:
        """The reply, also to every failure. Only a client that went away gets none."""
        try:
            route = self._admitted()
            self._route = route[0]
            return await self._handled(*route, receive)
        except ClientGone:
            raise
        except Exception as error:
            return failure(error, self._route, self._id)

    def _admitted(self) -> tuple[Route, dict[str, bytes]]:
        """The route of a request that may be answered. Who has no token learns of no route."""
        match = self._edge.find(self._raw_path)
        is_open = match is not None and all(route.open for route in match.routes.values())
        if not is_open:
            tokens = self._edge.settings.tokens
            self._principal = principal_of(self._headers.get("authorization"), tokens)
        if match is None:
            raise no_such_route(self._raw_path)
        return match.route(self._method), match.segments

    async def _handled(self, route: Route, segments: dict[str, bytes], receive: Receive) -> Reply:
        self._edge.check_room(route)
        call = self._call = Call(
            route,
            self._raw_path,
            self._query_string,
            segments,
            self._headers,
            self._principal or "",
            self._id,
        )
        path = (self._raw_path, self._query_string)
        call.request, call.body_bytes, call.key = await self._edge.read(
            route, self._headers, path, receive, self.lease
        )
        return await route.handler(self._edge, call)

    @property
    def operation(self) -> str:
        return _UNKNOWN_OPERATION if self._route is None else self._route.operation

    def _shown_path(self) -> bytes:
        """A plan id is long and holds the scan's filter: its end is enough to know it by."""
        plan_id = None if self._call is None else self._call.segments.get("plan-id")
        if plan_id is None:
            return self._raw_path
        return self._raw_path.removesuffix(plan_id) + b"..." + plan_id[-_PLAN_ID_IN_LOG:]

    def log(self, method: str, reply: Reply, ms: float) -> None:
        _access.info(
            "request",
            extra={
                "id": self._id,
                "principal": self._principal,
                "method": method,
                "path": self._shown_path().decode("ascii", "backslashreplace"),
                "operation": self.operation,
                "table": None if self._call is None else self._call.subject,
                "status": reply.status,
                "outcome": reply.error_type or "ok",
                "ms": round(ms, 2),
            },
        )

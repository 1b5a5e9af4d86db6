"""The ASGI application of a catalog, and its settings.

A request passes these steps: authenticate, find the route, check the limits, read the body, call
the handler, send the reply, write one log line.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar
from urllib.parse import quote

from frazil.commit.pipeline.pending_requests import IdempotencyKey
from frazil.housekeeping.intents import Intents
from frazil.housekeeping.leases import Leases
from frazil.read.counters import Histogram, HistogramCounts
from frazil.rest.access import ANONYMOUS, Access, Principal
from frazil.rest.call import (
    BodyBudget,
    BodyLimits,
    Call,
    ClientGone,
    Headers,
    Lease,
    Receive,
    key_of,
    read_body,
    request_id,
)
from frazil.rest.reply import Renderer, Reply, Send, error_reply
from frazil.rest.routes import ROUTES
from frazil.rest.routing import Route, Router, no_such_route
from frazil.wire.errors import TooManyRequests
from frazil.wire.json_bodies import decode

if TYPE_CHECKING:
    from frazil.commit.catalog.operations import Catalog
    from frazil.housekeeping.services import Housekeeping
    from frazil.plan.planner import Planner

Scope: TypeAlias = MutableMapping[str, Any]

P = ParamSpec("P")
T = TypeVar("T")

_access = logging.getLogger("frazil.access")

_MAX_INLINE_BYTES: Final = 64 * 1024
"""Worker threads hash, decode and check larger bodies, so that the event loop is not blocked."""

_CLIENT_GONE: Final = 499
"""Status in the log when the client closed its connection. Nothing is sent."""

_UNKNOWN_OPERATION: Final = "unknown"
_PLAN_ID_CHARACTERS_IN_LOG: Final = 12
_DURATION_BOUNDS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60),
)


_SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")
_SECRET: Final = re.compile(
    r"secret|token|password|credential|access-key|account-key|sas", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Settings of the REST application; the server fills them from its own settings."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    """Names of principals and the SHA-256 of their tokens in hex. If empty, no token is needed."""

    read_only: frozenset[str] = frozenset()
    """The principals that may change nothing."""

    config_defaults: Mapping[str, str] = field(default_factory=dict)
    config_overrides: Mapping[str, str] = field(default_factory=dict)
    """Properties that `/v1/config` returns to clients."""

    table_config: Mapping[str, str] = field(default_factory=dict)
    """Properties for access to a table's files, such as `s3.endpoint`; never a secret."""

    idempotency_key_lifetime: str = "PT30M"
    """How long a client may repeat a request with its key, in ISO 8601."""

    max_request_bytes: int = 256 << 20
    """The largest body after decompression."""

    max_bytes_in_flight: int = 1 << 30
    """The largest total size of the bodies of all running requests."""

    max_requests_in_flight: int = 1000
    body_timeout_s: float = 60.0
    """How long a body may take to arrive after the headers."""

    local_files: Mapping[str, str] = field(default_factory=dict)
    """What the server stores on local disks, and where. The metrics show the space left there."""

    ready_timeout_s: float = 5.0
    worker_threads: int = 16
    """Threads for blocking calls of the catalog."""

    planning_threads: int = 8
    """Threads for planning scans and for pages of scan tasks."""

    default_page_size: int = 1000
    """The size of a page if the client does not ask for one."""

    max_page_size: int = 10_000

    def __post_init__(self) -> None:
        for name, digest in self.tokens.items():
            if not _SHA256_HEX.fullmatch(digest):
                raise ValueError(f"token {name!r}: the SHA-256 must be 64 lower-case hex digits")
        for properties in (self.config_defaults, self.config_overrides, self.table_config):
            for key in properties:
                if _SECRET.search(key):
                    raise ValueError(f"{key} looks like a secret, and clients would receive it")
        if self.max_bytes_in_flight < self.max_request_bytes:
            raise ValueError("max_bytes_in_flight must be at least max_request_bytes")


class RequestCounts:
    """Counts requests by operation and status, and measures their durations.

    Paths are not counted: they contain names, and there are as many as there are tables.
    """

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._seconds: dict[str, Histogram] = {}
        self._lock = threading.Lock()

    def add(self, operation: str, status: int, duration_s: float) -> None:
        key = operation, status
        with self._lock:
            self._requests[key] = self._requests.get(key, 0) + 1
            seconds = self._seconds.get(operation)
            if seconds is None:
                seconds = self._seconds[operation] = Histogram(_DURATION_BOUNDS_S)
        seconds.add(duration_s)

    def requests(self) -> dict[tuple[str, int], int]:
        """Return the number of requests by operation and status."""
        with self._lock:
            return dict(self._requests)

    def seconds(self) -> dict[str, HistogramCounts]:
        """Return the durations by operation."""
        with self._lock:
            histograms = dict(self._seconds)
        return {operation: histogram.read() for operation, histogram in histograms.items()}


class RestApp:
    """The ASGI application, and what its handlers share.

    The owner calls `drain` and then `close` to end it.
    """

    def __init__(
        self,
        catalog: Catalog,
        planner: Planner,
        settings: AppSettings | None = None,
        routes: tuple[Route, ...] = ROUTES,
        housekeeping: Housekeeping | None = None,
    ) -> None:
        settings = settings or AppSettings()
        self.catalog = catalog
        self.planner = planner
        self.leases = Leases(catalog)
        self.intents = Intents(catalog)
        self.settings = settings
        self.routes = routes
        self._housekeeping = housekeeping
        self._internal_tokens: dict[str, str] = {}
        self.render = Renderer(settings.table_config)
        self.request_counts = RequestCounts()
        self.draining = False
        self.certificate_expiry: Callable[[], float | None] = lambda: None
        """Returns when the server's certificate expires, in seconds since 1970."""
        self.access = Access(settings.tokens, settings.read_only, required=bool(settings.tokens))
        self.said_not_ready = False
        """Whether the log says that the server is not ready, for a reason the catalog has not
        logged itself."""
        self.router = Router(routes)
        self.body_budget = BodyBudget(settings.max_bytes_in_flight)
        self._limits = BodyLimits(settings.max_request_bytes, settings.body_timeout_s)
        self.in_flight = 0
        self._threads = ThreadPoolExecutor(settings.worker_threads, "frazil-rest")
        self._planning_threads = ThreadPoolExecutor(settings.planning_threads, "frazil-plans")

    @property
    def has_housekeeping(self) -> bool:
        return self._housekeeping is not None

    @property
    def housekeeping(self) -> Housekeeping:
        """Return the services of the routes below `/frazil/v1/`."""
        if self._housekeeping is None:
            raise RuntimeError("this application was made without housekeeping")
        return self._housekeeping

    def drain(self) -> None:
        """Answer new changes with 429 and `/readyz` with 503; running requests continue."""
        self.draining = True

    def use_tokens(self, tokens: Mapping[str, str], read_only: frozenset[str]) -> None:
        """Replace the tokens for all later requests. Without any, all of them are refused."""
        tokens = {**tokens, **self._internal_tokens}
        self.access = Access(tokens, read_only, self.access.required)

    def add_internal_token(self, name: str, digest: str) -> None:
        """Accept one more token, which stays when the others are replaced."""
        self._internal_tokens[name] = digest
        tokens = {**self.access.tokens, name: digest}
        self.access = Access(tokens, self.access.read_only, self.access.required)

    def principal_of(self, authorization: str | None) -> Principal:
        """Return the principal of an Authorization header. Without tokens it is everyone."""
        return self.access.principal_of(authorization) if self.access.required else ANONYMOUS

    def close(self) -> None:
        """Wait for running calls of the catalog. Call this only when nothing is served any more."""
        self._threads.shutdown(wait=True)
        self._planning_threads.shutdown(wait=True)

    # --- for handlers -----------------------------------------------------------------------------

    async def blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the catalog on a worker thread.

        The call runs to its end even if the client disconnects.
        """
        return await self.submitted(self._threads.submit(call, *args, **kwargs))

    async def planning(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call of the planner on a planning thread.

        Planning has threads of its own, so that loads and commits never wait for slow plans.
        """
        return await self.submitted(self._planning_threads.submit(call, *args, **kwargs))

    async def by_size(
        self, size_bytes: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a call directly for a small body, on a worker thread for a large one."""
        if size_bytes <= _MAX_INLINE_BYTES:
            return call(*args, **kwargs)
        return await self.blocking(call, *args, **kwargs)

    async def submitted(self, future: Future[T]) -> T:
        """Wait for a submitted call. Cancelling the wait does not cancel the call."""
        return await asyncio.shield(asyncio.wrap_future(future))

    # --- the application --------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        exchange = _Exchange(self, scope)
        # The log shows this reply if the client disconnects or the server cancels the request.
        reply = Reply(_CLIENT_GONE, error_type="ClientGone")
        self.in_flight += 1
        try:
            reply = await exchange.answer(receive)
            await reply.send(send, exchange.method, ((b"x-request-id", exchange.id.encode()),))
        except ClientGone:
            return
        finally:
            self.in_flight -= 1
            exchange.lease.end()
            duration_s = time.perf_counter() - started
            self.request_counts.add(exchange.operation, reply.status, duration_s)
            exchange.log(reply, duration_s * 1000)

    def check_load(self, route: Route) -> None:
        """Refuse a request that the server should not start now."""
        if self.draining and route.changes:
            raise TooManyRequests("the server is shutting down: send this to another one")
        if self.in_flight > self.settings.max_requests_in_flight and not route.open:
            raise TooManyRequests("the server has as many requests as it may: try again")

    async def read(
        self,
        route: Route,
        headers: Headers,
        path: tuple[bytes, bytes],
        receive: Receive,
        lease: Lease,
    ) -> tuple[Any, int, IdempotencyKey | None]:
        """Return the decoded body, its size, and the idempotency key of the whole request."""
        if route.request is None:
            return None, 0, key_of(route, headers, *path, b"")
        body = await read_body(receive, headers, self._limits, lease)

        def decode_body() -> tuple[Any, int, IdempotencyKey | None]:
            key = key_of(route, headers, *path, body)
            return decode(route.request, body), len(body), key  # type: ignore[arg-type]

        return await self.by_size(len(body), decode_body)


class _Exchange:
    """One request from its first byte to its log line."""

    def __init__(self, app: RestApp, scope: Scope) -> None:
        self._app = app
        self.method: str = scope["method"]
        self._raw_path: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        self._query_string: bytes = scope.get("query_string", b"")
        self._headers = Headers(scope["headers"])
        self.id = request_id(self._headers.get("x-request-id"))
        self._route: Route | None = None
        self._call: Call | None = None
        self._principal: Principal | None = None
        self.lease = Lease(app.body_budget)

    async def answer(self, receive: Receive) -> Reply:
        """Return the reply. Failures become replies too, unless the client is gone."""
        try:
            self._route, segments = self._authenticate_and_route()
            return await self._handle(self._route, segments, receive)
        except ClientGone:
            raise
        except Exception as error:
            return error_reply(error, self._route, self.id)

    def _authenticate_and_route(self) -> tuple[Route, dict[str, bytes]]:
        """Authenticate before routing, so that a 404 does not reveal which routes exist."""
        match = self._app.router.find(self._raw_path)
        is_open = match is not None and all(route.open for route in match.routes.values())
        if not is_open:
            self._principal = self._app.principal_of(self._headers.get("authorization"))
        if match is None:
            raise no_such_route(self._raw_path)
        return match.route(self.method), match.segments

    async def _handle(self, route: Route, segments: dict[str, bytes], receive: Receive) -> Reply:
        self._app.check_load(route)
        principal = self._principal or Principal("")
        call = self._call = Call(
            route,
            self._raw_path,
            self._query_string,
            segments,
            self._headers,
            principal.name,
            self.id,
            principal.read_only,
        )
        if route.changes and self._headers.get("idempotency-key") is None:
            # With a key, the catalog refuses the request after it has looked for a stored answer.
            call.context().check_may_change()
        path = (self._raw_path, self._query_string)
        call.request, call.body_bytes, call.key = await self._app.read(
            route, self._headers, path, receive, self.lease
        )
        return await route.handler(self._app, call)

    @property
    def operation(self) -> str:
        return _UNKNOWN_OPERATION if self._route is None else self._route.operation

    def _logged_path(self) -> bytes:
        """Shorten plan ids, which contain the whole filter of a scan; their end identifies them."""
        plan_id = None if self._call is None else self._call.segments.get("plan-id")
        if plan_id is None:
            return self._raw_path
        return self._raw_path.removesuffix(plan_id) + b"..." + plan_id[-_PLAN_ID_CHARACTERS_IN_LOG:]

    def log(self, reply: Reply, duration_ms: float) -> None:
        _access.info(
            "request",
            extra={
                "id": self.id,
                "principal": None if self._principal is None else self._principal.name,
                "method": self.method,
                "path": self._logged_path().decode("ascii", "backslashreplace"),
                "operation": self.operation,
                "table": None if self._call is None else self._call.subject,
                "status": reply.status,
                "outcome": reply.error_type or "ok",
                "ms": round(duration_ms, 2),
            },
        )

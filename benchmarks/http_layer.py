"""What the HTTP layer costs: Frazil's own ASGI application against Starlette's classes.

Three applications answer the same requests in this process, in turns, without sockets:

    own          `frazil.rest.rest_app.RestApp` as the server runs it
    mounted      the same below Starlette's application, middleware and a catch-all route
    starlette    Starlette's `Route`, `Request` and `Response` around the same handlers

The last one does the same work for authentication, log and counts. Starlette decodes a path before
it routes, so it cannot tell `%2F` inside a name from a separator; this is ignored here.

    python -m benchmarks.http_layer [--requests 2000] [--rounds 5] [--commits 100] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from frazil.rest.call import Call, Headers, Message, Receive, request_id
from frazil.rest.reply import Reply, Send, error_reply
from frazil.rest.rest_app import RestApp, Scope
from frazil.rest.routing import Route
from frazil.server.assembly import open_app
from frazil.settings import Settings
from frazil.wire.json_bodies import decode

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_access = logging.getLogger("frazil.access")
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}


@dataclass(frozen=True, slots=True)
class Measured:
    request: str
    application: str
    requests: int
    p50_us: float
    cpu_us: float
    """CPU time of the whole process for one request."""


# --- the applications -----------------------------------------------------------------------------


def mounted(app: RestApp) -> Asgi:
    """Put the application below Starlette's middleware and router."""
    routing = import_module("starlette.routing")

    class WholeServer(routing.BaseRoute):  # type: ignore[misc,name-defined]
        def matches(self, scope: Scope) -> tuple[Any, Scope]:
            return routing.Match.FULL, {}

        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)

    made: Asgi = import_module("starlette.applications").Starlette(routes=[WholeServer()])
    return made


def starlette(app: RestApp) -> Asgi:
    """Build a Starlette application with one route for each of Frazil's."""
    routes = [_starlette_route(app, route) for route in app.routes]
    made: Asgi = import_module("starlette.applications").Starlette(routes=routes)
    return made


def _starlette_route(app: RestApp, route: Route) -> Any:
    response_class = import_module("starlette.responses").Response

    async def endpoint(request: Any) -> Any:
        started = time.perf_counter()
        own_id = request_id(request.headers.get("x-request-id"))
        try:
            reply = await _answered(app, route, request, own_id)
        except Exception as error:
            reply = error_reply(error, route, own_id)
        duration_s = time.perf_counter() - started
        app.request_counts.add(route.operation, reply.status, duration_s)
        _access.info("request", extra={"id": own_id, "status": reply.status})
        headers = {name.decode(): value.decode() for name, value in reply.headers}
        return response_class(
            b"".join(reply.chunks),
            reply.status,
            {**headers, "x-request-id": own_id},
            media_type=reply.content_type.decode() if reply.chunks else None,
        )

    path = route.path.replace("plan-id", "plan_id")
    routing = import_module("starlette.routing")
    return routing.Route(path, endpoint, methods=[route.method])


async def _answered(app: RestApp, route: Route, request: Any, own_id: str) -> Reply:
    principal = app.principal_of(request.headers.get("authorization")).name
    app.check_load(route)
    segments = {
        name.replace("_", "-"): value.encode() for name, value in request.path_params.items()
    }
    headers = Headers(request.scope["headers"])
    query = request.scope["query_string"]
    call = Call(route, request.scope["raw_path"], query, segments, headers, principal, own_id)
    if route.request is not None:
        body = await request.body()
        call.request, call.body_bytes = decode(route.request, body), len(body)  # type: ignore[arg-type]
    return await route.handler(app, call)


APPLICATIONS: dict[str, Callable[[RestApp], Asgi]] = {
    "own": lambda app: app,
    "mounted": mounted,
    "starlette": starlette,
}


# --- the requests ---------------------------------------------------------------------------------


async def exchange(app: Asgi, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1:8181"),
            (b"accept", b"application/json"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"user-agent", b"benchmark"),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8181),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def create_table(app: Asgi) -> tuple[str, str]:
    """Create a table; return its path and its location."""
    await exchange(app, "POST", "/v1/namespaces", b'{"namespace":["n"]}')
    request = {"name": f"t{uuid.uuid4().hex}", "schema": _SCHEMA}
    status, answer = await exchange(
        app, "POST", "/v1/namespaces/n/tables", json.dumps(request).encode()
    )
    assert status == 200, answer
    location: str = json.loads(answer)["metadata"]["location"]
    return f"/v1/namespaces/n/tables/{request['name']}", location


def small_commit(location: str) -> bytes:
    """Return an append of one file."""
    path = f"{location}/data/{uuid.uuid4()}.parquet"
    file = {
        "content": "data",
        "spec-id": 0,
        "partition": [],
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": 1000,
        "record-count": 10,
    }
    update = {"action": "append", "add-data-files": [file]}
    return json.dumps({"requirements": [], "updates": [update]}).encode()


async def measure(
    app: Asgi, method: str, path: str, bodies: Sequence[bytes]
) -> tuple[list[float], float]:
    """Return the duration of each request and the CPU time of all, in microseconds."""
    durations = []
    cpu = time.process_time()
    for body in bodies:
        started = time.perf_counter()
        status, answer = await exchange(app, method, path, body)
        durations.append((time.perf_counter() - started) * 1e6)
        assert status < 300, answer
    return durations, (time.process_time() - cpu) * 1e6


async def measure_all(app: RestApp, requests: int, commits: int, rounds: int) -> list[Measured]:
    """Measure every request on every application, in turns."""
    applications = {name: make(app) for name, make in APPLICATIONS.items()}
    durations: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, application in applications.items():
            table, location = await create_table(application)
            appends = [small_commit(location) for _ in range(commits)]
            for what, method, path, bodies in (
                ("GET /healthz", "GET", "/healthz", [b""] * requests),
                ("HEAD a table", "HEAD", table, [b""] * (requests // 4)),
                ("append of one file", "POST", table, appends),
            ):
                took, cpu_us = await measure(application, method, path, bodies)
                durations.setdefault((what, name), []).extend(took)
                cpu.setdefault((what, name), []).append(cpu_us / len(bodies))
    return [
        Measured(
            what,
            name,
            len(took),
            round(statistics.median(took), 1),
            round(min(cpu[what, name]), 1),
        )
        for (what, name), took in durations.items()
    ]


@contextmanager
def opened(folder: Path) -> Iterator[RestApp]:
    settings = Settings(
        database=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder / 'warehouse'}"
    )
    with open_app(settings, {}) as app:
        yield app


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000, help="for each round")
    parser.add_argument("--commits", type=int, default=100, help="for each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="http-layer-") as scratch, opened(Path(scratch)) as app:
        rows = asyncio.run(measure_all(app, options.requests, options.commits, options.rounds))
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'request':<20}{'application':<13}{'p50 µs':>10}{'CPU µs':>10}")
    for row in sorted(rows, key=lambda row: row.request):
        print(f"{row.request:<20}{row.application:<13}{row.p50_us:>10.1f}{row.cpu_us:>10.1f}")


if __name__ == "__main__":
    main()

"""A catalog in this process, called with HTTP requests through its ASGI application."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from frazil.commit.catalog.operations import Catalog
from frazil.db.rows import Database
from frazil.housekeeping.server_operations import ServerTools
from frazil.housekeeping.sweep import sweep_table
from frazil.plan.planner import PlanLimits, Planner
from frazil.rest.call import Message
from frazil.rest.rest_app import AppSettings, RestApp
from frazil.server.assembly import PLAN_SECRET
from frazil.store.local_store import LocalStore
from frazil.store.locations import AllowedLocations
from frazil.store.object_store import Store
from tests.commit.finegrained.tables import Answer
from tests.support.patience import HANG_S


@dataclass(frozen=True)
class World:
    catalog: Catalog
    database: Database
    warehouse: Path
    app: RestApp
    planner: Planner
    loop: asyncio.AbstractEventLoop

    def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request; several threads may call this at once."""
        content = b"" if body is None else json.dumps(body).encode()
        exchange = self._exchange(method, path, content, headers or {})
        return asyncio.run_coroutine_threadsafe(exchange, self.loop).result(HANG_S)

    async def _exchange(
        self, method: str, path: str, content: bytes, headers: Mapping[str, str]
    ) -> Answer:
        sent = {"content-type": "application/json", "content-length": str(len(content)), **headers}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        waiting: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        got: list[Message] = []

        async def receive() -> Message:
            if not waiting:
                await asyncio.Event().wait()
            return waiting.pop()

        async def send(message: Message) -> None:
            got.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in got[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in got[1:])
        return Answer(got[0]["status"], found, json.loads(text) if text else None)


@contextmanager
def opened_world(
    database: Database,
    warehouse: Path,
    store: Store | None = None,
    limits: PlanLimits | None = None,
    settings: AppSettings | None = None,
) -> Iterator[World]:
    """Open a catalog on the database and the folder; several catalogs on them are replicas."""
    root = f"file://{warehouse}"
    catalog = Catalog(
        db=database,
        store=store or LocalStore(),
        warehouse=root,
        allowed_locations=AllowedLocations(root),
    )
    catalog.sweep = partial(sweep_table, ServerTools(database, catalog.store, catalog))
    planner = Planner(catalog, database.secret(PLAN_SECRET), limits)
    app = RestApp(catalog, planner, settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="finegrained-loop", daemon=True)
    thread.start()
    try:
        yield World(catalog, database, warehouse, app, planner, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_S)
        loop.close()
        planner.close()
        app.close()
        catalog.close()

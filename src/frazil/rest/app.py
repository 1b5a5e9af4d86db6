"""Makes the ASGI application of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from frazil.rest.app_settings import AppSettings
from frazil.rest.edge import Edge
from frazil.rest.routes import ROUTES

if TYPE_CHECKING:
    from frazil.commit.catalog.operations import Catalog
    from frazil.plan.service import Planner

__all__ = ["AppSettings", "close", "create_app", "drain"]


def create_app(
    catalog: Catalog, planner: Planner, settings: AppSettings | None = None
) -> Starlette:
    """The application. Whoever made it ends it with `drain`, then `close`."""
    edge = Edge(catalog, planner, settings or AppSettings(), ROUTES)
    app = Starlette(routes=[_WholeServer(edge)])
    app.state.edge = edge
    return app


def drain(app: Starlette) -> None:
    """From now on new changes are answered 429 and `/readyz` 503; what runs is finished."""
    _edge(app).draining = True


def close(app: Starlette) -> None:
    """Waits for the calls of the catalog that still run. To be called when nothing is served."""
    _edge(app).close()


def _edge(app: Starlette) -> Edge:
    edge: Edge = app.state.edge
    return edge


class _WholeServer(BaseRoute):
    """Hands every HTTP request to the edge: Starlette routes by decoded paths, in which a slash
    of a name and a slash between names look the same."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._edge(scope, receive, send)

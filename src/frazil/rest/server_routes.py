"""Routes that are about the server itself: its configuration, health, metrics and description."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from importlib.resources import files

from frazil.rest.call import Call
from frazil.rest.edge import Edge
from frazil.rest.reply import Reply, json_reply
from frazil.wire.errors import ServiceUnavailable
from frazil.wire.responses import ConfigResponse

_log = logging.getLogger("frazil.rest")

_RETRY_AFTER_S = 2


async def get_config(edge: Edge, call: Call) -> Reply:
    """One warehouse a server: whatever `warehouse` a client names, it is this one."""
    settings = edge.settings
    config = ConfigResponse(
        defaults=dict(settings.config_defaults),
        overrides=dict(settings.config_overrides),
        # A client that reads this has found /v1/config itself.
        endpoints=tuple(
            route.endpoint
            for route in edge.routes
            if route.path.startswith("/v1/") and route.path != "/v1/config"
        ),
        idempotency_key_lifetime=settings.idempotency_key_lifetime,
    )
    return json_reply(config)


async def get_openapi(edge: Edge, call: Call) -> Reply:
    return Reply(200, (openapi(),))


async def get_metrics(edge: Edge, call: Call) -> Reply:
    text, content_type = await edge.blocking(_metrics, edge, call.headers.get("accept") or "")
    return Reply(200, (text,), content_type=content_type.encode())


def _metrics(edge: Edge, accept: str) -> tuple[bytes, str]:
    # A server that nobody scrapes need not load the library.
    from frazil.rest.prometheus import exposed

    return exposed(edge, accept)


@cache
def openapi() -> bytes:
    return files("frazil.rest").joinpath("openapi.json").read_bytes()


async def get_health(edge: Edge, call: Call) -> Reply:
    """The process answers; nothing else is asked."""
    return json_reply({"status": "ok"})


async def get_readiness(edge: Edge, call: Call) -> Reply:
    """Database and store can be used, and the server takes commits."""
    if edge.draining:
        raise ServiceUnavailable("the server is shutting down", retry_after_s=_RETRY_AFTER_S)
    try:
        async with asyncio.timeout(edge.settings.ready_timeout_s):
            await edge.blocking(edge.catalog.ready)
    except Exception as error:
        _log.warning("not ready: %r", error, extra={"id": call.request_id})
        raise ServiceUnavailable(
            "the database or the object store cannot be used now; the server's log says which",
            retry_after_s=_RETRY_AFTER_S,
        ) from error
    return json_reply({"status": "ready"})

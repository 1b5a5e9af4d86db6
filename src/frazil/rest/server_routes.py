"""Routes about the server itself: configuration, health, metrics and OpenAPI document."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from frazil.rest.call import LEVEL_SEPARATOR, Call
from frazil.rest.reply import Reply, json_reply
from frazil.wire.errors import ServiceUnavailable
from frazil.wire.rest_messages import ConfigResponse

if TYPE_CHECKING:
    from frazil.rest.rest_app import RestApp

_log = logging.getLogger("frazil.rest")

_RETRY_AFTER_S = 2


async def get_config(app: RestApp, call: Call) -> Reply:
    """Return the client configuration, the same for every `warehouse` in the query."""
    settings = app.settings
    config = ConfigResponse(
        defaults=dict(settings.config_defaults),
        # The specification's default, named because Iceberg's reference server names another one.
        overrides={**settings.config_overrides, "namespace-separator": quote(LEVEL_SEPARATOR)},
        # A client that reads this already knows /v1/config.
        endpoints=tuple(
            route.endpoint
            for route in app.routes
            if route.path.startswith("/v1/") and route.path != "/v1/config"
        ),
        idempotency_key_lifetime=settings.idempotency_key_lifetime,
    )
    return json_reply(config)


async def get_openapi(app: RestApp, call: Call) -> Reply:
    return Reply(200, (openapi(),))


async def get_metrics(app: RestApp, call: Call) -> Reply:
    text, content_type = await app.blocking(_metrics, app, call.headers.get("accept") or "")
    return Reply(200, (text,), content_type=content_type.encode())


def _metrics(app: RestApp, accept: str) -> tuple[bytes, str]:
    # Import at the first scrape, because many servers are never scraped.
    from frazil.rest.prometheus import metrics_text

    return metrics_text(app, accept)


@cache
def openapi() -> bytes:
    return files("frazil.rest").joinpath("openapi.json").read_bytes()


async def get_health(app: RestApp, call: Call) -> Reply:
    """Reply that the process is running, without checking anything else."""
    return json_reply({"status": "ok"})


async def get_readiness(app: RestApp, call: Call) -> Reply:
    """Check that the database and the store work and that the server accepts commits. Warnings
    do not make it unready."""
    if app.draining:
        raise ServiceUnavailable("the server is shutting down", retry_after_s=_RETRY_AFTER_S)
    try:
        async with asyncio.timeout(app.settings.ready_timeout_s):
            warnings = await app.blocking(app.catalog.ready)
    except ServiceUnavailable:
        # The catalog has logged the reason, once for the whole episode.
        raise
    except Exception as error:
        if not app.said_not_ready:
            app.said_not_ready = True
            _log.warning("not ready: %r", error, extra={"id": call.request_id})
        raise ServiceUnavailable(
            "the database or the object store cannot be used now; the server's log says which",
            retry_after_s=_RETRY_AFTER_S,
        ) from error
    if app.said_not_ready:
        app.said_not_ready = False
        _log.info("ready again", extra={"id": call.request_id})
    return json_reply({"status": "ready", **({"warnings": warnings} if warnings else {})})

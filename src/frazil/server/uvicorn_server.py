"""Runs the assembled catalog in this process until a signal ends it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from frazil.rest.app import drain
from frazil.server.assembly import assembled
from frazil.server.http_protocol import BoundedHttpProtocol
from frazil.server.listen import bind, check_exposure, url_of
from frazil.settings import Settings, all_tokens

# Longer than clients keep an idle connection: the side that closes first races with requests.
_KEEP_ALIVE_S = 75


def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what is in flight and closes everything.

    `ready` is called with the server's URL when it answers requests. Raises StartRefused.
    """
    tokens = all_tokens(settings)
    check_exposure(settings, has_tokens=bool(tokens))
    # The database is opened before the port: a second process is told about the file it shares,
    # not about a port that is a consequence of it.
    with assembled(settings, tokens) as app, bind(settings.host, settings.port) as listener:
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=BoundedHttpProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            # What a proxy claims about the client is not believed: the address goes to the log.
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.shutdown_timeout_s,
        )
        server = _Server(config, lambda: ready(url_of(listener)), lambda: drain(app))
        # uvicorn raises the signal that ended it once more when it is done, for handlers that
        # were there before it. With the default ones the process would die before the catalog
        # is closed.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it is ready, and lets the edge know as soon as it is to end."""

    def __init__(
        self, config: uvicorn.Config, announce: Callable[[], None], drain: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)

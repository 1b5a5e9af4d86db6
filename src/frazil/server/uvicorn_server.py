"""Serve the catalog with uvicorn until a signal ends the process."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from frazil.rest.rest_app import RestApp
from frazil.server.assembly import open_app, use_tokens
from frazil.server.file_reloads import Reload, reloading
from frazil.server.http_protocol import BoundedHttpProtocol
from frazil.server.listen import bind, check_exposure, check_tokens, url_of, warn_of_plain_tokens
from frazil.server.maintenance_process import maintaining
from frazil.server.tls import Certificate, certificate_of
from frazil.settings import Settings, all_tokens

_log = logging.getLogger("frazil.server")

# Longer than clients keep idle connections, because a server that closes first may close a
# connection on which a request is arriving.
KEEP_ALIVE_S = 75


def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish running requests and close everything.

    Calls `ready` with the URL as soon as requests are answered. Raises StartRefused.
    """
    tokens = all_tokens(settings)
    check_tokens(settings, tokens)
    check_exposure(settings, has_tokens=bool(tokens))
    certificate = certificate_of(settings)
    warn_of_plain_tokens(settings, has_tokens=bool(tokens))
    # Open the database before the port, so that a second process on the same database fails with
    # that error and not with "port in use".
    with open_app(settings, tokens) as app, bind(settings.host, settings.port) as listener:
        config = uvicorn.Config(
            app,
            loop="uvloop",
            http=BoundedHttpProtocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            # Do not trust the client address that a proxy sends.
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=settings.shutdown_timeout_s,
        )
        config.load()
        if certificate is not None:
            config.ssl = certificate.context
            app.certificate_expiry = certificate.expiry_s
        scheme = "http" if certificate is None else "https"
        server = _Server(config, lambda: ready(url_of(listener, scheme)), app.drain)
        # When uvicorn has ended, it raises the signal again for the handlers that were installed
        # before its own. The default handlers would kill the process before the catalog is closed.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, server.handle_exit)
        # `nohup` ignores SIGHUP. Otherwise the end of a terminal stops the server like SIGTERM,
        # unless there is something to reload.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, server.handle_exit)
        with (
            reloading(_reloads(settings, app, certificate)),
            maintaining(settings, app, url_of(listener, scheme)),
        ):
            server.run(sockets=[listener])
    _log.info("stopped; the database is closed")


def _reloads(settings: Settings, app: RestApp, certificate: Certificate | None) -> list[Reload]:
    reloads = []
    if settings.tokens_file is not None:
        reloads.append(
            Reload("tokens_file", [settings.tokens_file], lambda: use_tokens(app, settings))
        )
    if certificate is not None:
        reloads.append(Reload("tls_cert and tls_key", certificate.paths, certificate.reload))
    return reloads


class _Server(uvicorn.Server):
    """Announces that it is ready, and drains the application when a signal arrives."""

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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The handler of the signal does not log, because it may interrupt a thread that does.
        _log.info(
            "stopping: running requests have %d s to finish", self.config.timeout_graceful_shutdown
        )
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)

"""Find out whether a server speaks http or https, after a request has failed."""

from __future__ import annotations

import socket
import ssl
from http.client import RemoteDisconnected
from typing import Final
from urllib.parse import urlsplit

from urllib3 import exceptions

_PROBE_TIMEOUT_S: Final = 2.0
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""Reasons of OpenSSL for an answer that is not TLS."""


def other_scheme(url: str, error: Exception) -> str | None:
    """Return the scheme that the server speaks if the failure comes from using the other one."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        reason = error.args[0] if isinstance(error, exceptions.SSLError) and error.args else None
        plain = isinstance(reason, ssl.SSLError) and reason.reason in _NOT_TLS
        return "http" if plain else None
    # A TLS server closes the connection without an answer, like a server that has crashed.
    closed = isinstance(error, exceptions.ProtocolError) and isinstance(
        error.args[-1], RemoteDisconnected | ConnectionResetError
    )
    if closed and _speaks_tls(parts.hostname or "", parts.port or 80):
        return "https"
    return None


def _speaks_tls(host: str, port: int) -> bool:
    # Nothing is sent on this connection, so the certificate does not matter.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=_PROBE_TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except OSError:
        return False

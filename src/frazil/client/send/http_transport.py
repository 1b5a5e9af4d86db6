"""How a request reaches the catalog, and what is known when it does not.

A transport sends once and never retries: only `submit` knows whether sending again is safe. What it
must say exactly is whether the server can have seen the request, because after that an outcome is
unknown until the server itself is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import urllib3

DEFAULT_TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 10.0
_CONNECTIONS: Final = 16
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(Exception):
    """Proven: the server has not got the request (refused, no such host, no trust)."""


class AnswerLost(Exception):
    """The request was sent, at least in part, and no whole answer came back."""


class Transport(Protocol):
    """Sends one request; paths begin after `/v1/` and are percent-encoded already."""

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = _NOTHING,
        query: Mapping[str, str] = _NOTHING,
    ) -> Answer: ...


class HttpTransport:
    """HTTP/1.1 over a pool of connections; safe to use from several threads."""

    def __init__(
        self,
        uri: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] = _NOTHING,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        ca_file: str | None = None,
        client_certificate: tuple[str, str] | None = None,
    ) -> None:
        self._base = base_url(uri)
        self._timeout_s = timeout_s
        self._tls: dict[str, Any] = {}
        if ca_file is not None:
            self._tls["ca_certs"] = ca_file
        if client_certificate is not None:
            self._tls["cert_file"], self._tls["key_file"] = client_certificate
        self._headers = {"Accept": "application/json", "User-Agent": _user_agent(), **headers}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool: urllib3.PoolManager | None = None
        self._making = threading.Lock()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = _NOTHING,
        query: Mapping[str, str] = _NOTHING,
    ) -> Answer:
        from urllib.parse import urlencode

        from urllib3 import exceptions

        url = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = {**self._headers, **headers}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        try:
            answer = self._open().request(method, url, body=body, headers=sent, redirect=False)
        except exceptions.HTTPError as error:
            raise _failure(error, self._base) from error
        return Answer(
            answer.status,
            {name.lower(): value for name, value in answer.headers.items()},
            answer.data,
        )

    def close(self) -> None:
        with self._making:
            if self._pool is not None:
                self._pool.clear()
            self._pool = None

    def _open(self) -> urllib3.PoolManager:
        """Made at the first request: importing the HTTP library costs more than all the rest."""
        with self._making:
            if self._pool is None:
                import urllib3

                self._pool = urllib3.PoolManager(
                    retries=False,
                    maxsize=_CONNECTIONS,
                    timeout=urllib3.Timeout(
                        connect=min(CONNECT_TIMEOUT_S, self._timeout_s), read=self._timeout_s
                    ),
                    **self._tls,
                )
            return self._pool


def base_url(uri: str) -> str:
    """The address under which all routes lie, for a URI with or without `/v1` at its end."""
    if not uri.startswith(("http://", "https://")):
        raise ValueError(f"uri: {uri!r} must begin with http:// or https://")
    return f"{uri.rstrip('/').removesuffix('/v1')}/v1/"


def _failure(error: Exception, base: str) -> NotSent | AnswerLost:
    import ssl

    from urllib3 import exceptions

    # Connecting failed before a byte of the request was written. A failing handshake is not among
    # these but for the certificate: over TLS errors may also come in the midst of an answer.
    unsent = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError)
    distrust = isinstance(error, exceptions.SSLError) and isinstance(
        error.args[0] if error.args else None, ssl.SSLCertVerificationError
    )
    kind = NotSent if isinstance(error, unsent) or distrust else AnswerLost
    return kind(f"{base}: {error}")


def _user_agent() -> str:
    from frazil.version import __version__

    return f"frazil/{__version__}"

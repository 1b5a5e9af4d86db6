"""Send one request over HTTP.

A transport never retries, because only `submit` knows whether a retry is safe. If sending fails,
the transport reports whether the server may have received the request: then the outcome is unknown
until the server is asked.
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
_MAX_CONNECTIONS: Final = 16
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the server. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(Exception):
    """The server cannot have received the request: refused, unknown host, untrusted certificate."""


class AnswerLost(Exception):
    """The request was sent, at least in part, and no complete response arrived."""


class WrongScheme(AnswerLost):
    """The server speaks http and the URI says https, or the other way round."""


class Transport(Protocol):
    """Sends one request. Paths are percent-encoded and start after `/v1/`."""

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = _EMPTY,
        query: Mapping[str, str] = _EMPTY,
    ) -> Answer: ...


class HttpTransport:
    """HTTP/1.1 over a connection pool; safe to use from several threads."""

    def __init__(
        self,
        uri: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] = _EMPTY,
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
        self._pool_lock = threading.Lock()
        self._has_answered = False

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = _EMPTY,
        query: Mapping[str, str] = _EMPTY,
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
            wrong = None if self._has_answered else self._scheme_to_use(error)
            if wrong is not None:
                raise WrongScheme(wrong) from error
            raise failure_of(error, f"{self._base}: {error}") from error
        self._has_answered = True
        return Answer(
            answer.status,
            {name.lower(): value for name, value in answer.headers.items()},
            answer.data,
        )

    def _scheme_to_use(self, error: Exception) -> str | None:
        """Return what is wrong if the server speaks the other one of http and https."""
        from frazil.client.send.scheme_check import other_scheme

        scheme = other_scheme(self._base, error)
        if scheme is None:
            return None
        address = self._base.partition("://")[2].removesuffix("/v1/")
        return f"{self._base}: the server speaks {scheme}, use {scheme}://{address}"

    def close(self) -> None:
        with self._pool_lock:
            if self._pool is not None:
                self._pool.clear()
            self._pool = None

    def _open(self) -> urllib3.PoolManager:
        """Return the pool; import urllib3 on first use, because it is the slowest import."""
        with self._pool_lock:
            if self._pool is None:
                import urllib3

                self._pool = urllib3.PoolManager(
                    retries=False,
                    maxsize=_MAX_CONNECTIONS,
                    timeout=urllib3.Timeout(
                        connect=min(CONNECT_TIMEOUT_S, self._timeout_s), read=self._timeout_s
                    ),
                    **self._tls,
                )
            return self._pool


def base_url(uri: str) -> str:
    """Return the URL that all paths extend, for a URI with or without `/v1` at its end."""
    if not uri.startswith(("http://", "https://")):
        raise ValueError(f"uri: {uri!r} must begin with http:// or https://")
    return f"{uri.rstrip('/').removesuffix('/v1')}/v1/"


def failure_of(reason: object, message: str) -> NotSent | AnswerLost:
    """Return the failure for an error of urllib3; only some prove that nothing was sent."""
    import ssl

    from urllib3 import exceptions

    # These fail before a byte of the request is written. Other TLS errors may also occur in the
    # middle of a response, so only an untrusted certificate counts as not sent.
    unsent_errors = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError)
    is_untrusted = isinstance(reason, exceptions.SSLError) and isinstance(
        reason.args[0] if reason.args else None, ssl.SSLCertVerificationError
    )
    return (NotSent if isinstance(reason, unsent_errors) or is_untrusted else AnswerLost)(message)


def _user_agent() -> str:
    from frazil.version import __version__

    return f"frazil/{__version__}"

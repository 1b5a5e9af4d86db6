"""Send one request over HTTP.

A transport never retries, because only `submit` knows whether a retry is safe. If sending fails,
the transport reports whether the server may have received the request: then the outcome is unknown
until the server is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from frazil.version import __version__

if TYPE_CHECKING:
    import urllib3

DEFAULT_TIMEOUT_S: Final = 60.0
CONNECT_TIMEOUT_S: Final = 10.0
_MAX_CONNECTIONS: Final = 16
_PROBE_TIMEOUT_S: Final = 2.0
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""Reasons of OpenSSL for an answer that is not TLS."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. The path is percent-encoded and starts after `/v1/`, or with `/`."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the server. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SendFailure(Exception):
    """A request without an answer."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message
        """The cause in a few words, without the address."""


class NotSent(SendFailure):
    """The server cannot have received the complete request, so that it has changed nothing."""


class Unusable(NotSent):
    """Waiting does not help: the host is unknown, or its certificate is not trusted."""


class WrongScheme(Unusable):
    """The server speaks http and the URI says https, or the other way round."""


class AnswerLost(SendFailure):
    """The request was sent, and no complete response arrived."""


class SentBody:
    """The body of one attempt, which knows whether all of it was handed to the network.

    A server does not execute a request whose body is incomplete. urllib3 reports the same error for
    a connection that ends while a body is sent and for one that ends before the response.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.is_sent = False

    def __len__(self) -> int:
        return len(self._body)

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        # urllib3 asks for the next part after it has sent this one.
        self.is_sent = True


class Transport(Protocol):
    """Sends one request."""

    def send(self, request: Request) -> Answer: ...


class HttpTransport:
    """HTTP/1.1 over a connection pool; safe to use from several threads."""

    def __init__(
        self,
        uri: str,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        ca_file: str | None = None,
        client_certificate: tuple[str, str] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """Create a transport. `fingerprint` is the SHA-256 of the only certificate to accept."""
        self._base = base_url(uri)
        self._timeout_s = timeout_s
        self._tls: dict[str, Any] = {}
        if ca_file is not None:
            self._tls["ca_certs"] = ca_file
        if fingerprint is not None:
            self._tls["assert_fingerprint"] = fingerprint
            self._tls["cert_reqs"] = "CERT_NONE"
        if client_certificate is not None:
            self._tls["cert_file"], self._tls["key_file"] = client_certificate
        self._headers = {"Accept": "application/json", "User-Agent": f"frazil/{__version__}"}
        self._headers.update(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool: urllib3.PoolManager | None = None
        self._pool_lock = threading.Lock()
        self._scheme = SchemeCheck()

    def _url(self, path: str) -> str:
        if path.startswith("/"):
            return f"{self._base.removesuffix('/v1/')}{path}"
        return f"{self._base}{path}"

    def send(self, request: Request) -> Answer:
        from urllib.parse import urlencode

        from urllib3 import exceptions

        query = f"?{urlencode(request.query)}" if request.query else ""
        headers = {**self._headers, **request.headers}
        body = None
        if request.body is not None:
            body = SentBody(request.body)
            headers["Content-Length"] = str(len(body))
            headers.setdefault("Content-Type", "application/json")
        try:
            answer = self._open().request(
                request.method,
                f"{self._url(request.path)}{query}",
                body=body,
                headers=headers,
                redirect=False,
            )
        except exceptions.HTTPError as error:
            self._scheme.check(error, self._base)
            is_unsent = body is not None and not body.is_sent
            raise failure_of(error, self._base, is_unsent=is_unsent) from error
        self._scheme.check_answer(answer.status, answer.headers, self._base)
        return Answer(
            answer.status,
            {name.lower(): value for name, value in answer.headers.items()},
            answer.data,
        )

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


def failure_of(reason: object, address: str, *, is_unsent: bool = False) -> SendFailure:
    """Return the failure for an error of urllib3; only some prove that nothing was sent.

    `is_unsent` states that the body was not sent completely.
    """
    import socket
    import ssl

    from urllib3 import exceptions

    cause = reason.args[0] if isinstance(reason, exceptions.SSLError) and reason.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unusable(
            f"{address}: the server's certificate is not trusted ({cause.verify_message}): name "
            "the certificate of its issuer with FRAZIL_CA_FILE, --ca-file, ca_file= or ssl.cabundle"
        )
    if isinstance(reason, exceptions.LocationValueError):
        return Unusable(f"{address}: {reason}")
    if isinstance(reason, exceptions.NameResolutionError):
        temporary = (socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_MEMORY)
        number = getattr(reason.__cause__, "errno", None)
        unknown = "the host is unknown"
        return (NotSent if number in temporary else Unusable)(f"{address}: {unknown}", unknown)
    # These fail before a byte of the request is written.
    unsent_errors = (exceptions.NewConnectionError, exceptions.ConnectTimeoutError)
    is_unsent = is_unsent or isinstance(reason, unsent_errors)
    short = _short(reason)
    return (NotSent if is_unsent else AnswerLost)(f"{address}: {short or reason}", short)


def _short(error: object) -> str | None:
    """Return the cause in a few words."""
    from http.client import RemoteDisconnected

    from urllib3 import exceptions

    if isinstance(error, exceptions.ReadTimeoutError):
        return "no answer in time"
    if isinstance(error, exceptions.ConnectTimeoutError) and not isinstance(
        error, exceptions.NewConnectionError
    ):
        return "no connection in time"
    while isinstance(error, BaseException):
        if isinstance(error, RemoteDisconnected):
            return "the connection was closed"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        error = error.__cause__ or error.__context__
    return None


# --- http or https --------------------------------------------------------------------------------


class SchemeCheck:
    """Checks once whether a server speaks the other one of http and https."""

    def __init__(self) -> None:
        self.is_done = False
        """Whether the server has answered, or was asked after a failure."""

    def check(self, error: object, base: str) -> None:
        """Raise WrongScheme if a request to `base` failed with this error of urllib3 for it.

        `error` is None if the server has closed the connection with an answer.
        """
        from urllib3 import exceptions

        scheme = None if self.is_done else _other_scheme(base, error)
        if scheme is not None:
            address = base.partition("://")[2].removesuffix("/v1/")
            raise WrongScheme(
                f"{base}: the server speaks {scheme}, use {scheme}://{address}"
            ) from None
        # The check itself may take seconds. A connection that was refused shows nothing.
        self.is_done |= not isinstance(error, exceptions.NewConnectionError)

    def check_answer(self, status: int, headers: Mapping[str, str], base: str) -> None:
        """Raise WrongScheme if an answer is what nginx and Frazil send for http on a port of
        https. Any other answer shows that the scheme is right."""
        if status == 400 and headers.get("connection", "").lower() == "close":
            self.check(None, base)
        self.is_done = True


def _other_scheme(url: str, error: object) -> str | None:
    """Return the scheme that the server speaks if the failure comes from using the other one."""
    import ssl
    from http.client import RemoteDisconnected
    from urllib.parse import urlsplit

    from urllib3 import exceptions

    parts = urlsplit(url)
    if parts.scheme == "https":
        reason = error.args[0] if isinstance(error, exceptions.SSLError) and error.args else None
        plain = isinstance(reason, ssl.SSLError) and reason.reason in _NOT_TLS
        return "http" if plain else None
    # Most TLS servers close the connection without an answer, like a server that has crashed.
    closed = error is None or (
        isinstance(error, exceptions.ProtocolError)
        and isinstance(error.args[-1], RemoteDisconnected | ConnectionResetError)
    )
    return "https" if closed and _speaks_tls(parts.hostname or "", parts.port or 80) else None


def _speaks_tls(host: str, port: int) -> bool:
    import socket
    import ssl

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

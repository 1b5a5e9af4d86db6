"""The server's certificate: loads it, and replaces it while connections are open."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any, Final, NoReturn

from frazil.server.http_protocol import error_answer
from frazil.server.listen import StartRefused
from frazil.server.log_lines import RareWarning
from frazil.settings import Settings

_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which `ssl` does not name."""


_http_hint = RareWarning(
    "a client sent http to this port, which speaks https: use https:// in the client's URI"
)


class CertificateError(Exception):
    """The certificate or its key cannot be used. The message names the file and the fix."""


class Certificate:
    """A certificate chain and its key, read from two PEM files."""

    def __init__(self, cert_path: str, key_path: str) -> None:
        """Read the files. Raises CertificateError."""
        self.paths = (cert_path, key_path)
        self._current = self._load()
        self._expiry_s = _expiry(self._current, cert_path)
        self.context = _new_context(_ListenerContext(ssl.PROTOCOL_TLS_SERVER))
        """The context of the listening socket."""
        # The certificate is in a context of its own, which replaces the one of the listener during
        # each handshake. Loading a new pair into the listener's context would not replace the old
        # one: a context keeps a certificate for each type of key, and a failure in between would
        # leave it without a key.
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read the files again for new connections. Raises CertificateError and changes nothing."""
        self._current = self._load()
        self._expiry_s = _expiry(self._current, self.paths[0])

    def expiry_s(self) -> float | None:
        """Return when the certificate expires, in seconds since 1970, or None if not known."""
        return self._expiry_s

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        cert_path, key_path = self.paths
        for name, path in (("tls_cert", cert_path), ("tls_key", key_path)):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise CertificateError(f"{name} {path} cannot be read: {error.strerror}") from error
        context = _new_context(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        try:
            context.load_cert_chain(cert_path, key_path, password=_refuse_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                problem = f"tls_key {key_path} is not the key of tls_cert {cert_path}"
                raise CertificateError(f"{problem}: replace both files together") from error
            raise CertificateError(
                f"tls_cert {cert_path} and tls_key {key_path} are not a certificate chain and its "
                f"key in PEM ({error.reason or error})"
            ) from error
        return context


def certificate_of(settings: Settings) -> Certificate | None:
    """Return the certificate of the settings, or None for plain http. Raises StartRefused."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        missing = "tls_key" if settings.tls_key is None else "tls_cert"
        raise StartRefused(f"{missing} is missing: set --tls-cert and --tls-key", usage=True)
    try:
        return Certificate(settings.tls_cert, settings.tls_key)
    except CertificateError as error:
        raise StartRefused(str(error), usage=True) from error


class _Connection(ssl.SSLObject):
    """Answers a client that says plain http, whom OpenSSL would leave without an answer."""

    to_client: ssl.MemoryBIO
    _answered = False

    def do_handshake(self) -> None:
        if self._answered:
            raise ssl.SSLError("the client goes on with plain http")
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason != "HTTP_REQUEST":
                raise
            self._answered = True
            _http_hint.log()
            message = "this port speaks https, not http: use https:// in the URI"
            self.to_client.write(error_answer(400, "BadRequestException", message))
            # The event loop then sends what was written. The client closes the connection; what
            # it still sends, or the time limit of handshakes, ends it too.
            raise ssl.SSLWantReadError from error


class _ListenerContext(ssl.SSLContext):
    sslobject_class = _Connection

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *options: Any, **named: Any
    ) -> ssl.SSLObject:
        connection = super().wrap_bio(incoming, outgoing, *options, **named)
        assert isinstance(connection, _Connection)
        connection.to_client = outgoing
        return connection


def _new_context(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _refuse_password() -> NoReturn:
    # Without this OpenSSL would ask for the password on the terminal.
    raise CertificateError(
        "tls_key is encrypted: store it without a password, readable only for the server"
    )


def _expiry(served: ssl.SSLContext, cert_path: str) -> float | None:
    """Return when the certificate of a context expires.

    `ssl` decodes only certificates that a peer has sent and that were verified. So a client in
    memory, which trusts the certificate itself, connects to a server with the context.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = served.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    try:
        trusting.load_verify_locations(cert_path)
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        end = (client.getpeercert() or {}).get("notAfter")
    except (OSError, ValueError):
        return None
    return ssl.cert_time_to_seconds(end) if isinstance(end, str) else None

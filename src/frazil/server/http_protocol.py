"""uvicorn's HTTP/1.1 protocol with limits on the head of a request.

Four things differ from uvicorn. The request line and headers have a size limit and a time limit;
httptools has neither. Invalid HTTP is answered in the standard error shape. `Upgrade` is ignored,
which RFC 9110 section 7.8 allows: some Java clients offer h2c or TLS with every request, and
httptools would then drop the body and parse it as the next request. A TLS handshake on the port of
plain http is refused at once; httptools would wait for the end of the head.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from frazil.server.log_lines import RareWarning

MAX_HEAD_BYTES = 64 * 1024
HEAD_TIMEOUT_S = 30.0

_END_OF_HEAD = b"\r\n\r\n"
_TLS_HANDSHAKE = b"\x16"
"""The first byte of a TLS handshake (RFC 8446, 5.1); no HTTP request begins with it."""
_https_hint = RareWarning(
    "%s sent https to this port, which speaks http: use http:// in the client's URI, or set "
    "--tls-cert and --tls-key"
)
_UPGRADE_LINE = re.compile(rb"^upgrade[ \t]*:[^\n]*\n", re.IGNORECASE | re.MULTILINE)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Limits the size and the duration of a request's head."""

    _in_head = True
    _head = b""
    """The received part of an incomplete head."""
    _head_timer: asyncio.TimerHandle | None = None
    _refused = False
    """The client has got its answer, and what it still sends is ignored."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if not self._in_head:
            super().data_received(data)
            return
        data = self._head + data
        if data.startswith(_TLS_HANDSHAKE):
            self._refuse_tls()
            return
        end = data.find(_END_OF_HEAD)
        if (end if end >= 0 else len(data)) > MAX_HEAD_BYTES:
            message = f"the request line and headers have more than {MAX_HEAD_BYTES} bytes"
            self._refuse(431, "RequestHeaderFieldsTooLargeException", message)
        elif end >= 0:
            self._head = b""
            super().data_received(_without_upgrade(data, end))
        else:
            self._head = data
            self._unset_keepalive_if_required()
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "BadRequestException", "the request is not valid HTTP/1.1")

    def _unsupported_upgrade_warning(self) -> None:
        """Close the connection after this response.

        This is called for CONNECT, and for an `Upgrade` after a pipelined request. The parser no
        longer treats the following bytes as HTTP.
        """
        self.transport.pause_reading()
        self.cycle.keep_alive = False

    def _expect_head(self) -> None:
        """Start the timer that closes a connection without a complete request."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect_head()  # An earlier request of this connection is still being answered.
        elif self._head:
            message = f"the request line and headers took longer than {HEAD_TIMEOUT_S:g} seconds"
            self._refuse(408, "RequestTimeoutException", message)
        else:
            self.transport.close()

    def _refuse_tls(self) -> None:
        """Answer in plain text, which TLS clients report as a wrong version or a plain-text server.

        A TLS alert would look like a problem of the certificate or of the protocol version.
        """
        _https_hint.log("a client" if self.client is None else self.client[0])
        self._send_error(400, "BadRequestException", "this port speaks http, not https")
        # Do not close yet: the rest of the handshake may still arrive and would reset the
        # connection before the client has read the answer. The client closes it, or the timer does.
        self.transport.write_eof()
        self._refused = True

    def _refuse(self, status: int, error_type: str, message: str) -> None:
        self._send_error(status, error_type, message)
        self.transport.close()

    def _send_error(self, status: int, error_type: str, message: str) -> None:
        headers = self.server_state.default_headers
        self.transport.write(error_answer(status, error_type, message, headers))


def error_answer(
    status: int,
    error_type: str,
    message: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> bytes:
    """Return the last answer of a connection, in the standard error shape."""
    error = {"message": message, "type": error_type, "code": status}
    body = json.dumps({"error": error}).encode()
    head = [
        STATUS_LINE[status],
        *(name + b": " + value + b"\r\n" for name, value in headers),
        b"content-type: application/json\r\n",
        b"content-length: %d\r\n" % len(body),
        b"connection: close\r\n\r\n",
    ]
    return b"".join(head) + body


def _without_upgrade(data: bytes, end: int) -> bytes:
    head = data[: end + 2]
    if b"upgrade" not in head.lower():
        return data
    return _UPGRADE_LINE.sub(b"", head) + data[end + 2 :]

"""A proxy in front of the S3 server that injects faults."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support.patience import HANG_S

Fault = Callable[["ProxyHandler"], bool]
"""A fault handles a request and returns True, or returns False to forward it."""


class FaultyProxy:
    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.faults: list[Fault] = []
        """One fault for each of the next PUT requests, in order; later requests are forwarded."""
        self.puts = 0
        self.lock = threading.Lock()
        self.strip_conditions = False
        handler = type("Handler", (ProxyHandler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def next_fault(self) -> Fault | None:
        with self.lock:
            self.puts += 1
            return self.faults.pop(0) if self.faults else None


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy
    body: bytes

    def handle_any(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.next_fault() if self.command == "PUT" else None
        if fault is not None and fault(self):
            return
        self.answer(*self.forward())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

    def forward(self) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {
            name: value
            for name, value in self.headers.items()
            if not (self.proxy.strip_conditions and name.lower() == "if-none-match")
        }
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=HANG_S)
        try:
            connection.request(self.command, self.path, self.body, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log: the tests check only outcomes."""


def refuse(handler: ProxyHandler) -> bool:
    """Respond 503 without doing anything."""
    handler.answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
    return True


def conflict(handler: ProxyHandler) -> bool:
    """Respond as S3 does to two simultaneous conditional writes, without doing anything."""
    handler.answer(409, [], b"<Error><Code>ConditionalRequestConflict</Code></Error>")
    return True


def done_but_500(handler: ProxyHandler) -> bool:
    """Write the object and respond with an error."""
    handler.forward()
    handler.answer(500, [], b"<Error><Code>InternalError</Code></Error>")
    return True


def done_but_cut(handler: ProxyHandler) -> bool:
    """Write the object and close the connection without a response."""
    handler.forward()
    handler.close_connection = True
    return True


def taken_by(content: bytes) -> Fault:
    """Write the object for another writer, then close the connection."""

    def fault(handler: ProxyHandler) -> bool:
        handler.body = content
        for name in ("Content-Length", "x-amz-content-sha256", "x-amz-checksum-sha256"):
            del handler.headers[name]
        handler.headers["Content-Length"] = str(len(content))
        handler.forward()
        handler.close_connection = True
        return True

    return fault


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream)
    thread = threading.Thread(target=proxy.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()
        thread.join()

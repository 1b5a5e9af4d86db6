"""HTTP requests as raw bytes that no client library would send."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.patience import HANG_S


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must have the standard shape."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert error["code"] == self.status
        assert error["type"]
        assert error["message"]
        return error


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def last(request: bytes) -> bytes:
    """Return the same request with a header that asks the server to close the connection."""
    return request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


def talk(port: int, *parts: bytes, end: bool = False) -> list[RawAnswer]:
    """Send the parts, and parse all answers until the server closes the connection."""
    with connected(port) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if end:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # The server stopped reading, but its answer can still be read.
        return parse(read_all(connection))


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass  # The server closed before it read all of our bytes.
    return received


def read_one(connection: socket.socket) -> RawAnswer:
    """Read the next answer from a connection that stays open."""
    received = b""
    while True:
        head, separator, body = received.partition(b"\r\n\r\n")
        if separator:
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            if len(body) >= (int(length[1]) if length else 0):
                return parse(received)[0]
        chunk = connection.recv(1 << 16)
        assert chunk, received
        received += chunk


def parse(received: bytes) -> list[RawAnswer]:
    """Parse all answers in a stream of bytes. Nothing may be left over."""
    answers = []
    while received:
        head, separator, rest = received.partition(b"\r\n\r\n")
        assert separator, received[:200]
        status_line, *lines = head.decode("latin-1").split("\r\n")
        assert status_line.startswith("HTTP/1.1 "), status_line
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", "0"))
        status = int(status_line.split()[1])
        if status >= 200:
            answers.append(RawAnswer(status, headers, rest[:length]))
        received = rest[length:]
    return answers

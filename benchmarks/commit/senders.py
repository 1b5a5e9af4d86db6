"""Writers that send prebuilt requests over raw sockets, all of them in one thread.

They must cost almost nothing, because they share two cores with the measured server. A request
is a template with a field of fixed width for the file's number. An answer is read to its end but
not parsed. A commit is timed from passing its last byte to the kernel to the first byte of the
answer.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmarks.commit.bursts import Burst, Sample

_END_OF_HEAD = b"\r\n\r\n"
_CHUNK_BYTES = 1 << 18
_SMALL_BYTES = 1 << 16
"""The largest request that one call copies into the socket's buffer."""
TIMEOUT_S = 120.0

NextRequest = Callable[[], bytes]


class BrokenAnswer(Exception):
    """An answer that is not HTTP with a content length, or a connection that ended."""


@dataclass(slots=True)
class _Writer:
    connection: socket.socket
    next_request: NextRequest
    sent_at: float = 0.0
    first_byte_at: float = 0.0
    head: bytearray = field(default_factory=bytearray)
    missing_bytes: int = 0
    answer_bytes: int = 0
    status: int = 0
    done: int = 0


def send_requests(
    url: str, requests: Sequence[NextRequest], seconds: float, most: int
) -> tuple[Burst, list[bytes]]:
    """Send each writer's next request as soon as its last one is answered. Return the burst and
    the heads of all error answers."""
    parts = urlsplit(url)
    address = (parts.hostname, parts.port)
    writers = [_Writer(_connect(address), next_request) for next_request in requests]
    try:
        return _run(writers, seconds, most)
    finally:
        for writer in writers:
            writer.connection.close()


def _connect(address: tuple[str | None, int | None]) -> socket.socket:
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _run(writers: list[_Writer], seconds: float, most: int) -> tuple[Burst, list[bytes]]:
    burst, refused = Burst(window_s=seconds), []
    by_number = {writer.connection.fileno(): writer for writer in writers}
    cpu_before = time.process_time()
    with select.epoll() as ready:
        for number in by_number:
            ready.register(number, select.EPOLLIN)
        began = time.perf_counter()
        for writer in writers:
            _send(writer)
        waiting = len(writers)
        while waiting:
            events = ready.poll(TIMEOUT_S)
            if not events:
                raise BrokenAnswer(f"{waiting} requests were not answered in {TIMEOUT_S:.0f} s")
            # Read all answers before sending the next requests, so that no answer waits for a send.
            ended = [writer for number, _ in events if _receive(writer := by_number[number])]
            now = time.perf_counter()
            for writer in ended:
                if writer.status == 200:
                    burst.samples.append(_sample(writer, began))
                else:
                    burst.failed += 1
                    refused.append(bytes(writer.head))
                burst.answer_bytes = max(burst.answer_bytes, writer.answer_bytes)
                writer.done += 1
                if writer.done >= most or now - began >= seconds:
                    waiting -= 1
                else:
                    _send(writer)
    burst.client_cpu_s = time.process_time() - cpu_before
    if refused:
        burst.first_error = refused[0].decode(errors="replace")[-2000:]
    return burst, refused


def _sample(writer: _Writer, began: float) -> Sample:
    return writer.first_byte_at - began, writer.first_byte_at - writer.sent_at


def _send(writer: _Writer) -> None:
    request = writer.next_request()
    writer.head.clear()
    writer.status = writer.missing_bytes = writer.answer_bytes = 0
    if len(request) <= _SMALL_BYTES:
        # This call delivers the bytes and wakes the server, so the time includes it.
        writer.sent_at = time.perf_counter()
        writer.connection.sendall(request)
    else:
        writer.connection.sendall(request)
        writer.sent_at = time.perf_counter()


def _receive(writer: _Writer) -> bool:
    """Return whether the answer was read to its end. The body of an error answer is kept."""
    received = writer.connection.recv(_CHUNK_BYTES)
    now = time.perf_counter()
    if not received:
        raise BrokenAnswer(f"the server closed a connection: {bytes(writer.head)[:500]!r}")
    if writer.status and writer.status != 200:
        writer.head += received
    if writer.status:
        writer.missing_bytes -= len(received)
        return writer.missing_bytes == 0
    if not writer.head:
        writer.first_byte_at = now
    writer.head += received
    return _read_head(writer)


def _read_head(writer: _Writer) -> bool:
    at = writer.head.find(_END_OF_HEAD)
    if at < 0:
        return False
    writer.status = int(writer.head[9:12])
    length = _content_length(bytes(writer.head[:at]))
    writer.answer_bytes = length
    writer.missing_bytes = length - (len(writer.head) - at - len(_END_OF_HEAD))
    return writer.missing_bytes == 0


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    if at < 0:
        raise BrokenAnswer(f"no content length: {head[:500]!r}")
    end = lowered.find(b"\r\n", at)
    return int(lowered[at + len(b"content-length:") : end if end >= 0 else None])


def http_request(url: str, path: str, body: bytes, *, minimal: bool) -> bytes:
    netloc = urlsplit(url).netloc
    prefer = "Prefer: return=minimal\r\n" if minimal else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {netloc}\r\nContent-Type: application/json\r\n"
        f"{prefer}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body

"""The head of a request, sent byte by byte over a real socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from frazil.server.http_protocol import MAX_HEAD_BYTES, BoundedHttpProtocol
from frazil.server.listen import bind
from tests.support.patience import HANG_S


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    head = {"type": "http.response.start", "status": 200}
    length = str(len(body)).encode()
    await send(head | {"headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with bind("127.0.0.1", 0) as listener:
        config = uvicorn.Config(
            echo, http=BoundedHttpProtocol, ws="none", lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        server.should_exit = True
        thread.join()


def talk(address: tuple[str, int], *parts: bytes) -> bytes:
    """Send the parts and read until the server closes the connection."""
    with socket.create_connection(address, timeout=HANG_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            connection.sendall(part)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            # The server closed before it read everything. Its answer arrived before the reset.
            pass
        return answer


def request(method: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} / HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    "offer",
    [
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: x"),
        ("connection: upgrade", "UPGRADE : TLS/1.2"),
        ("Connection: Upgrade", "Upgrade: websocket"),
    ],
)
def test_an_offer_to_upgrade_is_ignored_and_the_body_kept(
    address: tuple[str, int], offer: tuple[str, ...]
) -> None:
    first = request("POST", *offer, body=b"GET /hidden HTTP/1.1\r\n\r\n")
    last = request("POST", "Connection: close", body=b"last")
    answer = talk(address, first, last)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"GET /hidden" in answer
    assert answer.endswith(b"last")


def test_an_offer_behind_a_pipelined_request_ends_the_connection(
    address: tuple[str, int],
) -> None:
    offer = request("POST", "Connection: Upgrade", "Upgrade: h2c", body=b"GET / HTTP/1.1\r\n\r\n")
    answer = talk(address, request("GET") + offer)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"connection: close" in answer


def test_a_head_in_pieces_is_put_together(address: tuple[str, int]) -> None:
    whole = request("POST", "Connection: close", body=b"body")
    answer = talk(address, *(whole[i : i + 1] for i in range(len(whole))))
    assert answer.endswith(b"\r\n\r\nbody")


def test_a_long_body_is_no_long_head(address: tuple[str, int]) -> None:
    body = b"b" * (4 * MAX_HEAD_BYTES)
    assert talk(address, request("POST", "Connection: close", body=body)).endswith(body)


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["endless", "complete"])
def test_a_head_that_is_too_long_is_431(address: tuple[str, int], end: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * MAX_HEAD_BYTES + end
    head, _, body = talk(address, head).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["error"]["code"] == 431


@pytest.mark.parametrize("junk", [b"junk\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"])
def test_what_is_not_http_gets_the_standard_error(address: tuple[str, int], junk: bytes) -> None:
    head, _, body = talk(address, junk).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "BadRequestException"


def test_a_tls_handshake_in_pieces_gets_a_whole_answer(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=HANG_S) as connection:
        connection.sendall(b"\x16\x03\x01\x07")
        answer = b""
        while b"}}" not in answer:
            answer += connection.recv(65536)
            connection.sendall(b"the rest of the handshake")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"this port speaks http" in answer
        # The server has nothing more to say, but it does not reset the connection.
        assert connection.recv(65536) == b""

"""Requests that are not HTTP, or that two HTTP parsers would read differently."""

from __future__ import annotations

import pytest

from tests.hostile.sockets import RawAnswer, connected, last, parse, read_all, request, talk
from tests.hostile.world import World

CHANGE = b'{"requirements":[],"updates":[{"action":"set-properties","updates":{"smuggled":"1"}}]}'


def assert_refused_and_closed(answers: list[RawAnswer]) -> None:
    """Check that there is at most one answer and that it is a clear refusal."""
    assert len(answers) <= 1, answers
    for answer in answers:
        assert 400 <= answer.status < 500, answer
        assert answer.error


def head(world: World, *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {world.table_path} HTTP/1.1", "Host: x", "Content-Type: application/json"]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


# --- smuggling ------------------------------------------------------------------------------------

AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "both lengths": ("Content-Length: 5", "Transfer-Encoding: chunked"),
    "both lengths, other order": ("Transfer-Encoding: chunked", "Content-Length: 5"),
    "two lengths": ("Content-Length: 5", "Content-Length: 500"),
    "list of lengths": ("Content-Length: 5, 500",),
    "negative length": ("Content-Length: -5",),
    "signed length": ("Content-Length: +5",),
    "hexadecimal length": ("Content-Length: 0x5",),
    "length with a space": ("Content-Length: 5 5",),
    "length too large": (f"Content-Length: {2**64}",),
    "empty length": ("Content-Length:",),
    "coding with a prefix": ("Transfer-Encoding: xchunked",),
    "coding after chunked": ("Transfer-Encoding: chunked, identity",),
    "space before the colon": ("Transfer-Encoding : chunked",),
    "space before a length's colon": ("Content-Length : 5",),
    "folded line": ("X: 1\r\n Transfer-Encoding: chunked",),
    "no colon": ("Transfer-Encoding chunked",),
    "nul in a value": ("X: a\x00b",),
    "bare return in a value": ("X: a\rTransfer-Encoding: chunked",),
    "nul in a name": ("Transfer-Encoding\x00: chunked",),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_second_request_cannot_be_smuggled(world: World, name: str) -> None:
    smuggled = request("POST", world.table_path, CHANGE)
    bodies = (b"0\r\n\r\n" + smuggled, chunk(b"{}") + b"0\r\n\r\n" + smuggled)
    with world.unchanged():
        for body in bodies:
            answers = talk(world.server.port, head(world, *AMBIGUOUS[name]) + body, end=True)
            assert_refused_and_closed(answers)


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD"])
def test_a_body_that_nobody_reads_is_not_a_request(world: World, method: str) -> None:
    """The route takes no body. If a client sends one, it must not be read as the next request."""
    inner = request("POST", world.table_path, CHANGE)
    path = f"{world.path}/tables/missing"
    outer = request(method, path, inner) + last(request("GET", "/healthz"))
    with world.unchanged():
        answers = talk(world.server.port, outer)
        assert [answer.status for answer in answers] in ([404, 200], [404])


# --- chunks ---------------------------------------------------------------------------------------

BROKEN_CHUNKS: dict[str, bytes] = {
    "no size": b"\r\n",
    "size of letters": b"xyz\r\n" + CHANGE,
    "negative size": b"-1\r\n" + CHANGE,
    "size too large": b"FFFFFFFFFFFFFFFFF\r\n" + CHANGE,
    "size with a prefix": b"0x5\r\nabcde\r\n0\r\n\r\n",
    "too short": b"5\r\nabcdefgh\r\n0\r\n\r\n",
    "no line after the data": b"5\r\nabcde5\r\nabcde0\r\n\r\n",
    "cut in the data": chunk(CHANGE)[:-10],
    "cut before the last chunk": chunk(CHANGE),
    "endless extension": b"5;" + b"a" * 100_000,
    "rubbish": b"\x00\xff" * 100,
}


@pytest.mark.parametrize("name", BROKEN_CHUNKS)
def test_broken_chunks(world: World, name: str) -> None:
    start = head(world, "Transfer-Encoding: chunked")
    with world.unchanged():
        assert_refused_and_closed(talk(world.server.port, start + BROKEN_CHUNKS[name], end=True))


def test_many_small_chunks(world: World) -> None:
    change = b'{"requirements":[],"updates":[]}'
    body = b"".join(chunk(bytes([byte])) for byte in change) + b"0\r\nTrailer: x\r\n\r\n"
    start = head(world, "Transfer-Encoding: chunked", "Connection: close")
    assert [answer.status for answer in talk(world.server.port, start, body)] == [200]


# --- heads ----------------------------------------------------------------------------------------

NOT_HTTP: dict[str, bytes] = {
    "nothing": b"",
    "rubbish": b"\x00\x01\x02\xff" * 50,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.0": b"GET /v1/config HTTP/3.0\r\nHost: x\r\n\r\n",
    "no version": b"GET /v1/config HTTP/\r\nHost: x\r\n\r\n",
    "unknown method": b"FROB /v1/config HTTP/1.1\r\nHost: x\r\n\r\n",
    "small method": b"get /v1/config HTTP/1.1\r\nHost: x\r\n\r\n",
    "spaces in the path": b"GET /v1/con fig HTTP/1.1\r\nHost: x\r\n\r\n",
    "nul in the path": b"GET /v1/con\x00fig HTTP/1.1\r\nHost: x\r\n\r\n",
    "long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "long header": b"GET /v1/config HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET /v1/config HTTP/1.1\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
    "endless head": b"GET /v1/config HTTP/1.1\r\nX: " + b"a" * 200_000,
    "SMTP": b"EHLO example.org\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.0\r\n",
    "CONNECT": b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "TRACE": b"TRACE /v1/config HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "absolute elsewhere": last(request("GET", "http://example.org/")),
}


@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_is_not_http(world: World, name: str) -> None:
    with world.unchanged():
        assert_refused_and_closed(talk(world.server.port, NOT_HTTP[name], end=True))
        assert talk(world.server.port, last(request("GET", "/healthz")))[0].status == 200


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: https",
        "X-Http-Method-Override: DELETE",
        "X-Original-Url: /v1/config",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
        "Range: bytes=0-1",
        "If-None-Match: " + '"x",' * 5000,
        "If-None-Match: \x80\xff",
        "Prefer: " + "return=minimal;" * 1000,
        "Accept: text/html",
        "Cookie: a=b",
        "X-Request-Id: \x80" + "x" * 1000,
        "X-Request-Id: ${jndi:ldap://x}",
    ],
)
def test_headers_that_change_nothing(world: World, header: str) -> None:
    lines = f"GET {world.table_path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode("latin-1")
    with world.unchanged(), connected(world.server.port) as connection:
        connection.sendall(lines + last(request("GET", "/healthz")))
        answers = parse(read_all(connection))
        assert [answer.status for answer in answers] == [200, 200]
        assert "jndi" not in answers[0].headers["x-request-id"]


def test_an_answer_cannot_be_split(world: World) -> None:
    """Names that the client chooses appear in messages, but cannot add headers."""
    for path in (
        "/v1/namespaces/a%0d%0aX-Injected:%201",
        "/v1/x%0d%0aX-Injected:%201",
        "/v1/namespaces?pageToken=%0d%0aX-Injected:%201",
        "/v1/config?warehouse=%0d%0aX-Injected:%201",
    ):
        answers = talk(world.server.port, last(request("GET", path)))
        assert len(answers) == 1
        assert "x-injected" not in answers[0].headers


@pytest.mark.parametrize(
    "query",
    [
        "pageSize=0",
        "pageSize=-1",
        "pageSize=1e3",
        "pageSize=x",
        "pageSize=" + "9" * 5000 + "x",
        "pageSize=1&pageSize=2",
        "pageToken=x",
        "pageToken=%ff",
        "pageToken=" + "A" * 50_000,
        "parent=%1F",
        "parent=a%1F",
        "parent=%00",
        "parent=..",
        "&".join(["a=1"] * 200),
    ],
)
def test_hostile_queries(world: World, query: str) -> None:
    answer = talk(world.server.port, last(request("GET", f"/v1/namespaces?{query}")))[0]
    assert answer.status == 400
    assert len(answer.error["message"]) < 1000


def test_a_token_of_one_list_is_none_of_another(new_world: World) -> None:
    world = new_world
    tables = f"{world.path}/tables?pageSize=1"
    world.ok(
        "POST", tables.partition("?")[0], {"name": "u", "schema": {"type": "struct", "fields": []}}
    )
    token = world.ok("GET", tables).json()["next-page-token"]
    assert world.ok("GET", f"{tables}&pageToken={token}").json()["identifiers"]
    for path in ("/v1/namespaces", f"{world.path}/views"):
        assert world.send("GET", f"{path}?pageToken={token}").status_code == 400
    assert world.send("GET", f"{tables}&pageToken={token[:-2]}AA").status_code == 400

"""Request bodies: their types, encodings and sizes, and the time they may take."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.rest.stand_in import Client, StandInCatalog, dumped, exchange

TARGET = "/v1/namespaces"
BODY = dumped({"namespace": ["a"], "properties": {"k": "v" * 100}})
PACKED = gzip.compress(BODY, mtime=0)
"""Without a timestamp, so that the test ids are the same in every process."""


def padded(size: int) -> bytes:
    """Return a valid request of exactly this many bytes."""
    return BODY + b" " * (size - len(BODY))


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json;charset="utf-8"',
        "application/vnd.iceberg+json",
        "application/json; profile=x",
    ],
)
def test_json_types(client: Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    assert client("POST", TARGET, BODY, headers=headers).status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "json",
        "application/json+x",
        "application/json; charset=utf-16",
        "multipart/form-data; boundary=x",
        "*/*",
    ],
)
def test_other_types_are_415(client: Client, content_type: str) -> None:
    got = client("POST", TARGET, BODY, headers={"Content-Type": content_type})
    assert (got.status, got.error["type"]) == (415, "UnsupportedMediaTypeException")
    assert not client.catalog.calls


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip"])
def test_gzip(client: Client, coding: str) -> None:
    for packed in (gzip.compress(BODY), gzip.compress(BODY[:7]) + gzip.compress(BODY[7:])):
        for parts in ((packed,), tuple(bytes([byte]) for byte in packed)):
            got = client("POST", TARGET, headers={"Content-Encoding": coding}, parts=parts)
            assert got.status == 200, got.body


@pytest.mark.parametrize(
    "packed",
    [
        BODY,
        PACKED[:-1],
        PACKED[:12],
        PACKED + b"x",
        PACKED[:-8] + b"\0" * 8,
        zlib.compress(BODY),
        gzip.compress(b"", mtime=0),
        b"",
    ],
)
def test_broken_gzip_is_400(client: Client, packed: bytes) -> None:
    got = client("POST", TARGET, packed, headers={"Content-Encoding": "gzip"})
    assert (got.status, got.error["type"]) == (400, "BadRequestException")
    assert not client.catalog.calls


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "x"])
def test_other_encodings_are_415(client: Client, coding: str) -> None:
    got = client("POST", TARGET, BODY, headers={"Content-Encoding": coding})
    assert got.status == 415
    assert "Content-Encoding" in got.error["message"]


def test_size_is_capped_however_it_is_sent(make_client: Callable[..., Client]) -> None:
    client = make_client(max_request_bytes=1000)
    fits, large = padded(1000), padded(1001)
    packed = {"Content-Encoding": "gzip"}
    assert client("POST", TARGET, fits).status == 200
    assert client("POST", TARGET, parts=(fits[:500], fits[500:])).status == 200
    assert client("POST", TARGET, gzip.compress(fits), headers=packed).status == 200
    refused = [
        client("POST", TARGET, large),
        client("POST", TARGET, parts=(large[:500], large[500:])),
        client("POST", TARGET, headers={"Content-Length": "1001"}, parts=()),
        client("POST", TARGET, gzip.compress(large), headers=packed),
        client("POST", TARGET, gzip.compress(b" " * 50_000_000), headers=packed),
    ]
    assert {(got.status, got.error["type"]) for got in refused} == {
        (413, "PayloadTooLargeException")
    }
    assert len(client.catalog.calls) == 3


def test_a_bomb_is_never_inflated_beyond_the_cap(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    inflated: list[int] = []

    class Watched:
        def __init__(self, wbits: int) -> None:
            self._inner = zlib_decompressobj(wbits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            out = self._inner.decompress(data, max_length)
            inflated.append(len(out))
            return out

    zlib_decompressobj = zlib.decompressobj
    monkeypatch.setattr("frazil.rest.call.zlib.decompressobj", Watched)
    client = make_client(max_request_bytes=1000)
    bomb = gzip.compress(b" " * 10_000_000)
    got = client("POST", TARGET, bomb, headers={"Content-Encoding": "gzip"})
    assert got.status == 413
    assert sum(inflated) <= 1001


def test_bodies_in_flight_are_capped_together(
    make_client: Callable[..., Client], catalog: StandInCatalog
) -> None:
    client = make_client(max_request_bytes=1000, max_bytes_in_flight=1000)

    async def scenario() -> None:
        arrived, rest = asyncio.Event(), asyncio.Event()
        sent: list[dict[str, Any]] = []

        async def receive() -> Any:
            if not arrived.is_set():
                arrived.set()
                return {"type": "http.request", "body": padded(900), "more_body": True}
            await rest.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": TARGET, "headers": []}
        slow = asyncio.create_task(client.app(scope, receive, send))
        await arrived.wait()
        await asyncio.sleep(0)
        refused = await exchange(client.app, "POST", TARGET, parts=(BODY,))
        assert (refused.status, refused.error["type"]) == (429, "TooManyRequestsException")
        assert "retry-after" in refused.headers
        rest.set()
        await slow
        assert sent[0]["status"] == 200
        assert (await exchange(client.app, "POST", TARGET, parts=(BODY,))).status == 200

    asyncio.run(scenario())
    assert len(catalog.calls) == 2


def test_a_body_that_never_ends_is_given_up(make_client: Callable[..., Client]) -> None:
    client = make_client(body_timeout_s=0.01)

    async def scenario() -> int:
        sent: list[dict[str, Any]] = []
        first = [{"type": "http.request", "body": b"{", "more_body": True}]

        async def receive() -> Any:
            if first:
                return first.pop()
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": TARGET, "headers": []}
        await client.app(scope, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(scenario()) == 400


def test_large_bodies_are_decoded_like_small_ones(client: Client, catalog: StandInCatalog) -> None:
    properties = {f"key-{number}": "v" * 100 for number in range(5000)}
    got = client("POST", TARGET, {"namespace": ["a"], "properties": properties})
    assert got.status == 200
    assert catalog.asked("create_namespace")[2] == properties
    got = client("POST", TARGET, {"namespace": ["a"], "properties": {**properties, "bad": 1}})
    assert got.status == 400
    assert got.error["message"].startswith("properties['bad']")


def test_routes_without_a_body_do_not_read_one(client: Client) -> None:
    headers = {"Content-Type": "text/plain", "Content-Length": "99999999999"}
    assert client("DELETE", "/v1/namespaces/a", b"x", headers=headers).status == 204
    got = client("POST", "/v1/namespaces/a/tables/t/unregister", b"x", headers=headers)
    assert got.status == 200

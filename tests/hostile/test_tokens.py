"""A request without a valid token learns nothing and changes nothing, whatever its header is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.hostile.sockets import RawAnswer, last, request, talk
from tests.hostile.world import World
from tests.support.patience import HANG_S
from tests.support.server import running_server

TOKEN = "frz_0123456789abcdefghij"
ODD = "p\u00e4ss:w\u00f6rd/=+~!\u00ff"
"""Latin-1 characters: HTTP decodes such header bytes as latin-1."""


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("latin-1")).hexdigest()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("guarded")
    tokens = f"alice:{_hash(TOKEN)},bob:{_hash(ODD)}"
    headers = {"authorization": f"Bearer {TOKEN}"}
    with (
        running_server(folder, env={"FRAZIL_TOKENS": tokens}) as server,
        httpx.Client(base_url=server.url, timeout=HANG_S, headers=headers) as client,
    ):
        world = World(server, client, "n", Path(folder))
        world.build()
        yield world
        assert TOKEN not in server.log


def ask(world: World, path: str, *headers: str, method: str = "GET") -> RawAnswer:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
    return talk(world.server.port, "\r\n".join(lines).encode("latin-1"))[0]


@pytest.mark.parametrize(
    "header",
    [
        f"Authorization: Bearer {TOKEN}",
        f"authorization: bearer {TOKEN}",
        f"AUTHORIZATION:BEARER   {TOKEN}  ",
        f"Authorization: Bearer {ODD}",
    ],
)
def test_a_token_that_is_known(guarded: World, header: str) -> None:
    assert ask(guarded, guarded.table_path, header).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Authorization:"],
        ["Authorization: "],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        [f"Authorization: {TOKEN}"],
        [f"Authorization: Bearer{TOKEN}"],
        [f"Authorization: Basic {TOKEN}"],
        [f"Authorization: Token {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}x"],
        [f"Authorization: Bearer {TOKEN[:-1]}"],
        [f"Authorization: Bearer {TOKEN.upper()}"],
        [f'Authorization: Bearer "{TOKEN}"'],
        [f"Authorization: Bearer {TOKEN} {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}, Bearer {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}", "Authorization: Bearer x"],
        ["Authorization: Bearer x", f"Authorization: Bearer {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {TOKEN}"],
        [f"Authorization: Bearer {_hash(TOKEN)}"],
        ["Authorization: Bearer alice"],
        [f"Authorization: Bearer alice:{_hash(TOKEN)}"],
        ["Authorization: Bearer \x80\xff\xfe"],
        ["Authorization: Bearer ' OR '1'='1"],
        ["Authorization: Bearer " + "x" * 60_000],
        ["Authorization: Bearer *"],
        [f"Proxy-Authorization: Bearer {TOKEN}"],
        [f"X-Authorization: Bearer {TOKEN}"],
        [f"Cookie: Authorization=Bearer {TOKEN}"],
        ["X-Forwarded-User: alice"],
    ],
    ids=lambda headers: " | ".join(headers)[:50].encode("unicode-escape").decode() or "none",
)
def test_anything_else_is_refused(guarded: World, headers: list[str]) -> None:
    with guarded.unchanged():
        for method, path in (
            ("GET", "/v1/config"),
            ("GET", guarded.table_path),
            ("HEAD", guarded.table_path),
            ("DELETE", guarded.table_path),
            ("GET", f"{guarded.path}/tables/missing"),
            ("GET", "/openapi.json"),
            ("GET", "/no/such/route"),
            ("PATCH", guarded.table_path),
            ("GET", f"/v1/config?token={TOKEN}&access_token={TOKEN}"),
        ):
            answer = ask(guarded, path, *headers, method=method)
            assert answer.status == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                assert answer.error["type"] == "NotAuthorizedException"
                assert TOKEN not in answer.error["message"]


def test_health_needs_no_token(guarded: World) -> None:
    for path in ("/healthz", "/readyz"):
        assert ask(guarded, path).status == 200
        assert ask(guarded, path, "Authorization: Bearer x").status == 200


def test_a_body_without_a_token_is_not_waited_for(guarded: World) -> None:
    """A client without a token cannot make the server wait for a body."""
    start = request("POST", guarded.table_path, b"x" * 1_000_000)
    with guarded.unchanged():
        answers = talk(guarded.server.port, last(start)[:500])
        assert [answer.status for answer in answers] == [401]


def test_the_key_of_another_principal_is_another_key(guarded: World) -> None:
    key = "Idempotency-Key: 017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    body = b'{"namespace":["keyed"]}'
    statuses = []
    for token in (TOKEN, TOKEN, ODD):
        sent = request("POST", "/v1/namespaces", body, key, "Authorization: Bearer @")
        sent = last(sent).replace(b"@", token.encode("latin-1"), 1)
        statuses.append(talk(guarded.server.port, sent)[0].status)
    assert statuses == [200, 200, 409]

"""The REST layer behind a real HTTP server: raw paths and correct framing on kept connections."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from frazil.wire.errors import NoSuchTable
from frazil.wire.identifiers import Identifier
from tests.rest.stand_in import Client, StandInCatalog, dumped
from tests.support.patience import HANG_S


@pytest.fixture
def connection(client: Client) -> Iterator[http.client.HTTPConnection]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(client.app, lifespan="off", log_config=None, http="httptools")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    host, port = listener.getsockname()
    opened = http.client.HTTPConnection(host, port, timeout=HANG_S)
    yield opened
    opened.close()
    server.should_exit = True
    thread.join()
    listener.close()


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | Iterator[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection.request(method, target, body, headers or {}, encode_chunked=body is not None)
    response = connection.getresponse()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def test_names_arrive_as_they_were_sent(
    connection: http.client.HTTPConnection, catalog: StandInCatalog
) -> None:
    status, _, _ = ask(connection, "GET", "/v1/namespaces/a%1Fb%2Fc/tables/x%2Fy%20z+w%2B")
    assert status == 200
    assert catalog.asked("load_table") == (Identifier(("a", "b/c"), "x/y z w+"),)


def test_answers_without_a_body_leave_the_connection_in_step(
    connection: http.client.HTTPConnection, catalog: StandInCatalog
) -> None:
    """A stray byte after one of these answers would be read as the start of the next answer."""
    table = "/v1/namespaces/a/tables/t"
    _, headers, _ = ask(connection, "GET", table)
    tag = headers["etag"]
    used = connection.sock
    for _ in range(2):
        assert ask(connection, "HEAD", table)[0::2] == (204, b"")
        assert ask(connection, "GET", table, headers={"If-None-Match": tag})[0::2] == (304, b"")
        assert ask(connection, "HEAD", "/nope")[0::2] == (404, b"")
        assert ask(connection, "DELETE", table)[0::2] == (204, b"")
        assert ask(connection, "HEAD", "/healthz")[0::2] == (200, b"")
        catalog.raises["table_exists"] = NoSuchTable("Table does not exist: a.t")
        assert ask(connection, "HEAD", table)[0::2] == (404, b"")
        del catalog.raises["table_exists"]
    assert connection.sock is used


def test_chunked_bodies(connection: http.client.HTTPConnection, catalog: StandInCatalog) -> None:
    body = dumped({"namespace": ["a"], "properties": {"k": "v" * 200_000}})
    chunks = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    headers = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    assert ask(connection, "POST", "/v1/namespaces", chunks, headers)[0] == 200
    assert catalog.asked("create_namespace")[2] == {"k": "v" * 200_000}

"""Clients that are slow, disconnect, pipeline their requests or connect in large numbers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from frazil.format.metadata.metadata_files import decode_metadata_file
from tests.hostile.counting import COMMAND, Reached
from tests.hostile.sockets import (
    RawAnswer,
    connected,
    last,
    parse,
    read_all,
    read_one,
    request,
    talk,
)
from tests.hostile.world import World, snapshot
from tests.support.patience import HANG_S
from tests.support.server import running_server

PATIENCE_S = 3.0
CONNECTIONS = 200


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a server that waits at most three seconds for a head or a body."""
    folder = tmp_path_factory.mktemp("impatient")
    environment = Reached(folder / "reached").environment(PATIENCE_S)
    with (
        running_server(folder, env=environment, command=COMMAND) as server,
        httpx.Client(base_url=server.url, timeout=HANG_S) as client,
    ):
        world = World(server, client, "n", folder)
        world.build()
        yield world
        assert "Traceback" not in server.log


def change(key: str, value: str = "1") -> bytes:
    updates = [{"action": "set-properties", "updates": {key: value}}]
    return json.dumps({"requirements": [], "updates": updates}).encode()


# --- slow -----------------------------------------------------------------------------------------


def _send_byte_by_byte(port: int, start: bytes, body: bytes) -> list[RawAnswer]:
    with connected(port) as connection:
        connection.sendall(start)
        stop = threading.Event()
        drip = threading.Thread(target=_drip, args=(connection, body, stop))
        drip.start()
        answers = parse(read_all(connection))
        stop.set()
        drip.join()
        return answers


def _drip(connection: socket.socket, body: bytes, stop: threading.Event) -> None:
    for byte in body:
        if stop.wait(0.1):
            return
        try:
            connection.sendall(bytes([byte]))
        except OSError:
            return


def _begin_a_second_head(port: int) -> list[RawAnswer]:
    with connected(port) as connection:
        connection.sendall(request("GET", "/healthz"))
        first = read_one(connection)
        connection.sendall(b"GET /v1/config HTTP/1.1\r\nHo")
        return [first, *parse(read_all(connection))]


@pytest.fixture(scope="module")
def to_slow_clients(impatient: World) -> dict[str, list[RawAnswer]]:
    """Return the answers to slow clients, which all wait at the same time."""
    port, path = impatient.server.port, impatient.table_path
    expecting = request("POST", path, b"{}", "Expect: 100-continue")
    body = change("slow")
    start = last(request("POST", path, body))[: -len(body)]
    with impatient.unchanged(), ThreadPoolExecutor() as threads:
        waiting = {
            "no body": threads.submit(talk, port, last(expecting[:-2])),
            "half a body": threads.submit(talk, port, last(expecting[:-1])),
            "byte by byte": threads.submit(_send_byte_by_byte, port, start, body),
            "no head": threads.submit(talk, port, b""),
            "half a head": threads.submit(talk, port, b"GET /v1/config HTTP/1.1\r\nHost: x\r\n"),
            "half a second head": threads.submit(_begin_a_second_head, port),
        }
        return {name: future.result() for name, future in waiting.items()}


@pytest.mark.parametrize(
    ("client", "statuses"),
    [
        ("no body", [400]),
        ("half a body", [400]),
        ("byte by byte", [400]),
        ("no head", []),
        ("half a head", [408]),
        # The first request on the connection still gets its answer.
        ("half a second head", [200, 408]),
    ],
)
def test_a_slow_client_is_answered_after_a_while(
    to_slow_clients: dict[str, list[RawAnswer]], client: str, statuses: list[int]
) -> None:
    answers = to_slow_clients[client]
    assert [answer.status for answer in answers] == statuses
    if statuses == [400]:
        assert "seconds" in answers[0].error["message"]


def test_slow_clients_hold_up_nobody(impatient: World) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            slow = stack.enter_context(connected(impatient.server.port))
            slow.sendall(request("POST", impatient.table_path, change("slow"))[:-5])
        assert impatient.ok("POST", impatient.table_path, change("quick")).status_code == 200
    assert "slow" not in impatient.table()["metadata"]["properties"]


# --- gone -----------------------------------------------------------------------------------------


def test_a_client_that_goes_away_within_its_body(world: World) -> None:
    whole = request("POST", world.table_path, change("gone"))
    with world.unchanged():
        for length in (1, 20, len(whole) - len(change("gone")), len(whole) - 1):
            with connected(world.server.port) as connection:
                connection.sendall(whole[:length])
        with connected(world.server.port) as connection:
            # RST instead of FIN: the server may not even read what was sent.
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.sendall(whole[:-1])
        assert talk(world.server.port, last(request("GET", "/healthz")))[0].status == 200


def test_a_client_that_does_not_wait_for_its_answer(new_world: World) -> None:
    """Each commit happened completely or not at all, and each one that happened wrote one
    metadata file and added one entry to the log."""
    world = new_world
    keys = [f"key-{number}" for number in range(30)]
    before = world.table()
    for key in keys:
        with connected(world.server.port) as connection:
            connection.sendall(request("POST", world.table_path, change(key)))
    last_key = {"action": "set-properties", "updates": {"last": "1"}}
    world.committed(last_key)
    after = _settled(world)
    done = [key for key in keys if key in after["metadata"]["properties"]]
    metadata_files = Path(world.location.removeprefix("file://")) / "metadata"
    written = sorted(metadata_files.glob("*.metadata.json"))
    for file in written:
        decode_metadata_file(file.read_bytes(), 1 << 30, summaries=True)
    log = [entry["metadata-file"] for entry in after["metadata"]["metadata-log"]]
    chain = [*log, after["metadata-location"]]
    assert [Path(file).name for file in chain] == [file.name for file in written]
    assert before["metadata-location"] in chain
    # The server carries out a complete request even if its client is gone.
    assert done


def _settled(world: World) -> dict[str, Any]:
    """Return the table once the requests of disconnected clients have been processed."""
    found = world.table()
    for _ in range(100):
        time.sleep(0.05)
        again = world.table()
        if again["metadata-location"] == found["metadata-location"]:
            return again
        found = again
    raise AssertionError("the table does not come to rest")


# --- many -----------------------------------------------------------------------------------------


def test_pipelined_requests(new_world: World) -> None:
    """Pipelined requests are answered in order, each with its own answer."""
    world = new_world
    requests = []
    for number in range(20):
        requests.append(request("POST", world.table_path, change(f"p{number}")))
        requests.append(request("GET", f"{world.path}/tables/missing-{number}"))
    answers = talk(world.server.port, b"".join(requests) + last(request("GET", "/healthz")))
    assert [answer.status for answer in answers] == [200, 404] * 20 + [200]
    for number in range(20):
        properties = json.loads(answers[2 * number].body)["metadata"]["properties"]
        assert [key for key in properties if key.startswith("p")] == [
            f"p{earlier}" for earlier in range(number + 1)
        ]
        assert f"missing-{number}" in answers[2 * number + 1].error["message"]


def test_what_follows_a_refused_request_is_not_read_as_its_body(world: World) -> None:
    refused = request("POST", world.table_path, b"{" * 2000)
    with world.unchanged():
        answers = talk(world.server.port, refused + last(request("GET", "/healthz")))
        assert [answer.status for answer in answers] == [400, 200]


def test_a_crowd_of_connections(world: World) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(connected(world.server.port)) for _ in range(CONNECTIONS)]
        for connection in crowd:
            connection.sendall(last(request("GET", world.table_path)))
        for connection in crowd:
            assert [answer.status for answer in parse(read_all(connection))] == [200]


def test_a_malformed_request_fails_alone_in_its_group(new_world: World) -> None:
    """Waiting commits to one table are applied together. This must also work if appends may be
    rebased, where the server inspects every request of the group at once."""
    world = new_world
    world.committed(
        {"action": "set-properties", "updates": {"frazil.commit.rebase-appends": "true"}}
    )
    head = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2}
    broken = snapshot(world.location, 9, 9) | {"manifest-list": 1}
    good = [
        {"requirements": [], "updates": [{"action": "set-properties", "updates": {f"g{n}": "1"}}]}
        for n in range(24)
    ]
    bad = [
        {"requirements": [head], "updates": [{"action": "add-snapshot", "snapshot": broken}]},
        {"requirements": [head], "updates": [{"action": "add-snapshot", "snapshot": {}}]},
        {"requirements": [], "updates": [{"action": "set-location", "location": "file:///etc"}]},
        {"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": 99}]},
    ]
    bodies = [body for n in range(24) for body in (good[n], bad[n % len(bad)])]
    with ThreadPoolExecutor(len(bodies)) as threads:
        answers = list(threads.map(lambda body: world.send("POST", world.table_path, body), bodies))
    assert [answer.status_code for answer in answers] == [200, 400] * 24
    assert {f"g{n}" for n in range(24)} <= set(world.table()["metadata"]["properties"])

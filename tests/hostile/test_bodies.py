"""Bodies that are not JSON, are too deep or too large, are compression bombs, or have another
type."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.hostile.bodies import encoded, number
from tests.hostile.world import World, assert_refused
from tests.support.patience import HANG_S
from tests.support.server import running_server

MAX_BYTES = 1 << 20


def targets(world: World) -> tuple[str, ...]:
    return (
        "/v1/namespaces",
        f"{world.path}/properties",
        f"{world.path}/tables",
        f"{world.path}/register",
        world.table_path,
        f"{world.table_path}/metrics",
        "/v1/tables/rename",
        "/v1/transactions/commit",
        f"{world.path}/views",
        f"{world.path}/register-view",
        world.view_path,
        "/v1/views/rename",
    )


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t",
    "null": b"null",
    "array": b"[]",
    "text": b'"x"',
    "number": b"1",
    "open": b"{",
    "cut": b'{"requirements":[],"updates":[',
    "two values": b"{}{}",
    "rest": b"{}x",
    "single quotes": b"{'a':1}",
    "trailing comma": b'{"a":1,}',
    "comment": b'{"a":1/* */}',
    "no quotes": b"{a:1}",
    "NaN": b'{"requirements":NaN,"updates":[]}',
    "infinity": b'{"requirements":Infinity,"updates":[]}',
    "leading zero": b'{"requirements":01,"updates":[]}',
    "hexadecimal": b'{"requirements":0x1,"updates":[]}',
    "UTF-16": '{"requirements":[],"updates":[]}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"requirements":[],"updates":[]}',
    "broken UTF-8": b'{"requirements":[],"updates":[],"\xff":1}',
    "overlong UTF-8": b'{"requirements":[],"updates":[],"\xc0\xaf":1}',
    "encoded surrogate": b'{"requirements":[],"updates":[],"\xed\xa0\x80":1}',
    "lone surrogate": b'{"requirements":[],"updates":[],"\\ud800":1}',
    "lone surrogate in a value": b'{"namespace":["\\ud800x"]}',
    "raw control character": b'{"namespace":["a\x00b"]}',
    "raw newline": b'{"namespace":["a\nb"]}',
    "bad escape": b'{"namespace":["\\x41"]}',
    "nul": b"\x00",
    "deep arrays": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "deep and closed": b'{"updates":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "many digits": b"9" * 1_000_000,
    "many exponent digits": b"1e" + b"9" * 1_000_000,
    "HTML": b"<html></html>",
    "form": b"a=1&b=2",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_the_json_of_a_request(world: World, name: str) -> None:
    with world.unchanged():
        for target in targets(world):
            assert_refused(world.send("POST", target, MALFORMED[name]), 400)


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "application/xml",
        "application/jsonp",
        "json",
        "",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        "x" * 10_000,
    ],
)
def test_another_content_type(world: World, content_type: str) -> None:
    with world.unchanged():
        for target in targets(world):
            answer = world.client.post(
                target, content=b"{}", headers={"content-type": content_type}
            )
            assert_refused(answer, 415)


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "compress"])
def test_another_content_encoding(world: World, coding: str) -> None:
    body = b'{"requirements":[],"updates":[]}'
    with world.unchanged():
        answer = world.send("POST", world.table_path, body, content_encoding=coding)
        assert_refused(answer, 400, 415)


# --- nesting --------------------------------------------------------------------------------------


def _nested(depth: int, kind: str) -> bytes:
    """Return the JSON of a type, nested deeper than Python's own encoder can write."""
    outer = {
        "list": b'{"type":"list","element-id":%d,"element-required":false,"element":%s}',
        "map": b'{"type":"map","key-id":%d,"key":"string","value-id":%d,'
        b'"value-required":false,"value":%s}',
        "struct": b'{"type":"struct","fields":[{"id":%d,"name":"a","required":false,"type":%s}]}',
    }[kind]
    inner = b'"int"'
    for level in range(depth):
        ids = (2 * level + 10, 2 * level + 11) if kind == "map" else (level + 10,)
        inner = outer % (*ids, inner)
    return inner


SCHEMA_OF = b'{"type":"struct","fields":[{"id":1,"name":"a","required":false,"type":%s}]}'
ADD_SCHEMA = b'{"requirements":[],"updates":[{"action":"add-schema","schema":%s}]}'


@pytest.mark.parametrize("depth", [101, 150, 200, 400])
@pytest.mark.parametrize("kind", ["list", "map", "struct"])
def test_types_nested_too_deeply(world: World, kind: str, depth: int) -> None:
    schema = SCHEMA_OF % _nested(depth, kind)
    bodies = (
        (world.table_path, ADD_SCHEMA % schema),
        (world.view_path, ADD_SCHEMA % schema),
        (f"{world.path}/tables", b'{"name":"deep","schema":%s}' % schema),
    )
    with world.unchanged():
        for target, body in bodies:
            assert "nested" in assert_refused(world.send("POST", target, body), 400)


@pytest.mark.parametrize("field", ["initial-default", "write-default", "doc", "frobnicate"])
def test_values_nested_too_deeply(world: World, field: str) -> None:
    deep = b'"int","%s":%s' % (field.encode(), b"[" * 400 + b"]" * 400)
    with world.unchanged():
        answer = world.send("POST", world.table_path, ADD_SCHEMA % (SCHEMA_OF % deep))
        assert "schema" in assert_refused(answer, 400)


def test_nesting_that_is_accepted_can_be_read_again(new_world: World) -> None:
    """Every object of a request may have unknown fields, down to the depth that the REST layer
    accepts. This server must be able to read what it wrote, and so must readers that accept a
    thousand levels."""
    world = new_world
    for depth in (250, 480, 494, 497):
        deep = b"[" * depth + b"]" * depth
        snapshot = b'{"snapshot-id":%d,"sequence-number":%d,"timestamp-ms":%d,"manifest-list":"%s",'
        snapshot += b'"summary":{"operation":"append"},"frobnicate":%s}'
        values = (depth, depth, world.table()["metadata"]["last-updated-ms"])
        body = b'{"requirements":[],"updates":[{"action":"add-snapshot","snapshot":%s}]}'
        filled = snapshot % (*values, f"{world.location}/metadata/x.avro".encode(), deep)
        answer = world.send("POST", world.table_path, body % filled)
        if answer.status_code != 200:
            assert_refused(answer, 400)
            continue
        pointer = answer.json()["metadata-location"]
        world.ok("POST", f"{world.table_path}/unregister")
        body_again = {"name": "t", "metadata-location": pointer}
        world.ok("POST", f"{world.path}/register", body_again)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["-0", "0", "00", "1.0", "1e0", "1E400", "-1e400", "9" * 5000, "1e-400"]
)
def test_numbers_where_an_id_is_wanted(world: World, text: str) -> None:
    body = {"requirements": [{"type": "assert-default-spec-id", "default-spec-id": number(text)}]}
    with world.unchanged():
        answer = world.send("POST", world.table_path, encoded({**body, "updates": []}))
        if text in ("-0", "0"):
            assert answer.status_code == 200
        else:
            assert_refused(answer, 400)


# --- sizes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Provide a server that accepts bodies of at most one mebibyte."""
    folder = tmp_path_factory.mktemp("small")
    flags = ("--max-request-bytes", str(MAX_BYTES))
    with (
        running_server(folder, *flags) as server,
        httpx.Client(base_url=server.url, timeout=HANG_S) as client,
    ):
        world = World(server, client, "n", Path(folder))
        world.build()
        yield world


def _commit_of(size: int) -> bytes:
    head = b'{"requirements":[],"updates":[{"action":"set-properties","updates":{"a":"'
    tail = b'"}}]}'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def _streamed(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 65_536):
        yield body[start : start + 65_536]


def test_a_body_that_is_too_large(small: World) -> None:
    with small.unchanged():
        for body in (_commit_of(MAX_BYTES + 1), b" " * (4 * MAX_BYTES)):
            assert str(MAX_BYTES) in assert_refused(small.send("POST", small.table_path, body), 413)
            chunked = small.client.post(small.table_path, content=_streamed(body))
            assert_refused(chunked, 413)
    assert small.send("POST", small.table_path, _commit_of(MAX_BYTES)).status_code == 200


@pytest.mark.parametrize("members", [1, 3])
def test_a_bomb(small: World, members: int) -> None:
    bomb = gzip.compress(b" " * (64 * MAX_BYTES)) * members
    assert len(bomb) < MAX_BYTES
    before = _memory_bytes(small)
    with small.unchanged():
        answer = small.send("POST", small.table_path, bomb, content_encoding="gzip")
        assert_refused(answer, 413)
    assert _memory_bytes(small) - before < 48 * MAX_BYTES


def _memory_bytes(world: World) -> int:
    """Return the peak memory of the server."""
    status = Path(f"/proc/{world.server.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)


def test_gzip_that_is_not(small: World) -> None:
    good = gzip.compress(_commit_of(1000))
    broken = {
        "plain": _commit_of(1000),
        "cut": good[:-1],
        "head only": good[:10],
        "wrong checksum": good[:-8] + b"\x00" * 8,
        "rest": good + b"rest",
        "zlib": zlib.compress(_commit_of(1000)),
        "flipped": good[:20] + bytes([good[20] ^ 255]) + good[21:],
        "empty members": gzip.compress(b"") * 20_000,
        "nothing": b"",
        "an empty member": gzip.compress(b""),
    }
    with small.unchanged():
        for body in broken.values():
            answer = small.send("POST", small.table_path, body, content_encoding="gzip")
            assert_refused(answer, 400)
    assert small.send("POST", small.table_path, good, content_encoding="gzip").status_code == 200


def test_a_wide_request(world: World) -> None:
    """Requests with many fields, levels and updates may be slow, but must not fail or crash the
    server."""
    many = [{"action": "set-properties", "updates": {str(n): "x"}} for n in range(20_000)]
    world.committed(*many)
    assert world.commit(
        {"action": "remove-properties", "removals": [str(n) for n in range(20_000)]}
    )
    columns = [
        {"id": n, "name": f"c{n}", "required": False, "type": "int"} for n in range(1, 5_000)
    ]
    twice = [*columns, {**columns[0], "name": "again"}]
    with world.unchanged():
        for fields in (twice, [{**column, "id": 1} for column in columns]):
            schema = {"type": "struct", "fields": fields}
            assert_refused(world.commit({"action": "add-schema", "schema": schema}), 400)

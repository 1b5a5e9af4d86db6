"""Skipping values by a pattern has the same result as skipping them node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.avro.avro_files import skipper
from frazil.format.avro.avro_types import (
    Array,
    Boolean,
    Bytes,
    Enumeration,
    Field,
    Fixed,
    Integer,
    Node,
    Null,
    Record,
    String,
    StringMap,
    Union,
    UnreadableAvro,
)

LONG = Integer("long")
COUNTS = Array(Record.of([Field("key", Integer("int"), 1), Field("value", LONG, 2)]))
BOUNDS = Array(Record.of([Field("key", Integer("int"), 3), Field("value", Bytes(), 4)]))
NODES: tuple[Node, ...] = (
    *(Null(), Boolean(), LONG, Bytes(), String(), Fixed(3), Enumeration(("a", "b"))),
    *(Array(LONG), Array(String()), COUNTS, BOUNDS, StringMap(LONG), Record.of([])),
    *(Union((Null(), node)) for node in (LONG, String(), COUNTS, BOUNDS, Array(LONG))),
    *(Union((Array(LONG), Null())), Union((Null(), LONG, Bytes())), Union((Null(),))),
    *(Union((Null(), Union((Null(), LONG)))), Union((Null(), *[LONG] * 20))),
)


def values(node: Node) -> st.SearchStrategy[bytes]:
    """Encoded values of a type."""
    longs = st.integers(-(1 << 63), (1 << 63) - 1)
    kinds: dict[type, st.SearchStrategy[Any]] = {
        Null: st.none(),
        Boolean: st.booleans(),
        Integer: longs,
        Bytes: st.binary(max_size=200),
        String: st.text(max_size=80),
        Fixed: st.binary(min_size=3, max_size=3),
        Enumeration: st.sampled_from(("a", "b")),
        StringMap: st.dictionaries(st.text(max_size=3), longs, max_size=3),
    }
    if isinstance(node, Union):
        heads = (st.just(bytes((2 * at,))) for at in range(len(node.branches)))
        pairs = zip(heads, map(values, node.branches), strict=True)
        return st.one_of([st.tuples(*pair).map(b"".join) for pair in pairs])
    if isinstance(node, Record):
        return st.tuples(*(values(field.node) for field in node.fields)).map(b"".join)
    if isinstance(node, Array):
        items = st.lists(values(node.items), max_size=100)
        return st.tuples(items, st.booleans()).map(lambda drawn: array(*drawn))
    return kinds[type(node)].map(lambda value: encoded(node, value))


def encoded(node: Node, value: Any) -> bytes:
    out = bytearray()
    node.write(out, value)
    return bytes(out)


def array(items: Sequence[bytes], sized: bool) -> bytes:
    """An array with one block, which may have a negative count and its size."""
    content = b"".join(items)
    if not items:
        return b"\0"
    count = encoded(LONG, -len(items)) + encoded(LONG, len(content))
    return (count if sized else encoded(LONG, len(items))) + content + b"\0"


def by_node(nodes: Sequence[Node]) -> Callable[[bytes, int], int]:
    def skip(data: bytes, at: int) -> int:
        for node in nodes:
            at = node.skip(data, at)
        return at

    return skip


def outcome(skip: Callable[[bytes, int], int], data: bytes, at: int) -> int | type[Exception]:
    try:
        return skip(data, at)
    except (UnreadableAvro, IndexError) as error:
        return type(error)


@given(st.data())
def test_values_are_skipped_as_their_nodes_skip_them(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=12))
    content = b"".join([b"xx", *(data.draw(values(node)) for node in nodes), b"rest"])
    assert skipper(nodes)(content, 2) == len(content) - 4 == by_node(nodes)(content, 2)


@given(st.data())
def test_damaged_values_are_refused_as_their_nodes_refuse_them(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=6))
    content = bytearray(b"".join(data.draw(values(node)) for node in nodes))
    for _ in range(data.draw(st.integers(0, 3))):
        if content:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))])
    assert outcome(skipper(nodes), damaged, 0) == outcome(by_node(nodes), damaged, 0)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 300])
@pytest.mark.parametrize("node", [COUNTS, BOUNDS, Bytes(), String()])
def test_values_of_every_size_are_skipped(node: Node, size: int) -> None:
    value: Any = {Bytes: b"x" * size, String: "x" * size}.get(type(node))
    if isinstance(node, Array):
        value = [{"key": at, "value": b"x" * at if node is BOUNDS else at} for at in range(size)]
    content = encoded(node, value)
    assert skipper([node, LONG])(content + b"\x80\x01", 0) == len(content) + 2


@pytest.mark.parametrize("node", [Array(LONG), Union((Null(), Array(LONG)))])
def test_long_schemas_are_skipped(node: Node) -> None:
    nodes = [node, Bytes()] * 400
    content = encoded(node, [1, 2, 3]) + encoded(Bytes(), b"x")
    for many in (nodes, nodes[:60]):
        assert skipper(many)(content * 400, 0) == len(content) * len(many) // 2

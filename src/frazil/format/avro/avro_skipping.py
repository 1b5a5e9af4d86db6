"""Skips consecutive Avro values with one match of a regular expression.

An entry of a manifest has about twenty fields, and most readers skip most of them. Calling a node
for each takes up to five times as long as one match. What the expression does not match is skipped
by the nodes, which also identify any damage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final

from frazil.format.avro.avro_types import (
    ONE_BYTE_NUMBERS,
    Array,
    Bytes,
    Fixed,
    Floating,
    Integer,
    Node,
    Null,
    String,
    Union,
    numbered_pattern,
    short_bytes_pattern,
    varints_pattern,
)

Skip = Callable[[bytes, int], int]
"""Returns the position after the values that begin at a position."""

_MAX_NODES: Final = 64
_MAX_BRANCHES: Final = 8
_MAX_PATTERN_BYTES: Final = 32 << 10
"""Beyond these limits a schema is not Iceberg's, and its pattern would take long to compile."""


def skipper(nodes: Sequence[Node]) -> Skip:
    """Return a function that skips one value of each node."""
    steps: list[Skip] = []
    patterns = map(_pattern, nodes) if len(nodes) <= _MAX_NODES else [None] * len(nodes)
    pairs = zip(patterns, (node.skip for node in nodes), strict=True)
    for has_none, run in groupby(pairs, lambda pair: pair[0] is None):
        known, skips = zip(*run, strict=True)
        steps += skips if has_none else [_matched(known, skips)]
    return _in_order(steps)


def _matched(patterns: Sequence[bytes], skips: Sequence[Skip]) -> Skip:
    by_node = _in_order(skips)
    # Equal patterns become one with a count, because each takes a millisecond to compile.
    runs = ((pattern, len(list(run))) for pattern, run in groupby(patterns))
    whole = b"".join(b"(?:%b){%d}+" % run for run in runs)
    if len(whole) > _MAX_PATTERN_BYTES:
        return by_node
    match = re.compile(whole, re.DOTALL).match

    def skip(data: bytes, at: int) -> int:
        matched = match(data, at)
        return by_node(data, at) if matched is None else matched.end()

    return skip


def _in_order(steps: Sequence[Skip]) -> Skip:
    if len(steps) == 1:
        return steps[0]

    def skip(data: bytes, at: int) -> int:
        for step in steps:
            at = step(data, at)
        return at

    return skip


def _pattern(node: Node) -> bytes | None:
    """Return a pattern that matches what the node would skip. It does not match large values. None
    if there is no short pattern."""
    if isinstance(node, Null):
        return b""
    if isinstance(node, Integer):
        return varints_pattern(1)
    if isinstance(node, Fixed | Floating):
        return b".{%d}" % node.min_bytes
    if isinstance(node, Bytes | String):
        return short_bytes_pattern()
    if isinstance(node, Array) and node.items.varints is not None:
        return _pattern_of_array(node.items.varints)
    return _pattern_of_union(node) if isinstance(node, Union) else None


def _pattern_of_union(union: Union) -> bytes | None:
    branches = union.branches
    if len(branches) > _MAX_BRANCHES or any(isinstance(branch, Union) for branch in branches):
        return None
    patterns = [pattern for pattern in map(_pattern, branches) if pattern is not None]
    return numbered_pattern(patterns) if len(patterns) == len(branches) else None


@lru_cache(maxsize=64)
def _pattern_of_array(varints: int) -> bytes:
    """Return a pattern of an array in one block. Each element has so many varints."""
    sizes = [count * varints for count in range(1, ONE_BYTE_NUMBERS)]
    return numbered_pattern([b"", *(varints_pattern(size) + rb"\0" for size in sizes)])

"""Metrics left as a manifest holds them, and looked into only where a filter asks.

A filter asks for a few columns of many files; taking every map of every file apart for it would
cost many times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from frazil.format.avro.avro_types import (
    Array,
    Field,
    Integer,
    Null,
    Record,
    Union,
    UnreadableAvro,
    read_bytes,
    read_long,
)

_V = TypeVar("_V", int, bytes)


class EncodedMap(Generic[_V]):
    """A map of field ids, Avro's array of pairs, that begins at a position in a block."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def get(self, field_id: int, /) -> _V | None:
        """Walks over the pairs before it; a number below 64 is one byte, as most are."""
        data, at = self._data, self._at
        try:
            while data[at]:
                count, at = _block(data, at)
                for _ in range(count):
                    key = data[at]
                    if key > 127:
                        key, at = read_long(data, at)
                    else:
                        key = (key >> 1) ^ -(key & 1)
                        at += 1
                    if key == field_id:
                        return self._value(data, at)[0]
                    at = self._skip(data, at)
        except IndexError:
            raise UnreadableAvro("a map ends early") from None
        return None

    def items(self) -> Iterator[tuple[int, _V]]:
        data, at = self._data, self._at
        try:
            while data[at]:
                count, at = _block(data, at)
                for _ in range(count):
                    key, at = read_long(data, at)
                    value, at = self._value(data, at)
                    yield key, value
        except IndexError:
            raise UnreadableAvro("a map ends early") from None

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    @staticmethod
    def _value(data: bytes, at: int) -> tuple[_V, int]:
        raise NotImplementedError

    @staticmethod
    def _skip(data: bytes, at: int) -> int:
        raise NotImplementedError


class EncodedCounts(EncodedMap[int]):
    __slots__ = ()

    _value = staticmethod(read_long)

    @staticmethod
    def _skip(data: bytes, at: int) -> int:
        while data[at] > 127:
            at += 1
        return at + 1


class EncodedBytes(EncodedMap[bytes]):
    __slots__ = ()

    _value = staticmethod(read_bytes)

    @staticmethod
    def _skip(data: bytes, at: int) -> int:
        length = data[at]
        if length > 127 or length & 1:
            return read_bytes(data, at)[1]
        return at + 1 + (length >> 1)


def _block(data: bytes, at: int) -> tuple[int, int]:
    count, at = read_long(data, at)
    if count < 0:
        _, at = read_long(data, at)
    return abs(count), at


@dataclass(frozen=True, slots=True)
class MapForm:
    """How a schema has a map that may be null."""

    null: int | None
    """The byte before the map that says so; None where it cannot be null, and has no such byte."""

    def counts_at(self, data: bytes, at: int) -> EncodedCounts | None:
        """The map whose field begins there."""
        if self.null is None:
            return EncodedCounts(data, at)
        return None if data[at] == self.null else EncodedCounts(data, at + 1)

    def bytes_at(self, data: bytes, at: int) -> EncodedBytes | None:
        if self.null is None:
            return EncodedBytes(data, at)
        return None if data[at] == self.null else EncodedBytes(data, at + 1)


def map_form(field: Field, kind: type) -> MapForm:
    """The form of a map from field ids to values of this kind. Raises UnreadableAvro."""
    array = field.value_node
    if isinstance(array, Array) and isinstance(array.items, Record):
        kinds = [type(part.node) for part in array.items.fields]
        if kinds == [Integer, kind]:
            return MapForm(
                2 * field.node.branches.index(Null()) if isinstance(field.node, Union) else None
            )
    raise UnreadableAvro(f"the schema's field {field.name} is not a map of field ids")

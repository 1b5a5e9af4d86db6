"""Avro types as nodes that read, skip and write values in Avro's binary encoding.

The bytes may come from an attacker. Every count and length is compared with the remaining bytes
before anything is allocated.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from typing import Any, Final, Protocol

_REMEMBERED_NUMBERS: Final = 1 << 15


def encode_long(value: int) -> bytes:
    """Return an Avro `long`: zig-zag encoded, in groups of seven bits, the lowest first."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit into 64 bits")
    number = (value << 1) ^ (value >> 63)
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7)) if number > 127 else bytes((number,))
    if number < 1 << 21:
        return bytes((number & 127 | 128, number >> 7 & 127 | 128, number >> 14))
    if number < 1 << 28:
        low, high = number & 127 | 128, number >> 7 & 127 | 128
        return bytes((low, high, number >> 14 & 127 | 128, number >> 21))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


class Longs(dict[int, bytes]):
    """Caches encoded numbers. Most numbers occur again, in the same file or in the next one."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_long(value)
        if len(self) >= _REMEMBERED_NUMBERS:
            self.clear()
        self[value] = encoded
        return encoded


class Ints(Longs):
    """Caches encoded numbers that must fit into 32 bits."""

    def __missing__(self, value: int) -> bytes:
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f"{value} does not fit into 32 bits")
        return super().__missing__(value)


LONGS: Final = Longs()
INTS: Final = Ints()


# Sizes rarely repeat. They are built from two halves of fourteen bits: the lower half always
# continues, the upper half always ends.
_SMALL: Final = 1 << 13
_LARGE: Final = 1 << 27
_WHOLE: Final = [encode_long(value) for value in range(_SMALL)]
_LOWER: Final = [bytes((value << 1 & 127 | 128, value >> 6 & 127 | 128)) for value in range(_SMALL)]
_UPPER: Final = [
    bytes((value & 127 | 128, value >> 7)) if value > 127 else bytes((value,))
    for value in range(1 << 14)
]


def encode_count(value: int) -> bytes:
    """Encode a number that is not negative and rarely occurs twice."""
    if value < _SMALL:
        return _WHOLE[value]
    return _LOWER[value & 8191] + _UPPER[value >> 13] if value < _LARGE else encode_long(value)


MAX_ITEMS: Final = 10_000
"""The most elements of an array or map that are decoded. Skipped elements are not limited."""


class UnreadableAvro(Exception):
    """The bytes are not Avro data that can be read safely. The message says why."""


# --- patterns --------------------------------------------------------------------------------

# Matching a pattern is faster than a loop. Counts are possessive (`{2}+`): a match that remembers
# where it could go back to takes three times as long.

_MAX_MATCHED_ITEMS: Final = 256
"""More elements are matched in several steps, so that few patterns are cached."""
_MAX_BRANCHES: Final = 8
_MAX_ITEM_PATTERN_BYTES: Final = 64
_MAX_RECORD_PATTERN_BYTES: Final = 1 << 10
_ONE_BYTE_NUMBERS: Final = 64
"""Lengths, counts and branches below this number have one byte."""

_VARINT: Final = rb"[\x80-\xff]*+[\x00-\x7f]"


def _numbered(patterns: Iterable[bytes]) -> bytes:
    """Return a pattern of a number and what follows it. Pattern i follows the number i, which is
    less than 64."""
    parts = (re.escape(bytes((2 * at,))) + pattern for at, pattern in enumerate(patterns))
    return b"(?:%b)" % b"|".join(parts)


_SHORT_BYTES: Final = _numbered(b".{%d}" % size for size in range(_ONE_BYTE_NUMBERS))
"""At most 63 bytes after their length."""


@lru_cache(maxsize=64)
def _array_pattern(item: bytes) -> bytes:
    sizes = range(1, _ONE_BYTE_NUMBERS)
    return _numbered([b"", *(rb"(?:%b){%d}+\0" % (item, size) for size in sizes)])


@lru_cache(maxsize=1 << 11)
def _repeated(pattern: bytes, count: int) -> re.Pattern[bytes]:
    return re.compile(b"(?:%b){%d}+" % (pattern, count), re.DOTALL)


class Node(Protocol):
    """One Avro type. `layout` is equal for types whose values have the same bytes."""

    @property
    def layout(self) -> str: ...

    @property
    def min_bytes(self) -> int: ...

    @property
    def pattern(self) -> bytes | None:
        """A pattern of what `skip` skips, except for large values. None if it would be long."""

    def read(self, data: bytes, at: int) -> tuple[Any, int]: ...

    def skip(self, data: bytes, at: int) -> int: ...

    def write(self, out: bytearray, value: Any) -> None: ...


def read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > 63:
            raise UnreadableAvro("a number has more than 64 bits")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    if number >> 64:
        raise UnreadableAvro("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise UnreadableAvro("a length points beyond the data")
    return data[at:end], end


def _skip_bytes(data: bytes, at: int) -> int:
    byte = data[at]
    length, at = read_long(data, at) if byte & 0x81 else (byte >> 1, at + 1)
    if length < 0 or at + length > len(data):
        raise UnreadableAvro("a length points beyond the data")
    return at + length


@dataclass(frozen=True, slots=True)
class Null:
    layout: str = "null"
    min_bytes: int = 0
    pattern: bytes | None = b""

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        return None, at

    def skip(self, data: bytes, at: int) -> int:
        return at

    def write(self, out: bytearray, value: Any) -> None:
        if value is not None:
            raise ValueError(f"{value!r} is not null")


@dataclass(frozen=True, slots=True)
class Boolean:
    layout: str = "boolean"
    min_bytes: int = 1
    pattern: bytes | None = b"."

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        return data[at] != 0, at + 1

    def skip(self, data: bytes, at: int) -> int:
        return at + 1

    def write(self, out: bytearray, value: Any) -> None:
        out.append(1 if value else 0)


@dataclass(frozen=True, slots=True)
class Integer:
    """`int` and `long` have the same bytes; `layout` distinguishes them."""

    layout: str
    min_bytes: int = 1
    pattern: bytes | None = _VARINT

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        return read_long(data, at)

    def skip(self, data: bytes, at: int) -> int:
        while data[at] & 0x80:
            at += 1
        return at + 1

    def write(self, out: bytearray, value: Any) -> None:
        out += encode_long(value)


@dataclass(frozen=True, slots=True)
class Floating:
    layout: str
    packing: struct.Struct

    @property
    def min_bytes(self) -> int:
        return self.packing.size

    @property
    def pattern(self) -> bytes | None:
        return b".{%d}" % self.packing.size

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        return self.packing.unpack_from(data, at)[0], at + self.packing.size

    def skip(self, data: bytes, at: int) -> int:
        return at + self.packing.size

    def write(self, out: bytearray, value: Any) -> None:
        out += self.packing.pack(value)


@dataclass(frozen=True, slots=True)
class Bytes:
    layout: str = "bytes"
    min_bytes: int = 1
    pattern: bytes | None = _SHORT_BYTES

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        return read_bytes(data, at)

    def skip(self, data: bytes, at: int) -> int:
        return _skip_bytes(data, at)

    def write(self, out: bytearray, value: Any) -> None:
        out += encode_long(len(value))
        out += value


@dataclass(frozen=True, slots=True)
class String:
    layout: str = "string"
    min_bytes: int = 1
    pattern: bytes | None = _SHORT_BYTES

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        value, at = read_bytes(data, at)
        return value.decode("utf-8"), at

    def skip(self, data: bytes, at: int) -> int:
        return _skip_bytes(data, at)

    def write(self, out: bytearray, value: Any) -> None:
        encoded = value.encode("utf-8")
        out += encode_long(len(encoded))
        out += encoded


@dataclass(frozen=True, slots=True)
class Fixed:
    size: int

    @property
    def layout(self) -> str:
        return f"fixed[{self.size}]"

    @property
    def min_bytes(self) -> int:
        return self.size

    @property
    def pattern(self) -> bytes | None:
        return b".{%d}" % self.size

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        end = at + self.size
        if end > len(data):
            raise UnreadableAvro("a fixed value points beyond the data")
        return data[at:end], end

    def skip(self, data: bytes, at: int) -> int:
        return at + self.size

    def write(self, out: bytearray, value: Any) -> None:
        if len(value) != self.size:
            raise ValueError(f"{len(value)} bytes are not fixed[{self.size}]")
        out += value


@dataclass(frozen=True, slots=True)
class Enumeration:
    symbols: tuple[str, ...]
    min_bytes: int = 1
    pattern: bytes | None = None

    @property
    def layout(self) -> str:
        return f"enum[{','.join(self.symbols)}]"

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(self.symbols):
            raise UnreadableAvro(f"an enum has no symbol {index}")
        return self.symbols[index], at

    def skip(self, data: bytes, at: int) -> int:
        return read_long(data, at)[1]

    def write(self, out: bytearray, value: Any) -> None:
        out += encode_long(self.symbols.index(value))


@dataclass(frozen=True, slots=True)
class Array:
    items: Node
    min_bytes: int = 1

    @property
    def pattern(self) -> bytes | None:
        """A pattern of one block of elements whose own pattern is short."""
        own = self.items.pattern
        return _array_pattern(own) if own and len(own) <= _MAX_ITEM_PATTERN_BYTES else None

    @property
    def layout(self) -> str:
        return f"array<{self.items.layout}>"

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        while True:
            count, _, at = _block(data, at, self.items.min_bytes)
            if count == 0:
                return values, at
            if len(values) + count > MAX_ITEMS:
                raise UnreadableAvro(f"an array has more than {MAX_ITEMS} elements")
            for _ in range(count):
                value, at = self.items.read(data, at)
                values.append(value)

    def skip(self, data: bytes, at: int) -> int:
        items, pattern = self.items, self.items.pattern
        while data[at]:
            count, size, at = _block(data, at, items.min_bytes)
            if size is not None:
                at += size
                continue
            while pattern is not None and count > 0:
                step = count if count < _MAX_MATCHED_ITEMS else _MAX_MATCHED_ITEMS
                matched = _repeated(pattern, step).match(data, at)
                if matched is None:
                    break
                at = matched.end()
                count -= step
            for _ in range(count):
                at = items.skip(data, at)
        return at + 1

    def write(self, out: bytearray, value: Any) -> None:
        if value:
            out += encode_long(len(value))
            for item in value:
                self.items.write(out, item)
        out.append(0)


@dataclass(frozen=True, slots=True)
class StringMap:
    """Avro's own map, whose keys are strings. Iceberg's maps are arrays of pairs."""

    values: Node
    min_bytes: int = 1
    pattern: bytes | None = None

    @property
    def layout(self) -> str:
        return f"map<{self.values.layout}>"

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        entries: dict[str, Any] = {}
        while True:
            count, _, at = _block(data, at, 1 + self.values.min_bytes)
            if count == 0:
                return entries, at
            if len(entries) + count > MAX_ITEMS:
                raise UnreadableAvro(f"a map has more than {MAX_ITEMS} entries")
            for _ in range(count):
                key, at = read_bytes(data, at)
                entries[key.decode("utf-8")], at = self.values.read(data, at)

    def skip(self, data: bytes, at: int) -> int:
        while True:
            count, size, at = _block(data, at, 1 + self.values.min_bytes)
            if count == 0:
                return at
            if size is not None:
                at += size
                continue
            for _ in range(count):
                at = self.values.skip(data, _skip_bytes(data, at))

    def write(self, out: bytearray, value: Any) -> None:
        if value:
            out += encode_long(len(value))
            for key, item in value.items():
                String().write(out, key)
                self.values.write(out, item)
        out.append(0)


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Node, ...]
    _one_byte: Mapping[int, Node] = dataclass_field(init=False, compare=False, repr=False)
    """The branches by the bytes of their indexes."""

    def __post_init__(self) -> None:
        known = {2 * index: branch for index, branch in enumerate(self.branches[:64])}
        object.__setattr__(self, "_one_byte", known)

    @property
    def layout(self) -> str:
        return f"[{','.join(branch.layout for branch in self.branches)}]"

    @property
    def min_bytes(self) -> int:
        return 1 + min(branch.min_bytes for branch in self.branches)

    @property
    def pattern(self) -> bytes | None:
        branches = self.branches
        if len(branches) > _MAX_BRANCHES or any(isinstance(branch, Union) for branch in branches):
            return None
        known = [pattern for branch in branches if (pattern := branch.pattern) is not None]
        return _numbered(known) if len(known) == len(branches) else None

    @property
    def null(self) -> int | None:
        """The index of the null branch."""
        return next((i for i, branch in enumerate(self.branches) if isinstance(branch, Null)), None)

    @property
    def optional_of(self) -> Node | None:
        """The other branch of a union of null and one type. This is how Iceberg marks optional
        fields."""
        others = [branch for branch in self.branches if not isinstance(branch, Null)]
        return others[0] if len(self.branches) == 2 and len(others) == 1 else None

    def _branch(self, data: bytes, at: int) -> tuple[Node, int]:
        index, at = read_long(data, at)
        if not 0 <= index < len(self.branches):
            raise UnreadableAvro(f"a union has no branch {index}")
        return self.branches[index], at

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        if data[at] in self._one_byte:
            return self._one_byte[data[at]].read(data, at + 1)
        branch, at = self._branch(data, at)
        return branch.read(data, at)

    def skip(self, data: bytes, at: int) -> int:
        if data[at] in self._one_byte:
            return self._one_byte[data[at]].skip(data, at + 1)
        branch, at = self._branch(data, at)
        return branch.skip(data, at)

    def write(self, out: bytearray, value: Any) -> None:
        if value is None and self.null is not None:
            out += encode_long(self.null)
            return
        other = self.optional_of
        if other is None:
            raise ValueError("only a union of null and one type can be written")
        out += encode_long(self.branches.index(other))
        other.write(out, value)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    node: Node
    field_id: int | None

    @property
    def nullable(self) -> bool:
        return isinstance(self.node, Null) or (
            isinstance(self.node, Union) and self.node.null is not None
        )

    @property
    def value_node(self) -> Node:
        """The type of the field's values that are not null."""
        if isinstance(self.node, Union) and self.node.optional_of is not None:
            return self.node.optional_of
        return self.node

    def encoded(self, value: Any) -> bytes:
        """Return the bytes of a value. Raises UnreadableAvro if it does not fit."""
        out = bytearray()
        try:
            self.node.write(out, value)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UnreadableAvro(f"{self.name} cannot be written: {error}") from None
        return bytes(out)


@dataclass(frozen=True, slots=True)
class Record:
    fields: tuple[Field, ...]
    layout: str
    min_bytes: int
    pattern: bytes | None

    @classmethod
    def of(cls, fields: Sequence[Field]) -> Record:
        patterns = [field.node.pattern for field in fields]
        known = [pattern for pattern in patterns if pattern is not None]
        pattern = b"".join(known) if fields and len(known) == len(patterns) else None
        return cls(
            tuple(fields),
            f"{{{','.join(f'{field.field_id}:{field.node.layout}' for field in fields)}}}",
            sum(field.node.min_bytes for field in fields),
            pattern if pattern and len(pattern) <= _MAX_RECORD_PATTERN_BYTES else None,
        )

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for field in self.fields:
            values[field.name], at = field.node.read(data, at)
        return values, at

    def skip(self, data: bytes, at: int) -> int:
        for field in self.fields:
            at = field.node.skip(data, at)
        return at

    def write(self, out: bytearray, value: Any) -> None:
        for field in self.fields:
            try:
                field.node.write(out, value[field.name])
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise ValueError(f"field {field.name}: {error}") from error

    def counterpart(self, other: Field) -> Field | None:
        """Return the field that means the same as one of another schema: by id, or by name."""
        if other.field_id is None:
            return next((field for field in self.fields if field.name == other.name), None)
        return self.by_id(other.field_id)

    def spans(self, data: bytes, at: int) -> list[tuple[int, int]]:
        """Return where each field's bytes begin and end."""
        spans: list[tuple[int, int]] = []
        for field in self.fields:
            end = field.node.skip(data, at)
            spans.append((at, end))
            at = end
        return spans

    def spliced(self, data: bytes, at: int, changes: Mapping[int, bytes]) -> bytes:
        """Return a value's bytes with the bytes of some fields, by Iceberg id, replaced."""
        parts: list[bytes] = []
        for field in self.fields:
            end = field.node.skip(data, at)
            changed = None if field.field_id is None else changes.get(field.field_id)
            parts.append(data[at:end] if changed is None else changed)
            at = end
        return b"".join(parts)

    def by_id(self, field_id: int) -> Field | None:
        """Return a field by its Iceberg id. Iceberg's readers find fields by id, not by name."""
        return next((field for field in self.fields if field.field_id == field_id), None)


def _block(data: bytes, at: int, min_item_bytes: int) -> tuple[int, int | None, int]:
    """Read the head of an array or map block: its element count, and its size if present."""
    byte = data[at]
    count, at = read_long(data, at) if byte & 0x81 else (byte >> 1, at + 1)
    size: int | None = None
    if count < 0:
        count = -count
        size, at = read_long(data, at)
        if not 0 <= size <= len(data) - at:
            raise UnreadableAvro("an array's block points beyond the data")
    if count * min_item_bytes > (len(data) - at if size is None else size):
        raise UnreadableAvro(f"an array claims more elements than it has bytes for: {count}")
    return count, size, at

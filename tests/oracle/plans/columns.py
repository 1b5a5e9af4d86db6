"""Columns of every primitive type, and a small set of values so that predicates often match."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

from frazil.values.single_value import from_json
from frazil.values.type_json import parse_type
from frazil.values.types import DecimalType, Type, TypeId

MICROS_PER_HOUR: Final = 3_600_000_000
MICROS_PER_DAY: Final = 24 * MICROS_PER_HOUR
TEXTS: Final = (
    *("", "a", "ab", "abc", "abd", "abcdefghijklmnop", "abcdefghijklmnopq", "b", "ba", "Ab"),
    *("é", "éa", "\uffff", "\ud7ff\uffff", "\U00010000", "a\U0001f600", "a\U0001f600b"),
    *("\U0010ffff", "\U0010ffff\U0010ffff", "z\x00", "z", "zz"),
)
BLOBS: Final = (
    *(b"", b"\x00", b"\x00\x01", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\xff\xfe"),
    *(b"ab", b"abc", b"abcdefghijklmnopqr"),
)
UUIDS: Final = (
    UUID(int=0),
    UUID(int=1),
    UUID("00000000-0000-0001-0000-000000000000"),
    UUID("379c3e09-677c-4bbd-2479-3f349cb785e7"),
    UUID("579c3e09-677c-4bbd-2479-3f349cb785e7"),
    UUID("7fffffff-ffff-ffff-7fff-ffffffffffff"),
)
HIGH_UUIDS: Final = (
    UUID("00000000-0000-0000-8000-000000000000"),
    UUID("80000000-0000-0000-0000-000000000000"),
    UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    UUID(int=(1 << 128) - 1),
)
"""Some halves of these are negative in Java, which therefore orders them first."""

TYPES: Final[tuple[str, ...]] = (
    *("boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(38,10)", "date"),
    *("time", "timestamp", "timestamptz", "string", "uuid", "fixed[4]", "binary"),
)
V3_TYPES: Final = ("timestamp_ns", "timestamptz_ns")
TRANSFORMS: Final[Mapping[TypeId, tuple[str, ...]]] = {
    TypeId.BOOLEAN: ("identity",),
    TypeId.INT: ("identity", "bucket[3]", "truncate[10]", "truncate[3]"),
    TypeId.LONG: ("identity", "bucket[4]", "truncate[10]", "truncate[7]"),
    TypeId.FLOAT: ("identity",),
    TypeId.DOUBLE: ("identity",),
    TypeId.DECIMAL: ("identity", "bucket[3]", "truncate[50]"),
    TypeId.DATE: ("identity", "bucket[3]", "year", "month", "day"),
    TypeId.TIME: ("identity", "bucket[3]"),
    TypeId.TIMESTAMP: ("identity", "bucket[3]", "year", "month", "day", "hour"),
    TypeId.TIMESTAMPTZ: ("identity", "bucket[3]", "year", "month", "day", "hour"),
    TypeId.TIMESTAMP_NS: ("identity", "bucket[3]", "year", "month", "day", "hour"),
    TypeId.TIMESTAMPTZ_NS: ("identity", "bucket[3]", "year", "month", "day", "hour"),
    TypeId.STRING: ("identity", "bucket[3]", "truncate[1]", "truncate[2]", "truncate[5]"),
    TypeId.UUID: ("identity", "bucket[3]"),
    TypeId.FIXED: ("identity", "bucket[3]"),
    TypeId.BINARY: ("identity", "bucket[3]", "truncate[1]", "truncate[2]"),
}
"""The transforms that can partition a column of each type; void works for all of them."""
PROMOTIONS: Final[Mapping[str, str]] = {
    "int": "long",
    "float": "double",
    "decimal(9,2)": "decimal(18,2)",
}


@dataclass(frozen=True)
class Leaf:
    """A primitive column, at the top level or inside structs."""

    field_id: int
    name: str
    """The full name, including the names of enclosing structs."""
    type: Type
    optional: bool
    """Whether the column or an enclosing struct may be null."""
    default: Any = None
    """The value in files that were written before the column was added."""


def leaves(schema: Mapping[str, Any]) -> list[Leaf]:
    """Return the columns that predicates can name, which excludes those inside lists and maps."""
    return list(_leaves(schema["fields"], "", False))


def _leaves(fields: list[dict[str, Any]], prefix: str, optional: bool) -> Iterator[Leaf]:
    for item in fields:
        may_be_null = optional or not item["required"]
        name = f"{prefix}{item['name']}"
        if isinstance(item["type"], str):
            type_ = parse_type(item["type"])
            default = from_json(type_, item.get("initial-default"))
            yield Leaf(item["id"], name, type_, may_be_null, default)
        elif item["type"]["type"] == "struct":
            yield from _leaves(item["type"]["fields"], f"{name}.", may_be_null)


def float32(value: float) -> float:
    (nearest,) = struct.unpack("<f", struct.pack("<f", value))
    return float(nearest)


def _days(random: Random) -> int:
    # Month ends, leap days and days around the epoch.
    close = random.choice((-366, -365, -32, -31, -2, -1, 0, 1, 30, 31, 58, 59, 365, 19_782))
    return close + random.randrange(3)


def _micros(random: Random) -> int:
    hour = random.choice((0, 0, 1, 23)) * MICROS_PER_HOUR
    return _days(random) * MICROS_PER_DAY + hour + random.choice((0, 0, 1, -1, 1_500_000))


def _nanos(random: Random) -> int:
    return _micros(random) * 1000 + random.choice((0, 0, 1, -1, 999))


# A multiple of every truncation width; a smaller value cannot be truncated without overflow.
_LEAST_INT: Final = -(2**31 // 210 * 210)
_LEAST_LONG: Final = -(2**63 // 210 * 210)


def _long(random: Random) -> int:
    if random.random() < 0.06:
        return random.choice((_LEAST_LONG, 2**63 - 1, 2**31, -(2**31) - 1))
    return random.randint(-25, 40)


def _int(random: Random) -> int:
    if random.random() < 0.06:
        return random.choice((_LEAST_INT, 2**31 - 1))
    return random.randint(-25, 40)


def _double(random: Random) -> float:
    if random.random() < 0.12:
        return random.choice((0.0, -0.0, math.inf, -math.inf, 1e300))
    return random.randint(-12, 12) / 4 + random.choice((0, 0, 0.1))


def _float(random: Random) -> float:
    value = _double(random)
    return float32(value) if abs(value) < 1e38 or math.isinf(value) else float32(1e30)


_DRAW: Final[Mapping[TypeId, Callable[[Random], Any]]] = {
    TypeId.BOOLEAN: lambda random: random.random() < 0.5,
    TypeId.INT: _int,
    TypeId.LONG: _long,
    TypeId.FLOAT: _float,
    TypeId.DOUBLE: _double,
    TypeId.DATE: _days,
    TypeId.TIME: lambda random: random.choice((0, 1, MICROS_PER_HOUR, MICROS_PER_DAY - 1)),
    TypeId.TIMESTAMP: _micros,
    TypeId.TIMESTAMPTZ: _micros,
    TypeId.TIMESTAMP_NS: _nanos,
    TypeId.TIMESTAMPTZ_NS: _nanos,
    TypeId.STRING: lambda random: random.choice(TEXTS),
    TypeId.UUID: lambda random: random.choice(HIGH_UUIDS if random.random() < 0.03 else UUIDS),
    TypeId.FIXED: lambda random: random.choice(
        (bytes(4), b"\x00\x00\x00\x01", b"\x80abc", b"\xff" * 4)
    ),
    TypeId.BINARY: lambda random: random.choice(BLOBS),
}


def draw_value(random: Random, type_: Type) -> Any:
    """Draw a value of the type; never null or NaN."""
    if isinstance(type_, DecimalType):
        return _decimal(random, type_)
    return _DRAW[type_.type_id](random)


def _decimal(random: Random, type_: DecimalType) -> Decimal:
    if type_.precision > 30 and random.random() < 0.4:
        unscaled = random.choice((-(10**38) + 50, 10**38 - 1, 2**63, -(2**64), 10**30))
    else:
        unscaled = random.choice((-12_800, -129, -128, -1, 0, 1, 50, 99, 100, 127, 128, 32_768))
    # Build the decimal from digits, because Python's context would round 38 digits to 28.
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -type_.scale))


def order(value: Any) -> Any:
    """Return a sort key for Iceberg's order of values of one type; -0.0 is below 0.0."""
    if isinstance(value, float):
        return value, math.copysign(1, value)
    if isinstance(value, UUID):
        return value.bytes
    return value

"""Random statistics and expressions over every type, for the tests of the columnar form."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTerm,
    BoundTransform,
    BoundUnaryPredicate,
)
from frazil.format.manifest.entry_fields import RowMetrics
from frazil.format.metadata.content_files import FileMetrics
from frazil.format.pruning.evaluators import IN_PREDICATE_LIMIT
from frazil.values import transforms
from frazil.values.single_value import InvalidValue, check_value, to_binary
from frazil.values.transforms import parse_transform
from frazil.values.type_json import parse_type
from frazil.values.types import Type, TypeId
from frazil.wire.expressions import ALWAYS_FALSE, ALWAYS_TRUE, Expression, Operation, all_of, any_of

FIELD_ID = 1
LONG_TEXT = "customer#0000000017"
"""A text of more than 16 bytes."""
TEXTS = [
    *("", "a", "ab", "abc", "abcd", "abcdefgh", "abcdefghi", "abcdefghijklmnop", "b", "\x00"),
    *(
        "a\x00",
        "a\x00\x00",
        "ab\x00",
        "\x7f",
        "é",
        "éa",
        "aé",
        "\uffff",
        "\U00010000",
        "a\U0001f600",
    ),
    *("\U0010ffff" * 4, "\U0010ffff" * 5, "abcdefghijklmnop\x00", "abcdefghijklmnopq"),
    *("abcdefgh\x00", "abcdefghijklmnoq", LONG_TEXT, LONG_TEXT + "\x00", LONG_TEXT[:-1] + "8"),
    *("x" * 15 + "é", "x" * 16, "x" * 40, "x" * 39 + "y", "é" * 16),
]
BLOBS = [
    *(b"", b"\x00", b"\x00\x00", b"\x01", b"\x7f\xff", b"\xff" * 4, b"\xff" * 8, b"\xff" * 16),
    *(b"\x01\x02\x03\x04\x05\x06\x07\x08", b"\xff" * 17, b"\xff" * 16 + b"\x00", b"\x00" * 17),
]
UUIDS = [
    *(UUID(int=0), UUID(int=1), UUID(int=1 << 63), UUID(int=1 << 64), UUID(int=(1 << 128) - 1)),
    UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
]
MICROS_PER_DAY = 86_400_000_000
MOMENTS = [
    *(-(2**63), -(2**63) + 5, -MICROS_PER_DAY * 366, -MICROS_PER_DAY, -1, 0, 1, 3_599_999_999),
    *(3_600_000_000, MICROS_PER_DAY, MICROS_PER_DAY * 31, 1_700_000_000_000_000, 2**63 - 1),
]
INTS = [-(2**31), -11, -10, -1, 0, 1, 9, 10, 255, 256, 2**31 - 1]
DAYS = [-(2**31), -719_528, -366, -365, -32, -31, -1, 0, 1, 31, 59, 365, 106_751_992, 2**31 - 1]
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 1.5, 1e30, math.inf]
MONEY = ["-999.99", "-10.01", "-1.28", "-0.01", "0.00", "0.50", "1.27", "1.28", "999.99"]
DIGITS = [
    *(-(10**38) + 1, -(2**64), -(2**63) - 1, -(2**63), -129, -128, -1, 0, 1, 127, 128),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**38 - 1),
]

COLUMNS: dict[str, tuple[list[Any], list[str]]] = {
    "boolean": ([False, True], []),
    "int": (INTS, ["truncate[10]", "bucket[3]"]),
    "long": ([*INTS, -(2**63), -(2**63) + 1, 2**63 - 1], ["truncate[10]", "truncate[2147483647]"]),
    "float": ([*FLOATS[:5], math.inf, 0.10000000149011612], []),
    "double": ([*FLOATS, 0.1, 5e-324], []),
    "decimal(5,2)": ([Decimal(text) for text in MONEY], ["truncate[50]"]),
    "decimal(18,0)": ([Decimal(n) for n in DIGITS if abs(n) < 10**18], ["truncate[7]"]),
    "decimal(38,0)": ([Decimal(n) for n in DIGITS], ["truncate[1000]"]),
    "decimal(38,10)": ([Decimal(n).scaleb(-10) for n in DIGITS if abs(n) < 10**27], []),
    "date": (DAYS, ["year", "month", "day", "bucket[2]"]),
    "time": ([0, 1, MICROS_PER_DAY - 1], ["bucket[4]"]),
    "timestamp": (MOMENTS, ["year", "month", "day", "hour"]),
    "timestamptz": (MOMENTS, ["year", "month", "day", "hour"]),
    "timestamp_ns": (MOMENTS, ["year", "month", "day", "hour"]),
    "timestamptz_ns": (MOMENTS, ["day"]),
    "string": (TEXTS, ["truncate[1]", "truncate[3]", "truncate[9]", "truncate[20]", "bucket[3]"]),
    "uuid": (UUIDS, ["bucket[3]"]),
    "fixed[4]": ([bytes(4), b"\x00\x00\x00\x01", b"\x80abc", b"\xff" * 4], []),
    "fixed[17]": ([bytes(17), b"\xff" * 17, b"\xff" * 16 + b"\x00"], []),
    "binary": (BLOBS, ["truncate[2]", "truncate[16]", "truncate[17]"]),
}
STRANGE = [
    *(b"", b"\x00", b"\x01", b"\xff", b"abc", bytes(3), bytes(4), b"\xff" * 4, bytes(5), bytes(8)),
    *(b"\xff" * 8, bytes(16), b"\xc3", b"a\xc3\x28", b"\xed\xa0\x80", b"\xf8aaaa", bytes(17)),
    *(struct.pack("<f", math.nan), struct.pack("<d", math.nan), struct.pack("<d", -math.nan)),
    *(struct.pack("<i", 19_000), struct.pack("<i", -(2**31)), struct.pack("<f", 1.5)),
    *(b"\x80" + bytes(15), b"\x7f" + b"\xff" * 16, b"\x00" * 15 + b"\x05", b"x" * 16 + b"\xff"),
    *(struct.pack("<i", 2**31 - 1), struct.pack("<i", 106_751_991), struct.pack("<i", -106_752)),
]
"""Bytes that are invalid for most types, or that belong to a type before its promotion."""


@dataclass(frozen=True)
class Column:
    """A column type with possible bounds, literals and transforms."""

    text: str
    type: Type
    bounds: list[bytes]
    values: list[Any]
    transforms: list[str] = field(default_factory=list)


def columns() -> dict[str, Column]:
    made: dict[str, Column] = {}
    for text, (values, known) in COLUMNS.items():
        type_ = parse_type(text)
        made[text] = Column(
            text, type_, [to_binary(type_, value) for value in values], values, known
        )
    return made


ALL = columns()


# Test data is generated from a seed, because drawing every value separately is slow.


def rows_of(rng: Random, column: Column, *, number: int | None = None) -> list[RowMetrics]:
    """Return random metrics of rows: all with the same structure, or each with its own."""
    pool: list[bytes | None] = list(column.bounds)
    if rng.random() < 0.3:
        pool += STRANGE
    if rng.random() < 0.2:
        pool = [rng.choice(pool)]
    if rng.random() < 0.4:
        pool += [None] * (1 + len(pool) // 4)
    alike = rng.random() < 0.5
    return [_row(rng, pool, alike) for _ in range(number or rng.randint(1, 12))]


def _row(rng: Random, pool: Sequence[bytes | None], alike: bool) -> RowMetrics:
    record_count = rng.choice([5, 5, 1, 0, 7] if alike else [0, 1, 5, 7, 300, -1])
    counts: list[Any] = [record_count, 0, rng.choice([None, 0])]
    if not alike:
        known = [None, 0, 0, 1, record_count, record_count, -1, 300]
        counts = [rng.choice(known) for _ in range(3)]
    lower = rng.choice(pool)
    upper = lower if rng.random() < 0.3 else rng.choice(pool)
    maps = [_map(rng, value, alike) for value in (*counts, lower, upper)]
    return RowMetrics(record_count, *maps)


def _map(rng: Random, value: Any, alike: bool) -> dict[int, Any] | None:
    """Return a map of the value and others, in random order."""
    if value is None:
        return None if alike or rng.random() < 0.5 else {}
    if alike:
        return {FIELD_ID: value}
    other = b"other" if isinstance(value, bytes) else 3
    others = [{}, {FIELD_ID + 1: other}, {FIELD_ID + 70_000: other}]
    before, behind = rng.choice(others), rng.choice(others)
    return {**before, FIELD_ID: value, **behind}


def term_of(rng: Random, column: Column) -> tuple[BoundTerm, list[Any]]:
    """Return a term and literals of its type."""
    reference = BoundReference(FIELD_ID, "c", column.type, rng.random() < 0.5, rng.random() < 0.1)
    if not column.transforms or rng.random() < 0.6:
        return reference, column.values
    transform = parse_transform(rng.choice(column.transforms))
    results: list[Any] = []
    for value in column.values:
        try:
            results.append(transforms.apply(transform, column.type, value))
        except InvalidValue:
            continue
    return BoundTransform(reference, transform), results


_ORDERS = [Operation.LT, Operation.LT_EQ, Operation.GT, Operation.GT_EQ]
_EQUALITIES = [Operation.EQ, Operation.NOT_EQ]


def predicate_of(rng: Random, column: Column) -> Expression:
    term, literals = term_of(rng, column)
    kinds = ["unary", "literal", "literal", "literal", "set", "set", "large"]
    if term.type.type_id is TypeId.STRING:
        kinds += ["prefix", "prefix", "prefix"]
    kind = rng.choice(kinds)
    if kind == "unary":
        operations = [Operation.IS_NULL, Operation.NOT_NULL]
        if column.type.type_id in (TypeId.FLOAT, TypeId.DOUBLE):
            operations += [Operation.IS_NAN, Operation.NOT_NAN]
        return BoundUnaryPredicate(rng.choice(operations), term)
    if kind in ("set", "large"):
        operation = rng.choice([Operation.IN, Operation.NOT_IN])
        values = rng.choices(literals, k=rng.randint(2, 6))
        wanted = frozenset(values) | (_many(term.type) if kind == "large" else frozenset())
        return BoundSetPredicate(operation, term, wanted)
    operations = _ORDERS + _EQUALITIES
    if kind == "prefix":
        operations = [Operation.STARTS_WITH, Operation.NOT_STARTS_WITH]
        literals = [text for text in literals if len(text) > rng.choice([0, 0, 16])]
        literals = [text[: rng.choice([2, 9, 17, 18, 99])] for text in literals or TEXTS]
    return BoundLiteralPredicate(rng.choice(operations), term, rng.choice(literals))


def tree_of(rng: Random, column: Column, depth: int = 2) -> Expression:
    chance = rng.random()
    if depth == 0 or chance < 0.6:
        return predicate_of(rng, column)
    if chance < 0.64:
        return rng.choice([ALWAYS_TRUE, ALWAYS_FALSE])
    left, right = tree_of(rng, column, depth - 1), tree_of(rng, column, depth - 1)
    return all_of(left, right) if chance < 0.82 else any_of(left, right)


@cache
def _many(type_: Type) -> frozenset[Any]:
    """Return more values than the evaluators check in a set."""
    many: list[Any] = []
    for number in range(IN_PREDICATE_LIMIT + 20):
        value = _value(type_, number)
        try:
            check_value(type_, value)
        except InvalidValue:
            continue
        many.append(value)
    return frozenset(many)


def _value(type_: Type, number: int) -> Any:
    kind = type_.type_id
    if kind is TypeId.STRING:
        return f"customer#{number:010}"
    if kind in (TypeId.FLOAT, TypeId.DOUBLE):
        return number * 0.5
    if kind is TypeId.UUID:
        return UUID(int=number << 60)
    if kind is TypeId.BOOLEAN:
        return number % 2 == 0
    if kind is TypeId.DECIMAL:
        return Decimal(number).scaleb(-int(getattr(type_, "scale", 0)))
    if kind in (TypeId.BINARY, TypeId.FIXED):
        return number.to_bytes(int(getattr(type_, "length", 18)), "big")
    return number * 10


def plain(rows: Sequence[FileMetrics]) -> list[dict[str, Any]]:
    """Return comparable values; a missing map becomes an empty one."""
    names = (
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
    )
    return [
        {"record_count": row.record_count}
        | {name: dict((getattr(row, name) or {}).items()) for name in names}
        for row in rows
    ]

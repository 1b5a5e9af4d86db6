"""Filters of every kind, and rows that they are evaluated on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from frazil.format.expr.expression_binding import bind
from frazil.format.metadata.schema import Schema
from frazil.values import types
from frazil.values.type_json import struct_to_json
from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    DecimalType,
    FixedType,
    NestedField,
    StructType,
    Type,
)
from frazil.wire.expressions import Expression, parse_expression
from frazil.wire.filter_builders import (
    Operand,
    always_false,
    always_true,
    bucket,
    col,
    day,
    hour,
    month,
    truncate,
    year,
)
from tests.support.row_evaluator import row_evaluator

DAY_MICROS: Final = 86_400_000_000
TYPES: Final[dict[str, Type]] = {
    "flag": BOOLEAN,
    "small": INT,
    "big": LONG,
    "single": FLOAT,
    "number": DOUBLE,
    "price": DecimalType(9, 2),
    "born": DATE,
    "local": TIMESTAMP,
    "instant": TIMESTAMPTZ,
    "name": STRING,
    "token": types.UUID,
    "four": FixedType(4),
    "blob": BINARY,
    "odd `name`": LONG,
}
SCHEMA: Final = StructType(
    (
        *(NestedField(at, name, type_, False) for at, (name, type_) in enumerate(TYPES.items(), 1)),
        NestedField(
            50,
            "point",
            StructType((NestedField(51, "x", LONG, False), NestedField(52, "y", STRING, True))),
            False,
        ),
    )
)
IDS: Final = {field.name: field.field_id for field in SCHEMA.fields} | {"point.x": 51}
VALUES: Final[dict[str, list[Any]]] = {
    "flag": [True, False],
    "small": [-(2**31), -1, 0, 7, 2**31 - 1],
    "big": [-(2**63), 3, 2**63 - 1],
    "single": [-math.inf, -1.5, 0.25, math.inf, math.nan],
    "number": [-math.inf, -1.5, 0.1, 5.0, math.inf, math.nan],
    "price": [Decimal("-1.00"), Decimal("0.01"), Decimal("9999999.99")],
    "born": [-1, 0, 20_000],
    "local": [-1, 0, 20_000 * DAY_MICROS + 1],
    "instant": [-1, 0, 20_000 * DAY_MICROS + 1],
    "name": ["", "a", "ab", "b", "ü%_"],
    "token": [UUID(int=1), UUID(int=2**127 + 5)],
    "four": [b"\0\0\0\0", b"\x7f\x80\xff\0"],
    "blob": [b"", b"\x80", b"ab"],
    "odd `name`": [1, 2],
    "point.x": [4, 5],
}


def operands() -> Iterator[tuple[Operand, list[Any]]]:
    yield col("small"), [7, -(2**31), 2**31, -(2**40), 2**62]
    yield col("big"), [3, 2**63 - 1, -(2**63)]
    yield col("single"), [0.25, 0.1, 1e300, -1e300, 7]
    yield col("number"), [0.1, 5, -1.5]
    yield col("price"), [Decimal("0.01"), 0, "9999999.99", Decimal("1e20"), -(10**9)]
    yield col("born"), [date(1970, 1, 1), date(2024, 10, 4), date(1969, 12, 31)]
    yield col("local"), [datetime(1970, 1, 1), datetime(2024, 10, 4, 0, 0, 0, 1)]
    east = timezone(timedelta(hours=5, minutes=30))
    yield (
        col("instant"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 10, 4, 5, 30, 0, 1, east)],
    )
    yield col("name"), ["a", "ü%_", ""]
    yield col("token"), [UUID(int=1), UUID(int=2**127 + 5)]
    yield col("four"), [b"\x7f\x80\xff\0"]
    yield col("blob"), [b"", b"\x80"]
    yield col("odd `name`"), [1]
    yield col("point.x"), [4]
    yield bucket(4, "big"), [2]
    yield truncate(10, "small"), [-10]
    yield truncate(1, "name"), ["ü"]
    yield year("born"), [54]
    yield month("local"), [657]
    yield day("instant"), [date(1969, 12, 31)]
    yield hour("local"), [-1]


def expressions() -> Iterator[Expression]:
    yield always_true()
    yield always_false()
    yield col("flag") == True  # noqa: E712
    yield col("flag") != True  # noqa: E712
    for operand, values in operands():
        yield operand.is_null()
        yield operand.not_null()
        yield operand.is_in(values)
        yield operand.not_in(values)
        for value in values:
            yield operand == value
            yield operand != value
            yield operand < value
            yield operand <= value
            yield operand > value
            yield operand >= value
    for name in ("single", "number"):
        yield col(name).is_nan()
        yield col(name).not_nan()
    for prefix in ("", "a", "ü%"):
        yield col("name").starts_with(prefix)
        yield col("name").not_starts_with(prefix)
    yield col("point").is_null()
    low, high = col("small") > 0, col("number") < 1
    yield ~(low & ~(high | col("name").is_in(["a", "b"])))
    yield ~(low | high) & ~col("name").starts_with("a")
    yield ~~low | ~always_true()


def rows() -> list[dict[int, Any]]:
    """Return rows by field id: every value of every column, and a row of nulls."""
    found: list[dict[int, Any]] = [{}]
    found += [{IDS[name]: value} for name, values in VALUES.items() for value in values]
    return [row | {50: {}} if 51 in row else row for row in found]


def expected_matches(expression: Expression, given: list[dict[int, Any]]) -> list[bool]:
    """Return which rows match by the catalog's own evaluator."""
    raw = msgspec.json.encode({**struct_to_json(SCHEMA), "schema-id": 0})
    schema = Schema(raw, 0, SCHEMA, ())
    matches = row_evaluator(bind(parse_expression(expression.to_json()), schema))
    return [bool(matches(row)) for row in given]

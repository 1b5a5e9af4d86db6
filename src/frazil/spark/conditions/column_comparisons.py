"""Convert comparisons of a column with a constant to Iceberg expressions for the same rows.

Spark and Iceberg differ. In Spark, NaN is the greatest number and equal to itself, and zero has no
sign. In Iceberg, NaN has no order and -0.0 is less than 0.0. Spark widens both sides to a common
type; Iceberg converts the constant to the column's type. Where these differences could change the
result in an unknown way, the functions return None, which means any row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np

from frazil.spark.conditions.sql_columns import FoundColumn
from frazil.spark.conditions.sql_constants import (
    Kind,
    Literal,
    Zone,
    date_of,
    float32,
    instant_of,
    local_of,
    scale_of,
)
from frazil.spark.schema.spark_types import FLOATS, NANOS, TIMESTAMPS
from frazil.values.types import DecimalType, FixedType, Type, TypeId
from frazil.wire.expressions import Expression, all_of, any_of
from frazil.wire.filter_builders import Operand, Value, always_false, col

_MAX_EXACT_IN_DOUBLE: Final = 1 << 53
_MAX_EXACT_IN_FLOAT: Final = 1 << 24
_WIDE: Final = Context(prec=100)
_MAX_CLOCK_CHANGE: Final = timedelta(days=2)
"""More than any change of a clock, so that every reading of a local time is within it."""
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Converted:
    """An expression that matches at least the rows for which a condition is true."""

    expression: Expression
    exact: bool
    """Whether the expression matches exactly those rows."""


@dataclass(frozen=True)
class At:
    """The constant equals a value of the type."""

    value: Any


@dataclass(frozen=True)
class Between:
    """The constant equals no value of the type. `below` and `above` are its neighbors, or None."""

    below: Any
    above: Any


@dataclass(frozen=True)
class Around:
    """The constant equals an unknown value between `low` and `high`."""

    low: Any
    high: Any


Position: TypeAlias = At | Between | Around
"""The position of a constant among the values of a column's type."""


def compared(column: FoundColumn, operation: str, literal: Literal, zone: Zone) -> Converted | None:
    """Convert `column operation literal`.

    The operation is `eq`, `not-eq`, `lt`, `lt-eq`, `gt` or `gt-eq`. Return None if the result is
    unknown, which the caller takes as any row.
    """
    if literal.kind is Kind.NULL:
        return Converted(always_false(), exact=True)
    position = position_of(column.type, literal, zone)
    if position is None:
        return None
    if column.type.type_id is TypeId.UUID and operation not in ("eq", "not-eq"):
        return None
    if isinstance(position, Around):
        return Converted(_vague_comparison(col(column.name), operation, position), exact=False)
    return Converted(_exact_comparison(column, operation, position), exact=True)


def one_of(
    column: FoundColumn, literals: Sequence[Literal], negated: bool, zone: Zone
) -> Converted | None:
    """Convert `column IN (…)`, or its negation."""
    if negated and any(literal.kind is Kind.NULL for literal in literals):
        return Converted(always_false(), exact=True)
    non_null = [literal for literal in literals if literal.kind is not Kind.NULL]
    kinds = {literal.kind for literal in non_null}
    if not _comparable(kinds, non_null):
        return None
    positions = [position_of(column.type, literal, zone) for literal in non_null]
    operand = col(column.name)
    if kinds == {Kind.STRING} and column.type.type_id in TIMESTAMPS and negated:
        # Without ANSI mode Spark compares timestamps as text, and a timestamp has many texts.
        return Converted(operand.not_null(), exact=False)
    values: list[Any] = []
    ranges: list[Expression] = []
    for position in positions:
        if position is None:
            return None
        if isinstance(position, At):
            values.extend(_equal_values(column.type, position.value))
        elif isinstance(position, Around):
            ranges.append(_vague_comparison(operand, "eq", position))
    if not negated:
        exact = not ranges and not (Kind.STRING in kinds and column.type.type_id in TIMESTAMPS)
        return Converted(any_of(operand.is_in(values), *ranges), exact=exact)
    if ranges:
        return Converted(operand.not_null(), exact=False)
    return Converted(all_of(operand.not_null(), operand.not_in(values)), exact=True)


def _comparable(kinds: set[Kind], literals: Sequence[Literal]) -> bool:
    """Return whether Spark can convert all values of a list to one type without changing them."""
    if len(kinds) < 2:
        return True
    if not kinds <= {Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE}:
        return False
    return Kind.DOUBLE not in kinds or all(
        literal.kind is not Kind.INTEGER or abs(literal.value) < _MAX_EXACT_IN_DOUBLE
        for literal in literals
    )


def _equal_values(type_: Type, value: Any) -> tuple[Any, ...]:
    """Return the values that Spark takes as equal to a value, from Iceberg's greatest to least."""
    return (0.0, -0.0) if type_.type_id in FLOATS and value == 0 else (value,)


# --- expressions ----------------------------------------------------------------------------------


def _exact_comparison(column: FoundColumn, operation: str, position: At | Between) -> Expression:
    operand, floating = col(column.name), column.type.type_id in FLOATS
    if isinstance(position, At):
        equal = _equal_values(column.type, position.value)
        expression = _comparison_with(operand, operation, equal)
    else:
        expression = _comparison_between(operand, operation, position, floating)
    if floating and operation in ("gt", "gt-eq"):
        return any_of(expression, operand.is_nan())
    return expression


def _comparison_with(operand: Operand, operation: str, equal: tuple[Value, ...]) -> Expression:
    greatest, least = equal[0], equal[-1]
    if operation == "eq":
        return operand.is_in(equal) if len(equal) > 1 else operand == least
    if operation == "not-eq":
        differs = operand.not_in(equal) if len(equal) > 1 else operand != least
        return all_of(operand.not_null(), differs)
    if operation == "lt":
        return operand < least
    if operation == "lt-eq":
        return operand <= greatest
    return operand > greatest if operation == "gt" else operand >= least


def _comparison_between(
    operand: Operand, operation: str, position: Between, floating: bool
) -> Expression:
    if operation == "eq":
        return always_false()
    if operation == "not-eq":
        return operand.not_null()
    if operation in ("lt", "lt-eq"):
        if position.above is None:
            # The constant is greater than all values of the type, but NaN is greater in Spark.
            numbers = operand.not_null()
            return all_of(numbers, operand.not_nan()) if floating else numbers
        return always_false() if position.below is None else operand <= position.below
    if position.below is None:
        return operand.not_null()
    return always_false() if position.above is None else operand >= position.above


def _vague_comparison(operand: Operand, operation: str, position: Around) -> Expression:
    if operation == "not-eq":
        return operand.not_null()
    low: Expression = operand >= position.low
    high: Expression = operand <= position.high
    if operation == "eq":
        return all_of(low, high)
    return high if operation in ("lt", "lt-eq") else low


# --- positions of constants -----------------------------------------------------------------------


def position_of(type_: Type, literal: Literal, zone: Zone) -> Position | None:
    """Return where a constant lies among the values of a type; None if unknown."""
    find = _POSITIONS.get(type_.type_id)
    return None if find is None else find(type_, literal, zone)


def _same_kind(kind: Kind) -> Callable[[Type, Literal, Zone], Position | None]:
    return lambda _, literal, __: At(literal.value) if literal.kind is kind else None


def _integer_position(type_: Type, literal: Literal, _: Zone) -> Position | None:
    bits = 32 if type_.type_id is TypeId.INT else 64
    if literal.kind is Kind.STRING:
        return _canonical_integer(literal.value, bits)
    if literal.kind in (Kind.FLOAT, Kind.DOUBLE):
        limit = _MAX_EXACT_IN_FLOAT if literal.kind is Kind.FLOAT else _MAX_EXACT_IN_DOUBLE
        if abs(literal.value) >= limit:
            return None
    elif literal.kind is Kind.DECIMAL:
        if scale_of(literal.value) > 18:
            return None
    elif literal.kind is not Kind.INTEGER:
        return None
    value = literal.value
    below, above = math.floor(value), math.ceil(value)
    if below >= 1 << bits - 1:
        return Between(0, None)
    if above < -(1 << bits - 1):
        return Between(None, 0)
    return At(below) if below == above else Between(below, above)


def _canonical_integer(text: str, bits: int) -> Position | None:
    """Accept only a canonical number, because Spark may compare numbers or texts."""
    if not text.lstrip("-").isdecimal() or len(text) > 20 or str(int(text)) != text:
        return None
    value = int(text)
    return At(value) if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _float_position(type_: Type, literal: Literal, _: Zone) -> Position | None:
    if literal.kind is Kind.INTEGER:
        limit = _MAX_EXACT_IN_FLOAT if type_.type_id is TypeId.FLOAT else _MAX_EXACT_IN_DOUBLE
        return At(float(literal.value)) if abs(literal.value) <= limit else None
    if literal.kind not in (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE):
        return None
    value = float(literal.value)
    return At(value) if type_.type_id is TypeId.DOUBLE else _among_floats(value)


def _among_floats(value: float) -> Position | None:
    """Return the position of a double among 32-bit floats, which Spark widens to doubles."""
    try:
        rounded = float32(value)
    except OverflowError:
        return None
    if rounded == value:
        return At(rounded)
    toward = np.float32(math.inf if rounded < value else -math.inf)
    neighbor = float(np.nextafter(np.float32(rounded), toward))
    if math.isinf(neighbor):
        return None
    return Between(min(rounded, neighbor), max(rounded, neighbor))


def _decimal_position(type_: Type, literal: Literal, _: Zone) -> Position | None:
    if literal.kind not in (Kind.INTEGER, Kind.DECIMAL) or not isinstance(type_, DecimalType):
        return None
    value = Decimal(literal.value)
    whole_digits = max(type_.precision - type_.scale, value.adjusted() + 1)
    if whole_digits + max(type_.scale, scale_of(value)) > 38:
        return None
    step = Decimal((0, (1,), -type_.scale))
    limit = Decimal((0, (1,), type_.precision - type_.scale))
    if abs(value) >= limit:
        return Between(step, None) if value > 0 else Between(None, step)
    below = value.quantize(step, ROUND_FLOOR, _WIDE)
    above = value.quantize(step, ROUND_CEILING, _WIDE)
    if below == above:
        return At(below)
    # A neighbor may have one digit more than the type allows.
    return Between(below if below > -limit else None, above if above < limit else None)


def _uuid_position(_: Type, literal: Literal, __: Zone) -> Position | None:
    """Return a UUID. In Spark it is a string in lower case."""
    if literal.kind is not Kind.STRING:
        return None
    try:
        value = UUID(literal.value)
    except ValueError:
        return None
    return At(value) if str(value) == literal.value else None


def _binary_position(type_: Type, literal: Literal, _: Zone) -> Position | None:
    if literal.kind is not Kind.BINARY:
        return None
    if isinstance(type_, FixedType) and len(literal.value) != type_.length:
        return None
    return At(literal.value)


def _date_position(_: Type, literal: Literal, __: Zone) -> Position | None:
    day = date_of(literal.value) if literal.kind is Kind.STRING else literal.value
    return At(day) if literal.kind in (Kind.DATE, Kind.STRING) and day is not None else None


def _instant_position(type_: Type, literal: Literal, zone: Zone) -> Position | None:
    instant = literal.value
    if literal.kind is not Kind.INSTANT:
        instant = _moment(literal, zone.instant, lambda text: instant_of(text, zone))
    return None if instant is None else _timestamp_position(type_, instant)


def _local_position(type_: Type, literal: Literal, zone: Zone) -> Position | None:
    if literal.kind is not Kind.INSTANT:
        timestamp = _moment(literal, lambda local: local, local_of)
        return None if timestamp is None else _timestamp_position(type_, timestamp)
    # Spark converts the column's local times to instants. If clocks change in this zone, the order
    # of the two is not the same.
    timestamp = zone.local(literal.value)
    if timestamp is None or zone.is_fixed:
        return None if timestamp is None else _timestamp_position(type_, timestamp)
    return _around(timestamp, _MAX_CLOCK_CHANGE)


def _moment(
    literal: Literal,
    of_local: Callable[[datetime], datetime | None],
    of_text: Callable[[str], datetime | None],
) -> datetime | None:
    """Return a local time, the start of a date, or a text as the caller converts them."""
    if literal.kind is Kind.DATE:
        return of_local(datetime.combine(literal.value, time()))
    if literal.kind is Kind.LOCAL:
        return of_local(literal.value)
    return of_text(literal.value) if literal.kind is Kind.STRING else None


def _timestamp_position(type_: Type, timestamp: datetime) -> Position | None:
    """Return the position of a timestamp. Spark truncates nanoseconds to microseconds."""
    if type_.type_id in NANOS:
        return _around(timestamp, _MICROSECOND)
    return At(timestamp)


def _around(timestamp: datetime, by: timedelta) -> Position | None:
    try:
        return Around(timestamp - by, timestamp + by)
    except OverflowError:
        return None


_POSITIONS: Final[dict[TypeId, Callable[[Type, Literal, Zone], Position | None]]] = {
    TypeId.BOOLEAN: _same_kind(Kind.BOOLEAN),
    TypeId.INT: _integer_position,
    TypeId.LONG: _integer_position,
    **dict.fromkeys(FLOATS, _float_position),
    TypeId.DECIMAL: _decimal_position,
    TypeId.STRING: _same_kind(Kind.STRING),
    TypeId.UUID: _uuid_position,
    TypeId.BINARY: _binary_position,
    TypeId.FIXED: _binary_position,
    TypeId.DATE: _date_position,
    TypeId.TIMESTAMPTZ: _instant_position,
    TypeId.TIMESTAMPTZ_NS: _instant_position,
    TypeId.TIMESTAMP: _local_position,
    TypeId.TIMESTAMP_NS: _local_position,
}

"""A column compared with a constant, as Iceberg's expressions have it, for the very rows of Spark.

Where the two differ: to Spark NaN is the greatest number, equal to itself, and a zero has no sign;
in Iceberg no order holds for NaN, and -0.0 lies before 0.0. Spark widens both sides to a common
type, whereas Iceberg brings the constant to the column's. Where these can tell rows apart and it is
not known how, the answer is None, which means any row.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from frazil.spark.conditions.sql_columns import FoundColumn
from frazil.spark.conditions.sql_constants import Kind, Literal, Zone, date_of, instant_of, local_of
from frazil.values.types import DecimalType, FixedType, Type, TypeId
from frazil.wire.expressions import Expression, all_of, any_of
from frazil.wire.filter_builders import Operand, always_false, col

_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_TIMESTAMPS: Final = frozenset(
    {TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ, TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS}
)
_EXACT_DOUBLE: Final = 1 << 53
_EXACT_FLOAT: Final = 1 << 24
_WIDE: Final = Context(prec=100)
_CLOCK_CHANGE: Final = timedelta(days=2)
"""More than any clock was ever changed, so that a local time is within it in every reading."""
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True)
class Converted:
    """An expression that matches at least the rows that a condition is true for."""

    expression: Expression
    exact: bool
    """Whether it matches no others."""


@dataclass(frozen=True)
class At:
    """The constant is one of the type's values."""

    value: Any


@dataclass(frozen=True)
class Between:
    """No value of the type equals it. `below` and `above` are the next ones, or None."""

    below: Any
    above: Any


@dataclass(frozen=True)
class Around:
    """It equals some value from `low` to `high`; which one is not known."""

    low: Any
    high: Any


Place: TypeAlias = At | Between | Around
"""Where a constant lies among the values of a column's type."""


def compared(column: FoundColumn, operation: str, literal: Literal, zone: Zone) -> Converted | None:
    """`column operation literal`, with `eq`, `not-eq`, `lt`, `lt-eq`, `gt` or `gt-eq`."""
    if literal.kind is Kind.NULL:
        return Converted(always_false(), exact=True)
    place = place_of(column.type, literal, zone)
    if place is None:
        return None
    if column.type.type_id is TypeId.UUID and operation not in ("eq", "not-eq"):
        return None
    if isinstance(place, Around):
        return Converted(_around(col(column.name), operation, place), exact=False)
    floating = column.type.type_id in _FLOATS
    return Converted(_placed(col(column.name), operation, place, floating), exact=True)


def one_of(
    column: FoundColumn, literals: Sequence[Literal], negated: bool, zone: Zone
) -> Converted | None:
    """`column IN (…)`, or where it is false."""
    if negated and any(literal.kind is Kind.NULL for literal in literals):
        return Converted(always_false(), exact=True)
    given = [literal for literal in literals if literal.kind is not Kind.NULL]
    kinds = {literal.kind for literal in given}
    if not _comparable(kinds, given):
        return None
    places = [place_of(column.type, literal, zone) for literal in given]
    operand = col(column.name)
    if kinds == {Kind.STRING} and column.type.type_id in _TIMESTAMPS and negated:
        # Without ANSI rules Spark compares the texts of timestamps, of which there are many.
        return Converted(operand.not_null(), exact=False)
    values: list[Any] = []
    ranges: list[Expression] = []
    for place in places:
        if place is None:
            return None
        if isinstance(place, At):
            values.extend((0.0, -0.0) if _is_zero(column.type, place.value) else (place.value,))
        elif isinstance(place, Around):
            ranges.append(_around(operand, "eq", place))
    if not negated:
        certain = not ranges and not (Kind.STRING in kinds and column.type.type_id in _TIMESTAMPS)
        return Converted(any_of(operand.is_in(values), *ranges), exact=certain)
    if ranges:
        return Converted(operand.not_null(), exact=False)
    return Converted(all_of(operand.not_null(), operand.not_in(values)), exact=True)


def _comparable(kinds: set[Kind], literals: Sequence[Literal]) -> bool:
    """Spark brings all values of a list to one type, which must change none of them."""
    if len(kinds) < 2:
        return True
    if not kinds <= {Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE}:
        return False
    return Kind.DOUBLE not in kinds or all(
        literal.kind is not Kind.INTEGER or abs(literal.value) < _EXACT_DOUBLE
        for literal in literals
    )


def _is_zero(type_: Type, value: object) -> bool:
    return type_.type_id in _FLOATS and value == 0


# --- expressions ----------------------------------------------------------------------------------


def _placed(operand: Operand, operation: str, place: At | Between, floating: bool) -> Expression:
    if operation in ("eq", "not-eq"):
        return _equal(operand, place, floating, negated=operation == "not-eq")
    if operation in ("lt", "lt-eq"):
        return _less(operand, operation, place, floating)
    greater = _greater(operand, operation, place, floating)
    return any_of(greater, operand.is_nan()) if floating else greater


def _equal(operand: Operand, place: At | Between, floating: bool, negated: bool) -> Expression:
    if isinstance(place, Between):
        return operand.not_null() if negated else always_false()
    zero = floating and place.value == 0
    values = (0.0, -0.0) if zero else (place.value,)
    if negated:
        differs = operand.not_in(values) if zero else operand != place.value
        return all_of(operand.not_null(), differs)
    return operand.is_in(values) if zero else operand == place.value


def _less(operand: Operand, operation: str, place: At | Between, floating: bool) -> Expression:
    if isinstance(place, Between):
        if place.above is None:
            # Above all values: every number is less, but NaN is not.
            numbers = operand.not_nan() if floating else operand.not_null()
            return all_of(operand.not_null(), numbers) if floating else numbers
        return always_false() if place.below is None else operand <= place.below
    if operation == "lt":
        return operand < (-0.0 if floating and place.value == 0 else place.value)
    return operand <= (0.0 if floating and place.value == 0 else place.value)


def _greater(operand: Operand, operation: str, place: At | Between, floating: bool) -> Expression:
    if isinstance(place, Between):
        if place.below is None:
            return operand.not_null()
        return always_false() if place.above is None else operand >= place.above
    if operation == "gt":
        return operand > (0.0 if floating and place.value == 0 else place.value)
    return operand >= (-0.0 if floating and place.value == 0 else place.value)


def _around(operand: Operand, operation: str, place: Around) -> Expression:
    if operation == "not-eq":
        return operand.not_null()
    low: Expression = operand >= place.low
    high: Expression = operand <= place.high
    if operation == "eq":
        return all_of(low, high)
    return high if operation in ("lt", "lt-eq") else low


# --- places ---------------------------------------------------------------------------------------


def place_of(type_: Type, literal: Literal, zone: Zone) -> Place | None:
    find = _PLACES.get(type_.type_id)
    return None if find is None else find(type_, literal, zone)


def _boolean_place(_: Type, literal: Literal, __: Zone) -> Place | None:
    return At(literal.value) if literal.kind is Kind.BOOLEAN else None


def _integer_place(type_: Type, literal: Literal, _: Zone) -> Place | None:
    bits = 32 if type_.type_id is TypeId.INT else 64
    if literal.kind is Kind.STRING:
        return _canonical_integer(literal.value, bits)
    if literal.kind in (Kind.FLOAT, Kind.DOUBLE):
        limit = _EXACT_FLOAT if literal.kind is Kind.FLOAT else _EXACT_DOUBLE
        if abs(literal.value) >= limit:
            return None
    elif literal.kind is Kind.DECIMAL:
        if _scale(literal.value) > 18:
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


def _canonical_integer(text: str, bits: int) -> Place | None:
    """Spark reads the text as a number, or the number as a text: here both are the same."""
    if not text.lstrip("-").isdecimal() or len(text) > 20 or str(int(text)) != text:
        return None
    value = int(text)
    return At(value) if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def _float_place(type_: Type, literal: Literal, _: Zone) -> Place | None:
    if literal.kind is Kind.INTEGER:
        limit = _EXACT_FLOAT if type_.type_id is TypeId.FLOAT else _EXACT_DOUBLE
        return At(float(literal.value)) if abs(literal.value) <= limit else None
    if literal.kind not in (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE):
        return None
    value = float(literal.value)
    return At(value) if type_.type_id is TypeId.DOUBLE else _among_floats(value)


def _among_floats(value: float) -> Place | None:
    """A double among the values of 32 bits, which Spark widens to doubles."""
    try:
        rounded = _float32(value)
    except OverflowError:
        return None
    if rounded == value:
        return At(rounded)
    neighbour = _next_float(rounded, upwards=rounded < value)
    if math.isinf(neighbour):
        return None
    return Between(min(rounded, neighbour), max(rounded, neighbour))


def _float32(value: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)


def _next_float(value: float, *, upwards: bool) -> float:
    if value == 0:
        smallest: float = struct.unpack("<f", struct.pack("<I", 1))[0]
        return smallest if upwards else -smallest
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    away_from_zero = (value > 0) == upwards
    (following,) = struct.unpack("<f", struct.pack("<I", bits + (1 if away_from_zero else -1)))
    return float(following)


def _decimal_place(type_: Type, literal: Literal, _: Zone) -> Place | None:
    if literal.kind not in (Kind.INTEGER, Kind.DECIMAL) or not isinstance(type_, DecimalType):
        return None
    value = Decimal(literal.value)
    whole_digits = max(type_.precision - type_.scale, value.adjusted() + 1)
    if whole_digits + max(type_.scale, _scale(value)) > 38:
        return None
    step = Decimal((0, (1,), -type_.scale))
    limit = Decimal((0, (1,), type_.precision - type_.scale))
    if abs(value) >= limit:
        return Between(step, None) if value > 0 else Between(None, step)
    below = value.quantize(step, ROUND_FLOOR, _WIDE)
    above = value.quantize(step, ROUND_CEILING, _WIDE)
    if below == above:
        return At(below)
    # The next value may be one digit too long for the type.
    return Between(below if below > -limit else None, above if above < limit else None)


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _string_place(_: Type, literal: Literal, __: Zone) -> Place | None:
    return At(literal.value) if literal.kind is Kind.STRING else None


def _uuid_place(_: Type, literal: Literal, __: Zone) -> Place | None:
    """To Spark a uuid is its text in small letters."""
    if literal.kind is not Kind.STRING:
        return None
    try:
        value = UUID(literal.value)
    except ValueError:
        return None
    return At(value) if str(value) == literal.value else None


def _binary_place(type_: Type, literal: Literal, _: Zone) -> Place | None:
    if literal.kind is not Kind.BINARY:
        return None
    if isinstance(type_, FixedType) and len(literal.value) != type_.length:
        return None
    return At(literal.value)


def _date_place(_: Type, literal: Literal, __: Zone) -> Place | None:
    day = date_of(literal.value) if literal.kind is Kind.STRING else literal.value
    return At(day) if literal.kind in (Kind.DATE, Kind.STRING) and day is not None else None


def _instant_place(type_: Type, literal: Literal, zone: Zone) -> Place | None:
    if literal.kind is Kind.INSTANT:
        instant = literal.value
    elif literal.kind is Kind.LOCAL:
        instant = zone.instant(literal.value)
    elif literal.kind is Kind.DATE:
        instant = zone.instant(datetime.combine(literal.value, time()))
    elif literal.kind is Kind.STRING:
        instant = instant_of(literal.value, zone)
    else:
        return None
    return None if instant is None else _moment_place(type_, instant)


def _local_place(type_: Type, literal: Literal, zone: Zone) -> Place | None:
    if literal.kind is Kind.INSTANT:
        return _local_around(type_, literal.value, zone)
    if literal.kind is Kind.LOCAL:
        moment = literal.value
    elif literal.kind is Kind.DATE:
        moment = datetime.combine(literal.value, time())
    elif literal.kind is Kind.STRING:
        moment = local_of(literal.value)
    else:
        return None
    return None if moment is None else _moment_place(type_, moment)


def _local_around(type_: Type, instant: datetime, zone: Zone) -> Place | None:
    """Spark takes the column's local times for instants. Where clocks are changed their order is
    not the same."""
    moment = zone.local(instant)
    if moment is None:
        return None
    return _moment_place(type_, moment) if zone.is_fixed else _moved(moment, _CLOCK_CHANGE)


def _moment_place(type_: Type, moment: datetime) -> Place | None:
    """Spark sees the nanoseconds of a column as whole microseconds."""
    if type_.type_id in (TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS):
        return _moved(moment, _MICROSECOND)
    return At(moment)


def _moved(moment: datetime, by: timedelta) -> Place | None:
    try:
        return Around(moment - by, moment + by)
    except OverflowError:
        return None


_PLACES: Final[dict[TypeId, Callable[[Type, Literal, Zone], Place | None]]] = {
    TypeId.BOOLEAN: _boolean_place,
    TypeId.INT: _integer_place,
    TypeId.LONG: _integer_place,
    TypeId.FLOAT: _float_place,
    TypeId.DOUBLE: _float_place,
    TypeId.DECIMAL: _decimal_place,
    TypeId.STRING: _string_place,
    TypeId.UUID: _uuid_place,
    TypeId.BINARY: _binary_place,
    TypeId.FIXED: _binary_place,
    TypeId.DATE: _date_place,
    TypeId.TIMESTAMPTZ: _instant_place,
    TypeId.TIMESTAMPTZ_NS: _instant_place,
    TypeId.TIMESTAMP: _local_place,
    TypeId.TIMESTAMP_NS: _local_place,
}

"""Converts a literal of a filter to a value of a column's type, as Java's `Literal.to` does.

A number that the type cannot hold lies above or below all values of the type. A timestamp may have
any zone offset, whereas a value in metadata has only +00:00.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from frazil.values import single_value, temporal
from frazil.values.single_value import InvalidValue
from frazil.values.types import DecimalType, Type, TypeId

_MAX_OFFSET_HOURS: Final = 18
_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})


class OutOfRange(Enum):
    """Where a literal lies that no value of a type can equal."""

    ABOVE_MAX = "above"
    BELOW_MIN = "below"


@dataclass(frozen=True, slots=True)
class TypedLiteral:
    """A constant together with the type that the client gave for it."""

    value: bool | int | float | Decimal | str
    """A JSON single value of the type."""
    data_type: Type


_SAME_IN_JSON: Final = frozenset(
    {TypeId.BOOLEAN, TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE, TypeId.STRING}
)


def literal_value(type_: Type, literal: object) -> Any:
    """Return a literal as an internal value of a type (see `frazil.values.types`), or `OutOfRange`.

    The literal is a JSON value or a `TypedLiteral`.
    """
    value = _checked(literal, type_) if isinstance(literal, TypedLiteral) else literal
    return _to_type(value, type_)


def _checked(literal: TypedLiteral, type_: Type) -> Any:
    """Return the literal's JSON value, after a check against the type that the client gave."""
    value = single_value.from_json(literal.data_type, literal.value)
    if literal.data_type.type_id in _SAME_IN_JSON:
        return value
    if literal.data_type.type_id is not type_.type_id:
        raise InvalidValue(f"a {literal.data_type} value cannot be compared with {type_}")
    return literal.value


def _to_type(value: Any, type_: Type) -> Any:
    kind = type_.type_id
    if isinstance(value, bool) or kind is TypeId.BOOLEAN:
        return single_value.from_json(type_, value)
    if isinstance(value, str):
        return _text_to_type(value, type_)
    if isinstance(type_, DecimalType):
        return _to_decimal(value, type_)
    if kind in (TypeId.FLOAT, TypeId.DOUBLE):
        return _to_float(value, type_)
    if isinstance(value, int) and kind in single_value.INT_BITS:
        # As in Java, a number for a nanosecond timestamp counts microseconds.
        number = value * temporal.NANOS_PER_MICRO if kind in _NANOS else value
        return _in_range(number, type_)
    return single_value.from_json(type_, value)


def _in_range(value: Any, type_: Type) -> Any:
    try:
        single_value.check_value(type_, value)
    except InvalidValue:
        return OutOfRange.ABOVE_MAX if value > 0 else OutOfRange.BELOW_MIN
    return value


def _to_float(value: int | float | Decimal, type_: Type) -> Any:
    try:
        return single_value.from_json(type_, value)
    except InvalidValue:
        return OutOfRange.ABOVE_MAX if value > 0 else OutOfRange.BELOW_MIN


def _to_decimal(value: int | float | Decimal | str, type_: DecimalType) -> Any:
    """Return the decimal with the type's scale. Refuse digits that the scale has no room for.

    Java rounds them, which changes the meaning of the filter.
    """
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
    except ArithmeticError:
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal") from None
    if not exact.is_finite():
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal")
    if exact.adjusted() >= type_.precision - type_.scale and exact:
        return OutOfRange.ABOVE_MAX if exact > 0 else OutOfRange.BELOW_MIN
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    moved = exponent + type_.scale
    kept = digits if moved >= 0 else digits[:moved]
    if moved < 0 and any(digits[moved:]):
        raise InvalidValue(f"{str(value)[:100]} has more decimal places than {type_}")
    unscaled = int("".join(map(str, kept)) or "0") * 10 ** (max(moved, 0) if exact else 0)
    return single_value.decimal_from_unscaled(-unscaled if sign else unscaled, type_.scale)


def _text_to_type(text: str, type_: Type) -> Any:
    if isinstance(type_, DecimalType):
        return _to_decimal(text, type_)
    parse = _ZONED.get(type_.type_id)
    if parse is None:
        return single_value.from_json(type_, text)
    moment, offset_s = _split_offset(text)
    try:
        units, units_per_second = parse(moment)
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    return _in_range(units - offset_s * units_per_second, type_)


_OFFSET: Final = re.compile(r"(.*)([+-])([0-9]{2}):([0-9]{2})")


def _split_offset(text: str) -> tuple[str, int]:
    """Split a timestamp into its local part, marked as UTC, and its zone offset in seconds."""
    matched = _OFFSET.fullmatch(text)
    if matched is None:
        return text, 0
    hours, minutes = int(matched[3]), int(matched[4])
    if hours > _MAX_OFFSET_HOURS or minutes > 59:
        raise InvalidValue(f"{text[:100]!r} has a zone offset that does not exist")
    offset_s = (hours * 60 + minutes) * 60
    return f"{matched[1]}Z", -offset_s if matched[2] == "-" else offset_s


def _zoned_micros(text: str) -> tuple[int, int]:
    return temporal.micros_from_timestamp(text, with_zone=True), temporal.MICROS_PER_SECOND


def _zoned_nanos(text: str) -> tuple[int, int]:
    nanos_per_second = temporal.MICROS_PER_SECOND * temporal.NANOS_PER_MICRO
    return temporal.nanos_from_timestamp(text, with_zone=True), nanos_per_second


_ZONED: Final[dict[TypeId, Callable[[str], tuple[int, int]]]] = {
    TypeId.TIMESTAMPTZ: _zoned_micros,
    TypeId.TIMESTAMPTZ_NS: _zoned_nanos,
}

"""Bounds as a declared file carries them, made the binary single values of manifests.

Typed JSON values become bytes by the type of their column (spec, Appendix D); hexadecimal ones are
those bytes already and are only checked to be a value of the type.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from frazil.values.single_value import (
    InvalidValue,
    from_binary,
    from_json,
    min_big_endian,
    to_binary,
)
from frazil.values.types import DecimalType, FixedType, Type, TypeId

CONVERSION_ERRORS: Final = (ValueError, TypeError, OverflowError, struct.error)
"""What a converter raises for a value that it cannot take."""

_WIDTHS: Final = {
    TypeId.BOOLEAN: 1,
    TypeId.INT: 4,
    TypeId.DATE: 4,
    TypeId.FLOAT: 4,
    TypeId.LONG: 8,
    TypeId.DOUBLE: 8,
    TypeId.TIME: 8,
    TypeId.TIMESTAMP: 8,
    TypeId.TIMESTAMPTZ: 8,
    TypeId.TIMESTAMP_NS: 8,
    TypeId.TIMESTAMPTZ_NS: 8,
    TypeId.UUID: 16,
}
"""Any bytes of that width are a value; narrower ones are looked at more closely."""
_POINT_BYTES: Final = (16, 24, 32)
_HAS_NO_JSON: Final = frozenset({TypeId.GEOMETRY, TypeId.GEOGRAPHY, TypeId.VARIANT})


class Misfit(ValueError):
    """Something that a declared file says and that its table cannot take."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        """The member of the content file, as the wire names it."""
        self.problem = problem


def typed_bound(type_: Type, value: Any) -> bytes:
    """The bytes of a bound that is written as the specification's JSON single value."""
    if type_.type_id in _HAS_NO_JSON:
        raise InvalidValue(
            f"a bound of type {type_} has no JSON value: send hexadecimal digits and "
            '"bounds-encoding": "hex"'
        )
    if isinstance(type_, FixedType):
        return _short_fixed(type_, value)
    if isinstance(type_, DecimalType) and isinstance(value, str):
        plain = _plain_decimal(type_, value)
        if plain is not None:
            return plain
    return to_binary(type_, from_json(type_, value))


def _short_fixed(type_: FixedType, value: Any) -> bytes:
    """Writers truncate long bounds, so that one may be shorter than the values of its column."""
    if isinstance(value, str) and len(value) < 2 * type_.length:
        return bytes(from_json(FixedType(len(value) // 2), value))
    return bytes(from_json(type_, value))


def _plain_decimal(type_: DecimalType, text: str) -> bytes | None:
    """Of a decimal in its usual spelling, as `12.30` where the scale is 2; None of any other."""
    whole, point, fraction = text.partition(".")
    if len(fraction) != type_.scale or (point == "") != (type_.scale == 0):
        return None
    digits = whole + fraction
    figures = digits.removeprefix("-")
    if not (figures.isdecimal() and figures.isascii() and whole not in ("", "-")):
        return None
    number = int(digits)
    return min_big_endian(number) if abs(number) < 10**type_.precision else None


def hex_bound(type_: Type, text: str) -> bytes:
    """The bytes of a bound that is written in hexadecimal digits."""
    data = bytes.fromhex(text)
    if len(data) == _WIDTHS.get(type_.type_id):
        return data
    if type_.type_id in (TypeId.GEOMETRY, TypeId.GEOGRAPHY):
        if len(data) not in _POINT_BYTES:
            raise InvalidValue(
                f"{len(data)} bytes are not a point: give 2 to 4 coordinates of 8 bytes each"
            )
    elif type_.type_id is not TypeId.VARIANT:
        from_binary(type_, data)
    return data


# --- order ------------------------------------------------------------------------------------

_ORDERED: Final = frozenset(
    {
        *(TypeId.BOOLEAN, TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE, TypeId.DECIMAL),
        *(TypeId.DATE, TypeId.TIME, TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ, TypeId.TIMESTAMP_NS),
        *(TypeId.TIMESTAMPTZ_NS, TypeId.STRING),
    }
)
"""Of the other types no order is certain: Java compares the halves of a uuid as signed numbers, and
binary bounds may be those of any writer."""
_INTEGERS: Final = _ORDERED - {
    *(TypeId.BOOLEAN, TypeId.FLOAT, TypeId.DOUBLE, TypeId.DECIMAL, TypeId.STRING)
}


def is_above(type_: Type, lower: bytes, upper: bytes) -> bool:
    """Whether a lower bound certainly lies above an upper one."""
    if lower == upper or type_.type_id not in _ORDERED:
        return False
    if type_.type_id in _INTEGERS and len(lower) == len(upper):
        return int.from_bytes(lower, "little", signed=True) > int.from_bytes(
            upper, "little", signed=True
        )
    if type_.type_id is TypeId.STRING and lower < upper:
        return False
    low, high = from_binary(type_, lower), from_binary(type_, upper)
    if low <= high or type_.type_id is not TypeId.STRING:
        return bool(low > high)
    # Writers order text by code points or, as Java's strings, by UTF-16 units.
    return bool(low.encode("utf-16-be") > high.encode("utf-16-be"))

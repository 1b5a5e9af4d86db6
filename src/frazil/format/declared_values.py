"""Bounds as a declared file carries them, made the binary single values of manifests.

Typed JSON values become bytes by the type of their column (spec, Appendix D); hexadecimal ones are
those bytes already and are only checked to be a value of the type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

from frazil.values.single_value import InvalidValue, from_binary, from_json, to_binary
from frazil.values.types import FixedType, Type, TypeId

BoundConverter = Callable[[Any], bytes]

CONVERSION_ERRORS: Final = (ValueError, TypeError, OverflowError, struct.error)
"""What a converter raises for a value that it cannot take."""

_REMEMBERED_BOUNDS: Final = 1 << 14
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
    return to_binary(type_, from_json(type_, value))


def _short_fixed(type_: FixedType, value: Any) -> bytes:
    """Writers truncate long bounds, so that one may be shorter than the values of its column."""
    if isinstance(value, str) and len(value) < 2 * type_.length:
        return bytes(from_json(FixedType(len(value) // 2), value))
    return bytes(from_json(type_, value))


def hex_bound(type_: Type, text: str) -> bytes:
    """The bytes of a bound that is written in hexadecimal digits."""
    data = bytes.fromhex(text)
    if type_.type_id in (TypeId.GEOMETRY, TypeId.GEOGRAPHY):
        if len(data) not in _POINT_BYTES:
            raise InvalidValue(
                f"{len(data)} bytes are not a point: give 2 to 4 coordinates of 8 bytes each"
            )
    elif type_.type_id is not TypeId.VARIANT:
        from_binary(type_, data)
    return data


def bound_converter(type_: Type, kind: type[Any]) -> BoundConverter:
    """The fastest function from the JSON values of one Python type to the bytes of a bound."""
    fast = _FAST.get((type_.type_id, kind))
    return fast if fast is not None else lru_cache(_REMEMBERED_BOUNDS)(partial(typed_bound, type_))


def _boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


# `struct` takes a bool for a number, so that the Python type decides beside the column's. Text is
# encoded strictly, which refuses half of a surrogate pair.
_FAST: Final[dict[tuple[TypeId, type[Any]], BoundConverter]] = {
    (TypeId.BOOLEAN, bool): _boolean,
    (TypeId.INT, int): struct.Struct("<i").pack,
    (TypeId.LONG, int): struct.Struct("<q").pack,
    (TypeId.FLOAT, int): struct.Struct("<f").pack,
    (TypeId.FLOAT, float): struct.Struct("<f").pack,
    (TypeId.DOUBLE, int): struct.Struct("<d").pack,
    (TypeId.DOUBLE, float): struct.Struct("<d").pack,
    (TypeId.STRING, str): str.encode,
}


# --- order ------------------------------------------------------------------------------------

RAW_ORDER: Final = frozenset(
    {TypeId.BOOLEAN, TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE, TypeId.STRING}
)
"""Types whose JSON values Python compares as Iceberg compares the values."""

PARSED_ORDER: Final = frozenset(
    {
        *(TypeId.DECIMAL, TypeId.DATE, TypeId.TIME, TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ),
        *(TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS),
    }
)
"""Types that are compared once they are read. Of the others no order is certain: Java compares the
halves of a uuid as signed numbers, and binary bounds may be those of any writer."""


def is_above(type_: Type, lower: bytes, upper: bytes) -> bool:
    """Whether a lower bound certainly lies above an upper one."""
    if type_.type_id not in RAW_ORDER and type_.type_id not in PARSED_ORDER:
        return False
    low, high = from_binary(type_, lower), from_binary(type_, upper)
    if type_.type_id is TypeId.STRING:
        # Writers order text by code points or, as Java's strings, by UTF-16 units.
        return low > high and low.encode("utf-16-be") > high.encode("utf-16-be")
    return bool(low > high)

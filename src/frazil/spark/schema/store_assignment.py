"""Which of Spark's types may be stored in a column of which type.

As Spark has it for its own tables (`spark.sql.storeAssignmentPolicy`): ANSI takes numbers of any
kind, those that do not fit being errors when they are met, and never text for a number; strict
takes only what cannot fail.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, Literal, TypeAlias

import pyspark.sql.types as st

from frazil.wire.errors import BadRequest

Policy: TypeAlias = Literal["ansi", "strict"]
POLICY_SETTING: Final = "spark.sql.storeAssignmentPolicy"


class Assignment(Enum):
    SAME = auto()
    SAFE = auto()
    """A cast that no value fails."""
    CHECKED = auto()
    """A cast that fails for values that do not fit."""
    REFUSED = auto()


def parse_policy(text: str) -> Policy:
    lowered = text.lower()
    if lowered == "strict":
        return "strict"
    if lowered == "ansi":
        return "ansi"
    raise BadRequest(f"{POLICY_SETTING} is {text}: set it to ANSI or STRICT, tables have no other")


def assignment(found: st.DataType, target: st.DataType, policy: Policy) -> Assignment:
    """Of types without parts."""
    if found == target:
        return Assignment.SAME
    if _is_up_cast(found, target):
        return Assignment.SAFE
    if policy == "ansi":
        if isinstance(found, st.NumericType) and isinstance(target, st.NumericType):
            return Assignment.CHECKED
        if _is_day(found) and _is_day(target):
            return Assignment.SAFE
    return Assignment.REFUSED


def _is_up_cast(found: st.DataType, target: st.DataType) -> bool:
    if isinstance(found, st.NullType):
        return True
    if isinstance(target, st.StringType):
        return isinstance(found, st.AtomicType)
    if isinstance(target, st.DecimalType):
        digits = _digits(found)
        if digits is None:
            return False
        whole, scale = digits
        return target.scale >= scale and target.precision - target.scale >= whole
    if type(found) in _NUMBERS and type(target) in _NUMBERS:
        return _NUMBERS.index(type(found)) < _NUMBERS.index(type(target))
    return isinstance(found, st.DateType) and _is_day(target)


def _is_day(type_: st.DataType) -> bool:
    return isinstance(type_, st.DateType | st.TimestampType | st.TimestampNTZType)


def _digits(type_: st.DataType) -> tuple[int, int] | None:
    """How many digits stand before and behind the point of the longest value."""
    if isinstance(type_, st.DecimalType):
        return type_.precision - type_.scale, type_.scale
    whole = _WHOLE_DIGITS.get(type(type_))
    return None if whole is None else (whole, 0)


_NUMBERS: Final[list[Any]] = [
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.FloatType,
    st.DoubleType,
]
"""Spark's order: each up-casts to those behind it."""
_WHOLE_DIGITS: Final[dict[Any, int]] = {
    st.ByteType: 3,
    st.ShortType: 5,
    st.IntegerType: 10,
    st.LongType: 20,
}

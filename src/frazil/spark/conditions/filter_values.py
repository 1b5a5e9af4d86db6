"""What a filter compares with: JSON single values as values of a column's type, and as Columns.

Mirrors how Java's `Literal.to` brings a constant to the type of the column: a number that the type
cannot hold lies above or below all of its values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from frazil.spark.schema.spark_types import spark_type
from frazil.values import temporal
from frazil.values.single_value import InvalidValue, check_value, from_json
from frazil.values.types import DecimalType, Type, TypeId
from frazil.wire.errors import BadRequest


class Outside(Enum):
    """Where a constant lies that no value of the type equals."""

    ABOVE = "above"
    BELOW = "below"


ABOVE: Final = Outside.ABOVE
BELOW: Final = Outside.BELOW

_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_ZONED: Final = frozenset({TypeId.TIMESTAMPTZ, TypeId.TIMESTAMPTZ_NS})
_WHOLE: Final = _NANOS | {
    TypeId.INT,
    TypeId.LONG,
    TypeId.DATE,
    TypeId.TIME,
    TypeId.TIMESTAMP,
    TypeId.TIMESTAMPTZ,
}
_OFFSET: Final = re.compile(r"(.*)([+-])([0-9]{2}):([0-9]{2})")
_MAX_OFFSET_HOURS: Final = 18


def internal_value(type_: Type, value: Any, name: str) -> Any:
    """A JSON value as an internal value of the type (see `frazil.values.types`), or `Outside`."""
    try:
        return _internal(type_, value)
    except InvalidValue as error:
        raise BadRequest(f"filter on {name}: {error}") from None


def _internal(type_: Type, value: Any) -> Any:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if isinstance(type_, DecimalType) and (is_number or isinstance(value, str)):
        return _decimal(type_, value)
    if type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and is_number:
        return _or_outside(lambda: from_json(type_, value), value)
    if type_.type_id in _WHOLE and isinstance(value, int) and is_number:
        # A number for a timestamp counts microseconds, also where the type has nanoseconds.
        number = value * temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else value
        return _or_outside(lambda: _checked(type_, number), number)
    if type_.type_id in _ZONED and isinstance(value, str):
        return _instant(type_, value)
    return from_json(type_, value)


def _or_outside(read: Callable[[], Any], value: int | float | Decimal) -> Any:
    try:
        return read()
    except InvalidValue:
        return ABOVE if value > 0 else BELOW


def _checked(type_: Type, value: Any) -> Any:
    check_value(type_, value)
    return value


def _decimal(type_: DecimalType, value: Any) -> Any:
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal") from None
    if not exact.is_finite():
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal")
    if exact and exact.adjusted() >= type_.precision - type_.scale:
        return ABOVE if exact > 0 else BELOW
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    moved = exponent + type_.scale
    if moved < 0 and any(digits[moved:]):
        raise InvalidValue(f"{str(value)[:100]} has more decimal places than {type_}")
    kept = digits if moved >= 0 else digits[:moved]
    number = int("".join(map(str, kept)) or "0") * 10 ** max(moved, 0)
    return Decimal((sign, tuple(map(int, str(number))), -type_.scale))


def _instant(type_: Type, text: str) -> int:
    """A literal may have any offset, whereas a value in metadata has none but +00:00."""
    matched = _OFFSET.fullmatch(text)
    if matched is None:
        found: int = from_json(type_, text)
        return found
    hours, minutes = int(matched[3]), int(matched[4])
    if hours > _MAX_OFFSET_HOURS or minutes > 59:
        raise InvalidValue(f"{text[:100]!r} has a zone offset that does not exist")
    units: int = from_json(type_, f"{matched[1]}+00:00")
    ahead = (hours * 60 + minutes) * 60 * temporal.MICROS_PER_SECOND
    if type_.type_id in _NANOS:
        ahead *= temporal.NANOS_PER_MICRO
    return units + ahead if matched[2] == "-" else units - ahead


def in_microseconds(operation: str, type_: Type, value: Any) -> tuple[str, Any]:
    """A comparison with nanoseconds as one of what Spark has, which is cut to microseconds.

    None as the value: no microsecond equals it.
    """
    if type_.type_id not in _NANOS or value % temporal.NANOS_PER_MICRO == 0:
        return operation, value
    if operation in ("eq", "not-eq"):
        return operation, None
    return ("lt-eq" if operation.startswith("lt") else "gt"), value


# --- as columns -----------------------------------------------------------------------------------


def value_column(type_: Type, value: Any) -> Column:
    """An internal value as a constant of the Spark type that columns of the type have.

    Spark folds these expressions before it plans, so that they are pushed down as constants.
    """
    make = _COLUMNS.get(type_.type_id)
    if make is None:
        return F.lit(value)
    return make(type_, value)


def _timestamp(type_: Type, value: int) -> Column:
    micros = value // temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else value
    if type_.type_id in _ZONED:
        return F.timestamp_micros(F.lit(micros))
    text = temporal.timestamp_from_micros(micros, with_zone=False)
    return F.lit(text).cast("timestamp_ntz")


def _text(type_: Type, value: Any) -> Column:
    return F.lit(str(value)).cast(spark_type(type_))


_COLUMNS: Final[Mapping[TypeId, Callable[[Any, Any], Column]]] = {
    TypeId.LONG: lambda type_, value: F.lit(value).cast("long"),
    TypeId.FLOAT: lambda type_, value: F.lit(value).cast("float"),
    TypeId.DECIMAL: _text,
    TypeId.DATE: lambda type_, value: F.date_from_unix_date(F.lit(value)),
    TypeId.TIME: lambda type_, value: F.lit(temporal.time_from_micros(value)).cast("time(6)"),
    TypeId.TIMESTAMP: _timestamp,
    TypeId.TIMESTAMPTZ: _timestamp,
    TypeId.TIMESTAMP_NS: _timestamp,
    TypeId.TIMESTAMPTZ_NS: _timestamp,
    TypeId.UUID: lambda type_, value: F.lit(str(value)),
    TypeId.FIXED: lambda type_, value: F.unhex(F.lit(value.hex())),
    TypeId.BINARY: lambda type_, value: F.unhex(F.lit(value.hex())),
}

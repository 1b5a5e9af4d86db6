"""Converts values of Python's own types to Iceberg's internal ones.

Accepted are Python's types (date, time, datetime, Decimal, UUID, bytes), internal values, and JSON
single values; `frazil.values.types` lists the internal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final
from uuid import UUID

from frazil.values import temporal
from frazil.values.single_value import InvalidValue, check_value, decimal_from_unscaled, from_json
from frazil.values.types import DecimalType, Type, TypeId

_EPOCH: Final = datetime(1970, 1, 1)
_MICRO: Final = timedelta(microseconds=1)
WITH_ZONE: Final = frozenset({TypeId.TIMESTAMPTZ, TypeId.TIMESTAMPTZ_NS})
NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
TIMESTAMPS: Final = frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ}) | NANOS
_EXACT: Final = Context(prec=200)


def internal_value(type_: Type, value: Any) -> Any:
    """Return the internal value, or raise InvalidValue if it is not a value of the type."""
    value = _python_scalar(value)
    if value is None:
        return None
    if isinstance(value, str) and type_.type_id is not TypeId.STRING:
        return from_json(type_, value)
    convert = _CONVERTERS.get(type_.type_id)
    converted = value if convert is None else convert(type_, value)
    check_value(type_, converted)
    return converted


def _python_scalar(value: Any) -> Any:
    """Return Python's value of a scalar of pyarrow or numpy."""
    for name in ("as_py", "item"):
        if callable(getattr(value, name, None)):
            return getattr(value, name)()
    return value


def _days(type_: Type, value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH.toordinal()
    return value


def _time(type_: Type, value: Any) -> Any:
    if not isinstance(value, time):
        return value
    if value.tzinfo is not None:
        raise InvalidValue(f"{value!r} has a zone, but a time has none")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * temporal.MICROS_PER_SECOND + value.microsecond


def _timestamp(type_: Type, value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    if (value.tzinfo is not None) != (type_.type_id in WITH_ZONE):
        needed = "needs one" if value.tzinfo is None else "has none"
        raise InvalidValue(f"{value!r}: the zone is wrong, a {type_} {needed}")
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    micros = (plain - _EPOCH) // _MICRO
    return micros * temporal.NANOS_PER_MICRO if type_.type_id in NANOS else micros


def _decimal(type_: Type, value: Any) -> Any:
    assert isinstance(type_, DecimalType)
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        return value
    number = Decimal(value)
    scaled = number.scaleb(type_.scale, _EXACT) if number.is_finite() else None
    if scaled is None or scaled != scaled.to_integral_value():
        raise InvalidValue(f"{value} cannot be written with the scale {type_.scale} of {type_}")
    return decimal_from_unscaled(int(scaled), type_.scale)


def _float(type_: Type, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    # This also rounds to the nearest 32-bit float.
    return from_json(type_, value)


_CONVERTERS: Final[dict[TypeId, Callable[[Type, Any], Any]]] = {
    TypeId.DATE: _days,
    TypeId.TIME: _time,
    **dict.fromkeys(TIMESTAMPS, _timestamp),
    TypeId.DECIMAL: _decimal,
    TypeId.FLOAT: _float,
    TypeId.DOUBLE: _float,
    **dict.fromkeys(
        (TypeId.FIXED, TypeId.BINARY),
        lambda _, value: bytes(value) if isinstance(value, bytearray | memoryview) else value,
    ),
    TypeId.UUID: lambda _, value: (
        UUID(bytes=value) if isinstance(value, bytes) and len(value) == 16 else value
    ),
}

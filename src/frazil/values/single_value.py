"""Converts single values to and from JSON and binary (spec, Appendix D).

Default values and typed values on the wire are JSON; bounds in manifests are binary. Python values
are the internal ones listed in `frazil.values.types`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, Final
from uuid import UUID

from frazil.values import temporal
from frazil.values.types import (
    DecimalType,
    FixedType,
    ListType,
    MapType,
    StructType,
    Type,
    TypeId,
)

INT_BITS: Final = {
    TypeId.INT: 32,
    TypeId.DATE: 32,
    TypeId.LONG: 64,
    TypeId.TIME: 64,
    TypeId.TIMESTAMP: 64,
    TypeId.TIMESTAMPTZ: 64,
    TypeId.TIMESTAMP_NS: 64,
    TypeId.TIMESTAMPTZ_NS: 64,
}
"""The types whose values are integers of a fixed size."""
_EXACT: Final = Context(prec=200)
_HEX: Final = frozenset("0123456789abcdefABCDEF")


class InvalidValue(ValueError):
    """A value that its type does not have, or that cannot be written."""


def from_json(type_: Type, value: object) -> Any:
    """Return the value of decoded JSON; null is None for every type."""
    if value is None:
        return None
    reader = _JSON_READERS.get(type_.type_id)
    if reader is None:
        raise InvalidValue(f"a {type_.type_id.value} has no JSON value")
    return reader(type_, value)


def to_json(type_: Type, value: Any) -> Any:
    """Return what a JSON encoder should write for a value: the inverse of `from_json`."""
    if value is None:
        return None
    writer = _JSON_WRITERS.get(type_.type_id)
    if writer is None:
        raise InvalidValue(f"a {type_.type_id.value} has no JSON value")
    check_value(type_, value)
    return writer(type_, value)


def from_binary(type_: Type, data: bytes) -> Any:
    """Return the value of a bound.

    A bound that was written before its column was promoted is narrower (spec, "Schema Evolution"):
    4 bytes are accepted for long, double and the timestamps without zone.
    """
    reader = _BINARY_READERS.get(type_.type_id)
    if reader is None:
        raise InvalidValue(f"a {type_.type_id.value} has no binary value")
    try:
        return reader(type_, bytes(data))
    except (struct.error, UnicodeDecodeError):
        raise _not_binary(type_, data) from None


def to_binary(type_: Type, value: Any) -> bytes:
    """Return the bytes of a value in a manifest. None has no bytes."""
    writer = _BINARY_WRITERS.get(type_.type_id)
    if writer is None:
        raise InvalidValue(f"a {type_.type_id.value} has no binary value")
    check_value(type_, value)
    return writer(type_, value)


def check_value(type_: Type, value: Any) -> None:
    """Refuse a Python value that the type does not have. The parts of nested values are not
    checked."""
    expected = _PYTHON_TYPES.get(type_.type_id)
    if expected is None or not isinstance(value, expected):
        raise _misfit(type_, value)
    if isinstance(value, bool) and type_.type_id is not TypeId.BOOLEAN:
        raise _misfit(type_, value)
    bits = INT_BITS.get(type_.type_id)
    if bits is not None and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise InvalidValue(f"{_shown(value)} does not fit in the {bits} bits of {type_.short_name}")
    if type_.type_id is TypeId.TIME and not 0 <= value < temporal.MICROS_PER_DAY:
        raise InvalidValue(f"{value} microseconds are not a time of day")
    if isinstance(type_, DecimalType):
        _check_decimal(type_, value)
    if isinstance(type_, FixedType) and len(value) != type_.length:
        raise InvalidValue(f"{len(value)} bytes are not a {type_}: give exactly {type_.length}")


_PYTHON_TYPES: Final[dict[TypeId, type[Any]]] = {
    TypeId.BOOLEAN: bool,
    TypeId.FLOAT: float,
    TypeId.DOUBLE: float,
    TypeId.DECIMAL: Decimal,
    TypeId.STRING: str,
    TypeId.UUID: UUID,
    TypeId.FIXED: bytes,
    TypeId.BINARY: bytes,
    TypeId.GEOMETRY: bytes,
    TypeId.GEOGRAPHY: bytes,
    TypeId.STRUCT: dict,
    TypeId.LIST: list,
    TypeId.MAP: list,
    **dict.fromkeys(INT_BITS, int),
}


# --- JSON to value ---------------------------------------------------------------------------


def _read_same(type_: Type, value: object) -> object:
    check_value(type_, value)
    return value


def _read_float(type_: Type, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _misfit(type_, value)
    try:
        number = float(value)
        # A float column has 32 bits: the nearest such value is meant.
        number = number if type_.type_id is TypeId.DOUBLE else _float32(number)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(f"{_shown(value)} is too large for {type_.short_name}")
    return number


def _read_decimal(type_: Type, value: object) -> Decimal:
    if not isinstance(value, str) or not isinstance(type_, DecimalType):
        raise _misfit(type_, value)
    try:
        number = Decimal(value, _EXACT)
    except InvalidOperation:
        raise _misfit(type_, value) from None
    _check_decimal(type_, number)
    return number


def _read_text(type_: Type, value: object) -> str:
    if not isinstance(value, str):
        raise _misfit(type_, value)
    return value


def _read_uuid(type_: Type, value: object) -> UUID:
    text = _read_text(type_, value)
    try:
        parsed = UUID(text)
    except ValueError:
        raise _misfit(type_, value) from None
    if str(parsed) != text.lower():
        raise _misfit(type_, value)
    return parsed


def _read_temporal(parse: Callable[[str], int], type_: Type, value: object) -> int:
    text = _read_text(type_, value)
    try:
        parsed = parse(text)
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    check_value(type_, parsed)
    return parsed


def _read_bytes(type_: Type, value: object) -> bytes:
    text = _read_text(type_, value)
    if len(text) % 2 or not _HEX.issuperset(text):
        raise InvalidValue(
            f"a {type_.short_name} value must be an even number of hexadecimal digits"
        )
    data = bytes.fromhex(text)
    check_value(type_, data)
    return data


def _read_struct(type_: Type, value: object) -> dict[int, Any]:
    if not isinstance(value, dict) or not isinstance(type_, StructType):
        raise _misfit(type_, value)
    known = {str(child.field_id): child for child in type_.fields}
    unknown = [key for key in value if key not in known]
    if unknown:
        raise InvalidValue(f"{unknown[0]!r} is not the id of a field of {type_}")
    return {known[key].field_id: from_json(known[key].type, item) for key, item in value.items()}


def _read_list(type_: Type, value: object) -> list[Any]:
    if not isinstance(value, list) or not isinstance(type_, ListType):
        raise _misfit(type_, value)
    return [from_json(type_.element.type, item) for item in value]


def _read_map(type_: Type, value: object) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict) or not isinstance(type_, MapType):
        raise _misfit(type_, value)
    keys, values = value.get("keys"), value.get("values")
    if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
        raise InvalidValue("a map must have 'keys' and 'values', two lists of one length")
    return [
        (from_json(type_.key.type, key), from_json(type_.value.type, item))
        for key, item in zip(keys, values, strict=True)
    ]


_micros = temporal.micros_from_timestamp
_nanos = temporal.nanos_from_timestamp
_JSON_READERS: Final[dict[TypeId, Callable[[Type, object], Any]]] = {
    TypeId.BOOLEAN: _read_same,
    TypeId.INT: _read_same,
    TypeId.LONG: _read_same,
    TypeId.FLOAT: _read_float,
    TypeId.DOUBLE: _read_float,
    TypeId.DECIMAL: _read_decimal,
    TypeId.DATE: partial(_read_temporal, temporal.days_from_date),
    TypeId.TIME: partial(_read_temporal, temporal.micros_from_time),
    TypeId.TIMESTAMP: partial(_read_temporal, partial(_micros, with_zone=False)),
    TypeId.TIMESTAMPTZ: partial(_read_temporal, partial(_micros, with_zone=True)),
    TypeId.TIMESTAMP_NS: partial(_read_temporal, partial(_nanos, with_zone=False)),
    TypeId.TIMESTAMPTZ_NS: partial(_read_temporal, partial(_nanos, with_zone=True)),
    TypeId.STRING: _read_text,
    TypeId.UUID: _read_uuid,
    TypeId.FIXED: _read_bytes,
    TypeId.BINARY: _read_bytes,
    TypeId.STRUCT: _read_struct,
    TypeId.LIST: _read_list,
    TypeId.MAP: _read_map,
}


# --- value to JSON ---------------------------------------------------------------------------


def _write_same(_: Type, value: Any) -> Any:
    return value


def _write_float(type_: Type, value: float) -> float:
    if not math.isfinite(value):
        raise InvalidValue(f"{value} cannot be written as a JSON number of {type_.short_name}")
    return value


def _write_decimal(type_: Type, value: Decimal) -> str:
    # Spec: a negative scale is written as an exponent, any other with exactly its digits.
    return format(value, "f") if _scale(value) >= 0 else str(value)


def _write_struct(type_: Type, value: dict[int, Any]) -> dict[str, Any]:
    assert isinstance(type_, StructType)
    return {
        str(child.field_id): to_json(child.type, value[child.field_id])
        for child in type_.fields
        if value.get(child.field_id) is not None
    }


def _write_list(type_: Type, value: list[Any]) -> list[Any]:
    assert isinstance(type_, ListType)
    return [to_json(type_.element.type, item) for item in value]


def _write_map(type_: Type, value: list[tuple[Any, Any]]) -> dict[str, Any]:
    assert isinstance(type_, MapType)
    return {
        "keys": [to_json(type_.key.type, key) for key, _ in value],
        "values": [to_json(type_.value.type, item) for _, item in value],
    }


_from_micros = temporal.timestamp_from_micros
_from_nanos = temporal.timestamp_from_nanos
_JSON_WRITERS: Final[dict[TypeId, Callable[[Type, Any], Any]]] = {
    TypeId.BOOLEAN: _write_same,
    TypeId.INT: _write_same,
    TypeId.LONG: _write_same,
    TypeId.FLOAT: _write_float,
    TypeId.DOUBLE: _write_float,
    TypeId.DECIMAL: _write_decimal,
    TypeId.DATE: lambda _, days: temporal.date_from_days(days),
    TypeId.TIME: lambda _, micros: temporal.time_from_micros(micros),
    TypeId.TIMESTAMP: lambda _, micros: _from_micros(micros, with_zone=False),
    TypeId.TIMESTAMPTZ: lambda _, micros: _from_micros(micros, with_zone=True),
    TypeId.TIMESTAMP_NS: lambda _, nanos: _from_nanos(nanos, with_zone=False),
    TypeId.TIMESTAMPTZ_NS: lambda _, nanos: _from_nanos(nanos, with_zone=True),
    TypeId.STRING: _write_same,
    TypeId.UUID: lambda _, value: str(value),
    TypeId.FIXED: lambda _, value: value.hex(),
    TypeId.BINARY: lambda _, value: value.hex(),
    TypeId.STRUCT: _write_struct,
    TypeId.LIST: _write_list,
    TypeId.MAP: _write_map,
}


# --- binary ----------------------------------------------------------------------------------


def _unpack_int(type_: Type, data: bytes) -> int:
    width = INT_BITS[type_.type_id] // 8
    if len(data) == 4 and width == 8:
        return _promoted(type_, int.from_bytes(data, "little", signed=True))
    if len(data) != width:
        raise _not_binary(type_, data)
    return int.from_bytes(data, "little", signed=True)


def _promoted(type_: Type, value: int) -> int:
    """Return the value of a 4-byte bound of an 8-byte type: the column was an int or a date."""
    if type_.type_id is TypeId.TIMESTAMP:
        return value * temporal.MICROS_PER_DAY
    if type_.type_id is TypeId.TIMESTAMP_NS:
        return value * temporal.NANOS_PER_DAY
    if type_.type_id is TypeId.LONG:
        return value
    raise InvalidValue(f"4 bytes are not a {type_.short_name} value: it has 8")


def _unpack_float(type_: Type, data: bytes) -> float:
    narrow = type_.type_id is TypeId.FLOAT or len(data) == 4
    number: float = struct.unpack("<f" if narrow else "<d", data)[0]
    return number


def _unpack_decimal(type_: Type, data: bytes) -> Decimal:
    assert isinstance(type_, DecimalType)
    if not data:
        raise _not_binary(type_, data)
    return decimal_from_unscaled(int.from_bytes(data, "big", signed=True), type_.scale)


def _unpack_uuid(type_: Type, data: bytes) -> UUID:
    if len(data) != 16:
        raise _not_binary(type_, data)
    return UUID(bytes=data)


def _unpack_fixed(type_: Type, data: bytes) -> bytes:
    # Writers truncate long bounds, so any length up to that of the type is valid here.
    assert isinstance(type_, FixedType)
    if len(data) > type_.length:
        raise _not_binary(type_, data)
    return data


def _pack_int(type_: Type, value: int) -> bytes:
    return value.to_bytes(INT_BITS[type_.type_id] // 8, "little", signed=True)


def _pack_float(type_: Type, value: float) -> bytes:
    try:
        return struct.pack("<f" if type_.type_id is TypeId.FLOAT else "<d", value)
    except OverflowError:
        raise InvalidValue(f"{value} is too large for {type_.short_name}") from None


def _unpack_boolean(type_: Type, data: bytes) -> bool:
    if len(data) != 1:
        raise _not_binary(type_, data)
    return data != b"\x00"


_BINARY_READERS: Final[dict[TypeId, Callable[[Type, bytes], Any]]] = {
    TypeId.BOOLEAN: _unpack_boolean,
    **dict.fromkeys(INT_BITS, _unpack_int),
    TypeId.FLOAT: _unpack_float,
    TypeId.DOUBLE: _unpack_float,
    TypeId.DECIMAL: _unpack_decimal,
    TypeId.STRING: lambda _, data: data.decode(),
    TypeId.UUID: _unpack_uuid,
    TypeId.FIXED: _unpack_fixed,
    TypeId.BINARY: lambda _, data: data,
    TypeId.GEOMETRY: lambda _, data: data,
    TypeId.GEOGRAPHY: lambda _, data: data,
}

_BINARY_WRITERS: Final[dict[TypeId, Callable[[Type, Any], bytes]]] = {
    TypeId.BOOLEAN: lambda _, value: b"\x01" if value else b"\x00",
    **dict.fromkeys(INT_BITS, _pack_int),
    TypeId.FLOAT: _pack_float,
    TypeId.DOUBLE: _pack_float,
    TypeId.DECIMAL: lambda _, value: min_big_endian(unscaled(value)),
    TypeId.STRING: lambda _, value: value.encode(),
    TypeId.UUID: lambda _, value: value.bytes,
    TypeId.FIXED: _write_same,
    TypeId.BINARY: _write_same,
    TypeId.GEOMETRY: _write_same,
    TypeId.GEOGRAPHY: _write_same,
}


# --- decimals --------------------------------------------------------------------------------


def unscaled(value: Decimal) -> int:
    """Return the digits of a decimal as one integer, without its scale."""
    sign, digits, _ = value.as_tuple()
    magnitude = int("".join(map(str, digits)) or "0")
    return -magnitude if sign else magnitude


def decimal_from_unscaled(digits: int, scale: int) -> Decimal:
    return Decimal(digits).scaleb(-scale, _EXACT)


def min_big_endian(value: int) -> bytes:
    """Return the shortest two's-complement big-endian bytes of an integer, at least one byte."""
    bits = value.bit_length() if value >= 0 else (value + 1).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise InvalidValue(f"{value} is not a finite decimal")
    return -exponent


def _check_decimal(type_: DecimalType, value: Decimal) -> None:
    if _scale(value) != type_.scale:
        raise InvalidValue(f"{_shown(value)} does not have the scale {type_.scale} of {type_}")
    if len(str(abs(unscaled(value)))) > type_.precision:
        raise InvalidValue(f"{_shown(value)} has more digits than {type_} allows")


def _float32(value: float) -> float:
    narrow: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrow


# --- messages --------------------------------------------------------------------------------


def _misfit(type_: Type, value: object) -> InvalidValue:
    return InvalidValue(f"{_shown(value)} is not a {type_.short_name} value")


def _shown(value: object) -> str:
    """Return a value for a message, shortened if it is long."""
    shown = str(value) if isinstance(value, Decimal) else repr(value)
    return shown if len(shown) <= 100 else f"{shown[:97]}..."


def _not_binary(type_: Type, data: bytes) -> InvalidValue:
    return InvalidValue(f"{len(data)} bytes are not the binary form of a {type_.short_name} value")

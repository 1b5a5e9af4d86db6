"""Read the constants of a SQL condition with the types that Spark gives them.

The functions return None if the value is not certain. The caller must then take the condition as
true.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import exp


class Kind(StrEnum):
    """The kinds of constants, by Spark's type."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    INSTANT = "instant"
    """TIMESTAMP_LTZ: a point in time."""
    LOCAL = "local"
    """TIMESTAMP_NTZ: a timestamp without a time zone."""


NUMBERS: Final = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})


@dataclass(frozen=True)
class Literal:
    """A constant and its kind."""

    kind: Kind
    value: Any = None
    """None, bool, int, Decimal, float, str, bytes, date, or a datetime with or without a zone."""


_INTEGER: Final = re.compile(r"[0-9]{1,38}")
_DECIMAL: Final = re.compile(r"[0-9]{0,38}\.[0-9]{0,38}")
_DOUBLE: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?)?"
    r" ?(Z|UTC|[+-][0-9]{2}:[0-9]{2})?"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_INT_BITS: Final = {
    exp.DataType.Type.TINYINT: 8,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.BIGINT: 64,
}
_INSTANTS: Final = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)
_MAX_DIGITS: Final = 38


@dataclass(frozen=True)
class Zone:
    """Spark's session time zone."""

    name: str

    @property
    def info(self) -> tzinfo | None:
        """Return Python's time zone; None if Python does not know it."""
        if self.name in ("Z", "UTC", "GMT", "UT"):
            return UTC
        matched = _OFFSET.fullmatch(self.name)
        if matched is not None:
            minutes = int(matched[2]) * 60 + int(matched[3] or 0)
            return timezone(timedelta(minutes=-minutes if matched[1] == "-" else minutes))
        try:
            return ZoneInfo(self.name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None

    @property
    def is_fixed(self) -> bool:
        """Return whether the zone has a fixed offset, without gaps and repeated hours."""
        return isinstance(self.info, timezone)

    def instant(self, local: datetime) -> datetime | None:
        """Convert a local time to an instant.

        Like Java, move a time in a gap forward and take the first of a repeated hour. Return None
        if the instant is out of range or the zone unknown.
        """
        info = self.info
        try:
            return None if info is None else local.replace(tzinfo=info).astimezone(UTC)
        except OverflowError:
            return None

    def local(self, instant: datetime) -> datetime | None:
        """Convert an instant to a local time; None if unknown."""
        info = self.info
        try:
            return None if info is None else instant.astimezone(info).replace(tzinfo=None)
        except OverflowError:
            return None


def literal_of(node: exp.Expression, zone: Zone) -> Literal | None:
    """Return the constant that a node is; None if it is something else or unknown."""
    if isinstance(node, exp.Paren):
        return literal_of(node.this, zone)
    if isinstance(node, exp.Null):
        return Literal(Kind.NULL)
    if isinstance(node, exp.Boolean):
        return Literal(Kind.BOOLEAN, bool(node.this))
    if isinstance(node, exp.Neg):
        inner = literal_of(node.this, zone)
        is_number = inner is not None and inner.kind in NUMBERS
        return Literal(inner.kind, -inner.value) if inner and is_number else None
    if isinstance(node, exp.HexString):
        return _binary(str(node.this))
    if isinstance(node, exp.Cast):
        return _cast(node, zone)
    if isinstance(node, exp.Literal):
        return Literal(Kind.STRING, node.this) if node.is_string else _number(node.this)
    return None


def _number(text: str) -> Literal | None:
    if _INTEGER.fullmatch(text):
        return Literal(Kind.INTEGER, int(text))
    if _DECIMAL.fullmatch(text) and text != ".":
        value = Decimal(text)
        fits = max(len(value.as_tuple().digits), scale_of(value)) <= _MAX_DIGITS
        return Literal(Kind.DECIMAL, value) if fits else None
    if _DOUBLE.fullmatch(text):
        return _double(float(text))
    return None


def scale_of(value: Decimal) -> int:
    """Return the number of digits after the decimal point."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _double(value: float) -> Literal | None:
    finite = value == value and abs(value) != float("inf")
    return Literal(Kind.DOUBLE, value) if finite else None


def _binary(digits: str) -> Literal | None:
    try:
        return Literal(Kind.BINARY, bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"))
    except ValueError:
        return None


# --- casts ----------------------------------------------------------------------------------------


def _cast(node: exp.Cast, zone: Zone) -> Literal | None:
    """Evaluate the cast of a constant. sqlglot parses `DATE '…'` and `5L` as casts too."""
    inner, to = literal_of(node.this, zone), node.to.this
    if inner is None:
        return None
    if inner.kind is Kind.NULL:
        return inner
    if to in _INT_BITS:
        limit = 1 << _INT_BITS[to] - 1
        return inner if inner.kind is Kind.INTEGER and -limit <= inner.value < limit else None
    if to is exp.DataType.Type.DOUBLE and inner.kind in NUMBERS:
        return _double(float(inner.value))
    if to is exp.DataType.Type.FLOAT and inner.kind in NUMBERS:
        return _as_float(float(inner.value))
    if to is exp.DataType.Type.DECIMAL:
        return _as_decimal(inner, node.to)
    if inner.kind is not Kind.STRING:
        return None
    if to is exp.DataType.Type.DATE:
        return _known(Kind.DATE, date_of(inner.value))
    if to in _INSTANTS:
        return _known(Kind.INSTANT, instant_of(inner.value, zone))
    is_local = to is exp.DataType.Type.TIMESTAMPNTZ
    return _known(Kind.LOCAL, local_of(inner.value)) if is_local else None


def _known(kind: Kind, value: Any) -> Literal | None:
    return None if value is None else Literal(kind, value)


def _as_float(value: float) -> Literal | None:
    try:
        return Literal(Kind.FLOAT, float32(value))
    except OverflowError:
        return None


def float32(value: float) -> float:
    """Return the nearest number that a float of 32 bits has."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)


def _as_decimal(inner: Literal, to: exp.DataType) -> Literal | None:
    """Return a decimal if no digit is lost."""
    parameters = [parameter.name for parameter in to.expressions]
    if len(parameters) != 2 or not all(map(str.isdigit, parameters)):
        return None
    precision, scale = map(int, parameters)
    text = str(inner.value)
    digits = text.lstrip("-")
    if inner.kind not in (Kind.INTEGER, Kind.DECIMAL, Kind.STRING):
        return None
    if not (_INTEGER.fullmatch(digits) or _DECIMAL.fullmatch(digits)) or digits == ".":
        return None
    value = Decimal(text)
    if scale_of(value) > scale or (value and value.adjusted() >= precision - scale):
        return None
    return Literal(Kind.DECIMAL, value)


# --- dates and timestamps -------------------------------------------------------------------------


def date_of(text: str) -> date | None:
    """Parse a date; return None for a text that Spark might read differently."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def local_of(text: str) -> datetime | None:
    """Parse a timestamp without a zone."""
    matched = _TIMESTAMP.fullmatch(text)
    return None if matched is None or matched[4] else _parsed_timestamp(matched)


def instant_of(text: str, zone: Zone) -> datetime | None:
    """Parse a timestamp with or without a zone to an instant."""
    matched = _TIMESTAMP.fullmatch(text)
    timestamp = None if matched is None else _parsed_timestamp(matched)
    if matched is None or timestamp is None:
        return None
    return Zone(matched[4]).instant(timestamp) if matched[4] else zone.instant(timestamp)


def _parsed_timestamp(matched: re.Match[str]) -> datetime | None:
    time = f"{matched[2] or '00:00:00'}.{(matched[3] or '').ljust(6, '0')}"
    try:
        return datetime.fromisoformat(f"{matched[1]}T{time}")
    except ValueError:
        return None

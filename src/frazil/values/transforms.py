"""Partition and sort transforms: their text, their source and result types, and their values.

Spec: "Partition Transforms", and Appendix B for the hash. The spec requires readers to accept
unknown transforms. One is kept as it was written: it accepts every type and cannot be applied.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from frazil.values import temporal
from frazil.values.single_value import (
    check_value,
    decimal_from_unscaled,
    min_big_endian,
    unscaled,
)
from frazil.values.types import DATE, INT, STRING, DecimalType, Type, TypeId

_MAX_INT: Final = 2**31 - 1
_EPOCH_YEAR: Final = 1970
_HAS_WIDTH = re.compile(r"(\w+)\[([0-9]{1,20})\]")

_NAME_AND_WIDTH = re.compile(r"\W*([A-Za-z]{0,40})\D*([0-9]{0,20})")

_TIMESTAMPS: Final = frozenset(
    {TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ, TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS}
)
_NANO_TIMESTAMPS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_TRUNCATABLE: Final = frozenset(
    {TypeId.INT, TypeId.LONG, TypeId.DECIMAL, TypeId.STRING, TypeId.BINARY}
)
_HASHABLE: Final = (
    _TRUNCATABLE | _TIMESTAMPS | {TypeId.DATE, TypeId.TIME, TypeId.UUID, TypeId.FIXED}
)
_NOT_IDENTITY: Final = frozenset({TypeId.VARIANT, TypeId.GEOMETRY, TypeId.GEOGRAPHY})


class InvalidTransform(ValueError):
    """A transform whose text is wrong, or one applied to a type that it does not take."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform; `str` returns its canonical text."""

    preserves_order: ClassVar[bool] = False
    name: ClassVar[str]

    def accepts(self, source: Type) -> bool:
        """Check whether a column of this type may be the source, as Java's `canTransform` does."""
        return True

    def result_type(self, source: Type) -> Type:
        """Return the type of the transformed values, by default that of the source."""
        return source

    def _apply(self, source: Type, value: Any) -> Any:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Identity(Transform):
    preserves_order = True
    name = "identity"

    def accepts(self, source: Type) -> bool:
        return source.is_primitive and source.type_id not in _NOT_IDENTITY

    def _apply(self, source: Type, value: Any) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Void(Transform):
    """Always null. It replaces a partition field that was dropped from a v1 table."""

    name = "void"

    def _apply(self, source: Type, value: Any) -> Any:
        return None


@dataclass(frozen=True, slots=True)
class Bucket(Transform):
    num_buckets: int

    def __post_init__(self) -> None:
        if not 0 < self.num_buckets <= _MAX_INT:
            raise InvalidTransform(f"{self}: the number of buckets must be 1 to {_MAX_INT}")

    def accepts(self, source: Type) -> bool:
        return source.type_id in _HASHABLE

    def result_type(self, source: Type) -> Type:
        return INT

    def _apply(self, source: Type, value: Any) -> int:
        return (hash_value(source, value) & _MAX_INT) % self.num_buckets

    def __str__(self) -> str:
        return f"bucket[{self.num_buckets}]"


@dataclass(frozen=True, slots=True)
class Truncate(Transform):
    preserves_order = True
    width: int

    def __post_init__(self) -> None:
        if not 0 < self.width <= _MAX_INT:
            raise InvalidTransform(f"{self}: the width must be 1 to {_MAX_INT}")

    def accepts(self, source: Type) -> bool:
        return source.type_id in _TRUNCATABLE

    def _apply(self, source: Type, value: Any) -> Any:
        if isinstance(source, DecimalType):
            digits = unscaled(value)
            return decimal_from_unscaled(digits - digits % self.width, source.scale)
        if isinstance(value, int):
            return value - value % self.width
        return value[: self.width]

    def __str__(self) -> str:
        return f"truncate[{self.width}]"


@dataclass(frozen=True, slots=True)
class _TimeTransform(Transform):
    preserves_order = True

    def accepts(self, source: Type) -> bool:
        return source.type_id is TypeId.DATE or source.type_id in _TIMESTAMPS

    def result_type(self, source: Type) -> Type:
        return INT

    def _of_days(self, days: int) -> int:
        raise NotImplementedError

    def _apply(self, source: Type, value: Any) -> int:
        return self._of_days(_days(source, value))


@dataclass(frozen=True, slots=True)
class Year(_TimeTransform):
    name = "year"

    def _of_days(self, days: int) -> int:
        return temporal.year_and_month(days)[0] - _EPOCH_YEAR


@dataclass(frozen=True, slots=True)
class Month(_TimeTransform):
    name = "month"

    def _of_days(self, days: int) -> int:
        year, month = temporal.year_and_month(days)
        return (year - _EPOCH_YEAR) * 12 + month - 1


@dataclass(frozen=True, slots=True)
class Day(_TimeTransform):
    """The day. Its result is a date, as in Java; the int of the spec has the same bytes."""

    name = "day"

    def result_type(self, source: Type) -> Type:
        return DATE

    def _of_days(self, days: int) -> int:
        return days


@dataclass(frozen=True, slots=True)
class Hour(_TimeTransform):
    name = "hour"

    def accepts(self, source: Type) -> bool:
        return source.type_id in _TIMESTAMPS

    def _apply(self, source: Type, value: int) -> int:
        return value // (_units_per_day(source) // 24)


@dataclass(frozen=True, slots=True)
class Unknown(Transform):
    """A transform of a later specification or of another vendor, kept as it was written."""

    text: str

    def result_type(self, source: Type) -> Type:
        return STRING

    def _apply(self, source: Type, value: Any) -> Any:
        raise InvalidTransform(f"transform {self.text!r} is not known and cannot be applied")

    def __str__(self) -> str:
        return self.text


IDENTITY: Final = Identity()
VOID: Final = Void()
_BY_NAME: Final[dict[str, Transform]] = {
    str(known): known for known in (IDENTITY, VOID, Year(), Month(), Day(), Hour())
}


@lru_cache(maxsize=1024)
def parse_transform(text: str) -> Transform:
    """Parse the text of a transform, in any case as Java does."""
    known = _BY_NAME.get(text.lower())
    if known is not None:
        return known
    matched = _HAS_WIDTH.fullmatch(text)
    if matched is not None and matched[1].lower() == "bucket":
        return Bucket(int(matched[2]))
    if matched is not None and matched[1].lower() == "truncate":
        return Truncate(int(matched[2]))
    return Unknown(text)


_WITH_WIDTH: Final = ("bucket", "truncate")
TRANSFORM_NAMES: Final = (*_BY_NAME, *(f"{name}[N]" for name in _WITH_WIDTH))
"""The known transforms, as messages name them."""


def nearest_transform(text: str) -> str | None:
    """Return the known transform that is most like an unknown one, or None."""
    matched = _NAME_AND_WIDTH.match(text)
    assert matched is not None
    near = difflib.get_close_matches(matched[1].lower(), (*_BY_NAME, *_WITH_WIDTH), n=1)
    if not near or near[0] in _BY_NAME:
        return near[0] if near else None
    return f"{near[0]}[{matched[2] or 'N'}]"


def apply(transform: Transform, source: Type, value: Any) -> Any:
    """Return the transformed value; null stays null."""
    if not transform.accepts(source):
        raise InvalidTransform(f"{transform} does not accept the type {source}")
    if value is None:
        return None
    check_value(source, value)
    return transform._apply(source, value)


def calendar_text(transform: Transform, value: int) -> str | None:
    """Return a year, month or hour as people and Java's paths write it; None for other values."""
    match transform:
        case Year():
            return f"{_EPOCH_YEAR + value:04d}"
        case Month():
            return f"{_EPOCH_YEAR + value // 12:04d}-{value % 12 + 1:02d}"
        case Hour():
            return f"{temporal.date_from_days(value // 24)}-{value % 24:02d}"
    return None


def _days(source: Type, value: int) -> int:
    return value if source.type_id is TypeId.DATE else value // _units_per_day(source)


def _units_per_day(timestamp: Type) -> int:
    is_nanos = timestamp.type_id in _NANO_TIMESTAMPS
    return temporal.NANOS_PER_DAY if is_nanos else temporal.MICROS_PER_DAY


def hash_value(source: Type, value: Any) -> int:
    """Return the signed 32-bit Murmur3 hash of a value (spec, Appendix B)."""
    # The base installation does not have mmh3 and never hashes.
    import mmh3

    to_bytes = _HASHED_BYTES.get(source.type_id)
    if to_bytes is None:
        raise InvalidTransform(f"values of the type {source} have no hash")
    return mmh3.hash(to_bytes(value))


def _long_bytes(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


_HASHED_BYTES: Final[dict[TypeId, Callable[[Any], bytes]]] = {
    **dict.fromkeys((TypeId.INT, TypeId.LONG, TypeId.DATE, TypeId.TIME), _long_bytes),
    **dict.fromkeys((TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ), _long_bytes),
    **dict.fromkeys(_NANO_TIMESTAMPS, lambda nanos: _long_bytes(nanos // temporal.NANOS_PER_MICRO)),
    TypeId.DECIMAL: lambda value: min_big_endian(unscaled(value)),
    TypeId.STRING: str.encode,
    TypeId.UUID: lambda value: value.bytes,
    TypeId.FIXED: bytes,
    TypeId.BINARY: bytes,
}

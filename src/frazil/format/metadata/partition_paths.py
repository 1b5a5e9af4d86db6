"""Partitions as people read them: `day=2024-05-01/region=eu`, as Java's partitionToPath."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.values import temporal
from frazil.values.transforms import Hour, Month, Transform, Year
from frazil.values.types import StructType, Type, TypeId

_EPOCH_YEAR = 1970
_HOURS_PER_DAY = 24


def partition_path(spec: PartitionSpec, partition_type: StructType, values: Sequence[Any]) -> str:
    """The path of a partition tuple; empty for an unpartitioned spec."""
    return "/".join(
        f"{_escaped(part.name)}={_escaped(_text(part.transform, field.type, value))}"
        for part, field, value in zip(spec.fields, partition_type.fields, values, strict=True)
    )


def _escaped(text: str) -> str:
    """As Java's URLEncoder, which escapes a tilde and leaves an asterisk."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _text(transform: Transform, type_: Type, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(transform, Year):
        return f"{_EPOCH_YEAR + value:04d}"
    if isinstance(transform, Month):
        return f"{_EPOCH_YEAR + value // 12:04d}-{value % 12 + 1:02d}"
    if isinstance(transform, Hour):
        day = temporal.date_from_days(value // _HOURS_PER_DAY)
        return f"{day}-{value % _HOURS_PER_DAY:02d}"
    return _value_text(type_, value)


def _value_text(type_: Type, value: Any) -> str:
    match type_.type_id:
        case TypeId.BOOLEAN:
            return "true" if value else "false"
        case TypeId.DATE:
            return temporal.date_from_days(value)
        case TypeId.TIME:
            return _short_time(temporal.time_from_micros(value))
        case TypeId.TIMESTAMP | TypeId.TIMESTAMPTZ:
            text = temporal.timestamp_from_micros(value, with_zone=False)
            return _trimmed(text) + ("+00:00" if type_.type_id is TypeId.TIMESTAMPTZ else "")
        case TypeId.TIMESTAMP_NS | TypeId.TIMESTAMPTZ_NS:
            text = temporal.timestamp_from_nanos(value, with_zone=False)
            return _trimmed(text) + ("+00:00" if type_.type_id is TypeId.TIMESTAMPTZ_NS else "")
        case TypeId.BINARY | TypeId.FIXED:
            return b64encode(value).decode()
    return str(value)


def _trimmed(text: str) -> str:
    """A timestamp as Java's ISO_LOCAL_DATE_TIME: no zeros at the end of a fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _short_time(text: str) -> str:
    """A time as Java's LocalTime: no seconds where they are zero, a fraction by three digits."""
    whole, _, fraction = text.partition(".")
    digits = fraction.rstrip("0")
    if not digits:
        return whole.removesuffix(":00")
    return f"{whole}.{digits.ljust(-(-len(digits) // 3) * 3, '0')}"

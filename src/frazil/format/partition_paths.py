"""Partitions as people read them: `day=2024-05-01/region=eu`, as Java's partitionToPath."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

from frazil.format.partition_spec import PartitionSpec
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
            return temporal.time_from_micros(value)
        case TypeId.TIMESTAMP | TypeId.TIMESTAMPTZ:
            with_zone = type_.type_id is TypeId.TIMESTAMPTZ
            return temporal.timestamp_from_micros(value, with_zone=with_zone)
        case TypeId.TIMESTAMP_NS | TypeId.TIMESTAMPTZ_NS:
            with_zone = type_.type_id is TypeId.TIMESTAMPTZ_NS
            return temporal.timestamp_from_nanos(value, with_zone=with_zone)
        case TypeId.BINARY | TypeId.FIXED:
            return b64encode(value).decode()
    return str(value)

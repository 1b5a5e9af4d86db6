"""The metrics of a file as the wire declares them: counts, and bounds cut to their mode's length.

Bounds are sent as the binary single values in hexadecimal digits: these are exact for every type,
also for those values that JSON cannot have, such as infinity.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from frazil.datafiles.footers.footer_statistics import ColumnStatistics
from frazil.values.column_matching import MatchedColumn
from frazil.values.single_value import to_binary
from frazil.values.transforms import InvalidTransform, parse_transform
from frazil.values.types import (
    ListType,
    MapType,
    NestedField,
    SchemaField,
    StructType,
    Type,
    TypeId,
    child_fields,
)
from frazil.wire.declared_content import CountMap, ValueMap

DEFAULT_PROPERTY: Final = "write.metadata.metrics.default"
COLUMN_PREFIX: Final = "write.metadata.metrics.column."
MAX_INFERRED_PROPERTY: Final = "write.metadata.metrics.max-inferred-column-defaults"
MAX_INFERRED_DEFAULT: Final = 100
_TRUNCATE = re.compile(r"truncate\(([0-9]{1,9})\)")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    has_counts: bool
    """Sizes and counts of values, nulls and NaNs."""
    bound_length: int | None
    """Characters or bytes that a bound may have: 0 for no bounds, None for whole ones."""

    @property
    def has_bounds(self) -> bool:
        return self.bound_length != 0


NONE: Final = MetricsMode(False, 0)
COUNTS: Final = MetricsMode(True, 0)
FULL: Final = MetricsMode(True, None)
DEFAULT_MODE: Final = MetricsMode(True, 16)
_BY_NAME: Final = {"none": NONE, "counts": COUNTS, "full": FULL}


@dataclass(frozen=True, slots=True)
class MetricsModes:
    default: MetricsMode
    by_id: Mapping[int, MetricsMode]

    def of(self, field_id: int) -> MetricsMode:
        return self.by_id.get(field_id, self.default)


def metrics_modes(
    properties: Mapping[str, str],
    schema: StructType,
    by_id: Mapping[int, SchemaField],
    sort_fields: Iterable[Mapping[str, Any]] = (),
) -> MetricsModes:
    """The modes of a table; `sort_fields` are the JSON fields of its default sort order."""
    default, modes = _defaults(properties, schema)
    sorted_mode = DEFAULT_MODE if default in (NONE, COUNTS) else default
    for sort_field in sort_fields:
        if _preserves_order(sort_field) and "source-id" in sort_field:
            modes[sort_field["source-id"]] = sorted_mode
    ids = {found.name: field_id for field_id, found in by_id.items()}
    for key, text in properties.items():
        if key.startswith(COLUMN_PREFIX) and key.removeprefix(COLUMN_PREFIX) in ids:
            modes[ids[key.removeprefix(COLUMN_PREFIX)]] = parse_mode(text) or default
    return MetricsModes(default, modes)


def parse_mode(text: str) -> MetricsMode | None:
    lowered = text.lower()
    if lowered in _BY_NAME:
        return _BY_NAME[lowered]
    matched = _TRUNCATE.fullmatch(lowered)
    return MetricsMode(True, int(matched[1])) if matched and int(matched[1]) > 0 else None


def _defaults(
    properties: Mapping[str, str], schema: StructType
) -> tuple[MetricsMode, dict[int, MetricsMode]]:
    """A default that somebody chose is for all columns; ours only for so many."""
    chosen = properties.get(DEFAULT_PROPERTY)
    if chosen is not None:
        return parse_mode(chosen) or DEFAULT_MODE, {}
    limit = _max_inferred(properties)
    if sum(1 for _ in _counted_ids(schema)) <= limit:
        return DEFAULT_MODE, {}
    first: list[int] = []
    _add_first(schema, limit, first)
    return NONE, dict.fromkeys(first, DEFAULT_MODE)


def _max_inferred(properties: Mapping[str, str]) -> int:
    try:
        limit = int(properties.get(MAX_INFERRED_PROPERTY, MAX_INFERRED_DEFAULT))
    except ValueError:
        return MAX_INFERRED_DEFAULT
    return limit if limit >= 0 else MAX_INFERRED_DEFAULT


def _counted_ids(type_: Type) -> Iterator[int]:
    """As Java's `GetProjectedIds` counts a schema's columns: structs too, lists and maps not."""
    if isinstance(type_, ListType | MapType):
        parts = child_fields(type_)
        if not parts[-1].type.is_nested:
            yield from (part.field_id for part in parts)
        for part in parts:
            yield from _counted_ids(part.type)
    elif isinstance(type_, StructType):
        for field in type_.fields:
            if not isinstance(field.type, ListType | MapType):
                yield field.field_id
            yield from _counted_ids(field.type)


def _add_first(type_: Type, limit: int, ids: list[int]) -> None:
    """Level by level, since columns of the upper levels are filtered by more often."""
    for field in child_fields(type_):
        if len(ids) < limit and _has_metrics(field):
            ids.append(field.field_id)
    for field in child_fields(type_):
        if len(ids) < limit:
            _add_first(field.type, limit, ids)


def _has_metrics(field: NestedField) -> bool:
    return field.type.is_primitive or field.type.type_id is TypeId.VARIANT


def _preserves_order(sort_field: Mapping[str, Any]) -> bool:
    try:
        return parse_transform(sort_field["transform"]).preserves_order
    except (KeyError, InvalidTransform):
        return False


_FIRST_SURROGATE: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000


def declared_metrics(
    columns: Sequence[MatchedColumn],
    statistics: Mapping[int, ColumnStatistics],
    modes: MetricsModes,
) -> dict[str, Any]:
    """The members of a content file that tell its metrics.

    Columns inside lists and maps have sizes alone, as Java has it: Parquet counts an empty list as
    one null value, which is no count of elements.
    """
    counted = [column for column in columns if modes.of(column.field_id).has_counts]
    sizes = {column.field_id: statistics[column.field_id].size_in_bytes for column in counted}
    single = [column.field_id for column in counted if not column.is_repeated]
    lower, upper = _bounds(columns, statistics, modes)
    return {
        "column_sizes": count_map(sizes),
        "value_counts": _counts(single, statistics, lambda one: one.value_count),
        "null_value_counts": _counts(single, statistics, lambda one: one.null_count),
        "nan_value_counts": _counts(single, statistics, lambda one: one.nan_count),
        "lower_bounds": value_map(lower),
        "upper_bounds": value_map(upper),
        "bounds_encoding": "hex" if lower or upper else None,
    }


def _counts(
    field_ids: Sequence[int],
    statistics: Mapping[int, ColumnStatistics],
    count: Callable[[ColumnStatistics], int | None],
) -> CountMap | None:
    counts = {field_id: count(statistics[field_id]) for field_id in field_ids}
    return count_map({key: number for key, number in counts.items() if number is not None})


def count_map(counts: Mapping[int, int]) -> CountMap | None:
    return CountMap(tuple(counts), tuple(counts.values())) if counts else None


def value_map(bounds: Mapping[int, str]) -> ValueMap | None:
    return ValueMap(tuple(bounds), tuple(bounds.values())) if bounds else None


def _bounds(
    columns: Sequence[MatchedColumn],
    statistics: Mapping[int, ColumnStatistics],
    modes: MetricsModes,
) -> tuple[dict[int, str], dict[int, str]]:
    lower: dict[int, str] = {}
    upper: dict[int, str] = {}
    for column in columns:
        mode, found = modes.of(column.field_id), statistics[column.field_id]
        if not mode.has_bounds or found.lower is None:
            continue
        low, high = found.lower, found.upper
        if column.type.type_id in _TRUNCATED:
            low = truncate_lower(low, mode.bound_length)
            high = truncate_upper(high, mode.bound_length)
        lower[column.field_id] = to_binary(column.type, low).hex()
        if high is not None:
            upper[column.field_id] = to_binary(column.type, high).hex()
    return lower, upper


# --- truncation ---------------------------------------------------------------------------------


_TRUNCATED: Final = frozenset({TypeId.STRING, TypeId.BINARY})
"""Not `fixed`, as in Java."""
_Value = TypeVar("_Value", str, bytes)


def truncate_lower(value: _Value, length: int | None) -> _Value:
    """A prefix, which is never above the value."""
    return value[:length]


def truncate_upper(value: _Value, length: int | None) -> _Value | None:
    """A prefix with its last character or byte raised; None where none can be raised."""
    if length is None or len(value) <= length:
        return value
    if isinstance(value, str):
        return _raised_text(value[:length])
    return _raised(value[:length])


def _raised_text(text: str) -> str | None:
    for at in range(len(text) - 1, -1, -1):
        following = ord(text[at]) + 1
        if following == _FIRST_SURROGATE:
            # Surrogates are no characters: UTF-8 has no bytes for them.
            following = _AFTER_SURROGATES
        if following <= sys.maxunicode:
            return text[:at] + chr(following)
    return None


def _raised(data: bytes) -> bytes | None:
    for at in range(len(data) - 1, -1, -1):
        if data[at] < 0xFF:
            return data[:at] + bytes([data[at] + 1])
    return None

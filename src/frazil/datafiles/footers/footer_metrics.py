"""Turns a footer's statistics into the metrics that a table wants: counts and truncated bounds.

The modes mirror Java's `MetricsConfig` and `MetricsModes`: a default mode, modes of single columns,
at least `truncate(16)` for columns that the table is sorted by, and in wide tables only the first
columns. An invalid mode is ignored, as in Java: a property that only saves space must not make
files worse for readers. Bounds are sent as binary single values in hexadecimal digits, which are
exact for every type, even for values that JSON does not have, such as infinity.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from frazil.values import types
from frazil.values.column_matching import MatchedColumn
from frazil.values.footer_statistics import ColumnStatistics
from frazil.values.single_value import to_binary
from frazil.values.transforms import InvalidTransform, parse_transform
from frazil.wire.declared_content import CountMap, ValueMap

DEFAULT_PROPERTY: Final = "write.metadata.metrics.default"
COLUMN_PREFIX: Final = "write.metadata.metrics.column."
MAX_INFERRED_PROPERTY: Final = "write.metadata.metrics.max-inferred-column-defaults"
MAX_INFERRED_DEFAULT: Final = 100
_TRUNCATE = re.compile(r"truncate\(([0-9]{1,9})\)")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """Which metrics a column has."""

    has_counts: bool
    """Whether there are sizes and counts of values, nulls and NaNs."""
    bound_length: int | None
    """How many characters or bytes a bound may have: 0 for no bounds, None for uncut ones."""

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
    """The modes of a table's columns."""

    default: MetricsMode
    by_id: Mapping[int, MetricsMode]

    def of(self, field_id: int) -> MetricsMode:
        return self.by_id.get(field_id, self.default)


def metrics_modes(
    properties: Mapping[str, str],
    schema: types.StructType,
    by_id: Mapping[int, types.SchemaField],
    sort_fields: Iterable[Mapping[str, Any]] = (),
) -> MetricsModes:
    """Return the modes of a table; `sort_fields` are the JSON fields of its default order."""
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
    properties: Mapping[str, str], schema: types.StructType
) -> tuple[MetricsMode, dict[int, MetricsMode]]:
    """Return the default mode: a configured one for all columns, ours for a limited number."""
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


def _counted_ids(type_: types.Type) -> Iterator[int]:
    """Return the ids that Java's `GetProjectedIds` counts: with structs, without lists and maps."""
    if isinstance(type_, types.ListType | types.MapType):
        parts = types.child_fields(type_)
        if not parts[-1].type.is_nested:
            yield from (part.field_id for part in parts)
        for part in parts:
            yield from _counted_ids(part.type)
    elif isinstance(type_, types.StructType):
        for field in type_.fields:
            if not isinstance(field.type, types.ListType | types.MapType):
                yield field.field_id
            yield from _counted_ids(field.type)


def _add_first(type_: types.Type, limit: int, ids: list[int]) -> None:
    """Add ids level by level, because filters use the upper levels more often."""
    for field in types.child_fields(type_):
        has_metrics = field.type.is_primitive or field.type.type_id is types.TypeId.VARIANT
        if len(ids) < limit and has_metrics:
            ids.append(field.field_id)
    for field in types.child_fields(type_):
        if len(ids) < limit:
            _add_first(field.type, limit, ids)


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
    """Return the members of a content file that contain its metrics.

    As in Java, columns inside lists and maps only have sizes: Parquet counts an empty list as one
    null value, which is not a count of elements.
    """
    counted = [column for column in columns if modes.of(column.field_id).has_counts]
    sizes = {column.field_id: statistics[column.field_id].size_in_bytes for column in counted}
    single = [column.field_id for column in counted if not column.is_repeated]
    lower, upper = _bounds(columns, statistics, modes)
    return {
        "column_sizes": count_map(sizes),
        "value_counts": _counts(single, statistics, lambda column: column.value_count),
        "null_value_counts": _counts(single, statistics, lambda column: column.null_count),
        "nan_value_counts": _counts(single, statistics, lambda column: column.nan_count),
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
        mode, known = modes.of(column.field_id), statistics[column.field_id]
        if not mode.has_bounds or known.lower is None:
            continue
        low, high = known.lower, known.upper
        if column.type.type_id in _TRUNCATED:
            low = low[: mode.bound_length]
            high = truncate_upper(high, mode.bound_length)
        lower[column.field_id] = to_binary(column.type, low).hex()
        if high is not None:
            upper[column.field_id] = to_binary(column.type, high).hex()
    return lower, upper


# --- truncation ---------------------------------------------------------------------------------


_TRUNCATED: Final = frozenset({types.TypeId.STRING, types.TypeId.BINARY})
"""As in Java, `fixed` is not truncated."""
_Value = TypeVar("_Value", str, bytes)


def truncate_upper(value: _Value, length: int | None) -> _Value | None:
    """Return a prefix with its last character or byte raised; None if none can be raised."""
    if length is None or len(value) <= length:
        return value
    if isinstance(value, str):
        return _raised_text(value[:length])
    return _raised(value[:length])


def _raised_text(text: str) -> str | None:
    for index in range(len(text) - 1, -1, -1):
        following = ord(text[index]) + 1
        if following == _FIRST_SURROGATE:
            # Surrogates are not characters: UTF-8 has no bytes for them.
            following = _AFTER_SURROGATES
        if following <= sys.maxunicode:
            return text[:index] + chr(following)
    return None


def _raised(data: bytes) -> bytes | None:
    for index in range(len(data) - 1, -1, -1):
        if data[index] < 0xFF:
            return data[:index] + bytes([data[index] + 1])
    return None

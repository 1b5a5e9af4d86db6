"""The metrics of a file as the wire declares them: counts, and bounds cut to their mode's length.

Bounds are sent as the binary single values in hexadecimal digits: these are exact for every type,
also for those values that JSON cannot have, such as infinity.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from frazil.datafiles.footers.footer_statistics import ColumnStatistics
from frazil.datafiles.footers.parquet_metrics_modes import MetricsModes
from frazil.values.column_matching import MatchedColumn
from frazil.values.single_value import to_binary
from frazil.values.types import TypeId
from frazil.wire.content_files import CountMap, ValueMap

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

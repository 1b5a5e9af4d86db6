"""Which metrics a table wants of each column, by its `write.metadata.metrics.*` properties.

Mirrors Java's `MetricsConfig` and `MetricsModes`: a default mode, modes of single columns, at least
`truncate(16)` for columns that the table is sorted by, and in wide tables the first columns alone.
A mode that cannot be understood is not used, as in Java: what a file is worth to readers must not
depend on the spelling of a property that only saves space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frazil.datafiles.footers.parquet_schema import SchemaField
from frazil.values.transforms import InvalidTransform, parse_transform
from frazil.values.types import (
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    TypeId,
    child_fields,
)

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

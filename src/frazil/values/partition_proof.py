"""Shows what the footer of a file proves about its partition.

All rows of a data file must have one partition tuple (spec, "Partitioning"), and readers skip whole
files by it: a wrong value hides rows. A footer proves a value only if the column does not mix nulls
with other values, and if the transform preserves the order and has one result for the lowest and
the highest value. Bounds that may be cut prove nothing. The client declares what the footer proves,
and the server refuses what it disproves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from frazil.values.footer_statistics import FLOATING, ColumnStatistics
from frazil.values.single_value import InvalidValue, to_binary, to_json
from frazil.values.transforms import Identity, Transform, Void, apply
from frazil.values.types import NestedField, Type

_ONE_FILE_EACH: Final = "write one file for each partition"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec with its source column."""

    name: str
    transform: Transform
    source_id: int
    source_name: str | None
    """None if the column was dropped from the current schema."""
    source: NestedField | None

    @property
    def result_type(self) -> Type | None:
        return None if self.source is None else self.transform.result_type(self.source.type)


# --- what the footer shows ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proven:
    """The footer shows that all rows have this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Open:
    """The footer does not show the value; if it is not null, it is within the two bounds."""

    reason: str
    lowest: Any = None
    highest: Any = None
    has_nulls: bool | None = None
    """Whether there are nulls; None if the footer does not say."""


@dataclass(frozen=True, slots=True)
class Disproven:
    """The footer shows that the file has rows of more than one partition."""

    reason: str


Finding: TypeAlias = Proven | Open | Disproven


def examine(
    field: PartitionField, statistics: ColumnStatistics | None, *, is_data: bool = True
) -> Finding:
    """Return what the statistics of the source column prove; they are None if the file has no such
    column. A delete file need not have all columns of its table, so that a missing column proves
    nothing."""
    if isinstance(field.transform, Void):
        return Proven(None)
    if statistics is None and not is_data:
        return Open("a delete file does not tell")
    if field.source is None:
        # Readers and the catalog only accept null for a dropped column.
        return Proven(None)
    if statistics is None:
        return _without_column(field, field.source)
    if statistics.value_count == 0:
        return Open("the file has no rows to take it from")
    if statistics.null_count is None:
        reason = f"the footer has no null count of {field.source_name}"
        return _unproven(Open(reason), field, field.source.type, statistics)
    if statistics.is_all_null:
        return Proven(None)
    if statistics.null_count:
        return Disproven(
            f"{field.source_name} is null in {statistics.null_count} of {statistics.value_count} "
            f"rows, which belong to another partition than the others: {_ONE_FILE_EACH}"
        )
    if field.source.type.type_id in FLOATING and statistics.nan_count != 0:
        return _with_nans(field, field.source.type, statistics)
    return _of_bounds(field, field.source.type, statistics)


def _unproven(
    without_bounds: Open, field: PartitionField, type_: Type, statistics: ColumnStatistics
) -> Finding:
    """Return what bounds show if the file may have other rows: at least one row is within them."""
    if statistics.lower is None:
        return without_bounds
    finding = _of_bounds(field, type_, statistics)
    if isinstance(finding, Proven):
        return Open(without_bounds.reason, finding.value, finding.value, has_nulls=False)
    return finding


def _without_column(field: PartitionField, source: NestedField) -> Finding:
    """Return what readers use: the initial default, null, or an identity partition's value."""
    if isinstance(field.transform, Identity):
        return Open(
            f"the file has no column {field.source_name}, readers take it from the partition"
        )
    return Proven(apply(field.transform, source.type, source.initial_default))


def _with_nans(field: PartitionField, type_: Type, statistics: ColumnStatistics) -> Finding:
    """Examine a column that may have NaNs, which are not in its bounds."""
    if statistics.nan_count is None:
        reason = f"the NaNs of {field.source_name} were not counted"
        return _unproven(Open(reason, has_nulls=False), field, type_, statistics)
    if statistics.nan_count == statistics.value_count:
        reason = f"{field.source_name} is NaN in all rows, which JSON has no value for"
        return Open(reason, has_nulls=False)
    return Disproven(
        f"{field.source_name} is NaN in {statistics.nan_count} of {statistics.value_count} rows, "
        f"which belong to another partition than the others: {_ONE_FILE_EACH}"
    )


def _of_bounds(field: PartitionField, type_: Type, statistics: ColumnStatistics) -> Finding:
    lower, upper = statistics.lower, statistics.upper
    if lower is None:
        return Open(f"the footer has no bounds of {field.source_name}", has_nulls=False)
    if statistics.may_be_cut:
        return Open(f"the bounds of {field.source_name} in the footer are cut", has_nulls=False)
    low, high = apply(field.transform, type_, lower), apply(field.transform, type_, upper)
    is_single = _same(type_, lower, upper)
    if is_single or (field.transform.preserves_order and _same_result(field, low, high)):
        return Proven(low)
    shown = f"{field.source_name} lies between {_shown(type_, lower)} and {_shown(type_, upper)}"
    if not _same_result(field, low, high) and statistics.are_values and not _is_zero(lower, upper):
        return Disproven(f"{shown}, which are two partitions: {_ONE_FILE_EACH}")
    if field.transform.preserves_order or statistics.are_values:
        return Open(f"{shown}, which proves no single value", low, high, has_nulls=False)
    return Open(f"{shown}, which proves no {field.transform}", has_nulls=False)


def _is_zero(lower: Any, upper: Any) -> bool:
    """Whether the bounds are zeros: statistics confuse -0.0 and 0.0, which are two partitions."""
    return isinstance(lower, float) and lower == 0 == upper


def _same_result(field: PartitionField, low: Any, high: Any) -> bool:
    assert field.result_type is not None
    return _same(field.result_type, low, high)


def _same(type_: Type, one: Any, other: Any) -> bool:
    """Compare by bytes: the two zeros are equal numbers, but two partitions."""
    return to_binary(type_, one) == to_binary(type_, other)


def _shown(type_: Type, value: Any) -> str:
    try:
        text = str(to_json(type_, value))
    except InvalidValue:
        text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- declared values ------------------------------------------------------------------------------


def contradiction(field: PartitionField, finding: Proven | Open, value: Any) -> str | None:
    """Return why a value cannot be the file's, or None."""
    if isinstance(finding, Proven):
        if value is None or finding.value is None:
            is_same = value is finding.value
        else:
            is_same = _same_result(field, value, finding.value)
        return None if is_same else f"the file's footer proves {result_text(field, finding.value)}"
    if value is None:
        return "the file has values that are not null" if finding.has_nulls is False else None
    if finding.lowest is None or finding.lowest <= value <= finding.highest:
        return None
    return (
        f"by the file's footer it lies between {result_text(field, finding.lowest)} and "
        f"{result_text(field, finding.highest)}"
    )


def result_text(field: PartitionField, value: Any) -> str:
    """Return a partition value for messages."""
    if value is None or field.result_type is None:
        return "null"
    return _shown(field.result_type, value)

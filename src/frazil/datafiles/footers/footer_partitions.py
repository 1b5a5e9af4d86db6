"""Proves the partition of a file by its footer, or checks the partition that the caller passes.

All rows of a data file must have one partition tuple (spec, "Partitioning"), and readers skip whole
files by it: a wrong value hides rows. A footer proves a value only if the column does not mix nulls
with other values, and if the transform preserves the order and has one result for the lowest and
the highest value. Bounds that may be cut prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from frazil.datafiles.footers.footer_statistics import FLOATING, ColumnStatistics
from frazil.datafiles.footers.parquet_files import FileDoesNotFit, PartitionNotProven
from frazil.datafiles.footers.python_values import internal_value
from frazil.datafiles.portable_table import FileTable
from frazil.values.single_value import InvalidValue, to_binary, to_json
from frazil.values.transforms import (
    Bucket,
    Identity,
    InvalidTransform,
    Transform,
    Truncate,
    Unknown,
    Void,
    apply,
    parse_transform,
)
from frazil.values.types import NestedField, SchemaField, Type, fields_by_id
from frazil.wire.errors import BadRequest

PartitionInput: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""One value for each field of the spec in its order, or by the names of the spec's fields."""

_MISSING: Final = object()
_GIVE: Final = "give it, as partition={{{name!r}: ...}}"
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


def partition_fields(
    spec: Mapping[str, Any], by_id: Mapping[int, SchemaField]
) -> tuple[PartitionField, ...]:
    """Return the fields of a partition spec from its JSON."""
    fields = []
    for item in spec["fields"]:
        source_id = item.get("source-id", next(iter(item.get("source-ids", ())), -1))
        transform = parse_transform(item["transform"])
        if isinstance(transform, Unknown):
            # Spec, "Partitioning": writers must not commit files of such a spec.
            raise BadRequest(
                f"partition field {item['name']} has the transform {transform}, which is "
                "unknown: no file can be added with this spec, choose another one by spec_id"
            )
        source = by_id.get(source_id)
        fields.append(
            PartitionField(
                item["name"],
                transform,
                source_id,
                None if source is None else source.name,
                None if source is None else source.field,
            )
        )
    return tuple(fields)


def partition_fields_of(table: FileTable, spec_id: int | None = None) -> tuple[PartitionField, ...]:
    """Return the fields of one of a table's specs; without an id, of the default spec."""
    return partition_fields(table.spec(spec_id), fields_by_id(table.schema))


def identity_sources(fields: Sequence[PartitionField]) -> frozenset[int]:
    """Return the columns that readers take from the partition if a file does not have them."""
    return frozenset(field.source_id for field in fields if isinstance(field.transform, Identity))


def partition_values(
    fields: Sequence[PartitionField],
    statistics: Mapping[int, ColumnStatistics],
    partition: PartitionInput | None,
    path: str,
    *,
    is_data: bool = True,
) -> tuple[Any, ...]:
    """Return the partition tuple in the wire's JSON.

    `partition` has the caller's values, if any. A delete file need not have all columns of its
    table, so that a missing column proves nothing.
    """
    passed = _by_name(fields, partition, path)
    tuple_values = []
    for field in fields:
        known = statistics.get(field.source_id)
        is_open = known is None and not is_data and not isinstance(field.transform, Void)
        finding = _Open("a delete file does not tell") if is_open else _examine(field, known)
        value = _value(field, finding, passed.get(field.name, _MISSING), path)
        tuple_values.append(_json(field, value, path))
    return tuple(tuple_values)


def _by_name(
    fields: Sequence[PartitionField], partition: PartitionInput | None, path: str
) -> Mapping[str, Any]:
    if partition is None:
        return {}
    names = [field.name for field in fields]
    shown = ", ".join(names) or "none, the spec is unpartitioned"
    if isinstance(partition, Mapping):
        unknown = [name for name in partition if name not in names]
        if unknown:
            raise FileDoesNotFit(
                path, f"partition: {unknown[0]!r} is not a field of the spec, these are: {shown}"
            )
        return partition
    if isinstance(partition, str | bytes):
        raise FileDoesNotFit(path, "partition: give a sequence of values, or a mapping by name")
    if len(partition) != len(fields):
        raise FileDoesNotFit(
            path,
            f"partition: there are {len(partition)} values for {len(fields)} fields of the spec: "
            f"give one for each of {shown}",
        )
    return dict(zip(names, partition, strict=True))


def _value(field: PartitionField, finding: _Finding, passed: Any, path: str) -> Any:
    if isinstance(finding, _Disproven):
        raise FileDoesNotFit(path, f"partition field {field.name}: {finding.reason}")
    if passed is not _MISSING:
        value = _converted(field, passed, path)
        reason = _contradiction(field, finding, value)
        if reason is not None:
            raise FileDoesNotFit(
                path, f"partition field {field.name}: {passed!r} is given, but {reason}"
            )
        return value
    if isinstance(finding, _Proven):
        return finding.value
    fix = _GIVE.format(name=field.name)
    raise PartitionNotProven(path, f"{finding.reason}: {fix}", field.name)


# --- what the footer shows ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Proven:
    """The footer shows that all rows have this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class _Open:
    """The footer does not show the value; if it is not null, it is within the two bounds."""

    reason: str
    lowest: Any = None
    highest: Any = None
    has_nulls: bool | None = None
    """Whether there are nulls; None if the footer does not say."""


@dataclass(frozen=True, slots=True)
class _Disproven:
    """The footer shows that the file has rows of more than one partition."""

    reason: str


_Finding: TypeAlias = _Proven | _Open | _Disproven


def _examine(field: PartitionField, statistics: ColumnStatistics | None) -> _Finding:
    if isinstance(field.transform, Void) or field.source is None:
        # Readers and the catalog only accept null for a dropped column.
        return _Proven(None)
    if statistics is None:
        return _without_column(field, field.source)
    if statistics.value_count == 0:
        return _Open("the file has no rows to take it from")
    if statistics.null_count is None:
        return _Open(f"the footer has no null count of {field.source_name}")
    if statistics.is_all_null:
        return _Proven(None)
    if statistics.null_count:
        return _Disproven(
            f"{field.source_name} is null in {statistics.null_count} of {statistics.value_count} "
            f"rows, which belong to another partition than the others: {_ONE_FILE_EACH}"
        )
    if field.source.type.type_id in FLOATING and statistics.nan_count != 0:
        return _with_nans(field, statistics)
    return _of_bounds(field, field.source.type, statistics)


def _without_column(field: PartitionField, source: NestedField) -> _Finding:
    """Return what readers use: the initial default, null, or an identity partition's value."""
    if isinstance(field.transform, Identity):
        return _Open(
            f"the file has no column {field.source_name}, readers take it from the partition"
        )
    return _Proven(apply(field.transform, source.type, source.initial_default))


def _with_nans(field: PartitionField, statistics: ColumnStatistics) -> _Finding:
    """Examine a column that may have NaNs, which are not in its bounds."""
    if statistics.nan_count is None:
        return _Open(f"the NaNs of {field.source_name} were not counted")
    if statistics.nan_count == statistics.value_count:
        return _Open(f"{field.source_name} is NaN in all rows, which JSON has no value for")
    return _Disproven(
        f"{field.source_name} is NaN in {statistics.nan_count} of {statistics.value_count} rows, "
        f"which belong to another partition than the others: {_ONE_FILE_EACH}"
    )


def _of_bounds(field: PartitionField, type_: Type, statistics: ColumnStatistics) -> _Finding:
    lower, upper = statistics.lower, statistics.upper
    if lower is None:
        return _Open(f"the footer has no bounds of {field.source_name}", has_nulls=False)
    if statistics.may_be_cut:
        return _Open(f"the bounds of {field.source_name} in the footer are cut", has_nulls=False)
    low, high = apply(field.transform, type_, lower), apply(field.transform, type_, upper)
    is_single = _same(type_, lower, upper)
    if is_single or (field.transform.preserves_order and _same_result(field, low, high)):
        return _Proven(low)
    shown = f"{field.source_name} lies between {_shown(type_, lower)} and {_shown(type_, upper)}"
    if not _same_result(field, low, high) and statistics.are_values and not _is_zero(lower, upper):
        return _Disproven(f"{shown}, which are two partitions: {_ONE_FILE_EACH}")
    if field.transform.preserves_order or statistics.are_values:
        return _Open(f"{shown}, which proves no single value", low, high, has_nulls=False)
    return _Open(f"{shown}, which proves no {field.transform}", has_nulls=False)


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


# --- what the caller passes -----------------------------------------------------------------------


def _contradiction(field: PartitionField, finding: _Proven | _Open, value: Any) -> str | None:
    """Return why a value cannot be the file's, or None."""
    if isinstance(finding, _Proven):
        if value is None or finding.value is None:
            is_same = value is finding.value
        else:
            is_same = _same_result(field, value, finding.value)
        return None if is_same else f"the file's footer proves {_result(field, finding.value)}"
    if value is None:
        return "the file has no nulls in it" if finding.has_nulls is False else None
    if finding.lowest is None or finding.lowest <= value <= finding.highest:
        return None
    return (
        f"by the file's footer it lies between {_result(field, finding.lowest)} and "
        f"{_result(field, finding.highest)}"
    )


def _result(field: PartitionField, value: Any) -> str:
    if value is None or field.result_type is None:
        return "null"
    return _shown(field.result_type, value)


def _converted(field: PartitionField, passed: Any, path: str) -> Any:
    """Return Iceberg's internal value."""
    if passed is None:
        return None
    try:
        if isinstance(field.transform, Void) or field.result_type is None:
            raise InvalidValue("it can only be null")
        value = internal_value(field.result_type, passed)
        _check_result(field, value)
    except (InvalidValue, InvalidTransform) as error:
        raise FileDoesNotFit(path, f"partition field {field.name}: {error}") from None
    return value


def _check_result(field: PartitionField, value: Any) -> None:
    transform = field.transform
    if isinstance(transform, Bucket) and not 0 <= value < transform.num_buckets:
        raise InvalidValue(f"{value} is not one of the buckets 0 to {transform.num_buckets - 1}")
    if isinstance(transform, Truncate):
        assert field.source is not None
        if apply(transform, field.source.type, value) != value:
            raise InvalidValue(f"{value!r} is not a result of {transform}")


def _json(field: PartitionField, value: Any, path: str) -> Any:
    if value is None or field.result_type is None:
        return None
    try:
        return to_json(field.result_type, value)
    except InvalidValue as error:
        raise FileDoesNotFit(path, f"partition field {field.name}: {error}") from None

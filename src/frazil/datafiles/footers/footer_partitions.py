"""Takes the partition of a file from its footer, or checks the partition that the caller passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from frazil.datafiles.footers.parquet_files import FileDoesNotFit, PartitionNotProven
from frazil.datafiles.footers.python_values import internal_value
from frazil.datafiles.portable_table import FileTable
from frazil.values import transforms
from frazil.values.footer_statistics import ColumnStatistics
from frazil.values.partition_proof import (
    Disproven,
    Finding,
    PartitionField,
    Proven,
    contradiction,
    examine,
)
from frazil.values.single_value import InvalidValue, to_json
from frazil.values.types import SchemaField, fields_by_id
from frazil.wire.errors import BadRequest

PartitionInput: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""One value for each field of the spec in its order, or by the names of the spec's fields."""

_MISSING: Final = object()
_GIVE: Final = "give it, as partition={{{name!r}: ...}}"


def partition_fields(
    spec: Mapping[str, Any], by_id: Mapping[int, SchemaField]
) -> tuple[PartitionField, ...]:
    """Return the fields of a partition spec from its JSON."""
    fields = []
    for item in spec["fields"]:
        source_id = item.get("source-id", next(iter(item.get("source-ids", ())), -1))
        transform = transforms.parse_transform(item["transform"])
        if isinstance(transform, transforms.Unknown):
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
    return frozenset(
        field.source_id for field in fields if isinstance(field.transform, transforms.Identity)
    )


def partition_values(
    fields: Sequence[PartitionField],
    statistics: Mapping[int, ColumnStatistics],
    partition: PartitionInput | None,
    path: str,
    *,
    is_data: bool = True,
) -> tuple[Any, ...]:
    """Return the partition tuple in the wire's JSON.

    `partition` has the caller's values, if any.
    """
    passed = _by_name(fields, partition, path)
    tuple_values = []
    for field in fields:
        finding = examine(field, statistics.get(field.source_id), is_data=is_data)
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


def _value(field: PartitionField, finding: Finding, passed: Any, path: str) -> Any:
    if isinstance(finding, Disproven):
        raise FileDoesNotFit(path, f"partition field {field.name}: {finding.reason}")
    if passed is not _MISSING:
        value = _converted(field, passed, path)
        reason = contradiction(field, finding, value)
        if reason is not None:
            raise FileDoesNotFit(
                path, f"partition field {field.name}: {passed!r} is given, but {reason}"
            )
        return value
    if isinstance(finding, Proven):
        return finding.value
    fix = _GIVE.format(name=field.name)
    raise PartitionNotProven(path, f"{finding.reason}: {fix}", field.name)


# --- what the caller passes -----------------------------------------------------------------------


def _converted(field: PartitionField, passed: Any, path: str) -> Any:
    """Return Iceberg's internal value."""
    if passed is None:
        return None
    try:
        if isinstance(field.transform, transforms.Void) or field.result_type is None:
            raise InvalidValue("it can only be null")
        value = internal_value(field.result_type, passed)
        _check_result(field, value)
    except (InvalidValue, transforms.InvalidTransform) as error:
        raise FileDoesNotFit(path, f"partition field {field.name}: {error}") from None
    return value


def _check_result(field: PartitionField, value: Any) -> None:
    transform = field.transform
    if isinstance(transform, transforms.Bucket) and not 0 <= value < transform.num_buckets:
        raise InvalidValue(f"{value} is not one of the buckets 0 to {transform.num_buckets - 1}")
    if isinstance(transform, transforms.Truncate):
        assert field.source is not None
        if transforms.apply(transform, field.source.type, value) != value:
            raise InvalidValue(f"{value!r} is not a result of {transform}")


def _json(field: PartitionField, value: Any, path: str) -> Any:
    if value is None or field.result_type is None:
        return None
    try:
        return to_json(field.result_type, value)
    except InvalidValue as error:
        raise FileDoesNotFit(path, f"partition field {field.name}: {error}") from None

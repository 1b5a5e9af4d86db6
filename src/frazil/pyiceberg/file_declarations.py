"""Convert PyIceberg's data files to the files that a commit declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from frazil.pyiceberg.filter_conversion import value_json
from frazil.values.single_value import InvalidValue
from frazil.wire import declared_content as wire

ROW_ID_FIELD: Final = 2147483540
LAST_UPDATED_FIELD: Final = 2147483539
_RESERVED: Final = frozenset({ROW_ID_FIELD, LAST_UPDATED_FIELD})
"""Columns of row lineage, which are not in the table's schema, so their metrics are dropped."""


def spec_id_of(file: DataFile, metadata: TableMetadata) -> int:
    """Return the spec id of a file; a new file has none and uses the table's default spec."""
    return int(getattr(file, "_spec_id", metadata.default_spec_id))


def added_data_file(file: DataFile, metadata: TableMetadata) -> wire.DeclaredDataFile:
    """Convert a file with all of its metrics; bounds keep their bytes."""
    spec_id = spec_id_of(file, metadata)
    spec = metadata.specs().get(spec_id)
    if spec is None:
        raise ValueError(f"{file.file_path}: the table has no partition spec {spec_id}")
    lower, upper = _bounds(file.lower_bounds), _bounds(file.upper_bounds)
    return wire.DeclaredDataFile(
        spec_id=spec_id,
        partition=partition_json(file.partition, spec, metadata.schema()),
        file_path=file.file_path,
        file_format=cast("wire.FileFormat", file.file_format.value.lower()),
        file_size_in_bytes=file.file_size_in_bytes,
        record_count=file.record_count,
        key_metadata=None if file.key_metadata is None else file.key_metadata.hex(),
        split_offsets=tuple(file.split_offsets) if file.split_offsets else None,
        sort_order_id=file.sort_order_id,
        column_sizes=_counts(file.column_sizes),
        value_counts=_counts(file.value_counts),
        null_value_counts=_counts(file.null_value_counts),
        nan_value_counts=_counts(file.nan_value_counts),
        lower_bounds=lower,
        upper_bounds=upper,
        bounds_encoding="hex" if lower is not None or upper is not None else None,
    )


def partition_json(partition: Record, spec: PartitionSpec, schema: Schema) -> tuple[Any, ...]:
    """Return the partition values in the order of the spec's fields."""
    fields = spec.partition_type(schema).fields
    return tuple(
        None if partition[index] is None else _partition_value(field, partition[index])
        for index, field in enumerate(fields)
    )


def _partition_value(field: NestedField, value: Any) -> Any:
    try:
        return value_json(field.field_type, value)
    except InvalidValue as error:
        raise ValueError(
            f"partition field {field.name!r}: {error}, so rows with it cannot be committed to "
            "a partition of their own: filter them out, or partition by another transform"
        ) from error


def _counts(counts: Mapping[int, int] | None) -> wire.CountMap | None:
    kept = {} if counts is None else {k: v for k, v in counts.items() if k not in _RESERVED}
    return wire.CountMap(tuple(kept), tuple(kept.values())) if kept else None


def _bounds(bounds: Mapping[int, bytes] | None) -> wire.ValueMap | None:
    kept = {} if bounds is None else {k: v for k, v in bounds.items() if k not in _RESERVED}
    if not kept:
        return None
    return wire.ValueMap(tuple(kept), tuple(value.hex() for value in kept.values()))

"""Reads fields of single manifest entries at the positions stored in `manifest_columns`.

Partition tuples become Iceberg's internal values by the logical types of the Avro schema. Bounds
are returned in their binary form (spec, Appendix D).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import AvroFile, Projection
from frazil.format.avro.avro_schema import (
    RecordSchema,
    cached_by_schema,
    named_types,
    optional_field,
    record_schema,
)
from frazil.format.avro.avro_types import (
    Array,
    Bytes,
    Field,
    Fixed,
    Integer,
    Null,
    Record,
    String,
    Union,
    UnreadableAvro,
    read_bytes,
    read_long,
)
from frazil.format.manifest.entry_decoder import DecodedRows
from frazil.format.manifest.manifest_fields import (
    COLUMN_SIZES,
    CONTENT,
    DATA_FILE,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SIZE,
    FIRST_ROW_ID,
    KEY_METADATA,
    LOWER_BOUNDS,
    MALFORMED,
    METRICS,
    NONE,
    PARTITION,
    PARTITION_NODES,
    RECORD_COUNT,
    SORT_ORDER_ID,
    SPLIT_OFFSETS,
    UPPER_BOUNDS,
    data_file_record,
    partition_record,
)
from frazil.format.metadata.content_files import (
    DATA_CONTENT,
    EQUALITY_DELETES,
    POSITION_DELETES,
    ContentFile,
    DataFile,
    DeleteFile,
    FieldMap,
)
from frazil.values.column_matching import DELETE_FILE_PATH_ID
from frazil.values.single_value import decimal_from_unscaled

_EQUALITY_IDS: Final = 135
_REFERENCED_DATA_FILE: Final = 143
_CONTENT_OFFSET: Final = 144
_CONTENT_SIZE: Final = 145

RowPosition = tuple[bytes, int]
"""A decompressed block and a position in it."""


@dataclass(frozen=True, slots=True)
class RowMetrics:
    """The metrics of a file that filters use."""

    record_count: int
    value_counts: Mapping[int, int] | None
    null_value_counts: Mapping[int, int] | None
    nan_value_counts: Mapping[int, int] | None
    lower_bounds: Mapping[int, bytes] | None
    upper_bounds: Mapping[int, bytes] | None


DeleteRow: TypeAlias = tuple[int, int, str | None, tuple[int, ...] | None]
"""The values of `DeleteColumns` for one file."""


@dataclass(frozen=True, slots=True, eq=False)
class DeleteColumns:
    """The columns that only delete files have. NONE stands for a missing number."""

    content_offset: NDArray[np.int64]
    content_size_in_bytes: NDArray[np.int64]
    referenced_data_file: tuple[str | None, ...]
    """The field, or the one file that the bounds of `file_path` name (Java's
    ContentFileUtil.referencedDataFile)."""
    equality_ids: tuple[tuple[int, ...] | None, ...]

    @classmethod
    def of(cls, rows: Sequence[DeleteRow]) -> DeleteColumns:
        """Return columns from the values of each row."""
        offsets, sizes, referenced, ids = zip(*rows, strict=True) if rows else ((),) * 4
        return cls(np.array(offsets, np.int64), np.array(sizes, np.int64), referenced, ids)


# --- partition tuples ------------------------------------------------------------------------


def partition_field_ids(schema: RecordSchema) -> tuple[int, ...]:
    record = partition_record(data_file_record(schema.record))
    fields = () if record is None else record.fields
    return tuple(NONE if field.field_id is None else field.field_id for field in fields)


def partition_values(schema: RecordSchema, encoded: Iterable[bytes]) -> tuple[tuple[Any, ...], ...]:
    """Return partition tuples as Iceberg's internal values. Raises UnreadableAvro."""
    record = partition_record(data_file_record(schema.record))
    if record is None:
        return tuple(() for _ in encoded)
    for field in record.fields:
        if not isinstance(field.value_node, PARTITION_NODES):
            raise UnreadableAvro(f"the partition field {field.name} cannot be {field.node.layout}")
    readers = [
        (field, _internal_value(field, kind))
        for field, kind in zip(record.fields, _partition_types(schema), strict=True)
    ]
    return tuple(_read_partition(readers, data) for data in encoded)


def _read_partition(
    readers: Sequence[tuple[Field, Callable[[Any], Any] | None]], data: bytes
) -> tuple[Any, ...]:
    values: list[Any] = []
    at = 0
    try:
        for field, internal in readers:
            value, at = field.node.read(data, at)
            values.append(value if internal is None or value is None else internal(value))
    except (*MALFORMED, ArithmeticError) as error:
        raise UnreadableAvro(f"a partition value is malformed: {error}") from None
    return tuple(values)


def _partition_types(schema: RecordSchema) -> Sequence[Mapping[str, Any]]:
    """Return the Avro types of the partition fields with their logical types."""
    return _remembered_types(schema.text)


@lru_cache(maxsize=256)
def _remembered_types(schema_text: str) -> tuple[Mapping[str, Any], ...]:
    tree = record_schema(schema_text).tree
    named = named_types(tree)
    data_file = _resolved(_field_tree(tree, DATA_FILE)["type"], named)
    partition = _resolved(_field_tree(data_file, PARTITION)["type"], named)
    return tuple(_resolved(field["type"], named) for field in partition["fields"])


def _field_tree(record: Mapping[str, Any], field_id: int) -> Mapping[str, Any]:
    field_tree: Mapping[str, Any] = next(
        field for field in record["fields"] if field.get("field-id") == field_id
    )
    return field_tree


def _resolved(kind: Any, named: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        return _resolved(others[0], named) if others else {"type": "null"}
    if isinstance(kind, str):
        return named.get(kind.rsplit(".", 1)[-1], {"type": kind})
    if isinstance(kind.get("type"), dict | list):
        return {**_resolved(kind["type"], named), **{k: v for k, v in kind.items() if k != "type"}}
    result: Mapping[str, Any] = kind
    return result


def _internal_value(field: Field, kind: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """Return a conversion if Iceberg's value differs from Avro's: for decimals and UUIDs."""
    node, logical = field.value_node, kind.get("logicalType")
    if logical == "decimal" and isinstance(node, Fixed | Bytes):
        scale = kind.get("scale", 0)
        if type(scale) is not int or not 0 <= scale <= 38:
            raise UnreadableAvro(f"the partition field {field.name} has no scale up to 38")
        return lambda data: decimal_from_unscaled(int.from_bytes(data, "big", signed=True), scale)
    if logical == "uuid" and isinstance(node, Fixed):
        return lambda data: UUID(bytes=data)
    if logical == "uuid" and isinstance(node, String):
        return UUID
    return None


# --- metrics ---------------------------------------------------------------------------------


class MapReader:
    """Reads an optional map from field ids to counts or bounds. Iceberg stores such a map as an
    array of pairs."""

    def __init__(self, field: Field) -> None:
        """Check the schema of the field. Raises UnreadableAvro if it is not such a map."""
        is_bounds = field.field_id in (LOWER_BOUNDS, UPPER_BOUNDS)
        array = field.value_node
        kinds: list[type] = []
        if isinstance(array, Array) and isinstance(array.items, Record):
            kinds = [type(part.node) for part in array.items.fields]
        if kinds != [Integer, Bytes if is_bounds else Integer]:
            raise UnreadableAvro(f"the schema's field {field.name} is not a map of field ids")
        union = field.node if isinstance(field.node, Union) else None
        self._null = None if union is None else union.branches.index(Null())
        self._is_optional = union is not None
        self._read_value: Callable[[bytes, int], tuple[Any, int]] = (
            read_bytes if is_bounds else read_long
        )

    def read(self, data: bytes, at: int) -> tuple[dict[int, Any] | None, int]:
        """Return the map and the position after it. For equal keys the last one is used."""
        if self._is_optional:
            branch, at = read_long(data, at)
            if branch == self._null:
                return None, at
        entries: dict[int, Any] = {}
        read_value = self._read_value
        while data[at]:
            count, at = read_long(data, at)
            if count < 0:
                count, (_, at) = -count, read_long(data, at)
            for _ in range(count):
                key, at = read_long(data, at)
                entries[key], at = read_value(data, at)
        return entries, at + 1


def _map(record: Record, field_id: int) -> tuple[Field, MapReader] | None:
    field = optional_field(record, field_id, Array)
    return None if field is None else (field, MapReader(field))


def _read_at(projection: Projection, positions: Iterable[RowPosition]) -> Iterator[Sequence[Any]]:
    for data, at in positions:
        try:
            yield projection.read(data, at)[0]
        except MALFORMED as error:
            raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None


def read_metrics(schema: RecordSchema, positions: Iterable[RowPosition]) -> Iterator[RowMetrics]:
    """Read the metrics of the files whose `data_file` begins at these positions."""
    for values in _read_at(_metrics_projection(schema.text), positions):
        yield RowMetrics(*values)


@cached_by_schema
def _metrics_projection(schema: str) -> Projection:
    record = data_file_record(record_schema(schema).record)
    maps = (_map(record, field_id) for field_id in METRICS)
    return Projection(record, [optional_field(record, RECORD_COUNT, Integer), *maps])


# --- whole files -----------------------------------------------------------------------------

_FILE: Final[Mapping[str, tuple[int, type]]] = {
    "content": (CONTENT, Integer),
    "file_path": (FILE_PATH, String),
    "file_format": (FILE_FORMAT, String),
    "record_count": (RECORD_COUNT, Integer),
    "file_size_in_bytes": (FILE_SIZE, Integer),
    "key_metadata": (KEY_METADATA, Bytes),
    "split_offsets": (SPLIT_OFFSETS, Array),
    "sort_order_id": (SORT_ORDER_ID, Integer),
    "equality_ids": (_EQUALITY_IDS, Array),
    "first_row_id": (FIRST_ROW_ID, Integer),
    "referenced_data_file": (_REFERENCED_DATA_FILE, String),
    "content_offset": (_CONTENT_OFFSET, Integer),
    "content_size_in_bytes": (_CONTENT_SIZE, Integer),
}
_MAPS: Final[Mapping[str, int]] = {
    "column_sizes": COLUMN_SIZES,
    **{name: field_id for field_id, name in METRICS.items()},
}
_DELETES_ONLY: Final = (
    *("equality_ids", "referenced_data_file", "content_offset", "content_size_in_bytes"),
)


def read_content_files(
    schema: RecordSchema,
    positions: Iterable[RowPosition],
    partitions: Iterable[tuple[Any, ...]],
    *,
    metrics: bool = True,
) -> Iterator[ContentFile]:
    """Read the files whose `data_file` begins at these positions. Without `metrics` the statistics
    are skipped."""
    record = data_file_record(schema.record)
    maps = _MAPS if metrics else {}
    fields = [optional_field(record, field_id, kind) for field_id, kind in _FILE.values()]
    projection = Projection(record, [*fields, *(_map(record, field) for field in maps.values())])
    names = (*_FILE, *maps)
    files = _read_at(projection, positions)
    for values, partition in zip(files, partitions, strict=True):
        yield _content_file(dict(zip(names, values, strict=True)), partition)


def _content_file(values: dict[str, Any], partition: tuple[Any, ...]) -> ContentFile:
    content = values.pop("content") or DATA_CONTENT
    values["file_format"] = values["file_format"] or ""
    values["file_size_in_bytes"] = values["file_size_in_bytes"] or 0
    if content == DATA_CONTENT:
        for name in _DELETES_ONLY:
            del values[name]
        return DataFile(partition=partition, **values)
    del values["first_row_id"]
    return DeleteFile(content=content, partition=partition, **values)


# --- delete files ----------------------------------------------------------------------------


def delete_columns(file: AvroFile, rows: DecodedRows) -> DeleteColumns:
    """Read the fields that only delete files have, for every row. Raises UnreadableAvro."""
    record = data_file_record(file.schema.record)
    projection = Projection(
        record,
        [
            optional_field(record, _CONTENT_OFFSET, Integer),
            optional_field(record, _CONTENT_SIZE, Integer),
            optional_field(record, _REFERENCED_DATA_FILE, String),
            optional_field(record, _EQUALITY_IDS, Array),
            _map(record, LOWER_BOUNDS),
            _map(record, UPPER_BOUNDS),
        ],
    )
    deletes: list[DeleteRow] = []
    # Positions count from the first block, as if all blocks were joined.
    data = b"".join([block for _, block in file.blocks()])
    files = _read_at(projection, ((data, at) for at in rows.data_file_at.tolist()))
    for content, values in zip(rows.content.tolist(), files, strict=True):
        offset, size, path, equality_ids, lower, upper = values
        deletes.append(
            (
                NONE if offset is None else offset,
                NONE if size is None else size,
                referenced_data_file(content, path, lower, upper),
                None if equality_ids is None else tuple(equality_ids),
            )
        )
    return DeleteColumns.of(deletes)


def referenced_data_file(
    content: int,
    referenced: str | None,
    lower: FieldMap[bytes] | None,
    upper: FieldMap[bytes] | None,
) -> str | None:
    """Return the one data file of a position delete file, if there is one: the field, or equal
    bounds of the column `file_path` (Java's ContentFileUtil)."""
    if content != POSITION_DELETES or referenced is not None:
        return None if content == EQUALITY_DELETES else referenced
    low = None if lower is None else lower.get(DELETE_FILE_PATH_ID)
    high = None if upper is None else upper.get(DELETE_FILE_PATH_ID)
    if low is None or low != high:
        return None
    try:
        return low.decode()
    except UnicodeDecodeError:
        raise UnreadableAvro("the bounds of file_path are not UTF-8") from None

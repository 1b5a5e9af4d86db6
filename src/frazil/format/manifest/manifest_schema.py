"""The schemas of manifests for each format version, as written by Iceberg's Java library.

Names, ids and the order of fields are those of Java's V1Metadata, V2Metadata and V3Metadata. Types
become Avro types by the rules of TypeToSchema (spec, Appendix A).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from frazil.format.avro.avro_schema import RecordSchema, record_schema
from frazil.values import types
from frazil.values.type_json import struct_to_json

FORMAT_VERSIONS: Final = (1, 2, 3)


def required(field_id: int, name: str, type_: types.Type) -> types.NestedField:
    return types.NestedField(field_id, name, type_, required=True)


def optional(field_id: int, name: str, type_: types.Type) -> types.NestedField:
    return types.NestedField(field_id, name, type_, required=False)


def _metrics(
    field_id: int, name: str, key_id: int, value_id: int, value: types.Type
) -> types.NestedField:
    kind = types.MapType(required(key_id, "key", types.INT), required(value_id, "value", value))
    return optional(field_id, name, kind)


_CONTENT: Final = required(134, "content", types.INT)
_FILE: Final = (
    required(100, "file_path", types.STRING),
    required(101, "file_format", types.STRING),
)
_SIZES: Final = (
    required(103, "record_count", types.LONG),
    required(104, "file_size_in_bytes", types.LONG),
)
_BLOCK_SIZE: Final = required(105, "block_size_in_bytes", types.LONG)
_METRICS: Final = (
    _metrics(108, "column_sizes", 117, 118, types.LONG),
    _metrics(109, "value_counts", 119, 120, types.LONG),
    _metrics(110, "null_value_counts", 121, 122, types.LONG),
    _metrics(137, "nan_value_counts", 138, 139, types.LONG),
    _metrics(125, "lower_bounds", 126, 127, types.BINARY),
    _metrics(128, "upper_bounds", 129, 130, types.BINARY),
    optional(131, "key_metadata", types.BINARY),
    optional(132, "split_offsets", types.ListType(required(133, "element", types.LONG))),
)
_EQUALITY_IDS: Final = optional(
    135, "equality_ids", types.ListType(required(136, "element", types.INT))
)
_SORT_ORDER_ID: Final = optional(140, "sort_order_id", types.INT)
_FIRST_ROW_ID: Final = optional(142, "first_row_id", types.LONG)
_REFERENCED_DATA_FILE: Final = optional(143, "referenced_data_file", types.STRING)
_DELETION_VECTOR: Final = (
    optional(144, "content_offset", types.LONG),
    optional(145, "content_size_in_bytes", types.LONG),
)
_STATUS: Final = (required(0, "status", types.INT), optional(1, "snapshot_id", types.LONG))
_SEQUENCE_NUMBERS: Final = (
    optional(3, "sequence_number", types.LONG),
    optional(4, "file_sequence_number", types.LONG),
)


@lru_cache(maxsize=256)
def manifest_schema(partition_type: types.StructType, format_version: int) -> RecordSchema:
    """Return the Avro schema of a manifest's entries."""
    return avro_schema(_entry_type(partition_type, format_version), "manifest_entry")


def iceberg_schema_json(partition_type: types.StructType, format_version: int) -> str:
    """Return the same schema in Iceberg's own terms, which Java writes in addition to Avro's."""
    return schema_json(_entry_type(partition_type, format_version))


def avro_schema(struct: types.StructType, name: str) -> RecordSchema:
    """Return a struct as an Avro schema."""
    tree = _AvroTypes().struct(struct, name)
    return record_schema(json.dumps(tree, separators=(",", ":")))


def schema_json(struct: types.StructType) -> str:
    """Return a struct as the JSON of an Iceberg schema."""
    return json.dumps({"schema-id": 0, **struct_to_json(struct)}, separators=(",", ":"))


def _entry_type(partition_type: types.StructType, format_version: int) -> types.StructType:
    if format_version not in FORMAT_VERSIONS:
        raise ValueError(f"format version {format_version} has no manifests that can be written")
    file = types.StructType(_file_fields(partition_type, format_version))
    numbers = _SEQUENCE_NUMBERS if format_version > 1 else ()
    return types.StructType((*_STATUS, *numbers, required(2, "data_file", file)))


def _file_fields(
    partition_type: types.StructType, format_version: int
) -> tuple[types.NestedField, ...]:
    partition = required(102, "partition", partition_type)
    if format_version == 1:
        return (*_FILE, partition, *_SIZES, _BLOCK_SIZE, *_METRICS, _SORT_ORDER_ID)
    second = (_CONTENT, *_FILE, partition, *_SIZES, *_METRICS, _EQUALITY_IDS, _SORT_ORDER_ID)
    if format_version == 2:
        return (*second, _REFERENCED_DATA_FILE)
    return (*second, _FIRST_ROW_ID, _REFERENCED_DATA_FILE, *_DELETION_VECTOR)


# --- Avro's terms ----------------------------------------------------------------------------


def _timestamp(unit: str, *, is_utc: bool) -> dict[str, Any]:
    return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": is_utc}


_AVRO: Final[Mapping[types.TypeId, Any]] = {
    types.TypeId.UNKNOWN: "null",
    types.TypeId.BOOLEAN: "boolean",
    types.TypeId.INT: "int",
    types.TypeId.LONG: "long",
    types.TypeId.FLOAT: "float",
    types.TypeId.DOUBLE: "double",
    types.TypeId.STRING: "string",
    types.TypeId.BINARY: "bytes",
    types.TypeId.GEOMETRY: "bytes",
    types.TypeId.GEOGRAPHY: "bytes",
    types.TypeId.DATE: {"type": "int", "logicalType": "date"},
    types.TypeId.TIME: {"type": "long", "logicalType": "time-micros"},
    types.TypeId.TIMESTAMP: _timestamp("micros", is_utc=False),
    types.TypeId.TIMESTAMPTZ: _timestamp("micros", is_utc=True),
    types.TypeId.TIMESTAMP_NS: _timestamp("nanos", is_utc=False),
    types.TypeId.TIMESTAMPTZ_NS: _timestamp("nanos", is_utc=True),
}


class _AvroTypes:
    """Converts the types of one schema to Avro. A named type is defined only once in a schema."""

    def __init__(self) -> None:
        self._defined: set[str] = set()

    def struct(self, struct: types.StructType, name: str) -> dict[str, Any]:
        return {
            "type": "record",
            "name": name,
            "fields": [self._field(field) for field in struct.fields],
        }

    def _field(self, field: types.NestedField) -> dict[str, Any]:
        name = avro_name(field.name)
        tree: dict[str, Any] = {"name": name, "type": self._type(field.type, field.field_id)}
        if not field.required:
            if tree["type"] != "null":
                tree["type"] = ["null", tree["type"]]
            tree["default"] = None
        if name != field.name:
            tree["iceberg-field-name"] = field.name
        return {**tree, "field-id": field.field_id}

    def _type(self, type_: types.Type, field_id: int) -> Any:
        if isinstance(type_, types.StructType):
            return self.struct(type_, f"r{field_id}")
        if isinstance(type_, types.ListType):
            element = type_.element
            items = self._type(element.type, element.field_id)
            return {"type": "array", "items": items, "element-id": element.field_id}
        if isinstance(type_, types.MapType):
            name = f"k{type_.key.field_id}_v{type_.value.field_id}"
            items = self.struct(types.StructType((type_.key, type_.value)), name)
            return {"type": "array", "items": items, "logicalType": "map"}
        if isinstance(type_, types.DecimalType):
            name = f"decimal_{type_.precision}_{type_.scale}"
            logical = {
                "logicalType": "decimal",
                "precision": type_.precision,
                "scale": type_.scale,
            }
            return self._fixed(name, decimal_bytes(type_.precision), logical)
        if isinstance(type_, types.FixedType):
            return self._fixed(f"fixed_{type_.length}", type_.length, {})
        if type_.type_id is types.TypeId.UUID:
            return self._fixed("uuid_fixed", 16, {"logicalType": "uuid"})
        return _AVRO[type_.type_id]

    def _fixed(self, name: str, size: int, logical: dict[str, Any]) -> Any:
        if name in self._defined:
            return name
        self._defined.add(name)
        return {"type": "fixed", "name": name, "size": size, **logical}


def decimal_bytes(precision: int) -> int:
    """Return how many bytes can store every decimal of this precision (spec, Appendix A)."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def avro_name(name: str) -> str:
    """Return the name in a form that Avro allows (Java's AvroSchemaUtil.makeCompatibleName)."""
    units = name.encode("utf-16-be", "surrogatepass")
    chars = [chr(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2)]
    return "".join(_avro_char(char, position == 0) for position, char in enumerate(chars))


def _avro_char(char: str, first: bool) -> str:
    if char == "_" or char.isalpha() or (char.isdecimal() and not first):
        return char
    return f"_{char}" if char.isdecimal() else f"_x{ord(char):X}"

"""Arrow types as Iceberg types: the schema of a new table for the rows of an Arrow schema."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from frazil.values import types
from frazil.values.field_ids import NO_ID, struct_with_ids
from frazil.values.parquet_columns import is_list
from frazil.wire.errors import BadRequest

_NANOS_FORMAT_VERSION: Final = 3
_UUID: Final = "arrow.uuid"
_PRIMITIVES: Final[dict[pa.DataType, types.Type]] = {
    pa.bool_(): types.BOOLEAN,
    pa.int8(): types.INT,
    pa.int16(): types.INT,
    pa.int32(): types.INT,
    pa.int64(): types.LONG,
    pa.uint8(): types.INT,
    pa.uint16(): types.INT,
    pa.uint32(): types.LONG,
    pa.float16(): types.FLOAT,
    pa.float32(): types.FLOAT,
    pa.float64(): types.DOUBLE,
    pa.date32(): types.DATE,
    pa.date64(): types.DATE,
    pa.string(): types.STRING,
    pa.large_string(): types.STRING,
    pa.string_view(): types.STRING,
    pa.binary(): types.BINARY,
    pa.large_binary(): types.BINARY,
    pa.binary_view(): types.BINARY,
    pa.null(): types.UNKNOWN,
}


def iceberg_schema(schema: pa.Schema, format_version: int) -> types.StructType:
    """Return an Arrow schema as Iceberg's, with IDs from 1.

    Before version 3, timestamps of nanoseconds become microseconds, as those of pandas usually are.
    """
    fields = tuple(_field(field, "", format_version) for field in schema)
    if not fields:
        raise BadRequest("schema: a table needs at least one column")
    return struct_with_ids(types.StructType(fields))


def _field(field: pa.Field, prefix: str, version: int) -> types.NestedField:
    path = f"{prefix}{field.name}"
    doc = (field.metadata or {}).get(b"doc")
    return types.NestedField(
        NO_ID,
        field.name,
        _type(field.type, path, version),
        required=not field.nullable,
        doc=None if doc is None else doc.decode(),
    )


def _type(type_: pa.DataType, path: str, version: int) -> types.Type:
    if isinstance(type_, pa.BaseExtensionType):
        is_uuid = type_.extension_name == _UUID
        return types.UUID if is_uuid else _type(type_.storage_type, path, version)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _type(type_.value_type, path, version)
    if pa.types.is_struct(type_):
        return types.StructType(tuple(_field(field, f"{path}.", version) for field in type_))
    if is_list(type_):
        return types.ListType(_part("element", type_.value_field, path, version))
    if pa.types.is_map(type_):
        key = _part("key", type_.key_field, path, version)
        return types.MapType(key, _part("value", type_.item_field, path, version))
    return _primitive(type_, path, version)


def _part(name: str, field: pa.Field, path: str, version: int) -> types.NestedField:
    type_ = _type(field.type, f"{path}.{name}", version)
    return types.NestedField(NO_ID, name, type_, required=name == "key" or not field.nullable)


def _primitive(type_: pa.DataType, path: str, version: int) -> types.Type:
    known = _PRIMITIVES.get(type_)
    if known is None:
        known = _parameterized(type_, path, version)
    if types.min_format_version(known) > version:
        raise BadRequest(
            f"column {path}: {type_} needs a table of format version "
            f"{types.min_format_version(known)}: give it another type, or format_version=3"
        )
    return known


def _parameterized(type_: pa.DataType, path: str, version: int) -> types.Type:
    if pa.types.is_timestamp(type_):
        if type_.unit == "ns" and version >= _NANOS_FORMAT_VERSION:
            return types.TIMESTAMP_NS if type_.tz is None else types.TIMESTAMPTZ_NS
        return types.TIMESTAMP if type_.tz is None else types.TIMESTAMPTZ
    if pa.types.is_time(type_):
        return types.TIME
    if pa.types.is_fixed_size_binary(type_):
        return types.FixedType(type_.byte_width)
    if pa.types.is_decimal(type_):
        try:
            return types.DecimalType(type_.precision, type_.scale)
        except types.InvalidType as error:
            raise BadRequest(f"column {path}: {error}") from None
    hint = "; cast it to int64 or decimal128(20, 0)" if pa.types.is_uint64(type_) else ""
    raise BadRequest(f"column {path}: Iceberg has no type for Arrow's {type_}{hint}")

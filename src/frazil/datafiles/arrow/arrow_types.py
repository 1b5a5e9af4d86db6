"""Iceberg's types as Arrow's: what the columns of a table's files are made of.

Runs on executors: no pyspark here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from frazil.datafiles.arrow import arrow_spatial
from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED_FIELD, ROW_ID_FIELD
from frazil.values.types import (
    INT,
    LONG,
    STRING,
    DecimalType,
    FixedType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    TypeId,
)
from frazil.wire.errors import BadRequest

FIELD_ID: Final = b"PARQUET:field_id"
UTC: Final = "UTC"

METADATA_FIELDS: Final[Mapping[str, NestedField]] = {
    field.name: field
    for field in (
        NestedField(2147483646, "_file", STRING, required=True),
        NestedField(2147483645, "_pos", LONG, required=True),
        NestedField(2147483643, "_spec_id", INT, required=True),
        ROW_ID_FIELD,
        LAST_UPDATED_FIELD,
    )
}
"""What a scan can tell of a row besides the table's columns (spec, "Reserved Field IDs")."""

LeafType = Callable[[Type], pa.DataType]


def arrow_schema(schema: StructType, *, lineage: bool = False) -> pa.Schema:
    """The columns of a data file, with field ids at every level.

    A column of type unknown is not there: files do not have it (spec, Appendix A).
    """
    fields = (*schema.fields, ROW_ID_FIELD, LAST_UPDATED_FIELD) if lineage else schema.fields
    return pa.schema(_stored(fields, ""))


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Spark exchanges them with Python for `spark_schema(schema)`."""
    return pa.schema([_spark_field(field) for field in schema.fields])


def field_id_of(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(FIELD_ID)
    # Some writers give a negative id to columns that have none.
    return None if found is None or int(found) < 0 else int(found)


def is_variant(type_: pa.DataType) -> bool:
    """A type of a file's column that stands for a variant. Its parts have no field ids; those of a
    struct of the table have."""
    return bool(type_ == _VARIANT) and all(field_id_of(part) is None for part in type_)


# --- in files --------------------------------------------------------------------------------


def _stored(fields: tuple[NestedField, ...], prefix: str) -> list[pa.Field]:
    return [
        _file_field(field, f"{prefix}{field.name}")
        for field in fields
        if field.type.type_id is not TypeId.UNKNOWN
    ]


def _file_field(field: NestedField, path: str) -> pa.Field:
    return pa.field(
        field.name,
        _file_type(field.type, path),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.field_id)},
    )


def _file_type(type_: Type, path: str) -> pa.DataType:
    if isinstance(type_, StructType):
        stored = _stored(type_.fields, f"{path}.")
        if not stored:
            raise BadRequest(f"column {path}: Parquet cannot store {type_}, which has no values")
        return pa.struct(stored)
    if isinstance(type_, ListType):
        return pa.list_(_part(type_.element, f"{path}.element"))
    if isinstance(type_, MapType):
        return pa.map_(_part(type_.key, f"{path}.key"), _part(type_.value, f"{path}.value"))
    if isinstance(type_, FixedType) and type_.length == 0:
        raise BadRequest(f"column {path}: Parquet cannot store {type_}, which has no bytes")
    return _FILE_TYPES[type_.type_id](type_)


def _part(field: NestedField, path: str) -> pa.Field:
    if field.type.type_id is TypeId.UNKNOWN:
        raise BadRequest(f"column {path}: Parquet cannot store a list or map of {field.type}")
    return _file_field(field, path)


def _decimal(type_: Type) -> pa.DataType:
    assert isinstance(type_, DecimalType)
    return pa.decimal128(type_.precision, type_.scale)


def _fixed(type_: Type) -> pa.DataType:
    assert isinstance(type_, FixedType)
    return pa.binary(type_.length)


def _always(found: pa.DataType) -> LeafType:
    return lambda type_: found


_VARIANT: Final = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)

_FILE_TYPES: Final[dict[TypeId, LeafType]] = {
    TypeId.BOOLEAN: _always(pa.bool_()),
    TypeId.INT: _always(pa.int32()),
    TypeId.LONG: _always(pa.int64()),
    TypeId.FLOAT: _always(pa.float32()),
    TypeId.DOUBLE: _always(pa.float64()),
    TypeId.DECIMAL: _decimal,
    TypeId.DATE: _always(pa.date32()),
    TypeId.TIME: _always(pa.time64("us")),
    TypeId.TIMESTAMP: _always(pa.timestamp("us")),
    TypeId.TIMESTAMPTZ: _always(pa.timestamp("us", UTC)),
    TypeId.TIMESTAMP_NS: _always(pa.timestamp("ns")),
    TypeId.TIMESTAMPTZ_NS: _always(pa.timestamp("ns", UTC)),
    TypeId.STRING: _always(pa.string()),
    # The extension is what makes pyarrow annotate the column as Parquet's UUID.
    TypeId.UUID: _always(pa.uuid()),
    TypeId.FIXED: _fixed,
    TypeId.BINARY: _always(pa.binary()),
    TypeId.VARIANT: _always(_VARIANT),
    TypeId.GEOMETRY: arrow_spatial.file_type,
    TypeId.GEOGRAPHY: arrow_spatial.file_type,
}


# --- as Spark has them -----------------------------------------------------------------------


def _spark_field(field: NestedField) -> pa.Field:
    return pa.field(field.name, _spark_type(field.type), nullable=not field.required)


def _spark_type(type_: Type) -> pa.DataType:
    if isinstance(type_, StructType):
        return pa.struct([_spark_field(field) for field in type_.fields])
    if isinstance(type_, ListType):
        return pa.list_(_spark_field(type_.element))
    if isinstance(type_, MapType):
        return pa.map_(_spark_field(type_.key), _spark_field(type_.value))
    special = _SPARK_TYPES.get(type_.type_id)
    return _FILE_TYPES[type_.type_id](type_) if special is None else special(type_)


_SPARK_TYPES: Final[dict[TypeId, LeafType]] = {
    TypeId.TIME: _always(pa.time64("ns")),
    TypeId.TIMESTAMP_NS: _always(pa.timestamp("us")),
    TypeId.TIMESTAMPTZ_NS: _always(pa.timestamp("us", UTC)),
    TypeId.UUID: _always(pa.string()),
    TypeId.FIXED: _always(pa.binary()),
    TypeId.UNKNOWN: _always(pa.null()),
    TypeId.VARIANT: _always(
        pa.struct(
            [
                pa.field("value", pa.binary(), nullable=False),
                pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
            ]
        )
    ),
    TypeId.GEOMETRY: arrow_spatial.spark_type,
    TypeId.GEOGRAPHY: arrow_spatial.spark_type,
}

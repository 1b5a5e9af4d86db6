"""Convert Iceberg's types to Spark's and back.

Spark has fewer types: nanoseconds become microseconds, a UUID becomes text, fixed becomes binary. A
type that Spark does not have is an error with the column's name, because a scan must not leave out
values silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pyspark.sql.types as st

from frazil.datafiles.arrow.arrow_types import spatial_type, srid_of
from frazil.datafiles.footers.python_values import NANOS as NANOS
from frazil.datafiles.footers.python_values import TIMESTAMPS as TIMESTAMPS
from frazil.datafiles.footers.python_values import WITH_ZONE as WITH_ZONE
from frazil.values import types
from frazil.values.field_ids import NO_ID, fresh_ids, with_ids
from frazil.wire.errors import BadRequest

FIELD_ID_METADATA: Final = "parquet.field.id"
"""The metadata key in which Spark's Parquet reader and writer look for a field ID."""
COMMENT_METADATA: Final = "comment"
MICROSECOND_DIGITS: Final = 6
FLAT_TYPES: Final = frozenset(
    {
        types.TypeId.BOOLEAN,
        types.TypeId.INT,
        types.TypeId.LONG,
        types.TypeId.FLOAT,
        types.TypeId.DOUBLE,
        types.TypeId.DECIMAL,
        types.TypeId.DATE,
        types.TypeId.TIMESTAMP,
        types.TypeId.TIMESTAMPTZ,
        types.TypeId.STRING,
        types.TypeId.BINARY,
    }
)
"""Primitive types that Spark stores in Parquet as Iceberg does."""
FLOATS: Final = frozenset({types.TypeId.FLOAT, types.TypeId.DOUBLE})


# --- from Iceberg to Spark -------------------------------------------------------------------


def spark_schema(schema: types.StructType, *, field_ids: bool = False) -> st.StructType:
    """Return a schema as Spark's type.

    `field_ids` puts the ID of each struct field in its metadata. Spark cannot store the IDs of list
    elements, map keys and map values.
    """
    return _spark_struct(schema, "", field_ids)


def spark_type(type_: types.Type) -> st.DataType:
    """Return a type as Spark's; raise BadRequest if this Spark has none."""
    return _spark_type(type_, "", field_ids=False)


def _spark_type(type_: types.Type, path: str, field_ids: bool) -> st.DataType:
    if isinstance(type_, types.StructType):
        return _spark_struct(type_, f"{path}.", field_ids)
    if isinstance(type_, types.ListType):
        element = type_.element
        element_type = _spark_type(element.type, f"{path}.element", field_ids)
        return st.ArrayType(element_type, containsNull=not element.required)
    if isinstance(type_, types.MapType):
        key = _spark_type(type_.key.type, f"{path}.key", field_ids)
        value = _spark_type(type_.value.type, f"{path}.value", field_ids)
        return st.MapType(key, value, valueContainsNull=not type_.value.required)
    return _primitive(type_, path)


def _spark_struct(type_: types.StructType, prefix: str, field_ids: bool) -> st.StructType:
    fields = []
    for field in type_.fields:
        field_type = _spark_type(field.type, f"{prefix}{field.name}", field_ids)
        metadata: dict[str, Any] = {}
        if field.doc is not None:
            metadata[COMMENT_METADATA] = field.doc
        if field_ids:
            metadata[FIELD_ID_METADATA] = field.field_id
        fields.append(st.StructField(field.name, field_type, not field.required, metadata))
    return st.StructType(fields)


def _missing_in_spark(type_: types.Type, path: str, reason: str) -> BadRequest:
    prefix = f"column {path}: " if path else ""
    return BadRequest(f"{prefix}this Spark has no type for {type_}, {reason}; select other columns")


def _primitive(type_: types.Type, path: str) -> st.DataType:
    name = _CLASSES[type_.type_id]
    if isinstance(type_, types.GeographyType) and type_.algorithm is not _SPHERICAL:
        raise _missing_in_spark(type_, path, "which has edges other than spherical")
    cls: Any = getattr(st, name, None)
    if cls is None:
        raise _missing_in_spark(type_, path, f"which PySpark {_NEWER_CLASSES[name]} has")
    arguments: tuple[int | None, ...] = ()
    if isinstance(type_, types.DecimalType):
        arguments = (type_.precision, type_.scale)
    elif type_.type_id is types.TypeId.TIME:
        arguments = (MICROSECOND_DIGITS,)
    elif isinstance(type_, types.GeometryType | types.GeographyType):
        arguments = (srid_of(type_),)
        if arguments == (None,):
            raise _missing_in_spark(type_, path, f"which has the CRS {type_.crs}")
    primitive: st.DataType = cls(*arguments)
    return primitive


# --- from Spark to Iceberg -------------------------------------------------------------------


def iceberg_schema(schema: st.StructType) -> types.StructType:
    """Return the schema of a table for the rows of a frame, with IDs from 1.

    All columns are optional: a query without nulls today does not make them required.
    """
    struct = iceberg_type(schema, count(1))
    assert isinstance(struct, types.StructType)
    return struct


def iceberg_type(type_: st.DataType, ids: Iterator[int], path: str = "") -> types.Type:
    """Return Spark's type as Iceberg's, with new field IDs and all fields optional."""
    return with_ids(_iceberg_type(type_, path), fresh_ids(ids))


def _iceberg_type(type_: st.DataType, path: str) -> types.Type:
    if isinstance(type_, st.StructType):
        prefix = f"{path}." if path else ""
        return types.StructType(tuple(_iceberg_field(field, prefix) for field in type_.fields))
    if isinstance(type_, st.ArrayType):
        element = _iceberg_type(type_.elementType, f"{path}.element")
        return types.ListType(types.NestedField(NO_ID, "element", element, required=False))
    if isinstance(type_, st.MapType):
        key = _iceberg_type(type_.keyType, f"{path}.key")
        value = _iceberg_type(type_.valueType, f"{path}.value")
        return types.MapType(
            types.NestedField(NO_ID, "key", key, required=True),
            types.NestedField(NO_ID, "value", value, required=False),
        )
    return _iceberg_primitive(type_, path)


def _iceberg_field(field: st.StructField, prefix: str) -> types.NestedField:
    type_ = _iceberg_type(field.dataType, f"{prefix}{field.name}")
    doc = (field.metadata or {}).get(COMMENT_METADATA)
    return types.NestedField(NO_ID, field.name, type_, required=False, doc=doc)


def _iceberg_primitive(type_: st.DataType, path: str) -> types.Type:
    if isinstance(type_, st.DecimalType):
        return types.DecimalType(type_.precision, type_.scale)
    name = type(type_).__name__
    known = _ICEBERG_TYPES.get(name)
    if known is not None:
        return known
    spatial = spatial_type(name, getattr(type_, "srid", None))
    if spatial is not None:
        return spatial
    prefix = f"column {path}: " if path else ""
    raise BadRequest(
        f"{prefix}Iceberg has no type for Spark's {type_.simpleString()}: cast it to another one"
    )


_ICEBERG_TYPES: Final[dict[str, types.Type]] = {
    "BooleanType": types.BOOLEAN,
    "ByteType": types.INT,
    "ShortType": types.INT,
    "IntegerType": types.INT,
    "LongType": types.LONG,
    "FloatType": types.FLOAT,
    "DoubleType": types.DOUBLE,
    "DateType": types.DATE,
    "TimeType": types.TIME,
    "TimestampType": types.TIMESTAMPTZ,
    "TimestampNTZType": types.TIMESTAMP,
    "CharType": types.STRING,
    "VarcharType": types.STRING,
    "StringType": types.STRING,
    "BinaryType": types.BINARY,
    "NullType": types.UNKNOWN,
    "VariantType": types.VARIANT,
}
"""Types by the name of Spark's class; of several classes, the last one is that of the type."""
_CLASSES: Final[dict[types.TypeId, str]] = {
    **{type_.type_id: name for name, type_ in _ICEBERG_TYPES.items()},
    types.TypeId.DECIMAL: "DecimalType",
    types.TypeId.TIMESTAMP_NS: "TimestampNTZType",
    types.TypeId.TIMESTAMPTZ_NS: "TimestampType",
    types.TypeId.UUID: "StringType",
    types.TypeId.FIXED: "BinaryType",
    types.TypeId.GEOMETRY: "GeometryType",
    types.TypeId.GEOGRAPHY: "GeographyType",
}
_NEWER_CLASSES: Final = {
    "VariantType": "4.0",
    "TimeType": "4.1",
    "GeometryType": "4.1",
    "GeographyType": "4.1",
}
"""The versions of PySpark since which it has the classes."""
_SPHERICAL: Final = types.EdgeAlgorithm.SPHERICAL

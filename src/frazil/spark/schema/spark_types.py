"""Iceberg's types as Spark's, and back.

Spark has fewer: nanoseconds become microseconds, a uuid its text, a fixed plain binary. What Spark
cannot hold is an error that names the column, because a scan must not leave values out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any, Final

import pyspark.sql.types as st

from frazil.datafiles.arrow.arrow_types import spatial_type, srid_of
from frazil.values.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNKNOWN,
    VARIANT,
    DecimalType,
    EdgeAlgorithm,
    GeographyType,
    GeometryType,
    ListType,
    MapType,
    NestedField,
    StructType,
    Type,
    TypeId,
)
from frazil.wire.errors import BadRequest

FIELD_ID_METADATA: Final = "parquet.field.id"
"""Where Spark's own Parquet reader and writer look for a column's field id."""
COMMENT_METADATA: Final = "comment"
MICROSECOND_DIGITS: Final = 6


# --- Iceberg's to Spark's --------------------------------------------------------------------


def spark_schema(schema: StructType, *, field_ids: bool = False) -> st.StructType:
    """`field_ids` puts the id of each field of a struct in its metadata; Spark has no place for
    those of list elements, map keys and values."""
    return _spark_struct(schema, "", field_ids)


def spark_type(type_: Type) -> st.DataType:
    return _spark_type(type_, "", field_ids=False)


def _spark_type(type_: Type, path: str, field_ids: bool) -> st.DataType:
    if isinstance(type_, StructType):
        return _spark_struct(type_, f"{path}.", field_ids)
    if isinstance(type_, ListType):
        element = type_.element
        found = _spark_type(element.type, f"{path}.element", field_ids)
        return st.ArrayType(found, containsNull=not element.required)
    if isinstance(type_, MapType):
        key = _spark_type(type_.key.type, f"{path}.key", field_ids)
        value = _spark_type(type_.value.type, f"{path}.value", field_ids)
        return st.MapType(key, value, valueContainsNull=not type_.value.required)
    return _SPARK_TYPES[type_.type_id](type_, path)


def _spark_struct(type_: StructType, prefix: str, field_ids: bool) -> st.StructType:
    fields = []
    for field in type_.fields:
        found = _spark_type(field.type, f"{prefix}{field.name}", field_ids)
        metadata: dict[str, Any] = {}
        if field.doc is not None:
            metadata[COMMENT_METADATA] = field.doc
        if field_ids:
            metadata[FIELD_ID_METADATA] = field.field_id
        fields.append(st.StructField(field.name, found, not field.required, metadata))
    return st.StructType(fields)


def _missing_in_spark(type_: Type, path: str, needed: str) -> BadRequest:
    where = f"column {path}: " if path else ""
    return BadRequest(f"{where}this Spark has no type for {type_}, {needed}; select other columns")


def _time(type_: Type, path: str) -> st.DataType:
    time = getattr(st, "TimeType", None)
    if time is None:
        raise _missing_in_spark(type_, path, "which PySpark 4.1 has")
    found: st.DataType = time(MICROSECOND_DIGITS)
    return found


def _variant(type_: Type, path: str) -> st.DataType:
    variant = getattr(st, "VariantType", None)
    if variant is None:
        raise _missing_in_spark(type_, path, "which PySpark 4.0 has")
    found: st.DataType = variant()
    return found


def _geometry(type_: Type, path: str) -> st.DataType:
    assert isinstance(type_, GeometryType)
    return _spatial("GeometryType", type_, path, type_.crs)


def _geography(type_: Type, path: str) -> st.DataType:
    assert isinstance(type_, GeographyType)
    if type_.algorithm is not EdgeAlgorithm.SPHERICAL:
        raise _missing_in_spark(type_, path, "which has edges other than spherical")
    return _spatial("GeographyType", type_, path, type_.crs)


def _spatial(name: str, type_: Type, path: str, crs: str) -> st.DataType:
    kind = getattr(st, name, None)
    if kind is None:
        raise _missing_in_spark(type_, path, "which PySpark 4.1 has")
    srid = srid_of(type_)
    if srid is None:
        raise _missing_in_spark(type_, path, f"which has the CRS {crs}")
    found: st.DataType = kind(srid)
    return found


def _always(make: Callable[[], st.DataType]) -> Callable[[Type, str], st.DataType]:
    return lambda type_, path: make()


def _decimal(type_: Type, path: str) -> st.DataType:
    assert isinstance(type_, DecimalType)
    return st.DecimalType(type_.precision, type_.scale)


_SPARK_TYPES: Final[dict[TypeId, Callable[[Type, str], st.DataType]]] = {
    TypeId.BOOLEAN: _always(st.BooleanType),
    TypeId.INT: _always(st.IntegerType),
    TypeId.LONG: _always(st.LongType),
    TypeId.FLOAT: _always(st.FloatType),
    TypeId.DOUBLE: _always(st.DoubleType),
    TypeId.DECIMAL: _decimal,
    TypeId.DATE: _always(st.DateType),
    TypeId.TIME: _time,
    TypeId.TIMESTAMP: _always(st.TimestampNTZType),
    TypeId.TIMESTAMPTZ: _always(st.TimestampType),
    TypeId.TIMESTAMP_NS: _always(st.TimestampNTZType),
    TypeId.TIMESTAMPTZ_NS: _always(st.TimestampType),
    TypeId.STRING: _always(st.StringType),
    TypeId.UUID: _always(st.StringType),
    TypeId.FIXED: _always(st.BinaryType),
    TypeId.BINARY: _always(st.BinaryType),
    TypeId.UNKNOWN: _always(st.NullType),
    TypeId.VARIANT: _variant,
    TypeId.GEOMETRY: _geometry,
    TypeId.GEOGRAPHY: _geography,
}


# --- Spark's to Iceberg's --------------------------------------------------------------------


def iceberg_schema(schema: st.StructType, *, all_optional: bool = False) -> StructType:
    """A new table's schema, with ids of its own from 1.

    `all_optional` as CREATE TABLE AS SELECT has it: that a query yields no nulls today is no
    promise that the table makes.
    """
    found = iceberg_type(schema, count(1), all_optional=all_optional)
    assert isinstance(found, StructType)
    return found


def iceberg_type(
    type_: st.DataType, ids: Iterator[int], *, all_optional: bool = False, path: str = ""
) -> Type:
    """Ids are given as Java's `AssignFreshIds` does: all fields of a level before what is in
    them."""
    if isinstance(type_, st.StructType):
        return _iceberg_struct(type_, ids, all_optional, path)
    if isinstance(type_, st.ArrayType):
        field_id = next(ids)
        element = iceberg_type(
            type_.elementType, ids, all_optional=all_optional, path=f"{path}.element"
        )
        required = not (type_.containsNull or all_optional)
        return ListType(NestedField(field_id, "element", element, required))
    if isinstance(type_, st.MapType):
        key_id, value_id = next(ids), next(ids)
        key = iceberg_type(type_.keyType, ids, all_optional=all_optional, path=f"{path}.key")
        value = iceberg_type(type_.valueType, ids, all_optional=all_optional, path=f"{path}.value")
        required = not (type_.valueContainsNull or all_optional)
        return MapType(
            NestedField(key_id, "key", key, True), NestedField(value_id, "value", value, required)
        )
    return _iceberg_primitive(type_, path)


def _iceberg_struct(
    type_: st.StructType, ids: Iterator[int], all_optional: bool, path: str
) -> StructType:
    prefix = f"{path}." if path else ""
    field_ids = [next(ids) for _ in type_.fields]
    fields = []
    for field_id, field in zip(field_ids, type_.fields, strict=True):
        found = iceberg_type(
            field.dataType, ids, all_optional=all_optional, path=f"{prefix}{field.name}"
        )
        required = not (field.nullable or all_optional) and found is not UNKNOWN
        doc = (field.metadata or {}).get(COMMENT_METADATA)
        fields.append(NestedField(field_id, field.name, found, required, doc))
    return StructType(tuple(fields))


def _iceberg_primitive(type_: st.DataType, path: str) -> Type:
    if isinstance(type_, st.DecimalType):
        return DecimalType(type_.precision, type_.scale)
    name = type(type_).__name__
    known = _ICEBERG_TYPES.get(name)
    if known is not None:
        return known
    spatial = spatial_type(name, getattr(type_, "srid", None))
    if spatial is not None:
        return spatial
    where = f"column {path}: " if path else ""
    raise BadRequest(
        f"{where}Iceberg has no type for Spark's {type_.simpleString()}: cast it to another one"
    )


_ICEBERG_TYPES: Final[dict[str, Type]] = {
    "BooleanType": BOOLEAN,
    "ByteType": INT,
    "ShortType": INT,
    "IntegerType": INT,
    "LongType": LONG,
    "FloatType": FLOAT,
    "DoubleType": DOUBLE,
    "DateType": DATE,
    "TimeType": TIME,
    "TimestampType": TIMESTAMPTZ,
    "TimestampNTZType": TIMESTAMP,
    "StringType": STRING,
    "CharType": STRING,
    "VarcharType": STRING,
    "BinaryType": BINARY,
    "NullType": UNKNOWN,
    "VariantType": VARIANT,
}
"""By the names of Spark's classes: not every version of PySpark has all of them."""


def with_ids(type_: Type, ids: Iterator[int]) -> Type:
    if isinstance(type_, StructType):
        return struct_with_ids(type_, ids)
    if isinstance(type_, ListType):
        return ListType(_field(type_.element, next(ids), ids))
    if isinstance(type_, MapType):
        key_id, value_id = next(ids), next(ids)
        return MapType(_field(type_.key, key_id, ids), _field(type_.value, value_id, ids))
    return type_


def struct_with_ids(struct: StructType, ids: Iterator[int] | None = None) -> StructType:
    """Without `ids` those of a new table, from 1."""
    given = count(1) if ids is None else ids
    field_ids = [next(given) for _ in struct.fields]
    fields = zip(struct.fields, field_ids, strict=True)
    return StructType(tuple(_field(field, field_id, given) for field, field_id in fields))


def field_with_ids(field: NestedField, ids: Iterator[int]) -> NestedField:
    return _field(field, next(ids), ids)


def _field(field: NestedField, field_id: int, ids: Iterator[int]) -> NestedField:
    return replace(field, field_id=field_id, type=with_ids(field.type, ids))

"""Iceberg types as Arrow types, and the other way.

Arrow types are those of a table's files, of the batches that Spark exchanges, and of users' rows.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED_FIELD, ROW_ID_FIELD
from frazil.values import types
from frazil.values.field_ids import NO_ID, struct_with_ids
from frazil.values.parquet_columns import FIELD_ID, field_id_of, is_list
from frazil.wire.errors import BadRequest

UTC: Final = "UTC"
_WKB_EXTENSION: Final = "geoarrow.wkb"
_GEOMETRY_SRIDS: Final = {"OGC:CRS84": 4326, "EPSG:3857": 3857, "SRID:0": 0}
_GEOGRAPHY_SRIDS: Final = {"OGC:CRS84": 4326}
"""Iceberg names coordinate reference systems, Spark numbers them; Spark knows only these."""


def arrow_schema(schema: types.StructType, *, lineage: bool = False) -> pa.Schema:
    """Return the columns of a data file, with field ids at every level.

    Files have no columns of type unknown (spec, Appendix A).
    """
    fields = (*schema.fields, ROW_ID_FIELD, LAST_UPDATED_FIELD) if lineage else schema.fields
    return pa.schema(_stored_fields(fields, ""))


def spark_arrow_schema(schema: types.StructType) -> pa.Schema:
    """Return the columns as Spark exchanges them with Python for `spark_schema(schema)`."""
    return pa.schema([_spark_field(field) for field in schema.fields])


def is_variant(type_: pa.DataType) -> bool:
    """Whether the type of a file's column is a variant and not a struct of the table.

    The parts of a variant have no field ids; the fields of a struct have some.
    """
    return bool(type_ == _VARIANT) and all(field_id_of(part) is None for part in type_)


# --- geometries and geographies --------------------------------------------------------------


def srid_of(type_: types.Type) -> int | None:
    """Return Spark's number of a column's reference system; None if Spark does not know it."""
    if isinstance(type_, types.GeometryType):
        return _GEOMETRY_SRIDS.get(type_.crs.upper())
    if isinstance(type_, types.GeographyType) and type_.algorithm is types.EdgeAlgorithm.SPHERICAL:
        return _GEOGRAPHY_SRIDS.get(type_.crs.upper())
    return None


def spatial_type(name: str, srid: int | None) -> types.Type | None:
    """Return Iceberg's type for one of Spark's type classes; None if there is none."""
    srids = {"GeometryType": _GEOMETRY_SRIDS, "GeographyType": _GEOGRAPHY_SRIDS}.get(name, {})
    crs = next((crs for crs, known in srids.items() if known == srid), None)
    if crs is None:
        return None
    return types.GeometryType(crs) if name == "GeometryType" else types.GeographyType(crs)


class WellKnownBinary(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no hints
    """Makes pyarrow annotate a column as Parquet's GEOMETRY or GEOGRAPHY.

    The type is not registered, so that pyarrow reads such columns as plain binary and another
    library can register a type of this name.
    """

    def __init__(self, parameters: str) -> None:
        self._parameters = parameters
        super().__init__(pa.binary(), _WKB_EXTENSION)

    def __arrow_ext_serialize__(self) -> bytes:
        return self._parameters.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, parameters: bytes) -> WellKnownBinary:
        return cls(parameters.decode())


def is_well_known_binary(type_: pa.DataType) -> bool:
    return isinstance(type_, WellKnownBinary)


def _spatial_file_type(type_: types.GeometryType | types.GeographyType) -> pa.DataType:
    parameters = {}
    if type_.crs.upper() != types.DEFAULT_CRS:
        parameters["crs"] = type_.crs
    if isinstance(type_, types.GeographyType):
        parameters["edges"] = type_.algorithm.value
    return WellKnownBinary(json.dumps(parameters) if parameters else "")


def _spatial_spark_type(type_: types.Type) -> pa.DataType:
    """Return a struct with a binary that is tagged as `pyspark.sql.pandas.types` tags it."""
    tag = "geography" if isinstance(type_, types.GeographyType) else "geometry"
    metadata = {tag: "true", "srid": str(srid_of(type_))}
    return pa.struct(
        [
            pa.field("srid", pa.int32(), nullable=False),
            pa.field("wkb", pa.binary(), nullable=False, metadata=metadata),
        ]
    )


# --- in files --------------------------------------------------------------------------------


def _stored_fields(fields: tuple[types.NestedField, ...], prefix: str) -> list[pa.Field]:
    return [
        _file_field(field, f"{prefix}{field.name}")
        for field in fields
        if field.type.type_id is not types.TypeId.UNKNOWN
    ]


def _file_field(field: types.NestedField, path: str) -> pa.Field:
    return pa.field(
        field.name,
        _file_type(field.type, path),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.field_id)},
    )


def _file_type(type_: types.Type, path: str) -> pa.DataType:
    if isinstance(type_, types.StructType):
        stored = _stored_fields(type_.fields, f"{path}.")
        if not stored:
            raise BadRequest(f"column {path}: Parquet cannot store {type_}, which has no values")
        return pa.struct(stored)
    if isinstance(type_, types.ListType):
        return pa.list_(_part(type_.element, f"{path}.element"))
    if isinstance(type_, types.MapType):
        return pa.map_(_part(type_.key, f"{path}.key"), _part(type_.value, f"{path}.value"))
    if isinstance(type_, types.FixedType) and type_.length == 0:
        raise BadRequest(f"column {path}: Parquet cannot store {type_}, which has no bytes")
    return _leaf_type(type_)


def _part(field: types.NestedField, path: str) -> pa.Field:
    if field.type.type_id is types.TypeId.UNKNOWN:
        raise BadRequest(f"column {path}: Parquet cannot store a list or map of {field.type}")
    return _file_field(field, path)


def _leaf_type(type_: types.Type) -> pa.DataType:
    if isinstance(type_, types.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, types.FixedType):
        return pa.binary(type_.length)
    if isinstance(type_, types.GeometryType | types.GeographyType):
        return _spatial_file_type(type_)
    return _FILE_TYPES[type_.type_id]


_VARIANT: Final = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)

_FILE_TYPES: Final[dict[types.TypeId, pa.DataType]] = {
    types.TypeId.BOOLEAN: pa.bool_(),
    types.TypeId.INT: pa.int32(),
    types.TypeId.LONG: pa.int64(),
    types.TypeId.FLOAT: pa.float32(),
    types.TypeId.DOUBLE: pa.float64(),
    types.TypeId.DATE: pa.date32(),
    types.TypeId.TIME: pa.time64("us"),
    types.TypeId.TIMESTAMP: pa.timestamp("us"),
    types.TypeId.TIMESTAMPTZ: pa.timestamp("us", UTC),
    types.TypeId.TIMESTAMP_NS: pa.timestamp("ns"),
    types.TypeId.TIMESTAMPTZ_NS: pa.timestamp("ns", UTC),
    types.TypeId.STRING: pa.string(),
    # The extension makes pyarrow annotate the column as Parquet's UUID.
    types.TypeId.UUID: pa.uuid(),
    types.TypeId.BINARY: pa.binary(),
    types.TypeId.VARIANT: _VARIANT,
}


# --- in Spark's batches ----------------------------------------------------------------------


def _spark_field(field: types.NestedField) -> pa.Field:
    return pa.field(field.name, _spark_type(field.type), nullable=not field.required)


def _spark_type(type_: types.Type) -> pa.DataType:
    if isinstance(type_, types.StructType):
        return pa.struct([_spark_field(field) for field in type_.fields])
    if isinstance(type_, types.ListType):
        return pa.list_(_spark_field(type_.element))
    if isinstance(type_, types.MapType):
        return pa.map_(_spark_field(type_.key), _spark_field(type_.value))
    if isinstance(type_, types.GeometryType | types.GeographyType):
        return _spatial_spark_type(type_)
    known = _SPARK_TYPES.get(type_.type_id)
    return _leaf_type(type_) if known is None else known


_SPARK_TYPES: Final[dict[types.TypeId, pa.DataType]] = {
    types.TypeId.TIME: pa.time64("ns"),
    types.TypeId.TIMESTAMP_NS: pa.timestamp("us"),
    types.TypeId.TIMESTAMPTZ_NS: pa.timestamp("us", UTC),
    types.TypeId.UUID: pa.string(),
    types.TypeId.FIXED: pa.binary(),
    types.TypeId.UNKNOWN: pa.null(),
    types.TypeId.VARIANT: pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
        ]
    ),
}
"""The types for which Spark's differ from those of the files."""


# --- from Arrow to Iceberg ---------------------------------------------------------------------

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
    fields = tuple(_iceberg_field(field, "", format_version) for field in schema)
    if not fields:
        raise BadRequest("schema: a table needs at least one column")
    return struct_with_ids(types.StructType(fields))


def _iceberg_field(field: pa.Field, prefix: str, version: int) -> types.NestedField:
    path = f"{prefix}{field.name}"
    doc = (field.metadata or {}).get(b"doc")
    return types.NestedField(
        NO_ID,
        field.name,
        _iceberg_type(field.type, path, version),
        required=not field.nullable,
        doc=None if doc is None else doc.decode(),
    )


def _iceberg_type(type_: pa.DataType, path: str, version: int) -> types.Type:
    if isinstance(type_, pa.BaseExtensionType):
        is_uuid = type_.extension_name == _UUID
        return types.UUID if is_uuid else _iceberg_type(type_.storage_type, path, version)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return _iceberg_type(type_.value_type, path, version)
    if pa.types.is_struct(type_):
        return types.StructType(
            tuple(_iceberg_field(field, f"{path}.", version) for field in type_)
        )
    if is_list(type_):
        return types.ListType(_iceberg_part("element", type_.value_field, path, version))
    if pa.types.is_map(type_):
        key = _iceberg_part("key", type_.key_field, path, version)
        return types.MapType(key, _iceberg_part("value", type_.item_field, path, version))
    return _primitive(type_, path, version)


def _iceberg_part(name: str, field: pa.Field, path: str, version: int) -> types.NestedField:
    type_ = _iceberg_type(field.type, f"{path}.{name}", version)
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

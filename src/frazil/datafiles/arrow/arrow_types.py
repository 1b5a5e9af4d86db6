"""Iceberg types as Arrow types: in a table's files, and in the batches that Spark exchanges."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED_FIELD, ROW_ID_FIELD
from frazil.values import types
from frazil.values.parquet_columns import FIELD_ID, field_id_of
from frazil.wire.errors import BadRequest

UTC: Final = "UTC"
_WKB_EXTENSION: Final = "geoarrow.wkb"
_GEOMETRY_SRIDS: Final = {"OGC:CRS84": 4326, "EPSG:3857": 3857, "SRID:0": 0}
_GEOGRAPHY_SRIDS: Final = {"OGC:CRS84": 4326}
"""Iceberg names coordinate reference systems, Spark numbers them; Spark knows only these."""

LeafType = Callable[[types.Type], pa.DataType]


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
    if name == "GeometryType":
        for crs, known in _GEOMETRY_SRIDS.items():
            if known == srid:
                return types.GeometryType(crs)
    if name == "GeographyType":
        for crs, known in _GEOGRAPHY_SRIDS.items():
            if known == srid:
                return types.GeographyType(crs)
    return None


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


def _spatial_file_type(type_: types.Type) -> pa.DataType:
    parameters = {}
    if (
        isinstance(type_, types.GeometryType | types.GeographyType)
        and type_.crs.upper() != types.DEFAULT_CRS
    ):
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
    return _FILE_TYPES[type_.type_id](type_)


def _part(field: types.NestedField, path: str) -> pa.Field:
    if field.type.type_id is types.TypeId.UNKNOWN:
        raise BadRequest(f"column {path}: Parquet cannot store a list or map of {field.type}")
    return _file_field(field, path)


def _decimal(type_: types.Type) -> pa.DataType:
    assert isinstance(type_, types.DecimalType)
    return pa.decimal128(type_.precision, type_.scale)


def _fixed(type_: types.Type) -> pa.DataType:
    assert isinstance(type_, types.FixedType)
    return pa.binary(type_.length)


def _always(arrow_type: pa.DataType) -> LeafType:
    return lambda type_: arrow_type


_VARIANT: Final = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)

_FILE_TYPES: Final[dict[types.TypeId, LeafType]] = {
    types.TypeId.BOOLEAN: _always(pa.bool_()),
    types.TypeId.INT: _always(pa.int32()),
    types.TypeId.LONG: _always(pa.int64()),
    types.TypeId.FLOAT: _always(pa.float32()),
    types.TypeId.DOUBLE: _always(pa.float64()),
    types.TypeId.DECIMAL: _decimal,
    types.TypeId.DATE: _always(pa.date32()),
    types.TypeId.TIME: _always(pa.time64("us")),
    types.TypeId.TIMESTAMP: _always(pa.timestamp("us")),
    types.TypeId.TIMESTAMPTZ: _always(pa.timestamp("us", UTC)),
    types.TypeId.TIMESTAMP_NS: _always(pa.timestamp("ns")),
    types.TypeId.TIMESTAMPTZ_NS: _always(pa.timestamp("ns", UTC)),
    types.TypeId.STRING: _always(pa.string()),
    # The extension makes pyarrow annotate the column as Parquet's UUID.
    types.TypeId.UUID: _always(pa.uuid()),
    types.TypeId.FIXED: _fixed,
    types.TypeId.BINARY: _always(pa.binary()),
    types.TypeId.VARIANT: _always(_VARIANT),
    types.TypeId.GEOMETRY: _spatial_file_type,
    types.TypeId.GEOGRAPHY: _spatial_file_type,
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
    return (_SPARK_TYPES.get(type_.type_id) or _FILE_TYPES[type_.type_id])(type_)


_SPARK_TYPES: Final[dict[types.TypeId, LeafType]] = {
    types.TypeId.TIME: _always(pa.time64("ns")),
    types.TypeId.TIMESTAMP_NS: _always(pa.timestamp("us")),
    types.TypeId.TIMESTAMPTZ_NS: _always(pa.timestamp("us", UTC)),
    types.TypeId.UUID: _always(pa.string()),
    types.TypeId.FIXED: _always(pa.binary()),
    types.TypeId.UNKNOWN: _always(pa.null()),
    types.TypeId.VARIANT: _always(
        pa.struct(
            [
                pa.field("value", pa.binary(), nullable=False),
                pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
            ]
        )
    ),
    types.TypeId.GEOMETRY: _spatial_spark_type,
    types.TypeId.GEOGRAPHY: _spatial_spark_type,
}
"""The types for which Spark's differ from those of the files."""

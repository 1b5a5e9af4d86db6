"""Geometries and geographies in Arrow: well-known binary in files, a struct with the SRID in Spark.

Runs on executors.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.leaf_conversion import misfit
from frazil.datafiles.arrow.nested_arrays import struct_of
from frazil.datafiles.arrow.spatial import srid_of
from frazil.values.types import DEFAULT_CRS, GeographyType, GeometryType, Type

_EXTENSION: Final = "geoarrow.wkb"


class WellKnownBinary(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no hints
    """What makes pyarrow annotate a column as Parquet's GEOMETRY or GEOGRAPHY.

    It is not registered: a file's columns are read as plain binary, and another library's type of
    this name stays the only one.
    """

    def __init__(self, parameters: str) -> None:
        self._parameters = parameters
        super().__init__(pa.binary(), _EXTENSION)

    def __arrow_ext_serialize__(self) -> bytes:
        return self._parameters.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, parameters: bytes) -> WellKnownBinary:
        return cls(parameters.decode())


def file_type(type_: Type) -> pa.DataType:
    parameters = {}
    if isinstance(type_, GeometryType | GeographyType) and type_.crs.upper() != DEFAULT_CRS:
        parameters["crs"] = type_.crs
    if isinstance(type_, GeographyType):
        parameters["edges"] = type_.algorithm.value
    return WellKnownBinary(json.dumps(parameters) if parameters else "")


def spark_type(type_: Type) -> pa.DataType:
    """A struct whose binary is tagged in its metadata, as `pyspark.sql.pandas.types` has it."""
    tag = "geography" if isinstance(type_, GeographyType) else "geometry"
    metadata = {tag: "true", "srid": str(srid_of(type_))}
    return pa.struct(
        [
            pa.field("srid", pa.int32(), nullable=False),
            pa.field("wkb", pa.binary(), nullable=False, metadata=metadata),
        ]
    )


def is_well_known_binary(type_: pa.DataType) -> bool:
    return isinstance(type_, WellKnownBinary)


def to_file(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Of the binary or of Spark's struct around it."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    elif pa.types.is_struct(array.type) and array.type.get_field_index("wkb") >= 0:
        binary = array.field("wkb")
        array = pc.if_else(array.is_valid(), binary, None) if array.null_count else binary
    if not pa.types.is_binary(array.type):
        raise misfit(array.type, target, path)
    return pa.ExtensionArray.from_storage(target, array)


def to_spark(array: pa.Array, target: Any, path: str) -> pa.Array:
    place = target.get_field_index("wkb")
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if place < 0 or not pa.types.is_binary(array.type):
        raise misfit(array.type, target, path)
    srid = int(target.field(place).metadata[b"srid"])
    srids = pa.repeat(pa.scalar(srid, pa.int32()), len(array))
    values = pc.fill_null(array, b"") if array.null_count else array
    return struct_of(array, [srids, values], target, path)

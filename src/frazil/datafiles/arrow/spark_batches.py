"""Converts batches between the Arrow types of Spark and those of a table's files.

Columns and the fields of structs are matched by name.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.arrow.array_conversion import (
    batch_of,
    convert_leaf,
    list_of,
    map_of,
    misfit,
    struct_of,
    well_known_binary,
)
from frazil.datafiles.arrow.arrow_types import is_well_known_binary, spark_arrow_schema
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest


def to_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of Spark to the types of a file (`arrow_schema`).

    Columns that the file does not have are left out. Columns of equal types are not copied.
    """
    columns = _columns(batch, schema)
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise BadRequest(f"column {field.name} is required, but has nulls: give it values")
    return batch_of(columns, schema, len(batch))


def to_spark(batch: pa.RecordBatch, target: StructType) -> pa.RecordBatch:
    """Convert a batch of a table to what `mapInArrow` must return for `spark_schema(target)`."""
    schema = spark_arrow_schema(target)
    return batch_of(_columns(batch, schema), schema, len(batch))


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    if batch.schema.names == schema.names:
        return [
            _convert(column, field.type, field.name)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
    positions = {name: position for position, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        position = positions.get(field.name)
        if position is not None:
            columns.append(_convert(batch.column(position), field.type, field.name))
        elif pa.types.is_null(field.type):
            # Files have no columns of type unknown.
            columns.append(pa.nulls(len(batch)))
        else:
            raise BadRequest(f"column {field.name} is missing; there are {batch.schema.names}")
    return columns


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if array.type == target:
        return array
    types = pa.types
    if types.is_null(array.type):
        return pa.nulls(len(array), target)
    if is_well_known_binary(target):
        return well_known_binary(array, target, path)
    if types.is_struct(target):
        return _convert_struct(array, target, path)
    if types.is_map(target):
        key = partial(_convert, target=target.key_type, path=f"{path}.key")
        value = partial(_convert, target=target.item_type, path=f"{path}.value")
        return map_of(array, key, value, target, path)
    if types.is_list(target):
        element = partial(_convert, target=target.value_type, path=f"{path}.element")
        return list_of(array, element, target, path)
    return convert_leaf(array, target, path)


def _convert_struct(array: pa.Array, target: Any, path: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        return _spatial_struct(array, target, path)
    # `flatten` hides what Spark leaves below a null struct: an empty text is no uuid.
    fields = (
        array.flatten()
        if array.null_count
        else [array.field(position) for position in range(array.type.num_fields)]
    )
    children = []
    for field in target:
        position = array.type.get_field_index(field.name)
        if position >= 0:
            children.append(_convert(fields[position], field.type, f"{path}.{field.name}"))
        elif pa.types.is_null(field.type):
            children.append(pa.nulls(len(array)))
        else:
            raise BadRequest(f"column {path}.{field.name} is missing in {array.type}")
    return struct_of(array, children, target, path)


def _spatial_struct(array: pa.Array, target: Any, path: str) -> pa.Array:
    """Convert a file's well-known binary to Spark's struct of it and the SRID."""
    position = target.get_field_index("wkb")
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if position < 0 or not pa.types.is_binary(array.type):
        raise misfit(array.type, target, path)
    srid = int(target.field(position).metadata[b"srid"])
    srids = pa.repeat(pa.scalar(srid, pa.int32()), len(array))
    values = pc.fill_null(array, b"") if array.null_count else array
    return struct_of(array, [srids, values], target, path)

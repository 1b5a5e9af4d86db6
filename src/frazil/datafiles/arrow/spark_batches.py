"""Batches between the types that Spark has and those of a table's files.

Columns and the fields of structs are found by name. Runs on executors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from frazil.datafiles.arrow import arrow_spatial
from frazil.datafiles.arrow.arrow_types import spark_arrow_schema
from frazil.datafiles.arrow.leaf_conversion import convert_leaf
from frazil.datafiles.arrow.nested_arrays import batch_of, list_of, map_of, struct_of
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest


def to_table(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as Spark hands it over, in the types of a file (`arrow_schema`).

    Columns that the file does not have are left out. Where types are equal nothing is copied.
    """
    columns = _columns(batch, schema)
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise BadRequest(f"column {field.name} is required, but has nulls: give it values")
    return batch_of(columns, schema, len(batch))


def to_spark(batch: pa.RecordBatch, target: StructType) -> pa.RecordBatch:
    """A batch of a table, in the types that `mapInArrow` must yield for `spark_schema(target)`."""
    schema = spark_arrow_schema(target)
    return batch_of(_columns(batch, schema), schema, len(batch))


def _columns(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    if batch.schema.names == schema.names:
        return [
            _convert(column, field.type, field.name)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
    places = {name: place for place, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        place = places.get(field.name)
        if place is not None:
            columns.append(_convert(batch.column(place), field.type, field.name))
        elif pa.types.is_null(field.type):
            # A column of type unknown is in no file.
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
    if arrow_spatial.is_well_known_binary(target):
        return arrow_spatial.to_file(array, target, path)
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
        return arrow_spatial.to_spark(array, target, path)
    # Below a null struct Spark leaves values that are none: an empty text is no uuid.
    found = (
        array.flatten()
        if array.null_count
        else [array.field(n) for n in range(array.type.num_fields)]
    )
    children = []
    for field in target:
        place = array.type.get_field_index(field.name)
        if place >= 0:
            children.append(_convert(found[place], field.type, f"{path}.{field.name}"))
        elif pa.types.is_null(field.type):
            children.append(pa.nulls(len(array)))
        else:
            raise BadRequest(f"column {path}.{field.name} is missing in {array.type}")
    return struct_of(array, children, target, path)

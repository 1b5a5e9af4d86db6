"""Sorts rows by Z-order: rows that are near in several columns at once get near in files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.spark.executor.z_order_keys import (
    KEY_BYTES,
    SAMPLE_SCHEMA,
    Keys,
    boundaries,
    interleaved,
    sample_rows,
)
from frazil.spark.schema.partition_transforms import arrow_function, source_column
from frazil.spark.schema.spark_types import FLAT_TYPES
from frazil.values.types import NestedField, StructType, TypeId, fields_by_id
from frazil.wire.errors import BadRequest

Z_COLUMN: Final = "_z_order"

_TYPES: Final = FLAT_TYPES | {
    TypeId.TIMESTAMP_NS,
    TypeId.TIMESTAMPTZ_NS,
    TypeId.UUID,
    TypeId.FIXED,
}


def z_order_column(frame: DataFrame, names: Sequence[str], schema: StructType) -> Column:
    """Return the key to sort by, named `_z_order`; this runs a Spark job over a sample."""
    columns = z_sources(names, schema)
    limits = _boundaries(frame.select(*columns), len(columns))
    return arrow_function(partial(interleaved, limits), "binary")(*columns).alias(Z_COLUMN)


def z_sources(names: Sequence[str], schema: StructType) -> list[Column]:
    """Return the parts of the columns that count: of long texts and bytes only the beginning."""
    fields = [_field(name, schema) for name in names]
    if len({field.field_id for field in fields}) < len(fields):
        raise BadRequest(f"Z-order by {', '.join(names)}: a column stands twice")
    return [_source(field, schema).alias(f"z{number}") for number, field in enumerate(fields)]


def _field(name: str, schema: StructType) -> NestedField:
    by_name = {named.name: named.field for named in fields_by_id(schema).values()}
    field = by_name.get(name)
    if field is None:
        matching = [known for known in by_name if known.lower() == name.lower()]
        field = by_name[matching[0]] if len(matching) == 1 else None
    if field is None:
        raise BadRequest(f"Z-order by {name}: the table has no such column")
    if field.type.type_id not in _TYPES:
        raise BadRequest(f"Z-order by {name}: values of the type {field.type} have no place in it")
    return field


def _source(field: NestedField, schema: StructType) -> Column:
    column = source_column(schema, field.field_id)
    if field.type.type_id is TypeId.STRING:
        return fn.substring(column.cast("binary"), 1, KEY_BYTES)
    if field.type.type_id is TypeId.UUID:
        digits = fn.replace(column, fn.lit("-"), fn.lit(""))
        return fn.unhex(fn.substring(digits, 1, 2 * KEY_BYTES))
    if field.type.type_id in (TypeId.BINARY, TypeId.FIXED):
        return fn.substring(column, 1, KEY_BYTES)
    return column.cast("double") if field.type.type_id is TypeId.DECIMAL else column


def _boundaries(sources: DataFrame, count: int) -> tuple[Keys, ...]:
    rows = sources.mapInArrow(sample_rows, SAMPLE_SCHEMA).collect()
    weights = np.array([row[0] for row in rows], np.int64)
    keys = np.frombuffer(b"".join(bytes(row[1]) for row in rows), np.uint64)
    keys = keys.reshape(len(rows), count)
    return tuple(boundaries(keys[:, column], weights) for column in range(count))

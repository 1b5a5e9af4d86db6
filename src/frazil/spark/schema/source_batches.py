"""Check the columns of a Python data source's rows against a table and convert its batches.

Such a source knows only the types of the columns, and Spark cannot cast them for it. Runs on
executors too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as st

from frazil.datafiles.arrow.arrow_types import arrow_schema
from frazil.datafiles.arrow.leaf_conversion import constant
from frazil.spark.schema.spark_types import spark_type
from frazil.values.types import NestedField, StructType, TypeId
from frazil.wire.errors import BadRequest

_INTEGERS: Final[Sequence[type[st.DataType]]] = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
)


@dataclass(frozen=True)
class BatchConverter:
    """Converts batches of a frame to batches with the table's columns."""

    schema: StructType
    positions: tuple[int | None, ...]
    """The position of each table column in the frame; None if it is missing."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, names = [], []
        for field, position in zip(self.schema.fields, self.positions, strict=True):
            if field.type.type_id is TypeId.UNKNOWN:
                continue
            missing = position is None
            columns.append(_default(field)(batch.num_rows) if missing else batch.column(position))
            names.append(field.name)
        return pa.RecordBatch.from_arrays(columns, names=names)


def batch_converter(frame: st.StructType, schema: StructType, table: str) -> BatchConverter:
    """Match columns by name; raise BadRequest if the frame does not fit the table."""
    unmatched = {name.lower(): index for index, name in enumerate(frame.names)}
    positions, problems = [], []
    for field in schema.fields:
        position = unmatched.pop(field.name.lower(), None)
        positions.append(position)
        if position is None:
            problem = _missing(field)
        else:
            problem = _misfit(frame.fields[position].dataType, field)
        if problem is not None:
            problems.append(problem)
    problems += [f"column {frame.names[index]} is not in the table" for index in unmatched.values()]
    if len(frame.names) != len({name.lower() for name in frame.names}):
        problems.append("the frame has a column twice")
    if problems:
        known = ", ".join(field.name for field in schema.fields)
        raise BadRequest(f"{table}, which has {known}: {'; '.join(problems)}")
    return BatchConverter(schema, tuple(positions))


def _missing(field: NestedField) -> str | None:
    if field.required and field.write_default is None:
        return f"column {field.name} is missing; it is required and has no default"
    return None


def _misfit(found: st.DataType, field: NestedField) -> str | None:
    target = spark_type(field.type)
    if isinstance(found, st.NullType) or found.simpleString() == target.simpleString():
        return None
    if _is_wider(found, target):
        return None
    return (
        f"column {field.name} has the type {found.simpleString()}, but the table has "
        f"{target.simpleString()}: cast it"
    )


def _is_wider(found: st.DataType, target: st.DataType) -> bool:
    if type(found) in _INTEGERS and type(target) in _INTEGERS:
        return _INTEGERS.index(type(found)) < _INTEGERS.index(type(target))
    if isinstance(found, st.DecimalType) and isinstance(target, st.DecimalType):
        return found.scale == target.scale and found.precision < target.precision
    return isinstance(found, st.FloatType) and isinstance(target, st.DoubleType)


def _default(field: NestedField) -> Callable[[int], Any]:
    return constant(field.write_default, arrow_schema(StructType((field,))).field(0).type)

"""Check the columns of a Python data source's rows against a table.

Such a source knows only the types of the columns, not the plan, and Spark cannot cast them for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import types as st

from frazil.spark.executor.file_tasks import Conform
from frazil.spark.schema.spark_types import spark_type
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest

_INTEGERS: Final[Sequence[type[st.DataType]]] = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
)


def conform(frame: st.StructType, schema: StructType, table: str) -> Conform:
    """Match columns by name; raise BadRequest if the frame does not fit the table."""
    unmatched = {name.lower(): index for index, name in enumerate(frame.names)}
    positions, problems = [], []
    for field in schema.fields:
        index = unmatched.pop(field.name.lower(), None)
        positions.append(index)
        problem = _missing(field) if index is None else _misfit(frame.fields[index].dataType, field)
        if problem is not None:
            problems.append(problem)
    problems += [f"column {frame.names[index]} is not in the table" for index in unmatched.values()]
    if len(frame.names) != len({name.lower() for name in frame.names}):
        problems.append("the frame has a column twice")
    if problems:
        known = ", ".join(field.name for field in schema.fields)
        raise BadRequest(f"{table}, which has {known}: {'; '.join(problems)}")
    return Conform(schema, tuple(positions))


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

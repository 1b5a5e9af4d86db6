"""The columns of a frame held against a table's, where only their types are known and not the plan:
a Python source gets rows, and cannot have Spark cast them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import types as st

from frazil.spark.executor.file_tasks import Conform
from frazil.spark.schema.spark_types import spark_type
from frazil.values.types import NestedField, StructType
from frazil.wire.errors import BadRequest

_WHOLE: Final[Sequence[type[st.DataType]]] = (
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
)


def conform(frame: st.StructType, schema: StructType, table: str) -> Conform:
    """BadRequest where the frame does not fit; columns are found by name."""
    found = {name.lower(): place for place, name in enumerate(frame.names)}
    places, problems = [], []
    for field in schema.fields:
        place = found.pop(field.name.lower(), None)
        places.append(place)
        problem = _missing(field) if place is None else _misfit(frame.fields[place].dataType, field)
        if problem is not None:
            problems.append(problem)
    problems += [f"column {frame.names[place]} is not in the table" for place in found.values()]
    if len(frame.names) != len({name.lower() for name in frame.names}):
        problems.append("a column stands twice in the frame")
    if problems:
        known = ", ".join(field.name for field in schema.fields)
        raise BadRequest(f"{table}, which has {known}: {'; '.join(problems)}")
    return Conform(schema, tuple(places))


def _missing(field: NestedField) -> str | None:
    if field.required and field.write_default is None:
        return f"column {field.name} is missing, which is required and has no default"
    return None


def _misfit(found: st.DataType, field: NestedField) -> str | None:
    target = spark_type(field.type)
    if isinstance(found, st.NullType) or found.simpleString() == target.simpleString():
        return None
    if _is_wider(found, target):
        return None
    return (
        f"column {field.name} has the type {found.simpleString()} where the table has "
        f"{target.simpleString()}: cast it"
    )


def _is_wider(found: st.DataType, target: st.DataType) -> bool:
    if type(found) in _WHOLE and type(target) in _WHOLE:
        return _WHOLE.index(type(found)) < _WHOLE.index(type(target))
    if isinstance(found, st.DecimalType) and isinstance(target, st.DecimalType):
        return found.scale == target.scale and found.precision < target.precision
    return isinstance(found, st.FloatType) and isinstance(target, st.DoubleType)

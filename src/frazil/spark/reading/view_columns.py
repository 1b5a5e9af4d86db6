"""Give the rows of a view's query the columns of the view.

As in Iceberg's own reader, columns belong together by position, and a column of the query is cast
to the view's type only where no value can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyspark.sql.types as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_view import View
from frazil.spark.schema.column_fitting import Assignment, assignment
from frazil.spark.schema.spark_types import COMMENT_METADATA, spark_schema
from frazil.wire.errors import BadRequest


def with_view_columns(frame: DataFrame, view: View) -> DataFrame:
    """Return the frame of a view's query with the names, types and comments of the view."""
    wanted = spark_schema(view.schema).fields
    columns = frame.schema.fields
    if len(columns) < len(wanted):
        raise BadRequest(
            f"{view} has {len(wanted)} columns, but its query has only {len(columns)} now: "
            "create the view again"
        )
    for field, column in zip(wanted, columns, strict=False):
        if not _keeps_values(column.dataType, field.dataType):
            raise BadRequest(
                f"{view}: column {field.name} is {field.dataType.simpleString()}, but its query "
                f"has {column.dataType.simpleString()} there now: create the view again"
            )
    return renamed(frame, wanted)


def renamed(frame: DataFrame, fields: Sequence[st.StructField]) -> DataFrame:
    """Return the first columns of a frame with names, types and comments of `fields`."""
    # The query may have two columns of one name, so that all get new names first.
    numbered = frame.toDF(*(f"_{number}" for number in range(len(frame.columns))))
    columns = []
    for number, (field, known) in enumerate(zip(fields, frame.schema.fields, strict=False)):
        column = fn.col(f"_{number}")
        if _shape(known.dataType) != _shape(field.dataType):
            column = column.cast(field.dataType)
        comment = field.metadata.get(COMMENT_METADATA)
        metadata = None if comment is None else {COMMENT_METADATA: comment}
        columns.append(column.alias(field.name, metadata=metadata or {}))
    return numbered.select(*columns)


def _keeps_values(source: st.DataType, target: st.DataType) -> bool:
    """Return whether Spark calls the cast an up-cast, at every level."""
    if isinstance(source, st.StructType) and isinstance(target, st.StructType):
        return len(source.fields) == len(target.fields) and all(
            _keeps_values(one.dataType, other.dataType)
            for one, other in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, st.ArrayType) and isinstance(target, st.ArrayType):
        return _keeps_values(source.elementType, target.elementType)
    if isinstance(source, st.MapType) and isinstance(target, st.MapType):
        return _keeps_values(source.keyType, target.keyType) and _keeps_values(
            source.valueType, target.valueType
        )
    return assignment(source, target, "strict") is not Assignment.REFUSED


def _shape(type_: st.DataType) -> Any:
    """Return the type without what a cast cannot change: whether values can be null."""
    return type_.simpleString()

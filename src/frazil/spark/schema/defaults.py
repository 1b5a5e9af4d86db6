"""Default values of columns: a constant expression of Spark's as a value of Iceberg's."""

from __future__ import annotations

from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn

from frazil.spark.core.context import Context
from frazil.spark.schema.spark_types import spark_type
from frazil.values.single_value import InvalidValue, from_json
from frazil.values.types import Type, TypeId
from frazil.wire.errors import BadRequest

_TIMESTAMPS: Final = frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ})
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_NUMBERS: Final = frozenset({TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE, TypeId.BOOLEAN})
_TEXTS: Final = frozenset({TypeId.STRING, TypeId.DECIMAL, TypeId.UUID, TypeId.DATE})


def default_value(context: Context, column: str, type_: Type, text: str) -> Any:
    """The value in Iceberg's internal form; None for NULL."""
    if text.strip().upper() == "NULL":
        return None
    if type_.is_nested or type_.type_id not in _NUMBERS | _TEXTS | _TIMESTAMPS:
        raise BadRequest(f"column {column}: a {type_} cannot have a default")
    expression = fn.expr(f"CAST(({text}) AS {spark_type(type_).simpleString()})")
    if type_.type_id is TypeId.TIMESTAMPTZ:
        expression = fn.unix_micros(expression)
    elif type_.type_id is TypeId.TIMESTAMP:
        expression = fn.date_format(expression, _ISO)
    elif type_.type_id not in _NUMBERS:
        expression = expression.cast("string")
    try:
        (row,) = context.spark.sql("SELECT 1 AS `1`").select(expression).collect()
    except AnalysisException as error:
        raise BadRequest(f"column {column}: DEFAULT {text} is not a constant: {error}") from None
    found = row[0]
    if found is None or type_.type_id is TypeId.TIMESTAMPTZ:
        return found
    try:
        return from_json(type_, found)
    except InvalidValue as error:
        raise BadRequest(f"column {column}: DEFAULT {text}: {error}") from None

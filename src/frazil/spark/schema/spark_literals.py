"""Convert Iceberg's internal values to Columns, and DEFAULT expressions to internal values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as fn

from frazil.spark.core.context import Context
from frazil.spark.schema.spark_types import NANOS, TIMESTAMPS, WITH_ZONE, spark_type
from frazil.values import temporal
from frazil.values.single_value import InvalidValue, from_json
from frazil.values.types import Type, TypeId
from frazil.wire.errors import BadRequest


def literal(type_: Type, value: Any) -> Column:
    """Return an internal value of a primitive type as a constant; None is a null of the type.

    Spark folds these expressions before it plans, so that conditions with them are pushed down.
    """
    if value is None:
        return fn.lit(None).cast(spark_type(type_))
    make = _COLUMNS.get(type_.type_id)
    column = fn.lit(value) if make is None else make(type_, value)
    # A type as text is one call of the JVM, a type as object takes six.
    return column.cast(spark_type(type_).simpleString())


def _timestamp(type_: Type, value: int) -> Column:
    """Return a timestamp without reading a number in the session's time zone."""
    micros = value // temporal.NANOS_PER_MICRO if type_.type_id in NANOS else value
    if type_.type_id in WITH_ZONE:
        return fn.timestamp_micros(fn.lit(micros))
    return fn.lit(temporal.timestamp_from_micros(micros, with_zone=False))


_COLUMNS: Final[Mapping[TypeId, Callable[[Type, Any], Column]]] = {
    **dict.fromkeys((TypeId.DECIMAL, TypeId.UUID), lambda _, value: fn.lit(str(value))),
    **dict.fromkeys((TypeId.FIXED, TypeId.BINARY), lambda _, value: fn.unhex(fn.lit(value.hex()))),
    TypeId.DATE: lambda _, value: fn.date_from_unix_date(fn.lit(value)),
    TypeId.TIME: lambda _, value: fn.lit(temporal.time_from_micros(value)),
    **dict.fromkeys(TIMESTAMPS, _timestamp),
}


# --- default values -------------------------------------------------------------------------------

_TIMESTAMPS: Final = frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ})
_ISO: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_NUMBERS: Final = frozenset({TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE, TypeId.BOOLEAN})
_TEXTS: Final = frozenset({TypeId.STRING, TypeId.DECIMAL, TypeId.UUID, TypeId.DATE})


def default_value(context: Context, column: str, type_: Type, text: str) -> Any:
    """Evaluate a DEFAULT expression and return Iceberg's internal value; None for NULL."""
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
    value = row[0]
    if value is None or type_.type_id is TypeId.TIMESTAMPTZ:
        return value
    try:
        return from_json(type_, value)
    except InvalidValue as error:
        raise BadRequest(f"column {column}: DEFAULT {text}: {error}") from None

"""Compute partition transforms as Spark Columns, with exactly Iceberg's results.

Spark's own expressions compute everything but the hashes of text, bytes and decimals, which go
through Arrow, so that no other rows leave the JVM. Nothing depends on the session's time zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as fn

from frazil.datafiles.footers.footer_partitions import partition_fields_of
from frazil.datafiles.portable_table import FileTable
from frazil.datafiles.writing.row_partitions import PARTITION_PREFIX, source_path, transformed
from frazil.spark.core.name_matching import quoted
from frazil.spark.schema.spark_types import WITH_ZONE
from frazil.values import temporal, transforms
from frazil.values.partition_proof import PartitionField
from frazil.values.types import DecimalType, FixedType, StructType, Type, TypeId
from frazil.wire.errors import BadRequest

_MAX_INT: Final = 2**31 - 1
_EPOCH_YEAR: Final = 1970
_MICROS_PER_HOUR: Final = temporal.MICROS_PER_DAY // 24
_MAX_PRECISION: Final = 38
_WITHOUT_ZONE: Final = frozenset({TypeId.TIMESTAMP, TypeId.TIMESTAMP_NS})
_SEED_OF_ZERO: Final = -1693959553
"""An int whose Spark `hash` is 0.

For whole words, Spark's `hash` is the murmur3 of the Iceberg specification, but starts with seed
42. The hash of one column is the seed for the next, so this column sets the seed to 0.
"""

ArrowFunction: TypeAlias = Callable[..., pa.Array]


def partition_columns(table: FileTable, spec_id: int | None = None) -> dict[str, Column]:
    """Return the partition values of each row as `_partition_0` and so on, in the spec's order."""
    return {
        f"{PARTITION_PREFIX}{position}": partition_column(field, table.schema)
        for position, field in enumerate(partition_fields_of(table, spec_id))
    }


def partition_column(field: PartitionField, schema: StructType) -> Column:
    """Return the value of a partition field. It is null if the source column was dropped."""
    if field.source is None or isinstance(field.transform, transforms.Void):
        return fn.lit(None).cast("int")
    source = source_column(schema, field.source_id)
    return transform_column(field.transform, field.source.type, source)


def source_column(schema: StructType, field_id: int) -> Column:
    """Return the column, or field inside structs, with an ID."""
    path = source_path(schema, field_id)
    if not path:
        raise BadRequest(f"the schema has no field id {field_id} outside of lists and maps")
    return fn.col(quoted(*path))


def transform_column(transform: transforms.Transform, type_: Type, column: Column) -> Column:
    """Return the transform of a column with an Iceberg type. Null stays null."""
    if not transform.accepts(type_):
        raise BadRequest(f"{transform} does not accept the type {type_}")
    make = _COLUMNS.get(type(transform))
    if make is None:
        raise BadRequest(f"the transform {transform} is not known and cannot be applied")
    return make(transform, type_, column)


# --- times --------------------------------------------------------------------------------------


def unix_micros(type_: Type, column: Column) -> Column:
    """Return microseconds from 1970, also for a timestamp without a zone."""
    if type_.type_id in WITH_ZONE:
        return fn.unix_micros(column)
    # Add up the parts, because Spark computes differences of timestamps in the session's zone.
    seconds = fn.unix_date(column.cast("date")).cast("long") * temporal.SECONDS_PER_DAY
    seconds = seconds + fn.hour(column) * 3600 + fn.minute(column) * 60
    parts = fn.call_function("date_part", fn.lit("SECOND"), column) * fn.lit(1_000_000)
    return seconds * temporal.MICROS_PER_SECOND + parts.cast("long")


def _floor_div(column: Column, by: int) -> Column:
    """Divide and round down; Spark's `div` rounds toward zero."""
    below = fn.when(column % fn.lit(by) < 0, 1).otherwise(0)
    return fn.call_function("div", column, fn.lit(by)) - below


def _date(type_: Type, column: Column) -> Column:
    if type_.type_id is TypeId.DATE:
        return column
    if type_.type_id in _WITHOUT_ZONE:
        return column.cast("date")
    days = _floor_div(fn.unix_micros(column), temporal.MICROS_PER_DAY)
    return fn.date_from_unix_date(days.cast("int"))


def _hour(_: transforms.Transform, type_: Type, column: Column) -> Column:
    if type_.type_id in _WITHOUT_ZONE:
        return fn.unix_date(column.cast("date")) * 24 + fn.hour(column)
    return _floor_div(fn.unix_micros(column), _MICROS_PER_HOUR).cast("int")


def _month(_: transforms.Transform, type_: Type, column: Column) -> Column:
    date = _date(type_, column)
    return (fn.year(date) - _EPOCH_YEAR) * 12 + fn.month(date) - 1


# --- values -------------------------------------------------------------------------------------


def _truncate(transform: transforms.Transform, type_: Type, column: Column) -> Column:
    """Truncate a value.

    The result for the smallest numbers is below the range of the type. It is then of a wider type,
    or Spark reports an overflow.
    """
    assert isinstance(transform, transforms.Truncate)
    if isinstance(type_, DecimalType):
        return _truncated_decimal(transform, type_, column)
    if type_.type_id in (TypeId.INT, TypeId.LONG):
        number = column.cast("long")
        return number - fn.pmod(number, fn.lit(transform.width).cast("long"))
    return fn.substring(column, 1, transform.width)


def _truncated_decimal(
    transform: transforms.Truncate, type_: DecimalType, column: Column
) -> Column:
    if type_.precision == _MAX_PRECISION:
        # Spark loses digits when it subtracts decimals with the maximum precision.
        function = partial(transformed, transform, type_)
        return arrow_function(function, f"decimal({type_.precision},{type_.scale})")(column)
    width = Decimal(transform.width).scaleb(-type_.scale)
    digits = max(len(str(_MAX_INT)), type_.scale)
    unit = fn.lit(format(width, "f")).cast(f"decimal({digits},{type_.scale})")
    return column - fn.pmod(column, unit)


# --- buckets ------------------------------------------------------------------------------------


def _bucket(transform: transforms.Transform, type_: Type, column: Column) -> Column:
    assert isinstance(transform, transforms.Bucket)
    word = _whole_words(type_, column)
    if word is None:
        return arrow_function(partial(transformed, transform, type_), "int")(column)
    hashed = fn.hash(fn.lit(_SEED_OF_ZERO), word).bitwiseAND(fn.lit(_MAX_INT))
    return fn.when(column.isNotNull(), fn.pmod(hashed, fn.lit(transform.num_buckets)))


def _whole_words(type_: Type, column: Column) -> Column | None:
    """Return a column that Spark's `hash` can hash: whole words of four bytes. None for others."""
    if type_.type_id in (TypeId.INT, TypeId.LONG):
        return column.cast("long")
    if type_.type_id is TypeId.DATE:
        return fn.unix_date(column).cast("long")
    if type_.type_id in WITH_ZONE or type_.type_id in _WITHOUT_ZONE:
        return unix_micros(type_, column)
    if type_.type_id is TypeId.UUID:
        return fn.unhex(fn.replace(column, fn.lit("-"), fn.lit("")))
    if isinstance(type_, FixedType) and type_.length % 4 == 0:
        return column
    return None


_COLUMNS: Final[
    Mapping[type[transforms.Transform], Callable[[transforms.Transform, Type, Column], Column]]
] = {
    transforms.Identity: lambda _, __, column: column,
    transforms.Void: lambda *_: fn.lit(None).cast("int"),
    transforms.Bucket: _bucket,
    transforms.Truncate: _truncate,
    transforms.Year: lambda _, type_, column: fn.year(_date(type_, column)) - _EPOCH_YEAR,
    transforms.Month: _month,
    transforms.Day: lambda _, type_, column: _date(type_, column),
    transforms.Hour: _hour,
}


# --- functions over Arrow arrays ------------------------------------------------------------------


def arrow_function(function: ArrowFunction, return_type: str) -> Callable[..., Column]:
    """Turn a function of Arrow arrays into a function of Columns, with pandas on Spark 4.0."""
    make: Any = getattr(fn, "arrow_udf", None)
    if make is None:
        return _pandas_function(function, return_type)

    def of_arrays(*arrays: pa.Array) -> pa.Array:
        return function(*arrays)

    # Spark reads the kind of the arguments from the annotations.
    of_arrays.__annotations__ = {"arrays": pa.Array, "return": pa.Array}
    of_columns: Callable[..., Column] = make(of_arrays, return_type)
    return of_columns


def _pandas_function(function: ArrowFunction, return_type: str) -> Callable[..., Column]:
    pandas: Any = import_module("pandas")

    def of_series(*series: Any) -> Any:
        return function(*(pa.Array.from_pandas(one) for one in series)).to_pandas()

    of_series.__annotations__ = {"series": pandas.Series, "return": pandas.Series}
    make: Any = getattr(fn, "pandas_udf")  # noqa: B009
    of_columns: Callable[..., Column] = make(of_series, return_type)
    return of_columns

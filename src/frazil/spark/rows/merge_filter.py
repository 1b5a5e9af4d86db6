"""Finds out what a MERGE reads of its target, by the keys of its source.

Two small jobs run over the source, which is stored in temporary files. The first counts the rows
and finds the range of each key. The second collects the keys themselves or, if they are many, their
values under the table's partition transforms. The result is the filter of the target's scan, and
of conflicts with other commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context as DecimalContext
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyspark.sql.types as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.merge_conditions import (
    MAX_KEYS,
    Key,
    KeyValues,
    SourceNames,
    key_filter,
    merge_filter,
    on_parts,
)
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.conditions.sql_conditions import filter_of
from frazil.spark.conditions.sql_constants import Zone
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import names_of
from frazil.spark.parse.parsed_statements import BY_SOURCE
from frazil.spark.rows.merge_clauses import Merge
from frazil.spark.rows.merge_frames import SOURCE_ROW, source_columns
from frazil.spark.schema.partition_transforms import transform_column, unix_micros
from frazil.spark.schema.spark_types import FLOATS, NANOS, TIMESTAMPS, spark_type
from frazil.values import transforms
from frazil.values.temporal import NANOS_PER_MICRO
from frazil.values.transforms import Bucket, Transform, parse_transform
from frazil.values.types import DecimalType, FixedType, Type, TypeId
from frazil.wire.expressions import Expression
from frazil.wire.filter_builders import always_true

_MAX_ESTIMATED_KEYS: Final = MAX_KEYS + MAX_KEYS // 2
"""An estimate of this many may in fact be `MAX_KEYS`."""
_MAX_TRANSFORMED: Final = 50_000
"""How many values of an order-preserving transform are collected at most."""
_SAMPLED: Final = 16
"""The first estimate looks at one row of so many."""
_ROWS: Final = "_rows"
_WIDE: Final = DecimalContext(prec=100)
_INTEGERS: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_FRACTIONS: Final = (st.FloatType, st.DoubleType)


def merge_reads(
    context: Context, table: Table, merge: Merge, source: DataFrame
) -> tuple[Expression, int | None]:
    """Return a filter for at least the rows that the MERGE reads: changing them is a conflict.

    Also return how many rows the source has, if they were counted; this reads the source.

    WHEN conditions of matches and inserts do not count, since rows that fail them are read too.
    """
    unmatched = [
        filter_of(context, table, clause.condition, alias=merge.target_alias).expression
        for clause in merge.of(BY_SOURCE)
    ]
    if not isinstance(merge.on, str):
        return merge_filter([], always_true(), unmatched), None
    case_sensitive = names_of(context.spark).case_sensitive
    parts = on_parts(
        merge.on,
        ColumnNames(table.schema, merge.target_alias, case_sensitive),
        SourceNames(source_columns(source), merge.source_alias, case_sensitive),
        Zone(context.time_zone),
    )
    collected, source_rows = collected_keys(table, source.alias(merge.source_alias), parts.keys)
    return merge_filter(map(key_filter, collected), parts.target_only, unmatched), source_rows


def collected_keys(
    table: Table, source: DataFrame, keys: Sequence[Key]
) -> tuple[list[KeyValues], int | None]:
    """Collect the keys of the source, without those that cannot restrict the target.

    Also return the number of its rows; None where nothing had to be counted.

    `source` is numbered and has its alias, since the keys' expressions are evaluated on it.
    """
    if not keys:
        return [], None
    evaluated = source.select(*(fn.expr(key.source) for key in keys))
    sound = [
        _KeyColumn.of(position, key, table)
        for position, (key, field) in enumerate(zip(keys, evaluated.schema.fields, strict=True))
        if is_sound(key.column.type, field.dataType)
    ]
    if not sound:
        return [], None
    named = source.select(
        *(column for key in sound for column in key.columns()), fn.col(SOURCE_ROW)
    )
    counts = [column for key in sound for column in key.counts()]
    counted = named.agg(fn.count(fn.lit(1)).alias(_ROWS), *counts).collect()[0].asDict()
    counted |= _estimates(named, sound, counted)
    sets = [column for key in sound for column in key.sets(counted)]
    collected = named.agg(*sets).collect()[0].asDict() if sets else {}
    return [key.values(counted, collected) for key in sound], counted[_ROWS]


def _estimates(
    named: DataFrame, sound: Sequence[_KeyColumn], counted: Mapping[str, Any]
) -> dict[str, int]:
    """Estimate the number of distinct keys, where a sample has shown only few.

    The estimate costs as much as all other numbers together. Usually it is not needed: keys are few
    because rows are few, or they are about as many as rows.
    """
    if counted[_ROWS] <= _MAX_ESTIMATED_KEYS:
        return {key.count_name: counted[_ROWS] for key in sound}
    unclear = [key for key in sound if counted[key.count_name] <= _MAX_ESTIMATED_KEYS]
    if not unclear:
        return {}
    return named.agg(*(key.count() for key in unclear)).collect()[0].asDict()


def is_sound(target: Type, key: st.DataType) -> bool:
    """Return whether a key that is cast to the target's type still equals the same rows.

    Spark casts both sides to a common type. Where that rounds the target's values, several of them
    equal one key.
    """
    kind = target.type_id
    if isinstance(target, DecimalType):
        return _is_sound_decimal(target, key)
    if kind in (TypeId.INT, TypeId.LONG):
        # A double can store every int exactly, but not every long.
        exact = isinstance(key, st.DoubleType) and kind is TypeId.INT
        return exact or _is_sound_decimal(DecimalType(20, 0), key)
    if kind is TypeId.FLOAT:
        return isinstance(key, _FRACTIONS)
    if kind is TypeId.DOUBLE:
        return isinstance(key, (*_FRACTIONS, *_INTEGERS, st.DecimalType))
    if kind is TypeId.DATE:
        return isinstance(key, st.DateType)
    if kind in (TypeId.TIMESTAMPTZ, TypeId.TIMESTAMPTZ_NS):
        return isinstance(key, st.TimestampType | st.DateType)
    if kind in (TypeId.TIMESTAMP, TypeId.TIMESTAMP_NS):
        return isinstance(key, st.TimestampNTZType)
    if kind in (TypeId.STRING, TypeId.UUID):
        return key == st.StringType()
    if kind in (TypeId.BINARY, TypeId.FIXED):
        return isinstance(key, st.BinaryType)
    return kind is TypeId.BOOLEAN and isinstance(key, st.BooleanType)


def _is_sound_decimal(target: DecimalType, key: st.DataType) -> bool:
    if isinstance(key, _INTEGERS):
        whole, scale = 20, 0
    elif isinstance(key, st.DecimalType):
        whole, scale = key.precision - key.scale, key.scale
    else:
        return False
    # Beyond 38 digits Spark drops digits after the point.
    return max(whole, target.precision - target.scale) + max(scale, target.scale) <= 38


@dataclass(frozen=True)
class _KeyColumn:
    """One key: the columns that the two jobs compute for it, and their results."""

    position: int
    key: Key
    transforms: tuple[Transform, ...]
    """The transforms of the column in the table's partition specs."""

    @classmethod
    def of(cls, position: int, key: Key, table: Table) -> _KeyColumn:
        transforms = {
            str(field["transform"])
            for spec in table.metadata["partition-specs"]
            for field in spec["fields"]
            if field.get("source-id") == key.column.field.field_id
        }
        return cls(position, key, tuple(map(parse_transform, sorted(transforms))))

    @property
    def type(self) -> Type:
        return self.key.column.type

    def _name(self, part: str) -> str:
        return f"_key_{self.position}_{part}"

    def _value(self) -> Column:
        return fn.col(self._name("value"))

    # --- what the jobs compute ----------------------------------------------------------------

    def columns(self) -> Iterator[Column]:
        expression = fn.expr(self.key.source)
        yield expression.isNull().alias(self._name("null"))
        cast = expression.try_cast(spark_type(self.type))
        yield (fn.isnan(cast) if self._is_float else fn.lit(False)).alias(self._name("nan"))
        number = fn.when(~fn.isnan(cast), cast) if self._is_float else cast
        yield number.alias(self._name("value"))

    @property
    def _is_float(self) -> bool:
        return self.type.type_id in FLOATS

    def counts(self) -> Iterator[Column]:
        value = encoded(self.type, self._value())
        yield fn.min(value).alias(self._name("lowest"))
        yield fn.max(value).alias(self._name("highest"))
        yield fn.bool_or(fn.col(self._name("null"))).alias(self._name("null"))
        yield fn.bool_or(fn.col(self._name("nan"))).alias(self._name("nan"))
        # A sample has at most as many distinct keys as all rows have.
        sample = fn.when(fn.col(SOURCE_ROW) % _SAMPLED == 0, value)
        yield fn.approx_count_distinct(sample).alias(self.count_name)

    @property
    def count_name(self) -> str:
        return self._name("count")

    def count(self) -> Column:
        value = encoded(self.type, self._value())
        return fn.approx_count_distinct(value).alias(self.count_name)

    def sets(self, counted: Mapping[str, Any]) -> Iterator[Column]:
        """Yield the set of keys if they are few, and sets of their transformed values."""
        if counted[self.count_name] <= _MAX_ESTIMATED_KEYS and self.type.type_id not in NANOS:
            yield fn.collect_set(encoded(self.type, self._value())).alias(self._name("keys"))
        for transform in self._collected(counted):
            result = transform.result_type(self.type)
            column = encoded(result, transform_column(transform, self.type, self._value()))
            yield fn.collect_set(column).alias(self._name(str(transform)))

    def _collected(self, counted: Mapping[str, Any]) -> Iterator[Transform]:
        lowest, highest = counted[self._name("lowest")], counted[self._name("highest")]
        for transform in self.transforms:
            if isinstance(transform, Bucket):
                if transform.num_buckets <= MAX_KEYS:
                    yield transform
            elif self._spread(transform, lowest, highest) <= _MAX_TRANSFORMED:
                yield transform

    def _spread(self, transform: Transform, lowest: Any, highest: Any) -> float:
        """Return how many values the transform can have between two keys."""
        is_known = transform.preserves_order and str(transform) != "identity"
        if not is_known or not isinstance(lowest, int) or not isinstance(highest, int):
            return float("inf")
        units = NANOS_PER_MICRO if self.type.type_id in NANOS else 1
        first = transforms.apply(transform, self.type, lowest * units)
        last = transforms.apply(transform, self.type, highest * units)
        return float((last - first) / getattr(transform, "width", 1))

    # --- results of the jobs ------------------------------------------------------------------

    def values(self, counted: Mapping[str, Any], collected: Mapping[str, Any]) -> KeyValues:
        keys = collected.get(self._name("keys"))
        return KeyValues(
            name=self.key.column.name,
            type=self.type,
            has_null=self.key.null_safe and bool(counted[self._name("null")]),
            has_nan=bool(counted[self._name("nan")]),
            lowest=decoded(self.type, counted[self._name("lowest")]),
            highest=decoded(self.type, counted[self._name("highest")]),
            values=None if keys is None else _all_decoded(self.type, keys),
            transformed={
                str(transform): _all_decoded(transform.result_type(self.type), collected[name])
                for transform in self.transforms
                if (name := self._name(str(transform))) in collected
            },
        )


# --- values between Spark and Iceberg -------------------------------------------------------------


def encoded(type_: Type, column: Column) -> Column:
    """Encode days and times as numbers, which do not depend on a time zone or a calendar."""
    if type_.type_id is TypeId.DATE:
        return fn.unix_date(column)
    return unix_micros(type_, column) if type_.type_id in TIMESTAMPS else column


def decoded(type_: Type, value: Any) -> Any:
    """Return Iceberg's internal value; a text that is no uuid stays a text."""
    decode = _DECODERS.get(type_.type_id)
    return value if value is None or decode is None else decode(type_, value)


def _all_decoded(type_: Type, values: Sequence[Any]) -> frozenset[Any]:
    """Decode values; leave out those that the type cannot have, which equal nothing."""
    internal = frozenset(decoded(type_, value) for value in values)
    if type_.type_id is TypeId.UUID:
        return frozenset(value for value in internal if isinstance(value, UUID))
    if isinstance(type_, FixedType):
        return frozenset(value for value in internal if len(value) == type_.length)
    return internal


def _decimal(type_: Type, value: Decimal) -> Decimal:
    assert isinstance(type_, DecimalType)
    return value.quantize(Decimal((0, (1,), -type_.scale)), context=_WIDE)


def _uuid(_: Type, text: str) -> UUID | str:
    try:
        value = UUID(text)
    except ValueError:
        return text
    return value if str(value) == text else text


_DECODERS: Final[dict[TypeId, Callable[[Type, Any], Any]]] = {
    TypeId.DECIMAL: _decimal,
    TypeId.UUID: _uuid,
    TypeId.BINARY: lambda _, value: bytes(value),
    TypeId.FIXED: lambda _, value: bytes(value),
}

"""The keys of a MERGE's source, collected for the filter of what it reads.

Two small jobs over the source, which lies in temporary files by then: how many rows there are and
in which range the keys, then the keys themselves or, of many, what the table's partition transforms
make of them.
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
from frazil.spark.conditions.merge_conditions import MAX_KEYS, Key, KeyValues
from frazil.spark.rows.merge_frames import SOURCE_ROW
from frazil.spark.schema.partition_transforms import transform_column, unix_micros
from frazil.spark.schema.spark_types import spark_type
from frazil.values import transforms
from frazil.values.transforms import Bucket, Transform, parse_transform
from frazil.values.types import DecimalType, FixedType, Type, TypeId

_FEW: Final = MAX_KEYS + MAX_KEYS // 2
"""So many by estimate may be no more than `MAX_KEYS` in truth."""
_MAX_SPREAD: Final = 50_000
"""Of transforms that keep the order at most so many values are collected."""
_SAMPLED: Final = 16
"""One row of so many is looked at first."""
_ROWS: Final = "_rows"
_WIDE: Final = DecimalContext(prec=100)
_INTEGERS: Final = (st.ByteType, st.ShortType, st.IntegerType, st.LongType)
_FRACTIONS: Final = (st.FloatType, st.DoubleType)
_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_TIMESTAMPS: Final = frozenset(
    {TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ, TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS}
)
_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})


@dataclass(frozen=True)
class CollectedKeys:
    keys: tuple[KeyValues, ...] = ()
    source_rows: int | None = None
    """None where nothing had to be counted."""


def collected_keys(table: Table, source: DataFrame, keys: Sequence[Key]) -> CollectedKeys:
    """The keys of the source; those that say nothing certain about the target are left out.

    `source` is numbered and carries its alias: the keys' expressions are evaluated on it.
    """
    if not keys:
        return CollectedKeys()
    given = source.select(*(fn.expr(key.source) for key in keys))
    sound = [
        _KeyColumn.of(position, key, table)
        for position, (key, field) in enumerate(zip(keys, given.schema.fields, strict=True))
        if is_sound(key.column.type, field.dataType)
    ]
    if not sound:
        return CollectedKeys()
    named = source.select(
        *(column for one in sound for column in one.columns()), fn.col(SOURCE_ROW)
    )
    counts = [column for one in sound for column in one.counts()]
    counted = named.agg(fn.count(fn.lit(1)).alias(_ROWS), *counts).collect()[0].asDict()
    counted |= _estimates(named, sound, counted)
    wanted = [column for one in sound for column in one.sets(counted)]
    found = named.agg(*wanted).collect()[0].asDict() if wanted else {}
    return CollectedKeys(tuple(one.values(counted, found) for one in sound), counted[_ROWS])


def _estimates(
    named: DataFrame, sound: Sequence[_KeyColumn], counted: Mapping[str, Any]
) -> dict[str, int]:
    """How many distinct keys there are, for those that a sample has shown few of.

    To estimate it costs as much as all other numbers together, and mostly keys are either few
    because rows are, or about as many as rows.
    """
    if counted[_ROWS] <= _FEW:
        return {one.count_name: counted[_ROWS] for one in sound}
    open_ = [one for one in sound if counted[one.count_name] <= _FEW]
    if not open_:
        return {}
    return named.agg(*(one.count() for one in open_)).collect()[0].asDict()


def is_sound(target: Type, key: st.DataType) -> bool:
    """Whether a key that is cast to the target's type still finds all rows that it equals.

    Spark brings both sides to a common type. Where that rounds the target's values, several of
    them equal one key.
    """
    kind = target.type_id
    if isinstance(target, DecimalType):
        return _is_sound_decimal(target, key)
    if kind in (TypeId.INT, TypeId.LONG):
        # A double has room for every int, but not for every long.
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
    # Beyond 38 digits Spark gives up places behind the point.
    return max(whole, target.precision - target.scale) + max(scale, target.scale) <= 38


@dataclass(frozen=True)
class _KeyColumn:
    """One key on its way through the two jobs."""

    position: int
    key: Key
    transforms: tuple[Transform, ...]
    """Those that the table's partitions have of the column."""

    @classmethod
    def of(cls, position: int, key: Key, table: Table) -> _KeyColumn:
        found = {
            str(field["transform"])
            for spec in table.metadata["partition-specs"]
            for field in spec["fields"]
            if field.get("source-id") == key.column.field.field_id
        }
        return cls(position, key, tuple(map(parse_transform, sorted(found))))

    @property
    def type(self) -> Type:
        return self.key.column.type

    def _name(self, part: str) -> str:
        return f"_key_{self.position}_{part}"

    def _value(self) -> Column:
        return fn.col(self._name("value"))

    # --- what Spark is asked ------------------------------------------------------------------

    def columns(self) -> Iterator[Column]:
        expression = fn.expr(self.key.source)
        yield expression.isNull().alias(self._name("null"))
        cast = expression.try_cast(spark_type(self.type))
        yield (fn.isnan(cast) if self._floats else fn.lit(False)).alias(self._name("nan"))
        number = fn.when(~fn.isnan(cast), cast) if self._floats else cast
        yield number.alias(self._name("value"))

    @property
    def _floats(self) -> bool:
        return self.type.type_id in _FLOATS

    def counts(self) -> Iterator[Column]:
        value = encoded(self.type, self._value())
        yield fn.min(value).alias(self._name("lowest"))
        yield fn.max(value).alias(self._name("highest"))
        yield fn.bool_or(fn.col(self._name("null"))).alias(self._name("null"))
        yield fn.bool_or(fn.col(self._name("nan"))).alias(self._name("nan"))
        # Of a part of the rows there cannot be more than of all.
        part = fn.when(fn.col(SOURCE_ROW) % _SAMPLED == 0, value)
        yield fn.approx_count_distinct(part).alias(self.count_name)

    @property
    def count_name(self) -> str:
        return self._name("count")

    def count(self) -> Column:
        value = encoded(self.type, self._value())
        return fn.approx_count_distinct(value).alias(self.count_name)

    def sets(self, counted: Mapping[str, Any]) -> Iterator[Column]:
        """The keys if they are few, else their transforms."""
        if counted[self.count_name] <= _FEW and self.type.type_id not in _NANOS:
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
            elif self._spread(transform, lowest, highest) <= _MAX_SPREAD:
                yield transform

    def _spread(self, transform: Transform, lowest: Any, highest: Any) -> float:
        """How many values the transform can have between two keys."""
        known = transform.preserves_order and str(transform) != "identity"
        if not known or not isinstance(lowest, int) or not isinstance(highest, int):
            return float("inf")
        units = 1000 if self.type.type_id in _NANOS else 1
        first = transforms.apply(transform, self.type, lowest * units)
        last = transforms.apply(transform, self.type, highest * units)
        return float((last - first) / getattr(transform, "width", 1))

    # --- what it has answered -----------------------------------------------------------------

    def values(self, counted: Mapping[str, Any], found: dict[str, Any]) -> KeyValues:
        keys = found.get(self._name("keys"))
        return KeyValues(
            name=self.key.column.name,
            type=self.type,
            has_null=self.key.null_safe and bool(counted[self._name("null")]),
            has_nan=bool(counted[self._name("nan")]),
            lowest=decoded(self.type, counted[self._name("lowest")]),
            highest=decoded(self.type, counted[self._name("highest")]),
            values=None if keys is None else _all_decoded(self.type, keys),
            transformed={
                str(transform): _all_decoded(transform.result_type(self.type), found[name])
                for transform in self.transforms
                if (name := self._name(str(transform))) in found
            },
        )


# --- values between Spark and Iceberg -------------------------------------------------------------


def encoded(type_: Type, column: Column) -> Column:
    """Days and times as their numbers, which no time zone and no calendar can change on the way."""
    if type_.type_id is TypeId.DATE:
        return fn.unix_date(column)
    return unix_micros(type_, column) if type_.type_id in _TIMESTAMPS else column


def decoded(type_: Type, value: Any) -> Any:
    """Iceberg's internal value; a text that is no uuid is its own."""
    decode = _DECODERS.get(type_.type_id)
    return value if value is None or decode is None else decode(type_, value)


def _all_decoded(type_: Type, values: Sequence[Any]) -> frozenset[Any]:
    """Without those that the type cannot have, which equal nothing in the table."""
    found = (decoded(type_, value) for value in values)
    return frozenset(value for value in found if _is_of(type_, value))


def _is_of(type_: Type, value: Any) -> bool:
    if type_.type_id is TypeId.UUID:
        return isinstance(value, UUID)
    return not isinstance(type_, FixedType) or len(value) == type_.length


def _decimal(type_: Type, value: Decimal) -> Decimal:
    assert isinstance(type_, DecimalType)
    return value.quantize(Decimal((0, (1,), -type_.scale)), context=_WIDE)


def _uuid(_: Type, text: str) -> UUID | str:
    try:
        found = UUID(text)
    except ValueError:
        return text
    return found if str(found) == text else text


def _bytes(_: Type, value: bytearray) -> bytes:
    return bytes(value)


_DECODERS: Final[dict[TypeId, Callable[[Type, Any], Any]]] = {
    TypeId.DECIMAL: _decimal,
    TypeId.UUID: _uuid,
    TypeId.BINARY: _bytes,
    TypeId.FIXED: _bytes,
}

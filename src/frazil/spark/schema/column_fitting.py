"""Columns of a frame made those of a schema, at every level, as expressions: no job is run.

A struct is put together anew, a list or a map is transformed, and only where something in it is
another. How fields find each other and what fills a missing one are the caller's rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Literal, TypeAlias

import pyspark.sql.types as st
from pyspark.sql import Column
from pyspark.sql import functions as fn

from frazil.spark.schema.spark_literals import literal
from frazil.spark.schema.spark_types import spark_type
from frazil.values.types import ListType, MapType, NestedField, StructType, Type
from frazil.wire.errors import BadRequest

Policy: TypeAlias = Literal["ansi", "strict"]
POLICY_SETTING: Final = "spark.sql.storeAssignmentPolicy"


class Assignment(Enum):
    SAME = auto()
    SAFE = auto()
    """A cast that no value fails."""
    CHECKED = auto()
    """A cast that fails for values that do not fit."""
    REFUSED = auto()


def parse_policy(text: str) -> Policy:
    lowered = text.lower()
    if lowered == "strict":
        return "strict"
    if lowered == "ansi":
        return "ansi"
    raise BadRequest(f"{POLICY_SETTING} is {text}: set it to ANSI or STRICT, tables have no other")


def assignment(found: st.DataType, target: st.DataType, policy: Policy) -> Assignment:
    """Of types without parts."""
    if found == target:
        return Assignment.SAME
    if _is_up_cast(found, target):
        return Assignment.SAFE
    if policy == "ansi":
        if isinstance(found, st.NumericType) and isinstance(target, st.NumericType):
            return Assignment.CHECKED
        if _is_day(found) and _is_day(target):
            return Assignment.SAFE
    return Assignment.REFUSED


def _is_up_cast(found: st.DataType, target: st.DataType) -> bool:
    if isinstance(found, st.NullType):
        return True
    if isinstance(target, st.StringType):
        return isinstance(found, st.AtomicType)
    if isinstance(target, st.DecimalType):
        digits = _digits(found)
        if digits is None:
            return False
        whole, scale = digits
        return target.scale >= scale and target.precision - target.scale >= whole
    if type(found) in _NUMBERS and type(target) in _NUMBERS:
        return _NUMBERS.index(type(found)) < _NUMBERS.index(type(target))
    return isinstance(found, st.DateType) and _is_day(target)


def _is_day(type_: st.DataType) -> bool:
    return isinstance(type_, st.DateType | st.TimestampType | st.TimestampNTZType)


def _digits(type_: st.DataType) -> tuple[int, int] | None:
    """How many digits stand before and behind the point of the longest value."""
    if isinstance(type_, st.DecimalType):
        return type_.precision - type_.scale, type_.scale
    whole = _WHOLE_DIGITS.get(type(type_))
    return None if whole is None else (whole, 0)


_NUMBERS: Final[list[Any]] = [
    st.ByteType,
    st.ShortType,
    st.IntegerType,
    st.LongType,
    st.FloatType,
    st.DoubleType,
]
"""Spark's order: each up-casts to those behind it."""
_WHOLE_DIGITS: Final[dict[Any, int]] = {
    st.ByteType: 3,
    st.ShortType: 5,
    st.IntegerType: 10,
    st.LongType: 20,
}


@dataclass(frozen=True)
class Source:
    """A column, field, element, key or value of the frame."""

    column: Column
    type: st.DataType
    nullable: bool
    name: str


class ColumnFitter(ABC):
    """Walks the schema and the frame's types side by side; problems are collected, not raised."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    # --- the rules ---------------------------------------------------------------------------

    @abstractmethod
    def match(self, found: st.StructType, target: StructType, path: str) -> list[int | None]:
        """For each field of the target the position of the one that it is taken from."""

    @abstractmethod
    def default(self, target: NestedField) -> Any:
        """The internal value of a field that the frame does not have."""

    @abstractmethod
    def assign(self, found: st.DataType, target: Type) -> Assignment: ...

    # --- the walk ----------------------------------------------------------------------------

    def fields(
        self, sources: list[Source], found: st.StructType, target: StructType, path: str
    ) -> tuple[list[Column], bool]:
        """The target's fields by their names, and whether any differs from the frame's."""
        places = self.match(found, target, path)
        changed = places != list(range(len(sources)))
        columns = []
        for field, place in zip(target.fields, places, strict=True):
            where = f"{path}.{field.name}" if path else field.name
            if place is None:
                columns.append(self._missing(field, where).alias(field.name))
                continue
            source = sources[place]
            column, differs = self.field(source, field, where)
            differs = differs or source.name != field.name
            columns.append(column.alias(field.name) if differs or path else column)
            changed = changed or differs
        return columns, changed

    def field(self, source: Source, target: NestedField, path: str) -> tuple[Column, bool]:
        column, changed = self._converted(source, target.type, path)
        if not target.required or not source.nullable:
            return column, changed
        message = f"column {path} is required, but has a null: give it a value"
        return fn.coalesce(column, _error(fn.lit(message), spark_type(target.type))), True

    def _missing(self, field: NestedField, path: str) -> Column:
        value = self.default(field)
        if value is None:
            if field.required:
                self.problems.append(f"column {path} is required, has no default and is missing")
            return fn.lit(None).cast(spark_type(field.type))
        if isinstance(field.type, StructType):
            parts = [
                self._missing(part, f"{path}.{part.name}").alias(part.name)
                for part in field.type.fields
            ]
            return fn.struct(*parts)
        return literal(field.type, value)

    def _converted(self, source: Source, target: Type, path: str) -> tuple[Column, bool]:
        found = source.type
        if isinstance(found, st.NullType) and target.is_nested:
            return source.column.cast(spark_type(target)), True
        if isinstance(target, StructType) and isinstance(found, st.StructType):
            return self._struct(source, found, target, path)
        if isinstance(target, ListType) and isinstance(found, st.ArrayType):
            return self._list(source, found, target, path)
        if isinstance(target, MapType) and isinstance(found, st.MapType):
            return self._map(source, found, target, path)
        if target.is_nested or isinstance(found, st.StructType | st.ArrayType | st.MapType):
            self._refuse(found, target, path)
            return source.column, True
        return self._leaf(source, target, path)

    def _struct(
        self, source: Source, found: st.StructType, target: StructType, path: str
    ) -> tuple[Column, bool]:
        sources = [
            # A field of a null struct is null, but the struct is not put together there.
            Source(source.column.getField(field.name), field.dataType, field.nullable, field.name)
            for field in found.fields
        ]
        columns, changed = self.fields(sources, found, target, path)
        if not changed:
            return source.column, False
        made = fn.struct(*columns)
        return (fn.when(source.column.isNotNull(), made) if source.nullable else made), True

    def _list(
        self, source: Source, found: st.ArrayType, target: ListType, path: str
    ) -> tuple[Column, bool]:
        def convert(column: Column) -> tuple[Column, bool]:
            element = Source(column, found.elementType, found.containsNull, "element")
            return self.field(element, target.element, f"{path}.element")

        # Tried on a name first: what is as it should be is not walked through.
        if not self._differs(convert):
            return source.column, False
        return fn.transform(source.column, lambda element: convert(element)[0]), True

    def _map(
        self, source: Source, found: st.MapType, target: MapType, path: str
    ) -> tuple[Column, bool]:
        def key(column: Column) -> tuple[Column, bool]:
            part = Source(column, found.keyType, False, "key")
            return self.field(part, target.key, f"{path}.key")

        def value(column: Column) -> tuple[Column, bool]:
            part = Source(column, found.valueType, found.valueContainsNull, "value")
            return self.field(part, target.value, f"{path}.value")

        column, changed = source.column, False
        if self._differs(key):
            column, changed = fn.transform_keys(column, lambda one, _: key(one)[0]), True
        if self._differs(value):
            column, changed = fn.transform_values(column, lambda _, one: value(one)[0]), True
        return column, changed

    def _differs(self, convert: Any) -> bool:
        known = len(self.problems)
        changed: bool = convert(fn.col("element"))[1]
        if len(self.problems) > known:
            return False
        return changed

    def _leaf(self, source: Source, target: Type, path: str) -> tuple[Column, bool]:
        wanted = spark_type(target)
        kind = self.assign(source.type, target)
        if kind is Assignment.SAME:
            return source.column, False
        if kind is Assignment.REFUSED:
            self._refuse(source.type, target, path)
            return source.column, True
        if kind is Assignment.SAFE:
            return source.column.cast(wanted), True
        return _checked_cast(source.column, wanted, target, path), True

    def _refuse(self, found: st.DataType, target: Type, path: str) -> None:
        named = target.type_id.value if target.is_nested else str(target)
        self.problems.append(
            f"column {path}: {found.simpleString()} cannot be stored as {named}: cast it before"
        )


def _checked_cast(column: Column, wanted: st.DataType, target: Type, path: str) -> Column:
    """Fails for a value that does not fit, also where the session does not have ANSI's casts."""
    tried = column.try_cast(wanted)
    message = fn.concat(
        fn.lit(f"column {path}: the value "),
        column.cast("string"),
        fn.lit(f" does not fit {target}"),
    )
    return fn.when(column.isNull() | tried.isNotNull(), tried).otherwise(_error(message, wanted))


def _error(message: Column, type_: st.DataType) -> Column:
    return fn.raise_error(message).cast(type_)

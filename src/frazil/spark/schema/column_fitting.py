"""Convert the columns of a frame to those of a schema, at every level, as expressions.

No job runs. A struct is rebuilt and a list or map is transformed only if something in it differs.
Subclasses of `ColumnFitter` say how fields are matched and what fills a missing one.
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
    """How a value of one type is stored in a column of another."""

    SAME = auto()
    SAFE = auto()
    """A cast that cannot fail."""
    CHECKED = auto()
    """A cast that fails if a value does not fit."""
    REFUSED = auto()


def parse_policy(text: str) -> Policy:
    """Parse the value of `spark.sql.storeAssignmentPolicy`."""
    lowered = text.lower()
    if lowered == "strict":
        return "strict"
    if lowered == "ansi":
        return "ansi"
    raise BadRequest(f"{POLICY_SETTING} is {text}: set it to ANSI or STRICT, no other is supported")


def assignment(source_type: st.DataType, target: st.DataType, policy: Policy) -> Assignment:
    """Return how a value of a primitive type is stored in a column of another one.

    The rules are Spark's `spark.sql.storeAssignmentPolicy`. ANSI takes numbers of any kind, fails
    when a value does not fit, and takes no text for a number. STRICT takes only what cannot fail.
    """
    if source_type == target:
        return Assignment.SAME
    if _is_up_cast(source_type, target):
        return Assignment.SAFE
    if policy == "ansi":
        if isinstance(source_type, st.NumericType) and isinstance(target, st.NumericType):
            return Assignment.CHECKED
        if _is_day(source_type) and _is_day(target):
            return Assignment.SAFE
    return Assignment.REFUSED


def _is_up_cast(source_type: st.DataType, target: st.DataType) -> bool:
    if isinstance(source_type, st.NullType):
        return True
    if isinstance(target, st.StringType):
        return isinstance(source_type, st.AtomicType)
    if isinstance(target, st.DecimalType):
        digits = _digits(source_type)
        if digits is None:
            return False
        whole, scale = digits
        return target.scale >= scale and target.precision - target.scale >= whole
    if type(source_type) in _NUMBERS and type(target) in _NUMBERS:
        return _NUMBERS.index(type(source_type)) < _NUMBERS.index(type(target))
    return isinstance(source_type, st.DateType) and _is_day(target)


def _is_day(type_: st.DataType) -> bool:
    return isinstance(type_, st.DateType | st.TimestampType | st.TimestampNTZType)


def _digits(type_: st.DataType) -> tuple[int, int] | None:
    """Return how many digits the longest value has before and after the decimal point."""
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
"""In Spark's order: each type up-casts to the ones after it."""
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
    """Walks the schema and the frame's types in parallel; collects problems in a list."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    # --- rules -------------------------------------------------------------------------------

    @abstractmethod
    def match(self, source_type: st.StructType, target: StructType, path: str) -> list[int | None]:
        """Return, for each target field, the position of its source, or None."""

    @abstractmethod
    def default(self, target: NestedField) -> Any:
        """Return the internal value of a field that the frame does not have."""

    @abstractmethod
    def assign(self, source_type: st.DataType, target: Type) -> Assignment:
        """Return how a value is stored in a field of the target type."""

    # --- walk --------------------------------------------------------------------------------

    def fields(
        self, sources: list[Source], source_type: st.StructType, target: StructType, path: str
    ) -> tuple[list[Column], bool]:
        """Return a column for each target field, and whether any differs from its source."""
        positions = self.match(source_type, target, path)
        changed = positions != list(range(len(sources)))
        columns = []
        for field, position in zip(target.fields, positions, strict=True):
            field_path = f"{path}.{field.name}" if path else field.name
            if position is None:
                columns.append(self._missing(field, field_path).alias(field.name))
                continue
            source = sources[position]
            column, differs = self.field(source, field, field_path)
            differs = differs or source.name != field.name
            columns.append(column.alias(field.name) if differs or path else column)
            changed = changed or differs
        return columns, changed

    def field(self, source: Source, target: NestedField, path: str) -> tuple[Column, bool]:
        """Return the source as the target field, and whether it differs from the source."""
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
        source_type = source.type
        if isinstance(source_type, st.NullType) and target.is_nested:
            return source.column.cast(spark_type(target)), True
        if isinstance(target, StructType) and isinstance(source_type, st.StructType):
            return self._struct(source, source_type, target, path)
        if isinstance(target, ListType) and isinstance(source_type, st.ArrayType):
            return self._list(source, source_type, target, path)
        if isinstance(target, MapType) and isinstance(source_type, st.MapType):
            return self._map(source, source_type, target, path)
        if target.is_nested or isinstance(source_type, st.StructType | st.ArrayType | st.MapType):
            self._refuse(source_type, target, path)
            return source.column, True
        return self._leaf(source, target, path)

    def _struct(
        self, source: Source, source_type: st.StructType, target: StructType, path: str
    ) -> tuple[Column, bool]:
        sources = [
            # A field of a null struct is null, but the struct is not rebuilt for it.
            Source(source.column.getField(field.name), field.dataType, field.nullable, field.name)
            for field in source_type.fields
        ]
        columns, changed = self.fields(sources, source_type, target, path)
        if not changed:
            return source.column, False
        rebuilt = fn.struct(*columns)
        return (fn.when(source.column.isNotNull(), rebuilt) if source.nullable else rebuilt), True

    def _list(
        self, source: Source, source_type: st.ArrayType, target: ListType, path: str
    ) -> tuple[Column, bool]:
        def convert(column: Column) -> tuple[Column, bool]:
            element = Source(column, source_type.elementType, source_type.containsNull, "element")
            return self.field(element, target.element, f"{path}.element")

        # Try a placeholder column first: a list that already fits is not transformed.
        if not self._differs(convert):
            return source.column, False
        return fn.transform(source.column, lambda element: convert(element)[0]), True

    def _map(
        self, source: Source, source_type: st.MapType, target: MapType, path: str
    ) -> tuple[Column, bool]:
        def key(column: Column) -> tuple[Column, bool]:
            part = Source(column, source_type.keyType, False, "key")
            return self.field(part, target.key, f"{path}.key")

        def value(column: Column) -> tuple[Column, bool]:
            part = Source(column, source_type.valueType, source_type.valueContainsNull, "value")
            return self.field(part, target.value, f"{path}.value")

        column, changed = source.column, False
        if self._differs(key):
            column, changed = fn.transform_keys(column, lambda one, _: key(one)[0]), True
        if self._differs(value):
            column, changed = fn.transform_values(column, lambda _, one: value(one)[0]), True
        return column, changed

    def _differs(self, convert: Any) -> bool:
        problems = len(self.problems)
        changed: bool = convert(fn.col("element"))[1]
        return changed and len(self.problems) == problems

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

    def _refuse(self, source_type: st.DataType, target: Type, path: str) -> None:
        type_name = target.type_id.value if target.is_nested else str(target)
        self.problems.append(
            f"column {path}: {source_type.simpleString()} cannot be stored as {type_name}: "
            "cast it before"
        )


def _checked_cast(column: Column, wanted: st.DataType, target: Type, path: str) -> Column:
    """Return a cast that fails if a value does not fit, even if ANSI mode is off."""
    tried = column.try_cast(wanted)
    message = fn.concat(
        fn.lit(f"column {path}: the value "),
        column.cast("string"),
        fn.lit(f" does not fit {target}"),
    )
    return fn.when(column.isNull() | tried.isNotNull(), tried).otherwise(_error(message, wanted))


def _error(message: Column, type_: st.DataType) -> Column:
    return fn.raise_error(message).cast(type_)

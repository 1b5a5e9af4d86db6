"""Iceberg's filters as conditions of Spark that keep the very same rows.

The two differ in nulls and NaN. In Iceberg a comparison with null is false and its negation true:
of the predicates only `not-eq`, `not-in`, `not-starts-with` and `not-nan` match a null, which in
Spark no comparison does. No order holds for NaN, which to Spark is the greatest number. Negations
are pushed down to the predicates first, as Java's `RewriteNot` does. To Spark a zero has no sign,
and it keeps none here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from frazil.spark.core.name_matching import quoted
from frazil.spark.schema.spark_types import spark_type
from frazil.values import temporal
from frazil.values.literal_values import OutOfRange, literal_value
from frazil.values.single_value import InvalidValue
from frazil.values.transforms import IDENTITY, Transform
from frazil.values.types import NestedField, StructType, Type, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    PREFIX_OPERATIONS,
    SET_OPERATIONS,
    UNARY_OPERATIONS,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Not,
    Or,
    Predicate,
    Term,
    all_of,
    any_of,
    without_not,
)
from frazil.wire.filter_builders import Filter, always_true, expression_of

_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_ZONED: Final = frozenset({TypeId.TIMESTAMPTZ, TypeId.TIMESTAMPTZ_NS})


def internal_value(type_: Type, value: Any, name: str) -> Any:
    """Return a literal of a filter as a value of the column's type, or `OutOfRange`."""
    try:
        return literal_value(type_, value)
    except InvalidValue as error:
        raise BadRequest(f"filter on {name}: {error}") from None


def in_microseconds(operation: str, type_: Type, value: Any) -> tuple[str, Any]:
    """A comparison with nanoseconds as one of what Spark has, which is cut to microseconds.

    None as the value: no microsecond equals it.
    """
    if type_.type_id not in _NANOS or value % temporal.NANOS_PER_MICRO == 0:
        return operation, value
    if operation in ("eq", "not-eq"):
        return operation, None
    return ("lt-eq" if operation.startswith("lt") else "gt"), value


# --- as columns -----------------------------------------------------------------------------------


def value_column(type_: Type, value: Any) -> Column:
    """An internal value as a constant of the Spark type that columns of the type have.

    Spark folds these expressions before it plans, so that they are pushed down as constants.
    """
    make = _COLUMNS.get(type_.type_id)
    if make is None:
        return F.lit(value)
    return make(type_, value)


def _timestamp(type_: Type, value: int) -> Column:
    micros = value // temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else value
    if type_.type_id in _ZONED:
        return F.timestamp_micros(F.lit(micros))
    text = temporal.timestamp_from_micros(micros, with_zone=False)
    return F.lit(text).cast("timestamp_ntz")


def _text(type_: Type, value: Any) -> Column:
    return F.lit(str(value)).cast(spark_type(type_))


_COLUMNS: Final[Mapping[TypeId, Callable[[Any, Any], Column]]] = {
    TypeId.LONG: lambda type_, value: F.lit(value).cast("long"),
    TypeId.FLOAT: lambda type_, value: F.lit(value).cast("float"),
    TypeId.DECIMAL: _text,
    TypeId.DATE: lambda type_, value: F.date_from_unix_date(F.lit(value)),
    TypeId.TIME: lambda type_, value: F.lit(temporal.time_from_micros(value)).cast("time(6)"),
    TypeId.TIMESTAMP: _timestamp,
    TypeId.TIMESTAMPTZ: _timestamp,
    TypeId.TIMESTAMP_NS: _timestamp,
    TypeId.TIMESTAMPTZ_NS: _timestamp,
    TypeId.UUID: lambda type_, value: F.lit(str(value)),
    TypeId.FIXED: lambda type_, value: F.unhex(F.lit(value.hex())),
    TypeId.BINARY: lambda type_, value: F.unhex(F.lit(value.hex())),
}


_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})


def spark_condition(expression: Filter, schema: StructType) -> Column:
    """A condition that is true or false, never null, on a frame with the schema's columns."""
    return _condition(without_not(expression_of(expression)), _Names(schema))


# --- expressions ----------------------------------------------------------------------------------


def without_transforms(expression: Expression) -> Expression:
    """An expression that matches at least as many rows, and looks at no transforms."""
    expression = without_not(expression)
    if isinstance(expression, Predicate) and expression.term.transform is not None:
        return always_true()
    if isinstance(expression, And | Or):
        join = all_of if isinstance(expression, And) else any_of
        return join(*map(without_transforms, expression.operands))
    return expression


def names_in(expression: Expression) -> Iterator[str]:
    """The columns that an expression looks at."""
    if isinstance(expression, Predicate):
        yield expression.term.name
    elif isinstance(expression, Not):
        yield from names_in(expression.child)
    elif isinstance(expression, And | Or):
        for operand in expression.operands:
            yield from names_in(operand)


def renamed(
    expression: Expression, from_schema: StructType, to_schema: StructType
) -> Expression | None:
    """The same expression in the names of another schema; None where it lacks one of the
    columns."""
    before, after = (
        _Names(from_schema),
        {found.field.field_id: name for name, found in _Names(to_schema).by_name.items()},
    )
    names: dict[str, str] = {}
    for name in names_in(expression):
        found = after.get(before.find(name).field.field_id)
        if found is None:
            return None
        names[name] = found
    return _renamed(expression, names)


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    if isinstance(expression, Predicate):
        return replace(
            expression, term=replace(expression.term, column=names[expression.term.name])
        )
    if isinstance(expression, Not):
        return Not(_renamed(expression.child, names))
    if isinstance(expression, And | Or):
        return type(expression)(tuple(_renamed(one, names) for one in expression.operands))
    return expression


# --- columns --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    path: tuple[str, ...]
    field: NestedField

    @property
    def column(self) -> Column:
        return F.col(".".join(quoted(name) for name in self.path))


@dataclass(frozen=True)
class _Names:
    """Columns by their dotted names, as Iceberg's expressions have them."""

    schema: StructType

    @cached_property
    def by_name(self) -> Mapping[str, _Found]:
        return {".".join(found.path): found for found in _walk(self.schema, ())}

    def find(self, name: str) -> _Found:
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(self.by_name)
            raise BadRequest(f"filter: there is no column {name!r}; there are {known}")
        return found


def _walk(struct: StructType, before: tuple[str, ...]) -> Iterator[_Found]:
    for field in struct.fields:
        path = (*before, field.name)
        yield _Found(path, field)
        if isinstance(field.type, StructType):
            yield from _walk(field.type, path)


def top_field(name: str, schema: StructType) -> NestedField:
    """The column of a schema that a dotted name is of."""
    found = _Names(schema).find(name)
    return next(field for field in schema.fields if field.name == found.path[0])


# --- conditions -----------------------------------------------------------------------------------


def _condition(expression: Expression, names: _Names) -> Column:
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return F.lit(isinstance(expression, AlwaysTrue))
    if isinstance(expression, And | Or):
        parts = [_condition(operand, names) for operand in expression.operands]
        both = isinstance(expression, And)
        return reduce(lambda one, other: one & other if both else one | other, parts)
    assert isinstance(expression, Predicate)
    column, type_ = _term(expression.term, names)
    if expression.operation in UNARY_OPERATIONS:
        return _unary(expression, column, type_)
    if expression.operation in PREFIX_OPERATIONS and type_.type_id is not TypeId.STRING:
        raise BadRequest(f"filter on {expression.term}: {expression.operation} needs a string")
    values = [internal_value(type_, value, str(expression.term)) for value in expression.values]
    if expression.operation in SET_OPERATIONS:
        return _in_set(expression.operation, column, type_, values)
    if expression.operation in PREFIX_OPERATIONS:
        return _prefix(expression.operation, column, values[0])
    return _compared(expression.operation, column, type_, values[0])


def _term(term: Term, names: _Names) -> tuple[Column, Type]:
    found = names.find(term.name)
    if not found.field.type.is_primitive:
        # Whether a nested column or a variant is null can be asked; it has no value to compare.
        return found.column, found.field.type
    transform = term.transform
    if transform is None or transform == IDENTITY:
        return found.column, found.field.type
    return _transformed(transform, found), transform.result_type(found.field.type)


def _transformed(transform: Transform, found: _Found) -> Column:
    from frazil.spark.schema.partition_transforms import transform_column

    return transform_column(transform, found.field.type, found.column)


def _unary(predicate: Predicate, column: Column, type_: Type) -> Column:
    if predicate.operation in ("is-null", "not-null"):
        return column.isNull() if predicate.operation == "is-null" else column.isNotNull()
    if type_.type_id not in _FLOATS:
        raise BadRequest(
            f"filter on {predicate.term}: {predicate.operation} needs a float or double, and it is "
            f"{type_}"
        )
    is_nan = F.isnan(column)
    # Spark's isnan of null is false.
    return is_nan if predicate.operation == "is-nan" else ~is_nan


def _in_set(operation: str, column: Column, type_: Type, values: Sequence[Any]) -> Column:
    inside = [
        value_column(type_, value)
        for value in values
        if not isinstance(value, OutOfRange) and in_microseconds("eq", type_, value)[1] is not None
    ]
    if not inside:
        return F.lit(operation == "not-in")
    found = column.isin(inside)
    return column.isNotNull() & found if operation == "in" else column.isNull() | ~found


def _prefix(operation: str, column: Column, value: Any) -> Column:
    found = column.startswith(value)
    return column.isNotNull() & found if operation == "starts-with" else column.isNull() | ~found


def _compared(operation: str, column: Column, type_: Type, value: Any) -> Column:
    if isinstance(value, OutOfRange):
        # All values lie on one side of it. As in Java, nulls and NaN are not told apart here.
        side = "lt" if value is OutOfRange.ABOVE_MAX else "gt"
        return F.lit(operation == "not-eq" or operation.startswith(side))
    operation, value = in_microseconds(operation, type_, value)
    if value is None:
        return F.lit(operation == "not-eq")
    literal = value_column(type_, value)
    if operation == "not-eq":
        return column.isNull() | (column != literal)
    found = _COMPARISONS[operation](column, literal) & column.isNotNull()
    if operation in ("gt", "gt-eq") and type_.type_id in _FLOATS:
        return found & ~F.isnan(column)
    return found


_COMPARISONS: Final[Mapping[str, Callable[[Column, Column], Column]]] = {
    "lt": lambda column, value: column < value,
    "lt-eq": lambda column, value: column <= value,
    "gt": lambda column, value: column > value,
    "gt-eq": lambda column, value: column >= value,
    "eq": lambda column, value: column == value,
}

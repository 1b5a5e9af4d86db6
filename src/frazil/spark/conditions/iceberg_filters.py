"""Convert Iceberg filters to Spark conditions that keep exactly the same rows.

The two differ in nulls, NaN and zeros. In Iceberg a comparison with null is false and its negation
is true: `not-eq`, `not-in`, `not-starts-with` and `not-nan` match null. In Spark no comparison
does. In Iceberg NaN has no order; in Spark it is the greatest number. Zeros have no sign here, as
in Spark. Negations are first pushed down to the predicates, like Java's `RewriteNot` does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from frazil.spark.conditions.sql_columns import FoundColumn, columns_of
from frazil.spark.core.name_matching import quoted
from frazil.spark.schema.partition_transforms import transform_column
from frazil.spark.schema.spark_literals import literal
from frazil.spark.schema.spark_types import FLOATS, NANOS
from frazil.values import temporal
from frazil.values.literal_values import OutOfRange, literal_value
from frazil.values.single_value import InvalidValue
from frazil.values.transforms import IDENTITY
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
from frazil.wire.expressions import names_in as names_in
from frazil.wire.filter_builders import Filter, always_true, expression_of

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq,
    "not-eq": operator.ne,
    "lt": operator.lt,
    "lt-eq": operator.le,
    "gt": operator.gt,
    "gt-eq": operator.ge,
}


def spark_condition(expression: Filter, schema: StructType) -> Column:
    """Return a condition on a frame with the schema's columns. It is true or false, never null."""
    return _condition(without_not(expression_of(expression)), _DottedNames(schema))


# --- expressions ----------------------------------------------------------------------------------


def without_transforms(expression: Expression) -> Expression:
    """Return an expression without transforms that matches at least the same rows."""
    expression = without_not(expression)
    if isinstance(expression, Predicate) and expression.term.transform is not None:
        return always_true()
    if isinstance(expression, And | Or):
        join = all_of if isinstance(expression, And) else any_of
        return join(*map(without_transforms, expression.operands))
    return expression


def renamed(
    expression: Expression, from_schema: StructType, to_schema: StructType
) -> Expression | None:
    """Return the expression with the names of another schema; None if that lacks a column."""
    old_names = _DottedNames(from_schema)
    new_names = {column.field.field_id: column.name for column in columns_of(to_schema)}
    names: dict[str, str] = {}
    for name in names_in(expression):
        new_name = new_names.get(old_names.find(name).field.field_id)
        if new_name is None:
            return None
        names[name] = new_name
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
class _DottedNames:
    """Columns by their dotted names, as Iceberg's expressions name them."""

    schema: StructType

    @cached_property
    def by_name(self) -> Mapping[str, FoundColumn]:
        return {column.name: column for column in columns_of(self.schema)}

    def find(self, name: str) -> FoundColumn:
        """Return a column; raise BadRequest if there is none."""
        column = self.by_name.get(name)
        if column is None:
            known = ", ".join(self.by_name)
            raise BadRequest(f"filter: there is no column {name!r}; known columns are {known}")
        return column


def top_field(name: str, schema: StructType) -> NestedField:
    """Return the top-level column that a dotted name belongs to."""
    top_name = _DottedNames(schema).find(name).parts[0]
    return next(field for field in schema.fields if field.name == top_name)


# --- conditions -----------------------------------------------------------------------------------


def _condition(expression: Expression, names: _DottedNames) -> Column:
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return F.lit(isinstance(expression, AlwaysTrue))
    if isinstance(expression, And | Or):
        parts = [_condition(operand, names) for operand in expression.operands]
        return reduce(operator.and_ if isinstance(expression, And) else operator.or_, parts)
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


def _term(term: Term, names: _DottedNames) -> tuple[Column, Type]:
    source = names.find(term.name)
    column, type_ = F.col(quoted(*source.parts)), source.type
    transform = term.transform
    # Nested columns and variants can be null, but have no values that a transform could take.
    if not type_.is_primitive or transform is None or transform == IDENTITY:
        return column, type_
    return transform_column(transform, type_, column), transform.result_type(type_)


def _unary(predicate: Predicate, column: Column, type_: Type) -> Column:
    if predicate.operation in ("is-null", "not-null"):
        return column.isNull() if predicate.operation == "is-null" else column.isNotNull()
    if type_.type_id not in FLOATS:
        raise BadRequest(
            f"filter on {predicate.term}: {predicate.operation} needs a float or double, and it is "
            f"{type_}"
        )
    is_nan = F.isnan(column)
    # In Spark, isnan(null) is false.
    return is_nan if predicate.operation == "is-nan" else ~is_nan


def _in_set(operation: str, column: Column, type_: Type, values: Sequence[Any]) -> Column:
    constants = [
        literal(type_, value)
        for value in values
        if not isinstance(value, OutOfRange) and in_microseconds("eq", type_, value)[1] is not None
    ]
    if not constants:
        return F.lit(operation == "not-in")
    return _null_safe(column, column.isin(constants), negated=operation == "not-in")


def _prefix(operation: str, column: Column, value: Any) -> Column:
    return _null_safe(column, column.startswith(value), negated=operation != "starts-with")


def _null_safe(column: Column, condition: Column, *, negated: bool) -> Column:
    """Return the condition, or its negation, which matches null."""
    return column.isNull() | ~condition if negated else column.isNotNull() & condition


def internal_value(type_: Type, value: Any, name: str) -> Any:
    """Return a literal of a filter as a value of the column's type, or `OutOfRange`."""
    try:
        return literal_value(type_, value)
    except InvalidValue as error:
        raise BadRequest(f"filter on {name}: {error}") from None


def in_microseconds(operation: str, type_: Type, value: Any) -> tuple[str, Any]:
    """Convert a comparison with nanoseconds to one with Spark's truncated microseconds.

    The value None means that no microsecond equals the constant.
    """
    if type_.type_id not in NANOS or value % temporal.NANOS_PER_MICRO == 0:
        return operation, value
    if operation in ("eq", "not-eq"):
        return operation, None
    return ("lt-eq" if operation.startswith("lt") else "gt"), value


def _compared(operation: str, column: Column, type_: Type, value: Any) -> Column:
    if isinstance(value, OutOfRange):
        # All values are on one side of the constant. Like Java, ignore nulls and NaN.
        side = "lt" if value is OutOfRange.ABOVE_MAX else "gt"
        return F.lit(operation == "not-eq" or operation.startswith(side))
    operation, value = in_microseconds(operation, type_, value)
    if value is None:
        return F.lit(operation == "not-eq")
    constant = literal(type_, value)
    if operation == "not-eq":
        return column.isNull() | (column != constant)
    condition: Column = COMPARISONS[operation](column, constant) & column.isNotNull()
    if operation in ("gt", "gt-eq") and type_.type_id in FLOATS:
        return condition & ~F.isnan(column)
    return condition

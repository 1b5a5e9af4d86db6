"""Iceberg's filters as conditions of Spark that keep the very same rows.

The two differ in nulls and NaN. In Iceberg a comparison with null is false and its negation true:
of the predicates only `not-eq`, `not-in`, `not-starts-with` and `not-nan` match a null, which in
Spark no comparison does. No order holds for NaN, which to Spark is the greatest number. Negations
are pushed down to the predicates first, as Java's `RewriteNot` does. To Spark a zero has no sign,
and it keeps none here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from frazil.client.filter.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Filter,
    Not,
    Or,
    Predicate,
    Term,
    all_of,
    always_false,
    always_true,
    any_of,
    filter_json,
)
from frazil.spark.conditions.filter_values import (
    ABOVE,
    Outside,
    in_microseconds,
    internal_value,
    value_column,
)
from frazil.values.transforms import IDENTITY, Transform, parse_transform
from frazil.values.types import NestedField, StructType, Type, TypeId
from frazil.wire.errors import BadRequest

_FLOATS: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_NEGATED: Final = {
    "is-null": "not-null",
    "is-nan": "not-nan",
    "lt": "gt-eq",
    "gt": "lt-eq",
    "eq": "not-eq",
    "in": "not-in",
    "starts-with": "not-starts-with",
}
_NEGATED.update({negative: positive for positive, negative in list(_NEGATED.items())})
_UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
_SETS: Final = frozenset({"in", "not-in"})
_PREFIXES: Final = frozenset({"starts-with", "not-starts-with"})


def spark_condition(expression: Filter, schema: StructType) -> Column:
    """A condition that is true or false, never null, on a frame with the schema's columns."""
    return _condition(without_not(expression_of(expression)), _Names(schema))


# --- expressions ----------------------------------------------------------------------------------


def expression_of(filter: Filter) -> Expression:
    """A filter in any of its forms: an expression, its JSON, or text."""
    if isinstance(filter, Expression):
        return filter
    if isinstance(filter, str):
        from frazil.client.filter.filter_text import parse_filter

        return parse_filter(filter)
    return expression_from_json(filter_json(filter))


def expression_from_json(json: object) -> Expression:
    """The inverse of `Expression.to_json`; residuals of plans come in the same form."""
    if isinstance(json, bool):
        return always_true() if json else always_false()
    if not isinstance(json, Mapping):
        raise BadRequest(f"filter: {type(json).__name__} is not the JSON of an expression")
    kind = json.get("type")
    if kind in ("true", "false"):
        return always_true() if kind == "true" else always_false()
    if kind == "not":
        return ~expression_from_json(json.get("child"))
    if kind in ("and", "or"):
        join = all_of if kind == "and" else any_of
        return join(expression_from_json(json.get("left")), expression_from_json(json.get("right")))
    if kind not in _NEGATED:
        raise BadRequest(f"filter: {kind!r} is not a known operation")
    return Predicate(kind, _term_from_json(json.get("term")), _values(json, kind))


def _term_from_json(json: object) -> Term:
    if isinstance(json, str):
        return Term(json)
    if isinstance(json, Mapping) and isinstance(json.get("term"), str):
        return Term(json["term"], str(json.get("transform")))
    raise BadRequest("filter: a term is a column's name, or a transform of one")


def _values(json: Mapping[str, Any], kind: str) -> tuple[Any, ...]:
    if kind in _UNARY:
        return ()
    found = json.get("values") if kind in _SETS else [json.get("value")]
    if not isinstance(found, list | tuple) or any(isinstance(one, Mapping) for one in found):
        raise BadRequest(f"filter: {kind} needs {'values' if kind in _SETS else 'a value'}")
    return tuple(found)


def without_not(expression: Expression, *, negate: bool = False) -> Expression:
    if isinstance(expression, Not):
        return without_not(expression.child, negate=not negate)
    if isinstance(expression, And | Or):
        operands = [without_not(operand, negate=negate) for operand in expression.operands]
        return all_of(*operands) if isinstance(expression, And) != negate else any_of(*operands)
    if not negate:
        return expression
    if isinstance(expression, Predicate):
        return Predicate(_NEGATED[expression.operation], expression.term, expression.values)
    return always_false() if isinstance(expression, AlwaysTrue) else always_true()


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
        term = Term(names[expression.term.name], expression.term.transform)
        return Predicate(expression.operation, term, expression.values)
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


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


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
    if expression.operation in _UNARY:
        return _unary(expression, column, type_)
    if expression.operation in _PREFIXES and type_.type_id is not TypeId.STRING:
        raise BadRequest(f"filter on {expression.term}: {expression.operation} needs a string")
    values = [internal_value(type_, value, str(expression.term)) for value in expression.values]
    if expression.operation in _SETS:
        return _in_set(expression.operation, column, type_, values)
    if expression.operation in _PREFIXES:
        return _prefix(expression.operation, column, values[0])
    return _compared(expression.operation, column, type_, values[0])


def _term(term: Term, names: _Names) -> tuple[Column, Type]:
    found = names.find(term.name)
    if not found.field.type.is_primitive:
        # Whether a nested column or a variant is null can be asked; it has no value to compare.
        return found.column, found.field.type
    transform = IDENTITY if term.transform is None else parse_transform(term.transform)
    if transform == IDENTITY:
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
        if not isinstance(value, Outside) and in_microseconds("eq", type_, value)[1] is not None
    ]
    if not inside:
        return F.lit(operation == "not-in")
    found = column.isin(inside)
    return column.isNotNull() & found if operation == "in" else column.isNull() | ~found


def _prefix(operation: str, column: Column, value: Any) -> Column:
    found = column.startswith(value)
    return column.isNotNull() & found if operation == "starts-with" else column.isNull() | ~found


def _compared(operation: str, column: Column, type_: Type, value: Any) -> Column:
    if isinstance(value, Outside):
        # All values lie on one side of it. As in Java, nulls and NaN are not told apart here.
        side = "lt" if value is ABOVE else "gt"
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

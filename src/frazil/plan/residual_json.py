"""Writes residuals as JSON that clients read back, with column names and plain values."""

from __future__ import annotations

from typing import Any, Final

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundPredicate,
    BoundSetPredicate,
    BoundTransform,
    BoundUnaryPredicate,
)
from frazil.format.metadata.schema import Schema
from frazil.values.single_value import to_json
from frazil.wire.expressions import (
    MAX_DEPTH,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    Or,
    Predicate,
    Term,
    all_of,
    any_of,
    expression_json,
)

_MAX_RESIDUAL_DEPTH: Final = 2 * MAX_DEPTH
"""A request of `MAX_DEPTH` levels can become deeper when its operands are balanced again."""


def residual_json(expression: Expression, schema: Schema) -> Any:
    """Return the JSON of a bound expression; `schema` has the full names of nested columns.

    Java and PyIceberg read a constant only as a JSON boolean.
    """
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return isinstance(expression, AlwaysTrue)
    return expression_json(_unbound(expression, schema), max_depth=_MAX_RESIDUAL_DEPTH)


def _unbound(expression: Expression, schema: Schema) -> Expression:
    if isinstance(expression, And | Or):
        join = all_of if isinstance(expression, And) else any_of
        return join(*(_unbound(operand, schema) for operand in expression.operands))
    if isinstance(expression, BoundUnaryPredicate | BoundLiteralPredicate | BoundSetPredicate):
        return Predicate(expression.operation, _term(expression, schema), _values(expression))
    raise TypeError(f"{type(expression).__name__} is not a bound expression")


def _term(predicate: BoundPredicate, schema: Schema) -> Term:
    reference = predicate.term.ref
    name = schema.full_names.get(reference.field_id, reference.name)
    if isinstance(predicate.term, BoundTransform):
        return Term(name, predicate.term.transform)
    return Term(name)


def _values(predicate: BoundPredicate) -> tuple[Any, ...]:
    type_ = predicate.term.type
    if isinstance(predicate, BoundLiteralPredicate):
        return (to_json(type_, predicate.value),)
    if isinstance(predicate, BoundSetPredicate):
        values = (to_json(type_, value) for value in predicate.values)
        return tuple(sorted(values, key=lambda value: (str(type(value)), value)))
    return ()

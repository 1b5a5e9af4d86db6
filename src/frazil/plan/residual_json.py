"""A residual as the JSON that clients read back: a bound expression in names and plain values.

In the older form, `term` and `value`: PyIceberg 0.12 and Iceberg's Java library 1.12 both read it.
"""

from __future__ import annotations

from typing import Any

from frazil.format.expr.expression_binding import (
    BoundLiteralPredicate,
    BoundSetPredicate,
    BoundTerm,
    BoundTransform,
    BoundUnaryPredicate,
)
from frazil.format.expr.expressions import AlwaysFalse, AlwaysTrue, And, Expression, Or
from frazil.format.metadata.schema import Schema
from frazil.values.single_value import to_json


def residual_json(expression: Expression, schema: Schema) -> Any:
    """The expression's JSON; `schema` has the full names of nested columns."""
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return isinstance(expression, AlwaysTrue)
    if isinstance(expression, And | Or):
        return {
            "type": "and" if isinstance(expression, And) else "or",
            "left": residual_json(expression.left, schema),
            "right": residual_json(expression.right, schema),
        }
    if isinstance(expression, BoundUnaryPredicate):
        return {"type": expression.operation.value, "term": _term(expression.term, schema)}
    if isinstance(expression, BoundLiteralPredicate):
        return {
            "type": expression.operation.value,
            "term": _term(expression.term, schema),
            "value": to_json(expression.term.type, expression.value),
        }
    if isinstance(expression, BoundSetPredicate):
        values = (to_json(expression.term.type, value) for value in expression.values)
        return {
            "type": expression.operation.value,
            "term": _term(expression.term, schema),
            "values": sorted(values, key=lambda value: (str(type(value)), value)),
        }
    raise TypeError(f"{type(expression).__name__} is not a bound expression")


def _term(term: BoundTerm, schema: Schema) -> str | dict[str, Any]:
    name = schema.full_names.get(term.ref.field_id, term.ref.name)
    if isinstance(term, BoundTransform):
        return {"type": "transform", "transform": str(term.transform), "term": name}
    return name

"""Binds filter expressions to the columns of a schema.

Mirrors Java's `Binder` and `UnboundPredicate.bind`. Literals become values of the column's type.
Predicates with a certain result become constants. A bound tree has no `Not`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from frazil.format.metadata.schema import Schema, is_nested_in_list_or_map
from frazil.values.literal_values import OutOfRange, literal_value
from frazil.values.single_value import InvalidValue
from frazil.values.transforms import IDENTITY, Transform
from frazil.values.types import NestedField, Type, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    PREFIX_OPERATIONS,
    SET_OPERATIONS,
    UNARY_OPERATIONS,
    And,
    Expression,
    Literal,
    Operation,
    Or,
    Predicate,
    Term,
    all_of,
    any_of,
    without_not,
)
from frazil.wire.near_names import name_hint


@dataclass(frozen=True, slots=True)
class BoundReference:
    """A column, or a field of a partition, by its id."""

    field_id: int
    name: str
    type: Type
    produces_null: bool
    """Whether it can be null: it, or a struct around it, is optional."""
    is_nested: bool = False
    """Whether it is a field of a struct, whose counts do not show which structs are null."""

    @property
    def ref(self) -> BoundReference:
        return self


@dataclass(frozen=True, slots=True)
class BoundTransform:
    """A transform of a column; never identity, which is the column itself."""

    ref: BoundReference
    transform: Transform

    @property
    def type(self) -> Type:
        return self.transform.result_type(self.ref.type)

    @property
    def produces_null(self) -> bool:
        # A transform that does not keep the order may give null for a value, as void does.
        return self.ref.produces_null or not self.transform.preserves_order


BoundTerm = BoundReference | BoundTransform


@dataclass(frozen=True, slots=True)
class BoundUnaryPredicate(Expression):
    operation: Operation
    term: BoundTerm


@dataclass(frozen=True, slots=True)
class BoundLiteralPredicate(Expression):
    operation: Operation
    term: BoundTerm
    value: Any
    """The literal as an internal value of the term's type."""


@dataclass(frozen=True, slots=True)
class BoundSetPredicate(Expression):
    operation: Operation
    term: BoundTerm
    values: frozenset[Any]
    """At least two; fewer are folded into a comparison or a constant."""


BoundPredicate = BoundUnaryPredicate | BoundLiteralPredicate | BoundSetPredicate


def bind(expression: Expression, schema: Schema, *, case_sensitive: bool = True) -> Expression:
    """Bind an expression to a schema. Negations move down to the predicates.

    Raise a BadRequest that names the column if something cannot be bound.
    """
    return _bind(without_not(expression), schema, case_sensitive)


def _bind(expression: Expression, schema: Schema, case_sensitive: bool) -> Expression:
    if isinstance(expression, And | Or):
        join = all_of if isinstance(expression, And) else any_of
        return join(*(_bind(operand, schema, case_sensitive) for operand in expression.operands))
    if not isinstance(expression, Predicate):
        return expression
    term = _bind_term(expression.term, schema, case_sensitive)
    operation = expression.operation
    if operation in UNARY_OPERATIONS:
        return _bind_unary(operation, term)
    if operation in SET_OPERATIONS:
        return _bind_set(operation, term, expression.values)
    return _bind_literal(operation, term, expression.values[0])


# --- terms -----------------------------------------------------------------------------------


def _bind_term(term: Term, schema: Schema, case_sensitive: bool) -> BoundTerm:
    reference = _bind_reference(term, schema, case_sensitive)
    if term.transform is None:
        return reference
    if not term.transform.accepts(reference.type):
        raise BadRequest(
            f"cannot bind {term}: {term.transform} cannot transform {reference.type} values "
            f"of column {reference.name!r}"
        )
    if term.transform == IDENTITY:
        return reference
    return BoundTransform(reference, term.transform)


def _bind_reference(term: Term, schema: Schema, case_sensitive: bool) -> BoundReference:
    if isinstance(term.column, int):
        field = schema.find_field(term.column)
    else:
        field = schema.find_by_name(term.column, case_sensitive)
    if field is None:
        name = term.column_text[:200]
        hint = name_hint(name, schema.full_names.values(), "columns")
        raise BadRequest(f"cannot bind an expression: the schema has no column {name!r}; {hint}")
    return bound_reference(field, schema)


def bound_reference(field: NestedField, schema: Schema) -> BoundReference:
    """Return the reference to a field of a schema that is not inside a list or map."""
    name = schema.full_names[field.field_id]
    if is_nested_in_list_or_map(schema, field.field_id):
        raise BadRequest(
            f"cannot bind an expression to column {name!r}: it is inside a list or map and has "
            "no single value in a row"
        )
    required, parent = field.required, schema.parent_ids.get(field.field_id)
    while parent is not None:
        required = required and schema.fields_by_id[parent].required
        parent = schema.parent_ids.get(parent)
    is_nested = field.field_id in schema.parent_ids
    return BoundReference(field.field_id, name, field.type, not required, is_nested)


# --- predicates ------------------------------------------------------------------------------


def _bind_unary(operation: Operation, term: BoundTerm) -> Expression:
    if operation in (Operation.IS_NAN, Operation.NOT_NAN):
        if term.type.type_id not in (TypeId.FLOAT, TypeId.DOUBLE):
            raise BadRequest(
                f"{operation} needs a float or double: column {term.ref.name!r} is {term.type}"
            )
    elif not term.produces_null:
        return ALWAYS_TRUE if operation is Operation.NOT_NULL else ALWAYS_FALSE
    elif term.type.type_id is TypeId.UNKNOWN:
        return ALWAYS_TRUE if operation is Operation.IS_NULL else ALWAYS_FALSE
    return BoundUnaryPredicate(operation, term)


_TRUE_ABOVE_MAX: Final = frozenset({Operation.LT, Operation.LT_EQ, Operation.NOT_EQ})
_TRUE_BELOW_MIN: Final = frozenset({Operation.GT, Operation.GT_EQ, Operation.NOT_EQ})


def _bind_literal(operation: Operation, term: BoundTerm, literal: Literal) -> Expression:
    if operation in PREFIX_OPERATIONS and term.type.type_id is not TypeId.STRING:
        raise BadRequest(f"{operation} needs a string: column {term.ref.name!r} is {term.type}")
    value = _convert(literal, term)
    if value is OutOfRange.ABOVE_MAX:
        return ALWAYS_TRUE if operation in _TRUE_ABOVE_MAX else ALWAYS_FALSE
    if value is OutOfRange.BELOW_MIN:
        return ALWAYS_TRUE if operation in _TRUE_BELOW_MIN else ALWAYS_FALSE
    return BoundLiteralPredicate(operation, term, value)


def _bind_set(operation: Operation, term: BoundTerm, literals: tuple[Literal, ...]) -> Expression:
    converted = [_convert(literal, term) for literal in literals]
    in_range = [value for value in converted if not isinstance(value, OutOfRange)]
    zero_signs = {
        math.copysign(1.0, value) for value in in_range if isinstance(value, float) and not value
    }
    values = frozenset(in_range)
    if len(zero_signs) < 2:
        return bound_set(operation, term, values)
    # The two zeros differ in Iceberg's order, but a Python set keeps only one of them.
    others = bound_set(operation, term, (values - {0.0}) | {0.0})
    negative = bound_set(operation, term, frozenset({-0.0}))
    return any_of(others, negative) if operation is Operation.IN else all_of(others, negative)


def bound_set(operation: Operation, term: BoundTerm, values: frozenset[Any]) -> Expression:
    """Return a set predicate, or a simpler expression that means the same."""
    if len(values) > 1:
        return BoundSetPredicate(operation, term, values)
    if not values:
        return ALWAYS_FALSE if operation is Operation.IN else ALWAYS_TRUE
    single = Operation.EQ if operation is Operation.IN else Operation.NOT_EQ
    return BoundLiteralPredicate(single, term, next(iter(values)))


def _convert(literal: Literal, term: BoundTerm) -> Any:
    """Return a literal as an internal value of the term's type, or `OutOfRange`."""
    try:
        return literal_value(term.type, literal)
    except InvalidValue as error:
        raise BadRequest(f"literal for column {term.ref.name!r}: {error}") from None

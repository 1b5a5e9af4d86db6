"""Expressions bound to the columns of a schema: literals converted, what is certain folded away.

Mirrors Java's `Binder`, `UnboundPredicate.bind`, `Literals` and `RewriteNot`. A bound tree has no
`Not`: negations are pushed down to the predicates, because an inclusive or strict answer about a
part of a tree cannot be negated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from frazil.format.expr.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    NEGATED,
    AlwaysFalse,
    AlwaysTrue,
    And,
    Expression,
    IdReference,
    Literal,
    LiteralPredicate,
    Not,
    Operation,
    Or,
    Reference,
    SetPredicate,
    Term,
    TransformTerm,
    UnaryPredicate,
    and_,
    or_,
)
from frazil.format.metadata.schema import Schema, is_nested_in_list_or_map
from frazil.values import single_value, temporal
from frazil.values.single_value import InvalidValue
from frazil.values.transforms import IDENTITY, Transform
from frazil.values.types import DecimalType, NestedField, Type, TypeId
from frazil.wire.errors import BadRequest


@dataclass(frozen=True, slots=True)
class BoundReference:
    """A column, or a field of a partition, by its id."""

    field_id: int
    name: str
    type: Type
    produces_null: bool
    """Whether it can be null: it, or a struct around it, is optional."""
    is_nested: bool = False
    """Whether it is a field of a struct; its counts do not tell which structs are null."""

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
_PREDICATES: Final = (
    UnaryPredicate
    | LiteralPredicate
    | SetPredicate
    | BoundUnaryPredicate
    | BoundLiteralPredicate
    | BoundSetPredicate
)


def rewrite_not(expression: Expression) -> Expression:
    """The same expression without `Not`, as Java's `RewriteNot`.

    As there, the negation of `x < 5` is `x >= 5`: a null x matches neither, as in SQL.
    """
    return _without_not(expression, negate=False)


def _without_not(expression: Expression, negate: bool) -> Expression:
    if isinstance(expression, Not):
        return _without_not(expression.child, not negate)
    if isinstance(expression, And | Or):
        left = _without_not(expression.left, negate)
        right = _without_not(expression.right, negate)
        return and_(left, right) if isinstance(expression, And) != negate else or_(left, right)
    if not negate:
        return expression
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return ALWAYS_FALSE if isinstance(expression, AlwaysTrue) else ALWAYS_TRUE
    if not isinstance(expression, _PREDICATES):
        raise TypeError(f"{type(expression).__name__} cannot be negated")
    return replace(expression, operation=NEGATED[expression.operation])


def bind(expression: Expression, schema: Schema, *, case_sensitive: bool = True) -> Expression:
    """Binds an expression to a schema, with negations pushed down.

    What cannot be bound is a BadRequest that names the column.
    """
    return _bind(rewrite_not(expression), schema, case_sensitive)


def _bind(expression: Expression, schema: Schema, case_sensitive: bool) -> Expression:
    if isinstance(expression, And | Or):
        left = _bind(expression.left, schema, case_sensitive)
        right = _bind(expression.right, schema, case_sensitive)
        return and_(left, right) if isinstance(expression, And) else or_(left, right)
    if not isinstance(expression, UnaryPredicate | LiteralPredicate | SetPredicate):
        return expression
    term = _bind_term(expression.term, schema, case_sensitive)
    if isinstance(expression, UnaryPredicate):
        return _bind_unary(expression.operation, term)
    if isinstance(expression, LiteralPredicate):
        return _bind_literal(expression.operation, term, expression.literal)
    return _bind_set(expression.operation, term, expression.literals)


# --- terms -----------------------------------------------------------------------------------


def _bind_term(term: Term, schema: Schema, case_sensitive: bool) -> BoundTerm:
    if not isinstance(term, TransformTerm):
        return _bind_reference(term, schema, case_sensitive)
    reference = _bind_reference(term.reference, schema, case_sensitive)
    if not term.transform.accepts(reference.type):
        raise BadRequest(
            f"cannot bind {term}: {term.transform} cannot transform {reference.type} values "
            f"of column {reference.name!r}"
        )
    if term.transform == IDENTITY:
        return reference
    return BoundTransform(reference, term.transform)


def _bind_reference(
    term: Reference | IdReference, schema: Schema, case_sensitive: bool
) -> BoundReference:
    if isinstance(term, IdReference):
        found = schema.find_field(term.field_id)
    else:
        found = schema.find_by_name(term.name, case_sensitive)
    if found is None:
        name = str(term)[:200]
        raise BadRequest(f"cannot bind an expression: the schema has no column {name!r}")
    return bound_reference(found, schema)


def bound_reference(found: NestedField, schema: Schema) -> BoundReference:
    """The reference to a field of a schema that is not inside a list or map."""
    name = schema.full_names[found.field_id]
    if is_nested_in_list_or_map(schema, found.field_id):
        raise BadRequest(
            f"cannot bind an expression to column {name!r}: it is inside a list or map and has "
            "no single value in a row"
        )
    required, parent = found.required, schema.parent_ids.get(found.field_id)
    while parent is not None:
        required = required and schema.fields_by_id[parent].required
        parent = schema.parent_ids.get(parent)
    is_nested = found.field_id in schema.parent_ids
    return BoundReference(found.field_id, name, found.type, not required, is_nested)


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


class _OutOfRange(Enum):
    """Where a literal lies that no value of the term's type can equal."""

    ABOVE_MAX = "above"
    BELOW_MIN = "below"


_TRUE_ABOVE_MAX: Final = frozenset({Operation.LT, Operation.LT_EQ, Operation.NOT_EQ})
_TRUE_BELOW_MIN: Final = frozenset({Operation.GT, Operation.GT_EQ, Operation.NOT_EQ})


def _bind_literal(operation: Operation, term: BoundTerm, literal: Literal) -> Expression:
    if (
        operation in (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH)
        and term.type.type_id is not TypeId.STRING
    ):
        raise BadRequest(f"{operation} needs a string: column {term.ref.name!r} is {term.type}")
    value = _convert(literal, term)
    if value is _OutOfRange.ABOVE_MAX:
        return ALWAYS_TRUE if operation in _TRUE_ABOVE_MAX else ALWAYS_FALSE
    if value is _OutOfRange.BELOW_MIN:
        return ALWAYS_TRUE if operation in _TRUE_BELOW_MIN else ALWAYS_FALSE
    return BoundLiteralPredicate(operation, term, value)


def _bind_set(operation: Operation, term: BoundTerm, literals: tuple[Literal, ...]) -> Expression:
    converted = [_convert(literal, term) for literal in literals]
    given = [value for value in converted if not isinstance(value, _OutOfRange)]
    zeros = {math.copysign(1.0, value) for value in given if isinstance(value, float) and not value}
    values = frozenset(given)
    if len(zeros) < 2:
        return bound_set(operation, term, values)
    # In Iceberg's order the two zeros differ; to Python's sets they are one value.
    others = bound_set(operation, term, (values - {0.0}) | {0.0})
    negative = bound_set(operation, term, frozenset({-0.0}))
    return or_(others, negative) if operation is Operation.IN else and_(others, negative)


def bound_set(operation: Operation, term: BoundTerm, values: frozenset[Any]) -> Expression:
    """A set predicate, or what is simpler and means the same."""
    if len(values) > 1:
        return BoundSetPredicate(operation, term, values)
    if not values:
        return ALWAYS_FALSE if operation is Operation.IN else ALWAYS_TRUE
    single = Operation.EQ if operation is Operation.IN else Operation.NOT_EQ
    return BoundLiteralPredicate(single, term, next(iter(values)))


# --- literals --------------------------------------------------------------------------------


def _convert(literal: Literal, term: BoundTerm) -> Any:
    """A literal as an internal value of the term's type, or where it lies outside of it."""
    try:
        return _to_type(_untyped(literal, term.type), term.type)
    except InvalidValue as error:
        raise BadRequest(f"literal for column {term.ref.name!r}: {error}") from None


_PLAIN: Final = frozenset(
    {TypeId.BOOLEAN, TypeId.INT, TypeId.LONG, TypeId.FLOAT, TypeId.DOUBLE, TypeId.STRING}
)


def _untyped(literal: Literal, type_: Type) -> Any:
    """The literal's JSON value, once it is known to be one of the type that the client named."""
    named = literal.data_type
    if named is None:
        return literal.value
    value = single_value.from_json(named, literal.value)
    if named.type_id in _PLAIN:
        return value
    if named.type_id is not type_.type_id:
        raise InvalidValue(f"a {named} value cannot be compared with {type_}")
    return literal.value


def _to_type(value: Any, type_: Type) -> Any:
    """Java's `Literal.to`."""
    kind = type_.type_id
    if isinstance(value, bool) or kind is TypeId.BOOLEAN:
        return single_value.from_json(type_, value)
    if isinstance(value, str):
        return _text_to_type(value, type_)
    if isinstance(type_, DecimalType):
        return _to_decimal(value, type_)
    if kind in (TypeId.FLOAT, TypeId.DOUBLE):
        return _to_float(value, type_)
    if isinstance(value, int) and kind in _INTEGERS:
        # As in Java, a number for a nanosecond timestamp counts microseconds.
        number = value * temporal.NANOS_PER_MICRO if kind in _NANOS else value
        return _in_range(number, type_)
    return single_value.from_json(type_, value)


_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_INTEGERS: Final = _NANOS | {
    TypeId.INT,
    TypeId.LONG,
    TypeId.DATE,
    TypeId.TIME,
    TypeId.TIMESTAMP,
    TypeId.TIMESTAMPTZ,
}


def _in_range(value: Any, type_: Type) -> Any:
    try:
        single_value.check_value(type_, value)
    except InvalidValue:
        return _OutOfRange.ABOVE_MAX if value > 0 else _OutOfRange.BELOW_MIN
    return value


def _to_float(value: int | float | Decimal, type_: Type) -> Any:
    try:
        return single_value.from_json(type_, value)
    except InvalidValue:
        return _OutOfRange.ABOVE_MAX if value > 0 else _OutOfRange.BELOW_MIN


def _to_decimal(value: int | float | Decimal | str, type_: DecimalType) -> Any:
    """The decimal with the type's scale; digits that the scale has no room for are refused.

    Java rounds them, which gives a filter another meaning than it was sent with.
    """
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
    except ArithmeticError:
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal") from None
    if not exact.is_finite():
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal")
    if exact.adjusted() >= type_.precision - type_.scale and exact:
        return _OutOfRange.ABOVE_MAX if exact > 0 else _OutOfRange.BELOW_MIN
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    moved = exponent + type_.scale
    kept = digits if moved >= 0 else digits[:moved]
    if moved < 0 and any(digits[moved:]):
        raise InvalidValue(f"{str(value)[:100]} has more decimal places than {type_}")
    unscaled = int("".join(map(str, kept)) or "0") * 10 ** (max(moved, 0) if exact else 0)
    return single_value.decimal_from_unscaled(-unscaled if sign else unscaled, type_.scale)


def _text_to_type(text: str, type_: Type) -> Any:
    if isinstance(type_, DecimalType):
        return _to_decimal(text, type_)
    parse = _ZONED.get(type_.type_id)
    if parse is None:
        return single_value.from_json(type_, text)
    moment, offset_s = _split_offset(text)
    try:
        units, units_per_second = parse(moment)
    except ValueError as error:
        raise InvalidValue(str(error)) from None
    return _in_range(units - offset_s * units_per_second, type_)


_OFFSET: Final = re.compile(r"(.*)([+-])([0-9]{2}):([0-9]{2})")


def _split_offset(text: str) -> tuple[str, int]:
    """A timestamp in UTC and the seconds that its own zone offset is ahead of it.

    Java reads a literal with any offset, whereas a value in metadata has none but +00:00.
    """
    matched = _OFFSET.fullmatch(text)
    if matched is None:
        return text, 0
    hours, minutes = int(matched[3]), int(matched[4])
    if hours > 18 or minutes > 59:
        raise InvalidValue(f"{text[:100]!r} has a zone offset that does not exist")
    offset_s = (hours * 60 + minutes) * 60
    return f"{matched[1]}Z", -offset_s if matched[2] == "-" else offset_s


def _zoned_micros(text: str) -> tuple[int, int]:
    return temporal.micros_from_timestamp(text, with_zone=True), temporal.MICROS_PER_SECOND


def _zoned_nanos(text: str) -> tuple[int, int]:
    nanos_per_second = temporal.MICROS_PER_SECOND * temporal.NANOS_PER_MICRO
    return temporal.nanos_from_timestamp(text, with_zone=True), nanos_per_second


_ZONED: Final[dict[TypeId, Callable[[str], tuple[int, int]]]] = {
    TypeId.TIMESTAMPTZ: _zoned_micros,
    TypeId.TIMESTAMPTZ_NS: _zoned_nanos,
}

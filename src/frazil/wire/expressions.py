"""Filter expressions: one immutable tree for client and server, and its JSON.

A tree is not bound to a schema. A term names a column, and a value is a JSON scalar whose meaning
depends on the type of that column. `frazil.format.expr.expression_binding` binds a tree to a table;
`frazil.wire.filter_builders` has the functions with which users build one.

    Expression
    ├── AlwaysTrue, AlwaysFalse
    ├── And, Or         two operands or more
    ├── Not
    └── Predicate       an operation on a term: a column, or a transform of one

The JSON is that of Iceberg's REST specification. Both of its forms are read: the one with `left`,
`right` and `child`, and the deprecated one with `term`, `value` and `values`. The deprecated form
is written, because all clients and servers read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeAlias

from frazil.values.literal_values import TypedLiteral
from frazil.values.transforms import InvalidTransform, Transform, Unknown, parse_transform
from frazil.values.type_json import parse_type
from frazil.values.types import InvalidType, Type
from frazil.wire.errors import BadRequest

MAX_DEPTH: Final = 200
"""Deeper trees are refused, so that no recursive function can run out of stack."""

ICEBERG_FUNCTIONS: Final = "iceberg_functions"


class Operation(StrEnum):
    """What a predicate tests; the value is its name in JSON."""

    IS_NULL = "is-null"
    NOT_NULL = "not-null"
    IS_NAN = "is-nan"
    NOT_NAN = "not-nan"
    LT = "lt"
    LT_EQ = "lt-eq"
    GT = "gt"
    GT_EQ = "gt-eq"
    EQ = "eq"
    NOT_EQ = "not-eq"
    STARTS_WITH = "starts-with"
    NOT_STARTS_WITH = "not-starts-with"
    IN = "in"
    NOT_IN = "not-in"


UNARY_OPERATIONS: Final = frozenset(
    {Operation.IS_NULL, Operation.NOT_NULL, Operation.IS_NAN, Operation.NOT_NAN}
)
SET_OPERATIONS: Final = frozenset({Operation.IN, Operation.NOT_IN})
PREFIX_OPERATIONS: Final = frozenset({Operation.STARTS_WITH, Operation.NOT_STARTS_WITH})

_NEGATIONS: Final = (
    (Operation.IS_NULL, Operation.NOT_NULL),
    (Operation.IS_NAN, Operation.NOT_NAN),
    (Operation.LT, Operation.GT_EQ),
    (Operation.LT_EQ, Operation.GT),
    (Operation.EQ, Operation.NOT_EQ),
    (Operation.STARTS_WITH, Operation.NOT_STARTS_WITH),
    (Operation.IN, Operation.NOT_IN),
)
NEGATED: Final[Mapping[Operation, Operation]] = {
    **dict(_NEGATIONS),
    **{negated: operation for operation, negated in _NEGATIONS},
}
"""The operation that is true where another is false, as in Java's `Operation.negate`."""

MIRRORED: Final[Mapping[Operation, Operation]] = {
    Operation.LT: Operation.GT,
    Operation.LT_EQ: Operation.GT_EQ,
    Operation.GT: Operation.LT,
    Operation.GT_EQ: Operation.LT_EQ,
    Operation.EQ: Operation.EQ,
    Operation.NOT_EQ: Operation.NOT_EQ,
}
"""The comparison that means the same when its two sides are exchanged."""


class Expression:
    """A condition on rows. Combine expressions with `&`, `|` and `~`."""

    __slots__ = ()

    def __and__(self, other: Expression) -> Expression:
        return all_of(self, other) if isinstance(other, Expression) else NotImplemented

    def __or__(self, other: Expression) -> Expression:
        return any_of(self, other) if isinstance(other, Expression) else NotImplemented

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> NoReturn:
        # `a and b`, `not a` and `1 < col("x") < 5` would silently drop one of their halves.
        raise TypeError("a filter is neither true nor false: combine filters with &, | and ~")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the expression in the form of the REST specification."""
        return expression_json(self)


@dataclass(frozen=True, slots=True)
class AlwaysTrue(Expression):
    """Matches every row."""

    def __invert__(self) -> Expression:
        return ALWAYS_FALSE


@dataclass(frozen=True, slots=True)
class AlwaysFalse(Expression):
    """Matches no row."""

    def __invert__(self) -> Expression:
        return ALWAYS_TRUE


ALWAYS_TRUE: Final = AlwaysTrue()
ALWAYS_FALSE: Final = AlwaysFalse()


@dataclass(frozen=True, slots=True)
class And(Expression):
    """Matches the rows that every operand matches. Use `all_of` to build one."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """Matches the rows that at least one operand matches. Use `any_of` to build one."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """Matches the rows that its child does not match."""

    child: Expression

    def __invert__(self) -> Expression:
        return self.child


@dataclass(frozen=True, slots=True)
class Term:
    """What a predicate tests: a column, or a transform of one."""

    column: str | int
    """The dotted name of the column, or its field id."""
    transform: Transform | None = None

    @property
    def name(self) -> str:
        """Return the dotted name of the column. Refuse a field id."""
        if isinstance(self.column, int):
            raise BadRequest(f"filter: give the name of the column, not its field id {self.column}")
        return self.column

    @property
    def column_text(self) -> str:
        return self.column if isinstance(self.column, str) else f"field id {self.column}"

    def __str__(self) -> str:
        text = self.column_text
        return text if self.transform is None else f"{self.transform}({text})"


Literal: TypeAlias = bool | int | float | Decimal | str | TypedLiteral
"""A constant as it is in JSON; its meaning depends on the term that it is compared with."""


@dataclass(frozen=True, slots=True)
class Predicate(Expression):
    """A test of one term."""

    operation: Operation
    term: Term
    values: tuple[Literal, ...] = ()
    """No value for the unary operations, one for comparisons, any number for `in` and `not-in`."""


def all_of(*expressions: Expression) -> Expression:
    """Return the expression that matches where all match; every row if there are none."""
    return _join(And, expressions, ALWAYS_TRUE, AlwaysFalse)


def any_of(*expressions: Expression) -> Expression:
    """Return the expression that matches where at least one matches; no row if there are none."""
    return _join(Or, expressions, ALWAYS_FALSE, AlwaysTrue)


def _join(
    kind: type[And] | type[Or],
    expressions: tuple[Expression, ...],
    neutral: Expression,
    deciding: type[Expression],
) -> Expression:
    """Join operands in one flat list. Drop neutral operands; return a deciding one alone."""
    operands: list[Expression] = []
    for expression in expressions:
        if isinstance(expression, deciding):
            return expression
        if isinstance(expression, kind):
            operands.extend(expression.operands)
        elif expression != neutral:
            operands.append(expression)
    if len(operands) < 2:
        return operands[0] if operands else neutral
    return kind(tuple(operands))


def names_in(expression: Expression) -> Iterator[str]:
    """Return the columns that an expression reads."""
    if isinstance(expression, Predicate):
        yield expression.term.name
    elif isinstance(expression, Not):
        yield from names_in(expression.child)
    elif isinstance(expression, And | Or):
        for operand in expression.operands:
            yield from names_in(operand)


def without_not(expression: Expression, *, negate: bool = False) -> Expression:
    """Return the same expression without `Not`, as Java's `RewriteNot` does.

    Negations move down to the predicates, because an inclusive or strict answer about a part of a
    tree cannot be negated. The negation of `x < 5` is `x >= 5`: a null matches neither, as in SQL.
    """
    if isinstance(expression, Not):
        return without_not(expression.child, negate=not negate)
    if isinstance(expression, And | Or):
        operands = [without_not(operand, negate=negate) for operand in expression.operands]
        return all_of(*operands) if isinstance(expression, And) != negate else any_of(*operands)
    if not negate:
        return expression
    if isinstance(expression, Predicate):
        return replace(expression, operation=NEGATED[expression.operation])
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return ~expression
    raise TypeError(f"{type(expression).__name__} cannot be negated")


# --- JSON to expression ----------------------------------------------------------------------


def parse_expression(value: object, json_path: str = "filter") -> Expression:
    """Read an expression from decoded JSON; `json_path` names it in messages."""
    return _parse(value, json_path, 0)


def _parse(value: object, path: str, depth: int) -> Expression:
    if isinstance(value, bool):
        return ALWAYS_TRUE if value else ALWAYS_FALSE
    if not isinstance(value, Mapping):
        raise BadRequest(f"{path} must be a predicate: true, false or an object with a type")
    if depth >= MAX_DEPTH:
        # The path is as long as the tree is deep, so it is not part of this message.
        raise BadRequest(f"an expression is nested too deeply: at most {MAX_DEPTH} levels")
    kind = value.get("type")
    if not isinstance(kind, str):
        raise BadRequest(f"{path}.type is missing: give the kind of predicate as a string")
    kind = kind.lower().replace("_", "-")
    if kind in ("and", "or"):
        left = _parse(_member(value, "left", path), f"{path}.left", depth + 1)
        right = _parse(_member(value, "right", path), f"{path}.right", depth + 1)
        return all_of(left, right) if kind == "and" else any_of(left, right)
    if kind == "not":
        return ~_parse(_member(value, "child", path), f"{path}.child", depth + 1)
    return _parse_leaf(value, kind, path)


def _parse_leaf(value: Mapping[str, Any], kind: str, path: str) -> Expression:
    if kind == "literal":
        kind = str(_member(value, "value", path)).lower()
    if kind in ("true", "false"):
        return ALWAYS_TRUE if kind == "true" else ALWAYS_FALSE
    try:
        operation = Operation(kind)
    except ValueError:
        known = ", ".join(Operation)
        raise BadRequest(
            f"{path}.type: {kind[:100]!r} is not one of true, false, and, or, not, {known}"
        ) from None
    if operation in UNARY_OPERATIONS:
        _refuse_members(value, ("value", "values", "left", "right"), operation, path)
        return Predicate(operation, _parse_operand(value, "child", path))
    if operation in SET_OPERATIONS:
        _refuse_members(value, ("value", "left", "right"), operation, path)
        return Predicate(
            operation, _parse_operand(value, "child", path), _parse_literals(value, path)
        )
    _refuse_members(value, ("values", "child"), operation, path)
    return _parse_comparison(value, operation, path)


def _refuse_members(
    value: Mapping[str, Any], keys: tuple[str, ...], operation: str, path: str
) -> None:
    for key in keys:
        if key in value:
            raise BadRequest(f"{path}.{key}: a predicate of type {operation} does not have this")


def _member(value: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in value:
        raise BadRequest(f"{path}.{key} is missing")
    return value[key]


def _parse_operand(value: Mapping[str, Any], preferred: str, path: str) -> Term:
    """Read the term of a predicate under its new name or under the deprecated `term`."""
    if preferred in value and "term" in value:
        raise BadRequest(f"{path}: give {preferred} or term, not both")
    key = "term" if "term" in value else preferred
    return _parse_term(_member(value, key, path), f"{path}.{key}")


def _parse_comparison(value: Mapping[str, Any], operation: Operation, path: str) -> Predicate:
    if "value" in value and "right" in value:
        raise BadRequest(f"{path}: give right or value, not both")
    left, right = value.get("left"), value.get("right")
    if right is not None and _is_term(right):
        return _parse_mirrored(operation, left, right, path)
    key = "value" if "value" in value else "right"
    term = _parse_operand(value, "left", path)
    literal = _parse_literal(_member(value, key, path), f"{path}.{key}")
    return Predicate(operation, term, (literal,))


def _is_term(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") in ("reference", "transform", "apply")


def _parse_mirrored(operation: Operation, left: object, right: object, path: str) -> Predicate:
    """Read a comparison that has the constant on its left and the column on its right."""
    if left is None or _is_term(left) or operation not in MIRRORED:
        raise BadRequest(f"{path}.right must be a literal: two columns cannot be compared")
    term = _parse_term(right, f"{path}.right")
    return Predicate(MIRRORED[operation], term, (_parse_literal(left, f"{path}.left"),))


def _parse_term(value: object, path: str) -> Term:
    if isinstance(value, str):
        return Term(value)
    if not isinstance(value, Mapping):
        raise BadRequest(f"{path} must be a column name, a reference or a function of one")
    kind = value.get("type")
    if kind == "reference":
        return _parse_reference(value, path)
    if kind == "transform":
        transform = _parse_transform(_member(value, "transform", path), f"{path}.transform")
        return _transformed(transform, _member(value, "term", path), f"{path}.term")
    if kind == "apply":
        return _parse_call(value, path)
    raise BadRequest(f"{path}.type must be reference, transform or apply")


def _parse_reference(value: Mapping[str, Any], path: str) -> Term:
    if "id" in value:
        field_id = value["id"]
        if isinstance(field_id, bool) or not isinstance(field_id, int):
            raise BadRequest(f"{path}.id must be an integer")
        return Term(field_id)
    key = "name" if "name" in value else "term"
    name = value.get(key)
    if not isinstance(name, str):
        raise BadRequest(f"{path}: a reference needs a name or an id")
    return Term(name)


def _parse_transform(text: object, path: str) -> Transform:
    if not isinstance(text, str):
        raise BadRequest(f"{path} must be a string")
    try:
        transform = parse_transform(text)
    except InvalidTransform as error:
        raise BadRequest(f"{path}: {error}") from None
    if isinstance(transform, Unknown):
        raise BadRequest(f"{path}: {text[:100]!r} is not a transform")
    return transform


def _transformed(transform: Transform, operand: object, path: str) -> Term:
    term = _parse_term(operand, path)
    if term.transform is not None:
        raise BadRequest(f"{path} must be a reference: functions cannot be nested")
    return Term(term.column, transform)


def _parse_call(value: Mapping[str, Any], path: str) -> Term:
    """Read a call of one of the expression specification's functions that are transforms."""
    name = _function_name(_member(value, "function", path), f"{path}.function")
    arguments = _member(value, "arguments", path)
    if not isinstance(arguments, list) or not 1 <= len(arguments) <= 2:
        raise BadRequest(f"{path}.arguments must be a list of one or two arguments")
    text = name
    if len(arguments) == 2:
        # bucket and truncate take their parameter first.
        parameter = _parse_literal(arguments[0], f"{path}.arguments[0]")
        text = f"{name}[{plain_value(parameter)}]"
    transform = _parse_transform(text, f"{path}.function")
    last = len(arguments) - 1
    return _transformed(transform, arguments[last], f"{path}.arguments[{last}]")


def _function_name(value: object, path: str) -> str:
    catalog: object = None
    if isinstance(value, Mapping):
        catalog, value = value.get("catalog"), value.get("identifier")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or catalog not in (None, ICEBERG_FUNCTIONS):
        raise BadRequest(f"{path} must name a transform of {ICEBERG_FUNCTIONS}")
    return value


def _parse_literals(value: Mapping[str, Any], path: str) -> tuple[Literal, ...]:
    items, path = _member(value, "values", path), f"{path}.values"
    data_type: Type | None = None
    if isinstance(items, Mapping) and items.get("type") == "literals":
        data_type = _parse_data_type(_member(items, "data-type", path), f"{path}.data-type")
        items, path = _member(items, "values", path), f"{path}.values"
    if not isinstance(items, list | tuple):
        raise BadRequest(f"{path} must be a list of literals")
    return tuple(
        _parse_literal(item, f"{path}[{position}]", data_type)
        for position, item in enumerate(items)
    )


def _parse_literal(value: object, path: str, data_type: Type | None = None) -> Literal:
    if isinstance(value, Mapping):
        if value.get("type") != "literal":
            raise BadRequest(f"{path} must be a literal")
        if value.get("data-type") is not None:
            data_type = _parse_data_type(value["data-type"], f"{path}.data-type")
        value, path = _member(value, "value", path), f"{path}.value"
    if value is None:
        raise BadRequest(f"{path} must not be null: use is-null or not-null")
    if not isinstance(value, bool | int | float | Decimal | str) or value != value:
        raise BadRequest(f"{path} must be a string, a number, true or false")
    return value if data_type is None else TypedLiteral(value, data_type)


def _parse_data_type(value: object, path: str) -> Type:
    try:
        type_ = parse_type(value, path)
    except InvalidType as error:
        raise BadRequest(str(error)) from None
    if not type_.is_primitive:
        raise BadRequest(f"{path} must be a primitive type")
    return type_


# --- expression to JSON ----------------------------------------------------------------------


def expression_json(expression: Expression, *, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Return what a JSON encoder should write for an expression."""
    return _json(expression, max_depth)


def _json(expression: Expression, levels_left: int) -> dict[str, Any]:
    if levels_left <= 0:
        raise BadRequest(f"filter: an expression is nested too deeply: at most {MAX_DEPTH} levels")
    if isinstance(expression, Predicate):
        return _predicate_json(expression)
    if isinstance(expression, And | Or):
        kind = "and" if isinstance(expression, And) else "or"
        return _balanced_json(kind, expression.operands, levels_left)
    if isinstance(expression, Not):
        return {"type": "not", "child": _json(expression.child, levels_left - 1)}
    if not isinstance(expression, AlwaysTrue | AlwaysFalse):
        raise TypeError(f"{type(expression).__name__} has no JSON form")
    return {"type": "true" if isinstance(expression, AlwaysTrue) else "false"}


def _balanced_json(kind: str, operands: tuple[Expression, ...], levels_left: int) -> dict[str, Any]:
    """Write pairs, the only form JSON has. A balanced tree of them stays shallow."""
    if len(operands) == 1:
        return _json(operands[0], levels_left)
    middle = len(operands) // 2
    return {
        "type": kind,
        "left": _balanced_json(kind, operands[:middle], levels_left - 1),
        "right": _balanced_json(kind, operands[middle:], levels_left - 1),
    }


def _predicate_json(predicate: Predicate) -> dict[str, Any]:
    json: dict[str, Any] = {
        "type": predicate.operation.value,
        "term": _term_json(predicate.term),
    }
    if predicate.operation in SET_OPERATIONS:
        json["values"] = [_literal_json(value) for value in predicate.values]
    elif predicate.values:
        json["value"] = _literal_json(predicate.values[0])
    return json


def _term_json(term: Term) -> str | dict[str, Any]:
    column = term.column
    reference = column if isinstance(column, str) else {"type": "reference", "id": column}
    if term.transform is None:
        return reference
    return {"type": "transform", "transform": str(term.transform), "term": reference}


def _literal_json(literal: Literal) -> Any:
    if not isinstance(literal, TypedLiteral):
        return literal
    return {"type": "literal", "value": literal.value, "data-type": str(literal.data_type)}


def plain_value(literal: Literal) -> bool | int | float | Decimal | str:
    """Return the JSON single value of a literal without its type."""
    return literal.value if isinstance(literal, TypedLiteral) else literal

"""Expressions as a client sends them: a tree that is not bound to any schema, and its JSON.

Iceberg's expressions specification and the REST specification's `Predicate`. Both forms of JSON
are read: `left`, `right` and `child`, and the deprecated `term`, `value` and `values` that every
client of today sends. How a tree is bound to the columns of a table is `expression_binding`.

    Expression
    ├── AlwaysTrue, AlwaysFalse
    ├── And, Or, Not
    └── predicates on a term (a reference, or a transform of one)
        ├── UnaryPredicate     is-null, not-null, is-nan, not-nan
        ├── LiteralPredicate   lt, lt-eq, gt, gt-eq, eq, not-eq, starts-with, not-starts-with
        └── SetPredicate       in, not-in
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from frazil.values.transforms import InvalidTransform, Transform, Unknown, parse_transform
from frazil.values.type_json import parse_type
from frazil.values.types import InvalidType, Type
from frazil.wire.errors import BadRequest

MAX_DEPTH: Final = 200
"""Deeper trees are refused: whatever walks a tree recursively must never run out of stack."""

ICEBERG_FUNCTIONS: Final = "iceberg_functions"


class Operation(StrEnum):
    """What a predicate tests; the text is the one of the JSON form."""

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
"""The operation that is true where another is false, as Java's `Operation.negate`."""

_MIRRORED: Final[Mapping[Operation, Operation]] = {
    Operation.LT: Operation.GT,
    Operation.LT_EQ: Operation.GT_EQ,
    Operation.GT: Operation.LT,
    Operation.GT_EQ: Operation.LT_EQ,
    Operation.EQ: Operation.EQ,
    Operation.NOT_EQ: Operation.NOT_EQ,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """Any expression, bound to columns or not."""


@dataclass(frozen=True, slots=True)
class AlwaysTrue(Expression):
    """Matches every row."""


@dataclass(frozen=True, slots=True)
class AlwaysFalse(Expression):
    """Matches no row."""


ALWAYS_TRUE: Final = AlwaysTrue()
ALWAYS_FALSE: Final = AlwaysFalse()


@dataclass(frozen=True, slots=True)
class And(Expression):
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Or(Expression):
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not(Expression):
    child: Expression


@dataclass(frozen=True, slots=True)
class Reference:
    """A column by its dotted name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class IdReference:
    """A column by its field id."""

    field_id: int

    def __str__(self) -> str:
        return f"field id {self.field_id}"


@dataclass(frozen=True, slots=True)
class TransformTerm:
    """A partition transform applied to a column."""

    transform: Transform
    reference: Reference | IdReference

    def __str__(self) -> str:
        return f"{self.transform}({self.reference})"


Term = Reference | IdReference | TransformTerm


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as JSON has it; what it means depends on the term that it is compared with."""

    value: bool | int | float | Decimal | str
    data_type: Type | None = None
    """The type that the client says the value has; JSON values are written in that type's form."""


@dataclass(frozen=True, slots=True)
class UnaryPredicate(Expression):
    operation: Operation
    term: Term


@dataclass(frozen=True, slots=True)
class LiteralPredicate(Expression):
    operation: Operation
    term: Term
    literal: Literal


@dataclass(frozen=True, slots=True)
class SetPredicate(Expression):
    operation: Operation
    term: Term
    literals: tuple[Literal, ...]


def and_(left: Expression, right: Expression) -> Expression:
    """Both, without what is always true or false."""
    if ALWAYS_FALSE in (left, right):
        return ALWAYS_FALSE
    if left == ALWAYS_TRUE:
        return right
    return left if right == ALWAYS_TRUE else And(left, right)


def or_(left: Expression, right: Expression) -> Expression:
    """Either, without what is always true or false."""
    if ALWAYS_TRUE in (left, right):
        return ALWAYS_TRUE
    if left == ALWAYS_FALSE:
        return right
    return left if right == ALWAYS_FALSE else Or(left, right)


# --- JSON to expression ----------------------------------------------------------------------


def from_json(value: object, path: str = "filter") -> Expression:
    """Reads a predicate from decoded JSON; `path` names it in messages."""
    return _predicate(value, path, 0)


def _predicate(value: object, path: str, depth: int) -> Expression:
    if isinstance(value, bool):
        return ALWAYS_TRUE if value else ALWAYS_FALSE
    if not isinstance(value, dict):
        raise BadRequest(f"{path} must be a predicate: true, false or an object with a type")
    if depth >= MAX_DEPTH:
        # The path is as long as the tree is deep, so it is not part of this message.
        raise BadRequest(f"an expression is nested too deeply: at most {MAX_DEPTH} levels")
    kind = value.get("type")
    if not isinstance(kind, str):
        raise BadRequest(f"{path}.type is missing: give the kind of predicate as a string")
    kind = kind.lower().replace("_", "-")
    if kind in ("and", "or"):
        left = _predicate(_member(value, "left", path), f"{path}.left", depth + 1)
        right = _predicate(_member(value, "right", path), f"{path}.right", depth + 1)
        return And(left, right) if kind == "and" else Or(left, right)
    if kind == "not":
        return Not(_predicate(_member(value, "child", path), f"{path}.child", depth + 1))
    return _leaf(value, kind, path)


def _leaf(value: dict[str, Any], kind: str, path: str) -> Expression:
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
        _refuse(value, ("value", "values", "left", "right"), operation, path)
        return UnaryPredicate(operation, _operand(value, "child", path))
    if operation in SET_OPERATIONS:
        _refuse(value, ("value", "left", "right"), operation, path)
        return SetPredicate(operation, _operand(value, "child", path), _literals(value, path))
    _refuse(value, ("values", "child"), operation, path)
    return _comparison(value, operation, path)


def _refuse(value: dict[str, Any], keys: tuple[str, ...], operation: str, path: str) -> None:
    for key in keys:
        if key in value:
            raise BadRequest(f"{path}.{key}: a predicate of type {operation} does not have this")


def _member(value: dict[str, Any], key: str, path: str) -> Any:
    if key not in value:
        raise BadRequest(f"{path}.{key} is missing")
    return value[key]


def _operand(value: dict[str, Any], preferred: str, path: str) -> Term:
    """The term of a predicate under its new name or under the deprecated `term`."""
    if preferred in value and "term" in value:
        raise BadRequest(f"{path}: give {preferred} or term, not both")
    key = "term" if "term" in value else preferred
    return _term(_member(value, key, path), f"{path}.{key}")


def _comparison(value: dict[str, Any], operation: Operation, path: str) -> LiteralPredicate:
    if "value" in value and "right" in value:
        raise BadRequest(f"{path}: give right or value, not both")
    left, right = value.get("left"), value.get("right")
    if right is not None and _is_term(right):
        return _mirrored(operation, left, right, path)
    key = "value" if "value" in value else "right"
    term = _operand(value, "left", path)
    return LiteralPredicate(operation, term, _literal(_member(value, key, path), f"{path}.{key}"))


def _is_term(value: object) -> bool:
    return isinstance(value, dict) and value.get("type") in ("reference", "transform", "apply")


def _mirrored(operation: Operation, left: object, right: object, path: str) -> LiteralPredicate:
    """A constant on the left of a column is the mirrored comparison of the column with it."""
    if left is None or _is_term(left) or operation not in _MIRRORED:
        raise BadRequest(f"{path}.right must be a literal: two columns cannot be compared")
    term = _term(right, f"{path}.right")
    return LiteralPredicate(_MIRRORED[operation], term, _literal(left, f"{path}.left"))


def _term(value: object, path: str) -> Term:
    if isinstance(value, str):
        return Reference(value)
    if not isinstance(value, dict):
        raise BadRequest(f"{path} must be a column name, a reference or a function of one")
    kind = value.get("type")
    if kind == "reference":
        return _reference(value, path)
    if kind == "transform":
        transform = _transform(_member(value, "transform", path), f"{path}.transform")
        return _transformed(transform, _member(value, "term", path), f"{path}.term")
    if kind == "apply":
        return _apply(value, path)
    raise BadRequest(f"{path}.type must be reference, transform or apply")


def _reference(value: dict[str, Any], path: str) -> Reference | IdReference:
    if "id" in value:
        field_id = value["id"]
        if isinstance(field_id, bool) or not isinstance(field_id, int):
            raise BadRequest(f"{path}.id must be an integer")
        return IdReference(field_id)
    key = "name" if "name" in value else "term"
    name = value.get(key)
    if not isinstance(name, str):
        raise BadRequest(f"{path}: a reference needs a name or an id")
    return Reference(name)


def _transform(text: object, path: str) -> Transform:
    if not isinstance(text, str):
        raise BadRequest(f"{path} must be a string")
    try:
        transform = parse_transform(text)
    except InvalidTransform as error:
        raise BadRequest(f"{path}: {error}") from None
    if isinstance(transform, Unknown):
        raise BadRequest(f"{path}: {text[:100]!r} is not a transform")
    return transform


def _transformed(transform: Transform, operand: object, path: str) -> TransformTerm:
    reference = _term(operand, path)
    if isinstance(reference, TransformTerm):
        raise BadRequest(f"{path} must be a reference: functions cannot be nested")
    return TransformTerm(transform, reference)


def _apply(value: dict[str, Any], path: str) -> TransformTerm:
    """A call of one of the expressions specification's functions that are transforms."""
    name = _function_name(_member(value, "function", path), f"{path}.function")
    arguments = _member(value, "arguments", path)
    if not isinstance(arguments, list) or not 1 <= len(arguments) <= 2:
        raise BadRequest(f"{path}.arguments must be a list of one or two arguments")
    text = name
    if len(arguments) == 2:
        # bucket and truncate take their parameter first.
        parameter = _literal(arguments[0], f"{path}.arguments[0]").value
        text = f"{name}[{parameter}]"
    transform = _transform(text, f"{path}.function")
    last = len(arguments) - 1
    return _transformed(transform, arguments[last], f"{path}.arguments[{last}]")


def _function_name(value: object, path: str) -> str:
    catalog: object = None
    if isinstance(value, dict):
        catalog, value = value.get("catalog"), value.get("identifier")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or catalog not in (None, ICEBERG_FUNCTIONS):
        raise BadRequest(f"{path} must name a transform of {ICEBERG_FUNCTIONS}")
    return value


def _literals(value: dict[str, Any], path: str) -> tuple[Literal, ...]:
    items, path = _member(value, "values", path), f"{path}.values"
    data_type: Type | None = None
    if isinstance(items, dict) and items.get("type") == "literals":
        data_type = _data_type(_member(items, "data-type", path), f"{path}.data-type")
        items, path = _member(items, "values", path), f"{path}.values"
    if not isinstance(items, list):
        raise BadRequest(f"{path} must be a list of literals")
    return tuple(
        _literal(item, f"{path}[{position}]", data_type) for position, item in enumerate(items)
    )


def _literal(value: object, path: str, data_type: Type | None = None) -> Literal:
    if isinstance(value, dict):
        if value.get("type") != "literal":
            raise BadRequest(f"{path} must be a literal")
        if value.get("data-type") is not None:
            data_type = _data_type(value["data-type"], f"{path}.data-type")
        value, path = _member(value, "value", path), f"{path}.value"
    if value is None:
        raise BadRequest(f"{path} must not be null: use is-null or not-null")
    if not isinstance(value, bool | int | float | Decimal | str) or value != value:
        raise BadRequest(f"{path} must be a string, a number, true or false")
    return Literal(value, data_type)


def _data_type(value: object, path: str) -> Type:
    try:
        type_ = parse_type(value, path)
    except InvalidType as error:
        raise BadRequest(str(error)) from None
    if not type_.is_primitive:
        raise BadRequest(f"{path} must be a primitive type")
    return type_


# --- expression to JSON ----------------------------------------------------------------------


def to_json(expression: Expression, *, deprecated: bool = False) -> Any:
    """What a JSON encoder should write for an expression that is not bound.

    `deprecated` writes `term` and `value`, which clients from before the expressions
    specification read; what these cannot say is written in the new form there too.
    """
    if isinstance(expression, AlwaysTrue | AlwaysFalse):
        return isinstance(expression, AlwaysTrue)
    if isinstance(expression, And | Or):
        return {
            "type": "and" if isinstance(expression, And) else "or",
            "left": to_json(expression.left, deprecated=deprecated),
            "right": to_json(expression.right, deprecated=deprecated),
        }
    if isinstance(expression, Not):
        return {"type": "not", "child": to_json(expression.child, deprecated=deprecated)}
    if not isinstance(expression, UnaryPredicate | LiteralPredicate | SetPredicate):
        raise TypeError(f"{type(expression).__name__} has no JSON form")
    term = (_old_term if deprecated else _new_term)(expression.term)
    result: dict[str, Any] = {"type": expression.operation.value}
    if isinstance(expression, LiteralPredicate):
        result["term" if deprecated else "left"] = term
        result["value" if deprecated else "right"] = _literal_json(expression.literal)
        return result
    result["term" if deprecated else "child"] = term
    if isinstance(expression, SetPredicate):
        result["values"] = [_literal_json(literal) for literal in expression.literals]
    return result


def _literal_json(literal: Literal) -> Any:
    if literal.data_type is None:
        return literal.value
    return {"type": "literal", "value": literal.value, "data-type": str(literal.data_type)}


def _new_term(term: Term) -> dict[str, Any]:
    if isinstance(term, Reference):
        return {"type": "reference", "name": term.name}
    if isinstance(term, IdReference):
        return {"type": "reference", "id": term.field_id}
    name, _, parameter = str(term.transform).removesuffix("]").partition("[")
    return {
        "type": "apply",
        "function": {"catalog": ICEBERG_FUNCTIONS, "identifier": [name]},
        "arguments": [*([int(parameter)] if parameter else []), _new_term(term.reference)],
    }


def _old_term(term: Term) -> str | dict[str, Any]:
    if isinstance(term, Reference):
        return term.name
    if isinstance(term, IdReference):
        return _new_term(term)
    return {
        "type": "transform",
        "transform": str(term.transform),
        "term": _old_term(term.reference),
    }

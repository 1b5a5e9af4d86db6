"""Convert PyIceberg's expressions to Iceberg's expression JSON, typed by the table's schema.

PyIceberg's own JSON is incomplete: it writes dates as numbers and cannot write bytes. Here every
predicate is bound first, so that a literal has the type of its column and is written as the JSON
single value of that type.

Chains of `and` and `or` become balanced trees, and equalities on one column become one `in`. Thus
an upsert with many keys exceeds neither Python's stack nor the server's limit of depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final
from uuid import UUID

import msgspec
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundSetPredicate,
    BoundStartsWith,
    Not,
    Or,
    UnboundPredicate,
)
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from frazil.values.single_value import InvalidValue, to_json
from frazil.values.type_json import parse_type
from frazil.values.types import Type, TypeId

Json = dict[str, Any]

TRUE: Final[Json] = {"type": "true"}
FALSE: Final[Json] = {"type": "false"}

IN_LIMIT: Final = 200
"""Iceberg's metrics evaluators ignore an `in` with more values."""

_NAMES: Final[dict[type[BoundPredicate], str]] = {
    BoundIsNull: "is-null",
    BoundNotNull: "not-null",
    BoundIsNaN: "is-nan",
    BoundNotNaN: "not-nan",
    BoundLessThan: "lt",
    BoundLessThanOrEqual: "lt-eq",
    BoundGreaterThan: "gt",
    BoundGreaterThanOrEqual: "gt-eq",
    BoundEqualTo: "eq",
    BoundNotEqualTo: "not-eq",
    BoundStartsWith: "starts-with",
    BoundNotStartsWith: "not-starts-with",
    BoundIn: "in",
    BoundNotIn: "not-in",
}


def filter_json(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> Json:
    """Return the JSON of this expression; raise InvalidValue for an infinity."""
    return _Writer(schema, case_sensitive, widens=False).json(expression)


def conflict_filter(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> msgspec.Raw:
    """Return a filter that matches at least the rows of the expression and is fast to evaluate.

    It may report a conflict too many, but never misses one.
    """
    try:
        document = _Writer(schema, case_sensitive, widens=True).json(expression)
    except InvalidValue:
        document = TRUE
    return msgspec.Raw(msgspec.json.encode(document))


@cache
def value_type(iceberg_type: IcebergType) -> Type:
    """Return Frazil's type for a primitive type of PyIceberg."""
    return parse_type(str(iceberg_type))


def value_json(iceberg_type: IcebergType, value: Any) -> Any:
    """Convert a value of PyIceberg to the JSON of its type."""
    type_ = value_type(iceberg_type)
    if type_.type_id is TypeId.UUID and not isinstance(value, UUID):
        value = UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))
    elif type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and isinstance(value, int):
        value = float(value)
    return to_json(type_, value)


class _Writer:
    def __init__(self, schema: Schema, case_sensitive: bool, *, widens: bool) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._widens = widens

    def json(self, expression: BooleanExpression) -> Json:
        match expression:
            case AlwaysTrue():
                return TRUE
            case AlwaysFalse():
                return FALSE
            case Not(child=child):
                # Widening the child would narrow the negation.
                exact = _Writer(self._schema, self._case_sensitive, widens=False)
                return _negated(exact.json(child))
            case And():
                return _balanced("and", self._operands(expression, And), neutral=TRUE)
            case Or():
                return self._any_of(self._operands(expression, Or))
            case UnboundPredicate():
                return self.json(expression.bind(self._schema, self._case_sensitive))
            case BoundPredicate():
                return self._predicate(expression)
        raise TypeError(f"not an expression of PyIceberg: {expression!r}")

    def _operands(self, expression: And | Or, kind: type[And] | type[Or]) -> list[Json]:
        """Return the parts of a chain from left to right, without recursion."""
        parts: list[Json] = []
        pending: list[BooleanExpression] = [expression]
        while pending:
            part = pending.pop()
            if isinstance(part, kind):
                pending += (part.right, part.left)
            else:
                parts.append(self.json(part))
        return parts

    def _any_of(self, parts: list[Json]) -> Json:
        gathered = _gathered(parts)
        if self._widens and len(gathered) > IN_LIMIT:
            columns = _columns_of_keys(gathered)
            if columns is not None:
                ins = [self._in(name, values) for name, values in columns.items()]
                return _balanced("and", ins, neutral=TRUE)
        return _balanced(
            "or",
            [
                self._in(part["term"], part["values"]) if part["type"] == "in" else part
                for part in gathered
            ],
            neutral=FALSE,
        )

    def _predicate(self, predicate: BoundPredicate) -> Json:
        name = _NAMES[type(predicate)]
        field = predicate.term.ref().field
        column = self._schema.find_column_name(field.field_id)
        if column is None:
            raise ValueError(f"the schema has no column with field id {field.field_id}")
        if isinstance(predicate, BoundLiteralPredicate):
            value = predicate.literal.value
            return {"type": name, "term": column, "value": value_json(field.field_type, value)}
        if isinstance(predicate, BoundSetPredicate):
            documents = (value_json(field.field_type, value) for value in predicate.value_set)
            values = sorted(documents, key=_order)
            if name == "in":
                return self._in(column, values)
            return {"type": name, "term": column, "values": values}
        return {"type": name, "term": column}

    def _in(self, column: str, values: list[Any]) -> Json:
        """Return an `in`, with its range if it has more values than evaluators look at."""
        if len(values) == 1:
            return {"type": "eq", "term": column, "value": values[0]}
        membership = {"type": "in", "term": column, "values": values}
        if not self._widens or len(values) <= IN_LIMIT or not self._is_ordered(column):
            return membership
        lowest, highest = min(values), max(values)
        return _balanced(
            "and",
            [
                {"type": "gt-eq", "term": column, "value": lowest},
                {"type": "lt-eq", "term": column, "value": highest},
                membership,
            ],
            neutral=TRUE,
        )

    def _is_ordered(self, column: str) -> bool:
        type_ = value_type(self._schema.find_field(column).field_type).type_id
        # Dates outside the years 0 to 9999 do not sort like their text, so only these types.
        return type_ in (TypeId.INT, TypeId.LONG, TypeId.STRING)


def _gathered(parts: Iterable[Json]) -> list[Json]:
    """Merge equalities and sets of one column into one set, at the position of the first."""
    gathered: list[Json] = []
    values: dict[str, dict[tuple[str, Any], Any]] = {}
    for part in parts:
        if part["type"] not in ("eq", "in"):
            gathered.append(part)
            continue
        column = part["term"]
        if column not in values:
            values[column] = {}
            gathered.append({"type": "in", "term": column})
        for value in part.get("values", [part.get("value")]):
            values[column].setdefault(_order(value), value)
    return [
        {**part, "values": list(values[part["term"]].values())}
        if part["type"] == "in" and "values" not in part
        else part
        for part in gathered
    ]


def _columns_of_keys(parts: list[Json]) -> dict[str, list[Any]] | None:
    """Return the values of each column if every part is one key over the same columns."""
    columns: dict[str, dict[tuple[str, Any], Any]] = {}
    for part in parts:
        key = list(_equalities(part))
        if not key or (any(name not in columns for name, _ in key) and part is not parts[0]):
            return None
        for name, value in key:
            columns.setdefault(name, {}).setdefault(_order(value), value)
        if len(key) != len(columns):
            return None
    return {name: list(values.values()) for name, values in columns.items()}


def _equalities(part: Json) -> Iterable[tuple[str, Any]]:
    """Return the columns and values of `a = 1 and b = 2`; nothing for any other expression."""
    equalities: list[tuple[str, Any]] = []
    pending = [part]
    while pending:
        piece = pending.pop()
        if piece["type"] == "and":
            pending += (piece["left"], piece["right"])
        elif piece["type"] == "eq":
            equalities.append((piece["term"], piece["value"]))
        else:
            return ()
    return equalities


def _balanced(kind: str, parts: list[Json], *, neutral: Json) -> Json:
    """Combine the parts with one operator into a balanced binary tree."""
    deciding = FALSE if neutral is TRUE else TRUE
    level = [part for part in parts if part != neutral]
    if deciding in level:
        return deciding
    if not level:
        return neutral
    while len(level) > 1:
        pairs = [level[start : start + 2] for start in range(0, len(level), 2)]
        level = [
            {"type": kind, "left": pair[0], "right": pair[1]} if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return level[0]


def _negated(child: Json) -> Json:
    if child in (TRUE, FALSE):
        return FALSE if child == TRUE else TRUE
    return {"type": "not", "child": child}


def _order(value: Any) -> tuple[str, Any]:
    """Return a sort key that distinguishes 1 from True, which are equal in Python."""
    return type(value).__name__, value

"""Filters: small immutable expressions with Iceberg's names, and their JSON.

    (col("id") >= 5) & col("day").is_in([date(2026, 5, 1)]) | ~(bucket(16, "id") == 3)

Wherever the client takes a filter it takes an `Expression`, the JSON of the REST specification as a
mapping, or text (`frazil.client.filter.filter_text`); `filter_json` makes JSON of all three.

    Expression
    ├── AlwaysTrue, AlwaysFalse
    ├── And, Or, Not
    └── Predicate       an operation on a term: a column, or a transform of one
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

from frazil.wire.errors import BadRequest

MAX_DEPTH: Final = 200
"""Deeper trees are refused, as the server refuses them. Chains of `&` and `|` are not deep."""

MAX_PLACES: Final = 38
"""Places behind the point that a decimal column can have."""

Value: TypeAlias = bool | int | float | str | Decimal | date | datetime | time | UUID | bytes


class Expression:
    """What a row may match. Put together with `&`, `|` and `~`."""

    __slots__ = ()

    def __and__(self, other: Expression) -> Expression:
        return all_of(self, other) if isinstance(other, Expression) else NotImplemented

    def __or__(self, other: Expression) -> Expression:
        return any_of(self, other) if isinstance(other, Expression) else NotImplemented

    def __invert__(self) -> Expression:
        return self.child if isinstance(self, Not) else Not(self)

    def __bool__(self) -> NoReturn:
        # `a and b`, `not a` and `1 < col("x") < 5` would silently mean one half of what they say.
        raise TypeError("a filter is neither true nor false: combine filters with &, | and ~")

    def to_json(self) -> dict[str, Any]:
        """The expression's JSON in the REST specification's form."""
        return _to_json(self, 0)


@dataclass(frozen=True, slots=True)
class AlwaysTrue(Expression):
    """Matches every row."""


@dataclass(frozen=True, slots=True)
class AlwaysFalse(Expression):
    """Matches no row."""


@dataclass(frozen=True, slots=True)
class And(Expression):
    """Matches where every operand does; made by `&` or `all_of`."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """Matches where any operand does; made by `|` or `any_of`."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Expression):
    child: Expression


@dataclass(frozen=True, slots=True)
class Term:
    """What a predicate looks at: a column by its dotted name, or a transform of it."""

    name: str
    transform: str | None = None

    def to_json(self) -> str | dict[str, Any]:
        if self.transform is None:
            return self.name
        return {"type": "transform", "transform": self.transform, "term": self.name}

    def __str__(self) -> str:
        return self.name if self.transform is None else f"{self.transform}({self.name})"


@dataclass(frozen=True, slots=True)
class Predicate(Expression):
    """An operation, by its name in JSON, on a term."""

    operation: str
    term: Term
    values: tuple[Any, ...] = ()
    """What the term is compared with, as JSON single values."""


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A column, or a transform of one, as it stands in an expression: comparing it gives a filter.

    `==` is such a comparison, so that two operands are never equal and have no hash.
    """

    term: Term

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, value: Value) -> Expression:  # type: ignore[override]
        return self._compared("eq", value)

    def __ne__(self, value: Value) -> Expression:  # type: ignore[override]
        return self._compared("not-eq", value)

    def __lt__(self, value: Value) -> Expression:
        return self._compared("lt", value)

    def __le__(self, value: Value) -> Expression:
        return self._compared("lt-eq", value)

    def __gt__(self, value: Value) -> Expression:
        return self._compared("gt", value)

    def __ge__(self, value: Value) -> Expression:
        return self._compared("gt-eq", value)

    def is_in(self, values: Iterable[Value]) -> Expression:
        """Equal to one of the values; of none, no row is."""
        found = self._all_json(values, "is_in")
        return Predicate("in", self.term, found) if found else AlwaysFalse()

    def not_in(self, values: Iterable[Value]) -> Expression:
        """Equal to none of the values."""
        found = self._all_json(values, "not_in")
        return Predicate("not-in", self.term, found) if found else AlwaysTrue()

    def is_null(self) -> Expression:
        return Predicate("is-null", self.term)

    def not_null(self) -> Expression:
        return Predicate("not-null", self.term)

    def is_nan(self) -> Expression:
        return Predicate("is-nan", self.term)

    def not_nan(self) -> Expression:
        return Predicate("not-nan", self.term)

    def starts_with(self, prefix: str) -> Expression:
        return Predicate("starts-with", self.term, (self._prefix(prefix),))

    def not_starts_with(self, prefix: str) -> Expression:
        return Predicate("not-starts-with", self.term, (self._prefix(prefix),))

    def _compared(self, operation: str, value: Value) -> Expression:
        return Predicate(operation, self.term, (value_json(value, str(self.term)),))

    def _all_json(self, values: Iterable[Value], method: str) -> tuple[Any, ...]:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise BadRequest(f"filter on {self.term}: give {method} a list of values")
        return tuple(value_json(value, str(self.term)) for value in values)

    def _prefix(self, prefix: str) -> str:
        if not isinstance(prefix, str):
            raise BadRequest(f"filter on {self.term}: a prefix must be a str, not {_kind(prefix)}")
        return prefix


# --- builders --------------------------------------------------------------------------------


def always_true() -> Expression:
    """Matches every row."""
    return AlwaysTrue()


def always_false() -> Expression:
    """Matches no row."""
    return AlwaysFalse()


def all_of(*expressions: Expression) -> Expression:
    """Matches where all do; of none, every row does."""
    return _joined(And, expressions, AlwaysTrue(), AlwaysFalse())


def any_of(*expressions: Expression) -> Expression:
    """Matches where any does; of none, no row does."""
    return _joined(Or, expressions, AlwaysFalse(), AlwaysTrue())


def _joined(
    kind: type[And] | type[Or],
    expressions: tuple[Expression, ...],
    nothing: Expression,
    everything: Expression,
) -> Expression:
    """One flat list of operands, without what changes nothing; `everything` decides alone."""
    operands: list[Expression] = []
    for expression in expressions:
        if expression == everything:
            return everything
        if isinstance(expression, kind):
            operands.extend(expression.operands)
        elif expression != nothing:
            operands.append(expression)
    if len(operands) < 2:
        return operands[0] if operands else nothing
    return kind(tuple(operands))


def col(name: str) -> Operand:
    """A column by its name; the fields of a struct are named with dots, `point.x`."""
    if not isinstance(name, str) or not name:
        raise BadRequest("a column is named by a str that is not empty")
    return Operand(Term(name))


def bucket(num_buckets: int, name: str) -> Operand:
    """The column's bucket of so many, an int from 0."""
    return _transformed("bucket", num_buckets, name)


def truncate(width: int, name: str) -> Operand:
    """The column cut to a width, of the column's own type."""
    return _transformed("truncate", width, name)


def year(name: str) -> Operand:
    """Iceberg's year of a date or timestamp: an int that counts years since 1970."""
    return _of("year", name)


def month(name: str) -> Operand:
    """Iceberg's month of a date or timestamp: an int that counts months since January 1970."""
    return _of("month", name)


def day(name: str) -> Operand:
    """The day of a date or timestamp, a date."""
    return _of("day", name)


def hour(name: str) -> Operand:
    """Iceberg's hour of a timestamp: an int that counts hours since 1970."""
    return _of("hour", name)


def _of(transform: str, name: str) -> Operand:
    return Operand(Term(col(name).term.name, transform))


def _transformed(transform: str, parameter: int, name: str) -> Operand:
    if isinstance(parameter, bool) or not isinstance(parameter, int) or parameter < 1:
        raise BadRequest(f"{transform} takes a positive int first, then the column's name")
    return _of(f"{transform}[{parameter}]", name)


# --- JSON ------------------------------------------------------------------------------------

Filter: TypeAlias = Expression | Mapping[str, Any] | str
"""An expression, its JSON, or text."""


def filter_json(filter: Filter) -> dict[str, Any]:
    """A filter in any of its three forms as the JSON that is sent."""
    if isinstance(filter, Expression):
        return filter.to_json()
    if isinstance(filter, str):
        from frazil.client.filter.filter_text import parse_filter

        return parse_filter(filter).to_json()
    if isinstance(filter, Mapping):
        if not isinstance(filter.get("type"), str):
            raise BadRequest('filter: an expression\'s JSON has a type, as {"type": "eq", ...}')
        return dict(filter)
    raise BadRequest(f"filter must be an expression, its JSON or text, not {_kind(filter)}")


def _to_json(expression: Expression, depth: int) -> dict[str, Any]:
    if depth >= MAX_DEPTH:
        raise BadRequest(f"filter: an expression is nested too deeply: at most {MAX_DEPTH} levels")
    if isinstance(expression, Predicate):
        return _predicate_json(expression)
    if isinstance(expression, And | Or):
        kind = "and" if isinstance(expression, And) else "or"
        return _balanced(kind, expression.operands, depth)
    if isinstance(expression, Not):
        return {"type": "not", "child": _to_json(expression.child, depth + 1)}
    return {"type": "true" if isinstance(expression, AlwaysTrue) else "false"}


def _balanced(kind: str, operands: tuple[Expression, ...], depth: int) -> dict[str, Any]:
    """JSON has only pairs. A balanced tree of them stays shallow for any number of operands."""
    if len(operands) == 1:
        return _to_json(operands[0], depth)
    middle = len(operands) // 2
    return {
        "type": kind,
        "left": _balanced(kind, operands[:middle], depth + 1),
        "right": _balanced(kind, operands[middle:], depth + 1),
    }


def _predicate_json(predicate: Predicate) -> dict[str, Any]:
    json: dict[str, Any] = {"type": predicate.operation, "term": predicate.term.to_json()}
    if predicate.operation in ("in", "not-in"):
        json["values"] = list(predicate.values)
    elif predicate.values:
        json["value"] = predicate.values[0]
    return json


def value_json(value: object, name: str) -> bool | int | float | str:
    """A Python value as a JSON single value (spec, Appendix D); `name` is its column's."""
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            try:
                return write(value)
            except ValueError as error:
                raise BadRequest(f"filter on {name}: {error}") from None
    if value is None:
        raise BadRequest(f"filter on {name}: nothing equals null: use is_null() or not_null()")
    if isinstance(value, Operand):
        raise BadRequest(f"filter on {name}: two columns cannot be compared, give a value")
    known = ", ".join(sorted({kind.__name__ for kind, _ in _WRITERS}))
    raise BadRequest(f"filter on {name}: a value must be one of {known}, not {_kind(value)}")


def _kind(value: object) -> str:
    return type(value).__name__


def int_json(value: int) -> int | str:
    """JSON numbers are read as 64 bits; what is larger can only be a decimal, which is a string."""
    return int(value) if -(1 << 63) <= value < 1 << 63 else str(value)


def _float_json(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nothing equals NaN: use is_nan() or not_nan()")
    if math.isinf(value):
        raise ValueError("an infinity has no JSON value")
    return value


def decimal_json(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is not a decimal")
    # Spec: a negative scale is written as an exponent, any other with exactly its digits.
    # One with more places than any column has would only be long, so it keeps its exponent too.
    exponent = value.as_tuple().exponent
    plain = isinstance(exponent, int) and -MAX_PLACES <= exponent <= 0
    return format(value, "f") if plain else str(value)


def _datetime_json(value: datetime) -> str:
    # Spec: an instant is written in UTC with its zone, a local timestamp without one.
    return (value if value.utcoffset() is None else value.astimezone(UTC)).isoformat()


def _time_json(value: time) -> str:
    if value.tzinfo is not None:
        raise ValueError("a time has no zone: give it without tzinfo")
    return value.isoformat()


_WRITERS: Final[tuple[tuple[type[Any], Callable[[Any], bool | int | float | str]], ...]] = (
    # A bool is an int and a datetime is a date, so that the order matters.
    (bool, bool),
    (int, int_json),
    (float, _float_json),
    (str, str),
    (Decimal, decimal_json),
    (datetime, _datetime_json),
    (date, date.isoformat),
    (time, _time_json),
    (UUID, str),
    (bytes, bytes.hex),
)

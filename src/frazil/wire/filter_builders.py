"""Builds filters: `col` and the transforms for Python, and filters in any form as JSON.

    (col("id") >= 5) & col("day").is_in([date(2026, 5, 1)]) | ~(bucket(16, "id") == 3)

Wherever the client takes a filter it takes an `Expression`, the JSON of the REST specification as a
mapping, or text (`frazil.wire.filter_text`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Raw

from frazil.values import transforms
from frazil.wire.declared_content import NULL
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    Expression,
    Operation,
    Predicate,
    Term,
    parse_expression,
)
from frazil.wire.filter_text import decimal_json, int_json, parse_filter

Value: TypeAlias = bool | int | float | str | Decimal | date | datetime | time | UUID | bytes


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A column, or a transform of one, that users compare with values to get a filter.

    `==` is such a comparison as well, so that operands cannot be compared with each other and have
    no hash.
    """

    term: Term

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, value: Value) -> Expression:  # type: ignore[override]
        return self._compared(Operation.EQ, value)

    def __ne__(self, value: Value) -> Expression:  # type: ignore[override]
        return self._compared(Operation.NOT_EQ, value)

    def __lt__(self, value: Value) -> Expression:
        return self._compared(Operation.LT, value)

    def __le__(self, value: Value) -> Expression:
        return self._compared(Operation.LT_EQ, value)

    def __gt__(self, value: Value) -> Expression:
        return self._compared(Operation.GT, value)

    def __ge__(self, value: Value) -> Expression:
        return self._compared(Operation.GT_EQ, value)

    def is_in(self, values: Iterable[Value]) -> Expression:
        """Return a filter for rows whose value is in the list; no row if the list is empty."""
        listed = self._all_json(values, "is_in")
        return Predicate(Operation.IN, self.term, listed) if listed else ALWAYS_FALSE

    def not_in(self, values: Iterable[Value]) -> Expression:
        """Return a filter for rows whose value is not in the list."""
        listed = self._all_json(values, "not_in")
        return Predicate(Operation.NOT_IN, self.term, listed) if listed else ALWAYS_TRUE

    def is_null(self) -> Expression:
        return Predicate(Operation.IS_NULL, self.term)

    def not_null(self) -> Expression:
        return Predicate(Operation.NOT_NULL, self.term)

    def is_nan(self) -> Expression:
        return Predicate(Operation.IS_NAN, self.term)

    def not_nan(self) -> Expression:
        return Predicate(Operation.NOT_NAN, self.term)

    def starts_with(self, prefix: str) -> Expression:
        return Predicate(Operation.STARTS_WITH, self.term, (self._prefix(prefix),))

    def not_starts_with(self, prefix: str) -> Expression:
        return Predicate(Operation.NOT_STARTS_WITH, self.term, (self._prefix(prefix),))

    def _compared(self, operation: Operation, value: Value) -> Expression:
        return Predicate(operation, self.term, (value_json(value, str(self.term)),))

    def _all_json(self, values: Iterable[Value], method: str) -> tuple[Any, ...]:
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise BadRequest(f"filter on {self.term}: give {method} a list of values")
        return tuple(value_json(value, str(self.term)) for value in values)

    def _prefix(self, prefix: str) -> str:
        if not isinstance(prefix, str):
            raise BadRequest(
                f"filter on {self.term}: a prefix must be a str, not {type(prefix).__name__}"
            )
        return prefix


# --- builders --------------------------------------------------------------------------------


def always_true() -> Expression:
    """Return the filter that matches every row."""
    return ALWAYS_TRUE


def always_false() -> Expression:
    """Return the filter that matches no row."""
    return ALWAYS_FALSE


def col(name: str) -> Operand:
    """Return a column by its name. The fields of a struct are named with dots, as in `point.x`."""
    if not isinstance(name, str) or not name:
        raise BadRequest("a column is named by a str that is not empty")
    return Operand(Term(name))


def bucket(num_buckets: int, name: str) -> Operand:
    """Return the bucket number of a column, an int from 0 to `num_buckets - 1`."""
    return _with_parameter(transforms.Bucket, num_buckets, name)


def truncate(width: int, name: str) -> Operand:
    """Return a column truncated to a width; the values have the column's own type."""
    return _with_parameter(transforms.Truncate, width, name)


def year(name: str) -> Operand:
    """Return the year of a date or timestamp as Iceberg counts it: years since 1970."""
    return _transformed(transforms.Year(), name)


def month(name: str) -> Operand:
    """Return the month of a date or timestamp as Iceberg counts it: months since January 1970."""
    return _transformed(transforms.Month(), name)


def day(name: str) -> Operand:
    """Return the day of a date or timestamp, to compare with a date."""
    return _transformed(transforms.Day(), name)


def hour(name: str) -> Operand:
    """Return the hour of a timestamp as Iceberg counts it: hours since 1970."""
    return _transformed(transforms.Hour(), name)


def _transformed(transform: transforms.Transform, name: str) -> Operand:
    return Operand(Term(col(name).term.column, transform))


def _with_parameter(
    kind: type[transforms.Bucket] | type[transforms.Truncate], parameter: int, name: str
) -> Operand:
    if isinstance(parameter, bool) or not isinstance(parameter, int) or parameter < 1:
        function = kind.__name__.lower()
        raise BadRequest(f"{function} takes a positive int first, then the column's name")
    try:
        return _transformed(kind(parameter), name)
    except transforms.InvalidTransform as error:
        raise BadRequest(f"filter: {error}") from None


# --- filters in any form ---------------------------------------------------------------------

Filter: TypeAlias = Expression | Mapping[str, Any] | str
"""An expression, its JSON, or text."""


def filter_json(filter: Filter) -> dict[str, Any]:
    """Return the JSON of a filter in any form. JSON is passed on as it is."""
    if isinstance(filter, Mapping):
        if not isinstance(filter.get("type"), str):
            raise BadRequest('filter: an expression\'s JSON has a type, as {"type": "eq", ...}')
        return dict(filter)
    return expression_of(filter).to_json()


def optional_filter_json(filter: Filter | None) -> Raw:
    """Return the encoded JSON of a filter; null without one."""
    return NULL if filter is None else Raw(msgspec.json.encode(filter_json(filter)))


def expression_of(filter: Filter) -> Expression:
    """Return the expression of a filter in any form."""
    if isinstance(filter, Expression):
        return filter
    if isinstance(filter, str):
        return parse_filter(filter)
    if isinstance(filter, Mapping):
        return parse_expression(filter)
    raise BadRequest(f"filter must be an expression, its JSON or text, not {type(filter).__name__}")


# --- values ----------------------------------------------------------------------------------


def value_json(value: object, name: str) -> bool | int | float | str:
    """Return a Python value as a JSON single value (spec, Appendix D); `name` is for messages."""
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
    raise BadRequest(
        f"filter on {name}: a value must be one of {known}, not {type(value).__name__}"
    )


def _float_json(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nothing equals NaN: use is_nan() or not_nan()")
    if math.isinf(value):
        raise ValueError("an infinity has no JSON value")
    return value


def _datetime_json(value: datetime) -> str:
    # Spec: a timestamptz is written in UTC with its zone, a timestamp without one.
    return (value if value.utcoffset() is None else value.astimezone(UTC)).isoformat()


def _time_json(value: time) -> str:
    if value.tzinfo is not None:
        raise ValueError("a time has no zone: give it without tzinfo")
    return value.isoformat()


_WRITERS: Final[tuple[tuple[type[Any], Callable[[Any], bool | int | float | str]], ...]] = (
    # A bool is an int and a datetime is a date, so the order matters.
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

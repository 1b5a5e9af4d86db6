"""Iceberg's filters as conditions of Spark that keep the very same rows.

The two differ in nulls and NaN. In Iceberg a comparison with null is false and its negation true:
of the predicates only `not-eq`, `not-in`, `not-starts-with` and `not-nan` match a null, which in
Spark no comparison does. No order holds for NaN, which to Spark is the greatest number. Negations
are pushed down to the predicates first, as Java's `RewriteNot` does. To Spark a zero has no sign,
and it keeps none here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
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
from frazil.spark.core.name_matching import quoted
from frazil.spark.schema.spark_types import spark_type
from frazil.values import temporal
from frazil.values.single_value import InvalidValue, check_value, from_json
from frazil.values.transforms import IDENTITY, Transform, parse_transform
from frazil.values.types import DecimalType, NestedField, StructType, Type, TypeId
from frazil.wire.errors import BadRequest


class Outside(Enum):
    """Where a constant lies that no value of the type equals."""

    ABOVE = "above"
    BELOW = "below"


ABOVE: Final = Outside.ABOVE
BELOW: Final = Outside.BELOW

_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_ZONED: Final = frozenset({TypeId.TIMESTAMPTZ, TypeId.TIMESTAMPTZ_NS})
_WHOLE: Final = _NANOS | {
    TypeId.INT,
    TypeId.LONG,
    TypeId.DATE,
    TypeId.TIME,
    TypeId.TIMESTAMP,
    TypeId.TIMESTAMPTZ,
}
_OFFSET: Final = re.compile(r"(.*)([+-])([0-9]{2}):([0-9]{2})")
_MAX_OFFSET_HOURS: Final = 18


def internal_value(type_: Type, value: Any, name: str) -> Any:
    """A JSON value as an internal value of the type (see `frazil.values.types`), or `Outside`."""
    try:
        return _internal(type_, value)
    except InvalidValue as error:
        raise BadRequest(f"filter on {name}: {error}") from None


def _internal(type_: Type, value: Any) -> Any:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if isinstance(type_, DecimalType) and (is_number or isinstance(value, str)):
        return _decimal(type_, value)
    if type_.type_id in (TypeId.FLOAT, TypeId.DOUBLE) and is_number:
        return _or_outside(lambda: from_json(type_, value), value)
    if type_.type_id in _WHOLE and isinstance(value, int) and is_number:
        # A number for a timestamp counts microseconds, also where the type has nanoseconds.
        number = value * temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else value
        return _or_outside(lambda: _checked(type_, number), number)
    if type_.type_id in _ZONED and isinstance(value, str):
        return _instant(type_, value)
    return from_json(type_, value)


def _or_outside(read: Callable[[], Any], value: int | float | Decimal) -> Any:
    try:
        return read()
    except InvalidValue:
        return ABOVE if value > 0 else BELOW


def _checked(type_: Type, value: Any) -> Any:
    check_value(type_, value)
    return value


def _decimal(type_: DecimalType, value: Any) -> Any:
    try:
        exact = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal") from None
    if not exact.is_finite():
        raise InvalidValue(f"{str(value)[:100]!r} is not a decimal")
    if exact and exact.adjusted() >= type_.precision - type_.scale:
        return ABOVE if exact > 0 else BELOW
    sign, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    moved = exponent + type_.scale
    if moved < 0 and any(digits[moved:]):
        raise InvalidValue(f"{str(value)[:100]} has more decimal places than {type_}")
    kept = digits if moved >= 0 else digits[:moved]
    number = int("".join(map(str, kept)) or "0") * 10 ** max(moved, 0)
    return Decimal((sign, tuple(map(int, str(number))), -type_.scale))


def _instant(type_: Type, text: str) -> int:
    """A literal may have any offset, whereas a value in metadata has none but +00:00."""
    matched = _OFFSET.fullmatch(text)
    if matched is None:
        found: int = from_json(type_, text)
        return found
    hours, minutes = int(matched[3]), int(matched[4])
    if hours > _MAX_OFFSET_HOURS or minutes > 59:
        raise InvalidValue(f"{text[:100]!r} has a zone offset that does not exist")
    units: int = from_json(type_, f"{matched[1]}+00:00")
    ahead = (hours * 60 + minutes) * 60 * temporal.MICROS_PER_SECOND
    if type_.type_id in _NANOS:
        ahead *= temporal.NANOS_PER_MICRO
    return units + ahead if matched[2] == "-" else units - ahead


def in_microseconds(operation: str, type_: Type, value: Any) -> tuple[str, Any]:
    """A comparison with nanoseconds as one of what Spark has, which is cut to microseconds.

    None as the value: no microsecond equals it.
    """
    if type_.type_id not in _NANOS or value % temporal.NANOS_PER_MICRO == 0:
        return operation, value
    if operation in ("eq", "not-eq"):
        return operation, None
    return ("lt-eq" if operation.startswith("lt") else "gt"), value


# --- as columns -----------------------------------------------------------------------------------


def value_column(type_: Type, value: Any) -> Column:
    """An internal value as a constant of the Spark type that columns of the type have.

    Spark folds these expressions before it plans, so that they are pushed down as constants.
    """
    make = _COLUMNS.get(type_.type_id)
    if make is None:
        return F.lit(value)
    return make(type_, value)


def _timestamp(type_: Type, value: int) -> Column:
    micros = value // temporal.NANOS_PER_MICRO if type_.type_id in _NANOS else value
    if type_.type_id in _ZONED:
        return F.timestamp_micros(F.lit(micros))
    text = temporal.timestamp_from_micros(micros, with_zone=False)
    return F.lit(text).cast("timestamp_ntz")


def _text(type_: Type, value: Any) -> Column:
    return F.lit(str(value)).cast(spark_type(type_))


_COLUMNS: Final[Mapping[TypeId, Callable[[Any, Any], Column]]] = {
    TypeId.LONG: lambda type_, value: F.lit(value).cast("long"),
    TypeId.FLOAT: lambda type_, value: F.lit(value).cast("float"),
    TypeId.DECIMAL: _text,
    TypeId.DATE: lambda type_, value: F.date_from_unix_date(F.lit(value)),
    TypeId.TIME: lambda type_, value: F.lit(temporal.time_from_micros(value)).cast("time(6)"),
    TypeId.TIMESTAMP: _timestamp,
    TypeId.TIMESTAMPTZ: _timestamp,
    TypeId.TIMESTAMP_NS: _timestamp,
    TypeId.TIMESTAMPTZ_NS: _timestamp,
    TypeId.UUID: lambda type_, value: F.lit(str(value)),
    TypeId.FIXED: lambda type_, value: F.unhex(F.lit(value.hex())),
    TypeId.BINARY: lambda type_, value: F.unhex(F.lit(value.hex())),
}


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

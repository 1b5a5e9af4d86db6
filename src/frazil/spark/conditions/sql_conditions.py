"""Conditions of SQL as Iceberg's expressions: what a statement reads, to prune and for conflicts.

The expression matches at least the rows that the condition is true for; a part that Iceberg has no
words for counts as true. SQL has three truth values, so that each part is asked where it is true
and where it is false, and a negation only swaps the two: `NOT (a OR b)` is true where both are
false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import sqlglot
from pyspark.sql import Column
from sqlglot import exp
from sqlglot.errors import SqlglotError

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.column_comparisons import Converted, compared, one_of
from frazil.spark.conditions.sql_columns import ColumnNames, FoundColumn
from frazil.spark.conditions.sql_constants import NUMBERS, Kind, Literal, Zone, literal_of
from frazil.spark.core.context import Context
from frazil.values.types import StructType, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import AlwaysFalse, AlwaysTrue, Expression, all_of, any_of
from frazil.wire.filter_builders import always_false, always_true, col

DIALECT: Final = "spark"
Condition: TypeAlias = str | Column | Expression
"""SQL, a Column, or one of the client's filters."""

_ANY: Final = Converted(always_true(), exact=False)
_ALL: Final = Converted(always_true(), exact=True)
_NONE: Final = Converted(always_false(), exact=True)
_MIRRORED: Final = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq"}
_NEGATED: Final = {
    "eq": "not-eq",
    "not-eq": "eq",
    "lt": "gt-eq",
    "lt-eq": "gt",
    "gt": "lt-eq",
    "gt-eq": "lt",
}
_COMPARISONS: Final[dict[type[exp.Expression], str]] = {
    exp.EQ: "eq",
    exp.NEQ: "not-eq",
    exp.LT: "lt",
    exp.LTE: "lt-eq",
    exp.GT: "gt",
    exp.GTE: "gt-eq",
}


def convert(
    condition: str,
    schema: StructType,
    *,
    alias: str | None = None,
    case_sensitive: bool = False,
    time_zone: str = "UTC",
) -> Converted:
    """The condition of a WHERE or ON as an expression on the table's columns."""
    tree = parse(condition)
    if tree is None:
        return _ANY
    names = ColumnNames(schema, alias, case_sensitive)
    return converted_tree(tree, names, Zone(time_zone), has_escapes="\\" in condition)


def converted_tree(
    tree: exp.Expression, names: ColumnNames, zone: Zone, *, has_escapes: bool
) -> Converted:
    """The same for a part of a text that is parsed already."""
    return _Conversion(names, zone, has_escapes).rows(tree, True)


def parse(condition: str) -> exp.Expression | None:
    """The text as a tree; None where only Spark can read it."""
    try:
        tree = sqlglot.parse_one(condition, dialect=DIALECT)
    except SqlglotError:
        return None
    return tree if isinstance(tree, exp.Expression) else None


def filter_of(
    context: Context, table: Table, condition: Condition | None, *, alias: str | None = None
) -> Converted:
    """What a condition in any of its forms reads of the table; of a Column nothing is known."""
    if condition is None:
        return _ALL
    if isinstance(condition, Expression):
        return Converted(condition, exact=True)
    if not isinstance(condition, str):
        return _ANY
    return convert(
        condition,
        table.schema,
        alias=alias,
        case_sensitive=is_case_sensitive(context),
        time_zone=context.time_zone,
    )


def exact_filter(context: Context, table: Table, condition: Condition) -> Expression:
    """The expression for exactly the rows of a condition, where the catalog is to judge by it."""
    found = filter_of(context, table, condition)
    if not found.exact:
        shown = condition if isinstance(condition, str) else "a Column"
        raise BadRequest(
            f"{table}: {shown} cannot be told to the catalog exactly: use comparisons of columns "
            "with constants, IN, BETWEEN, LIKE 'prefix%', IS NULL, AND, OR and NOT, as text"
        )
    return found.expression


def is_case_sensitive(context: Context) -> bool:
    return context.spark.conf.get("spark.sql.caseSensitive", "false") == "true"


@dataclass(frozen=True)
class _Conversion:
    names: ColumnNames
    zone: Zone
    has_escapes: bool
    """A backslash in a string of Spark's has rules of its own: such strings are not looked at."""

    def rows(self, node: exp.Expression, truth: bool) -> Converted:
        """The rows for which the node is true, or false."""
        if node.args.get("negate"):
            truth = not truth
        if isinstance(node, exp.Paren):
            return self.rows(node.this, truth)
        if isinstance(node, exp.Not):
            return self.rows(node.this, not truth)
        if isinstance(node, exp.And | exp.Or):
            left, right = self.rows(node.this, truth), self.rows(node.expression, truth)
            return (
                _both(left, right) if isinstance(node, exp.And) == truth else _either(left, right)
            )
        handle = _HANDLERS.get(type(node))
        found = self._value(node, truth) if handle is None else handle(self, node, truth)
        return _ANY if found is None else found

    def column(self, node: object) -> FoundColumn | None:
        return self.names.find(node) if isinstance(node, exp.Expression) else None

    def literal(self, node: object) -> Literal | None:
        found = literal_of(node, self.zone) if isinstance(node, exp.Expression) else None
        if found is not None and found.kind is Kind.STRING and self.has_escapes:
            return None
        return found

    # --- values -------------------------------------------------------------------------------

    def _value(self, node: exp.Expression, truth: bool) -> Converted | None:
        """A boolean by itself: a constant or a column."""
        literal = self.literal(node)
        if literal is not None and literal.kind is Kind.NULL:
            return _NONE
        if literal is not None and literal.kind is Kind.BOOLEAN:
            return _ALL if literal.value == truth else _NONE
        column = self.column(node)
        if column is None or column.type.type_id is not TypeId.BOOLEAN:
            return None
        return Converted(col(column.name) == truth, exact=True)

    def comparison(self, node: exp.Expression, truth: bool) -> Converted | None:
        operation = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        column, literal = self.column(left), self.literal(right)
        if column is None:
            column, literal = self.column(right), self.literal(left)
            if column is None:
                return _constant(operation, literal, self.literal(right), truth)
            operation = _MIRRORED.get(operation, operation)
        if literal is None:
            return None
        return compared(column, operation if truth else _NEGATED[operation], literal, self.zone)

    def same(self, node: exp.Expression, truth: bool) -> Converted | None:
        """`<=>`, which is never null."""
        column, literal = self.column(node.this), self.literal(node.expression)
        if column is None:
            column, literal = self.column(node.expression), self.literal(node.this)
        if column is None or literal is None:
            return None
        if literal.kind is Kind.NULL:
            return _null(column, truth)
        found = compared(column, "eq" if truth else "not-eq", literal, self.zone)
        if found is None or truth:
            return found
        return _either(found, _null(column, True))

    def between(self, node: exp.Expression, truth: bool) -> Converted | None:
        if node.args.get("symmetric"):
            return None
        column = self.column(node.this)
        low, high = self.literal(node.args.get("low")), self.literal(node.args.get("high"))
        if column is None or low is None or high is None:
            return None
        above = compared(column, "gt-eq" if truth else "lt", low, self.zone) or _ANY
        below = compared(column, "lt-eq" if truth else "gt", high, self.zone) or _ANY
        return _both(above, below) if truth else _either(above, below)

    def within(self, node: exp.Expression, truth: bool) -> Converted | None:
        column = self.column(node.this)
        literals = [self.literal(value) for value in node.expressions]
        if column is None or not literals:
            return None
        known = [literal for literal in literals if literal is not None]
        return one_of(column, known, not truth, self.zone) if known == literals else None

    def is_(self, node: exp.Expression, truth: bool) -> Converted | None:
        column = self.column(node.this)
        if column is None:
            return None
        if isinstance(node.expression, exp.Null):
            return _null(column, truth)
        if not isinstance(node.expression, exp.Boolean) or column.type.type_id != TypeId.BOOLEAN:
            return None
        wanted = bool(node.expression.this)
        if truth:
            return Converted(col(column.name) == wanted, exact=True)
        return Converted(any_of(col(column.name).is_null(), col(column.name) != wanted), exact=True)

    def function(self, node: exp.Expression, truth: bool) -> Converted | None:
        """`isnull(a)` and `isnotnull(a)`, which sqlglot has no words for."""
        name, arguments = str(node.this).lower(), node.expressions
        column = self.column(arguments[0]) if len(arguments) == 1 else None
        if column is None or name not in ("isnull", "isnotnull"):
            return None
        return _null(column, truth == (name == "isnull"))

    def nan(self, node: exp.Expression, truth: bool) -> Converted | None:
        """To Spark `isnan(null)` is false, and Iceberg's `not-nan` matches a null too."""
        column = self.column(node.this)
        if column is None or column.type.type_id not in (TypeId.FLOAT, TypeId.DOUBLE):
            return None
        operand = col(column.name)
        return Converted(operand.is_nan() if truth else operand.not_nan(), exact=True)

    def like(self, node: exp.Expression, truth: bool) -> Converted | None:
        pattern = self.literal(node.expression)
        if pattern is None or pattern.kind is not Kind.STRING:
            return None
        text: str = pattern.value
        ends = [text.find(wildcard) for wildcard in "%_" if wildcard in text]
        prefix = text[: min(ends)] if ends else text
        column = self.column(node.this)
        if column is None or column.type.type_id is not TypeId.STRING:
            return None
        if not ends:
            return compared(column, "eq" if truth else "not-eq", pattern, self.zone)
        if text == f"{prefix}%":
            return _prefix(column, prefix, truth)
        found = _prefix(column, prefix, True) if truth else _null(column, False)
        return Converted(found.expression, exact=False)

    def starts_with(self, node: exp.Expression, truth: bool) -> Converted | None:
        column, prefix = self.column(node.this), self.literal(node.expression)
        if column is None or prefix is None or column.type.type_id is not TypeId.STRING:
            return None
        return _prefix(column, prefix.value, truth) if prefix.kind is Kind.STRING else None


_HANDLERS: Final[
    dict[type[exp.Expression], Callable[[_Conversion, Any, bool], Converted | None]]
] = {
    **dict.fromkeys(_COMPARISONS, _Conversion.comparison),
    exp.NullSafeEQ: _Conversion.same,
    exp.Between: _Conversion.between,
    exp.In: _Conversion.within,
    exp.Is: _Conversion.is_,
    exp.Anonymous: _Conversion.function,
    exp.IsNan: _Conversion.nan,
    exp.Like: _Conversion.like,
    exp.StartsWith: _Conversion.starts_with,
}


def _null(column: FoundColumn, truth: bool) -> Converted:
    if not column.type.is_primitive:
        return _ANY
    operand = col(column.name)
    return Converted(operand.is_null() if truth else operand.not_null(), exact=True)


def _prefix(column: FoundColumn, prefix: str, truth: bool) -> Converted:
    operand = col(column.name)
    if not prefix:
        return Converted(operand.not_null(), exact=True) if truth else _NONE
    if truth:
        return Converted(operand.starts_with(prefix), exact=True)
    return Converted(all_of(operand.not_null(), operand.not_starts_with(prefix)), exact=True)


def _constant(
    operation: str, left: Literal | None, right: Literal | None, truth: bool
) -> Converted | None:
    """`1 = 1`, as generated statements have it."""
    if left is None or right is None:
        return None
    if Kind.NULL in (left.kind, right.kind):
        return _NONE
    if left.kind not in NUMBERS or right.kind not in NUMBERS:
        return None
    one, other = Decimal(left.value), Decimal(right.value)
    result = {
        "eq": one == other,
        "not-eq": one != other,
        "lt": one < other,
        "lt-eq": one <= other,
        "gt": one > other,
        "gt-eq": one >= other,
    }[operation]
    return _ALL if result == truth else _NONE


def _both(left: Converted, right: Converted) -> Converted:
    expression = all_of(left.expression, right.expression)
    certain = any(_is_none(part) for part in (left, right)) or (left.exact and right.exact)
    return Converted(expression, certain)


def _either(left: Converted, right: Converted) -> Converted:
    expression = any_of(left.expression, right.expression)
    certain = any(_is_all(part) for part in (left, right)) or (left.exact and right.exact)
    return Converted(expression, certain)


def _is_none(part: Converted) -> bool:
    return isinstance(part.expression, AlwaysFalse)


def _is_all(part: Converted) -> bool:
    return part.exact and isinstance(part.expression, AlwaysTrue)

"""Convert SQL conditions to Iceberg expressions, which prune scans and detect conflicts.

The expression matches at least the rows for which the condition is true; a part that Iceberg cannot
express counts as true. SQL has three truth values, so each node is converted twice if needed: to
the rows where it is true and the rows where it is false. A negation only swaps the two:
`NOT (a OR b)` is true where both are false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pyspark.sql import Column
from sqlglot import exp

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.column_comparisons import Converted, compared, one_of
from frazil.spark.conditions.iceberg_filters import COMPARISONS, names_in, top_field
from frazil.spark.conditions.sql_columns import ColumnNames, FoundColumn, names_in_tree, parse
from frazil.spark.conditions.sql_constants import NUMBERS, Kind, Literal, Zone, literal_of
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import names_of
from frazil.spark.schema.spark_types import FLOATS
from frazil.values.types import StructType, TypeId
from frazil.wire.errors import BadRequest
from frazil.wire.expressions import (
    MIRRORED,
    NEGATED,
    AlwaysFalse,
    AlwaysTrue,
    Expression,
    Operation,
    all_of,
    any_of,
)
from frazil.wire.filter_builders import always_false, always_true, col
from frazil.wire.near_names import name_hint

Condition: TypeAlias = str | Column | Expression
"""SQL text, a Column, or a filter of the client."""

_UNKNOWN: Final = Converted(always_true(), exact=False)
_ALL: Final = Converted(always_true(), exact=True)
_NONE: Final = Converted(always_false(), exact=True)
_COMPARISONS: Final[dict[type[exp.Expression], Operation]] = {
    exp.EQ: Operation.EQ,
    exp.NEQ: Operation.NOT_EQ,
    exp.LT: Operation.LT,
    exp.LTE: Operation.LT_EQ,
    exp.GT: Operation.GT,
    exp.GTE: Operation.GT_EQ,
}


def convert(
    condition: str,
    schema: StructType,
    *,
    alias: str | None = None,
    case_sensitive: bool = False,
    time_zone: str = "UTC",
) -> Converted:
    """Convert the condition of a WHERE or ON to an expression on the table's columns."""
    tree = parse(condition)
    if tree is None:
        return _UNKNOWN
    names = ColumnNames(schema, alias, case_sensitive)
    return converted_tree(tree, names, Zone(time_zone), has_escapes="\\" in condition)


def converted_tree(
    tree: exp.Expression, names: ColumnNames, zone: Zone, *, has_escapes: bool
) -> Converted:
    """Convert a part of a condition that is already parsed."""
    return _Conversion(names, zone, has_escapes).rows(tree, True)


def filter_of(
    context: Context,
    table: Table,
    condition: Condition | None,
    *,
    alias: str | None = None,
    schema: StructType | None = None,
) -> Converted:
    """Return the rows that a condition reads of the table: all rows for a Column.

    `schema` is the schema of the scan, if it is not the table's current one.
    """
    if condition is None:
        return _ALL
    if isinstance(condition, Expression):
        return Converted(condition, exact=True)
    if not isinstance(condition, str):
        return _UNKNOWN
    return convert(
        condition,
        schema or table.schema,
        alias=alias,
        case_sensitive=names_of(context.spark).case_sensitive,
        time_zone=context.time_zone,
    )


def exact_filter(context: Context, table: Table, condition: Condition) -> Expression:
    """Return an expression that matches exactly the rows of a condition.

    Raise BadRequest if there is none: the catalog evaluates this expression.
    """
    converted = filter_of(context, table, condition)
    if not converted.exact:
        if isinstance(condition, str):
            _refuse_unknown_columns(table, condition, names_of(context.spark).case_sensitive)
        shown = condition if isinstance(condition, str) else "a Column"
        raise BadRequest(
            f"{table}: {shown} has no exact Iceberg expression: use comparisons of columns "
            "with constants, IN, BETWEEN, LIKE 'prefix%', IS NULL, AND, OR and NOT, as text"
        )
    return converted.expression


def _refuse_unknown_columns(table: Table, condition: str, case_sensitive: bool) -> None:
    tree = parse(condition)
    names = ColumnNames(table.schema, None, case_sensitive)
    for parts in () if tree is None else names_in_tree(tree):
        if names.find_parts(parts) is None:
            hint = name_hint(parts[-1], (field.name for field in table.schema.fields), "columns")
            raise BadRequest(f"{table}: there is no column {'.'.join(parts)} here: {hint}")


def needed_columns(
    expressions: Iterable[str | Column | Expression | None], names: ColumnNames
) -> list[str] | None:
    """Return the table columns that expressions read, in the table's order; None for all."""
    needed: set[str] = set()
    for expression in expressions:
        if expression is None:
            continue
        columns = _columns_in(expression, names)
        if columns is None:
            return None
        needed |= columns
    return [field.name for field in names.schema.fields if field.name in needed]


def _columns_in(expression: str | Column | Expression, names: ColumnNames) -> set[str] | None:
    if isinstance(expression, Expression):
        return {top_field(name, names.schema).name for name in names_in(expression)}
    tree = parse(expression) if isinstance(expression, str) else None
    if tree is None or any(tree.find_all(exp.Query, exp.Star)):
        # Only Spark knows which outer columns a subquery refers to.
        return None
    return {column for parts in names_in_tree(tree) for column in names.find_top(parts)}


@dataclass(frozen=True)
class _Conversion:
    """Converts the nodes of a condition."""

    names: ColumnNames
    zone: Zone
    has_escapes: bool
    """Whether the text has backslashes. Spark has its own escape rules, so strings are unknown."""

    def rows(self, node: exp.Expression, truth: bool) -> Converted:
        """Return the rows for which the node is true, or false if `truth` is False."""
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
        handler = _HANDLERS.get(type(node), _Conversion.boolean)
        converted = handler(self, node, truth)
        return _UNKNOWN if converted is None else converted

    def column(self, node: object) -> FoundColumn | None:
        """Return the column that a node names."""
        return self.names.find(node) if isinstance(node, exp.Expression) else None

    def literal(self, node: object) -> Literal | None:
        """Return the constant that a node is."""
        constant = literal_of(node, self.zone) if isinstance(node, exp.Expression) else None
        if constant is not None and constant.kind is Kind.STRING and self.has_escapes:
            return None
        return constant

    # --- handlers of nodes --------------------------------------------------------------------

    def boolean(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert a boolean constant or column."""
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
        """Convert `=`, `<>`, `<`, `<=`, `>` and `>=`."""
        operation = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        column, literal = self.column(left), self.literal(right)
        if column is None:
            column, literal = self.column(right), self.literal(left)
            if column is None:
                return _constant(operation, literal, self.literal(right), truth)
            operation = MIRRORED[operation]
        if literal is None:
            return None
        return compared(column, operation if truth else NEGATED[operation], literal, self.zone)

    def same(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert `<=>`, which is never null."""
        column, literal = self.column(node.this), self.literal(node.expression)
        if column is None:
            column, literal = self.column(node.expression), self.literal(node.this)
        if column is None or literal is None:
            return None
        if literal.kind is Kind.NULL:
            return _null(column, truth)
        converted = compared(column, "eq" if truth else "not-eq", literal, self.zone)
        if converted is None or truth:
            return converted
        return _either(converted, _null(column, True))

    def between(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert BETWEEN."""
        if node.args.get("symmetric"):
            return None
        column = self.column(node.this)
        low, high = self.literal(node.args.get("low")), self.literal(node.args.get("high"))
        if column is None or low is None or high is None:
            return None
        above = compared(column, "gt-eq" if truth else "lt", low, self.zone) or _UNKNOWN
        below = compared(column, "lt-eq" if truth else "gt", high, self.zone) or _UNKNOWN
        return _both(above, below) if truth else _either(above, below)

    def within(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert IN with a list of constants."""
        column = self.column(node.this)
        literals = [self.literal(value) for value in node.expressions]
        if column is None or not literals:
            return None
        known = [literal for literal in literals if literal is not None]
        return one_of(column, known, not truth, self.zone) if known == literals else None

    def is_(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert IS NULL, IS TRUE and IS FALSE."""
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
        """Convert `isnull(a)` and `isnotnull(a)`, which sqlglot has no nodes for."""
        name, arguments = str(node.this).lower(), node.expressions
        column = self.column(arguments[0]) if len(arguments) == 1 else None
        if column is None or name not in ("isnull", "isnotnull"):
            return None
        return _null(column, truth == (name == "isnull"))

    def nan(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert `isnan(a)`. It is false for null in Spark; `not-nan` matches null in Iceberg."""
        column = self.column(node.this)
        if column is None or column.type.type_id not in FLOATS:
            return None
        operand = col(column.name)
        return Converted(operand.is_nan() if truth else operand.not_nan(), exact=True)

    def like(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert LIKE to its prefix."""
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
        converted = _prefix(column, prefix, True) if truth else _null(column, False)
        return Converted(converted.expression, exact=False)

    def starts_with(self, node: exp.Expression, truth: bool) -> Converted | None:
        """Convert `startswith(a, 'prefix')`."""
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
        return _UNKNOWN
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
    """Convert a comparison of two constants, such as `1 = 1` in generated statements."""
    if left is None or right is None:
        return None
    if Kind.NULL in (left.kind, right.kind):
        return _NONE
    if left.kind not in NUMBERS or right.kind not in NUMBERS:
        return None
    result: bool = COMPARISONS[operation](Decimal(left.value), Decimal(right.value))
    return _ALL if result == truth else _NONE


def _both(left: Converted, right: Converted) -> Converted:
    expression = all_of(left.expression, right.expression)
    is_none = any(isinstance(part.expression, AlwaysFalse) for part in (left, right))
    return Converted(expression, is_none or (left.exact and right.exact))


def _either(left: Converted, right: Converted) -> Converted:
    expression = any_of(left.expression, right.expression)
    is_all = any(part.exact and isinstance(part.expression, AlwaysTrue) for part in (left, right))
    return Converted(expression, is_all or (left.exact and right.exact))

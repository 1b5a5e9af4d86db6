"""Which columns of a table a statement looks at, so that a scan need not read the others."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from sqlglot import exp

from frazil.spark.conditions.iceberg_filters import names_in, top_field
from frazil.spark.conditions.merge_conditions import names_of_tree
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.conditions.sql_conditions import parse
from frazil.wire.expressions import Expression


def needed_columns(
    expressions: Iterable[str | Column | Expression | None], names: ColumnNames
) -> list[str] | None:
    """Of the table's columns, in its order; None where it may be any of them."""
    needed: set[str] = set()
    for one in expressions:
        if one is None:
            continue
        found = _names(one, names)
        if found is None:
            return None
        needed |= found
    return [field.name for field in names.schema.fields if field.name in needed]


def _names(expression: str | Column | Expression, names: ColumnNames) -> set[str] | None:
    if isinstance(expression, Expression):
        return {top_field(name, names.schema).name for name in names_in(expression)}
    tree = parse(expression) if isinstance(expression, str) else None
    if tree is None or any(tree.find_all(exp.Query, exp.Star)):
        # What a subquery refers to outside of it is for Spark to find.
        return None
    found: set[str] = set()
    for parts in names_of_tree(tree):
        found |= names.find_top(parts)
    return found

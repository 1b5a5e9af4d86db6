"""Decides whether the result of a statement depends on nothing but the rows that it changes.

The server may then merge the deletion vectors of the statement with those of other writers. A
subquery, or a source that reads the target, may have read rows that another statement changes. If
that cannot be ruled out, the answer is no, and a concurrent change of the same file is a conflict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from sqlglot import exp

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.sql_columns import parse
from frazil.wire.expressions import Expression

_SUBQUERY_WORDS: Final = re.compile(r"\b(select|table|from)\b", re.IGNORECASE)
_READS_ANYTHING: Final = re.compile(
    r"\b(scalar-subquery|exists|list|lateral-subquery)#|\bMapIn(Arrow|Pandas)\b"
)
"""Parts of a plan that may read any table: subqueries, and functions such as our own reader."""
_OTHER_DATA: Final = frozenset({"LocalRelation", "LogicalRDD", "OneRowRelation", "Range"})
"""Leaves of plans that are no table of a catalog."""
_SCHEME: Final = re.compile(r"^[A-Za-z0-9+.-]+:/*|^/+")
_CONNECT_OTHER_DATA: Final = frozenset({"LocalRelation", "CachedLocalRelation", "Range"})


def has_subquery(expressions: Iterable[str | Column | Expression | None]) -> bool:
    """Return whether one of the expressions may have a subquery."""
    return any(map(_may_have_subquery, expressions))


def _may_have_subquery(expression: str | Column | Expression | None) -> bool:
    if expression is None or isinstance(expression, Expression):
        return False
    if isinstance(expression, str):
        tree = parse(expression)
        return tree is None or any(tree.find_all(exp.Query))
    column: Any = expression
    if hasattr(column, "_jc"):
        return _has_subquery_text(column._jc.node().toString(), "SqlExpression")
    nodes: list[Any] = []
    column._expr.foreach(nodes.append)
    texts = [f"{type(node).__name__} {node}" for node in nodes]
    return any(_has_subquery_text(text, "SQLExpression") for text in texts)


def _has_subquery_text(text: str, sql_node: str) -> bool:
    """Search the text of a Column's tree. SQL text is part of it as it was written."""
    return "SubqueryExpression" in text or (
        sql_node in text and _SUBQUERY_WORDS.search(text) is not None
    )


def reads_only_other_data(frame: DataFrame, target: Table) -> bool:
    """Return whether the plan of a frame shows that it does not read the table."""
    any_frame: Any = frame
    if not hasattr(any_frame, "_jdf"):
        return _connect_plan_reads_other_data(any_frame._plan)
    plan = any_frame._jdf.queryExecution().analyzed()
    if _READS_ANYTHING.search(plan.toString()) is not None:
        return False
    leaves = plan.collectLeaves()
    return all(_is_other_data(leaves.apply(index), target) for index in range(leaves.size()))


def _is_other_data(leaf: Any, target: Table) -> bool:
    kind = str(leaf.getClass().getSimpleName())
    if kind == "LogicalRelation":
        return _are_other_files(leaf.relation(), target)
    if kind != "DataSourceV2Relation":
        return kind in _OTHER_DATA
    table = leaf.table()
    if not str(table.getClass().getName()).startswith("org.apache.iceberg."):
        return False
    # Iceberg's runtime names a table after its catalog, whatever name that has in the session.
    return not str(table.name()).endswith(f".{target.identifier}")


def _are_other_files(relation: Any, target: Table) -> bool:
    """Return whether files lie outside the table. Our own reader may read them directly."""
    if not str(relation.getClass().getName()).endswith(".HadoopFsRelation"):
        return True
    paths = relation.location().rootPaths()
    own = _without_scheme(target.location) + "/"
    return not any(
        _without_scheme(str(paths.apply(index))).startswith(own) for index in range(paths.size())
    )


def _without_scheme(location: str) -> str:
    return _SCHEME.sub("", location).rstrip("/")


def _connect_plan_reads_other_data(plan: Any) -> bool:
    child = getattr(plan, "_child", None)
    if child is not None:
        return _connect_plan_reads_other_data(child)
    return type(plan).__name__ in _CONNECT_OTHER_DATA

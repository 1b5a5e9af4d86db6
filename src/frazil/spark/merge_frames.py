"""A MERGE as one frame of changed rows: target and source joined, each row with what becomes of it.

Every row of the join is matched, without a target row, or without a source row; the first clause
that holds for it is its action, a number. Columns then depend on that number alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from frazil.client.tables import Table
from frazil.spark.assignments import Rows, expression
from frazil.spark.changes_writer import DELETE, FILE, POSITION, WRITE
from frazil.spark.condition_columns import quoted
from frazil.spark.lineage import ROW_ID
from frazil.spark.merges import (
    STAR,
    Clause,
    Merge,
    WhenMatchedDelete,
    WhenMatchedUpdate,
    WhenNotMatchedBySourceDelete,
    WhenNotMatchedInsert,
)
from frazil.spark.types import spark_type

_SOURCE: Final = "__frazil_source"
_ACTION: Final = "__frazil_action"
_NOTHING: Final = 0
_JOINS: Final = {
    (False, False): "inner",
    (True, False): "right",
    (False, True): "left",
    (True, True): "full",
}
"""By whether rows are inserted, and whether rows without a source row change."""

Numbered: TypeAlias = tuple[int, Clause]


def merge_changes(
    table: Table,
    merge: Merge,
    target: DataFrame,
    source: DataFrame,
    *,
    case_sensitive: bool,
    lineage: bool,
) -> DataFrame:
    """In the form that `write_changes` takes.

    `target` has the table's columns, or those that the statement needs, with `_file` and `_pos`,
    and with `lineage` also `_row_id`.
    """
    joined = _joined(merge, target, source)
    clauses: list[Numbered] = list(enumerate(merge.clauses, start=1))
    acting = joined.withColumn(_ACTION, _action(merge, clauses))
    chosen = fn.col(_ACTION) != _NOTHING
    if merge.checks_cardinality:
        # A row that is matched and left alone counts as well, should it be matched twice.
        chosen = chosen | (_has_target(merge) & _has_source())
    rows = Rows(
        acting, table.schema, merge.target_alias, case_sensitive=case_sensitive, table=str(table)
    )
    written = [
        (number, _row(rows, clause, merge, source.columns))
        for number, clause in clauses
        if not isinstance(clause, WhenMatchedDelete | WhenNotMatchedBySourceDelete)
    ]
    place = [_of_target(merge, FILE), _of_target(merge, POSITION)]
    if lineage and written:
        place.append(_of_target(merge, ROW_ID))
    return acting.where(chosen).select(*_columns(table, written), *place, *_marks(clauses, written))


def _joined(merge: Merge, target: DataFrame, source: DataFrame) -> DataFrame:
    """Target left, source right; only the rows that a clause can be about."""
    right = source.withColumn(_SOURCE, fn.lit(True)).alias(merge.source_alias)
    left = target.alias(merge.target_alias)
    how = _JOINS[bool(merge.inserts), bool(merge.not_matched_by_source)]
    return left.join(right, expression(merge.on), how)


def _of_target(merge: Merge, name: str) -> Column:
    return fn.col(quoted(merge.target_alias, name))


def _has_target(merge: Merge) -> Column:
    return _of_target(merge, POSITION).isNotNull()


def _has_source() -> Column:
    return fn.col(_SOURCE).isNotNull()


def _action(merge: Merge, clauses: Sequence[Numbered]) -> Column:
    """The number of the first clause that holds."""
    found = fn.lit(_NOTHING)
    for number, clause in reversed(clauses):
        found = fn.when(_applies(merge, clause), fn.lit(number)).otherwise(found)
    return found


def _applies(merge: Merge, clause: Clause) -> Column:
    if isinstance(clause, WhenNotMatchedInsert):
        kind = ~_has_target(merge)
    elif isinstance(clause, WhenMatchedUpdate | WhenMatchedDelete):
        kind = _has_target(merge) & _has_source()
    else:
        kind = ~_has_source()
    return kind if clause.condition is None else kind & expression(clause.condition)


def _row(rows: Rows, clause: Clause, merge: Merge, source_columns: Sequence[str]) -> list[Column]:
    assert not isinstance(clause, WhenMatchedDelete | WhenNotMatchedBySourceDelete)
    if clause.assignments == STAR:
        return rows.all_from(merge.source_alias, source_columns)
    if isinstance(clause, WhenNotMatchedInsert):
        return rows.inserted(clause.assignments)
    return rows.updated(clause.assignments)


def _columns(table: Table, written: Sequence[tuple[int, list[Column]]]) -> list[Column]:
    """The table's columns as the row's action sets them."""
    if not written:
        return []
    columns = []
    for position, field in enumerate(table.schema.fields):
        value = fn.lit(None).cast(spark_type(field.type))
        for number, row in reversed(written):
            value = fn.when(fn.col(_ACTION) == number, row[position]).otherwise(value)
        columns.append(value.alias(field.name))
    return columns


def _marks(
    clauses: Sequence[Numbered], written: Sequence[tuple[int, list[Column]]]
) -> list[Column]:
    """Which rows go and which are written."""
    deletes = [number for number, clause in clauses if not isinstance(clause, WhenNotMatchedInsert)]
    marks = [_is_any(deletes).alias(DELETE)]
    if written:
        marks.append(_is_any([number for number, _ in written]).alias(WRITE))
    return marks


def _is_any(numbers: Sequence[int]) -> Column:
    tests = (fn.col(_ACTION) == number for number in numbers)
    return reduce(lambda one, other: one | other, tests, fn.lit(False))

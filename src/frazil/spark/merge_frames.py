"""A MERGE as one frame of changed rows: target and source joined, each row with what becomes of it.

Every row of the join is matched, without a target row, or without a source row; the first clause
that holds for it is its action, a number. Columns then depend on that number alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
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
from frazil.spark.side_names import of_side
from frazil.spark.types import spark_type

SOURCE_ROW: Final = "__frazil_source"
"""Numbers the rows of a source; null where a row of a join has no source row."""
_ACTION: Final = "__frazil_action"
_MATCHED: Final = "__frazil_matched"
"""In a stored match, the number of its source row."""
_NOTHING: Final = 0
_JOINS: Final = {
    (False, False): "inner",
    (True, False): "right",
    (False, True): "left",
    (True, True): "full",
}
"""By whether rows are inserted, and whether rows without a source row change."""

Numbered: TypeAlias = tuple[int, Clause]


def numbered_source(source: DataFrame) -> DataFrame:
    """The source with a number in each row, for `merge_changes`; it has to be stored to keep it."""
    return source.withColumn(SOURCE_ROW, fn.monotonically_increasing_id())


def source_columns(source: DataFrame) -> tuple[str, ...]:
    """The columns that a statement can name."""
    return tuple(name for name in source.columns if name != SOURCE_ROW)


@dataclass(frozen=True)
class MergeFrames:
    """`target` has the columns that the statement needs, with `_file` and `_pos`, and with
    `lineage` also `_row_id`. `source` is numbered. Frames of changes are in the form that
    `write_changes` takes."""

    table: Table
    merge: Merge
    target: DataFrame
    source: DataFrame
    case_sensitive: bool
    lineage: bool
    is_small_source: bool = False
    """It is sent to where the target's rows are, which then need not be brought together."""

    @property
    def matches_first(self) -> bool:
        """Whether to go by `matches` and `changes_of`, and not by `changes`.

        An outer join would need all rows of the target that have one key in one place. Those that
        match are few instead, and of source rows without a match the numbers tell.
        """
        merge = self.merge
        return self.is_small_source and bool(merge.inserts) and not merge.not_matched_by_source

    def changes(self) -> DataFrame:
        """All rows out of one join."""
        merge = self.merge
        how = _JOINS[bool(merge.inserts), bool(merge.not_matched_by_source)]
        rows = self._target().join(self._sent(), expression(merge.on), how)
        return self._changes(rows)

    def matches(self) -> DataFrame:
        """The target's rows that match, each with the number of its source row; to be stored."""
        merge = self.merge
        found = self._target().join(self._sent(), expression(merge.on), "inner")
        number = fn.col(quoted(merge.source_alias, SOURCE_ROW)).alias(_MATCHED)
        return found.select(*(_of_target(merge, name) for name in self.target.columns), number)

    def changes_of(self, matches: DataFrame) -> DataFrame:
        """What becomes of every row of the source and of the target's rows that match it."""
        merge = self.merge
        number = fn.col(quoted(merge.source_alias, SOURCE_ROW))
        found = matches.alias(merge.target_alias)
        source = self.source.alias(merge.source_alias)
        return self._changes(source.join(found, number == _of_target(merge, _MATCHED), "left"))

    def _target(self) -> DataFrame:
        return self.target.alias(self.merge.target_alias)

    def _sent(self) -> DataFrame:
        """The source, to every executor if it is small; an outer join that must keep its rows
        takes no notice."""
        source = self.source.alias(self.merge.source_alias)
        return source.hint("broadcast") if self.is_small_source else source

    def _changes(self, rows: DataFrame) -> DataFrame:
        """What becomes of the rows of a join of target and source."""
        merge = self.merge
        numbered = list(enumerate(map(self._resolved, merge.clauses), start=1))
        acting = rows.withColumn(_ACTION, _action(merge, numbered))
        chosen = fn.col(_ACTION) != _NOTHING
        if merge.checks_cardinality:
            # A row that is matched and left alone counts as well, should it be matched twice.
            chosen = chosen | (_has_target(merge) & _has_source())
        made = Rows(
            acting,
            self.table.schema,
            merge.target_alias,
            case_sensitive=self.case_sensitive,
            table=str(self.table),
        )
        written = [
            (number, _row(made, clause, merge, source_columns(self.source)))
            for number, clause in numbered
            if not isinstance(clause, WhenMatchedDelete | WhenNotMatchedBySourceDelete)
        ]
        place = [_of_target(merge, FILE), _of_target(merge, POSITION)]
        if self.lineage and written:
            place.append(_of_target(merge, ROW_ID))
        columns = _columns(self.table, written)
        return acting.where(chosen).select(*columns, *place, *_marks(numbered, written))

    def _resolved(self, clause: Clause) -> Clause:
        """Its names with the alias of the only side that it sees, if it is one."""
        if isinstance(clause, WhenMatchedUpdate | WhenMatchedDelete):
            return clause
        inserts = isinstance(clause, WhenNotMatchedInsert)
        alias = self.merge.source_alias if inserts else self.merge.target_alias
        columns = source_columns(self.source) if inserts else self.target.columns
        name = partial(of_side, alias=alias, columns=columns, case_sensitive=self.case_sensitive)
        condition = None if clause.condition is None else name(clause.condition)
        if isinstance(clause, WhenNotMatchedBySourceDelete) or clause.assignments == STAR:
            return replace(clause, condition=condition)
        values = {column: name(value) for column, value in clause.assignments.items()}
        return replace(clause, condition=condition, assignments=values)


def _of_target(merge: Merge, name: str) -> Column:
    return fn.col(quoted(merge.target_alias, name))


def _has_target(merge: Merge) -> Column:
    return _of_target(merge, POSITION).isNotNull()


def _has_source() -> Column:
    return fn.col(SOURCE_ROW).isNotNull()


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

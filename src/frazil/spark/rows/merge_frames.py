"""A MERGE as one frame of changed rows: target and source joined, each row with what becomes of it.

Every row of the join is matched, without a target row, or without a source row; the first clause
that holds for it is its action, a number. Columns then depend on that number alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import NullType, StructType

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.metadata_columns import LAST_UPDATED, ROW_ID
from frazil.datafiles.writing.changes_writer import DELETE, FILE, POSITION, WRITE
from frazil.spark.conditions.sql_columns import ColumnNames, qualified
from frazil.spark.conditions.sql_conditions import needed_columns
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.rows.assigned_columns import Rows, expression
from frazil.spark.rows.merge_clauses import (
    STAR,
    Clause,
    Merge,
    WhenMatchedDelete,
    WhenMatchedUpdate,
    WhenNotMatchedBySourceDelete,
    WhenNotMatchedInsert,
)
from frazil.spark.rows.path_codes import FileCodes
from frazil.spark.schema.spark_types import spark_type

SOURCE_ROW: Final = "__frazil_source"
"""Numbers the rows of a source; null where a row of a join has no source row."""
_ACTION: Final = "__frazil_action"
MATCHED: Final = "__frazil_matched"
"""In a stored match, the number of its source row."""
CHOSEN: Final = "__frazil_chosen"
"""In a stored match, its action."""
_NOTHING: Final = 0
_JOINS: Final = {
    (False, False): "inner",
    (True, False): "right",
    (False, True): "left",
    (True, True): "full",
}
"""By whether rows are inserted, and whether rows without a source row change."""

Numbered: TypeAlias = tuple[int, Clause]


class WrittenRow(NamedTuple):
    numbers: tuple[int, ...]
    """Of the clauses that write it."""
    columns: list[Column]


def numbered_source(source: DataFrame) -> DataFrame:
    """The source with a number in each row, for `merge_changes`; it has to be stored to keep it."""
    return source.withColumn(SOURCE_ROW, fn.monotonically_increasing_id())


def source_columns(source: DataFrame) -> tuple[str, ...]:
    """The columns that a statement can name."""
    return tuple(name for name in source.columns if name != SOURCE_ROW)


def source_schema(source: DataFrame) -> StructType:
    """The same, with their types."""
    return StructType([field for field in source.schema.fields if field.name != SOURCE_ROW])


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
        """Whether to go by `matches` and `written`, and not by `changes`.

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

    def matches(self, codes: FileCodes) -> DataFrame:
        """The target's rows that match, each with the number of its source row and of what becomes
        of it; to be stored, so that all who ask get the same answer. Files are in codes."""
        merge = self.merge
        found = self._target().join(self._sent(), expression(merge.on), "inner")
        number = fn.col(quoted(merge.source_alias, SOURCE_ROW)).alias(MATCHED)
        columns = [
            codes.code(_of_target(merge, name)).alias(FILE)
            if name == FILE
            else _of_target(merge, name)
            for name in self._stored()
        ]
        chosen = _action(merge, self._numbered(inserts=False))
        deletes = (chosen != _NOTHING).alias(DELETE)
        return found.select(*columns, number, chosen.alias(CHOSEN), deletes)

    def _stored(self) -> list[str]:
        """Of the target's columns those that written rows are made of, and the metadata columns."""
        names = ColumnNames(self.table.schema, self.merge.target_alias, self.case_sensitive)
        kept = needed_columns(self.merge.kept_of_matches(names), names)
        own = {field.name for field in self.table.schema.fields}
        return [
            name for name in self.target.columns if kept is None or name in kept or name not in own
        ]

    def written(self, matches: DataFrame) -> DataFrame:
        """The rows to be written, of the source and of stored matches: with the table's columns
        and, with `lineage`, those that tell a row's history."""
        merge = self.merge
        number = fn.col(quoted(merge.source_alias, SOURCE_ROW))
        found = matches.alias(merge.target_alias)
        source = self.source.alias(merge.source_alias)
        rows = source.join(found, number == _of_target(merge, MATCHED), "left")
        inserts = _action(merge, self._numbered(inserts=True))
        acting = rows.withColumn(_ACTION, fn.coalesce(_of_target(merge, CHOSEN), inserts))
        rows_of = self._written_rows(acting, self._numbered())
        lineage: list[Column] = []
        if self.lineage:
            updated = fn.lit(None).cast("bigint").alias(LAST_UPDATED)
            lineage = [_of_target(merge, ROW_ID), updated]
        written = acting.where(_is_any([number for one in rows_of for number in one.numbers]))
        columns = _columns(self.table, rows_of, all_written=True)
        return written.select(*columns, *lineage)

    def upserted_columns(self) -> list[str] | None:
        """The source's columns that all written rows are made of, in the order and the types of
        the table's; None where rows are made in any other way.

        Whether matched rows are updated, stored matches tell.
        """
        merge = self.merge
        inserts_all = [one.assignments == STAR and one.condition is None for one in merge.inserts]
        updates = [one for one in merge.matched if isinstance(one, WhenMatchedUpdate)]
        if inserts_all != [True] or not all(one.assignments == STAR for one in updates):
            return None
        names = NameMatcher(self.case_sensitive)
        found = {names.key(one.name): one for one in self.source.schema.fields}
        if len(found) < len(self.source.columns):
            # Which of two is meant, Spark has to tell.
            return None
        columns = []
        for field in self.table.schema.fields:
            column = found.get(names.key(field.name))
            if column is None or column.dataType != spark_type(field.type):
                return None
            if isinstance(column.dataType, NullType):
                return None
            columns.append(column.name)
        return columns

    @property
    def update_numbers(self) -> list[int]:
        """What a match that is updated has as its choice."""
        clauses = enumerate(self.merge.clauses, start=1)
        return [number for number, one in clauses if isinstance(one, WhenMatchedUpdate)]

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
        numbered = self._numbered()
        acting = rows.withColumn(_ACTION, _action(merge, numbered))
        chosen = fn.col(_ACTION) != _NOTHING
        if merge.checks_cardinality:
            # A row that is matched and left alone counts as well, should it be matched twice.
            chosen = chosen | (_has_target(merge) & _has_source())
        written = self._written_rows(acting, numbered)
        place = [_of_target(merge, FILE), _of_target(merge, POSITION)]
        if self.lineage and written:
            place.append(_of_target(merge, ROW_ID))
        columns = _columns(self.table, written)
        return acting.where(chosen).select(*columns, *place, *_marks(numbered, written))

    def _numbered(self, *, inserts: bool | None = None) -> list[Numbered]:
        """The clauses with their numbers: all of them, those that insert, or the others."""
        return [
            (number, self._resolved(clause))
            for number, clause in enumerate(self.merge.clauses, start=1)
            if inserts is None or isinstance(clause, WhenNotMatchedInsert) == inserts
        ]

    def _written_rows(self, acting: DataFrame, numbered: Sequence[Numbered]) -> list[WrittenRow]:
        """What is written by the clauses that write."""
        made = Rows(
            acting,
            self.table.schema,
            self.merge.target_alias,
            case_sensitive=self.case_sensitive,
            table=str(self.table),
        )
        rows, star = [], []
        for number, clause in numbered:
            if isinstance(clause, WhenMatchedDelete | WhenNotMatchedBySourceDelete):
                continue
            if clause.assignments == STAR:
                star.append(number)
            elif isinstance(clause, WhenNotMatchedInsert):
                rows.append(WrittenRow((number,), made.inserted(clause.assignments)))
            else:
                rows.append(WrittenRow((number,), made.updated(clause.assignments)))
        if star:
            whole = made.all_from(self.merge.source_alias, source_columns(self.source))
            rows.append(WrittenRow(tuple(star), whole))
        return rows

    def _resolved(self, clause: Clause) -> Clause:
        """Its names with the alias of the only side that it sees, if it is one."""
        if isinstance(clause, WhenMatchedUpdate | WhenMatchedDelete):
            return clause
        inserts = isinstance(clause, WhenNotMatchedInsert)
        alias = self.merge.source_alias if inserts else self.merge.target_alias
        columns = source_columns(self.source) if inserts else self.target.columns
        name = partial(qualified, alias=alias, columns=columns, case_sensitive=self.case_sensitive)
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


def _columns(
    table: Table, written: Sequence[WrittenRow], *, all_written: bool = False
) -> list[Column]:
    """The table's columns as the row's action sets them; of rows that are not written nothing is
    evaluated."""
    if not written:
        return []
    if all_written and len(written) == 1:
        named = zip(written[0].columns, table.schema.fields, strict=True)
        return [column.alias(field.name) for column, field in named]
    columns = []
    for position, field in enumerate(table.schema.fields):
        value = fn.lit(None).cast(spark_type(field.type))
        for row in written:
            value = fn.when(_is_any(row.numbers), row.columns[position]).otherwise(value)
        columns.append(value.alias(field.name))
    return columns


def _marks(clauses: Sequence[Numbered], written: Sequence[WrittenRow]) -> list[Column]:
    """Which rows go and which are written."""
    deletes = [number for number, clause in clauses if not isinstance(clause, WhenNotMatchedInsert)]
    marks = [_is_any(deletes).alias(DELETE)]
    if written:
        marks.append(_is_any([each for row in written for each in row.numbers]).alias(WRITE))
    return marks


def _is_any(numbers: Sequence[int]) -> Column:
    tests = (fn.col(_ACTION) == number for number in numbers)
    return reduce(lambda one, other: one | other, tests, fn.lit(False))

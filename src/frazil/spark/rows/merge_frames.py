"""Builds a MERGE's frame of changed rows: target and source joined, each row with its action.

Each row of the join is matched, has no target row, or has no source row. The first clause that
applies is its action, a number. All columns of the result depend on that number alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import NullType, StructType

from frazil.client.declare.client_table import Table
from frazil.datafiles.arrow.metadata_columns import FILE, LAST_UPDATED, POSITION, ROW_ID
from frazil.datafiles.writing.changes_writer import DELETE, WRITE
from frazil.spark.conditions.sql_columns import ColumnNames, qualified
from frazil.spark.conditions.sql_conditions import needed_columns
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.parse.parsed_statements import BY_SOURCE, MATCHED, NOT_MATCHED
from frazil.spark.rows.assigned_columns import Rows, expression
from frazil.spark.rows.changed_rows import FileCodes
from frazil.spark.rows.merge_clauses import STAR, Clause, Merge
from frazil.spark.schema.spark_types import spark_type

SOURCE_ROW: Final = "__frazil_source"
"""The number of a source row; null in a row of a join that has no source row."""
_ACTION: Final = "__frazil_action"
MATCHED_ROW: Final = "__frazil_matched"
"""The number of the source row, in a stored match."""
CHOSEN: Final = "__frazil_chosen"
"""The number of the chosen clause, in a stored match."""
_NO_ACTION: Final = 0
_JOINS: Final = {
    (False, False): "inner",
    (True, False): "right",
    (False, True): "left",
    (True, True): "full",
}
"""The kind of join, by whether there are inserts, and clauses for rows not matched by source."""

Numbered: TypeAlias = tuple[int, Clause]


class WrittenRow(NamedTuple):
    numbers: tuple[int, ...]
    """Numbers of the clauses that write the row."""
    columns: list[Column]


def numbered_source(source: DataFrame) -> DataFrame:
    """Return the source with a number in each row; it must be stored to keep the numbers."""
    return source.withColumn(SOURCE_ROW, fn.monotonically_increasing_id())


def source_columns(source: DataFrame) -> tuple[str, ...]:
    """Return the columns that a statement can name."""
    return tuple(name for name in source.columns if name != SOURCE_ROW)


def source_schema(source: DataFrame) -> StructType:
    """Return the same columns with their types."""
    return StructType([field for field in source.schema.fields if field.name != SOURCE_ROW])


@dataclass(frozen=True)
class MergeFrames:
    """The frames of one MERGE.

    `target` has the columns that the statement needs, with `_file` and `_pos`, and with `lineage`
    also `_row_id`. `source` is numbered. Frames of changes have the form that `write_changes`
    takes.
    """

    table: Table
    merge: Merge
    target: DataFrame
    source: DataFrame
    case_sensitive: bool
    lineage: bool
    is_small_source: bool = False
    """The source is sent to the target's rows, which then need no shuffle."""

    @property
    def matches_first(self) -> bool:
        """Whether to use `matches` and `written` instead of `changes`.

        An outer join needs all target rows of one key in one task. The matches of a small source
        are few, and the source rows without a match follow from their numbers.
        """
        kinds = {clause.kind for clause in self.merge.clauses}
        return self.is_small_source and NOT_MATCHED in kinds and BY_SOURCE not in kinds

    def changes(self) -> DataFrame:
        """Return all changed rows, from one join."""
        merge = self.merge
        how = _JOINS[bool(merge.of(NOT_MATCHED)), bool(merge.of(BY_SOURCE))]
        return self._changes(self._target().join(self._sent(), expression(merge.on), how))

    def matches(self, codes: FileCodes) -> DataFrame:
        """Return the target's rows that match, with their source row's number and their action.

        They must be stored, so that everyone who reads them sees the same matches. Files are given
        as codes.
        """
        merge = self.merge
        rows = self._target().join(self._sent(), expression(merge.on), "inner")
        number = fn.col(quoted(merge.source_alias, SOURCE_ROW)).alias(MATCHED_ROW)
        columns = [
            codes.code(_of_target(merge, name)).alias(FILE)
            if name == FILE
            else _of_target(merge, name)
            for name in self._stored_columns()
        ]
        chosen = _action(merge, self._numbered(inserts=False))
        deletes = (chosen != _NO_ACTION).alias(DELETE)
        return rows.select(*columns, number, chosen.alias(CHOSEN), deletes)

    def _stored_columns(self) -> list[str]:
        """Return the target's columns that written rows are made of, and the metadata columns."""
        names = ColumnNames(self.table.schema, self.merge.target_alias, self.case_sensitive)
        needed = needed_columns(self.merge.written_values(names), names)
        own = {field.name for field in self.table.schema.fields}
        return [
            name
            for name in self.target.columns
            if needed is None or name in needed or name not in own
        ]

    def written(self, matches: DataFrame) -> DataFrame:
        """Return the rows to write, made from the source and the stored matches.

        They have the table's columns and, with `lineage`, the lineage columns.
        """
        merge = self.merge
        number = fn.col(quoted(merge.source_alias, SOURCE_ROW))
        stored = matches.alias(merge.target_alias)
        source = self.source.alias(merge.source_alias)
        rows = source.join(stored, number == _of_target(merge, MATCHED_ROW), "left")
        inserts = _action(merge, self._numbered(inserts=True))
        acting = rows.withColumn(_ACTION, fn.coalesce(_of_target(merge, CHOSEN), inserts))
        written = self._written_rows(acting, self._numbered())
        lineage: list[Column] = []
        if self.lineage:
            updated = fn.lit(None).cast("bigint").alias(LAST_UPDATED)
            lineage = [_of_target(merge, ROW_ID), updated]
        kept = acting.where(_is_any([number for row in written for number in row.numbers]))
        return kept.select(*_columns(self.table, written, all_written=True), *lineage)

    def upserted_columns(self) -> list[str] | None:
        """Return the source's columns that are the written rows, in the order of the table's.

        None where rows are made in another way than by taking over whole source rows, or where a
        type differs. Which matched rows are updated is stored with the matches.
        """
        merge = self.merge
        inserts_all = [
            clause.assignments == STAR and clause.condition is None
            for clause in merge.of(NOT_MATCHED)
        ]
        updates_all = all(
            clause.deletes or clause.assignments == STAR for clause in merge.of(MATCHED)
        )
        if inserts_all != [True] or not updates_all:
            return None
        names = NameMatcher(self.case_sensitive)
        by_key = {names.key(field.name): field for field in self.source.schema.fields}
        if len(by_key) < len(self.source.columns):
            # Two columns have one name: Spark has to resolve it, or to refuse it.
            return None
        columns = []
        for field in self.table.schema.fields:
            column = by_key.get(names.key(field.name))
            if column is None or column.dataType != spark_type(field.type):
                return None
            if isinstance(column.dataType, NullType):
                return None
            columns.append(column.name)
        return columns

    @property
    def update_numbers(self) -> list[int]:
        """The numbers of the clauses that update a match."""
        return [
            number
            for number, clause in enumerate(self.merge.clauses, start=1)
            if clause.kind == MATCHED and not clause.deletes
        ]

    def _target(self) -> DataFrame:
        return self.target.alias(self.merge.target_alias)

    def _sent(self) -> DataFrame:
        """Return the source, with a broadcast hint if it is small.

        An outer join that must keep the source's rows ignores the hint.
        """
        source = self.source.alias(self.merge.source_alias)
        return source.hint("broadcast") if self.is_small_source else source

    def _changes(self, rows: DataFrame) -> DataFrame:
        """Return the changes for the rows of a join of target and source."""
        merge = self.merge
        numbered = self._numbered()
        acting = rows.withColumn(_ACTION, _action(merge, numbered))
        is_needed = fn.col(_ACTION) != _NO_ACTION
        if merge.checks_cardinality:
            # A match without an action counts too: a second match of its row is an error.
            is_needed = is_needed | (_has_target(merge) & _has_source())
        written = self._written_rows(acting, numbered)
        location = [_of_target(merge, FILE), _of_target(merge, POSITION)]
        if self.lineage and written:
            location.append(_of_target(merge, ROW_ID))
        columns = _columns(self.table, written)
        return acting.where(is_needed).select(*columns, *location, *_marks(numbered, written))

    def _numbered(self, *, inserts: bool | None = None) -> list[Numbered]:
        """Return the clauses with their numbers: all, only inserts, or all others."""
        return [
            (number, self._resolved(clause))
            for number, clause in enumerate(self.merge.clauses, start=1)
            if inserts is None or (clause.kind == NOT_MATCHED) == inserts
        ]

    def _written_rows(self, acting: DataFrame, numbered: Sequence[Numbered]) -> list[WrittenRow]:
        """Return the rows of the clauses that write."""
        assigned = Rows(
            acting,
            self.table.schema,
            self.merge.target_alias,
            case_sensitive=self.case_sensitive,
            table=str(self.table),
        )
        rows, stars = [], []
        for number, clause in numbered:
            if clause.assignments == STAR:
                stars.append(number)
            elif isinstance(clause.assignments, Mapping):
                inserts = clause.kind == NOT_MATCHED
                columns = (assigned.inserted if inserts else assigned.updated)(clause.assignments)
                rows.append(WrittenRow((number,), columns))
        if stars:
            columns = assigned.all_from(self.merge.source_alias, source_columns(self.source))
            rows.append(WrittenRow(tuple(stars), columns))
        return rows

    def _resolved(self, clause: Clause) -> Clause:
        """Return the clause with aliases before its names, if it sees one side only."""
        if clause.kind == MATCHED:
            return clause
        inserts = clause.kind == NOT_MATCHED
        alias = self.merge.source_alias if inserts else self.merge.target_alias
        columns = source_columns(self.source) if inserts else self.target.columns
        name = partial(qualified, alias=alias, columns=columns, case_sensitive=self.case_sensitive)
        condition = None if clause.condition is None else name(clause.condition)
        values = clause.assignments
        if isinstance(values, Mapping):
            values = {column: name(value) for column, value in values.items()}
        return replace(clause, condition=condition, assignments=values)


def _of_target(merge: Merge, name: str) -> Column:
    return fn.col(quoted(merge.target_alias, name))


def _has_target(merge: Merge) -> Column:
    return _of_target(merge, POSITION).isNotNull()


def _has_source() -> Column:
    return fn.col(SOURCE_ROW).isNotNull()


def _action(merge: Merge, clauses: Sequence[Numbered]) -> Column:
    """Return the number of the first clause that applies."""
    action = fn.lit(_NO_ACTION)
    for number, clause in reversed(clauses):
        action = fn.when(_applies(merge, clause), fn.lit(number)).otherwise(action)
    return action


def _applies(merge: Merge, clause: Clause) -> Column:
    if clause.kind == NOT_MATCHED:
        kind = ~_has_target(merge)
    elif clause.kind == MATCHED:
        kind = _has_target(merge) & _has_source()
    else:
        kind = ~_has_source()
    return kind if clause.condition is None else kind & expression(clause.condition)


def _columns(
    table: Table, written: Sequence[WrittenRow], *, all_written: bool = False
) -> list[Column]:
    """Return the table's columns as each row's action sets them.

    Nothing is evaluated for rows that are not written.
    """
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
    """Return the columns that say which rows are deleted and which are written."""
    deletes = [number for number, clause in clauses if clause.kind != NOT_MATCHED]
    marks = [_is_any(deletes).alias(DELETE)]
    if written:
        marks.append(_is_any([number for row in written for number in row.numbers]).alias(WRITE))
    return marks


def _is_any(numbers: Sequence[int]) -> Column:
    tests = (fn.col(_ACTION) == number for number in numbers)
    return reduce(lambda left, right: left | right, tests, fn.lit(False))

"""MERGE as values: its clauses, and the builder that a user puts it together with.

    table.merge(changes, "target.id = source.id")
        .when_matched_delete("source.is_gone")
        .when_matched_update({"item": "source.item"})
        .when_not_matched_insert_all()
        .execute()

Clauses are tried in the order in which they were added; the first that holds decides. Columns are
named by the aliases of target and source, or alone where only one of the two has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import Column, DataFrame

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.core.context import Context
from frazil.spark.core.name_matching import quoted
from frazil.spark.core.targets import Target
from frazil.wire.errors import BadRequest

if TYPE_CHECKING:
    from frazil.spark.core.results import Result

Value: TypeAlias = str | Column
"""An expression, as SQL or as a Column."""
Assignments: TypeAlias = Mapping[str, Value]
"""Expressions by the columns that they are stored in; `point.x` is a field of a struct."""
Star: TypeAlias = Literal["*"]
STAR: Final[Star] = "*"
"""Every column of the target, from the source's column of that name."""
Source: TypeAlias = "DataFrame | str | Callable[[Table], DataFrame]"
"""A frame, the name of a view or table of Spark's, or what makes a frame for the table as one
attempt has loaded it: a source that reads the target must read the snapshot of that attempt."""


@dataclass(frozen=True)
class WhenMatchedUpdate:
    assignments: Assignments | Star
    condition: Value | None = None


@dataclass(frozen=True)
class WhenMatchedDelete:
    condition: Value | None = None


@dataclass(frozen=True)
class WhenNotMatchedInsert:
    assignments: Assignments | Star
    condition: Value | None = None


@dataclass(frozen=True)
class WhenNotMatchedBySourceUpdate:
    assignments: Assignments
    condition: Value | None = None


@dataclass(frozen=True)
class WhenNotMatchedBySourceDelete:
    condition: Value | None = None


Matched: TypeAlias = WhenMatchedUpdate | WhenMatchedDelete
NotMatchedBySource: TypeAlias = WhenNotMatchedBySourceUpdate | WhenNotMatchedBySourceDelete
Clause: TypeAlias = Matched | WhenNotMatchedInsert | NotMatchedBySource


def kept_columns(assignments: Assignments, names: ColumnNames) -> Iterator[str]:
    """The columns that an update needs the old values of."""
    whole = {names.key(name) for name in assignments}
    for field in names.schema.fields:
        plain = quoted(field.name)
        if not {names.key(field.name), names.key(plain)} & whole:
            yield plain


def _assigned(clause: Clause, names: ColumnNames) -> Iterator[Value]:
    """What a written row is made of, as far as it may be of the target row."""
    if isinstance(clause, WhenMatchedDelete | WhenNotMatchedBySourceDelete):
        return
    if not isinstance(clause.assignments, str):
        yield from clause.assignments.values()
        if not isinstance(clause, WhenNotMatchedInsert):
            yield from kept_columns(clause.assignments, names)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a MERGE says, whatever it is held against."""

    on: Value
    clauses: tuple[Clause, ...] = ()
    target_alias: str = "target"
    source_alias: str = "source"
    evolves: bool = False
    """Columns of the source that the table lacks are added to it."""

    @property
    def matched(self) -> tuple[Matched, ...]:
        return tuple(one for one in self.clauses if isinstance(one, Matched))

    @property
    def inserts(self) -> tuple[WhenNotMatchedInsert, ...]:
        return tuple(one for one in self.clauses if isinstance(one, WhenNotMatchedInsert))

    @property
    def not_matched_by_source(self) -> tuple[NotMatchedBySource, ...]:
        return tuple(one for one in self.clauses if isinstance(one, NotMatchedBySource))

    @property
    def checks_cardinality(self) -> bool:
        """Whether a target row that two source rows match is an error, as in Spark: a row that can
        only be deleted is deleted once, however often it is matched."""
        first, *others = self.matched or (None,)
        if first is None:
            return False
        return bool(others) or isinstance(first, WhenMatchedUpdate) or first.condition is not None

    def expressions(self, names: ColumnNames) -> Iterator[Value]:
        """All that may look at a target row, with the names of columns that an update keeps."""
        yield self.on
        for clause in self.clauses:
            if clause.condition is not None:
                yield clause.condition
            yield from _assigned(clause, names)

    def kept_of_matches(self, names: ColumnNames) -> Iterator[Value]:
        """The part of that which is still asked for once it is known what becomes of a match."""
        for clause in self.matched:
            yield from _assigned(clause, names)

    def check(self) -> None:
        """As Spark: only the last clause of a kind may be without a condition."""
        if not self.clauses:
            raise BadRequest("MERGE: add a WHEN clause")
        if self.target_alias.lower() == self.source_alias.lower():
            raise BadRequest(f"MERGE: target and source are both called {self.target_alias}")
        kinds: tuple[tuple[str, tuple[Clause, ...]], ...] = (
            ("MATCHED", self.matched),
            ("NOT MATCHED", self.inserts),
            ("NOT MATCHED BY SOURCE", self.not_matched_by_source),
        )
        for name, clauses in kinds:
            if any(clause.condition is None for clause in clauses[:-1]):
                raise BadRequest(f"MERGE: only the last WHEN {name} may be without a condition")


@dataclass(frozen=True)
class MergeBuilder:
    """Each method gives a new builder with one clause more."""

    context: Context
    target: Target
    source: Source
    on: Value
    target_alias: str = "target"
    source_alias: str = "source"
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False

    def with_schema_evolution(self) -> MergeBuilder:
        """Adds columns that only the source has, and widens types, in the same commit."""
        return replace(self, evolves=True)

    def when(self, clause: Clause) -> MergeBuilder:
        return replace(self, clauses=(*self.clauses, clause))

    def when_matched_update(self, set: Assignments, condition: Value | None = None) -> MergeBuilder:
        return self.when(WhenMatchedUpdate(dict(set), condition))

    def when_matched_update_all(self, condition: Value | None = None) -> MergeBuilder:
        """Sets every column to the source's of that name, as UPDATE SET * does."""
        return self.when(WhenMatchedUpdate(STAR, condition))

    def when_matched_delete(self, condition: Value | None = None) -> MergeBuilder:
        return self.when(WhenMatchedDelete(condition))

    def when_not_matched_insert(
        self, values: Assignments, condition: Value | None = None
    ) -> MergeBuilder:
        """Columns that are not named get their default, or null."""
        return self.when(WhenNotMatchedInsert(dict(values), condition))

    def when_not_matched_insert_all(self, condition: Value | None = None) -> MergeBuilder:
        return self.when(WhenNotMatchedInsert(STAR, condition))

    def when_not_matched_by_source_update(
        self, set: Assignments, condition: Value | None = None
    ) -> MergeBuilder:
        return self.when(WhenNotMatchedBySourceUpdate(dict(set), condition))

    def when_not_matched_by_source_delete(self, condition: Value | None = None) -> MergeBuilder:
        return self.when(WhenNotMatchedBySourceDelete(condition))

    def statement(self) -> Merge:
        return Merge(
            on=self.on,
            clauses=self.clauses,
            target_alias=self.target_alias,
            source_alias=self.source_alias,
            evolves=self.evolves,
        )

    def execute(self, **options: Any) -> Result:
        """Runs it; the options are those of `row_changes.merge`."""
        from frazil.spark.rows import row_changes

        return row_changes.merge(
            self.context, self.target, self.source, self.statement(), **options
        )

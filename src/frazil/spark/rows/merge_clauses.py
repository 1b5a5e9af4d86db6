"""A MERGE as values: its ON condition and its clauses, before it meets a table.

Clauses are tried in the order in which they were added; the first one whose condition is true
decides. Columns are named by the aliases of target and source, or alone where only one of the two
has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.core.name_matching import quoted
from frazil.spark.rows.assigned_columns import Assignments, Value
from frazil.wire.errors import BadRequest

Star: TypeAlias = Literal["*"]
STAR: Final[Star] = "*"
"""Sets every column of the target from the source's column of that name."""


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


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a MERGE is asked to do, independent of the table's state."""

    on: Value
    clauses: tuple[Clause, ...] = ()
    target_alias: str = "target"
    source_alias: str = "source"
    evolves: bool = False
    """Whether columns that only the source has are added to the table."""

    @property
    def matched(self) -> tuple[Matched, ...]:
        return tuple(clause for clause in self.clauses if isinstance(clause, Matched))

    @property
    def inserts(self) -> tuple[WhenNotMatchedInsert, ...]:
        return tuple(clause for clause in self.clauses if isinstance(clause, WhenNotMatchedInsert))

    @property
    def not_matched_by_source(self) -> tuple[NotMatchedBySource, ...]:
        return tuple(clause for clause in self.clauses if isinstance(clause, NotMatchedBySource))

    @property
    def checks_cardinality(self) -> bool:
        """Whether a target row that two source rows match is an error, as in Spark.

        It is not if rows can only be deleted: a row is deleted once, however often it matches.
        """
        first, *others = self.matched or (None,)
        if first is None:
            return False
        return bool(others) or isinstance(first, WhenMatchedUpdate) or first.condition is not None

    def expressions(self, names: ColumnNames) -> Iterator[Value]:
        """Yield everything that may read a target row, with the columns that an update keeps."""
        yield self.on
        for clause in self.clauses:
            if clause.condition is not None:
                yield clause.condition
            yield from _written_values(clause, names)

    def written_values(self, names: ColumnNames) -> Iterator[Value]:
        """Yield what the rows are made of that matches are updated to."""
        for clause in self.matched:
            yield from _written_values(clause, names)

    def check(self) -> None:
        """Refuse what Spark refuses: only the last clause of a kind may have no condition."""
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


def _written_values(clause: Clause, names: ColumnNames) -> Iterator[Value]:
    if isinstance(clause, WhenMatchedDelete | WhenNotMatchedBySourceDelete):
        return
    if not isinstance(clause.assignments, str):
        yield from clause.assignments.values()
        if not isinstance(clause, WhenNotMatchedInsert):
            yield from kept_columns(clause.assignments, names)


def kept_columns(assignments: Assignments, names: ColumnNames) -> Iterator[str]:
    """Yield the columns whose old values an update needs."""
    assigned = {names.key(name) for name in assignments}
    for field in names.schema.fields:
        name = quoted(field.name)
        if not {names.key(field.name), names.key(name)} & assigned:
            yield name

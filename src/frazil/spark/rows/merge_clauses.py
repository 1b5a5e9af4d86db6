"""A MERGE as values: its ON condition and its clauses, before it meets a table.

Clauses are tried in the order in which they were added; the first one whose condition is true
decides. Columns are named by the aliases of target and source, or alone where only one of the two
has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.core.name_matching import quoted
from frazil.spark.parse.parsed_statements import BY_SOURCE, MATCHED, NOT_MATCHED
from frazil.spark.rows.assigned_columns import Assignments, Value
from frazil.wire.errors import BadRequest

Star: TypeAlias = Literal["*"]
STAR: Final[Star] = "*"
"""Sets every column of the target from the source's column of that name."""


@dataclass(frozen=True)
class Clause:
    """A WHEN clause: it updates or inserts rows by its assignments, or else deletes them."""

    kind: str
    """`MATCHED`, `NOT_MATCHED` or `BY_SOURCE`."""
    assignments: Assignments | Star | None = None
    condition: Value | None = None

    @property
    def deletes(self) -> bool:
        return self.assignments is None

    def written_values(self, names: ColumnNames) -> Iterator[Value]:
        """Yield what the rows are made of that the clause writes, except by `*`."""
        if isinstance(self.assignments, Mapping):
            yield from self.assignments.values()
            if self.kind != NOT_MATCHED:
                yield from kept_columns(self.assignments, names)


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a MERGE is asked to do, independent of the table's state."""

    on: Value
    clauses: tuple[Clause, ...] = ()
    target_alias: str = "target"
    source_alias: str = "source"
    evolves: bool = False
    """Whether columns that only the source has are added to the table."""

    def of(self, kind: str) -> tuple[Clause, ...]:
        """Return the clauses of a kind, in their order."""
        return tuple(clause for clause in self.clauses if clause.kind == kind)

    @property
    def checks_cardinality(self) -> bool:
        """Whether a target row that two source rows match is an error, as in Spark.

        It is not if rows can only be deleted: a row is deleted once, however often it matches.
        """
        matched = self.of(MATCHED)
        only_deletes = len(matched) == 1 and matched[0].deletes and matched[0].condition is None
        return bool(matched) and not only_deletes

    def expressions(self, names: ColumnNames) -> Iterator[Value]:
        """Yield everything that may read a target row, with the columns that an update keeps."""
        yield self.on
        for clause in self.clauses:
            if clause.condition is not None:
                yield clause.condition
            yield from clause.written_values(names)

    def written_values(self, names: ColumnNames) -> Iterator[Value]:
        """Yield what the rows are made of that matches are updated to."""
        for clause in self.of(MATCHED):
            yield from clause.written_values(names)

    def check(self) -> None:
        """Refuse what Spark refuses: only the last clause of a kind may have no condition."""
        if not self.clauses:
            raise BadRequest("MERGE: add a WHEN clause")
        if self.target_alias.lower() == self.source_alias.lower():
            raise BadRequest(f"MERGE: target and source are both called {self.target_alias}")
        for kind in (MATCHED, NOT_MATCHED, BY_SOURCE):
            if any(clause.condition is None for clause in self.of(kind)[:-1]):
                raise BadRequest(
                    f"MERGE: only the last WHEN {kind.upper()} may be without a condition"
                )


def kept_columns(assignments: Assignments, names: ColumnNames) -> Iterator[str]:
    """Yield the columns whose old values an update needs."""
    assigned = {names.key(name) for name in assignments}
    for field in names.schema.fields:
        name = quoted(field.name)
        if not {names.key(field.name), names.key(name)} & assigned:
            yield name

"""A MERGE as values: its ON condition and its clauses, before it meets a table.

Clauses are tried in the order in which they were added; the first one whose condition is true
decides. Columns are named by the aliases of target and source, or alone where only one of the two
has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import pyspark.sql.types as st
from pyspark.sql import Column

from frazil.client.declare.client_table import Table
from frazil.client.declare.file_operations import Isolation
from frazil.spark.conditions.sql_columns import ColumnNames, name_parts, parse
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.parse.parsed_statements import BY_SOURCE, MATCHED, NOT_MATCHED
from frazil.spark.rows.assigned_columns import Assignments, Value
from frazil.spark.schema.schema_evolution import Evolution, evolve
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

    def given_expressions(self) -> Iterator[Value]:
        """Yield the expressions of the statement itself."""
        yield self.on
        for clause in self.clauses:
            if clause.condition is not None:
                yield clause.condition
            if isinstance(clause.assignments, Mapping):
                yield from clause.assignments.values()

    def changes_every_match(self, isolation: Isolation) -> bool:
        """Return whether the vectors of the statement contain every row that decided about it.

        An insert depends on the keys that matched nothing. If a matched row is not changed, it is
        in no vector, and the statement that deletes it at the same time would not be noticed.
        """
        if isolation is Isolation.SNAPSHOT or not self.of(NOT_MATCHED):
            return True
        return any(clause.condition is None for clause in self.of(MATCHED))

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


def on_condition(on: Value | Sequence[str], target_alias: str, source_alias: str) -> Value:
    """Return the condition of ON, which may be given as names of columns of both sides."""
    if isinstance(on, str):
        parts = _parts(on)
        if parts is None or len(parts) > 1:
            return on
        names: Sequence[str] = parts
    elif isinstance(on, Column):
        return on
    else:
        names = on
    if not names:
        raise BadRequest("on: name at least one column")
    return " AND ".join(
        f"{quoted(target_alias, name)} = {quoted(source_alias, name)}" for name in names
    )


def kept_columns(assignments: Assignments, names: ColumnNames) -> Iterator[str]:
    """Yield the columns whose old values an update needs."""
    assigned = {names.key(name) for name in assignments}
    for field in names.schema.fields:
        name = quoted(field.name)
        if not {names.key(field.name), names.key(name)} & assigned:
            yield name


# --- WITH SCHEMA EVOLUTION ------------------------------------------------------------------------
# As in Spark 4.1, all columns of the source count where a clause takes them by `*`, otherwise those
# that are assigned to a column of their own name. Columns of the table that the source lacks keep
# their values in an update by `*`, and get their default in an insert by `*`. The commit of the
# rows also contains the new schema.

PROPERTY: Final = "write.spark.auto-schema-evolution.enabled"


def evolved_merge(
    table: Table, merge: Merge, source: st.StructType, names: NameMatcher
) -> tuple[Table, Merge, Evolution]:
    """Return the table with its new schema, and the statement in the columns of that."""
    if table.properties.get(PROPERTY, "true").lower() == "false":
        return table, merge, Evolution(table.schema)
    evolution = evolve(table, _source_columns(merge, source, names), names)
    if evolution.updates:
        table = _with_schema(table, evolution)
    return table, _without_stars(merge, table, source.names, names), evolution


def _with_schema(table: Table, evolution: Evolution) -> Table:
    (schema,) = (
        update["schema"] for update in evolution.updates if update["action"] == "add-schema"
    )
    changed = {
        "schemas": [*table.metadata["schemas"], schema],
        "current-schema-id": schema["schema-id"],
    }
    return replace(table, metadata={**table.metadata, **changed})


def _source_columns(merge: Merge, source: st.StructType, names: NameMatcher) -> st.StructType:
    # Clauses for rows without a source row cannot read the source.
    assigning = [clause.assignments for clause in merge.clauses if clause.kind != BY_SOURCE]
    if STAR in assigning:
        return source
    assigned = {
        names.key(name)
        for assignments in assigning
        if isinstance(assignments, Mapping)
        for name in _assigned_by_name(assignments, merge.source_alias, names)
    }
    return st.StructType([field for field in source.fields if names.key(field.name) in assigned])


def _assigned_by_name(
    assignments: Assignments, source_alias: str, names: NameMatcher
) -> Iterator[str]:
    """Yield columns that are set to the source's column of the same name."""
    for name, value in assignments.items():
        column = _parts(name)
        source = _parts(value) if isinstance(value, str) else None
        if column is None or source is None:
            continue
        same_name = (source_alias, column[-1])
        if [*map(names.key, source)] == [*map(names.key, same_name)]:
            yield column[-1]


def _parts(text: str) -> tuple[str, ...] | None:
    tree: Any = parse(text)
    return None if tree is None else name_parts(tree)


def _without_stars(merge: Merge, table: Table, source: Sequence[str], names: NameMatcher) -> Merge:
    """Replace each `*` by its assignments if the source lacks columns of the table."""
    sources = {names.key(name): name for name in source}
    assignments = {
        quoted(field.name): quoted(merge.source_alias, sources[names.key(field.name)])
        for field in table.schema.fields
        if names.key(field.name) in sources
    }
    if len(assignments) == len(table.schema.fields):
        return merge
    clauses = (
        replace(clause, assignments=assignments) if clause.assignments == STAR else clause
        for clause in merge.clauses
    )
    return replace(merge, clauses=tuple(clauses))

"""MERGE WITH SCHEMA EVOLUTION: columns that only the source has become the table's.

As Spark 4.1 has it: all columns of the source count where a clause takes them all by `*`, otherwise
those that are assigned to a column of their own name. What `*` does not find in the source is left
as it is by an update, and gets its default in an insert. The new schema is part of the commit that
needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyspark.sql.types as st

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.sql_columns import name_parts, parse
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.rows.merge_clauses import (
    STAR,
    Clause,
    Merge,
    WhenMatchedUpdate,
    WhenNotMatchedInsert,
)
from frazil.spark.schema.schema_evolution import Evolution, evolve

PROPERTY: Final = "write.spark.auto-schema-evolution.enabled"


@dataclass(frozen=True)
class EvolvedMerge:
    table: Table
    """As it will be."""
    merge: Merge
    evolution: Evolution


def evolved_merge(
    table: Table, merge: Merge, source: st.StructType, names: NameMatcher
) -> EvolvedMerge:
    """The table that the statement is to be held against, and the statement in its columns."""
    if table.properties.get(PROPERTY, "true").lower() == "false":
        return EvolvedMerge(table, merge, Evolution(table.schema))
    counted = _counted(merge, source, names)
    evolution = evolve(table, counted, names)
    if evolution.updates:
        table = _with_schema(table, evolution)
    return EvolvedMerge(table, _without_stars(merge, table, source.names, names), evolution)


def _with_schema(table: Table, evolution: Evolution) -> Table:
    (added,) = (one["schema"] for one in evolution.updates if one["action"] == "add-schema")
    schemas = [*table.metadata["schemas"], added]
    changed = {"schemas": schemas, "current-schema-id": added["schema-id"]}
    return replace(table, metadata={**table.metadata, **changed})


# --- which columns --------------------------------------------------------------------------------


def _counted(merge: Merge, source: st.StructType, names: NameMatcher) -> st.StructType:
    if any(one.assignments == STAR for one in _assigning(merge.clauses)):
        return source
    assigned = {
        names.key(name)
        for clause in _assigning(merge.clauses)
        for name in _assigned_by_name(clause, merge.source_alias, names)
    }
    return st.StructType([one for one in source.fields if names.key(one.name) in assigned])


def _assigning(clauses: Sequence[Clause]) -> Iterator[WhenMatchedUpdate | WhenNotMatchedInsert]:
    """Clauses that can see the source."""
    for clause in clauses:
        if isinstance(clause, WhenMatchedUpdate | WhenNotMatchedInsert):
            yield clause


def _assigned_by_name(
    clause: WhenMatchedUpdate | WhenNotMatchedInsert, source_alias: str, names: NameMatcher
) -> Iterator[str]:
    assert not isinstance(clause.assignments, str)
    for name, value in clause.assignments.items():
        column = _parts(name)
        given = _parts(value) if isinstance(value, str) else None
        if column is None or given is None:
            continue
        wanted = (source_alias, column[-1])
        if [*map(names.key, given)] == [*map(names.key, wanted)]:
            yield column[-1]


def _parts(text: str) -> tuple[str, ...] | None:
    tree: Any = parse(text)
    return None if tree is None else name_parts(tree)


# --- stars ----------------------------------------------------------------------------------------


def _without_stars(merge: Merge, table: Table, source: Sequence[str], names: NameMatcher) -> Merge:
    """Stars as the assignments that they stand for, where the source lacks columns."""
    known = {names.key(name): name for name in source}
    assigned = {
        quoted(field.name): quoted(merge.source_alias, known[names.key(field.name)])
        for field in table.schema.fields
        if names.key(field.name) in known
    }
    if len(assigned) == len(table.schema.fields):
        return merge
    return replace(
        merge,
        clauses=tuple(
            replace(clause, assignments=assigned)
            if isinstance(clause, WhenMatchedUpdate | WhenNotMatchedInsert)
            and clause.assignments == STAR
            else clause
            for clause in merge.clauses
        ),
    )

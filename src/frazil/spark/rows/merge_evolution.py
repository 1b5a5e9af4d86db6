"""MERGE WITH SCHEMA EVOLUTION: adds columns that only the source has to the table.

As in Spark 4.1, all columns of the source count where a clause takes them by `*`, otherwise those
that are assigned to a column of their own name. Columns of the table that the source lacks keep
their values in an update by `*`, and get their default in an insert by `*`. The commit of the rows
also contains the new schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyspark.sql.types as st

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.sql_columns import name_parts, parse
from frazil.spark.core.name_matching import NameMatcher, quoted
from frazil.spark.parse.parsed_statements import BY_SOURCE
from frazil.spark.rows.assigned_columns import Assignments
from frazil.spark.rows.merge_clauses import STAR, Merge
from frazil.spark.schema.schema_evolution import Evolution, evolve

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


# --- columns of the source that count -------------------------------------------------------------


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


# --- stars ----------------------------------------------------------------------------------------


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

"""What a MERGE reads of its target: the filter of its scan, and where others are in conflict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from frazil.client.declare.client_table import Table
from frazil.spark.conditions.merge_conditions import SourceNames, key_filter, merge_filter, on_parts
from frazil.spark.conditions.sql_columns import ColumnNames
from frazil.spark.conditions.sql_conditions import filter_of, is_case_sensitive
from frazil.spark.conditions.sql_constants import Zone
from frazil.spark.core.context import Context
from frazil.spark.rows.merge_clauses import Merge
from frazil.spark.rows.merge_filter import CollectedKeys, collected_keys
from frazil.spark.rows.merge_frames import source_columns
from frazil.wire.expressions import Expression
from frazil.wire.filter_builders import always_true


@dataclass(frozen=True)
class MergeReads:
    filter: Expression
    """At least the rows that the MERGE looks at: whose change by others would be a conflict."""
    source_rows: int | None = None
    """How many rows the source has, where that is known."""


def merge_reads(context: Context, table: Table, merge: Merge, source: DataFrame) -> MergeReads:
    """By the keys of the source, which is read for them; WHEN conditions of matched rows and of
    inserts are not looked at, since a row that fails them is read all the same."""
    unmatched = [
        filter_of(context, table, clause.condition, alias=merge.target_alias).expression
        for clause in merge.not_matched_by_source
    ]
    if not isinstance(merge.on, str):
        return _reads(CollectedKeys(), always_true(), unmatched)
    case_sensitive = is_case_sensitive(context)
    parts = on_parts(
        merge.on,
        ColumnNames(table.schema, merge.target_alias, case_sensitive),
        SourceNames(source_columns(source), merge.source_alias, case_sensitive),
        Zone(context.time_zone),
    )
    keys = collected_keys(table, source.alias(merge.source_alias), parts.keys)
    return _reads(keys, parts.target_only, unmatched)


def _reads(
    found: CollectedKeys, target_only: Expression, unmatched: Sequence[Expression]
) -> MergeReads:
    keys = [key_filter(one) for one in found.keys]
    return MergeReads(merge_filter(keys, target_only, unmatched), found.source_rows)

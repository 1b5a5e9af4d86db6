"""Whether a table's default spec and sort order still fit its current schema.

Java's PartitionSpec.checkCompatibility and SortOrder.checkCompatibility: asked of what a table
already has. A spec or order that is being added is checked in full by its own module.
"""

from __future__ import annotations

from frazil.format.metadata.partition_spec import PartitionSpec
from frazil.format.metadata.schema import Schema
from frazil.format.metadata.sort_order import SortOrder
from frazil.values.transforms import VOID, Transform


def spec_problem(spec: PartitionSpec, schema: Schema) -> str | None:
    """Why a spec cannot be the default with a schema; None when it can."""
    for part in spec.fields:
        # A void field stays behind in v1 specs when its source column is dropped.
        if part.transform == VOID:
            continue
        problem = _source_problem(part.source_ids, part.transform, schema)
        if problem is not None:
            return f"partition field {part.name!r}: {problem}"
    return None


def order_problem(order: SortOrder, schema: Schema) -> str | None:
    """Why a sort order cannot be the default with a schema; None when it can."""
    for part in order.fields:
        problem = _source_problem(part.source_ids, part.transform, schema)
        if problem is not None:
            return f"sort field {part}: {problem}"
    return None


def _source_problem(
    source_ids: tuple[int, ...], transform: Transform, schema: Schema
) -> str | None:
    for source_id in source_ids:
        source = schema.find_type(source_id)
        if source is None:
            return f"source column {source_id} is not in schema {schema.schema_id}"
        if not source.is_primitive:
            return f"source column {source_id} is not of a primitive type"
        if not transform.accepts(source):
            return f"transform {transform} does not take source type {source}"
    return None

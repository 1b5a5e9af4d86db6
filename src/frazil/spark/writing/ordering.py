"""In which order rows lie in files by a table's sort order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column

from frazil.spark.schema.partition_transforms import source_column, transform_column
from frazil.values.transforms import parse_transform
from frazil.values.types import StructType, fields_by_id
from frazil.wire.errors import BadRequest


def sort_columns(order: Mapping[str, Any], schema: StructType) -> list[Column]:
    """What Spark sorts by for a sort order, which is the JSON of the table's metadata."""
    by_id = fields_by_id(schema)
    columns = []
    for item in order["fields"]:
        source_id = item.get("source-id", next(iter(item.get("source-ids", ())), -1))
        found = by_id.get(source_id)
        if found is None:
            raise BadRequest(
                f"sort order {order['order-id']} sorts by the field id {source_id}, which the "
                "schema does not have: replace the sort order"
            )
        transform = parse_transform(item["transform"])
        column = transform_column(transform, found.field.type, source_column(schema, source_id))
        columns.append(_directed(column, item))
    return columns


def _directed(column: Column, item: Mapping[str, Any]) -> Column:
    """Iceberg's values have Spark's order: NaN is the greatest, text is ordered by its bytes."""
    nulls_first = item["null-order"].lower() == "nulls-first"
    if item["direction"].lower() == "asc":
        return column.asc_nulls_first() if nulls_first else column.asc_nulls_last()
    return column.desc_nulls_first() if nulls_first else column.desc_nulls_last()

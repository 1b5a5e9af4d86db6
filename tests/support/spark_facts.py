"""Builds table facts for the writers of `frazil.spark`, without a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from frazil.datafiles.portable_table import PortableTable

FIRST_PARTITION_ID = 1000


def schema_json(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Build a schema from names with types; a name with `!` is required. Ids count from 1."""
    fields = [
        {
            "id": number,
            "name": name.rstrip("!"),
            "required": name.endswith("!"),
            "type": type_,
        }
        for number, (name, type_) in enumerate(columns.items(), 1)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def spec_json(*fields: tuple[int, str, str]) -> dict[str, Any]:
    """Build a spec from source ids, transforms and names."""
    return {
        "spec-id": 0,
        "fields": [
            {
                "source-id": source_id,
                "field-id": FIRST_PARTITION_ID + number,
                "name": name,
                "transform": transform,
            }
            for number, (source_id, transform, name) in enumerate(fields)
        ],
    }


def order_json(*fields: tuple[int, str, str, str]) -> dict[str, Any]:
    """Build a sort order from source ids, transforms, directions and null orders."""
    return {
        "order-id": 1 if fields else 0,
        "fields": [
            {
                "source-id": source_id,
                "transform": transform,
                "direction": direction,
                "null-order": null_order,
            }
            for source_id, transform, direction, null_order in fields
        ],
    }


def facts(
    location: str,
    columns: Mapping[str, Any],
    spec: Sequence[tuple[int, str, str]] = (),
    order: Sequence[tuple[int, str, str, str]] = (),
    properties: Mapping[str, str] | None = None,
    format_version: int = 2,
) -> PortableTable:
    sort_order = order_json(*order)
    metadata = {
        "format-version": format_version,
        "location": location,
        "schemas": [schema_json(columns)],
        "current-schema-id": 0,
        "partition-specs": [spec_json(*spec)],
        "default-spec-id": 0,
        "sort-orders": [sort_order],
        "default-sort-order-id": sort_order["order-id"],
    }
    return PortableTable("db.t", {**metadata, "properties": dict(properties or {})}, {})

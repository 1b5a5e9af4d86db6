"""What executors must know of a table: a small immutable part of its metadata that travels to them.

It satisfies `FileTable`, so that the client's reader of Parquet footers works with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from frazil.client.tables import Table
from frazil.values.type_json import parse_struct, struct_to_json
from frazil.values.types import StructType
from frazil.wire.errors import NotFound

_PARTS: Final = (
    "format-version",
    "table-uuid",
    "location",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "sort-orders",
    "default-sort-order-id",
    "last-column-id",
    "last-partition-id",
)


@dataclass(frozen=True)
class TableFacts:
    name: str
    metadata: Mapping[str, Any]
    """Without snapshots, refs and logs."""
    properties: Mapping[str, str]
    config: Mapping[str, str]
    """How the table's files are reached."""

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @cached_property
    def schema(self) -> StructType:
        wanted = self.metadata["current-schema-id"]
        return parse_struct(self._part("schemas", "schema-id", wanted), "schema")

    def spec(self, spec_id: int | None = None) -> Mapping[str, Any]:
        wanted = self.metadata["default-spec-id"] if spec_id is None else spec_id
        return self._part("partition-specs", "spec-id", wanted)

    def sort_order(self, order_id: int | None = None) -> Mapping[str, Any]:
        wanted = self.metadata["default-sort-order-id"] if order_id is None else order_id
        return self._part("sort-orders", "order-id", wanted)

    def _part(self, name: str, id_name: str, wanted: int) -> Mapping[str, Any]:
        for part in self.metadata[name]:
            if part.get(id_name) == wanted:
                found: Mapping[str, Any] = part
                return found
        raise NotFound(f"{self.name} has no {id_name} {wanted}")


def facts_of(table: Table, schema: StructType | None = None) -> TableFacts:
    """`schema` is the one that the table will have, where a write changes it."""
    metadata = {name: table.metadata[name] for name in _PARTS if name in table.metadata}
    facts = TableFacts(str(table), metadata, dict(table.properties), dict(table.config))
    return facts if schema is None or schema == table.schema else _evolved(facts, schema)


def _evolved(facts: TableFacts, schema: StructType) -> TableFacts:
    schemas = facts.metadata["schemas"]
    schema_id = max(known["schema-id"] for known in schemas) + 1
    added = {**struct_to_json(schema), "schema-id": schema_id}
    metadata = {**facts.metadata, "schemas": [*schemas, added], "current-schema-id": schema_id}
    return replace(facts, metadata=metadata)

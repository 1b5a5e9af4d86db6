"""What executors must know of a table: a small immutable part of its metadata that travels to them.

It satisfies `FileTable`, so that the client's reader of Parquet footers works with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.datafiles.footers.footer_reader import FileTable
from frazil.datafiles.portable_table import TableMetadata
from frazil.values.type_json import struct_to_json
from frazil.values.types import StructType

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
    "properties",
)


@dataclass(frozen=True)
class TableFacts(TableMetadata):
    name: str
    metadata: Mapping[str, Any]
    """Without snapshots, refs and logs."""
    config: Mapping[str, str]
    """How the table's files are reached."""

    def __str__(self) -> str:
        return self.name


def facts_of(table: FileTable, schema: StructType | None = None) -> TableFacts:
    """`schema` is the one that the table will have, where a write changes it."""
    metadata = {name: table.metadata[name] for name in _PARTS if name in table.metadata}
    facts = TableFacts(str(table), metadata, dict(table.config))
    return facts if schema is None or schema == table.schema else _evolved(facts, schema)


def _evolved(facts: TableFacts, schema: StructType) -> TableFacts:
    schemas = facts.metadata["schemas"]
    schema_id = max(known["schema-id"] for known in schemas) + 1
    added = {**struct_to_json(schema), "schema-id": schema_id}
    metadata = {**facts.metadata, "schemas": [*schemas, added], "current-schema-id": schema_id}
    return replace(facts, metadata=metadata)

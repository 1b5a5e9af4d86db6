"""Reads a table's metadata, and cuts out the part that code on another machine needs.

This module does not import pyarrow, because the thin client uses it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Protocol

from frazil.values.name_mapping import (
    NAME_MAPPING_PROPERTY,
    InvalidNameMapping,
    NameMapping,
    parse_name_mapping,
)
from frazil.values.type_json import parse_struct, struct_to_json
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NotFound

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_PORTABLE_METADATA: Final = (
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


class FileTable(Protocol):
    """What reading and writing data files needs to know about a table."""

    @property
    def schema(self) -> StructType: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def config(self) -> Mapping[str, str]: ...
    @property
    def location(self) -> str: ...
    @property
    def format_version(self) -> int: ...
    def spec(self, spec_id: int | None = None) -> Mapping[str, Any]: ...


class TableMetadataMixin:
    """Answers questions about a table from the JSON of its metadata.

    The class that uses it has a member `metadata` and turns into the table's name as text.
    """

    metadata: Mapping[str, Any]

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self.metadata.get("properties") or _NO_PROPERTIES
        return properties

    @cached_property
    def schema(self) -> StructType:
        """The current schema."""
        return self.schema_by_id(self.metadata["current-schema-id"])

    def schema_by_id(self, schema_id: int) -> StructType:
        """Return a schema of the table by its id."""
        return parse_struct(self._entry("schemas", "schema-id", schema_id), "schema")

    def spec(self, spec_id: int | None = None) -> Mapping[str, Any]:
        """Return the JSON of a partition spec; without an id, that of the default spec."""
        wanted = self.metadata["default-spec-id"] if spec_id is None else spec_id
        return self._entry("partition-specs", "spec-id", wanted)

    def sort_order(self, order_id: int | None = None) -> Mapping[str, Any]:
        """Return the JSON of a sort order; without an id, that of the default order."""
        wanted = self.metadata["default-sort-order-id"] if order_id is None else order_id
        return self._entry("sort-orders", "order-id", wanted)

    def _entry(self, list_name: str, id_name: str, wanted: int) -> Mapping[str, Any]:
        entries: list[Mapping[str, Any]] = self.metadata[list_name]
        for entry in entries:
            if entry.get(id_name) == wanted:
                return entry
        known = ", ".join(str(entry.get(id_name)) for entry in entries)
        raise NotFound(f"{self} has no {id_name} {wanted}; it has {known}")


def table_name_mapping(properties: Mapping[str, str]) -> NameMapping | None:
    """Read the name mapping from a table's properties; None if the table has none."""
    text = properties.get(NAME_MAPPING_PROPERTY)
    try:
        return None if text is None else parse_name_mapping(text)
    except InvalidNameMapping as error:
        raise BadRequest(str(error)) from None


@dataclass(frozen=True)
class PortableTable(TableMetadataMixin):
    """A small immutable `FileTable` that can be pickled and sent to another process."""

    name: str
    metadata: Mapping[str, Any]
    """The table's metadata without snapshots, refs and logs."""
    config: Mapping[str, str]
    """How the table's files are reached."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, table: FileTable, schema: StructType | None = None) -> PortableTable:
        """Copy what files need from a table.

        `schema` is the table's next schema, if the write changes it.
        """
        metadata = {
            name: table.metadata[name] for name in _PORTABLE_METADATA if name in table.metadata
        }
        portable = cls(str(table), metadata, dict(table.config))
        if schema is None or schema == table.schema:
            return portable
        return portable._with_schema(schema)

    def _with_schema(self, schema: StructType) -> PortableTable:
        schemas = self.metadata["schemas"]
        schema_id = max(known["schema-id"] for known in schemas) + 1
        added = {**struct_to_json(schema), "schema-id": schema_id}
        metadata = {**self.metadata, "schemas": [*schemas, added], "current-schema-id": schema_id}
        return replace(self, metadata=metadata)

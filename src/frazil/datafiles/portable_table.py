"""What the metadata of a table says of it, whoever holds that metadata."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from frazil.values.type_json import parse_struct
from frazil.values.types import StructType
from frazil.wire.errors import NotFound

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class TableMetadata:
    """Its JSON, read. Mixed into what has a `metadata` and a name as text."""

    metadata: Mapping[str, Any]

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self.metadata.get("properties") or _EMPTY
        return properties

    @cached_property
    def schema(self) -> StructType:
        """The current schema."""
        return self.schema_by_id(self.metadata["current-schema-id"])

    def schema_by_id(self, schema_id: int) -> StructType:
        return parse_struct(self._part("schemas", "schema-id", schema_id), "schema")

    def spec(self, spec_id: int | None = None) -> Mapping[str, Any]:
        """The JSON of a partition spec; the default one where none is named."""
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
        known = ", ".join(str(part.get(id_name)) for part in self.metadata[name])
        raise NotFound(f"{self} has no {id_name} {wanted}; it has {known}")

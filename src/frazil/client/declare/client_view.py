"""A view as it was loaded: an immutable copy of its metadata.

A view stores one SQL text for each dialect. Unqualified names in a text belong to the default
catalog and namespace of the version, not to those of the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from msgspec import Struct, convert

from frazil.values.type_json import parse_struct
from frazil.values.types import StructType
from frazil.wire.errors import NotFound
from frazil.wire.identifiers import Identifier, Namespace

SPARK_DIALECT: Final = "spark"


class ViewVersion(Struct, frozen=True, rename="kebab"):
    """One version of a view."""

    version_id: int
    schema_id: int
    timestamp_ms: int
    default_namespace: Namespace
    representations: tuple[dict[str, Any], ...]
    default_catalog: str | None = None
    """None: the catalog that contains the view."""
    summary: dict[str, str] = {}

    @property
    def texts(self) -> dict[str, str]:
        """Return the SQL texts by dialect, in lower case."""
        return {
            part["dialect"].lower(): part["sql"]
            for part in self.representations
            if part["type"].lower() == "sql"
        }

    def sql(self, dialect: str = SPARK_DIALECT) -> str:
        """Return the text in a dialect; raise NotFound if there is none."""
        texts = self.texts
        if dialect.lower() not in texts:
            known = ", ".join(texts) or "none"
            raise NotFound(f"the view has no SQL in the dialect {dialect}; its dialects: {known}")
        return texts[dialect.lower()]


@dataclass(frozen=True)
class View:
    """A loaded view."""

    identifier: Identifier
    metadata: Mapping[str, Any]
    """The JSON of the view's metadata as the catalog returned it."""
    metadata_location: str
    config: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.identifier)

    @property
    def uuid(self) -> str:
        return str(self.metadata["view-uuid"])

    @property
    def location(self) -> str:
        return str(self.metadata["location"])

    @property
    def properties(self) -> Mapping[str, str]:
        return self.metadata.get("properties") or {}

    @cached_property
    def versions(self) -> tuple[ViewVersion, ...]:
        """The versions that the catalog has kept, in the order of its metadata."""
        return convert(self.metadata["versions"], tuple[ViewVersion, ...])

    @property
    def current_version(self) -> ViewVersion:
        return self.version(self.metadata["current-version-id"])

    def version(self, version_id: int) -> ViewVersion:
        for version in self.versions:
            if version.version_id == version_id:
                return version
        known = ", ".join(str(version.version_id) for version in self.versions)
        raise NotFound(f"{self} has no version {version_id}; it has {known}")

    @property
    def schema(self) -> StructType:
        return self.schema_of(self.current_version)

    def schema_of(self, version: ViewVersion) -> StructType:
        return parse_struct(self.schema_document_of(version), "schema")

    @property
    def schema_document(self) -> Mapping[str, Any]:
        """Return the JSON of the current version's schema."""
        return self.schema_document_of(self.current_version)

    def schema_document_of(self, version: ViewVersion) -> Mapping[str, Any]:
        schemas: list[Mapping[str, Any]] = self.metadata["schemas"]
        return next(schema for schema in schemas if schema["schema-id"] == version.schema_id)

    def sql(self, dialect: str = SPARK_DIALECT) -> str:
        """Return the current version's text in a dialect."""
        try:
            return self.current_version.sql(dialect)
        except NotFound as error:
            raise NotFound(f"{self}: {error.message}") from None


class LoadedView(Struct, frozen=True, rename="kebab"):
    """The catalog's answer that contains a view."""

    metadata: dict[str, Any]
    metadata_location: str
    config: dict[str, str] = {}

    def view(self, identifier: Identifier) -> View:
        return View(identifier, self.metadata, self.metadata_location, self.config)

"""Views: immutable copies of their metadata as it was loaded, and the requests that change them.

A view stores one SQL text for each dialect. Unqualified names in a text belong to the default
catalog and namespace of the version, not to those of the reader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias, TypedDict

import msgspec
from msgspec import Raw, Struct, convert

from frazil.client.declare.file_operations import check_options
from frazil.client.declare.metadata_updates import LAST_ADDED
from frazil.client.declare.table_definition import SchemaInput, schema_document
from frazil.values.type_json import parse_struct
from frazil.values.types import StructType
from frazil.wire.errors import BadRequest, NotFound
from frazil.wire.identifiers import Identifier, Namespace
from frazil.wire.rest_messages import CommitViewRequest, CreateViewRequest
from frazil.wire.rest_updates import (
    AddSchema,
    AddViewVersion,
    AssertViewUUID,
    RemoveProperties,
    SetCurrentViewVersion,
    SetLocation,
    SetProperties,
    ViewUpdate,
)

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
        """Return a version by its id."""
        for version in self.versions:
            if version.version_id == version_id:
                return version
        known = ", ".join(str(version.version_id) for version in self.versions)
        raise NotFound(f"{self} has no version {version_id}; it has {known}")

    @property
    def schema(self) -> StructType:
        return self.schema_of(self.current_version)

    def schema_of(self, version: ViewVersion) -> StructType:
        """Return the columns of a version."""
        return parse_struct(self.schema_document_of(version), "schema")

    @property
    def schema_document(self) -> Mapping[str, Any]:
        """Return the JSON of the current version's schema."""
        return self.schema_document_of(self.current_version)

    def schema_document_of(self, version: ViewVersion) -> Mapping[str, Any]:
        """Return the JSON of a version's schema."""
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


# --- changes --------------------------------------------------------------------------------------

_FIRST_VERSION: Final = 1
_ALL_TYPES: Final = "3"
"""The version of tables that has all types. A view's own version does not limit them."""


class ViewOptions(TypedDict, total=False):
    """Optional parts of a version of a view, with those that belong to the whole view."""

    default_namespace: Namespace | None
    """Where unqualified names of the text belong; by default the view's own namespace."""
    default_catalog: str | None
    """By default the catalog of the view."""
    location: str | None
    properties: Mapping[str, str]
    summary: Mapping[str, str]


ViewText: TypeAlias = str | Mapping[str, str]
"""A text in Spark's dialect, or texts by dialect."""


def creation(
    identifier: Identifier, schema: SchemaInput, sql: ViewText, options: ViewOptions
) -> CreateViewRequest:
    """Return the request that creates the view."""
    return CreateViewRequest(
        name=identifier.name,
        schema=_schema(schema),
        view_version=_version(identifier, sql, options, _FIRST_VERSION, 0),
        location=options.get("location"),
        properties=dict(options.get("properties", {})),
    )


def replacement(
    view: View, schema: SchemaInput, sql: ViewText, options: ViewOptions
) -> CommitViewRequest:
    """Return the request that adds a version and makes it current.

    Properties that the options do not name stay.
    """
    version_id = max(version.version_id for version in view.versions) + 1
    updates: list[ViewUpdate] = []
    if properties := options.get("properties"):
        updates.append(SetProperties(updates=dict(properties)))
    if (location := options.get("location")) is not None:
        updates.append(SetLocation(location=location))
    version = _version(view.identifier, sql, options, version_id, LAST_ADDED)
    updates += [
        AddSchema(schema=_schema(schema)),
        AddViewVersion(view_version=version),
        SetCurrentViewVersion(view_version_id=LAST_ADDED),
    ]
    return _request(view, *updates)


def property_change(
    view: View, updates: Mapping[str, str], removals: Iterable[str]
) -> CommitViewRequest:
    """Return the request that sets and removes properties."""
    names = tuple(removals)
    changes: list[ViewUpdate] = []
    if updates:
        changes.append(SetProperties(updates=dict(updates)))
    if names:
        changes.append(RemoveProperties(removals=names))
    if not changes:
        raise BadRequest(f"{view}: no property to set or to remove was named")
    return _request(view, *changes)


def _request(view: View, *updates: ViewUpdate) -> CommitViewRequest:
    return CommitViewRequest(updates, (AssertViewUUID(view.uuid),))


def _version(
    identifier: Identifier, sql: ViewText, options: ViewOptions, version_id: int, schema_id: int
) -> Raw:
    check_options(options, ViewOptions)
    texts = {SPARK_DIALECT: sql} if isinstance(sql, str) else sql
    namespace = options.get("default_namespace")
    document: dict[str, Any] = {
        "version-id": version_id,
        "schema-id": schema_id,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "summary": dict(options.get("summary", {})),
        "default-namespace": list(identifier.namespace if namespace is None else namespace),
        "representations": [
            {"type": "sql", "dialect": dialect, "sql": text} for dialect, text in texts.items()
        ],
    }
    if (catalog := options.get("default_catalog")) is not None:
        document["default-catalog"] = catalog
    return Raw(msgspec.json.encode(document))


def _schema(schema: SchemaInput) -> Raw:
    document = schema_document(schema, {"format-version": _ALL_TYPES})
    return Raw(msgspec.json.encode({"schema-id": 0, **document}))

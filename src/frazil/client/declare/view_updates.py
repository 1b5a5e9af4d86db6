"""Create and change views: the requests and updates of a definition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from frazil.client.declare.client_view import SPARK_DIALECT, View
from frazil.client.declare.table_definition import SchemaInput, schema_document
from frazil.wire.errors import BadRequest
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

LAST_ADDED = -1
"""The schema or version that the same request adds."""
_FIRST_VERSION = 1
_ALL_TYPES = "3"
"""The version of tables that has all types. A view's own version does not limit them."""


@dataclass(frozen=True)
class ViewDefinition:
    """What a version of a view consists of."""

    schema: SchemaInput
    sql: str | Mapping[str, str]
    """A text in Spark's dialect, or texts by dialect."""
    default_namespace: Namespace | None = None
    """Where unqualified names belong; None: the namespace of the view."""
    default_catalog: str | None = None
    """None: the catalog of the view."""
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    summary: Mapping[str, str] = field(default_factory=dict)


def creation(identifier: Identifier, definition: ViewDefinition) -> CreateViewRequest:
    """Return the request that creates the view."""
    return CreateViewRequest(
        name=identifier.name,
        schema=_schema(definition),
        view_version=_version(identifier, definition, _FIRST_VERSION, 0),
        location=definition.location,
        properties=dict(definition.properties),
    )


def replacement(view: View, definition: ViewDefinition) -> CommitViewRequest:
    """Return the request that adds a version and makes it current.

    Properties that the definition does not name stay.
    """
    version_id = max(version.version_id for version in view.versions) + 1
    updates: list[ViewUpdate] = []
    if definition.properties:
        updates.append(SetProperties(updates=dict(definition.properties)))
    if definition.location is not None:
        updates.append(SetLocation(location=definition.location))
    updates += [
        AddSchema(schema=_schema(definition)),
        AddViewVersion(view_version=_version(view.identifier, definition, version_id, LAST_ADDED)),
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
    identifier: Identifier, definition: ViewDefinition, version_id: int, schema_id: int
) -> Raw:
    sql = definition.sql
    texts = {SPARK_DIALECT: sql} if isinstance(sql, str) else sql
    namespace = definition.default_namespace
    document: dict[str, Any] = {
        "version-id": version_id,
        "schema-id": schema_id,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "summary": dict(definition.summary),
        "default-namespace": list(identifier.namespace if namespace is None else namespace),
        "representations": [
            {"type": "sql", "dialect": dialect, "sql": text} for dialect, text in texts.items()
        ],
    }
    if definition.default_catalog is not None:
        document["default-catalog"] = definition.default_catalog
    return _raw(document)


def _schema(definition: ViewDefinition) -> Raw:
    document = schema_document(definition.schema, {"format-version": _ALL_TYPES})
    return _raw({"schema-id": 0, **document})


def _raw(document: Mapping[str, Any]) -> Raw:
    return Raw(msgspec.json.encode(document))

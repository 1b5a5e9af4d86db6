"""Create and change views: the requests and updates of a definition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypedDict

import msgspec
from msgspec import Raw

from frazil.client.declare.client_view import SPARK_DIALECT, View
from frazil.client.declare.file_operations import check_options
from frazil.client.declare.metadata_updates import LAST_ADDED
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

_FIRST_VERSION = 1
_ALL_TYPES = "3"
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

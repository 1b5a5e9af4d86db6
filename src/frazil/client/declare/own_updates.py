"""Iceberg's own updates of a table's metadata, and those that create a staged table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from frazil.client.declare.refs import Built
from frazil.wire.errors import BadRequest
from frazil.wire.updates import TableRequirement, TableUpdate

if TYPE_CHECKING:
    from frazil.client.declare.tables import Table

OwnParts: TypeAlias = Iterable[Mapping[str, Any]]
OwnUpdates: TypeAlias = tuple[OwnParts, OwnParts]
"""Updates and requirements, in the JSON of Iceberg's REST specification."""

LAST_ADDED: Final = -1
"""Stands for the schema, spec or sort order that the same request has added."""

_updates: Final = msgspec.json.Decoder(tuple[TableUpdate, ...])
_requirements: Final = msgspec.json.Decoder(tuple[TableRequirement, ...])


def own_updates(updates: OwnParts, requirements: OwnParts = ()) -> Built:
    return _decoded(_updates, updates, "updates"), _decoded(
        _requirements, requirements, "requirements"
    )


def _decoded(decoder: msgspec.json.Decoder[Any], parts: OwnParts, name: str) -> Any:
    try:
        return decoder.decode(msgspec.json.encode([dict(part) for part in parts]))
    except msgspec.ValidationError as error:
        raise BadRequest(f"{name}: {error}") from None


def creation(table: Table) -> Built:
    """What makes a staged table a real one: all of its metadata, if nobody else has made it."""
    metadata = table.metadata
    properties = dict(table.properties)
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": table.uuid},
        {"action": "upgrade-format-version", "format-version": table.format_version},
        {"action": "set-location", "location": table.location},
        *definition(
            metadata["schemas"][0],
            metadata["partition-specs"][0],
            metadata["sort-orders"][0],
            properties,
        ),
    ]
    return own_updates(updates, [{"type": "assert-create"}])


def definition(
    schema: Mapping[str, Any],
    spec: Mapping[str, Any],
    order: Mapping[str, Any],
    properties: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Makes these the table's current ones, whatever it had before."""
    updates: list[dict[str, Any]] = [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": LAST_ADDED},
        {"action": "add-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": LAST_ADDED},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
    ]
    if properties:
        updates.append({"action": "set-properties", "updates": dict(properties)})
    return updates

"""Converts values to rows and rows to values, for both databases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from frazil.db.base import EventRow, KeyRow, Kind, Relation, StreamRow
from frazil.db.sql import QueryName
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier, Namespace

Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]

_SEPARATOR: Final = "\x1f"
_KINDS: Final = {kind.value: kind for kind in Kind}

MAX_KEY_BYTES: Final = 2048
"""The longest namespace in bytes. PostgreSQL refuses to index a row of more than a third of a page
(2,704 bytes); with a name of 255 bytes beside it, a namespace of this length still fits. Both
databases use this limit.
"""


class Statements(Protocol):
    """Runs named statements in one open transaction or on one connection."""

    def fetch(self, name: QueryName, parameters: Parameters) -> Sequence[Row]: ...

    def execute(self, name: QueryName, parameters: Parameters) -> int:
        """Run one statement and return how many rows it changed."""

    def execute_many(self, name: QueryName, parameters: Sequence[Parameters]) -> int:
        """Run one statement for each set of parameters and return how many rows all of them
        changed.
        """


def text(value: str, what: str) -> str:
    """Return the text, or refuse a NUL, which PostgreSQL cannot store in a text."""
    if "\0" in value:
        raise BadRequest(f"{what} {value!r} has a NUL character: remove it")
    return value


def namespace_key(namespace: Namespace) -> str:
    """Join the levels with 0x1F, as the REST specification joins them in a path."""
    key = _SEPARATOR.join(namespace)
    if key.count(_SEPARATOR) >= len(namespace) > 0:
        raise BadRequest(
            f"namespace {'.'.join(namespace)!r} has the separator 0x1F inside a level: remove it"
        )
    return text(key, "namespace")


def namespace_of(key: str) -> Namespace:
    return tuple(key.split(_SEPARATOR)) if key else ()


def check_indexable(value: str, what: str) -> None:
    length = len(value.encode())
    if length > MAX_KEY_BYTES:
        raise BadRequest(f"{what} is {length} bytes long: at most {MAX_KEY_BYTES} are allowed")


def properties_text(properties: Mapping[str, str]) -> str:
    """Encode the properties. Sorting makes equal maps equal texts; escaping makes every string
    storable.
    """
    return json.dumps(properties, sort_keys=True, separators=(",", ":"))


def properties_of(stored: str) -> dict[str, str]:
    properties: dict[str, str] = json.loads(stored)
    return properties


def json_list(values: Sequence[str]) -> str:
    """Encode a list as one parameter. Both databases can read a JSON array."""
    return json.dumps(list(values), ensure_ascii=False)


def relation_parameters(relation: Relation) -> dict[str, Any]:
    return {
        "uuid": relation.uuid,
        "kind": relation.kind.value,
        "namespace": namespace_key(relation.identifier.namespace),
        "name": text(relation.identifier.name, f"{relation.kind.value} name"),
        "metadata_location": text(relation.metadata_location, "metadata-location"),
        "version": relation.version,
    }


def expected_parameters(relation: Relation) -> dict[str, Any]:
    return {
        "uuid": relation.uuid,
        "expected_namespace": namespace_key(relation.identifier.namespace),
        "expected_name": relation.identifier.name,
        "expected_metadata_location": relation.metadata_location,
        "expected_version": relation.version,
    }


def relation_at(identifier: Identifier, row: Row) -> Relation:
    kind, uuid, metadata_location, version = row
    return Relation(_KINDS[kind], identifier, uuid, metadata_location, version)


def relation_with(uuid: str, row: Row) -> Relation:
    kind, namespace, name, metadata_location, version = row
    identifier = Identifier(namespace_of(namespace), name)
    return Relation(_KINDS[kind], identifier, uuid, metadata_location, version)


def key_parameters(row: KeyRow, commit_id: str | None) -> dict[str, Any]:
    return {
        "commit_id": commit_id,
        "principal": row.principal,
        "idempotency_key": row.key,
        "fingerprint": row.fingerprint,
        "status": row.status,
        "body": row.body,
        "relation_uuid": row.relation_uuid,
        "committed": row.committed,
    }


def key_of(principal: str, key: str, row: Row) -> KeyRow:
    return KeyRow(principal, key, *row)


def stream_key(uuid: str, branch: str, stream_id: str) -> dict[str, Any]:
    return {
        "uuid": text(uuid, "uuid"),
        "branch": text(branch, "branch"),
        "stream": text(stream_id, "once.id"),
    }


def stream_parameters(row: StreamRow) -> dict[str, Any]:
    check_indexable(row.branch + row.id, "once.id with the branch")
    key = stream_key(row.uuid, row.branch, row.id)
    return {**key, "epoch": row.epoch, "committed": row.committed}


def event_parameters(event: EventRow) -> dict[str, Any]:
    return {
        "uuid": event.uuid,
        "version": event.version,
        "kind": event.kind.value,
        "operation": event.operation,
        "namespace": namespace_key(event.identifier.namespace),
        "name": event.identifier.name,
        "principal": event.principal,
        "request_id": event.request_id,
        "payload": event.payload,
    }


def event_of(row: Row) -> tuple[int, EventRow]:
    position, uuid, version, kind, operation, namespace, name, principal, request_id, payload = row
    event = EventRow(
        uuid=uuid,
        version=version,
        kind=_KINDS[kind],
        operation=operation,
        identifier=Identifier(namespace_of(namespace), name),
        principal=principal,
        request_id=request_id,
        payload=payload,
    )
    return position, event

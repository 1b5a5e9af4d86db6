"""The small answers of the REST specification; `frazil.wire.json.encode` writes them.

Answers that hold a table's or view's metadata are not here: the metadata is rendered once,
cached, and sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET, Raw, Struct, UnsetType

from frazil.wire.identifiers import Identifier, Namespace
from frazil.wire.requests import TableIdentifier


class Response(Struct, frozen=True, rename="kebab"):
    """A JSON object in the body of an answer."""


class ConfigResponse(Response, frozen=True):
    defaults: Mapping[str, str]
    overrides: Mapping[str, str]
    endpoints: tuple[str, ...]
    idempotency_key_lifetime: str


class ListNamespacesResponse(Response, frozen=True):
    namespaces: tuple[Namespace, ...]
    next_page_token: str | None = None


class ListTablesResponse(Response, frozen=True):
    """Also the list of views."""

    identifiers: tuple[TableIdentifier, ...]
    next_page_token: str | None = None


class NamespaceResponse(Response, frozen=True):
    """A namespace that was created or loaded."""

    namespace: Namespace
    properties: Mapping[str, str]


class UpdateNamespacePropertiesResponse(Response, frozen=True):
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


class MinimalCommitResponse(Response, frozen=True):
    """What `Prefer: return=minimal` leaves of a commit's answer; a transaction names the table."""

    metadata_location: str
    committed: Raw
    identifier: TableIdentifier | UnsetType = UNSET
    already_committed: bool | UnsetType = UNSET
    """True where a request under `once` came again; otherwise left out."""


class MinimalTransactionResponse(Response, frozen=True):
    tables: tuple[MinimalCommitResponse, ...]


def table_identifiers(identifiers: Iterable[Identifier]) -> tuple[TableIdentifier, ...]:
    return tuple(table_identifier(identifier) for identifier in identifiers)


def table_identifier(identifier: Identifier) -> TableIdentifier:
    return TableIdentifier(identifier.namespace, identifier.name)

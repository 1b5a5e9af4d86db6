"""The requests and the small responses of the REST specification.

Requests are closed: a field that the specification does not name is an error, because ignoring it
would change what the client asked for. Only metrics reports are open: they change nothing, and a
newer client may send more metrics. Metadata objects (a schema, a view version, ...) stay raw JSON;
`format` reads the fields it knows and keeps the others.

Responses that contain the metadata of a table or view are not here: the metadata is encoded once,
cached, and sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from frazil.wire.declared_content import NULL, optional_raw
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import CommitUpdate, Once
from frazil.wire.identifiers import Identifier, Namespace, check_identifier
from frazil.wire.rest_updates import Int32, Int64, TableRequirement, ViewRequirement, ViewUpdate


class Request(Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """A JSON object in the body of a request. Unknown fields are errors."""


class TableIdentifier(Request, frozen=True):
    """The name of a table or, on the routes of views, of a view."""

    namespace: tuple[str, ...]
    name: str

    def identifier(self, what: str) -> Identifier:
        """Return the identifier after checking its names; `what` is `table` or `view`."""
        return check_identifier(self.namespace, self.name, what)


# --- namespaces ---------------------------------------------------------------------------------


class CreateNamespaceRequest(Request, frozen=True):
    namespace: tuple[str, ...]
    properties: dict[str, str] | None = None


class UpdateNamespacePropertiesRequest(Request, frozen=True):
    removals: tuple[str, ...] | None = None
    updates: dict[str, str] | None = None


# --- tables -------------------------------------------------------------------------------------


class CreateTableRequest(Request, frozen=True):
    name: str
    schema: Raw
    location: str | None = None
    partition_spec_json: Raw = field(name="partition-spec", default=NULL)
    write_order_json: Raw = field(name="write-order", default=NULL)
    stage_create: bool | None = None
    properties: dict[str, str] | None = None

    @property
    def partition_spec(self) -> Raw | None:
        return optional_raw(self.partition_spec_json)

    @property
    def write_order(self) -> Raw | None:
        return optional_raw(self.write_order_json)


class RegisterTableRequest(Request, frozen=True):
    name: str
    metadata_location: str
    overwrite: bool | None = None


class CommitTableRequest(Request, frozen=True, omit_defaults=True):
    requirements: tuple[TableRequirement, ...]
    updates: tuple[CommitUpdate, ...]
    identifier: TableIdentifier | None = None
    """Required in a transaction. On the route of a table it must match the path."""
    once: Once | None = None
    """The stream and epoch of this commit, so that it is applied only once."""


class CommitTransactionRequest(Request, frozen=True):
    table_changes: Annotated[tuple[CommitTableRequest, ...], Meta(min_length=1)]

    def identifiers(self) -> tuple[Identifier, ...]:
        """Return the table of each change, in order."""
        identifiers = []
        for index, change in enumerate(self.table_changes):
            if change.identifier is None:
                raise BadRequest(
                    f"table-changes[{index}].identifier: required in a transaction, but missing"
                )
            identifiers.append(change.identifier.identifier("table"))
        return tuple(identifiers)


class RenameTableRequest(Request, frozen=True):
    """A request to rename a table or a view."""

    source: TableIdentifier
    destination: TableIdentifier


# --- views --------------------------------------------------------------------------------------


class CreateViewRequest(Request, frozen=True):
    name: str
    schema: Raw
    view_version: Raw
    location: str | None = None
    properties: dict[str, str] | None = None


class RegisterViewRequest(Request, frozen=True):
    name: str
    metadata_location: str


class CommitViewRequest(Request, frozen=True):
    updates: tuple[ViewUpdate, ...]
    requirements: tuple[ViewRequirement, ...] = ()
    identifier: TableIdentifier | None = None


# --- metrics ------------------------------------------------------------------------------------


class Report(Struct, frozen=True, rename="kebab", tag_field="report-type"):
    """Metrics from a client. It may use any names for them."""

    table_name: str
    snapshot_id: Int64


class ScanReport(Report, frozen=True, tag="scan-report"):
    filter: Raw
    schema_id: Int32
    projected_field_ids: tuple[Int32, ...]
    projected_field_names: tuple[str, ...]
    metrics: dict[str, Raw]
    metadata: dict[str, str] | None = None


class CommitReport(Report, frozen=True, tag="commit-report"):
    sequence_number: Int64
    operation: str
    metrics: dict[str, Raw]
    metadata: dict[str, str] | None = None


ReportMetricsRequest: TypeAlias = ScanReport | CommitReport


# --- responses ----------------------------------------------------------------------------------


class Response(Struct, frozen=True, rename="kebab"):
    """A JSON object in the body of a response."""


class ConfigResponse(Response, frozen=True):
    defaults: Mapping[str, str]
    overrides: Mapping[str, str]
    endpoints: tuple[str, ...]
    idempotency_key_lifetime: str


class ListNamespacesResponse(Response, frozen=True):
    namespaces: tuple[Namespace, ...]
    next_page_token: str | None = None


class ListTablesResponse(Response, frozen=True):
    """A list of tables or of views."""

    identifiers: tuple[TableIdentifier, ...]
    next_page_token: str | None = None


class NamespaceResponse(Response, frozen=True):
    """The response to creating or loading a namespace."""

    namespace: Namespace
    properties: Mapping[str, str]


class UpdateNamespacePropertiesResponse(Response, frozen=True):
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


class MinimalCommitResponse(Response, frozen=True):
    """The response to a commit with `Prefer: return=minimal`; a transaction names the table."""

    metadata_location: str
    committed: Raw
    identifier: TableIdentifier | UnsetType = UNSET
    already_committed: bool | UnsetType = UNSET
    """True if a request with `once` was repeated; otherwise left out."""


class MinimalTransactionResponse(Response, frozen=True):
    tables: tuple[MinimalCommitResponse, ...]


def table_identifiers(identifiers: Iterable[Identifier]) -> tuple[TableIdentifier, ...]:
    return tuple(table_identifier(identifier) for identifier in identifiers)


def table_identifier(identifier: Identifier) -> TableIdentifier:
    return TableIdentifier(identifier.namespace, identifier.name)

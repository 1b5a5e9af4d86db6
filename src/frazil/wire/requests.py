"""The requests of the REST specification, as the server reads and a client writes them.

The requests are closed: a field that the specification does not name is an error, because
ignoring it would change what the client asked for. Only metrics reports are open: they change
nothing, and a newer client may measure more. Metadata objects (a schema, a view version, ...) stay
raw JSON: `format` reads what it knows of them and keeps the rest.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Raw, Struct, field

from frazil.wire.actions import CommitUpdate, Once
from frazil.wire.errors import BadRequest
from frazil.wire.identifiers import Identifier, check_identifier
from frazil.wire.updates import (
    Int32,
    Int64,
    TableRequirement,
    ViewRequirement,
    ViewUpdate,
)

_NULL = Raw(b"null")


class Request(Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """A closed JSON object in the body of a request."""


class TableIdentifier(Request, frozen=True):
    """Names a table or, on the routes of views, a view."""

    namespace: tuple[str, ...]
    name: str

    def identifier(self, what: str) -> Identifier:
        """Checked by the rules for names; `what` is `table` or `view`."""
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
    partition_spec_json: Raw = field(name="partition-spec", default=_NULL)
    write_order_json: Raw = field(name="write-order", default=_NULL)
    stage_create: bool | None = None
    properties: dict[str, str] | None = None

    @property
    def partition_spec(self) -> Raw | None:
        return _given(self.partition_spec_json)

    @property
    def write_order(self) -> Raw | None:
        return _given(self.write_order_json)


class RegisterTableRequest(Request, frozen=True):
    name: str
    metadata_location: str
    overwrite: bool | None = None


class CommitTableRequest(Request, frozen=True, omit_defaults=True):
    requirements: tuple[TableRequirement, ...]
    updates: tuple[CommitUpdate, ...]
    identifier: TableIdentifier | None = None
    """Needed inside a transaction; on a table's own route it must agree with the path."""
    once: Once | None = None
    """The stream and epoch that this commit carries, so that it is applied only once."""


class CommitTransactionRequest(Request, frozen=True):
    table_changes: Annotated[tuple[CommitTableRequest, ...], Meta(min_length=1)]

    def identifiers(self) -> tuple[Identifier, ...]:
        """The table of each change, in order."""
        return tuple(
            _identifier_of(change, f"table-changes[{index}]")
            for index, change in enumerate(self.table_changes)
        )


class RenameTableRequest(Request, frozen=True):
    """Also the request to rename a view."""

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
    """What a client measured. The names of its metrics are open."""

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


def _given(raw: Raw) -> Raw | None:
    """An optional object: clients leave it out or send null."""
    return None if bytes(raw) == b"null" else raw


def _identifier_of(change: CommitTableRequest, place: str) -> Identifier:
    if change.identifier is None:
        raise BadRequest(f"{place}.identifier: required in a transaction, but missing")
    return change.identifier.identifier("table")

"""Iceberg's updates and requirements of tables and views, as commit requests contain them.

Metadata objects inside an update (a schema, a snapshot, ...) stay raw JSON; `format` reads the
fields it knows and keeps the others. The update itself is closed: an unknown field is an error,
because ignoring it would change the meaning of the update.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Raw, Struct

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Update(Struct, frozen=True, rename="kebab", tag_field="action", forbid_unknown_fields=True):
    """A change to the metadata of a table or view."""


class AssignUUID(Update, frozen=True, tag="assign-uuid"):
    uuid: str


class UpgradeFormatVersion(Update, frozen=True, tag="upgrade-format-version"):
    format_version: Int32


class AddSchema(Update, frozen=True, tag="add-schema"):
    schema: Raw
    last_column_id: Int32 | None = None
    """Deprecated in the specification, because the server computes it. Accepted but not used."""


class SetCurrentSchema(Update, frozen=True, tag="set-current-schema"):
    schema_id: Int32


class AddPartitionSpec(Update, frozen=True, tag="add-spec"):
    spec: Raw


class SetDefaultSpec(Update, frozen=True, tag="set-default-spec"):
    spec_id: Int32


class AddSortOrder(Update, frozen=True, tag="add-sort-order"):
    sort_order: Raw


class SetDefaultSortOrder(Update, frozen=True, tag="set-default-sort-order"):
    sort_order_id: Int32


class AddSnapshot(Update, frozen=True, tag="add-snapshot"):
    snapshot: Raw


class SetSnapshotRef(Update, frozen=True, tag="set-snapshot-ref", omit_defaults=True):
    ref_name: str
    type: str
    snapshot_id: Int64
    max_ref_age_ms: Int64 | None = None
    max_snapshot_age_ms: Int64 | None = None
    min_snapshots_to_keep: Int32 | None = None


class RemoveSnapshots(Update, frozen=True, tag="remove-snapshots"):
    snapshot_ids: tuple[Int64, ...]


class RemoveSnapshotRef(Update, frozen=True, tag="remove-snapshot-ref"):
    ref_name: str


class SetLocation(Update, frozen=True, tag="set-location"):
    location: str


class SetProperties(Update, frozen=True, tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(Update, frozen=True, tag="remove-properties"):
    removals: tuple[str, ...]


class SetStatistics(Update, frozen=True, tag="set-statistics"):
    statistics: Raw
    snapshot_id: Int64 | None = None
    """Deprecated in the specification. It must match the one inside `statistics`."""


class RemoveStatistics(Update, frozen=True, tag="remove-statistics"):
    snapshot_id: Int64


class SetPartitionStatistics(Update, frozen=True, tag="set-partition-statistics"):
    partition_statistics: Raw


class RemovePartitionStatistics(Update, frozen=True, tag="remove-partition-statistics"):
    snapshot_id: Int64


class RemovePartitionSpecs(Update, frozen=True, tag="remove-partition-specs"):
    spec_ids: tuple[Int32, ...]


class RemoveSchemas(Update, frozen=True, tag="remove-schemas"):
    schema_ids: tuple[Int32, ...]


class AddEncryptionKey(Update, frozen=True, tag="add-encryption-key"):
    encryption_key: Raw


class RemoveEncryptionKey(Update, frozen=True, tag="remove-encryption-key"):
    key_id: str


class AddViewVersion(Update, frozen=True, tag="add-view-version"):
    view_version: Raw


class SetCurrentViewVersion(Update, frozen=True, tag="set-current-view-version"):
    view_version_id: Int32


TableUpdate: TypeAlias = (
    AssignUUID
    | UpgradeFormatVersion
    | AddSchema
    | SetCurrentSchema
    | AddPartitionSpec
    | SetDefaultSpec
    | AddSortOrder
    | SetDefaultSortOrder
    | AddSnapshot
    | SetSnapshotRef
    | RemoveSnapshots
    | RemoveSnapshotRef
    | SetLocation
    | SetProperties
    | RemoveProperties
    | SetStatistics
    | RemoveStatistics
    | SetPartitionStatistics
    | RemovePartitionStatistics
    | RemovePartitionSpecs
    | RemoveSchemas
    | AddEncryptionKey
    | RemoveEncryptionKey
)

ViewUpdate: TypeAlias = (
    AssignUUID
    | UpgradeFormatVersion
    | AddSchema
    | SetLocation
    | SetProperties
    | RemoveProperties
    | AddViewVersion
    | SetCurrentViewVersion
)


class Requirement(
    Struct, frozen=True, rename="kebab", tag_field="type", forbid_unknown_fields=True
):
    """A condition on the current metadata under which the commit is applied."""


class AssertCreate(Requirement, frozen=True, tag="assert-create"):
    pass


class AssertTableUUID(Requirement, frozen=True, tag="assert-table-uuid"):
    uuid: str


class AssertRefSnapshotId(Requirement, frozen=True, tag="assert-ref-snapshot-id"):
    ref: str
    snapshot_id: Int64 | None = None
    """None: the ref must not exist."""


class AssertLastAssignedFieldId(Requirement, frozen=True, tag="assert-last-assigned-field-id"):
    last_assigned_field_id: Int32


class AssertCurrentSchemaId(Requirement, frozen=True, tag="assert-current-schema-id"):
    current_schema_id: Int32


class AssertLastAssignedPartitionId(
    Requirement, frozen=True, tag="assert-last-assigned-partition-id"
):
    last_assigned_partition_id: Int32


class AssertDefaultSpecId(Requirement, frozen=True, tag="assert-default-spec-id"):
    default_spec_id: Int32


class AssertDefaultSortOrderId(Requirement, frozen=True, tag="assert-default-sort-order-id"):
    default_sort_order_id: Int32


class AssertViewUUID(Requirement, frozen=True, tag="assert-view-uuid"):
    uuid: str


TableRequirement: TypeAlias = (
    AssertCreate
    | AssertTableUUID
    | AssertRefSnapshotId
    | AssertLastAssignedFieldId
    | AssertCurrentSchemaId
    | AssertLastAssignedPartitionId
    | AssertDefaultSpecId
    | AssertDefaultSortOrderId
)

ViewRequirement: TypeAlias = AssertViewUUID

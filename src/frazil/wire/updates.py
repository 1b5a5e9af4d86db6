"""Iceberg's table and view updates and requirements, as a commit request carries them.

Metadata objects inside an update (a schema, a snapshot, ...) stay raw JSON here: `format` reads
what it knows of them and keeps the rest untouched. The update around them is closed: a field
that the specification does not name is an error, because ignoring it would change its meaning.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Raw, Struct

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Update(
    Struct, frozen=True, rename="kebab", tag_field="action", forbid_unknown_fields=True
):
    """One change to a table's or view's metadata."""


class AssignUUID(Update, tag="assign-uuid"):
    uuid: str


class UpgradeFormatVersion(Update, tag="upgrade-format-version"):
    format_version: Int32


class AddSchema(Update, tag="add-schema"):
    schema: Raw
    last_column_id: Int32 | None = None
    """Deprecated in the specification: the server computes it. Accepted, not used."""


class SetCurrentSchema(Update, tag="set-current-schema"):
    schema_id: Int32


class AddPartitionSpec(Update, tag="add-spec"):
    spec: Raw


class SetDefaultSpec(Update, tag="set-default-spec"):
    spec_id: Int32


class AddSortOrder(Update, tag="add-sort-order"):
    sort_order: Raw


class SetDefaultSortOrder(Update, tag="set-default-sort-order"):
    sort_order_id: Int32


class AddSnapshot(Update, tag="add-snapshot"):
    snapshot: Raw


class SetSnapshotRef(Update, tag="set-snapshot-ref"):
    ref_name: str
    type: str
    snapshot_id: Int64
    max_ref_age_ms: Int64 | None = None
    max_snapshot_age_ms: Int64 | None = None
    min_snapshots_to_keep: Int32 | None = None


class RemoveSnapshots(Update, tag="remove-snapshots"):
    snapshot_ids: tuple[Int64, ...]


class RemoveSnapshotRef(Update, tag="remove-snapshot-ref"):
    ref_name: str


class SetLocation(Update, tag="set-location"):
    location: str


class SetProperties(Update, tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(Update, tag="remove-properties"):
    removals: tuple[str, ...]


class SetStatistics(Update, tag="set-statistics"):
    statistics: Raw
    snapshot_id: Int64 | None = None
    """Deprecated in the specification: must agree with the one inside `statistics`."""


class RemoveStatistics(Update, tag="remove-statistics"):
    snapshot_id: Int64


class SetPartitionStatistics(Update, tag="set-partition-statistics"):
    partition_statistics: Raw


class RemovePartitionStatistics(Update, tag="remove-partition-statistics"):
    snapshot_id: Int64


class RemovePartitionSpecs(Update, tag="remove-partition-specs"):
    spec_ids: tuple[Int32, ...]


class RemoveSchemas(Update, tag="remove-schemas"):
    schema_ids: tuple[Int32, ...]


class AddEncryptionKey(Update, tag="add-encryption-key"):
    encryption_key: Raw


class RemoveEncryptionKey(Update, tag="remove-encryption-key"):
    key_id: str


class AddViewVersion(Update, tag="add-view-version"):
    view_version: Raw


class SetCurrentViewVersion(Update, tag="set-current-view-version"):
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
    """Something that must hold on the head for the commit to be applied."""


class AssertCreate(Requirement, tag="assert-create"):
    pass


class AssertTableUUID(Requirement, tag="assert-table-uuid"):
    uuid: str


class AssertRefSnapshotId(Requirement, tag="assert-ref-snapshot-id"):
    ref: str
    snapshot_id: Int64 | None = None
    """None: the ref must not exist."""


class AssertLastAssignedFieldId(Requirement, tag="assert-last-assigned-field-id"):
    last_assigned_field_id: Int32


class AssertCurrentSchemaId(Requirement, tag="assert-current-schema-id"):
    current_schema_id: Int32


class AssertLastAssignedPartitionId(Requirement, tag="assert-last-assigned-partition-id"):
    last_assigned_partition_id: Int32


class AssertDefaultSpecId(Requirement, tag="assert-default-spec-id"):
    default_spec_id: Int32


class AssertDefaultSortOrderId(Requirement, tag="assert-default-sort-order-id"):
    default_sort_order_id: Int32


class AssertViewUUID(Requirement, tag="assert-view-uuid"):
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

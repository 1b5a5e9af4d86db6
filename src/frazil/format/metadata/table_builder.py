"""Builds table metadata: checks requirements, applies updates, creates new tables.

Every function is pure, so a retry applies the same request to newer metadata. Mirrors Java's
`UpdateRequirement`, `MetadataUpdate.applyTo` and `TableMetadata.Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from frazil.format.metadata import table_updates
from frazil.format.metadata.partition_spec import (
    UNPARTITIONED,
    check_known_transforms,
    freshen_partition_spec,
    parse_partition_spec,
)
from frazil.format.metadata.schema import assign_fresh_ids
from frazil.format.metadata.snapshots import metadata_log_entry
from frazil.format.metadata.sort_order import UNSORTED, freshen_sort_order, parse_sort_order
from frazil.format.metadata.table_metadata import (
    DEFAULT_FORMAT_VERSION,
    MAX_FORMAT_VERSION,
    MIN_FORMAT_VERSION,
    MIN_FORMAT_VERSION_ROW_LINEAGE,
    TableMetadata,
)
from frazil.format.metadata.table_properties import (
    METADATA_PREVIOUS_VERSIONS_MAX,
    check_property_values,
    parse_int,
)
from frazil.format.metadata.table_state import TableState, build
from frazil.format.metadata.table_updates import (
    FORMAT_VERSION_PROPERTY,
    parse_format_version,
    unreserved,
)
from frazil.wire import rest_updates as wire
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.file_actions import CommitUpdate
from frazil.wire.frazil_properties import check_table_properties
from frazil.wire.rest_updates import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

PREVIOUS_VERSIONS_MAX_DEFAULT = 100

_NEW_TABLE_PROPERTIES = {"write.parquet.compression-codec": "zstd"}
"""Defaults that Java writes only into new tables."""

_ENCRYPTION_PROPERTIES = ("encryption.key-id", "encryption.data-key-length")

_APPLY: dict[type[Any], Callable[[TableState, Any], None]] = {
    wire.AssignUUID: table_updates.assign_uuid,
    wire.UpgradeFormatVersion: table_updates.upgrade_format_version,
    wire.SetLocation: table_updates.set_location,
    wire.SetProperties: table_updates.set_properties,
    wire.RemoveProperties: table_updates.remove_properties,
    wire.AddSchema: table_updates.add_schema,
    wire.SetCurrentSchema: table_updates.set_current_schema,
    wire.RemoveSchemas: table_updates.remove_schemas,
    wire.AddPartitionSpec: table_updates.add_partition_spec,
    wire.SetDefaultSpec: table_updates.set_default_spec,
    wire.RemovePartitionSpecs: table_updates.remove_partition_specs,
    wire.AddSortOrder: table_updates.add_sort_order,
    wire.SetDefaultSortOrder: table_updates.set_default_sort_order,
    wire.AddSnapshot: table_updates.add_snapshot,
    wire.SetSnapshotRef: table_updates.set_snapshot_ref,
    wire.RemoveSnapshotRef: table_updates.remove_snapshot_ref,
    wire.RemoveSnapshots: table_updates.remove_snapshots,
    wire.SetStatistics: table_updates.set_statistics,
    wire.RemoveStatistics: table_updates.remove_statistics,
    wire.SetPartitionStatistics: table_updates.set_partition_statistics,
    wire.RemovePartitionStatistics: table_updates.remove_partition_statistics,
    wire.AddEncryptionKey: table_updates.add_encryption_key,
    wire.RemoveEncryptionKey: table_updates.remove_encryption_key,
}


def apply_update(state: TableState, update: TableUpdate) -> None:
    """Apply one of Iceberg's updates."""
    _APPLY[type(update)](state, update)


def empty_state(updates: Sequence[CommitUpdate], *, now_ms: int) -> TableState:
    """Return the empty state for a commit with assert-create, in the format version it requests."""
    versions = [u.format_version for u in updates if isinstance(u, wire.UpgradeFormatVersion)]
    version = versions[0] if versions else DEFAULT_FORMAT_VERSION
    _check_format_version(version, "upgrade-format-version.format-version")
    return TableState.empty(version, now_ms=now_ms)


def new_table(
    *,
    schema: bytes | Raw,
    spec: bytes | Raw | None,
    order: bytes | Raw | None,
    location: str,
    properties: Mapping[str, str],
    uuid: str,
    now_ms: int,
) -> TableMetadata:
    """Return the metadata of a new table with new field ids, as Java's newTableMetadata does."""
    field = f"properties.{FORMAT_VERSION_PROPERTY}"
    version_text = properties.get(FORMAT_VERSION_PROPERTY, str(DEFAULT_FORMAT_VERSION))
    version = parse_format_version(version_text, field)
    _check_format_version(version, field)
    _check_new_table_properties(properties, version)

    fresh_schema, new_ids = assign_fresh_ids(schema)
    sent_spec = UNPARTITIONED if spec is None else parse_partition_spec(spec)
    sent_order = UNSORTED if order is None else parse_sort_order(order, "write-order")
    check_known_transforms([part.transform for part in sent_order.fields], "write-order")

    state = TableState.empty(version, now_ms=now_ms)
    updates: list[TableUpdate] = [
        wire.AssignUUID(uuid),
        wire.SetLocation(location),
        wire.AddSchema(Raw(fresh_schema.raw)),
        wire.SetCurrentSchema(table_updates.LAST_ADDED),
        wire.AddPartitionSpec(Raw(freshen_partition_spec(sent_spec, new_ids).raw)),
        wire.SetDefaultSpec(table_updates.LAST_ADDED),
        wire.AddSortOrder(Raw(freshen_sort_order(sent_order, new_ids).raw)),
        wire.SetDefaultSortOrder(table_updates.LAST_ADDED),
    ]
    for update in updates:
        apply_update(state, update)
    state.properties = _NEW_TABLE_PROPERTIES | unreserved(properties)
    return build(state)


def _check_format_version(version: int, field: str) -> None:
    if not MIN_FORMAT_VERSION <= version <= MAX_FORMAT_VERSION:
        raise BadRequest(
            f"{field}: Unsupported format version: v{version} (supported: v{MIN_FORMAT_VERSION} "
            f"to v{MAX_FORMAT_VERSION})"
        )


def _check_new_table_properties(properties: Mapping[str, str], version: int) -> None:
    """Check properties, among others as Java's EncryptionUtil.checkCompatibility does."""
    check_property_values(properties)
    check_table_properties(properties, {})
    if version < MIN_FORMAT_VERSION_ROW_LINEAGE:
        invalid = [name for name in _ENCRYPTION_PROPERTIES if name in properties]
        if invalid:
            raise BadRequest(f"Invalid properties for v{version}: {', '.join(invalid)}")


def with_previous_file(
    metadata: TableMetadata, previous_location: str, previous_last_updated_ms: int
) -> TableMetadata:
    """Return the metadata with a new entry in its metadata log, and without the oldest entries."""
    excess = _excess(metadata)
    entry = metadata_log_entry(previous_last_updated_ms, previous_location)
    return replace(metadata, metadata_log=metadata.metadata_log.drop_first(excess).append(entry))


def dropped_from_metadata_log(before: TableMetadata, after: TableMetadata) -> tuple[str, ...]:
    """Return the metadata files that a commit removed from the log.

    With write.metadata.delete-after-commit.enabled they are deleted after the commit, as in Java's
    CatalogUtil.deleteRemovedMetadataFiles.
    """
    kept = {entry.metadata_file for entry in after.metadata_log.bare_items()}
    return tuple(
        entry.metadata_file
        for entry in before.metadata_log.bare_items()
        if entry.metadata_file not in kept
    )


def _excess(metadata: TableMetadata) -> int:
    """Return how many entries to remove before adding one."""
    text = metadata.properties.get(METADATA_PREVIOUS_VERSIONS_MAX, "")
    value = parse_int(text)
    kept = max(1, PREVIOUS_VERSIONS_MAX_DEFAULT if value is None else value)
    return max(0, len(metadata.metadata_log) - kept + 1)


def check_requirements(
    metadata: TableMetadata | None, requirements: Sequence[TableRequirement]
) -> None:
    """Raise CommitFailed for the first failed requirement. Without metadata there is no table.

    The compatibility kit and clients read these messages, so they are exactly those of Java.
    """
    creates = any(isinstance(requirement, AssertCreate) for requirement in requirements)
    if creates and len({type(requirement) for requirement in requirements}) > 1:
        raise BadRequest("requirements: assert-create cannot stand beside other requirements")
    for requirement in requirements:
        if isinstance(requirement, AssertCreate):
            if metadata is not None:
                raise CommitFailed("Requirement failed: table already exists")
        elif metadata is None:
            raise CommitFailed("Requirement failed: table does not exist")
        else:
            _CHECKS[type(requirement)](metadata, requirement)


def _table_uuid(metadata: TableMetadata, requirement: AssertTableUUID) -> None:
    if (metadata.table_uuid or "").lower() != requirement.uuid.lower():
        raise CommitFailed(
            f"Requirement failed: UUID does not match: expected {metadata.table_uuid} "
            f"!= {requirement.uuid}"
        )


def _ref_snapshot_id(metadata: TableMetadata, requirement: AssertRefSnapshotId) -> None:
    name, expected = requirement.ref, requirement.snapshot_id
    ref = metadata.ref(name)
    if ref is None:
        if expected is not None:
            raise CommitFailed(
                f"Requirement failed: branch or tag {name} is missing, expected {expected}"
            )
    elif expected is None:
        raise CommitFailed(f"Requirement failed: {ref.type} {name} was created concurrently")
    elif expected != ref.snapshot_id:
        raise CommitFailed(
            f"Requirement failed: {ref.type} {name} has changed: expected id {expected} "
            f"!= {ref.snapshot_id}"
        )


_SAME_IDS: dict[type[Any], tuple[str, str, str]] = {
    AssertLastAssignedFieldId: (
        *("last assigned field id", "last_assigned_field_id", "last_column_id"),
    ),
    AssertCurrentSchemaId: ("current schema", "current_schema_id", "current_schema_id"),
    AssertLastAssignedPartitionId: (
        *("last assigned partition id", "last_assigned_partition_id", "last_partition_id"),
    ),
    AssertDefaultSpecId: ("default partition spec", "default_spec_id", "default_spec_id"),
    AssertDefaultSortOrderId: (
        *("default sort order", "default_sort_order_id", "default_sort_order_id"),
    ),
}
"""What messages call the id of a requirement, and its names in the requirement and in metadata."""


def _same_id(metadata: TableMetadata, requirement: TableRequirement) -> None:
    what, required_name, own_name = _SAME_IDS[type(requirement)]
    expected, actual = getattr(requirement, required_name), getattr(metadata, own_name)
    if expected != actual:
        raise CommitFailed(
            f"Requirement failed: {what} changed: expected id {expected} != {actual}"
        )


_CHECKS: dict[type[Any], Callable[[TableMetadata, Any], None]] = {
    AssertTableUUID: _table_uuid,
    AssertRefSnapshotId: _ref_snapshot_id,
    **dict.fromkeys(_SAME_IDS, _same_id),
}

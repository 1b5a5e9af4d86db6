"""Requirements of a commit, checked against the head as Java's UpdateRequirement does.

The compatibility kit and clients read these messages, so they are Java's word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frazil.format.metadata.table_metadata import TableMetadata
from frazil.wire.errors import BadRequest, CommitFailed
from frazil.wire.updates import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)


def check_requirements(
    metadata: TableMetadata | None, requirements: Sequence[TableRequirement]
) -> None:
    """Raise CommitFailed for the first requirement that does not hold; None: there is no table."""
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


def _last_assigned_field_id(
    metadata: TableMetadata, requirement: AssertLastAssignedFieldId
) -> None:
    _same("last assigned field id", requirement.last_assigned_field_id, metadata.last_column_id)


def _current_schema_id(metadata: TableMetadata, requirement: AssertCurrentSchemaId) -> None:
    _same("current schema", requirement.current_schema_id, metadata.current_schema_id)


def _last_assigned_partition_id(
    metadata: TableMetadata, requirement: AssertLastAssignedPartitionId
) -> None:
    _same(
        "last assigned partition id",
        requirement.last_assigned_partition_id,
        metadata.last_partition_id,
    )


def _default_spec_id(metadata: TableMetadata, requirement: AssertDefaultSpecId) -> None:
    _same("default partition spec", requirement.default_spec_id, metadata.default_spec_id)


def _default_sort_order_id(metadata: TableMetadata, requirement: AssertDefaultSortOrderId) -> None:
    _same("default sort order", requirement.default_sort_order_id, metadata.default_sort_order_id)


def _same(what: str, expected: int, actual: int) -> None:
    if expected != actual:
        raise CommitFailed(
            f"Requirement failed: {what} changed: expected id {expected} != {actual}"
        )


_CHECKS: dict[type[Any], Callable[[TableMetadata, Any], None]] = {
    AssertTableUUID: _table_uuid,
    AssertRefSnapshotId: _ref_snapshot_id,
    AssertLastAssignedFieldId: _last_assigned_field_id,
    AssertCurrentSchemaId: _current_schema_id,
    AssertLastAssignedPartitionId: _last_assigned_partition_id,
    AssertDefaultSpecId: _default_spec_id,
    AssertDefaultSortOrderId: _default_sort_order_id,
}

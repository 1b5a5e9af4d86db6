"""What may be staged beside snapshots that the server has not made yet, and how it is asserted."""

from __future__ import annotations

from collections.abc import Set

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from frazil.pyiceberg.pending import StagedRef


def subject(requirement: TableRequirement) -> tuple[type, str | None]:
    """What a requirement is about: for refs, each ref by itself."""
    return type(requirement), getattr(requirement, "ref", None)


def on_base(requirement: TableRequirement, base: TableMetadata) -> TableRequirement:
    """The same about the table as it was read: staged snapshots have no id on the server."""
    if not isinstance(requirement, AssertRefSnapshotId):
        return requirement
    ref = base.refs.get(requirement.ref)
    head_id = None if ref is None else ref.snapshot_id
    return AssertRefSnapshotId.model_validate({"ref": requirement.ref, "snapshot-id": head_id})


def refuse_staged_ids(update: TableUpdate, staged: Set[int]) -> None:
    """Refuses an update that names a snapshot of its own transaction."""
    named = _named_snapshots(update) & staged
    if named:
        raise ValueError(
            f"snapshot {min(named)} is staged in this transaction, and the server gives it its id "
            "when it commits: commit first, then refer to it"
        )


def _named_snapshots(update: TableUpdate) -> Set[int]:
    match update:
        case StagedRef():
            return frozenset()
        case SetSnapshotRefUpdate(snapshot_id=snapshot_id):
            return {snapshot_id}
        case SetStatisticsUpdate(statistics=statistics):
            return {statistics.snapshot_id}
        case SetPartitionStatisticsUpdate(partition_statistics=statistics):
            return {statistics.snapshot_id}
        case RemoveSnapshotsUpdate(snapshot_ids=snapshot_ids):
            return set(snapshot_ids)
    return frozenset()

"""Snapshots that a transaction has staged and the server has not made yet.

Later operations of the transaction read them as they read any snapshot: their manifests are made
when asked for, in memory, out of the parent's manifests and of what was added and removed. Nothing
is written, and none of their ids leaves the process: the server gives out its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

from pydantic import PrivateAttr
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    construct_partition_summaries,
)
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetPartitionStatisticsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from frazil.pyiceberg.file_declarations import spec_id_of
from frazil.wire.file_actions import FileUpdate

PATH_PREFIX: Final = "frazil-pending:"
"""Where the manifests of a staged snapshot would be: nowhere."""

Leaves = Callable[[DataFile], bool]
"""Whether a data file of the parent leaves the table."""


class PendingSnapshot(Snapshot):
    """A snapshot of which only the changes are known."""

    _parent: Snapshot | None = PrivateAttr(default=None)
    _added: tuple[ManifestFile, ...] = PrivateAttr(default=())
    _leaves: Leaves | None = PrivateAttr(default=None)

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        parent: Snapshot | None,
        *,
        snapshot_id: int,
        added: Sequence[DataFile],
        leaves: Leaves | None,
        summary: Any,
    ) -> PendingSnapshot:
        pending = cls.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": None if parent is None else parent.snapshot_id,
                "manifest-list": f"{PATH_PREFIX}{snapshot_id}",
                "sequence-number": metadata.next_sequence_number(),
                "summary": summary,
                "schema-id": metadata.current_schema_id,
                **_row_ids(metadata, added),
            }
        )
        pending._parent = parent
        pending._added = tuple(_added_manifests(pending, added, metadata))
        pending._leaves = leaves
        return pending

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> PendingSnapshot:
        return self

    @property
    def committed_ancestor(self) -> Snapshot | None:
        """What the transaction has read from the catalog: the base of all it stages."""
        snapshot: Snapshot | None = self
        while isinstance(snapshot, PendingSnapshot):
            snapshot = snapshot._parent
        return snapshot

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        inherited = [] if self._parent is None else self._parent.manifests(io)
        leaves = self._leaves
        if leaves is not None:
            inherited = [
                RemainingManifest(manifest, leaves, self.snapshot_id)
                if manifest.content == ManifestContent.DATA
                else manifest
                for manifest in inherited
            ]
        return [*self._added, *inherited]


class AddedManifest(ManifestFile):
    """The files that a staged snapshot adds, of one partition spec."""

    def __init__(
        self, manifest: ManifestFile, files: Sequence[DataFile], snapshot: PendingSnapshot
    ) -> None:
        super().__init__(*manifest._data)
        self._files = tuple(files)
        self._snapshot = snapshot

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot.snapshot_id,
                sequence_number=self._snapshot.sequence_number,
                file_sequence_number=self._snapshot.sequence_number,
                data_file=file,
            )
            for file in self._files
        ]


class RemainingManifest(ManifestFile):
    """A manifest without the files that a staged snapshot removes."""

    def __init__(self, whole: ManifestFile, leaves: Leaves, snapshot_id: int) -> None:
        super().__init__(*whole._data)
        # Another path, because PyIceberg holds manifests of one path to be the same.
        self._data[0] = f"{whole.manifest_path}#{PATH_PREFIX}{snapshot_id}"
        self._whole = whole
        self._leaves = leaves

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        entries = self._whole.fetch_manifest_entry(io, discard_deleted)
        return [entry for entry in entries if not self._leaves(entry.data_file)]


class StagedChange(AddSnapshotUpdate):
    """One producer's change: in memory a snapshot, on the wire a fine-grained update."""

    _wire: FileUpdate = PrivateAttr()
    _removed: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def of(
        cls, snapshot: PendingSnapshot, wire: FileUpdate, removed: Iterable[str] = ()
    ) -> StagedChange:
        staged = cls(snapshot=snapshot)
        staged._wire = wire
        staged._removed = frozenset(removed)
        return staged

    @property
    def wire(self) -> FileUpdate:
        return self._wire

    @property
    def removed_paths(self) -> frozenset[str]:
        return self._removed

    @property
    def added_paths(self) -> list[str]:
        added = getattr(self._wire, "add_data_files", ())
        return [file.file_path for file in added]


class StagedRef(SetSnapshotRefUpdate):
    """Moves the branch in memory; on the server the change itself does."""


def _row_ids(metadata: TableMetadata, added: Sequence[DataFile]) -> dict[str, int]:
    """What format version 3 asks of a snapshot; the server gives out the real ids."""
    if not isinstance(metadata, TableMetadataV3):
        return {}
    return {
        "first-row-id": metadata.next_row_id or 0,
        "added-rows": sum(file.record_count for file in added),
    }


def _added_manifests(
    snapshot: PendingSnapshot, added: Sequence[DataFile], metadata: TableMetadata
) -> Iterable[ManifestFile]:
    by_spec: dict[int, list[DataFile]] = {}
    for file in added:
        spec_id = spec_id_of(file, metadata)
        file.spec_id = spec_id
        by_spec.setdefault(spec_id, []).append(file)
    for spec_id, files in by_spec.items():
        manifest = ManifestFile.from_args(
            manifest_path=f"{PATH_PREFIX}{snapshot.snapshot_id}/{spec_id}",
            manifest_length=0,
            partition_spec_id=spec_id,
            content=ManifestContent.DATA,
            sequence_number=snapshot.sequence_number,
            min_sequence_number=snapshot.sequence_number,
            added_snapshot_id=snapshot.snapshot_id,
            added_files_count=len(files),
            existing_files_count=0,
            deleted_files_count=0,
            added_rows_count=sum(file.record_count for file in files),
            existing_rows_count=0,
            deleted_rows_count=0,
            partitions=construct_partition_summaries(
                metadata.specs()[spec_id], metadata.schema(), [file.partition for file in files]
            ),
            key_metadata=None,
        )
        yield AddedManifest(manifest, files, snapshot)


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


def with_updates(base: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Shares with the base whatever did not change: metadata is never changed in place."""
    if not updates:
        return base
    context = _TableMetadataUpdateContext()
    metadata = base
    for update in updates:
        if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == 3:
            metadata = _upgraded_to_3(metadata)
        else:
            metadata = _apply_table_update(update, metadata, context)
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _upgraded_to_3(metadata: TableMetadata) -> TableMetadata:
    if metadata.format_version == 3:
        return metadata
    if metadata.format_version == 1:
        # PyIceberg knows what version 1 leaves out.
        second: dict[str, Any] = {"format_version": 2}
        metadata = TableMetadataUtil._construct_without_validation(
            metadata.model_copy(update=second)
        )
    kept = {name: value for name, value in dict(metadata).items() if name in _V3_FIELDS}
    return TableMetadataV3.model_construct(**{**kept, "format_version": 3, "next_row_id": 0})


_V3_FIELDS = frozenset(TableMetadataV3.model_fields)

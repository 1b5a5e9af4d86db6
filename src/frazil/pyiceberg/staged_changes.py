"""Snapshots that a transaction has staged and the server has not created yet.

Later operations of the transaction read them like any snapshot. Their manifests are built in
memory, from the parent's manifests and the added and removed files. Nothing is written, and their
ids never leave the process, because the server assigns its own.
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

from frazil.pyiceberg.wire_conversion import spec_id_of
from frazil.wire.file_actions import FileUpdate

PATH_PREFIX: Final = "frazil-pending:"
"""Prefix of the paths of staged manifests, which do not exist."""

_V3_FIELDS: Final = frozenset(TableMetadataV3.model_fields)

IsRemoved = Callable[[DataFile], bool]
"""Returns whether a data file of the parent is removed from the table."""


class PendingSnapshot(Snapshot):
    """A staged snapshot: a parent, and the files added and removed."""

    _parent: Snapshot | None = PrivateAttr(default=None)
    _added: tuple[ManifestFile, ...] = PrivateAttr(default=())
    _is_removed: IsRemoved | None = PrivateAttr(default=None)

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        parent: Snapshot | None,
        *,
        snapshot_id: int,
        added: Sequence[DataFile],
        is_removed: IsRemoved | None,
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
        pending._is_removed = is_removed
        return pending

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> PendingSnapshot:
        return self

    @property
    def committed_ancestor(self) -> Snapshot | None:
        """Return the snapshot that was loaded from the catalog, the base of the transaction."""
        snapshot: Snapshot | None = self
        while isinstance(snapshot, PendingSnapshot):
            snapshot = snapshot._parent
        return snapshot

    def manifests(self, io: FileIO) -> list[ManifestFile]:
        inherited = [] if self._parent is None else self._parent.manifests(io)
        is_removed = self._is_removed
        if is_removed is not None:
            inherited = [
                RemainingManifest(manifest, is_removed, self.snapshot_id)
                if manifest.content == ManifestContent.DATA
                else manifest
                for manifest in inherited
            ]
        return [*self._added, *inherited]


class AddedManifest(ManifestFile):
    """A manifest of the files that a staged snapshot adds, for one partition spec."""

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

    def __init__(self, whole: ManifestFile, is_removed: IsRemoved, snapshot_id: int) -> None:
        super().__init__(*whole._data)
        # Change the path, because PyIceberg treats manifests with the same path as equal.
        self._data[0] = f"{whole.manifest_path}#{PATH_PREFIX}{snapshot_id}"
        self._whole = whole
        self._is_removed = is_removed

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        entries = self._whole.fetch_manifest_entry(io, discard_deleted)
        return [entry for entry in entries if not self._is_removed(entry.data_file)]


class StagedChange(AddSnapshotUpdate):
    """The change of one producer: a snapshot in memory, a fine-grained update on the wire."""

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
    """Moves the branch in memory. On the server the change itself moves it."""


def _row_ids(metadata: TableMetadata, added: Sequence[DataFile]) -> dict[str, int]:
    """Return the row ids that format version 3 requires; the server assigns the real ones."""
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


def requirement_on_base(requirement: TableRequirement, base: TableMetadata) -> TableRequirement:
    """Return the requirement for the table as it was read: the server knows no staged snapshot."""
    if not isinstance(requirement, AssertRefSnapshotId):
        return requirement
    ref = base.refs.get(requirement.ref)
    head_id = None if ref is None else ref.snapshot_id
    return AssertRefSnapshotId.model_validate({"ref": requirement.ref, "snapshot-id": head_id})


def refuse_staged_ids(update: TableUpdate, staged: Set[int]) -> None:
    """Refuse an update that names a snapshot staged in its own transaction."""
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
    """Apply updates to metadata in memory; unchanged parts are shared with the base.

    PyIceberg's `update_table_metadata` copies all snapshots at every call, and does not support
    format version 3.
    """
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
        # PyIceberg adds the fields that version 1 lacks.
        second: dict[str, Any] = {"format_version": 2}
        metadata = TableMetadataUtil._construct_without_validation(
            metadata.model_copy(update=second)
        )
    kept = {name: value for name, value in dict(metadata).items() if name in _V3_FIELDS}
    return TableMetadataV3.model_construct(**{**kept, "format_version": 3, "next_row_id": 0})

"""What other writers have committed to a branch between a base and its head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.avro.file import AvroFile
from pyiceberg.exceptions import ValidationException
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

INITIAL_SEQUENCE_NUMBER = 0
# The reader's own version leaves out `referenced_data_file` and the place of a deletion vector.
_FULL_ENTRY = MANIFEST_ENTRY_SCHEMAS[3]


class EntryReader:
    """Entries of manifests, each read once: manifests never change, a window only grows."""

    def __init__(self, io: FileIO) -> None:
        self.io = io
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = tuple(self._read(manifest))
        return self._entries[path]

    def manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        return snapshot.manifests(self.io)

    def _read(self, manifest: ManifestFile) -> Iterator[ManifestEntry]:
        with AvroFile[ManifestEntry](
            self.io.new_input(manifest.manifest_path),
            _FULL_ENTRY,
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            for entry in reader:
                yield _inherit_from_manifest(entry, manifest)


@dataclass(frozen=True)
class Window:
    """The snapshots after the base up to the head of one branch."""

    metadata: TableMetadata
    base: Snapshot | None
    head: Snapshot | None
    reader: EntryReader

    @property
    def base_sequence_number(self) -> int:
        """Of the base, never of the head: deletes that came between are newer than the base."""
        if self.base is None:
            return INITIAL_SEQUENCE_NUMBER
        return self.base.sequence_number or INITIAL_SEQUENCE_NUMBER

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Newest first, without the base; `ValidationException` where the base is not reached."""
        base_id = self.base.snapshot_id if self.base is not None else None
        passed: list[Snapshot] = []
        snapshot = self.head
        while snapshot is not None and snapshot.snapshot_id != base_id:
            passed.append(snapshot)
            parent_id = snapshot.parent_snapshot_id
            snapshot = self.metadata.snapshot_by_id(parent_id) if parent_id is not None else None
        reached = passed[-1].parent_snapshot_id if passed else _id(self.head)
        if reached != base_id:
            raise ValidationException(
                f"Cannot determine history between starting snapshot {base_id} and the last known "
                f"ancestor {passed[-1].snapshot_id if passed else None}"
            )
        return tuple(passed)

    def entries(
        self, content: ManifestContent, operations: frozenset[Operation]
    ) -> Iterator[tuple[Snapshot, ManifestFile, tuple[ManifestEntry, ...]]]:
        """The entries of the manifests that each snapshot of these operations has written."""
        for snapshot in self.snapshots:
            if operation_of(snapshot) not in operations:
                continue
            for manifest in self.reader.manifests(snapshot):
                if (
                    manifest.content == content
                    and manifest.added_snapshot_id == snapshot.snapshot_id
                ):
                    yield snapshot, manifest, self.reader.entries(manifest)


def operation_of(snapshot: Snapshot) -> Operation:
    """A snapshot without a summary says nothing of itself: taken for the one that may do all."""
    return Operation.OVERWRITE if snapshot.summary is None else snapshot.summary.operation


def _id(snapshot: Snapshot | None) -> int | None:
    return snapshot.snapshot_id if snapshot is not None else None

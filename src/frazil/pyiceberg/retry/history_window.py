"""The snapshots that other writers committed to a branch after a base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.exceptions import ValidationException
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from frazil.pyiceberg.manifest_reading import full_entries

INITIAL_SEQUENCE_NUMBER = 0


class EntryReader:
    """Reads each manifest once: manifests never change, and a window only grows."""

    def __init__(self, io: FileIO) -> None:
        self.io = io
        self._entries: dict[str, tuple[ManifestEntry, ...]] = {}

    def entries(self, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = tuple(
                _inherit_from_manifest(entry, manifest) for entry in full_entries(manifest, self.io)
            )
        return self._entries[path]


@dataclass(frozen=True)
class Window:
    """The snapshots after the base up to the head of one branch."""

    metadata: TableMetadata
    base: Snapshot | None
    head: Snapshot | None
    reader: EntryReader

    @property
    def base_sequence_number(self) -> int:
        """The sequence number of the base; deletes in the window are newer."""
        if self.base is None:
            return INITIAL_SEQUENCE_NUMBER
        return self.base.sequence_number or INITIAL_SEQUENCE_NUMBER

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots after the base, newest first; raises if the base is not an ancestor."""
        base_id = self.base.snapshot_id if self.base is not None else None
        passed: list[Snapshot] = []
        reached = self.head.snapshot_id if self.head is not None else None
        while reached is not None and reached != base_id:
            snapshot = self.metadata.snapshot_by_id(reached)
            if snapshot is None:
                break
            passed.append(snapshot)
            reached = snapshot.parent_snapshot_id
        if reached != base_id:
            raise ValidationException(
                f"Cannot determine history between starting snapshot {base_id} and the last known "
                f"ancestor {passed[-1].snapshot_id if passed else None}"
            )
        return tuple(passed)

    def entries(
        self, content: ManifestContent, operations: frozenset[Operation]
    ) -> Iterator[tuple[Snapshot, ManifestFile, tuple[ManifestEntry, ...]]]:
        """Yield the entries of manifests written by each snapshot with one of these operations."""
        for snapshot in self.snapshots:
            if operation_of(snapshot) not in operations:
                continue
            for manifest in snapshot.manifests(self.reader.io):
                if (
                    manifest.content == content
                    and manifest.added_snapshot_id == snapshot.snapshot_id
                ):
                    yield snapshot, manifest, self.reader.entries(manifest)


def operation_of(snapshot: Snapshot) -> Operation:
    """Return the operation; without a summary assume an overwrite, which may do anything."""
    return Operation.OVERWRITE if snapshot.summary is None else snapshot.summary.operation

"""Publishes a staged snapshot on a branch (Java's CherryPickOperation).

If the head of the branch is the snapshot's parent, the branch moves to the snapshot. Otherwise
its changes are applied again on the head. This is always possible for an append, and for a
replacement of partitions only if nobody has added files to them. All other operations are
refused, because their checks were made against an older state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from frazil.commit.snapshot.head_changes import HeadChanges
from frazil.commit.snapshot.manifest_tree import AddedFiles
from frazil.commit.snapshot.snapshot_builder import (
    Action,
    NewSnapshot,
    build_snapshot,
    moved_ref,
)
from frazil.commit.snapshot.stream_epochs import CommittedSnapshot
from frazil.commit.validate.conflict_reports import rejected
from frazil.format.manifest.manifest_columns import ManifestColumns, content_files
from frazil.format.manifest.manifest_fields import ADDED, DELETED
from frazil.format.manifest.manifest_list import DATA, ManifestFile
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.snapshots import Snapshot
from frazil.read.filters import partitions_of
from frazil.read.history import APPEND, OVERWRITE
from frazil.wire.conflicts import ConflictFile, ConflictSnapshot, conflict
from frazil.wire.errors import ValidationError
from frazil.wire.file_actions import CherryPick

STAGED_WAP_ID: Final = "wap.id"
PUBLISHED_WAP_ID: Final = "published-wap-id"
SOURCE_SNAPSHOT_ID: Final = "source-snapshot-id"
REPLACE_PARTITIONS: Final = "replace-partitions"

_Partition = tuple[int, tuple[Any, ...]]


def cherry_pick(action: Action, update: CherryPick) -> NewSnapshot:
    """Publish a staged snapshot: move the branch to it, or apply its changes again."""
    picked = action.metadata.snapshot(update.snapshot_id)
    if picked is None:
        raise _refused(action, f"Cannot cherry-pick unknown snapshot ID: {update.snapshot_id}")
    pick = _Pick(action, picked)
    branch = action.branch
    can_move = picked.parent_snapshot_id == (branch.head and branch.head.snapshot_id)
    if pick.replaces_partitions or picked.operation == APPEND:
        pick.check_not_published()
    elif not can_move:
        raise _refused(
            action,
            f"Cannot cherry-pick snapshot {picked.snapshot_id}: not append, dynamic overwrite, or "
            f"fast-forward. Branch {branch.name} has moved on since it was staged: write it "
            "again on the new head",
            [picked],
        )
    if not can_move:
        return pick.apply_again()
    committed = CommittedSnapshot(
        action.index, picked.snapshot_id, picked.sequence_number, picked.operation or APPEND
    )
    return NewSnapshot((moved_ref(branch, picked.snapshot_id),), committed)


@dataclass(frozen=True, slots=True)
class _Pick:
    action: Action
    picked: Snapshot

    @property
    def replaces_partitions(self) -> bool:
        is_replacement = self.picked.summary.get(REPLACE_PARTITIONS, "").lower() == "true"
        return self.picked.operation == OVERWRITE and is_replacement

    def check_not_published(self) -> None:
        """Refuse a snapshot that was published under its own id, as a source snapshot, or by its
        wap.id."""
        own, wap_id = str(self.picked.snapshot_id), self.picked.summary.get(STAGED_WAP_ID)
        for ancestor in self._ancestors():
            if ancestor.snapshot_id == self.picked.snapshot_id:
                raise _refused(
                    self.action,
                    f"Cannot cherrypick snapshot {own}: already an ancestor of branch "
                    f"{self.action.branch.name}",
                    [ancestor],
                )
            summary = ancestor.summary
            if summary.get(SOURCE_SNAPSHOT_ID) == own:
                raise _refused(
                    self.action,
                    f"Cannot cherrypick snapshot {own}: already picked to create ancestor "
                    f"{ancestor.snapshot_id}",
                    [ancestor],
                )
            if wap_id and wap_id in (summary.get(STAGED_WAP_ID), summary.get(PUBLISHED_WAP_ID)):
                raise _refused(
                    self.action,
                    f"Duplicate request to cherry pick wap id that was published already: {wap_id}",
                    [ancestor],
                )

    def apply_again(self) -> NewSnapshot:
        if self.replaces_partitions:
            self._check_based_on_ancestor()
        added = self._added()
        changes = HeadChanges(self.action, added)
        if self.replaces_partitions:
            self._check_partitions(added)
            self._remove_replaced(changes)
        changes.look_up_data_files()
        wap_id = self.picked.summary.get(STAGED_WAP_ID)
        properties = [
            *([(PUBLISHED_WAP_ID, wap_id)] if wap_id else []),
            (SOURCE_SNAPSHOT_ID, str(self.picked.snapshot_id)),
        ]
        return build_snapshot(
            self.action,
            changes.head,
            changes.finish(keeps_dangling_deletes=True),
            operation=self.picked.operation or APPEND,
            properties=properties,
            stage_only=False,
        )

    # --- what the picked snapshot did --------------------------------------------------------

    def _added(self) -> tuple[AddedFiles, ...]:
        """Return the new data files of the snapshot. They get new row ids when they are
        published."""
        groups: list[AddedFiles] = []
        for listed, columns in self._manifests_of(self.picked):
            rows = self._rows(columns, listed, ADDED, self.picked)
            if rows:
                content = self.action.environment.reader.content(listed)
                files = [
                    replace(file, first_row_id=None)
                    for file in content_files(content, columns, rows)
                    if isinstance(file, DataFile)
                ]
                groups.append(AddedFiles(listed.partition_spec_id, DATA, files))
        return tuple(groups)

    def _remove_replaced(self, changes: HeadChanges) -> None:
        """Remove the files that the snapshot replaced. All of them must still be live."""
        missing = changes.remove_data_files(
            [
                columns.path(row)
                for listed, columns in self._manifests_of(self.picked)
                for row in self._rows(columns, listed, DELETED, self.picked)
            ]
        )
        if missing:
            raise _refused(
                self.action,
                f"Missing required files to delete: {', '.join(missing[:5])}. The staged snapshot "
                "replaced them, and they are gone",
                [self.picked],
                missing,
            )

    def _check_based_on_ancestor(self) -> None:
        parent = self.picked.parent_snapshot_id
        ancestors = {ancestor.snapshot_id for ancestor in self._ancestors()}
        if parent is not None and parent not in ancestors:
            raise _refused(
                self.action,
                "Cannot cherry-pick overwrite not based on an ancestor of the current state: "
                f"{self.picked.snapshot_id}",
                [self.picked],
            )

    def _check_partitions(self, added: Sequence[AddedFiles]) -> None:
        """Check that no file was added to the replaced partitions since the snapshot's parent."""
        replaced: set[_Partition] = {
            (group.spec_id, file.partition) for group in added for file in group.files
        }
        for ancestor in self._ancestors():
            if ancestor.snapshot_id == self.picked.parent_snapshot_id:
                return
            changed = [
                columns.path(row)
                for listed, columns in self._manifests_of(ancestor)
                for row in self._rows(columns, listed, ADDED, ancestor)
                if self._partition(listed, columns, row) in replaced
            ]
            if changed:
                raise _refused(
                    self.action,
                    "Cannot cherry-pick replace partitions with changed partition: snapshot "
                    f"{ancestor.snapshot_id} added {changed[0]} to one of them",
                    [ancestor],
                    changed,
                )

    # --- reading -----------------------------------------------------------------------------

    def _ancestors(self) -> Iterator[Snapshot]:
        if self.action.branch.head is None:
            return iter(())
        return self.action.metadata.ancestors(self.action.branch.head.snapshot_id)

    def _manifests_of(self, snapshot: Snapshot) -> list[tuple[ManifestFile, ManifestColumns]]:
        """Return the data manifests that a snapshot added."""
        listed = [
            manifest
            for manifest in self.action.environment.reader.manifest_list(snapshot).manifests
            if manifest.content == DATA and manifest.added_snapshot_id == snapshot.snapshot_id
        ]
        return self.action.environment.reader.with_columns(listed)

    def _rows(
        self, columns: ManifestColumns, listed: ManifestFile, status: int, snapshot: Snapshot
    ) -> list[int]:
        of_snapshot = columns.inherited(listed).snapshot_id == snapshot.snapshot_id
        rows: list[int] = ((columns.status == status) & of_snapshot).nonzero()[0].tolist()
        return rows

    def _partition(self, listed: ManifestFile, columns: ManifestColumns, row: int) -> _Partition:
        spec = self.action.metadata.spec(listed.partition_spec_id)
        partitions = partitions_of(columns, spec)
        return listed.partition_spec_id, partitions[columns.partition[row]]


def _refused(
    action: Action,
    message: str,
    snapshots: Sequence[Snapshot] = (),
    files: Sequence[str] = (),
) -> ValidationError:
    named = [ConflictSnapshot(item.snapshot_id, item.operation or "") for item in snapshots]
    paths = [ConflictFile(path) for path in files]
    return rejected(
        [conflict("cherry-pick", message, update=action.index, snapshots=named, files=paths)]
    )

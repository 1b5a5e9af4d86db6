"""Publishing a staged snapshot on a branch (Java's CherryPickOperation).

Where the branch still stands at the snapshot's parent, the branch is moved to it. Otherwise what it
did is done again on the head: an append always, a replacement of partitions only while nothing new
lies in them. Everything else was checked against a state that is no longer there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from frazil.commit.snapshot.head_changes import FileChanges, LiveFiles, Removals, refuse_duplicates
from frazil.commit.snapshot.manifest_tree import AddedFiles
from frazil.commit.snapshot.snapshot_builder import (
    Produced,
    Target,
    Tools,
    build_snapshot,
    head_of,
    moved_ref,
    refuse_encrypted,
    target_of,
)
from frazil.commit.validate.conflict_reports import rejected
from frazil.format.manifest.manifest_columns import ManifestColumns, content_files
from frazil.format.manifest.manifest_fields import ADDED, DELETED
from frazil.format.manifest.manifest_list import DATA, ManifestFile
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.snapshots import Snapshot
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import partitions_of
from frazil.read.history import APPEND, OVERWRITE
from frazil.read.manifest_cache import ManifestReader
from frazil.wire.conflicts import ConflictFile, ConflictSnapshot, conflict
from frazil.wire.errors import ValidationError
from frazil.wire.file_actions import CherryPick

STAGED_WAP_ID: Final = "wap.id"
PUBLISHED_WAP_ID: Final = "published-wap-id"
SOURCE_SNAPSHOT_ID: Final = "source-snapshot-id"
REPLACE_PARTITIONS: Final = "replace-partitions"

_Partition = tuple[int, tuple[Any, ...]]


def cherry_pick(metadata: TableMetadata, update: CherryPick, index: int, tools: Tools) -> Produced:
    """The snapshot that publishes another one, or that one where the branch can move to it."""
    refuse_encrypted(metadata)
    picked = metadata.snapshot(update.snapshot_id)
    if picked is None:
        raise _refused(index, f"Cannot cherry-pick unknown snapshot ID: {update.snapshot_id}")
    target = target_of(metadata, update.branch, f"{tools.place}updates[{index}]")
    pick = _Pick(metadata, picked, target, index, tools.reader)
    can_move = picked.parent_snapshot_id == (target.head and target.head.snapshot_id)
    if pick.replaces_partitions or picked.operation == APPEND:
        pick.check_not_published()
    elif not can_move:
        raise _refused(
            index,
            f"Cannot cherry-pick snapshot {picked.snapshot_id}: not append, dynamic overwrite, or "
            f"fast-forward. Branch {update.branch} has moved on since it was staged: write it "
            "again on the new head",
            [picked],
        )
    if can_move:
        return Produced(
            (moved_ref(target, picked.snapshot_id),),
            picked.snapshot_id,
            picked.sequence_number,
            picked.operation or APPEND,
        )
    return pick.applied_again(tools)


@dataclass(frozen=True, slots=True)
class _Pick:
    metadata: TableMetadata
    picked: Snapshot
    target: Target
    index: int
    reader: ManifestReader

    @property
    def replaces_partitions(self) -> bool:
        is_replacement = self.picked.summary.get(REPLACE_PARTITIONS, "").lower() == "true"
        return self.picked.operation == OVERWRITE and is_replacement

    def check_not_published(self) -> None:
        """By its own id, as the source of another snapshot, or by its wap.id."""
        own, wap_id = str(self.picked.snapshot_id), self.picked.summary.get(STAGED_WAP_ID)
        for ancestor in self._ancestors():
            if ancestor.snapshot_id == self.picked.snapshot_id:
                raise _refused(
                    self.index,
                    f"Cannot cherrypick snapshot {own}: already an ancestor of branch "
                    f"{self.target.branch}",
                    [ancestor],
                )
            summary = ancestor.summary
            if summary.get(SOURCE_SNAPSHOT_ID) == own:
                raise _refused(
                    self.index,
                    f"Cannot cherrypick snapshot {own}: already picked to create ancestor "
                    f"{ancestor.snapshot_id}",
                    [ancestor],
                )
            if wap_id and wap_id in (summary.get(STAGED_WAP_ID), summary.get(PUBLISHED_WAP_ID)):
                raise _refused(
                    self.index,
                    f"Duplicate request to cherry pick wap id that was published already: {wap_id}",
                    [ancestor],
                )

    def applied_again(self, tools: Tools) -> Produced:
        if self.replaces_partitions:
            self._check_based_on_ancestor()
        added = self._added()
        removals = Removals()
        head = head_of(self.target, self.reader)
        files = LiveFiles(self.metadata.location, head, self.reader)
        if self.replaces_partitions:
            self._check_partitions(added)
            self._remove(files, removals)
        refuse_duplicates(self.metadata, files, added, self.index)
        wap_id = self.picked.summary.get(STAGED_WAP_ID)
        properties = [
            *([(PUBLISHED_WAP_ID, wap_id)] if wap_id else []),
            (SOURCE_SNAPSHOT_ID, str(self.picked.snapshot_id)),
        ]
        return build_snapshot(
            self.metadata,
            self.target,
            head,
            FileChanges(added, removals),
            operation=self.picked.operation or APPEND,
            properties=properties,
            stage_only=False,
            index=self.index,
            tools=tools,
        )

    # --- what the picked snapshot did --------------------------------------------------------

    def _added(self) -> tuple[AddedFiles, ...]:
        """Its new data files; they get row ids of their own once they are published."""
        groups: list[AddedFiles] = []
        for listed, columns in self._manifests_of(self.picked):
            rows = self._rows(columns, listed, ADDED, self.picked)
            if rows:
                found = content_files(self.reader.content(listed), columns, rows)
                files = [replace(file, first_row_id=None) for file in found if _is_data(file)]
                groups.append(AddedFiles(listed.partition_spec_id, DATA, files))
        return tuple(groups)

    def _remove(self, files: LiveFiles, removals: Removals) -> None:
        """Every file that it replaced must still be there."""
        paths = [
            columns.path(row)
            for listed, columns in self._manifests_of(self.picked)
            for row in self._rows(columns, listed, DELETED, self.picked)
        ]
        found = files.by_path(DATA, paths)
        missing = [path for path in paths if path not in found]
        if missing:
            raise _refused(
                self.index,
                f"Missing required files to delete: {', '.join(missing[:5])}. The staged snapshot "
                "replaced them, and they are gone",
                [self.picked],
                missing,
            )
        for entries in found.values():
            for entry in entries:
                removals.add(entry)

    def _check_based_on_ancestor(self) -> None:
        parent = self.picked.parent_snapshot_id
        ancestors = {ancestor.snapshot_id for ancestor in self._ancestors()}
        if parent is not None and parent not in ancestors:
            raise _refused(
                self.index,
                "Cannot cherry-pick overwrite not based on an ancestor of the current state: "
                f"{self.picked.snapshot_id}",
                [self.picked],
            )

    def _check_partitions(self, added: Sequence[AddedFiles]) -> None:
        """No file may have been added to the replaced partitions since."""
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
                    self.index,
                    "Cannot cherry-pick replace partitions with changed partition: snapshot "
                    f"{ancestor.snapshot_id} added {changed[0]} to one of them",
                    [ancestor],
                    changed,
                )

    # --- reading -----------------------------------------------------------------------------

    def _ancestors(self) -> Iterator[Snapshot]:
        if self.target.head is None:
            return iter(())
        return self.metadata.ancestors(self.target.head.snapshot_id)

    def _manifests_of(self, snapshot: Snapshot) -> list[tuple[ManifestFile, ManifestColumns]]:
        """The data manifests that a snapshot added."""
        listed = [
            one
            for one in self.reader.manifest_list(snapshot).manifests
            if one.content == DATA and one.added_snapshot_id == snapshot.snapshot_id
        ]
        return list(zip(listed, self.reader.columns_of(listed), strict=True))

    def _rows(
        self, columns: ManifestColumns, listed: ManifestFile, status: int, snapshot: Snapshot
    ) -> list[int]:
        of_snapshot = columns.inherited(listed).snapshot_id == snapshot.snapshot_id
        rows: list[int] = ((columns.status == status) & of_snapshot).nonzero()[0].tolist()
        return rows

    def _partition(self, listed: ManifestFile, columns: ManifestColumns, row: int) -> _Partition:
        spec = self.metadata.spec(listed.partition_spec_id)
        partitions = columns.partitions if spec is None else partitions_of(columns, spec)
        return listed.partition_spec_id, partitions[columns.partition[row]]


def _is_data(file: object) -> bool:
    return isinstance(file, DataFile)


def _refused(
    index: int,
    message: str,
    snapshots: Sequence[Snapshot] = (),
    files: Sequence[str] = (),
) -> ValidationError:
    named = [ConflictSnapshot(one.snapshot_id, one.operation or "") for one in snapshots]
    paths = [ConflictFile(path) for path in files]
    return rejected([conflict("cherry-pick", message, update=index, snapshots=named, files=paths)])

"""Collects the changes of an action at the head of its branch, and the conflicts.

Files named by a request are looked up by path, never by the partition that the client sent,
because a file with a wrong partition would be missed silently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from frazil.commit.snapshot.manifest_tree import AddedFiles, Head
from frazil.commit.snapshot.snapshot_builder import Action, FileChanges
from frazil.commit.validate.branch_changes import live_vectors
from frazil.commit.validate.conflict_reports import rejected
from frazil.format.manifest.entry_fields import referenced_data_file
from frazil.format.manifest.manifest_columns import ManifestColumns, path_hashes
from frazil.format.manifest.manifest_fields import DELETED
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile
from frazil.format.metadata.content_files import ContentFile, DeleteFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import BoundFilter, PartitionSet, Rows, bound_filter
from frazil.read.history import metrics_reader
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.conflicts import Conflict, ConflictClause, ConflictFile, conflict
from frazil.wire.declared_content import (
    NamedDeleteFile,
    RemovedDeleteFile,
    delete_file_key,
)
from frazil.wire.errors import BadRequest
from frazil.wire.frazil_properties import IGNORE_MISSING, REJECT_DUPLICATES

_SHOWN_FILES: Final = 5


class HeadChanges:
    """Collects the files that one action removes from the head, and its conflicts. `finish`
    reports all conflicts together."""

    def __init__(self, action: Action, added: Sequence[AddedFiles] = ()) -> None:
        self.head = action.read_head()
        self._action = action
        self._metadata = action.metadata
        self._reader = action.environment.reader
        self._added = added
        self._removed: dict[str, dict[int, ManifestRow]] = {}
        self._opened: set[str] = set()
        """Manifests that a filter had to read, even if nothing matched."""
        self._conflicts: list[Conflict] = []

    def finish(self, *, keeps_dangling_deletes: bool = False) -> FileChanges:
        """Return the changes. Raises ValidationError with all conflicts."""
        if self._conflicts:
            raise rejected(self._conflicts)
        if not keeps_dangling_deletes:
            self._remove_dangling_deletes()
        return FileChanges(self._added, self._removed)

    # --- by path -----------------------------------------------------------------------------

    def look_up_data_files(
        self, removed: Sequence[str] = (), *, may_be_missing: bool = False
    ) -> None:
        """Remove data files by path, and refuse added files that are already live. One look at
        the head finds both."""
        added: list[str] = []
        if self._rejects_duplicates:
            added = [file.file_path for file in self._added_files(DATA)]
        live = self._live_by_path(DATA, [*removed, *added])
        if not live and not removed:
            return
        missing = [ConflictFile(path) for path in removed if path not in live]
        for path in removed:
            self._remove(live.get(path, ()))
        self._refuse_missing(missing, may_be_missing)
        self._refuse_duplicates([ConflictFile(path) for path in added if path in live])

    def look_up_delete_files(
        self, removed: Sequence[RemovedDeleteFile], *, may_be_missing: bool = False
    ) -> None:
        """Remove delete files by path and offset, and refuse added files that are already live."""
        added: list[DeleteFile] = []
        if self._rejects_duplicates:
            added = [file for file in self._added_files(DELETES) if isinstance(file, DeleteFile)]
        keys = [delete_file_key(file) for file in removed]
        paths = {path for path, _ in keys} | {file.file_path for file in added}
        live = self._live_by_path(DELETES, sorted(paths))
        missing: list[ConflictFile] = []
        for (path, offset), named in zip(keys, removed, strict=True):
            rows = self._rows_named(live.get(path, ()), offset, named)
            if not rows:
                missing.append(ConflictFile(path, offset))
            self._remove(rows)
        self._refuse_missing(missing, may_be_missing)
        identities = {row.identity for rows in live.values() for row in rows}
        self._refuse_duplicates(
            [
                ConflictFile(file.file_path, file.content_offset)
                for file in added
                if (file.file_path, file.content_offset) in identities
            ]
        )

    def remove_data_files(self, paths: Sequence[str]) -> list[str]:
        """Remove data files by path; return the paths that are not live."""
        live = self._live_by_path(DATA, paths)
        for rows in live.values():
            self._remove(rows)
        return [path for path in paths if path not in live]

    def remove_rows(self, rows: Iterable[ManifestRow]) -> None:
        """Remove live entries that the caller has found."""
        self._remove(rows)

    def _rows_named(
        self, rows: Sequence[ManifestRow], offset: int | None, named: RemovedDeleteFile
    ) -> list[ManifestRow]:
        """Return the rows of a removed delete file. A deletion vector is identified by its
        offset too."""
        size = named.content_size_in_bytes if isinstance(named, NamedDeleteFile) else None
        chosen: list[ManifestRow] = []
        for row in rows:
            if offset is None and row.content_offset is not None:
                raise BadRequest(
                    f"{self._action.json_path}.remove-delete-files: {row.file_path} is a Puffin "
                    "file with deletion vectors: say which by content-offset"
                )
            if row.content_offset == offset and size in (None, row.content_size_in_bytes):
                chosen.append(row)
        return chosen

    def _refuse_missing(self, missing: list[ConflictFile], may_be_missing: bool) -> None:
        """Refuse missing files, unless the action and the table property allow them. Java
        ignores them in a delete or an overwrite by default."""
        ignored = may_be_missing and _is_on(self._metadata, IGNORE_MISSING, default=False)
        if missing and not ignored:
            self._conflict(
                "removed-file-not-live",
                f"Missing required files to delete: {_shown(missing)}. They are not live on branch "
                f"{self._action.branch.name}: another commit removed them, or they were never "
                "there",
                missing,
            )

    def _refuse_duplicates(self, duplicates: list[ConflictFile]) -> None:
        if duplicates:
            self._conflict(
                "duplicate-file",
                f"Cannot add files that are live already: {_shown(duplicates)}. Their rows would "
                f"be read twice; set the table property {REJECT_DUPLICATES}=false if that is meant",
                duplicates,
            )

    @property
    def _rejects_duplicates(self) -> bool:
        return _is_on(self._metadata, REJECT_DUPLICATES, default=True)

    # --- by filter and by partition ----------------------------------------------------------

    def remove_matching(self, row_filter: Any, case_sensitive: bool) -> None:
        """Remove the files whose rows all match. Data files that match only in part are a
        conflict."""
        if row_filter is None:
            return
        bound = bound_filter(
            row_filter,
            self._metadata,
            case_sensitive=case_sensitive,
            json_path=f"{self._action.json_path}.delete-row-filter",
        )
        if self.head.manifests is None:
            return
        schema = self.head.manifests.schema
        partial: list[ConflictFile] = []
        for content in (DATA, DELETES):
            listed = [
                manifest
                for manifest in self.head.live(content)
                if bound.may_match_manifest(manifest, schema)
            ]
            self._opened.update(manifest.manifest_path for manifest in listed)
            for manifest, columns in self._reader.with_columns(listed):
                partial += self._remove_matching_rows(bound, manifest, columns)
        if partial:
            self._conflict(
                "partial-row-filter",
                "Cannot delete file where some, but not all, rows match filter "
                f"{bound.text}: {_shown(partial)}. A row filter removes whole files only: "
                "rewrite those files, or delete their rows by position or by equality",
                partial,
            )

    def _remove_matching_rows(
        self, bound: BoundFilter, listed: ManifestFile, columns: ManifestColumns
    ) -> list[ConflictFile]:
        """Return the data files that the filter would have to split."""
        metrics_of = metrics_reader(self._reader, listed, columns)
        rows: Rows = np.flatnonzero(columns.live()).astype(np.int64)
        matched = bound.matched_rows(columns, listed.partition_spec_id, rows, metrics_of)
        self._remove(ManifestRow(listed, columns, row) for row in matched.whole.tolist())
        if listed.content == DELETES:
            # Keep delete files that match only partially: they also delete other rows.
            return []
        removed = self._removed.get(listed.manifest_path, {})
        return [
            ConflictFile(columns.path(row))
            for row in matched.partial.tolist()
            if row not in removed
        ]

    def remove_partitions(self, partitions: Collection[tuple[int, tuple[Any, ...]]] | None) -> None:
        """Remove all files of these partitions. None means the whole table."""
        chosen = None if partitions is None else PartitionSet(partitions, self._metadata)
        for content in (DATA, DELETES):
            listed = self.head.live(content)
            if chosen is not None:
                listed = [item for item in listed if chosen.may_match_spec(item.partition_spec_id)]
            for manifest, columns in self._reader.with_columns(listed):
                mask = columns.live()
                if chosen is not None:
                    matching = chosen.may_match_partitions(columns, manifest.partition_spec_id)
                    mask = matching[columns.partition] & mask
                rows = np.flatnonzero(mask).tolist()
                self._remove(ManifestRow(manifest, columns, row) for row in rows)

    # --- what follows from the removals ------------------------------------------------------

    def refuse_deletes_of_removed(self) -> None:
        """Refuse a delete file for a data file that the same commit removes. Its deletes would
        be lost, and its writer used another state (Java's RowDelta has an option for this
        check)."""
        removed = {row.file_path for row in self._removed_rows(DATA)}
        referenced = (
            referenced_data_file(
                file.content, file.referenced_data_file, file.lower_bounds, file.upper_bounds
            )
            for file in self._added_files(DELETES)
            if isinstance(file, DeleteFile)
        )
        lost = [ConflictFile(path) for path in referenced if path is not None and path in removed]
        if lost:
            self._conflict(
                "required-data-files",
                f"Cannot delete data files {_shown(lost)} that are referenced by new delete files: "
                "the same commit removes them",
                lost,
            )

    def refuse_added_rows(self) -> None:
        """Refuse a replace that adds more rows than it removes. Rows that a vector deletes, or a
        file of position deletes for one added file, count on neither side."""
        if self._conflicts:
            return
        own = {file.file_path for file in self._added_files(DATA)}
        added = sum(file.record_count for file in self._added_files(DATA))
        added -= sum(
            file.record_count
            for file in self._added_files(DELETES)
            if isinstance(file, DeleteFile) and file.referenced_data_file in own
        )
        replaced = sum(row.record_count for row in self._removed_rows(DATA))
        removed = frozenset(row.file_path for row in self._removed_rows(DATA))
        vectors = live_vectors(self.head.snapshot, removed, self._reader)
        replaced -= sum(row.record_count for row in vectors)
        if added > replaced:
            self._conflict(
                "replace-adds-rows",
                f"Invalid REPLACE operation: {added} added records > {replaced} replaced records. "
                "A replace writes the same rows to other files; use overwrite to add rows",
                [ConflictFile(file.file_path) for file in self._added_files(DATA)],
            )

    def _remove_dangling_deletes(self) -> None:
        """Remove delete files that no longer apply to any data file: deletion vectors and position
        deletes of removed data files, and files older than every live data file. If no data
        files are removed, only manifests that were already read are searched (Java's
        dropDeleteFilesOlderThan and removeDanglingDeletesFor, which keeps position deletes)."""
        removed_paths = {row.file_path for row in self._removed_rows(DATA)}
        listed = self.head.live(DELETES)
        if not removed_paths:
            read_anyway = self._opened | self._removed.keys()
            listed = [item for item in listed if item.manifest_path in read_anyway]
        if not listed:
            return
        oldest = self._min_data_sequence_number()
        for manifest, columns in self._reader.with_columns(listed):
            rows = _dangling_rows(manifest, columns, removed_paths, oldest)
            self._remove(ManifestRow(manifest, columns, row) for row in rows)

    def _min_data_sequence_number(self) -> int:
        """Return the minimum of the remaining data files and of added files that keep an old
        number. Java ignores the latter and so loses deletes that still apply to them."""
        oldest = self._metadata.last_sequence_number
        for group in self._added:
            if group.data_sequence_number is not None:
                oldest = min(oldest, group.data_sequence_number)
        for listed in self.head.of(DATA):
            removed = self._removed.get(listed.manifest_path)
            if not removed:
                oldest = min(oldest, listed.min_sequence_number)
                continue
            columns = next(iter(removed.values())).columns
            stays = columns.live()
            stays[list(removed)] = False
            if stays.any():
                numbers = columns.inherited(listed).sequence_number
                oldest = min(oldest, int(numbers[stays].min()))
        return oldest

    # --- rows --------------------------------------------------------------------------------

    def _remove(self, rows: Iterable[ManifestRow]) -> None:
        """Mark rows as removed. Marking a row twice has no further effect."""
        for row in rows:
            self._removed.setdefault(row.listed.manifest_path, {})[row.row] = row

    def _removed_rows(self, content: int) -> Iterator[ManifestRow]:
        for rows in self._removed.values():
            for row in rows.values():
                if row.listed.content == content:
                    yield row

    def _added_files(self, content: int) -> Iterator[ContentFile]:
        for group in self._added:
            if group.content == content:
                yield from group.files

    def _live_by_path(self, content: int, paths: Sequence[str]) -> dict[str, list[ManifestRow]]:
        return live_by_path(self._reader, self._metadata, self.head, content, paths)

    def _conflict(
        self, clause: ConflictClause, message: str, files: Iterable[ConflictFile]
    ) -> None:
        self._conflicts.append(conflict(clause, message, update=self._action.index, files=files))


def live_by_path(
    reader: ManifestReader,
    metadata: TableMetadata,
    head: Head,
    content: int,
    paths: Sequence[str],
) -> dict[str, list[ManifestRow]]:
    """Return the live rows of each path that has any. A path has several rows if a writer added
    it twice."""
    live: dict[str, list[ManifestRow]] = {}
    if not paths:
        return live
    hashes, first = np.unique(path_hashes(paths), return_index=True)
    index_name = f"{metadata.location}#{content}"
    listed = reader.that_may_hold(index_name, head.live(content), hashes)
    for manifest, columns in reader.with_columns(listed):
        for index in columns.may_hold(hashes).tolist():
            path = paths[first[index]]
            for row in columns.find(path):
                if columns.status[row] != DELETED:
                    live.setdefault(path, []).append(ManifestRow(manifest, columns, row))
    return live


def _dangling_rows(
    listed: ManifestFile,
    columns: ManifestColumns,
    removed_paths: Collection[str],
    min_data_sequence_number: int,
) -> list[int]:
    deletes = columns.deletes
    if deletes is None:
        return []
    numbers = columns.inherited(listed).sequence_number
    live = columns.live()
    stale = live & (numbers > 0) & (numbers < min_data_sequence_number)
    rows: list[int] = np.flatnonzero(stale).tolist()
    if removed_paths:
        referenced = deletes.referenced_data_file
        rows += [row for row in np.flatnonzero(live).tolist() if referenced[row] in removed_paths]
    return rows


def _is_on(metadata: TableMetadata, name: str, *, default: bool) -> bool:
    text = metadata.properties.get(name)
    return default if text is None else text.lower() == "true"


def _shown(files: Sequence[ConflictFile]) -> str:
    names = [
        file.file_path
        if file.content_offset is None
        else f"{file.file_path} @{file.content_offset}"
        for file in files[:_SHOWN_FILES]
    ]
    more = len(files) - _SHOWN_FILES
    return ", ".join([*names, *([f"and {more} more"] if more > 0 else [])])

"""What one action changes: the files it adds and the entries it removes, and what must hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from frazil.commit.snapshot.manifest_tree import AddedFiles, Head
from frazil.commit.validate.conflict_reports import rejected
from frazil.format.manifest.entry_fields import referenced_data_file
from frazil.format.manifest.manifest_columns import NONE, ManifestColumns, path_hashes
from frazil.format.manifest.manifest_fields import DELETED
from frazil.format.manifest.manifest_list import DATA, DELETES, ManifestFile
from frazil.format.metadata.content_files import ContentFile, DeleteFile
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.read.filters import BoundFilter, PartitionSet, Rows, bound_filter
from frazil.read.history import metrics_reader
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow
from frazil.wire.conflicts import Conflict, ConflictClause, ConflictFile, conflict
from frazil.wire.declared_content import NamedDeleteFile, data_file_path, delete_file_key
from frazil.wire.errors import BadRequest
from frazil.wire.file_actions import Append, FileUpdate, Overwrite, Replace


@dataclass(slots=True)
class Removals:
    """The entries to remove, by manifest; an entry is removed once."""

    entries: dict[str, dict[int, ManifestRow]] = field(default_factory=dict)

    def add(self, entry: ManifestRow) -> None:
        self.entries.setdefault(entry.listed.manifest_path, {})[entry.row] = entry

    def __contains__(self, entry: ManifestRow) -> bool:
        return entry.row in self.entries.get(entry.listed.manifest_path, {})

    def of(self, content: int) -> Iterator[ManifestRow]:
        for rows in self.entries.values():
            for entry in rows.values():
                if entry.listed.content == content:
                    yield entry

    def rows(self) -> dict[str, list[int]]:
        return {path: sorted(rows) for path, rows in self.entries.items()}


class LiveFiles:
    def __init__(self, table: str, head: Head, reader: ManifestReader) -> None:
        """`table` is the table's location, under which its paths are indexed."""
        self._table = table
        self._head = head
        self._reader = reader

    def listed(self, content: int) -> Sequence[ManifestFile]:
        """The manifests that have live files."""
        return self._head.live(content)

    def columns_of(
        self, listed: Sequence[ManifestFile]
    ) -> list[tuple[ManifestFile, ManifestColumns]]:
        return list(zip(listed, self._reader.columns_of(listed), strict=True))

    def by_path(self, content: int, paths: Sequence[str]) -> dict[str, list[ManifestRow]]:
        """The live entries of each path that has any; a writer may have added a path twice."""
        found: dict[str, list[ManifestRow]] = {}
        if not paths:
            return found
        hashes, first = np.unique(path_hashes(paths), return_index=True)
        name = f"{self._table}#{content}"
        listed = self._reader.that_may_hold(name, self.listed(content), hashes)
        for one, columns in self.columns_of(listed):
            for index in columns.may_hold(hashes).tolist():
                path = paths[first[index]]
                for row in columns.find(path):
                    if columns.status[row] != DELETED:
                        found.setdefault(path, []).append(ManifestRow(one, columns, row))
        return found


def entries_in_partitions(
    files: LiveFiles, content: int, partitions: PartitionSet | None
) -> Iterator[ManifestRow]:
    """The live entries in these partitions; None means all."""
    listed = files.listed(content)
    if partitions is not None:
        listed = [one for one in listed if partitions.may_match_spec(one.partition_spec_id)]
    for one, columns in files.columns_of(listed):
        mask = columns.live()
        if partitions is not None:
            chosen = partitions.may_match_partitions(columns, one.partition_spec_id)
            mask = chosen[columns.partition] & mask
        for row in np.flatnonzero(mask).tolist():
            yield ManifestRow(one, columns, row)


def no_longer_apply(
    files: LiveFiles,
    removed_paths: Collection[str],
    min_data_sequence_number: int,
    touched: Collection[str] | None,
) -> Iterator[ManifestRow]:
    """Delete files that can apply to nothing any more: deletion vectors of removed data files, and
    what is older than every live data file. Only in the manifests `touched`, None means all."""
    listed = [
        one for one in files.listed(DELETES) if touched is None or one.manifest_path in touched
    ]
    for one, columns in files.columns_of(listed):
        deletes = columns.deletes
        if deletes is None:
            continue
        numbers = columns.inherited(one).sequence_number
        live = columns.live()
        stale = live & (numbers > 0) & (numbers < min_data_sequence_number)
        for row in np.flatnonzero(stale).tolist():
            yield ManifestRow(one, columns, row)
        if not removed_paths:
            continue
        for row in np.flatnonzero(live & (deletes.content_offset != NONE)).tolist():
            if deletes.referenced_data_file[row] in removed_paths:
                yield ManifestRow(one, columns, row)


REJECT_DUPLICATES: Final = "frazil.commit.reject-duplicate-files"
IGNORE_MISSING: Final = "frazil.commit.ignore-missing-removals"


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The files that a commit adds and the live entries that it removes."""

    added: tuple[AddedFiles, ...]
    removals: Removals

    def files(self, content: int) -> Iterator[ContentFile]:
        for group in self.added:
            if group.content == content:
                yield from group.files


class Resolver:
    """Finds what one action removes from the head of its branch, and judges the whole."""

    def __init__(
        self,
        metadata: TableMetadata,
        update: FileUpdate,
        index: int,
        place: str,
        head: Head,
        reader: ManifestReader,
    ) -> None:
        self._metadata = metadata
        self._update = update
        self._index = index
        self._place = place
        self._head = head
        self._files = LiveFiles(metadata.location, head, reader)
        self._reader = reader
        self._removals = Removals()
        self._opened: set[str] = set()
        """Manifests that had to be looked into, whatever was found there."""
        self._conflicts: list[Conflict] = []

    def resolve(
        self,
        added: tuple[AddedFiles, ...],
        replaced: Collection[tuple[int, tuple[Any, ...]]] | None,
    ) -> FileChanges:
        """`replaced` are the partitions that `replace-partitions` replaces, None for all."""
        changes = FileChanges(added, self._removals)
        self._named_data_files(changes)
        self._named_delete_files(changes)
        if not isinstance(self._update, Append | Replace):
            self._filtered()
        if isinstance(self._update, Overwrite) and self._update.replace_partitions:
            self._replaced(replaced)
        removed_paths = {entry.file_path for entry in self._removals.of(DATA)}
        self._refuse_deletes_of_removed(changes, removed_paths)
        self._check_replaced_rows(changes)
        if self._conflicts:
            raise rejected(self._conflicts)
        self._left_over(changes, removed_paths)
        return changes

    # --- by name -----------------------------------------------------------------------------

    def _named_data_files(self, changes: FileChanges) -> None:
        removed: list[str] = []
        if not isinstance(self._update, Append):
            removed = [data_file_path(file) for file in self._update.remove_data_files]
        added: list[str] = []
        if self._is_on(REJECT_DUPLICATES, default=True):
            added = [file.file_path for file in changes.files(DATA)]
        found = self._files.by_path(DATA, [*removed, *added])
        if not found and not removed:
            return
        missing: list[ConflictFile] = []
        for path in removed:
            entries = found.get(path)
            if not entries:
                missing.append(ConflictFile(path))
                continue
            for entry in entries:
                self._removals.add(entry)
        self._refuse_missing(missing)
        self._refuse_duplicates([ConflictFile(path) for path in added if path in found])

    def _named_delete_files(self, changes: FileChanges) -> None:
        removed: Sequence[Any] = ()
        if not isinstance(self._update, Append):
            removed = self._update.remove_delete_files
        added: list[DeleteFile] = []
        if self._is_on(REJECT_DUPLICATES, default=True):
            added = [file for file in changes.files(DELETES) if isinstance(file, DeleteFile)]
        keys = [delete_file_key(file) for file in removed]
        paths = {path for path, _ in keys} | {file.file_path for file in added}
        found = self._files.by_path(DELETES, sorted(paths))
        missing: list[ConflictFile] = []
        for (path, offset), named in zip(keys, removed, strict=True):
            entries = self._matching(found.get(path, ()), offset, named)
            if not entries:
                missing.append(ConflictFile(path, offset))
            for entry in entries:
                self._removals.add(entry)
        self._refuse_missing(missing)
        live = {
            (entry.file_path, entry.content_offset) for all_ in found.values() for entry in all_
        }
        self._refuse_duplicates(
            [
                ConflictFile(file.file_path, file.content_offset)
                for file in added
                if (file.file_path, file.content_offset) in live
            ]
        )

    def _matching(
        self, entries: Sequence[ManifestRow], offset: int | None, named: Any
    ) -> list[ManifestRow]:
        """The entries that a removed delete file names; a vector only by its place in its file."""
        size = named.content_size_in_bytes if isinstance(named, NamedDeleteFile) else None
        chosen: list[ManifestRow] = []
        for entry in entries:
            if offset is None and entry.content_offset is not None:
                raise BadRequest(
                    f"{self._place}.remove-delete-files: {entry.file_path} is a Puffin file "
                    "with deletion vectors: say which by content-offset"
                )
            if entry.content_offset == offset and size in (None, entry.content_size_in_bytes):
                chosen.append(entry)
        return chosen

    def _refuse_missing(self, missing: list[ConflictFile]) -> None:
        """Java passes over them in a delete or an overwrite, unless it is told to fail."""
        lenient = self._is_on(IGNORE_MISSING, default=False)
        if missing and (isinstance(self._update, Replace) or not lenient):
            self._add(
                "removed-file-not-live",
                f"Missing required files to delete: {_shown(missing)}. They are not live on branch "
                f"{self._update.branch}: another commit removed them, or they were never there",
                missing,
            )

    def _refuse_duplicates(self, duplicates: list[ConflictFile]) -> None:
        if duplicates:
            self._conflicts.append(_duplicates(duplicates, self._index))

    # --- by filter and by partition ----------------------------------------------------------

    def _filtered(self) -> None:
        update = self._update
        assert not isinstance(update, Append | Replace)
        raw = update.delete_row_filter
        if raw is None or self._head.manifests is None:
            self._bound(raw)
            return
        row_filter = self._bound(raw)
        assert row_filter is not None
        schema = self._head.manifests.schema
        partial: list[ConflictFile] = []
        for content in (DATA, DELETES):
            listed = [
                one
                for one in self._files.listed(content)
                if row_filter.may_match_manifest(one, schema)
            ]
            self._opened.update(one.manifest_path for one in listed)
            for one, columns in self._files.columns_of(listed):
                partial += self._match(row_filter, one, columns)
        if partial:
            self._add(
                "partial-row-filter",
                "Cannot delete file where some, but not all, rows match filter "
                f"{row_filter.text}: {_shown(partial)}. A row filter removes whole files only: "
                "rewrite those files, or delete their rows by position or by equality",
                partial,
            )

    def _bound(self, raw: Any) -> BoundFilter | None:
        if raw is None:
            return None
        return bound_filter(
            raw,
            self._metadata,
            case_sensitive=self._update.case_sensitive,
            place=f"{self._place}.delete-row-filter",
        )

    def _match(
        self, row_filter: BoundFilter, listed: ManifestFile, columns: ManifestColumns
    ) -> list[ConflictFile]:
        """Marks what the filter takes; gives the data files that it would have to split."""
        metrics_of = metrics_reader(self._reader, listed, columns)
        rows: Rows = np.flatnonzero(columns.live()).astype(np.int64)
        matched = row_filter.matched_rows(columns, listed.partition_spec_id, rows, metrics_of)
        for row in matched.whole.tolist():
            self._removals.add(ManifestRow(listed, columns, row))
        if listed.content == DELETES:
            # What deletes rows beside the filter's goes on doing so.
            return []
        left = (ManifestRow(listed, columns, row) for row in matched.partial.tolist())
        return [ConflictFile(entry.file_path) for entry in left if entry not in self._removals]

    def _replaced(self, partitions: Collection[tuple[int, tuple[Any, ...]]] | None) -> None:
        chosen = None if partitions is None else PartitionSet(partitions, self._metadata)
        for content in (DATA, DELETES):
            for entry in entries_in_partitions(self._files, content, chosen):
                self._removals.add(entry)

    # --- what follows ------------------------------------------------------------------------

    def _refuse_deletes_of_removed(self, changes: FileChanges, removed: set[str]) -> None:
        """A delete file for a data file that goes in the same commit would be lost work, and hides
        that its writer read another state (Java's RowDelta refuses it when asked)."""
        named = (
            referenced_data_file(
                file.content, file.referenced_data_file, file.lower_bounds, file.upper_bounds
            )
            for file in changes.files(DELETES)
            if isinstance(file, DeleteFile)
        )
        lost = [ConflictFile(path) for path in named if path is not None and path in removed]
        if lost:
            self._add(
                "required-data-files",
                f"Cannot delete data files {_shown(lost)} that are referenced by new delete files: "
                "the same commit removes them",
                lost,
            )

    def _check_replaced_rows(self, changes: FileChanges) -> None:
        if not isinstance(self._update, Replace) or self._conflicts:
            return
        added = sum(file.record_count for file in changes.files(DATA))
        replaced = sum(entry.record_count for entry in self._removals.of(DATA))
        if added > replaced:
            self._add(
                "replace-adds-rows",
                f"Invalid REPLACE operation: {added} added records > {replaced} replaced records. "
                "A replace writes the same rows to other files; use overwrite to add rows",
                [ConflictFile(file.file_path) for file in changes.files(DATA)],
            )

    def _left_over(self, changes: FileChanges, removed_paths: set[str]) -> None:
        """Delete files that can apply to nothing any more go along, where their manifests are
        looked at anyway (Java's dropDeleteFilesOlderThan and removeDanglingDeletesFor)."""
        touched = None if removed_paths else self._opened | self._removals.entries.keys()
        if (touched is not None and not touched) or not self._files.listed(DELETES):
            return
        least = self._min_data_sequence_number(changes)
        for entry in no_longer_apply(self._files, removed_paths, least, touched):
            self._removals.add(entry)

    def _min_data_sequence_number(self, changes: FileChanges) -> int:
        """Of the data files that stay, and of added ones that keep an old number. Java leaves the
        latter out, and so loses deletes that still apply to them."""
        least = self._metadata.last_sequence_number
        for group in changes.added:
            if group.data_sequence_number is not None:
                least = min(least, group.data_sequence_number)
        for listed in self._head.of(DATA):
            removed = self._removals.entries.get(listed.manifest_path)
            if not removed:
                least = min(least, listed.min_sequence_number)
                continue
            columns = next(iter(removed.values())).columns
            stays = columns.live()
            stays[list(removed)] = False
            if stays.any():
                numbers = columns.inherited(listed).sequence_number
                least = min(least, int(numbers[stays].min()))
        return least

    # --- conflicts ---------------------------------------------------------------------------

    def _add(self, clause: ConflictClause, message: str, files: Iterable[ConflictFile]) -> None:
        self._conflicts.append(conflict(clause, message, update=self._index, files=files))

    def _is_on(self, name: str, *, default: bool) -> bool:
        return _is_on(self._metadata, name, default=default)


def refuse_duplicates(
    metadata: TableMetadata, files: LiveFiles, added: Sequence[AddedFiles], index: int
) -> None:
    """Refuses data files that are live already, unless the table allows it."""
    if _is_on(metadata, REJECT_DUPLICATES, default=True):
        paths = [file.file_path for group in added for file in group.files]
        found = files.by_path(DATA, paths)
        if found:
            raise rejected([_duplicates([ConflictFile(path) for path in found], index)])


def _duplicates(files: list[ConflictFile], index: int) -> Conflict:
    return conflict(
        "duplicate-file",
        f"Cannot add files that are live already: {_shown(files)}. Their rows would be read "
        f"twice; set the table property {REJECT_DUPLICATES}=false if that is meant",
        update=index,
        files=files,
    )


def _is_on(metadata: TableMetadata, name: str, *, default: bool) -> bool:
    text = metadata.properties.get(name)
    return default if text is None else text.lower() == "true"


def grouped(
    files: Sequence[ContentFile],
    spec_ids: Sequence[int],
    content: int,
    data_sequence_number: int | None = None,
) -> list[AddedFiles]:
    """Added files by spec; within one in the order of the request."""
    distinct = set(spec_ids)
    if len(distinct) == 1:
        return [AddedFiles(spec_ids[0], content, files, data_sequence_number)]
    by_spec: dict[int, list[ContentFile]] = {}
    for spec_id, file in zip(spec_ids, files, strict=True):
        by_spec.setdefault(spec_id, []).append(file)
    return [
        AddedFiles(spec_id, content, of_spec, data_sequence_number)
        for spec_id, of_spec in sorted(by_spec.items())
    ]


def _shown(files: Sequence[ConflictFile], most: int = 5) -> str:
    names = [
        file.file_path
        if file.content_offset is None
        else f"{file.file_path} @{file.content_offset}"
        for file in files[:most]
    ]
    more = [] if len(files) <= most else [f"and {len(files) - most} more"]
    return ", ".join([*names, *more])

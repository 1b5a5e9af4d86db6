"""The live files of a head, looked up through the columns of its manifests, and those to remove.

Files named by a request are found by their paths, never by the partition that a client sent with
them: a wrong one would be a silent miss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from frazil.commit.snapshot.manifest_tree import Head
from frazil.format.manifest.manifest_columns import NONE, ManifestColumns, path_hashes
from frazil.format.manifest.manifest_list import DELETES, ManifestFile
from frazil.format.manifest.manifests import DELETED
from frazil.read.filters import PartitionSet
from frazil.read.manifest_cache import ManifestReader
from frazil.read.manifest_row import ManifestRow


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

"""The interface of the engines that rewrite groups of data files.

An engine reads the live rows of a group, writes them into new files, and says where each row went.
Everything else is the same for all engines: which files are rewritten (`file_groups`), and how the
new files are committed beside other writers (`group_commit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from frazil.client.declare.client_table import Table
from frazil.client.rows.write_folders import WriteFolder
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.row_positions import Positions
from frazil.maintenance.file_groups import FileGroup
from frazil.maintenance.rewrite_options import RewriteOptions
from frazil.maintenance.rewrite_order import RewriteOrder


@dataclass(frozen=True, kw_only=True)
class GroupWork:
    """A group to rewrite."""

    table: Table
    """The table as it was loaded when the groups were planned."""
    group: FileGroup
    output_spec_id: int
    """The partition spec of the new files."""
    order: RewriteOrder | None
    """The order of the rows in the new files; None to leave them in the order of the old ones."""
    options: RewriteOptions

    @property
    def max_written_size(self) -> int:
        """The size at which a new file ends, so that a small rest does not need another one."""
        target, most = self.options.target_file_size, self.options.max_file_size
        return target + (most - target) // 2

    @property
    def file_count(self) -> int:
        """About how many files the group needs."""
        size = self.group.size_in_bytes
        count = max(1, round(size / self.options.target_file_size))
        return count if size <= count * self.max_written_size else count + 1


class RowMap(Protocol):
    """Knows where an engine has written each row that it has read."""

    def moved(self, rows: Mapping[str, Positions | None]) -> Mapping[str, Positions]:
        """Return the positions of rows in the new files, by the path of the new file.

        `rows` has positions in old files by path; None stands for all rows that were read from the
        file. Positions that were not read, because they were deleted before, are ignored.
        """


@dataclass(frozen=True, kw_only=True)
class WrittenRows:
    """The new files of a group. They are not committed yet and have no deletes."""

    files: tuple[DataFile, ...]
    row_map: RowMap


class RewriteEngine(Protocol):
    """Rewrites the rows of groups. Several threads call it at the same time."""

    @property
    def name(self) -> str:
        """The name of the engine, as users choose it."""

    def rewrite(self, work: GroupWork, folder: WriteFolder) -> WrittenRows:
        """Write the live rows of a group into files below the folder.

        In format version 3 the files have the columns of row lineage. If it fails, no file of the
        group is left.
        """

"""Counts deleted files by their kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Self

from msgspec import Struct

from frazil.housekeeping.reachability import FileKind


class DeletedFiles(Struct, frozen=True, rename="kebab"):
    """How many files of each kind are deleted."""

    data: int = 0
    position_deletes: int = 0
    """Also Puffin files with deletion vectors."""
    equality_deletes: int = 0
    manifest: int = 0
    manifest_list: int = 0
    statistics: int = 0
    metadata: int = 0
    unknown: int = 0
    """Files of which nobody knows what they were, such as those of a dead writer."""

    @classmethod
    def of(cls, kinds: Iterable[FileKind]) -> Self:
        counts = Counter(kind.name.lower() for kind in kinds)
        return cls(**counts)

    def __add__(self, other: DeletedFiles) -> DeletedFiles:
        names = self.__struct_fields__
        return DeletedFiles(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in self.__struct_fields__)

    def iceberg_counts(self) -> dict[str, int]:
        """Return the columns of Iceberg's procedure `expire_snapshots`."""
        return {
            "deleted_data_files_count": self.data,
            "deleted_position_delete_files_count": self.position_deletes,
            "deleted_equality_delete_files_count": self.equality_deletes,
            "deleted_manifest_files_count": self.manifest,
            "deleted_manifest_lists_count": self.manifest_list,
            "deleted_statistics_files_count": self.statistics,
        }


class SweepResult(Struct, frozen=True, kw_only=True, rename="kebab"):
    deleted: DeletedFiles = DeletedFiles()
    expired_snapshots_count: int = 0
    """Snapshots that cannot come back any more."""
    ended_intents_count: int = 0
    problems: tuple[str, ...] = ()
    """Why some files stay."""

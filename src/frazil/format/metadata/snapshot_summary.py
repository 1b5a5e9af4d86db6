"""Builds the summary of a snapshot from its added and removed files (Java's SnapshotSummary)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from frazil.format.metadata.content_files import DATA_CONTENT, EQUALITY_DELETES

TOTALS: Final = (
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)
"""Each total with the keys that are added to it and subtracted from it."""

PARTITION_SUMMARY_LIMIT: Final = "write.summary.partition-limit"

_MAX_DIGITS: Final = 18


@dataclass(slots=True)
class FileCounts:
    """Counts of added or of removed files, by kind."""

    data_files: int = 0
    records: int = 0
    equality_delete_files: int = 0
    equality_deletes: int = 0
    position_delete_files: int = 0
    deletion_vectors: int = 0
    position_deletes: int = 0
    size: int = 0

    def count(self, content: int, is_deletion_vector: bool, records: int, size: int) -> None:
        """Count a file. The size of a deletion vector is that of its blob."""
        self.size += size
        if content == DATA_CONTENT:
            self.data_files += 1
            self.records += records
        elif content == EQUALITY_DELETES:
            self.equality_delete_files += 1
            self.equality_deletes += records
        else:
            self.position_deletes += records
            if is_deletion_vector:
                self.deletion_vectors += 1
            else:
                self.position_delete_files += 1

    @property
    def delete_files(self) -> int:
        return self.equality_delete_files + self.position_delete_files + self.deletion_vectors


@dataclass(slots=True)
class Changes:
    """What a commit adds and removes, in all partitions or in one."""

    added: FileCounts = field(default_factory=FileCounts)
    removed: FileCounts = field(default_factory=FileCounts)

    def entries(self) -> dict[str, str]:
        """Return the entries of the summary without zero counts."""
        added, removed = self.added, self.removed
        counts = {
            "added-data-files": added.data_files,
            "deleted-data-files": removed.data_files,
            "added-equality-delete-files": added.equality_delete_files,
            "removed-equality-delete-files": removed.equality_delete_files,
            "added-position-delete-files": added.position_delete_files,
            "removed-position-delete-files": removed.position_delete_files,
            "added-delete-files": added.delete_files,
            "removed-delete-files": removed.delete_files,
            "added-dvs": added.deletion_vectors,
            "removed-dvs": removed.deletion_vectors,
            "added-records": added.records,
            "deleted-records": removed.records,
            "added-files-size": added.size,
            "removed-files-size": removed.size,
            "added-position-deletes": added.position_deletes,
            "removed-position-deletes": removed.position_deletes,
            "added-equality-deletes": added.equality_deletes,
            "removed-equality-deletes": removed.equality_deletes,
        }
        return {key: str(count) for key, count in counts.items() if count}


class SummaryBuilder:
    """Counts the files of a commit, in total and by partition."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.duplicate_deletes = 0
        self._partitions: dict[str, Changes] = {}

    def partition(self, path: str) -> Changes:
        """Return the counts of a partition by its path, which is empty for unpartitioned specs."""
        changes = self._partitions.get(path)
        if changes is None:
            changes = self._partitions[path] = Changes()
        return changes

    def build(
        self,
        operation: str,
        properties: Iterable[tuple[str, str]],
        previous: Mapping[str, str] | None,
        *,
        partition_limit: int = 0,
        manifests_created: int,
        manifests_kept: int,
        manifests_replaced: int,
    ) -> dict[str, str]:
        """Return the whole summary; `previous` is that of the parent snapshot, if there is one."""
        entries = self.changes.entries()
        summary = {"operation": operation, **dict(properties), **entries}
        if self.duplicate_deletes:
            summary["deleted-duplicate-files"] = str(self.duplicate_deletes)
        summary["changed-partition-count"] = str(len(self._partitions))
        summary.update(self._partition_entries(partition_limit))
        summary["manifests-created"] = str(manifests_created)
        summary["manifests-kept"] = str(manifests_kept)
        summary["manifests-replaced"] = str(manifests_replaced)
        summary.update(_totals(entries, previous))
        return summary

    def _partition_entries(self, limit: int) -> dict[str, str]:
        if not self._partitions or len(self._partitions) > limit:
            return {}
        entries = {"partition-summaries-included": "true"}
        for path, changes in self._partitions.items():
            if path:
                joined = ",".join(f"{key}={value}" for key, value in changes.entries().items())
                entries[f"partitions.{path}"] = joined
        return entries


def _totals(entries: Mapping[str, str], previous: Mapping[str, str] | None) -> dict[str, str]:
    """Return the totals after a commit, as Java's SnapshotProducer does.

    A total is continued only if the parent has it as a number.
    """
    totals: dict[str, str] = {}
    for name, added, removed in TOTALS:
        before = number("0" if previous is None else previous.get(name))
        if before is None:
            continue
        after = before + int(entries.get(added, "0")) - int(entries.get(removed, "0"))
        if after >= 0:
            totals[name] = str(after)
    return totals


def number(text: str | None) -> int | None:
    """Return a count of a summary, or None if another writer left it out or wrote something
    else."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
        return None
    return int(text)

"""Chooses the manifests that a commit merges, like Java's ManifestMergeManager but with a limit.

Manifests of one spec are packed into bins of the target size, the oldest first. The bin with the
newest manifest is merged only if it has at least `commit.manifest.min-count-to-merge` manifests;
other bins are merged if they have more than one. Java merges all bins in one commit. Here a bin has
at most a few thousand entries and a commit merges one bin, so that no commit pays for the whole
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from frazil.format.manifest.manifest_list import ManifestFile
from frazil.format.manifest.manifest_writer import DEFAULT_TARGET_SIZE_BYTES
from frazil.format.metadata.table_updates import parse_int

MAX_MERGED_ENTRIES: Final = 4_000
"""The most entries that one commit rewrites to merge manifests of one content."""

MERGE_ENABLED: Final = "commit.manifest-merge.enabled"
MIN_COUNT_TO_MERGE: Final = "commit.manifest.min-count-to-merge"
TARGET_SIZE_BYTES: Final = "commit.manifest.target-size-bytes"
_MIN_COUNT_DEFAULT: Final = 100


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The table's properties, parsed like Java does. Invalid values are ignored."""

    enabled: bool = True
    min_count: int = _MIN_COUNT_DEFAULT
    target_size_bytes: int = DEFAULT_TARGET_SIZE_BYTES

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MergeSettings:
        return cls(
            enabled=properties.get(MERGE_ENABLED, "true").lower() == "true",
            min_count=_number(properties, MIN_COUNT_TO_MERGE, _MIN_COUNT_DEFAULT),
            target_size_bytes=_number(properties, TARGET_SIZE_BYTES, DEFAULT_TARGET_SIZE_BYTES),
        )


Mergeable: TypeAlias = tuple[int, int, int]
"""A manifest's partition spec, its length in bytes and the number of its entries."""


def mergeable(listed: ManifestFile) -> Mergeable:
    """Return what merging depends on. A manifest without counts is full."""
    added, existing = listed.added_files_count, listed.existing_files_count
    deleted = listed.deleted_files_count
    if added is None or existing is None or deleted is None:
        return listed.partition_spec_id, listed.manifest_length, MAX_MERGED_ENTRIES + 1
    return listed.partition_spec_id, listed.manifest_length, added + existing + deleted


def bin_to_merge(manifests: Sequence[Mergeable], settings: MergeSettings) -> tuple[int, ...]:
    """Return the positions of the manifests to merge, or nothing. The newest comes first."""
    if not settings.enabled or len(manifests) < 2:
        return ()
    by_spec: dict[int, list[int]] = {}
    for position, (spec_id, _, _) in enumerate(manifests):
        by_spec.setdefault(spec_id, []).append(position)
    for spec_id in sorted(by_spec, reverse=True):
        for packed in _bins(manifests, by_spec[spec_id], settings):
            least = settings.min_count if packed[0] == 0 else 2
            if len(packed) >= max(2, least):
                return tuple(packed)
    return ()


def _bins(
    manifests: Sequence[Mergeable], positions: Sequence[int], settings: MergeSettings
) -> list[list[int]]:
    """Pack the manifests from the end, so that the newest manifests are in the incomplete bin."""
    bins: list[list[int]] = []
    current: list[int] = []
    length = entries = 0
    target = settings.target_size_bytes
    for position in reversed(positions):
        _, own_length, own_entries = manifests[position]
        length += own_length
        entries += own_entries
        if current and (length > target or entries > MAX_MERGED_ENTRIES):
            bins.append(current[::-1])
            current, length, entries = [], own_length, own_entries
        current.append(position)
    if current:
        bins.append(current[::-1])
    return bins[::-1]


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    value = parse_int(properties.get(name, ""))
    return default if value is None or value < 0 else value

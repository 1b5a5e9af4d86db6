"""Which manifests are merged: as in Java for small tables, and always a limited number at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.format.manifest.manifest_list import ManifestFile, read_manifest_list
from frazil.format.manifest.manifest_writer import (
    MAX_MERGED_ENTRIES,
    Mergeable,
    MergeSettings,
    bin_to_merge,
    mergeable,
)
from tests.support.trees import list_bytes, listed

MIB = 1 << 20
HEADER_BYTES, ENTRY_BYTES = 2_000, 90
"""Approximate sizes for a table with few columns."""


def manifest(entries: int, spec_id: int = 0) -> Mergeable:
    return spec_id, HEADER_BYTES + ENTRY_BYTES * entries, entries


def java_bins(manifests: Sequence[Mergeable], target: int) -> list[list[int]]:
    """Return all bins of Java's mergeGroup for all specs in turn. ListPacker.packEnd with a
    lookback of one packs the reversed items forward and reverses the result."""
    bins: list[list[int]] = []
    for spec_id in sorted({one[0] for one in manifests}, reverse=True):
        packed: list[list[int]] = []
        for position in [n for n, one in enumerate(manifests) if one[0] == spec_id][::-1]:
            weight = manifests[position][1]
            if not packed or sum(manifests[n][1] for n in packed[-1]) + weight > target:
                packed.append([])
            packed[-1].append(position)
        bins += [one[::-1] for one in packed[::-1]]
    return bins


def java_merges(
    manifests: Sequence[Mergeable], min_count: int, target: int
) -> list[tuple[int, ...]]:
    return [
        tuple(one)
        for one in java_bins(manifests, target)
        if len(one) > 1 and not (0 in one and len(one) < min_count)
    ]


class Branch:
    """A list of manifests, newest first, that accepts commits."""

    def __init__(self, settings: MergeSettings) -> None:
        self.settings = settings
        self.manifests: list[Mergeable] = []
        self.rewritten: list[int] = []
        """The number of copied entries for each commit."""

    def commit(self, new: Mergeable) -> None:
        # Java lists manifests by spec, newest first.
        self.manifests = sorted([new, *self.manifests], key=lambda one: -one[0])
        chosen = bin_to_merge(self.manifests, self.settings)
        entries = sum(self.manifests[position][2] for position in chosen)
        self.rewritten.append(entries)
        if chosen:
            merged = manifest(entries, self.manifests[chosen[0]][0])
            self.manifests[chosen[0]] = merged
            kept = [n for n in range(len(self.manifests)) if n not in chosen[1:]]
            self.manifests = [self.manifests[n] for n in kept]


# --- as Java does ----------------------------------------------------------------------------


def test_nothing_is_merged_before_the_count_is_reached() -> None:
    ninety_nine = [manifest(1)] * 99
    assert bin_to_merge(ninety_nine, MergeSettings()) == ()
    assert bin_to_merge([manifest(1), *ninety_nine], MergeSettings()) == tuple(range(100))


@pytest.mark.parametrize("min_count", [0, 1, 2])
def test_two_are_the_fewest(min_count: int) -> None:
    settings = MergeSettings(min_count=min_count)
    assert bin_to_merge([], settings) == ()
    assert bin_to_merge([manifest(1)], settings) == ()
    assert bin_to_merge([manifest(1)] * 2, settings) == (0, 1)


def test_a_bin_without_the_newest_manifest_needs_only_two() -> None:
    target = manifest(1)[1] * 3
    settings = MergeSettings(target_size_bytes=target)
    # Packing starts at the end: the three oldest fill a bin, and the newest is in a partial bin.
    assert bin_to_merge([manifest(1)] * 4, settings) == (1, 2, 3)
    assert bin_to_merge([manifest(1)] * 3, settings) == ()


def test_specs_are_not_mixed() -> None:
    manifests = [manifest(1, 1), manifest(1, 0), manifest(1, 0), manifest(1, 1)]
    assert bin_to_merge(manifests, MergeSettings(min_count=2)) == (0, 3)
    # The minimum count applies only to the spec of the newest manifest.
    assert bin_to_merge(manifests, MergeSettings(min_count=3)) == (1, 2)


def test_merging_can_be_switched_off() -> None:
    assert bin_to_merge([manifest(1)] * 500, MergeSettings(enabled=False)) == ()


_few = st.lists(
    st.builds(manifest, st.integers(1, 100), st.integers(0, 2)), max_size=MAX_MERGED_ENTRIES // 100
)


@given(_few, st.integers(0, 12), st.integers(1, 60_000))
def test_among_few_entries_a_bin_is_one_that_java_merges(
    manifests: list[Mergeable], min_count: int, target: int
) -> None:
    settings = MergeSettings(min_count=min_count, target_size_bytes=target)
    merges = java_merges(manifests, min_count, target)
    # Java merges all bins at once; our commits merge only the first one.
    assert bin_to_merge(manifests, settings) == (merges[0] if merges else ())


# --- the bound -------------------------------------------------------------------------------


@given(st.lists(st.builds(manifest, st.integers(1, 6_000), st.integers(0, 1)), max_size=60))
def test_no_merge_takes_more_than_the_bound(manifests: list[Mergeable]) -> None:
    chosen = bin_to_merge(manifests, MergeSettings(min_count=2))
    assert len(set(chosen)) == len(chosen) != 1
    assert list(chosen) == sorted(chosen)
    assert len({manifests[position][0] for position in chosen}) <= 1
    assert sum(manifests[position][2] for position in chosen) <= MAX_MERGED_ENTRIES


@pytest.mark.parametrize("min_count", [2, 10, 100])
def test_thousands_of_commits_of_one_file_keep_the_tree_small(min_count: int) -> None:
    branch, commits, most = Branch(MergeSettings(min_count=min_count)), 13_000, 0
    for number in range(1, commits + 1):
        branch.commit(manifest(1))
        most = max(most, len(branch.manifests))
        assert sum(entries for _, _, entries in branch.manifests) == number
    assert max(branch.rewritten) <= MAX_MERGED_ENTRIES
    assert most <= min_count + commits / MAX_MERGED_ENTRIES + 1
    # A file is copied each time a merge adds manifests to its bin. On average that is half as often
    # as there are merges until the bin is full.
    merges = MAX_MERGED_ENTRIES / (min_count - 1)
    assert sum(branch.rewritten) <= commits * merges * 0.51


@given(
    st.lists(
        st.builds(manifest, st.sampled_from([1, 1, 1, 7, 300, 2_500, 5_000]), st.integers(0, 1)),
        max_size=400,
    ),
    st.sampled_from([2, 5, 20]),
)
def test_commits_of_all_sizes_and_specs_keep_the_tree_small(
    commits: list[Mergeable], min_count: int
) -> None:
    branch = Branch(MergeSettings(min_count=min_count))
    for new in commits:
        branch.commit(new)
        assert branch.rewritten[-1] <= MAX_MERGED_ENTRIES
    entries = sum(one[2] for one in commits)
    assert sum(one[2] for one in branch.manifests) == entries
    # Two adjacent bins together exceed the bound; otherwise they would be one bin.
    full = 2 * entries / MAX_MERGED_ENTRIES
    assert len(branch.manifests) <= full + 2 * (min_count + 1)


def test_a_table_that_was_left_in_small_pieces_is_merged_a_bin_a_commit() -> None:
    branch = Branch(MergeSettings())
    branch.manifests = [manifest(50)] * 1_000
    for _ in range(30):
        branch.commit(manifest(1))
    assert max(branch.rewritten) <= MAX_MERGED_ENTRIES
    # 50,000 entries make 13 bins; the bin with the newest manifest waits for a hundred manifests.
    assert len(branch.manifests) < 12 + 100


# --- what is read from the list and the properties -------------------------------------------


def listed_manifest(**values: object) -> ManifestFile:
    (found,) = read_manifest_list(list_bytes([listed("m", 1, **values)], 1)).manifests
    return found


def test_entries_are_those_of_every_status() -> None:
    counts = {"added_files_count": 3, "existing_files_count": 20, "deleted_files_count": 100}
    found = listed_manifest(manifest_length=77, partition_spec_id=4, **counts)
    assert mergeable(found) == (4, 77, 123)


@pytest.mark.parametrize("unknown", ["added", "existing", "deleted"])
def test_a_manifest_of_unknown_size_is_left_alone(unknown: str) -> None:
    found = mergeable(listed_manifest(**{f"{unknown}_files_count": None}))
    manifests = [manifest(1), manifest(1), found, manifest(1), manifest(1)]
    assert bin_to_merge(manifests, MergeSettings(min_count=9)) == (3, 4)
    assert bin_to_merge(manifests[:3], MergeSettings(min_count=2)) == (0, 1)


def test_the_properties_are_javas() -> None:
    assert MergeSettings.of({}) == MergeSettings(True, 100, 8 * MIB)
    properties = {
        "commit.manifest-merge.enabled": "FALSE",
        "commit.manifest.min-count-to-merge": "7",
        "commit.manifest.target-size-bytes": "1024",
    }
    assert MergeSettings.of(properties) == MergeSettings(False, 7, 1024)


@pytest.mark.parametrize("nonsense", ["", "many", "-1", "1.5"])
def test_nonsense_counts_as_not_set(nonsense: str) -> None:
    names = ("commit.manifest.min-count-to-merge", "commit.manifest.target-size-bytes")
    assert MergeSettings.of(dict.fromkeys(names, nonsense)) == MergeSettings()

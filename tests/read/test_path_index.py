"""The joined path hashes find every manifest that has a path, and there are few of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns, path_hashes
from frazil.format.manifest.manifest_list import ManifestFile
from frazil.read import path_index
from frazil.read.path_index import Hashes, PathIndex, PathIndexes
from tests.format.manifest_files import LISTED, data_file, encoder_of, manifest_of

FILES = 3
"""The number of files in each manifest; the last two manifests share their first path."""
COUNT = 150


def _pool() -> list[tuple[ManifestFile, ManifestColumns]]:
    encoder = encoder_of()
    pool = []
    for number in range(COUNT):
        files = [data_file(number * FILES + n) for n in range(FILES)]
        if number == COUNT - 2:
            files[0] = data_file((COUNT - 1) * FILES)
        columns = decode_columns(manifest_of(encoder, files, "null"))
        pool.append((replace(LISTED, manifest_path=f"m{number}"), columns))
    return pool


POOL = _pool()
COLUMNS = {listed.manifest_path: columns for listed, columns in POOL}
HOLDERS: dict[str, set[str]] = {}
for _name, _columns in COLUMNS.items():
    for _row in range(FILES):
        HOLDERS.setdefault(_columns.path(_row), set()).add(_name)


def listed_of(numbers: Sequence[int]) -> list[ManifestFile]:
    return [POOL[number][0] for number in numbers]


def path(number: int, file: int = 0) -> str:
    return data_file(number * FILES + file).file_path


def hashes(*paths: str) -> Hashes:
    return path_hashes(paths)


def holders(listed: Sequence[ManifestFile], *paths: str) -> set[str]:
    """Return the manifests that really have one of the paths."""
    there = {one.manifest_path for one in listed}
    return {name for path in paths for name in HOLDERS.get(path, ()) if name in there}


def names(listed: Sequence[ManifestFile]) -> list[str]:
    return [one.manifest_path for one in listed]


@dataclass
class Table:
    """A table that queries its index and records what was read to build it."""

    indexes: PathIndexes = field(default_factory=lambda: PathIndexes(1 << 20))
    name: str = "t"
    read: list[list[str]] = field(default_factory=list)

    def columns(self, listed: Sequence[ManifestFile]) -> list[ManifestColumns]:
        self.read.append(names(listed))
        return [COLUMNS[one.manifest_path] for one in listed]

    def candidates(self, listed: Sequence[ManifestFile], *paths: str) -> list[str]:
        found = self.indexes.candidates(self.name, listed, hashes(*paths), self.columns)
        return names(found)

    def index(self) -> PathIndex:
        found = self.indexes._kept.get(self.name)
        assert found is not None
        return found


# --- the index of a table --------------------------------------------------------------------


def test_few_manifests_are_all_candidates_and_nothing_is_joined() -> None:
    table = Table()
    few = listed_of(range(path_index._MAX_UNCOVERED_MANIFESTS))
    assert table.candidates(few, path(0)) == names(few)
    assert (table.read, table.indexes.size_bytes) == ([], 0)


def test_no_paths_are_no_reason_to_read() -> None:
    table = Table()
    many = listed_of(range(100))
    assert table.candidates(many) == names(many)
    assert table.read == []


def test_many_manifests_are_joined_once_and_then_exclude_each_other() -> None:
    table = Table()
    many = listed_of(range(100))
    # The first query returns all manifests and builds the index for the next one.
    assert table.candidates(many, "new") == names(many)
    assert table.candidates(many, "new") == []
    assert table.candidates(many, "new", path(70, 2)) == names(many)
    assert table.read == [names(many)]


def test_what_no_level_covers_is_a_candidate() -> None:
    table = Table()
    table.candidates(listed_of(range(100)), "new")
    assert table.candidates(listed_of(range(105)), "new") == [f"m{n}" for n in range(100, 105)]
    # Manifests are joined when there are too many to search one by one.
    table.candidates(listed_of(range(140)), "new")
    assert table.read[1:] == [[f"m{n}" for n in range(100, 140)]]
    assert table.candidates(listed_of(range(140)), "new") == []


def test_a_path_in_two_manifests_finds_both() -> None:
    table = Table()
    everything = listed_of(range(COUNT))
    table.candidates(everything, "new")
    found = table.candidates(everything, path(COUNT - 1))
    assert {f"m{COUNT - 2}", f"m{COUNT - 1}"} <= set(found)


def test_tables_do_not_see_each_other() -> None:
    indexes = PathIndexes(1 << 20)
    one, other = Table(indexes, "one"), Table(indexes, "other")
    many = listed_of(range(60))
    one.candidates(many, "new")
    assert other.candidates(many, "new") == names(many)
    assert other.read == [names(many)]


def test_an_index_over_the_budget_is_not_kept_and_the_answer_is_right() -> None:
    table = Table(PathIndexes(1_000))
    many = listed_of(range(100))
    for _ in range(2):
        assert holders(many, path(7)) <= set(table.candidates(many, path(7)))
    assert table.indexes.size_bytes == 0
    assert len(table.read) == 2


def test_the_budget_counts_hashes_and_names() -> None:
    table = Table()
    table.candidates(listed_of(range(100)), "new")
    assert table.indexes.size_bytes == table.index().size_bytes
    assert table.index().size_bytes >= 100 * FILES * 8
    # After another join, the size counts the new index in place of the old one.
    table.candidates(listed_of(range(140)), "new")
    assert table.indexes.size_bytes == table.index().size_bytes


# --- whatever happens to the table -----------------------------------------------------------

_lists = st.lists(
    st.builds(
        lambda seed, count: random.Random(seed).sample(range(COUNT), count),
        st.integers(0, 1_000),
        st.integers(20, COUNT),
    ),
    min_size=1,
    max_size=8,
)
_paths = st.lists(
    st.one_of(
        st.builds(path, st.integers(0, COUNT - 1), st.integers(0, FILES - 1)),
        st.builds(lambda number: f"new-{number}", st.integers(0, 20)),
    ),
    min_size=1,
    max_size=5,
)


@given(_lists, st.lists(_paths, min_size=8, max_size=8))
def test_no_manifest_that_holds_a_path_is_ever_missed(
    lists: list[list[int]], asked: list[list[str]]
) -> None:
    table = Table()
    for numbers, paths in zip(lists, asked, strict=False):
        listed = listed_of(numbers)
        found = table.candidates(listed, *paths)
        assert holders(listed, *paths) <= set(found)
        # Candidates are in the order of the list, and every candidate is in the list.
        assert found == [name for name in names(listed) if name in set(found)]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_levels_grow_by_a_factor_and_are_few(sizes: list[int]) -> None:
    index, first = PathIndex(), 0
    for size in sizes:
        added = POOL[first : first + size]
        if not added:
            break
        first += size
        index = index.joined(listed_of(range(min(first, COUNT))), added)
        lengths = [len(level.hashes) for level in index.levels]
        assert sum(lengths) == min(first, COUNT) * FILES
        for smaller, larger in pairwise(lengths):
            assert larger >= path_index._LEVEL_GROWTH * smaller
        for level in index.levels:
            assert (level.hashes[:-1] <= level.hashes[1:]).all()


def test_a_level_goes_when_the_table_lists_less_than_half_of_it() -> None:
    large = PathIndex().joined(listed_of(range(100)), POOL[:100])
    both = large.joined(listed_of(range(110)), POOL[100:110])
    assert [len(level.manifests) for level in both.levels] == [10, 100]
    kept = both.joined(listed_of([*range(50), 110]), POOL[110:111])
    assert [len(level.manifests) for level in kept.levels] == [1, 100]
    gone = both.joined(listed_of([*range(49), *range(100, 105), 110]), POOL[110:112])
    assert [len(level.manifests) for level in gone.levels] == [2, 10]
    # Listed manifests of the removed level are no longer covered.
    _, uncovered = gone.candidates(listed_of(range(49)), hashes(path(0)))
    assert names(uncovered) == names(listed_of(range(49)))


def test_an_index_of_nothing_excludes_nothing() -> None:
    many = listed_of(range(30))
    found, uncovered = PathIndex().candidates(many, hashes(path(0)))
    assert names(found) == names(uncovered) == names(many)
    empty = PathIndex().joined(many, [])
    assert not empty.levels[0].may_hold(hashes(path(0)))

"""Sets of row positions are built in bulk, merged and serialized; duplicate rows are found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from frazil.datafiles.reading.row_positions import (
    FilePositions,
    PositionCollector,
    Positions,
    position_array,
    unite,
)

HIGH = 2**32 + 5


def collected(*batches: tuple[list[str], list[int]]) -> dict[str, FilePositions]:
    collector = PositionCollector()
    for files, positions in batches:
        collector.add(pa.array(files, pa.string()), pa.array(positions, pa.int64()))
    return {one.file_path: one for one in collector.collected()}


def test_a_set_is_the_same_from_any_order_and_through_bytes() -> None:
    rng = np.random.default_rng(7)
    numbers = np.unique(rng.integers(0, 1_000_000, 5_000)).astype(np.int64)
    numbers = np.append(numbers, HIGH)
    shuffled = rng.permutation(np.concatenate([numbers, numbers[:10]]))
    found = collected((["a"] * len(shuffled), shuffled.tolist()))["a"].positions
    assert position_array(found).tolist() == numbers.tolist()
    assert len(found) == len(numbers)
    assert Positions.deserialize(found.serialize()) == found


def test_positions_are_collected_by_file_over_batches() -> None:
    found = collected((["a", "b", "a"], [7, 1, 3]), (["b"], [0]), (["a"], [5]))
    assert list(found["a"].positions) == [3, 5, 7]
    assert list(found["b"].positions) == [0, 1]
    assert found["a"].duplicate is None
    assert found["b"].duplicate is None
    assert not collected(([], []))


def test_paths_may_come_as_a_dictionary_with_unused_entries() -> None:
    collector = PositionCollector()
    files = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int32()), ["unused", "a"])
    collector.add(files, pa.array([2, 1], pa.int64()))
    assert [(one.file_path, list(one.positions)) for one in collector.collected()] == [
        ("a", [1, 2])
    ]


@pytest.mark.parametrize(
    "batches",
    [((["a", "b", "a"], [7, 7, 7]),), ((["a"], [7]), (["a", "a"], [6, 7]))],
    ids=["in-one-batch", "in-two-batches"],
)
def test_a_row_that_is_met_twice_is_named(batches: tuple[tuple[list[str], list[int]], ...]) -> None:
    assert collected(*batches)["a"].duplicate == 7


def test_sets_of_tasks_are_united_and_show_rows_met_by_two_of_them() -> None:
    first = collected((["a", "b"], [1, 2]))
    second = collected((["a", "c"], [3, 2]))
    united = unite([*first.values(), *second.values()])
    assert {path: list(one.positions) for path, one in united.items()} == {
        "a": [1, 3],
        "b": [2],
        "c": [2],
    }
    assert all(one.duplicate is None for one in united.values())
    third = collected((["b"], [2]))
    assert unite([*first.values(), *third.values()])["b"].duplicate == 2
    within = collected((["a", "a"], [9, 9]))
    assert unite([*within.values(), *first.values()])["a"].duplicate == 9
    assert unite([*first.values(), *within.values()])["a"].duplicate == 9

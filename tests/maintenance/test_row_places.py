"""A rewrite knows where each row went, whatever the order of the new files is."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.row_positions import Positions
from frazil.maintenance.row_places import FilledInOrder, MovedRows, PlacedRows, Places, ReadRows

OLD = {"a": range(0, 50), "b": range(0, 90, 3), "c": [], "d": [7]}
NEW = (30, 1, 40, 10)
"""The number of rows of each new file."""


def read_rows() -> tuple[ReadRows, list[tuple[str, int]]]:
    read = ReadRows()
    numbered = [(path, position) for path, positions in OLD.items() for position in positions]
    for path, positions in OLD.items():
        read.add(path, Positions(positions))
    assert read.count == len(numbered) == sum(NEW)
    return read, numbered


def in_order() -> tuple[Places, list[int]]:
    files = [
        DataFile(
            spec_id=0,
            partition=(),
            file_path=f"new{number}",
            file_format="parquet",
            file_size_in_bytes=1,
            record_count=count,
        )
        for number, count in enumerate(NEW)
    ]
    return FilledInOrder(files), list(range(sum(NEW)))


def shuffled(seed: int) -> tuple[Places, list[int]]:
    """Write rows in any order, several at once, with the files taking turns."""
    chance = random.Random(seed)
    order = list(range(sum(NEW)))
    chance.shuffle(order)
    placed, filled, start = PlacedRows(sum(NEW)), [0] * len(NEW), 0
    by_file: list[list[int]] = [[] for _ in NEW]
    while start < len(order):
        file = chance.choice([n for n, count in enumerate(NEW) if filled[n] < count])
        count = chance.randint(1, NEW[file] - filled[file])
        rows = order[start : start + count]
        placed.place(f"new{file}", pa.array(rows, pa.int64()), filled[file])
        by_file[file] += rows
        filled[file] += count
        start += count
    return placed, [row for rows in by_file for row in rows]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("rows_at_once", [1 << 20, 7])
def test_any_rows_are_found(
    monkeypatch: pytest.MonkeyPatch, seed: int | None, rows_at_once: int
) -> None:
    monkeypatch.setattr("frazil.maintenance.row_places._ROWS_AT_ONCE", rows_at_once)
    read, numbered = read_rows()
    places, order = in_order() if seed is None else shuffled(seed)
    written = [(f"new{file}", at) for file, count in enumerate(NEW) for at in range(count)]
    new_place = {numbered[row]: place for row, place in zip(order, written, strict=True)}
    rows = MovedRows(read, places)
    chance = random.Random(seed)
    for _ in range(20):
        asked: dict[str, Positions | None] = {"c": None}
        expected: dict[str, set[int]] = {}
        for path, positions in OLD.items():
            some = {at for at in range(100) if chance.random() < 0.2}
            # Positions that were not read are ignored; None stands for all.
            asked[path] = None if chance.random() < 0.2 else Positions(some)
            for at in positions:
                if asked[path] is None or at in some:
                    new_path, new_at = new_place[path, at]
                    expected.setdefault(new_path, set()).add(new_at)
        assert {path: set(found) for path, found in rows.moved(asked).items()} == expected


def test_places_of_many_rows_are_in_a_file_without_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frazil.maintenance.row_places._MAX_ROWS_IN_MEMORY", 10)
    placed = PlacedRows(1000)
    placed.place("new", pa.array(range(999, -1, -1), pa.int64()), 0)
    ((path, found),) = placed.of(np.array([0, 999]))
    assert (path, found.tolist()) == ("new", [999, 0])

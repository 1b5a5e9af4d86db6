"""Remembers where each row of a rewritten group was, and where it went.

Rows are numbered as they are read: file after file, by ascending position. So a bitmap of the
positions that were read from each file is enough to find the number of a row. From its number to
its place in the new files lead either the row counts of these files, if they were filled in the
order of the numbers, or an array with 8 bytes for each row, which lies in a temporary file if it is
large.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from frazil.client.rows.row_files import positions_of
from frazil.datafiles.footers.files_from_parquet import DataFile
from frazil.datafiles.reading.row_positions import Positions, position_array

Numbers = npt.NDArray[np.int64]

_POSITION_BITS: Final = 40
_POSITION_MASK: Final = (1 << _POSITION_BITS) - 1
_MAX_ROWS_IN_MEMORY: Final = 4 << 20
_ROWS_AT_ONCE: Final = 1 << 20


class ReadRows:
    """The live rows that were read from each old file."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, Positions]] = {}
        """For each file, how many rows were read before it, and the positions of its rows."""
        self.count = 0

    def add(self, path: str, positions: Positions) -> None:
        self._files[path] = self.count, positions
        self.count += len(positions)

    def numbers(self, path: str, positions: Positions | None) -> Iterator[Numbers]:
        """Yield the numbers of those rows at the positions that were read; None for all."""
        before, read = self._files[path]
        if positions is None:
            for start in range(before, before + len(read), _ROWS_AT_ONCE):
                yield np.arange(start, min(start + _ROWS_AT_ONCE, before + len(read)))
            return
        wanted = position_array(positions & read)
        if not len(wanted):
            return
        all_read = position_array(read)
        for start in range(0, len(wanted), _ROWS_AT_ONCE):
            part = wanted[start : start + _ROWS_AT_ONCE]
            yield before + np.searchsorted(all_read, part).astype(np.int64)


class Places(Protocol):
    """Leads from the numbers of rows to their places in the new files."""

    def of(self, numbers: Numbers) -> Iterator[tuple[str, Numbers]]:
        """Yield positions by the path of the new file."""


class FilledInOrder:
    """The places of rows that fill the files in the order of their numbers."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._paths = [file.file_path for file in files]
        self._ends = np.array(list(accumulate(file.record_count for file in files)), np.int64)

    def of(self, numbers: Numbers) -> Iterator[tuple[str, Numbers]]:
        files = np.searchsorted(self._ends, numbers, side="right")
        for file in np.unique(files):
            start = self._ends[file - 1] if file else 0
            yield self._paths[file], numbers[files == file] - start


class PlacedRows:
    """The places of rows in any order, one by one."""

    def __init__(self, max_rows: int) -> None:
        self._places = _new_array(max_rows)
        self._files: dict[str, int] = {}
        self._paths: list[str] = []

    def place(self, path: str, numbers: pa.Array, start: int) -> None:
        """Note that rows follow each other in a file from the position `start` on."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = len(self._paths)
            self._paths.append(path)
        first = (file << _POSITION_BITS) + start
        places = np.arange(first, first + len(numbers), dtype=np.int64)
        self._places[numbers.to_numpy(zero_copy_only=False)] = places

    def of(self, numbers: Numbers) -> Iterator[tuple[str, Numbers]]:
        places = self._places[numbers]
        files = places >> _POSITION_BITS
        for file in np.unique(files):
            yield self._paths[file], places[files == file] & _POSITION_MASK


def _new_array(rows: int) -> Numbers:
    if rows <= _MAX_ROWS_IN_MEMORY:
        return np.empty(rows, np.int64)
    # The file has no name, so that it is gone when the array is.
    with tempfile.TemporaryFile(prefix="frazil-rows-") as file:
        return np.memmap(file, np.int64, "w+", shape=(rows,))


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The row map of an engine that reads and writes rows in this process."""

    read: ReadRows
    places: Places

    def moved(self, rows: Mapping[str, Positions | None]) -> Mapping[str, Positions]:
        """Return the positions of rows in the new files."""
        found: dict[str, BitMap64] = {}
        for old_path, positions in rows.items():
            for numbers in self.read.numbers(old_path, positions):
                for path, new in self.places.of(numbers):
                    found.setdefault(path, BitMap64()).update(positions_of([new]))
        return {path: Positions(bitmap) for path, bitmap in found.items()}

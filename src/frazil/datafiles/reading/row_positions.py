"""Sets of row positions in data files, which are built in bulk, united and sent as bytes.

A set is a 64-bit Roaring bitmap in the layout of deletion vectors, so that a million positions take
about a hundred kilobytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

PositionArray = npt.NDArray[np.uint64]
Positions: TypeAlias = FrozenBitMap64
"""An immutable set of positions in one data file."""
NO_POSITIONS: Final = Positions()


def position_array(positions: Positions) -> PositionArray:
    """Return the positions in ascending order."""
    return np.frombuffer(positions.to_array(), dtype=np.uint64)


class FilePositions(NamedTuple):
    """The positions that a task has collected for one data file."""

    file_path: str
    positions: Positions
    duplicate: int | None
    """A position that was added more than once."""


class PositionCollector:
    """Collects columns of file paths and positions into one set for each file."""

    def __init__(self) -> None:
        self._by_file: dict[str, list[PositionArray]] = {}

    def add(self, files: pa.Array, positions: pa.Array) -> None:
        """Add rows by two columns without nulls. Rows of one file may be scattered."""
        if not len(files):
            return
        if not isinstance(files, pa.DictionaryArray):
            files = pc.dictionary_encode(files)
        numbers = positions.to_numpy(zero_copy_only=False).astype(np.uint64)
        codes = files.indices.to_numpy(zero_copy_only=False)
        paths = files.dictionary.to_pylist()
        if len(paths) == 1:
            self._by_file.setdefault(paths[0], []).append(numbers)
            return
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(paths)))
        for path, part in zip(paths, np.split(numbers[order], ends[:-1]), strict=True):
            if len(part):
                self._by_file.setdefault(path, []).append(part)

    def collected(self) -> Iterator[FilePositions]:
        for path, parts in self._by_file.items():
            numbers = np.sort(np.concatenate(parts))
            repeated = numbers[1:][numbers[1:] == numbers[:-1]]
            duplicate = int(repeated[0]) if len(repeated) else None
            # pyroaring reads an `array` four times as fast as a numpy array.
            yield FilePositions(path, Positions(array("Q", numbers.tobytes())), duplicate)


def unite(parts: Iterable[FilePositions]) -> dict[str, FilePositions]:
    """Unite the sets of several tasks into one for each file, by the file's path.

    A position in the sets of two tasks is a duplicate, too.
    """
    united: dict[str, FilePositions] = {}
    for part in parts:
        before = united.get(part.file_path)
        if before is None:
            united[part.file_path] = part
            continue
        duplicate = before.duplicate if before.duplicate is not None else part.duplicate
        if duplicate is None:
            common = before.positions & part.positions
            duplicate = common.min() if common else None
        united[part.file_path] = FilePositions(
            part.file_path, before.positions | part.positions, duplicate
        )
    return united

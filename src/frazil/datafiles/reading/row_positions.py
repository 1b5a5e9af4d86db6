"""Sets of row positions in data files, which are built in bulk, united and sent as bytes.

A set is a 64-bit Roaring bitmap in the layout of deletion vectors, so that a million positions take
about a hundred kilobytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from frazil.values.deletion_vectors import DeletionVector

PositionArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """An immutable set of positions in one data file."""

    _bitmap: BitMap64
    """Never changed."""

    @classmethod
    def of(cls, positions: Iterable[int]) -> Positions:
        """Make a set of a few positions, in any order."""
        return cls.from_array(np.fromiter(positions, dtype=np.uint64))

    @classmethod
    def from_array(cls, positions: npt.NDArray[Any]) -> Positions:
        """Make a set of positions in any order, which may be repeated."""
        return cls.from_sorted(np.sort(positions.astype(np.uint64, copy=False)))

    @classmethod
    def from_sorted(cls, positions: PositionArray) -> Positions:
        """Make a set of positions in ascending order."""
        # pyroaring reads an `array` four times as fast as a numpy array.
        numbers = array("Q")
        numbers.frombytes(np.ascontiguousarray(positions).tobytes())
        return cls(BitMap64(numbers))

    @classmethod
    def deserialize(cls, data: bytes) -> Positions:
        """Read bytes of `serialize`; the bytes of delete files are read by `deletes_reader`."""
        return cls(BitMap64.deserialize(data))

    @classmethod
    def of_vector(cls, vector: DeletionVector) -> Positions:
        return cls(BitMap64(vector.bitmap))

    def serialize(self) -> bytes:
        data: bytes = self._bitmap.serialize()
        return data

    def __len__(self) -> int:
        return len(self._bitmap)

    def __iter__(self) -> Iterator[int]:
        return iter(self._bitmap)

    def __contains__(self, position: int) -> bool:
        return position in self._bitmap

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and bool(self._bitmap == other._bitmap)

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Positions) -> Positions:
        return Positions(self._bitmap | other._bitmap)

    def common(self, other: Positions) -> int | None:
        """Return the first position that both sets have."""
        both = self._bitmap & other._bitmap
        return int(both.min()) if both else None

    def to_array(self) -> PositionArray:
        """Return the positions in ascending order."""
        return np.frombuffer(self._bitmap.to_array(), dtype=np.uint64)

    def vector(self) -> DeletionVector:
        return DeletionVector.from_positions(self._bitmap.to_array())

    def __repr__(self) -> str:
        return f"Positions(cardinality={len(self)})"


NO_POSITIONS = Positions(BitMap64())


class FilePositions(NamedTuple):
    """The positions that a task has collected for one data file."""

    file_path: str
    positions: Positions
    duplicate: int | None
    """A position that was added more than once."""


def positions_by_file(files: pa.Array, positions: pa.Array) -> Iterator[tuple[str, PositionArray]]:
    """Split two columns without nulls by file. Rows of one file may be scattered."""
    if not len(files):
        return
    if not isinstance(files, pa.DictionaryArray):
        files = pc.dictionary_encode(files)
    numbers = positions.to_numpy(zero_copy_only=False).astype(np.uint64)
    codes = files.indices.to_numpy(zero_copy_only=False)
    paths = files.dictionary.to_pylist()
    if len(paths) == 1:
        yield paths[0], numbers
        return
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths)))
    for path, part in zip(paths, np.split(numbers[order], ends[:-1]), strict=True):
        if len(part):
            yield path, part


class PositionCollector:
    """Collects columns of file paths and positions into one set for each file."""

    def __init__(self) -> None:
        self._by_file: dict[str, list[PositionArray]] = {}

    def add(self, files: pa.Array, positions: pa.Array) -> None:
        """Add rows by two columns without nulls."""
        for path, numbers in positions_by_file(files, positions):
            self._by_file.setdefault(path, []).append(numbers)

    def collected(self) -> Iterator[FilePositions]:
        for path, parts in self._by_file.items():
            numbers = np.sort(np.concatenate(parts))
            repeated = numbers[1:][numbers[1:] == numbers[:-1]]
            duplicate = int(repeated[0]) if len(repeated) else None
            yield FilePositions(path, Positions.from_sorted(numbers), duplicate)


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
            duplicate = before.positions.common(part.positions)
        united[part.file_path] = FilePositions(
            part.file_path, before.positions | part.positions, duplicate
        )
    return united

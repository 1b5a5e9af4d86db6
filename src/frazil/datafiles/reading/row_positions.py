"""Positions of rows in data files: sets that are built in bulk, united and sent about as bytes.

A set is a 64-bit Roaring bitmap in the layout that deletion vectors have inside, so that a million
positions travel as some hundred kilobytes. Runs on executors.
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
    """Nobody changes it once it is in here."""

    @classmethod
    def of(cls, positions: Iterable[int]) -> Positions:
        """Few positions, in any order."""
        return cls.from_array(np.fromiter(positions, dtype=np.uint64))

    @classmethod
    def from_array(cls, positions: npt.NDArray[Any]) -> Positions:
        """Positions in any order, repeated or not."""
        return cls.from_sorted(np.sort(positions.astype(np.uint64, copy=False)))

    @classmethod
    def from_sorted(cls, positions: PositionArray) -> Positions:
        """The library takes in an array of its own kind four times as fast as one of numpy's."""
        numbers = array("Q")
        numbers.frombytes(np.ascontiguousarray(positions).tobytes())
        return cls(BitMap64(numbers))

    @classmethod
    def deserialize(cls, data: bytes) -> Positions:
        """Of bytes that this program has serialized; a file's are read by `deletes_reader`."""
        return cls(BitMap64.deserialize(data))

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
        """The first position that both have."""
        both = self._bitmap & other._bitmap
        return int(both.min()) if both else None

    def to_array(self) -> PositionArray:
        """In ascending order."""
        return np.frombuffer(self._bitmap.to_array(), dtype=np.uint64)

    def vector(self) -> DeletionVector:
        return DeletionVector.from_positions(self._bitmap.to_array())

    def __repr__(self) -> str:
        return f"Positions(cardinality={len(self)})"


NO_POSITIONS = Positions(BitMap64())


class FilePositions(NamedTuple):
    """What one task has found of one data file."""

    file_path: str
    positions: Positions
    twice: int | None
    """A position that was met more than once."""


class PositionCollector:
    """Takes in columns of file paths and positions, and makes one set for each file."""

    def __init__(self) -> None:
        self._found: dict[str, list[PositionArray]] = {}

    def add(self, files: pa.Array, positions: pa.Array) -> None:
        """Both without nulls. Rows of one file mostly stand together, but need not."""
        if not isinstance(files, pa.DictionaryArray):
            files = pc.dictionary_encode(files)
        numbers = positions.to_numpy(zero_copy_only=False).astype(np.uint64)
        codes = files.indices.to_numpy(zero_copy_only=False)
        paths = files.dictionary.to_pylist()
        if len(paths) == 1:
            self._found.setdefault(paths[0], []).append(numbers)
            return
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(paths)))
        for path, part in zip(paths, np.split(numbers[order], ends[:-1]), strict=True):
            if len(part):
                self._found.setdefault(path, []).append(part)

    def collected(self) -> Iterator[FilePositions]:
        for path, parts in self._found.items():
            numbers = np.sort(np.concatenate(parts))
            repeated = numbers[1:][numbers[1:] == numbers[:-1]]
            twice = int(repeated[0]) if len(repeated) else None
            yield FilePositions(path, Positions.from_sorted(numbers), twice)


def unite(found: Iterable[FilePositions]) -> dict[str, FilePositions]:
    """One set for each file out of those that tasks have found, by the file's path.

    A position in the sets of two tasks was met twice, too.
    """
    united: dict[str, FilePositions] = {}
    for one in found:
        before = united.get(one.file_path)
        if before is None:
            united[one.file_path] = one
            continue
        twice = before.twice if before.twice is not None else one.twice
        if twice is None:
            twice = before.positions.common(one.positions)
        united[one.file_path] = FilePositions(
            one.file_path, before.positions | one.positions, twice
        )
    return united

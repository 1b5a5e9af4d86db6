"""Lower or upper bounds of one column for many files: the binary single values as arrays.

A bound has no type of its own: the reader's schema has it, and may have been promoted since the
bound was written. Bounds are therefore kept as the bytes that they are, in the densest form that
fits all of a manifest's files:

NumberBounds   all of them 1, 4 or 8 bytes: one array of little-endian numbers
TextBounds     any length: the first 16 bytes as two big-endian numbers, which compare as the
               bytes do, the length, and what is longer in a heap
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import Rows, compact, constant, spread, taken

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

WORD_BYTES: Final = 8
HEAD_BYTES: Final = 16
"""What is kept in arrays; the rest of a longer bound is in the heap."""
NUMBER_WIDTHS: Final = {1: np.uint8, 4: np.uint32, 8: np.uint64}
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(WORD_BYTES + 1)], np.uint64)
"""By length, what is left of a little-endian word."""


def masked(words: Words, lengths: NDArray[Any]) -> Words:
    """Little-endian words without the bytes behind these lengths."""
    kept: Words = words & _MASKS[np.clip(lengths, 0, WORD_BYTES)]
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class NumberBounds:
    """Bounds of one width."""

    values: NDArray[Any]
    """Unsigned numbers whose little-endian bytes are the bounds; 0 where there is none."""
    present: Bools | None
    """None: every row has one."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        return self.values.itemsize

    def get(self, row: int) -> bytes | None:
        if self.present is not None and not self.present[row]:
            return None
        return int(self.values[row]).to_bytes(self.width, "little")

    def texts(self) -> TextBounds:
        """The same bounds in the other form."""
        shift = np.uint64(8 * (WORD_BYTES - self.width))
        swapped = self.values.byteswap().astype(np.uint64, copy=False)
        rows = len(self)
        lengths = constant(self.width, rows, np.uint8)
        return TextBounds(
            swapped << shift if shift else swapped,
            constant(0, rows, np.uint64),
            lengths,
            None,
            self.present,
        )

    def take(self, rows: Rows) -> NumberBounds:
        return NumberBounds(taken(self.values, rows), _taken_mask(self.present, rows))

    def spread(self, rows: Rows, total: int) -> NumberBounds:
        return NumberBounds(
            spread(self.values, rows, total), spread_mask(self.present, rows, total)
        )

    def arrays(self) -> tuple[NDArray[Any] | None, ...]:
        return self.values, self.present

    @property
    def heap_bytes(self) -> int:
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """What longer bounds have behind their first 16 bytes."""

    data: bytes
    offsets: NDArray[np.uint32]
    """By row, and one more for the end."""

    def get(self, row: int) -> bytes:
        return self.data[int(self.offsets[row]) : int(self.offsets[row + 1])]


@dataclass(frozen=True, slots=True, eq=False)
class TextBounds:
    """Bounds of any length."""

    first: Words
    """Bytes 0 to 8 as a big-endian number, zeros behind the end."""
    second: Words
    """Bytes 8 to 16."""
    length: NDArray[Any]
    """0 where there is no bound."""
    tails: Tails | None
    present: Bools | None
    utf8: list[Bools | bool] = field(default_factory=list)
    """Empty, or the one answer to whether they are; it is worked out when it is asked for."""

    def __len__(self) -> int:
        return len(self.first)

    def get(self, row: int) -> bytes | None:
        if self.present is not None and not self.present[row]:
            return None
        length = int(self.length[row])
        head = int(self.first[row]).to_bytes(8, "big") + int(self.second[row]).to_bytes(8, "big")
        if length <= HEAD_BYTES:
            return head[:length]
        assert self.tails is not None
        return head + self.tails.get(row)

    def texts(self) -> TextBounds:
        return self

    def take(self, rows: Rows) -> TextBounds:
        tails = None
        if self.tails is not None:
            tails = make_tails([self.tails.get(row) for row in rows.tolist()])
        return TextBounds(
            taken(self.first, rows),
            taken(self.second, rows),
            taken(self.length, rows),
            tails,
            _taken_mask(self.present, rows),
        )

    def spread(self, rows: Rows, total: int) -> TextBounds:
        tails = None
        if self.tails is not None:
            sizes = np.zeros(total, np.int64)
            sizes[rows] = np.diff(self.tails.offsets.astype(np.int64))
            tails = Tails(self.tails.data, _offsets(sizes))
        return TextBounds(
            spread(self.first, rows, total),
            spread(self.second, rows, total),
            spread(self.length, rows, total),
            tails,
            spread_mask(self.present, rows, total),
        )

    def arrays(self) -> tuple[NDArray[Any] | None, ...]:
        offsets = None if self.tails is None else self.tails.offsets
        return self.first, self.second, self.length, offsets, self.present

    @property
    def heap_bytes(self) -> int:
        return 0 if self.tails is None else sys.getsizeof(self.tails.data)


Bounds = NumberBounds | TextBounds


def make_tails(tails: list[bytes]) -> Tails | None:
    """Of all rows, empty where a bound is no longer than the arrays have it."""
    if not any(tails):
        return None
    sizes = np.fromiter(map(len, tails), np.int64, len(tails))
    return Tails(b"".join(tails), _offsets(sizes))


def _offsets(sizes: Rows) -> NDArray[np.uint32]:
    offsets = np.zeros(len(sizes) + 1, np.uint32)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _taken_mask(present: Bools | None, rows: Rows) -> Bools | None:
    return None if present is None else present[rows]


def spread_mask(present: Bools | None, rows: Rows, total: int) -> Bools:
    dense = np.zeros(total, bool)
    dense[rows] = True if present is None else present
    return dense


def make_bounds(
    first: Words,
    second: Words | None,
    lengths: NDArray[Any],
    tails: dict[int, bytes],
    present: Bools | None,
) -> Bounds:
    """The densest form of bounds, given by their first words as little-endian numbers without
    anything behind their ends; all zeros, and a length of 0, where there is none."""
    told = lengths if present is None else lengths[present]
    width = int(told[0]) if len(told) else 0
    if width in NUMBER_WIDTHS and bool((told == width).all()):
        return NumberBounds(compact(first.astype(NUMBER_WIDTHS[width])), present)
    rows = len(first)
    longest = int(lengths.max()) if rows else 0
    heap = None
    if longest > HEAD_BYTES:
        # A bound that a later one of the same row replaced may have left a tail.
        sizes = lengths.tolist()
        heap = make_tails(
            [tails.get(row, b"") if size > HEAD_BYTES else b"" for row, size in enumerate(sizes)]
        )
    return TextBounds(
        compact(first.byteswap()),
        constant(0, rows, np.uint64) if second is None else compact(second.byteswap()),
        compact(lengths.astype(np.min_scalar_type(longest))),
        heap,
        present,
    )

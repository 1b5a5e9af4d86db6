"""Bounds of a column as values of its type, for many files, and how they compare.

Numbers   integers, dates and times, floats, booleans, decimals of up to 18 digits
Pairs     longer decimals: 128 bits in two words
Texts     strings, binary, fixed and uuid, in the order of their bytes

UTF-8 preserves the order of code points, so this is also the order of strings. Rare values that
arrays cannot compare are `odd`: the caller reads those rows one by one, with the evaluators of
single files. `metric_reading` makes these values from bounds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import Rows
from frazil.format.pruning.metric_columns import HEAD_BYTES, WORD_BYTES, Bools, TextBounds, Words

Mask: TypeAlias = Bools | bool
"""One answer for each row, or one for all of them."""
Side = Literal["left", "right"]

MIN_LONG: Final = -(1 << 63)
MAX_LONG: Final = (1 << 63) - 1
_WORD: Final = (1 << 64) - 1


class NotVectorised(Exception):
    """Arrays cannot answer this comparison, so every row must be read by itself."""


def both(left: Mask, right: Mask) -> Mask:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return left & right


def either(left: Mask, right: Mask) -> Mask:
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return left | right


def negated(mask: Mask) -> Mask:
    return not mask if isinstance(mask, bool) else ~mask


class Literals:
    """The literals of a predicate in the forms that the kinds of values compare with."""

    def __init__(self, values: Iterable[Any]) -> None:
        # NaN has no order and equals nothing.
        self.values = [value for value in values if value == value]
        self._digits: dict[int, list[int]] = {}
        self._integers: dict[int | None, tuple[int, NDArray[np.int64]]] = {}

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def ends(self) -> tuple[Any, Any]:
        """The smallest and the largest literal. There must be one."""
        return min(self.values), max(self.values)

    def digits(self, scale: int | None) -> list[int]:
        """Return integers, or the digits of decimals with this scale."""
        if scale is None:
            if not all(isinstance(value, int) for value in self.values):
                raise NotVectorised
            return self.values
        if scale not in self._digits:
            self._digits[scale] = [unscaled_at(value, scale) for value in self.values]
        return self._digits[scale]

    def integers(self, scale: int | None) -> tuple[int, NDArray[np.int64]]:
        """Return how many are below the 64-bit range, and those within it."""
        if scale not in self._integers:
            digits = self.digits(scale)
            below = sum(1 for value in digits if value < MIN_LONG)
            within = sorted(value for value in digits if MIN_LONG <= value <= MAX_LONG)
            self._integers[scale] = below, np.array(within, np.int64)
        return self._integers[scale]

    @cached_property
    def floats(self) -> NDArray[np.float64]:
        if not all(isinstance(value, float) for value in self.values):
            raise NotVectorised
        return np.array(sorted(self.values), np.float64)

    def pairs(self, scale: int) -> tuple[NDArray[np.int64], Words]:
        pairs = sorted(pair_of(digits) for digits in self.digits(scale))
        return (
            np.array([high for high, _ in pairs], np.int64),
            np.array([low for _, low in pairs], np.uint64),
        )

    @cached_property
    def texts(self) -> SortedTexts:
        return SortedTexts(sorted(encoded(value) for value in self.values))


class SortedTexts:
    """Sorted byte strings with their first words."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        words = [words_of(value) for value in values]
        self.first = np.array([first for first, _ in words], np.uint64)
        self.second = np.array([second for _, second in words], np.uint64)


@lru_cache(maxsize=1 << 10)
def words_of(value: bytes) -> tuple[np.uint64, np.uint64]:
    head = value[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")
    first, second = head[:WORD_BYTES], head[WORD_BYTES:]
    return np.uint64(int.from_bytes(first, "big")), np.uint64(int.from_bytes(second, "big"))


def encoded(value: Any) -> bytes:
    """Return bytes that compare like the literal."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise NotVectorised from None
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, bytes):
        return value
    raise NotVectorised


def unscaled_at(value: Any, scale: int) -> int:
    if not isinstance(value, Decimal):
        raise NotVectorised
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent != -scale:
        raise NotVectorised
    magnitude = int("".join(map(str, digits)) or "0")
    return -magnitude if value.is_signed() else magnitude


def pair_of(value: int) -> tuple[int, int]:
    """Return 128 bits as a signed high and an unsigned low word."""
    if not -(1 << 127) <= value < 1 << 127:
        raise NotVectorised
    return value >> 64, value & _WORD


# --- numbers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Values that are one number each."""

    values: NDArray[Any]
    known: Mask
    """Where a bound has information. Elsewhere the values mean nothing."""
    odd: Bools | None = None
    """Rows that must be read one by one."""
    scale: int | None = None
    """The scale of decimals, whose digits the values are."""

    def less(self, literal: Any) -> Mask:
        return self._against(literal, np.less)

    def less_equal(self, literal: Any) -> Mask:
        return self._against(literal, np.less_equal)

    def _against(self, literal: Any, compare: Any) -> Mask:
        if self.values.dtype.kind == "f":
            if not isinstance(literal, float):
                raise NotVectorised
            mask: Bools = compare(self.values, literal)
            return mask
        number = literal if self.scale is None else unscaled_at(literal, self.scale)
        if not isinstance(number, int):
            raise NotVectorised
        if not MIN_LONG <= number <= MAX_LONG:
            return number > 0
        kind = self.values.dtype.type
        limits = np.iinfo(kind)
        # A number that does not fit the array's type widens the array.
        literal = kind(number) if limits.min <= number <= limits.max else np.int64(number)
        mask = compare(self.values, literal)
        return mask

    def same(self, other: Values) -> Bools:
        if self.scale is not None and isinstance(other, Pairs):
            return other.same(self)
        if not isinstance(other, Numbers):
            raise NotVectorised
        mask: Bools = self.values == other.values
        return mask

    def ranks(self, literals: Literals, side: Side) -> Rows:
        if self.values.dtype.kind == "f":
            return np.searchsorted(literals.floats, self.values, side)
        below, within = literals.integers(self.scale)
        ranks = np.searchsorted(within, self.values.astype(np.int64, copy=False), side)
        return ranks + below if below else ranks


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Decimals of more than 64 bits."""

    high: NDArray[np.int64]
    low: Words
    known: Mask
    odd: Bools | None
    scale: int

    def less(self, literal: Any) -> Mask:
        return self._less(pair_of(unscaled_at(literal, self.scale)), np.less)

    def less_equal(self, literal: Any) -> Mask:
        return self._less(pair_of(unscaled_at(literal, self.scale)), np.less_equal)

    def _less(self, pair: tuple[int, int], compare: Any) -> Bools:
        high, low = np.int64(pair[0]), np.uint64(pair[1])
        mask: Bools = (self.high < high) | ((self.high == high) & compare(self.low, low))
        return mask

    def same(self, other: Values) -> Bools:
        if isinstance(other, Pairs):
            mask: Bools = (self.high == other.high) & (self.low == other.low)
            return mask
        if not isinstance(other, Numbers):
            raise NotVectorised
        narrow = other.values.astype(np.int64, copy=False)
        mask = (self.high == narrow >> 63) & (self.low == narrow.view(np.uint64))
        return mask

    def ranks(self, literals: Literals, side: Side) -> Rows:
        """Rank by the high word, then by the low one if a literal has the same high word."""
        highs, lows = literals.pairs(self.scale)
        ranks = np.searchsorted(highs, self.high, "left").astype(np.int64)
        behind = np.searchsorted(highs, self.high, "right")
        tied = np.flatnonzero(ranks < behind)
        for begin, rows in _groups(tied, ranks[tied]):
            group = lows[begin : int(behind[rows[0]])]
            ranks[rows] = begin + np.searchsorted(group, self.low[rows], side)
        return ranks


# --- texts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Values that compare byte by byte."""

    bounds: TextBounds
    known: Mask
    odd: Bools | None = None

    def less(self, literal: Any) -> Bools:
        return self._compared(encoded(literal), or_equal=False)

    def less_equal(self, literal: Any) -> Bools:
        return self._compared(encoded(literal), or_equal=True)

    def _compared(self, literal: bytes, *, or_equal: bool) -> Bools:
        first, second = words_of(literal)
        bounds = self.bounds
        mask: Bools = bounds.first < first
        same = bounds.first == first
        ties = np.count_nonzero(same)
        if not ties:
            return mask
        # Often all values have the same first bytes.
        alike = ties == len(same)
        less, same_second = bounds.second < second, bounds.second == second
        mask = less if alike else mask | (same & less)
        at = np.flatnonzero(same_second if alike else same & same_second)
        if len(at):
            mask[at] = self._tied(at, literal, or_equal=or_equal)
        return mask

    def _tied(self, at: Rows, literal: bytes, *, or_equal: bool) -> Bools:
        """Compare rows whose first 16 bytes, padded with zeros, equal those of the literal. If one
        of them ends there, it is a prefix of the other, so the lengths decide."""
        lengths = self.bounds.length[at].astype(np.int64)
        decided: Bools = lengths <= len(literal) if or_equal else lengths < len(literal)
        if len(literal) > HEAD_BYTES and self.bounds.tails is not None:
            tail = literal[HEAD_BYTES:]
            for number in np.flatnonzero(lengths > HEAD_BYTES).tolist():
                own = self.bounds.tails.get(int(at[number]))
                decided[number] = own <= tail if or_equal else own < tail
        return decided

    def same(self, other: Values) -> Bools:
        if not isinstance(other, Texts):
            raise NotVectorised
        mine, theirs = self.bounds, other.bounds
        mask: Bools = (mine.first == theirs.first) & (mine.second == theirs.second)
        mask &= mine.length == theirs.length
        if mine.tails is not None and theirs.tails is not None:
            for row in np.flatnonzero(mask & (mine.length > HEAD_BYTES)).tolist():
                mask[row] = mine.tails.get(row) == theirs.tails.get(row)
        return mask

    def starts_with(self, prefix: bytes) -> Bools:
        first, second = words_of(prefix)
        bounds, size = self.bounds, len(prefix)
        mask: Bools = (bounds.first & leading(size)) == first
        if size > WORD_BYTES:
            mask &= (bounds.second & leading(size - WORD_BYTES)) == second
        mask &= bounds.length >= size
        if size > HEAD_BYTES and bounds.tails is not None:
            for row in np.flatnonzero(mask).tolist():
                mask[row] = bounds.tails.get(row).startswith(prefix[HEAD_BYTES:])
        return mask

    def ranks(self, literals: Literals, side: Side) -> Rows:
        """Rank by the first word, then by the second, then by all bytes, as long as a literal is
        equal."""
        texts, bounds = literals.texts, self.bounds
        ranks = np.searchsorted(texts.first, bounds.first, "left").astype(np.int64)
        behind = np.searchsorted(texts.first, bounds.first, "right")
        several = behind - ranks
        self._rank_single(ranks, np.flatnonzero(several == 1), texts, side)
        tied = np.flatnonzero(several > 1)
        for begin, rows in _groups(tied, ranks[tied]):
            group = texts.second[begin : int(behind[rows[0]])]
            low = np.searchsorted(group, bounds.second[rows], "left")
            high = np.searchsorted(group, bounds.second[rows], "right")
            ranks[rows] = begin + low
            alike = np.flatnonzero(low < high)
            for start, own in _groups(alike, low[alike]):
                span = begin + start, begin + int(high[own[0]])
                self._rank_alike(ranks, rows[own], texts.values, span, side)
        return ranks

    def _rank_single(self, ranks: Rows, rows: Rows, texts: SortedTexts, side: Side) -> None:
        """Rank rows whose first word only one literal has, all at once. This is the usual case."""
        if not len(rows):
            return
        at, bounds = ranks[rows], self.bounds
        literal, own = texts.second[at], bounds.second[rows]
        below = literal < own
        alike = np.flatnonzero(literal == own)
        if len(alike):
            sizes = np.array([min(len(value), HEAD_BYTES + 1) for value in texts.values])
            lengths = bounds.length[rows[alike]].astype(np.int64)
            compare = np.less if side == "left" else np.less_equal
            below[alike] = compare(sizes[at[alike]], lengths)
            bisect = bisect_left if side == "left" else bisect_right
            for index in alike[lengths > HEAD_BYTES].tolist():
                begin = int(at[index])
                bound = bounds.get(int(rows[index])) or b""
                below[index] = bisect(texts.values, bound, begin, begin + 1) > begin
        ranks[rows] = at + below

    def _rank_alike(
        self, ranks: Rows, rows: Rows, values: list[bytes], span: tuple[int, int], side: Side
    ) -> None:
        """Rank among literals with the same first 16 bytes as the rows, like `_tied`."""
        begin, end = span
        sizes = np.array([min(len(value), HEAD_BYTES + 1) for value in values[begin:end]])
        lengths = self.bounds.length[rows].astype(np.int64)
        ranks[rows] = begin + np.searchsorted(sizes, lengths, side)
        bisect = bisect_left if side == "left" else bisect_right
        for row in rows[lengths > HEAD_BYTES].tolist():
            ranks[row] = bisect(values, self.bounds.get(row) or b"", begin, end)


def _groups(rows: Rows, keys: Rows) -> Iterator[tuple[int, Rows]]:
    """Group the rows by key. Keys are small numbers."""
    if not len(rows):
        return
    distinct = np.flatnonzero(np.bincount(keys)).tolist()
    if len(distinct) == 1:
        yield distinct[0], rows
        return
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], distinct[1:])
    yield from zip(distinct, np.split(rows[order], starts), strict=True)


def leading(size: int) -> np.uint64:
    """Return a mask for the first bytes of a big-endian word."""
    bits = 8 * min(size, WORD_BYTES)
    return np.uint64(_WORD ^ ((1 << (64 - bits)) - 1))


Values: TypeAlias = Numbers | Pairs | Texts

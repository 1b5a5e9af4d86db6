"""Bounds of a column as values of its type, for many files at once, and how they compare.

    Numbers   integers, dates and times, floats, booleans, decimals of up to 18 digits
    Pairs     longer decimals: 128 bits in two words
    Texts     strings, binary, fixed and uuid, in the order of their bytes

For strings that order is the one of their code points, because UTF-8 keeps it. What only few files
have and arrays cannot tell is `odd`: whoever asks reads those rows one by one, with the evaluators
of single files. `read_values` says what `evaluators.bound_reader` says of each bound.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from frazil.format.expression_binding import BoundTerm, BoundTransform
from frazil.format.metric_arrays import Rows, is_constant
from frazil.format.metric_bounds import (
    HEAD_BYTES,
    WORD_BYTES,
    Bools,
    Bounds,
    NumberBounds,
    TextBounds,
    Words,
)
from frazil.values import temporal
from frazil.values.transforms import Day, Hour, Month, Transform, Truncate, Year
from frazil.values.types import DecimalType, FixedType, Type, TypeId

Mask: TypeAlias = Bools | bool
"""By row, or one answer for all of them."""
Side = Literal["left", "right"]

_MIN: Final = -(1 << 63)
_MAX: Final = (1 << 63) - 1
_WORD: Final = (1 << 64) - 1
_LONG_DIGITS: Final = 18
"""Every number of so many digits fits into 64 bits."""
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LONG_INTS: Final = frozenset(
    {
        TypeId.LONG,
        TypeId.TIME,
        TypeId.TIMESTAMP,
        TypeId.TIMESTAMPTZ,
        TypeId.TIMESTAMP_NS,
        TypeId.TIMESTAMPTZ_NS,
    }
)
_INTS: Final = frozenset({TypeId.INT, TypeId.DATE})
_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_PROMOTED_BY: Final = {
    TypeId.LONG: 1,
    TypeId.TIMESTAMP: temporal.MICROS_PER_DAY,
    TypeId.TIMESTAMP_NS: temporal.NANOS_PER_DAY,
}
"""What a bound of four bytes counts of a type that has eight: it was an int or a date."""


class NotVectorised(Exception):
    """A comparison that arrays cannot answer; every row is to be read by itself."""


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
    """The literals of a predicate in order, in the form that each kind of values compares with."""

    def __init__(self, values: Iterable[Any]) -> None:
        # A NaN is in no order and equals nothing.
        self._values = [value for value in values if value == value]

    def __len__(self) -> int:
        return len(self._values)

    @cached_property
    def integers(self) -> tuple[int, NDArray[np.int64]]:
        """How many are below what 64 bits hold, and those that are within."""
        if not all(isinstance(value, int) for value in self._values):
            raise NotVectorised
        return self._split(self._values)

    def decimals(self, scale: int) -> tuple[int, NDArray[np.int64]]:
        return self._split([unscaled_at(value, scale) for value in self._values])

    @staticmethod
    def _split(values: list[int]) -> tuple[int, NDArray[np.int64]]:
        below = sum(1 for value in values if value < _MIN)
        return below, np.array(sorted(v for v in values if _MIN <= v <= _MAX), np.int64)

    @cached_property
    def floats(self) -> NDArray[np.float64]:
        if not all(isinstance(value, float) for value in self._values):
            raise NotVectorised
        return np.array(sorted(self._values), np.float64)

    def pairs(self, scale: int) -> list[tuple[int, int]]:
        return sorted(pair_of(unscaled_at(value, scale)) for value in self._values)

    @cached_property
    def texts(self) -> SortedTexts:
        return SortedTexts(sorted(encoded(value) for value in self._values))


class SortedTexts:
    """Byte strings in order, with their first words."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        words = [words_of(value) for value in values]
        self.first = np.array([first for first, _ in words], np.uint64)
        self.second = np.array([second for _, second in words], np.uint64)


def words_of(value: bytes) -> tuple[int, int]:
    head = value[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")
    return int.from_bytes(head[:WORD_BYTES], "big"), int.from_bytes(head[WORD_BYTES:], "big")


def encoded(value: Any) -> bytes:
    """A literal whose bytes compare as it does."""
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
    """128 bits: a signed high and an unsigned low word."""
    if not -(1 << 127) <= value < 1 << 127:
        raise NotVectorised
    return value >> 64, value & _WORD


# --- numbers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Values that one number each stands for."""

    values: NDArray[Any]
    known: Mask
    """Where there is a bound that says something. Elsewhere the values mean nothing."""
    odd: Bools | None = None
    """Rows to be read one by one."""
    scale: int | None = None
    """Of decimals, whose digits the values are."""

    def less(self, literal: Any) -> Mask:
        return self._against(literal, np.less)

    def less_equal(self, literal: Any) -> Mask:
        return self._against(literal, np.less_equal)

    def _against(self, literal: Any, compare: Any) -> Mask:
        if self.values.dtype.kind == "f":
            if not isinstance(literal, float):
                raise NotVectorised
            found: Bools = compare(self.values, literal)
            return found
        number = literal if self.scale is None else unscaled_at(literal, self.scale)
        if not isinstance(number, int):
            raise NotVectorised
        if not _MIN <= number <= _MAX:
            return number > 0
        # A number that needs more bits than the array has makes it a wider one.
        found = compare(self.values, np.int64(number))
        return found

    def same(self, other: Values) -> Bools:
        if self.scale is not None and isinstance(other, Pairs):
            return other.same(self)
        if not isinstance(other, Numbers):
            raise NotVectorised
        found: Bools = self.values == other.values
        return found

    def ranks(self, literals: Literals, side: Side) -> Rows:
        if self.values.dtype.kind == "f":
            return np.searchsorted(literals.floats, self.values, side)
        below, within = literals.integers if self.scale is None else literals.decimals(self.scale)
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
        found: Bools = (self.high < high) | ((self.high == high) & compare(self.low, low))
        return found

    def same(self, other: Values) -> Bools:
        if isinstance(other, Pairs):
            found: Bools = (self.high == other.high) & (self.low == other.low)
            return found
        if not isinstance(other, Numbers):
            raise NotVectorised
        narrow = other.values.astype(np.int64, copy=False)
        found = (self.high == narrow >> 63) & (self.low == narrow.view(np.uint64))
        return found

    def ranks(self, literals: Literals, side: Side) -> Rows:
        """How many literals are less, or not greater."""
        compare = np.less if side == "left" else np.less_equal
        ranks = np.zeros(len(self.high), np.int64)
        for pair in literals.pairs(self.scale):
            # A literal is less than the value where the value is not less or equal, and so on.
            ranks += ~self._less(pair, np.less_equal if compare is np.less else np.less)
        return ranks


# --- texts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Values that are compared byte by byte."""

    bounds: TextBounds
    known: Mask
    odd: Bools | None = None

    def less(self, literal: Any) -> Bools:
        return self._compared(encoded(literal), or_equal=False)

    def less_equal(self, literal: Any) -> Bools:
        return self._compared(encoded(literal), or_equal=True)

    def _compared(self, literal: bytes, *, or_equal: bool) -> Bools:
        first, second = (np.uint64(word) for word in words_of(literal))
        bounds = self.bounds
        found: Bools = bounds.first < first
        same = bounds.first == first
        if same.any():
            found |= same & (bounds.second < second)
            at = np.flatnonzero(same & (bounds.second == second))
            found[at] = self._tied(at, literal, or_equal=or_equal)
        return found

    def _tied(self, at: Rows, literal: bytes, *, or_equal: bool) -> Bools:
        """Rows whose first 16 bytes are the literal's, zeros behind the ends included. If either
        ends there, it is the beginning of the other, so that the lengths decide."""
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
        found: Bools = (mine.first == theirs.first) & (mine.second == theirs.second)
        found &= mine.length == theirs.length
        if mine.tails is not None and theirs.tails is not None:
            for row in np.flatnonzero(found & (mine.length > HEAD_BYTES)).tolist():
                found[row] = mine.tails.get(row) == theirs.tails.get(row)
        return found

    def starts_with(self, prefix: bytes) -> Bools:
        first, second = (np.uint64(word) for word in words_of(prefix))
        bounds, size = self.bounds, len(prefix)
        found: Bools = (bounds.first & _leading(size)) == first
        if size > WORD_BYTES:
            found &= (bounds.second & _leading(size - WORD_BYTES)) == second
        found &= bounds.length >= size
        if size > HEAD_BYTES and bounds.tails is not None:
            for row in np.flatnonzero(found).tolist():
                found[row] = bounds.tails.get(row).startswith(prefix[HEAD_BYTES:])
        return found

    def ranks(self, literals: Literals, side: Side) -> Rows:
        """By the first word, the second where that is a literal's, then by all bytes."""
        texts, bounds = literals.texts, self.bounds
        ranks = np.searchsorted(texts.first, bounds.first, "left").astype(np.int64)
        behind = np.searchsorted(texts.first, bounds.first, "right")
        tied = np.flatnonzero(ranks < behind)
        if not len(tied):
            return ranks
        for begin, rows in _groups(tied, ranks[tied]):
            end = int(behind[rows[0]])
            group = texts.second[begin:end]
            low = np.searchsorted(group, bounds.second[rows], "left")
            high = np.searchsorted(group, bounds.second[rows], "right")
            ranks[rows] = begin + low
            for number in np.flatnonzero(low < high).tolist():
                row, bisect = int(rows[number]), bisect_left if side == "left" else bisect_right
                ranks[row] = bisect(texts.values, bounds.get(row) or b"", begin, end)
        return ranks


def _groups(rows: Rows, keys: Rows) -> Iterator[tuple[int, Rows]]:
    """The rows by key; keys are small numbers."""
    distinct = np.flatnonzero(np.bincount(keys)).tolist()
    if len(distinct) == 1:
        yield distinct[0], rows
        return
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], distinct[1:])
    yield from zip(distinct, np.split(rows[order], starts), strict=True)


def _leading(size: int) -> np.uint64:
    """A mask for the first bytes of a big-endian word."""
    bits = 8 * min(size, WORD_BYTES)
    return np.uint64(_WORD ^ ((1 << (64 - bits)) - 1))


Values: TypeAlias = Numbers | Pairs | Texts


# --- reading ---------------------------------------------------------------------------------


def read_values(bounds: Bounds | None, term: BoundTerm) -> Values | None:
    """The bounds of a term; None where none of them says anything about it."""
    transform = term.transform if isinstance(term, BoundTransform) else None
    if bounds is None or (transform is not None and not transform.preserves_order):
        return None
    type_ = term.ref.type
    values = _typed(bounds, type_)
    if values is None or transform is None:
        return values
    return _transformed(values, transform, type_)


def _typed(bounds: Bounds, type_: Type) -> Values | None:
    kind = type_.type_id
    if kind in _INTS or kind in _LONG_INTS:
        return _integers(bounds, kind)
    if kind in (TypeId.FLOAT, TypeId.DOUBLE):
        return _floats(bounds, kind)
    if kind is TypeId.BOOLEAN:
        return _booleans(bounds)
    if isinstance(type_, DecimalType):
        return _decimals(bounds.texts(), type_)
    return _texts(bounds.texts(), type_)


def _present(bounds: Bounds) -> Mask:
    return True if bounds.present is None else bounds.present


def _integers(bounds: Bounds, kind: TypeId) -> Numbers | None:
    if isinstance(bounds, NumberBounds):
        if bounds.width == 8 and kind in _LONG_INTS:
            return Numbers(bounds.values.view(np.int64), _present(bounds))
        if bounds.width == 4 and kind in _INTS:
            return Numbers(bounds.values.view(np.int32), _present(bounds))
        if bounds.width == 4 and kind in _PROMOTED_BY:
            narrow = bounds.values.view(np.int32).astype(np.int64)
            return _promoted(narrow, _present(bounds), kind, everywhere=True)
        return None
    lengths, words = bounds.length, bounds.first.byteswap()
    is_wide, is_narrow = lengths == 8, lengths == 4
    narrow = words.astype(np.uint32).view(np.int32).astype(np.int64)
    if kind in _INTS:
        return Numbers(narrow, both(_present(bounds), is_narrow))
    wide = Numbers(words.view(np.int64), both(_present(bounds), is_wide))
    if kind not in _PROMOTED_BY:
        return wide
    promoted = _promoted(narrow, both(_present(bounds), is_narrow), kind, everywhere=False)
    odd = None if promoted.odd is None else promoted.odd & is_narrow
    values = np.where(is_narrow, promoted.values, wide.values)
    return Numbers(values, either(wide.known, promoted.known), odd)


def _promoted(narrow: NDArray[np.int64], known: Mask, kind: TypeId, *, everywhere: bool) -> Numbers:
    unit = _PROMOTED_BY[kind]
    odd = (narrow > _MAX // unit) | (narrow < -(_MAX // unit)) if unit > 1 else None
    if odd is not None and not odd.any():
        odd = None
    if odd is not None:
        narrow = np.where(odd, 0, narrow)
    return Numbers(narrow * unit, known, odd)


def _floats(bounds: Bounds, kind: TypeId) -> Numbers | None:
    if isinstance(bounds, NumberBounds):
        if bounds.width == 8 and kind is TypeId.DOUBLE:
            values = bounds.values.view(np.float64)
        elif bounds.width == 4:
            values = bounds.values.view(np.float32).astype(np.float64)
        else:
            return None
        return Numbers(values, both(_present(bounds), _not_nan(values)))
    lengths, words = bounds.length, bounds.first.byteswap()
    is_narrow = lengths == 4
    narrow = words.astype(np.uint32).view(np.float32).astype(np.float64)
    if kind is TypeId.FLOAT:
        known = both(_present(bounds), is_narrow)
        return Numbers(narrow, both(known, _not_nan(narrow)))
    values = np.where(is_narrow, narrow, words.view(np.float64))
    known = both(_present(bounds), is_narrow | (lengths == 8))
    return Numbers(values, both(known, _not_nan(values)))


def _not_nan(values: NDArray[np.float64]) -> Mask:
    """A NaN marks bounds as unreliable."""
    if is_constant(values):
        return bool(values[0] == values[0])
    found: Bools = values == values
    return True if found.all() else found


def _booleans(bounds: Bounds) -> Numbers | None:
    if isinstance(bounds, NumberBounds):
        if bounds.width != 1:
            return None
        return Numbers((bounds.values != 0).view(np.int8), _present(bounds))
    values = (bounds.first != 0).view(np.int8)
    return Numbers(values, both(_present(bounds), bounds.length == 1))


def _decimals(bounds: TextBounds, type_: DecimalType) -> Numbers | Pairs:
    """Two's complement of any length, right aligned with its sign."""
    lengths = bounds.length.astype(np.int64)
    known = both(_present(bounds), lengths > 0)
    high = bounds.first.view(np.int64)
    longest = int(lengths.max()) if len(lengths) else 0
    if longest <= WORD_BYTES:
        shift = 8 * (WORD_BYTES - np.maximum(lengths, 1))
        return Numbers(high >> shift, known, None, type_.scale)
    odd = lengths > HEAD_BYTES
    shift = 8 * (HEAD_BYTES - np.clip(lengths, 1, HEAD_BYTES))
    is_low = shift >= 64
    by = np.where(is_low, shift - 64, shift)
    up = ((64 - by) % 64).astype(np.uint64)
    carried = np.where(by > 0, bounds.first << up, 0)
    low = np.where(
        is_low, (high >> by).view(np.uint64), (bounds.second >> by.astype(np.uint64)) | carried
    )
    return Pairs(np.where(is_low, high >> 63, high >> by), low, known, _or_none(odd), type_.scale)


def _or_none(mask: Bools) -> Bools | None:
    return mask if mask.any() else None


def _texts(bounds: TextBounds, type_: Type) -> Texts | None:
    kind = type_.type_id
    known = _present(bounds)
    if kind is TypeId.STRING:
        return Texts(bounds, both(known, _are_utf8(bounds)))
    if kind is TypeId.UUID:
        return Texts(bounds, both(known, bounds.length == HEAD_BYTES))
    if isinstance(type_, FixedType):
        return Texts(bounds, both(known, bounds.length <= type_.length))
    if kind in (TypeId.BINARY, TypeId.GEOMETRY, TypeId.GEOGRAPHY):
        return Texts(bounds, known)
    return None


def _has_high_bits(bounds: TextBounds) -> Bools:
    found: Bools = ((bounds.first | bounds.second) & _HIGH_BITS) != 0
    if bounds.tails is not None:
        found |= bounds.length > HEAD_BYTES
    return found


def _are_utf8(bounds: TextBounds) -> Mask:
    if not bounds.utf8:
        bounds.utf8.append(_judged_utf8(bounds))
    return bounds.utf8[0]


def _judged_utf8(bounds: TextBounds) -> Mask:
    if bounds.tails is None and not (_bits(bounds.first) | _bits(bounds.second)) & _HIGH_BITS:
        return True
    rows = np.flatnonzero(_has_high_bits(bounds)).tolist()
    values = [bounds.get(row) or b"" for row in rows]
    try:
        # A byte of ASCII between them lies in no character.
        b"\n".join(values).decode()
    except UnicodeDecodeError:
        valid = np.ones(len(bounds), bool)
        valid[rows] = [_is_utf8(value) for value in values]
        return valid
    return True


def _bits(words: Words) -> np.uint64:
    """Those that any of them has."""
    return np.uint64(words[0] if is_constant(words) else np.bitwise_or.reduce(words))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- transforms ------------------------------------------------------------------------------


def _transformed(values: Values, transform: Transform, source: Type) -> Values:
    if isinstance(transform, Truncate):
        if isinstance(values, Texts):
            return _truncated_texts(values, transform.width, source)
        if isinstance(values, Numbers):
            return _truncated_numbers(values, transform.width, source)
    if isinstance(values, Numbers) and isinstance(transform, Year | Month | Day | Hour):
        return replace(values, values=_calendar(values.values, transform, source))
    raise NotVectorised


def _truncated_numbers(values: Numbers, width: int, source: Type) -> Numbers:
    numbers = values.values.astype(np.int64)
    known = values.known
    if isinstance(source, DecimalType) and source.precision <= _LONG_DIGITS:
        # A value of too many digits is not transformed.
        most = 10**source.precision
        known = both(known, (numbers < most) & (numbers > -most))
    lost = numbers < _MIN + width
    odd = lost if values.odd is None else lost | values.odd
    numbers = np.where(lost, 0, numbers)
    return Numbers(numbers - numbers % width, known, _or_none(odd), values.scale)


def _truncated_texts(values: Texts, width: int, source: Type) -> Texts:
    """Strings are cut by characters: of those beyond ASCII only what is short is known here."""
    bounds = values.bounds
    lengths = bounds.length.astype(np.int64)
    cut = lengths > width
    odd = cut if width > HEAD_BYTES else np.zeros(len(cut), bool)
    if source.type_id is TypeId.STRING:
        odd = odd | (cut & _has_high_bits(bounds))
    if width <= HEAD_BYTES:
        bounds = TextBounds(
            bounds.first & _leading(width),
            bounds.second & _leading(max(width - WORD_BYTES, 0)),
            np.minimum(lengths, width),
            None,
            bounds.present,
        )
    return Texts(bounds, values.known, _or_none(odd))


def _calendar(values: NDArray[Any], transform: Transform, source: Type) -> NDArray[np.int64]:
    numbers = values.astype(np.int64)
    per_day = temporal.NANOS_PER_DAY if source.type_id in _NANOS else temporal.MICROS_PER_DAY
    if isinstance(transform, Hour):
        return numbers // (per_day // 24)
    days = numbers if source.type_id is TypeId.DATE else numbers // per_day
    if isinstance(transform, Day):
        return days
    unit = "Y" if isinstance(transform, Year) else "M"
    return days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype(np.int64)

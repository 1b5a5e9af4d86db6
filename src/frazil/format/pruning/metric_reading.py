"""Reads the bounds of many files as values of a term: a column or a transform of one.

The results are those of `evaluators.bound_reader` for each bound. A promoted type also reads the
narrower bounds that were written before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.expr.expression_binding import BoundTerm, BoundTransform
from frazil.format.manifest.constant_arrays import is_constant
from frazil.format.pruning.metric_columns import (
    HEAD_BYTES,
    WORD_BYTES,
    Bools,
    Bounds,
    NumberBounds,
    TextBounds,
    Words,
)
from frazil.format.pruning.metric_values import (
    MAX_LONG,
    MIN_LONG,
    Mask,
    NotVectorised,
    Numbers,
    Pairs,
    Texts,
    Values,
    both,
    either,
    leading,
)
from frazil.values import temporal
from frazil.values.single_value import INT_BITS
from frazil.values.transforms import Day, Hour, Month, Transform, Truncate, Year
from frazil.values.types import DecimalType, FixedType, Type, TypeId

_LONG_DIGITS: Final = 18
"""Every number with so many digits fits into 64 bits."""
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
_LONG_INTS: Final = frozenset(kind for kind, bits in INT_BITS.items() if bits == 64)
_INTS: Final = frozenset(kind for kind, bits in INT_BITS.items() if bits == 32)
_NANOS: Final = frozenset({TypeId.TIMESTAMP_NS, TypeId.TIMESTAMPTZ_NS})
_PROMOTED_BY: Final = {
    TypeId.LONG: 1,
    TypeId.TIMESTAMP: temporal.MICROS_PER_DAY,
    TypeId.TIMESTAMP_NS: temporal.NANOS_PER_DAY,
}
"""The unit of a four-byte bound of an eight-byte type. It was written as an int or a date."""


def read_values(bounds: Bounds | None, term: BoundTerm) -> Values | None:
    """Return the bounds of a term, or None if none of them has information about it."""
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
            return _promoted(narrow, _present(bounds), kind)
        return None
    lengths, words = bounds.length, bounds.first.byteswap()
    is_wide, is_narrow = lengths == 8, lengths == 4
    narrow = words.astype(np.uint32).view(np.int32).astype(np.int64)
    if kind in _INTS:
        return Numbers(narrow, both(_present(bounds), is_narrow))
    wide = Numbers(words.view(np.int64), both(_present(bounds), is_wide))
    if kind not in _PROMOTED_BY:
        return wide
    promoted = _promoted(narrow, both(_present(bounds), is_narrow), kind)
    odd = None if promoted.odd is None else promoted.odd & is_narrow
    values = np.where(is_narrow, promoted.values, wide.values)
    return Numbers(values, either(wide.known, promoted.known), odd)


def _promoted(narrow: NDArray[np.int64], known: Mask, kind: TypeId) -> Numbers:
    unit = _PROMOTED_BY[kind]
    odd = (narrow > MAX_LONG // unit) | (narrow < -(MAX_LONG // unit)) if unit > 1 else None
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
    """Find NaNs, which mark unreliable bounds."""
    if is_constant(values):
        return bool(values[0] == values[0])
    mask: Bools = values == values
    return True if mask.all() else mask


def _booleans(bounds: Bounds) -> Numbers | None:
    if isinstance(bounds, NumberBounds):
        if bounds.width != 1:
            return None
        return Numbers((bounds.values != 0).view(np.int8), _present(bounds))
    values = (bounds.first != 0).view(np.int8)
    return Numbers(values, both(_present(bounds), bounds.length == 1))


def _decimals(bounds: TextBounds, type_: DecimalType) -> Numbers | Pairs:
    """Read two's complement of any length, aligned right with its sign."""
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
    mask: Bools = ((bounds.first | bounds.second) & _HIGH_BITS) != 0
    if bounds.tails is not None:
        mask |= bounds.length > HEAD_BYTES
    return mask


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
        # An ASCII byte between them is not part of a longer character.
        b"\n".join(values).decode()
    except UnicodeDecodeError:
        valid = np.ones(len(bounds), bool)
        valid[rows] = [_is_utf8(value) for value in values]
        return valid
    return True


def _bits(words: Words) -> np.uint64:
    """Return the bits that any of the words has."""
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
        # Values with too many digits are not transformed.
        most = 10**source.precision
        known = both(known, (numbers < most) & (numbers > -most))
    lost = numbers < MIN_LONG + width
    odd = lost if values.odd is None else lost | values.odd
    numbers = np.where(lost, 0, numbers)
    return Numbers(numbers - numbers % width, known, _or_none(odd), values.scale)


def _truncated_texts(values: Texts, width: int, source: Type) -> Texts:
    """Strings are cut by characters. Beyond ASCII, arrays only handle uncut values."""
    bounds = values.bounds
    lengths = bounds.length.astype(np.int64)
    cut = lengths > width
    odd = cut if width > HEAD_BYTES else np.zeros(len(cut), bool)
    if source.type_id is TypeId.STRING:
        odd = odd | (cut & _has_high_bits(bounds))
    if width <= HEAD_BYTES:
        bounds = TextBounds(
            bounds.first & leading(width),
            bounds.second & leading(max(width - WORD_BYTES, 0)),
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

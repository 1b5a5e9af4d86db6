"""Numbers in Avro's form, as manifests hold them by the dozen for each file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_REMEMBERED_NUMBERS: Final = 1 << 15


def encode_long(value: int) -> bytes:
    """Avro's `long`: the zig-zag form in groups of seven bits, the lowest first."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit into 64 bits")
    number = (value << 1) ^ (value >> 63)
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7)) if number > 127 else bytes((number,))
    if number < 1 << 21:
        return bytes((number & 127 | 128, number >> 7 & 127 | 128, number >> 14))
    if number < 1 << 28:
        low, high = number & 127 | 128, number >> 7 & 127 | 128
        return bytes((low, high, number >> 14 & 127 | 128, number >> 21))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


class Longs(dict[int, bytes]):
    """Encoded numbers. Most come again, in one file or the next; those cost a look-up alone."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_long(value)
        if len(self) >= _REMEMBERED_NUMBERS:
            self.clear()
        self[value] = encoded
        return encoded


class Ints(Longs):
    """The same for numbers that must fit into 32 bits."""

    def __missing__(self, value: int) -> bytes:
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError(f"{value} does not fit into 32 bits")
        return super().__missing__(value)


LONGS: Final = Longs()
INTS: Final = Ints()


# Sizes hardly ever come again. They are put together from two halves of fourteen bits: the lower
# one always goes on, the upper one ends.
_SMALL: Final = 1 << 13
_LARGE: Final = 1 << 27
_WHOLE: Final = [encode_long(value) for value in range(_SMALL)]
_LOWER: Final = [bytes((value << 1 & 127 | 128, value >> 6 & 127 | 128)) for value in range(_SMALL)]
_UPPER: Final = [
    bytes((value & 127 | 128, value >> 7)) if value > 127 else bytes((value,))
    for value in range(1 << 14)
]


def encode_count(value: int) -> bytes:
    """A number that is never negative and that hardly comes again."""
    if value < _SMALL:
        return _WHOLE[value]
    return _LOWER[value & 8191] + _UPPER[value >> 13] if value < _LARGE else encode_long(value)


def encode_counts(values: Sequence[int]) -> Sequence[bytes]:
    """The same for the counts of all columns of a file; there is at least one."""
    largest = max(values)
    if largest < _SMALL:
        return [*map(_WHOLE.__getitem__, values)]
    if largest < _LARGE:
        return [
            _LOWER[value & 8191] + _UPPER[value >> 13] if value >= _SMALL else _WHOLE[value]
            for value in values
        ]
    return [*map(encode_count, values)]

"""Persistent lists of metadata parts, divided into segments that never change.

Appending makes a new list that shares every full segment with the old one, so the cost of a commit
does not depend on the length of the history. A segment keeps the joined JSON of its parts and
caches its compressed form.

New parts go to segments of SMALL_SEGMENT parts. When there are enough of these in a row, they
become one segment of LARGE_SEGMENT parts. So a commit compresses only a few kilobytes, and long
histories still compress well.

A compressed piece is raw deflate that ends with a full flush. It is byte-aligned and independent of
the data before it, so pieces can be cached and joined to one gzip member, whose CRC is computed
from the CRCs of the pieces. Several members in one file would be simpler, but some readers stop
after the first member.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Generic, Self, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from frazil.format.metadata.raw_json import Part, decode

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"
"""An empty final deflate block."""

_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""CRC-32 polynomials are bit-reversed: the highest bit is x to the power of 0."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A compressed piece, with what is needed to make it part of a member."""

    deflated: bytes
    crc: int
    size: int
    shift: int
    """x to the power of 8 * size, which shifts a CRC past this piece."""


def pack(data: bytes) -> Packed:
    """Compress a piece."""
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
    deflated = compressor.compress(data) + compressor.flush(zlib.Z_FULL_FLUSH)
    return Packed(deflated, zlib.crc32(data), len(data), _shift(len(data)))


def gzip_member(pieces: Iterable[Packed]) -> list[bytes]:
    """Return the chunks of one gzip member (RFC 1952) with the pieces in order."""
    chunks = [_HEADER]
    crc = size = 0
    for piece in pieces:
        chunks.append(piece.deflated)
        crc = _multiply(piece.shift, crc) ^ piece.crc
        size += piece.size
    chunks.append(_LAST_BLOCK + crc.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little"))
    return chunks


def _multiply(a: int, b: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the polynomial of the CRC."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


@cache
def _power_of_two(k: int) -> int:
    """Return x to the power of 2**k."""
    if k == 0:
        return _ONE >> 1
    root = _power_of_two(k - 1)
    return _multiply(root, root)


def _shift(size: int) -> int:
    """Return x to the power of 8 * size, by square and multiply."""
    result, k = _ONE, 3
    while size:
        if size & 1:
            result = _multiply(_power_of_two(k), result)
        size >>= 1
        k += 1
    return result


SMALL_SEGMENT = 16
LARGE_SEGMENT = 256
_SMALL_IN_LARGE = LARGE_SEGMENT // SMALL_SEGMENT

P = TypeVar("P", bound=Part)

_RAW_ARRAY: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


class Segment(Generic[P]):
    """Consecutive parts and their JSON, joined by commas."""

    __slots__ = ("_packed", "_packed_first", "bare_items", "index", "json", "lengths")

    def __init__(self, items: tuple[P, ...], json: bytes, lengths: tuple[int, ...]) -> None:
        self.bare_items = items
        """The parts with their known fields. Their `raw` may still be empty."""
        self.json = json
        self.lengths = lengths
        self.index: dict[int, int] | None = None
        """The position of each snapshot id, in lists that are searched by id."""
        self._packed: Packed | None = None
        self._packed_first: Packed | None = None

    @classmethod
    def of(cls, items: Sequence[P]) -> Segment[P]:
        raws = [item.raw for item in items]
        return cls(tuple(items), b",".join(raws), tuple(map(len, raws)))

    def __len__(self) -> int:
        return len(self.bare_items)

    def item(self, position: int) -> P:
        """Return the part at a position. Its `raw` is copied from the segment's JSON at first
        use."""
        item = self.bare_items[position]
        if not item.raw:
            start = sum(self.lengths[:position]) + position
            force_setattr(item, "raw", self.json[start : start + self.lengths[position]])
        return item

    def items(self) -> Iterator[P]:
        return (self.item(position) for position in range(len(self.bare_items)))

    def packed(self, *, first: bool) -> Packed:
        """Return the compressed JSON, after a comma unless the segment begins the array."""
        if first:
            if self._packed_first is None:
                self._packed_first = pack(self.json)
            return self._packed_first
        if self._packed is None:
            self._packed = pack(b"," + self.json)
        return self._packed

    def extended(self, item: P) -> Segment[P]:
        return Segment(
            (*self.bare_items, item), self.json + b"," + item.raw, (*self.lengths, len(item.raw))
        )


def merged(segments: Sequence[Segment[P]]) -> Segment[P]:
    return Segment(
        tuple(chain.from_iterable(segment.bare_items for segment in segments)),
        b",".join(segment.json for segment in segments),
        tuple(chain.from_iterable(segment.lengths for segment in segments)),
    )


class SegmentedList(Generic[P]):
    """An immutable list of parts. A change returns a new list that shares unchanged segments."""

    __slots__ = ("_length", "segments")

    def __init__(self, segments: tuple[Segment[P], ...] = ()) -> None:
        self.segments = segments
        self._length = sum(map(len, segments))

    @classmethod
    def of(cls, items: Sequence[P]) -> Self:
        return cls(tuple(Segment.of(items[at:end]) for at, end in _cuts(len(items))))

    @classmethod
    def from_json(
        cls, array: bytes | Raw | memoryview, decoder: msgspec.json.Decoder[list[P]], field: str
    ) -> Self:
        """Read a compact JSON array without copying the JSON of each part."""
        items = decode(decoder, array, field)
        lengths = [len(memoryview(raw)) for raw in decode(_RAW_ARRAY, array, field)]
        # The array is "[part,part]", so one byte follows each part.
        starts = list(accumulate((length + 1 for length in lengths), initial=1))
        view = memoryview(array)
        return cls(
            tuple(
                Segment(
                    tuple(items[at:end]),
                    bytes(view[starts[at] : starts[end] - 1]),
                    tuple(lengths[at:end]),
                )
                for at, end in _cuts(len(items))
            )
        )

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[P]:
        return chain.from_iterable(segment.items() for segment in self.segments)

    def __getitem__(self, position: int) -> P:
        wanted = position + self._length if position < 0 else position
        if not 0 <= wanted < self._length:
            raise IndexError(f"position {position} of a list of {self._length}")
        for segment in self.segments:
            if wanted < len(segment):
                return segment.item(wanted)
            wanted -= len(segment)
        raise IndexError(position)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SegmentedList):
            return NotImplemented
        if self is other or self.segments == other.segments:
            return True
        return self._length == other._length and b"".join(self.chunks()) == b"".join(other.chunks())

    def __hash__(self) -> int:
        return hash((self._length, self.segments[-1].json if self.segments else b""))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"

    @property
    def last(self) -> P | None:
        if not self.segments:
            return None
        segment = self.segments[-1]
        return segment.item(len(segment) - 1)

    def bare_items(self) -> Iterator[P]:
        """Iterate over the parts with their known fields, without copying their JSON."""
        return chain.from_iterable(segment.bare_items for segment in self.segments)

    def append(self, item: P) -> Self:
        segments = self.segments
        if segments and len(segments[-1]) < SMALL_SEGMENT:
            return type(self)((*segments[:-1], segments[-1].extended(item)))
        tail = segments[-_SMALL_IN_LARGE:]
        if len(tail) == _SMALL_IN_LARGE and all(len(part) == SMALL_SEGMENT for part in tail):
            segments = (*segments[:-_SMALL_IN_LARGE], merged(tail))
        return type(self)((*segments, Segment.of([item])))

    def extend(self, items: Iterable[P]) -> Self:
        result = self
        for item in items:
            result = result.append(item)
        return result

    def drop_first(self, count: int) -> Self:
        """Return the list without its first parts. Only the divided segment is built again."""
        if count <= 0:
            return self
        for position, segment in enumerate(self.segments):
            if count == 0:
                return type(self)(self.segments[position:])
            if count < len(segment):
                rest = self.segments[position + 1 :]
                return type(self)((Segment.of(list(segment.items())[count:]), *rest))
            count -= len(segment)
        return type(self)()

    def chunks(self) -> list[bytes]:
        """Return the JSON of the parts, joined by commas, without the brackets of the array."""
        result: list[bytes] = []
        for segment in self.segments:
            if result:
                result.append(b",")
            result.append(segment.json)
        return result

    def packed(self) -> list[Packed]:
        """Return the same bytes, compressed."""
        return [
            segment.packed(first=position == 0) for position, segment in enumerate(self.segments)
        ]


def _cuts(length: int) -> list[tuple[int, int]]:
    """Return where a list is divided: large segments, then small ones for the rest."""
    full = length - length % LARGE_SEGMENT
    starts = [*range(0, full, LARGE_SEGMENT), *range(full, length, SMALL_SEGMENT)]
    return list(pairwise([*starts, length]))

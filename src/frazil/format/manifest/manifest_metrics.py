"""Column metrics in Avro's form: optional maps of field id to count or bound, in one block.

Files of a request nearly always have metrics for the same columns. What stands around the counts
of certain columns is made once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from frazil.format.avro.avro_numbers import INTS, LONGS, encode_count, encode_counts
from frazil.format.metadata.content_files import EncodedBounds, FieldMap
from frazil.wire.content_files import CountMap

_NULL: Final = b"\x00"
"""The branch of a union that says null; also the end of a map."""
_SOME: Final = b"\x02"
_EMPTY: Final = b"\x02\x00"
_MAX_FRAMES: Final = 1 << 10


class _Frame(NamedTuple):
    """The bytes around the counts of certain columns."""

    pieces: tuple[bytes, ...]
    """What stands before the first, between two, and behind the last."""
    places: bytes
    """The same as a format with a place for each count."""


_frames: dict[tuple[int, ...], _Frame] = {}


def encode_count_map(counts: FieldMap[int] | None) -> bytes:
    if counts is None:
        return _NULL
    if type(counts) is not CountMap:
        return _count_pairs(counts)
    values = counts.values
    if not values:
        return _EMPTY
    frame = _frames.get(counts.keys) or _frame(counts.keys)
    first = values[0]
    # Where every row has a value the counts of all columns are one number.
    if values.count(first) == len(values):
        return encode_count(first).join(frame.pieces)
    return frame.places % tuple(encode_counts(values))


def encode_bound_map(bounds: FieldMap[bytes] | None) -> bytes:
    if bounds is None:
        return _NULL
    if type(bounds) is EncodedBounds:
        return bounds.encoded
    if not len(bounds):
        return _EMPTY
    ints, longs = INTS, LONGS
    out = [_SOME, longs[len(bounds)]]
    for field_id, bound in bounds.items():
        out += (ints[field_id], longs[len(bound)], bound)
    out.append(_NULL)
    return b"".join(out)


def _count_pairs(counts: FieldMap[int]) -> bytes:
    if not len(counts):
        return _EMPTY
    ints, longs = INTS, LONGS
    out = [_SOME, longs[len(counts)]]
    for field_id, value in counts.items():
        out += (ints[field_id], longs[value])
    out.append(_NULL)
    return b"".join(out)


def _frame(field_ids: tuple[int, ...]) -> _Frame:
    before = [INTS[field_id] for field_id in field_ids]
    before[0] = _SOME + LONGS[len(field_ids)] + before[0]
    pieces = (*before, _NULL)
    frame = _Frame(pieces, b"%b".join(piece.replace(b"%", b"%%") for piece in pieces))
    if len(_frames) >= _MAX_FRAMES:
        _frames.clear()
    _frames[field_ids] = frame
    return frame

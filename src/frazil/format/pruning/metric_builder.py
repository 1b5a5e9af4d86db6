"""Puts counts and bounds of many files together into `MetricColumns`.

They come in pieces: of one column for many files, as files that were written alike give them, or
as single entries of any column, which are sorted by column at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import Rows
from frazil.format.pruning.metric_bounds import HEAD_BYTES, Bools, Bounds, Words, make_bounds
from frazil.format.pruning.metric_columns import (
    BOUNDS,
    COUNTS,
    FieldMetrics,
    MetricColumns,
    SparseField,
    make_counts,
    words_of,
)

PARTS: Final = (*BOUNDS, *COUNTS)
"""In the order of the fields of `FieldMetrics`."""

_MAX_ENTRIES: Final = 16 << 20
_MAX_PIECES: Final = 1 << 20
_MAX_FIELDS: Final = 1 << 16
"""More than a table can sensibly have. What goes beyond is left without statistics, which only
means that no file is excluded: an attacker's manifest costs no more memory than this."""
_SPARSE: Final = 4
"""A column that fewer than one in so many files have is kept for those files only."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Counts, or bounds as their first two words, little-endian, and their lengths."""

    numbers: NDArray[Any]
    second: Words | None = None
    lengths: NDArray[np.int64] | None = None

    def take(self, at: Any) -> Values:
        return Values(
            self.numbers[at],
            None if self.second is None else self.second[at],
            None if self.lengths is None else self.lengths[at],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of the statistics of one column, for some files."""

    rows: slice | Rows
    values: Values

    @property
    def size(self) -> int:
        return len(self.values.numbers)

    @property
    def indexes(self) -> Rows:
        rows = self.rows
        return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


@dataclass(slots=True)
class Batch:
    """What was read out of some blocks; it counts when all of it could be read."""

    pieces: list[tuple[str, int, Piece]] = field(default_factory=list)
    """Part, column and files."""
    mixed: list[tuple[str, NDArray[np.int64], Piece]] = field(default_factory=list)
    """Part, columns and files: one entry of each."""
    tails: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    """Part, column, file and what the bound has behind its first 16 bytes."""
    single: dict[str, tuple[list[int], list[int], list[Any]]] = field(default_factory=dict)
    """By part, entries one by one: file, column and value."""

    def add_single(self, part: str, row: int, field_id: int, value: int | bytes) -> None:
        rows, ids, values = self.single.setdefault(part, ([], [], []))
        rows.append(row)
        ids.append(field_id)
        values.append(value)

    def entries(self) -> Iterator[tuple[str, NDArray[np.int64], Piece]]:
        yield from self.mixed
        for part, (rows, ids, found) in self.single.items():
            if part in COUNTS:
                values = Values(np.array(found, np.int64))
            else:
                first, second, lengths, tails = words_of(found)
                values = Values(first, second, lengths)
                self.tails += [(part, ids[at], rows[at], tail) for at, tail in tails.items()]
            yield part, np.array(ids, np.int64), Piece(np.array(rows, np.int64), values)


class MetricBuilder:
    """The statistics of a manifest under way."""

    def __init__(self, record_count: NDArray[np.int64]) -> None:
        self._record_count = record_count
        self._pieces: dict[int, dict[str, list[Piece]]] = {}
        self._mixed: dict[str, list[tuple[NDArray[np.int64], Piece]]] = {}
        self._tails: dict[tuple[str, int], dict[int, bytes]] = {}
        self._entry_count = 0
        self._piece_count = 0

    @property
    def is_full(self) -> bool:
        """Whether there is more than can be kept, so that nothing is."""
        return (
            self._entry_count > _MAX_ENTRIES
            or self._piece_count > _MAX_PIECES
            or len(self._pieces) > _MAX_FIELDS
        )

    def add(self, batch: Batch) -> None:
        for part, field_id, piece in batch.pieces:
            self._add_piece(part, field_id, piece)
        for part, ids, piece in batch.entries():
            self._mixed.setdefault(part, []).append((ids, piece))
            self._entry_count += len(ids)
        for part, field_id, row, tail in batch.tails:
            self._tails.setdefault((part, field_id), {})[row] = tail

    def _add_piece(self, part: str, field_id: int, piece: Piece) -> None:
        self._pieces.setdefault(field_id, {}).setdefault(part, []).append(piece)
        self._piece_count += 1

    def columns(self) -> MetricColumns:
        for part, found in self._mixed.items():
            if not self.is_full:
                self._sort(part, found)
        fields: dict[int, FieldMetrics | SparseField] = {}
        if not self.is_full:
            fields = {field_id: self._field(field_id) for field_id in sorted(self._pieces)}
        return MetricColumns(self._record_count, fields)

    def _sort(self, part: str, found: list[tuple[NDArray[np.int64], Piece]]) -> None:
        """Single entries, put in pieces by column."""
        ids = np.concatenate([ids for ids, _ in found])
        order = np.argsort(ids, kind="stable")
        distinct, starts = np.unique(ids[order], return_index=True)
        if len(distinct) > _MAX_FIELDS:
            self._entry_count = _MAX_ENTRIES + 1
            return
        rows = np.concatenate([piece.indexes for _, piece in found])[order]
        values = _joined([piece.values for _, piece in found]).take(order)
        ends = [*starts[1:].tolist(), len(ids)]
        for field_id, start, end in zip(distinct.tolist(), starts.tolist(), ends, strict=True):
            span = slice(start, end)
            self._add_piece(part, field_id, Piece(rows[span], values.take(span)))

    # --- one column --------------------------------------------------------------------------

    def _field(self, field_id: int) -> FieldMetrics | SparseField:
        parts = self._pieces.pop(field_id)
        total = len(self._record_count)
        most = max(sum(piece.size for piece in pieces) for pieces in parts.values())
        if most * _SPARSE >= total:
            return self._metrics(field_id, parts, None)
        told = [piece.indexes for pieces in parts.values() for piece in pieces]
        return self._sparse(field_id, parts, np.unique(np.concatenate(told)))

    def _sparse(self, field_id: int, parts: dict[str, list[Piece]], rows: Rows) -> SparseField:
        return SparseField(rows.astype(np.uint32), self._metrics(field_id, parts, rows))

    def _metrics(
        self, field_id: int, parts: dict[str, list[Piece]], rows: Rows | None
    ) -> FieldMetrics:
        """`rows` are the files that the column is kept for, None all of them."""
        made: dict[str, Any] = {}
        masks: list[Bools] = []
        for part, pieces in parts.items():
            counts = self._record_count if rows is None else self._record_count[rows]
            values, present = _gathered(pieces, rows, len(counts))
            present = _shared(present, masks)
            if part in COUNTS:
                made[part] = make_counts(values.numbers, present, counts)
            else:
                made[part] = self._bounds((part, field_id), values, present, rows)
        return FieldMetrics(*(made.get(part) for part in PARTS))

    def _bounds(
        self, key: tuple[str, int], values: Values, present: Bools | None, rows: Rows | None
    ) -> Bounds:
        tails = self._tails.pop(key, {})
        if rows is not None and tails:
            position = {row: at for at, row in enumerate(rows.tolist())}
            tails = {position[row]: tail for row, tail in tails.items()}
        assert values.lengths is not None
        return make_bounds(values.numbers, values.second, values.lengths, tails, present)


def _joined(found: Sequence[Values]) -> Values:
    if len(found) == 1:
        return found[0]
    second = lengths = None
    if found[0].lengths is not None:
        lengths = np.concatenate([one.lengths for one in found if one.lengths is not None])
    if any(one.second is not None for one in found):
        second = np.concatenate([_second(one) for one in found])
    return Values(np.concatenate([one.numbers for one in found]), second, lengths)


def _second(values: Values) -> Words:
    return np.zeros(len(values.numbers), np.uint64) if values.second is None else values.second


def _gathered(
    pieces: Sequence[Piece], rows: Rows | None, total: int
) -> tuple[Values, Bools | None]:
    """The values of all files, zero where there is none, and which files have one. A later piece
    wins: a map that names a column twice means the last, as in Java."""
    if rows is None and _cover(pieces, total):
        return _joined([piece.values for piece in pieces]), None
    sample = pieces[0].values
    present = np.zeros(total, bool)
    numbers = np.zeros(total, sample.numbers.dtype)
    has_second = any(piece.values.second is not None for piece in pieces)
    second = np.zeros(total, np.uint64) if has_second else None
    lengths = None if sample.lengths is None else np.zeros(total, np.int64)
    for piece in pieces:
        at: Any = piece.rows if rows is None else np.searchsorted(rows, piece.indexes)
        numbers[at] = piece.values.numbers
        present[at] = True
        if second is not None:
            second[at] = _second(piece.values)
        if lengths is not None and piece.values.lengths is not None:
            lengths[at] = piece.values.lengths
    return Values(numbers, second, lengths), None if present.all() else present


def _cover(pieces: Sequence[Piece], total: int) -> bool:
    """Whether they are of all files, one after another."""
    at = 0
    for piece in pieces:
        if not isinstance(piece.rows, slice) or piece.rows.start != at:
            return False
        at = piece.rows.stop
    return at == total


def _shared(present: Bools | None, masks: list[Bools]) -> Bools | None:
    """The same mask for parts that the same files have: it is kept once."""
    if present is None:
        return None
    known = next((mask for mask in masks if np.array_equal(mask, present)), None)
    if known is None:
        masks.append(present)
    return present if known is None else known


def longer(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions of bounds that do not fit into two words."""
    return np.flatnonzero(lengths > HEAD_BYTES)

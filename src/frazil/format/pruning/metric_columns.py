"""The statistics of a manifest's files, column by column, for filters.

They complement `ManifestColumns` with the counts and bounds of every column that has any. Null and
a missing key are treated alike. `column_evaluators` evaluates all files at the same time;
`MetricColumns.row` returns one file for the evaluators of single files.

A bound does not store its type, because the reader's schema may have been promoted since. Bounds
are kept as bytes in the densest form that fits all files of the manifest:

NumberBounds   1, 4 or 8 bytes each: one array of little-endian numbers
TextBounds     any length: the first 16 bytes as two big-endian numbers, which compare like the
               bytes, the length, and the rest of longer bounds in a heap
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from frazil.format.manifest.constant_arrays import (
    Rows,
    compact,
    constant,
    is_constant,
    own_bytes,
    spread,
    taken,
)
from frazil.format.metadata.content_files import FieldMap, FileMetrics

Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

WORD_BYTES: Final = 8
HEAD_BYTES: Final = 16
"""The bytes of a bound in arrays. The rest of a longer bound is in the heap."""
NUMBER_WIDTHS: Final = {1: np.uint8, 4: np.uint32, 8: np.uint64}
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(WORD_BYTES + 1)], np.uint64)
"""Masks for little-endian words by the number of bytes that remain."""


def masked(words: Words, lengths: NDArray[Any]) -> Words:
    """Return little-endian words without the bytes after these lengths."""
    kept: Words = words & _MASKS[np.clip(lengths, 0, WORD_BYTES)]
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class NumberBounds:
    """Bounds that all have the same width."""

    values: NDArray[Any]
    """Unsigned numbers whose little-endian bytes are the bounds. 0 stands for a missing bound."""
    present: Bools | None
    """None if every row has a bound."""

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
        """Return the same bounds in the other form."""
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
    """The bytes of longer bounds after the first 16."""

    data: bytes
    offsets: NDArray[np.uint32]
    """The offset of each row, followed by the end."""

    def get(self, row: int) -> bytes:
        return self.data[int(self.offsets[row]) : int(self.offsets[row + 1])]


@dataclass(frozen=True, slots=True, eq=False)
class TextBounds:
    """Bounds of any length."""

    first: Words
    """Bytes 0 to 8 as a big-endian number, padded with zeros."""
    second: Words
    """Bytes 8 to 16, likewise."""
    length: NDArray[Any]
    """0 stands for a missing bound."""
    tails: Tails | None
    present: Bools | None
    utf8: list[Bools | bool] = field(default_factory=list)
    """Empty, or whether the bounds are UTF-8. It is computed on demand."""

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
    """Return the tails of all rows. A tail is empty if the arrays contain the whole bound."""
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
    """Return the densest form of bounds. They are given by their words as little-endian numbers,
    padded with zeros. A missing bound has only zeros and the length 0."""
    known = lengths if present is None else lengths[present]
    width = int(known[0]) if len(known) else 0
    if width in NUMBER_WIDTHS and bool((known == width).all()):
        return NumberBounds(compact(first.astype(NUMBER_WIDTHS[width])), present)
    rows = len(first)
    longest = int(lengths.max()) if rows else 0
    heap = None
    if longest > HEAD_BYTES:
        # A replaced bound of the same row may have left a tail.
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


COUNTS: Final = ("value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")
_OBJECT_BYTES: Final = 64
"""The memory of a small object in addition to its arrays."""
_FILE_BYTES: Final = 2_000
_USED_COLUMNS_BYTES: Final = 3_000
"""The approximate memory of the statistics of a file as objects, and of the columns that filters
use."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """One count of one column for each file."""

    values: NDArray[Any]
    """In the smallest type that fits. The same array as the record counts if they are equal."""
    present: Bools | None
    """None if every row has a count."""

    def get(self, row: int) -> int | None:
        if self.present is not None and not self.present[row]:
            return None
        return int(self.values[row])

    @property
    def constant(self) -> int | None:
        """The count of all rows if they have the same."""
        if self.present is None and is_constant(self.values):
            return int(self.values[0])
        return None

    def take(self, rows: Rows) -> Counts:
        present = None if self.present is None else self.present[rows]
        return Counts(taken(self.values, rows), present)

    def spread(self, rows: Rows, total: int) -> Counts:
        return Counts(spread(self.values, rows, total), spread_mask(self.present, rows, total))


@dataclass(frozen=True, slots=True, eq=False)
class FieldMetrics:
    """The statistics of one column for each file. None if no file has any."""

    lower: Bounds | None = None
    upper: Bounds | None = None
    value_counts: Counts | None = None
    null_value_counts: Counts | None = None
    nan_value_counts: Counts | None = None

    @property
    def bounds(self) -> tuple[Bounds | None, Bounds | None]:
        return self.lower, self.upper

    @property
    def counts(self) -> tuple[Counts | None, Counts | None, Counts | None]:
        return self.value_counts, self.null_value_counts, self.nan_value_counts

    def take(self, rows: Rows) -> FieldMetrics:
        return self._each(lambda part: part.take(rows))

    def spread(self, rows: Rows, total: int) -> FieldMetrics:
        return self._each(lambda part: part.spread(rows, total))

    def _each(self, make: Callable[[Any], Any]) -> FieldMetrics:
        parts: list[Any] = [*self.bounds, *self.counts]
        return FieldMetrics(*(None if part is None else make(part) for part in parts))

    def arrays(self) -> Iterator[NDArray[Any]]:
        arrays = [array for part in self.bounds if part is not None for array in part.arrays()]
        counts = [part for part in self.counts if part is not None]
        arrays += [array for part in counts for array in (part.values, part.present)]
        yield from (array for array in arrays if array is not None)

    @property
    def heap_bytes(self) -> int:
        return sum(part.heap_bytes for part in self.bounds if part is not None)


NO_METRICS: Final = FieldMetrics()
"""The statistics of a column that no file describes."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseField:
    """The statistics of a column that only few files describe."""

    rows: NDArray[np.uint32]
    """The rows with statistics, in ascending order."""
    metrics: FieldMetrics

    def dense(self, total: int) -> FieldMetrics:
        return self.metrics.spread(self.rows.astype(np.int64), total)


class Fields(Protocol):
    """Looks up the statistics of columns."""

    def get(self, field_id: int, /) -> FieldMetrics | SparseField | None: ...

    def __iter__(self) -> Iterator[int]: ...


class MetricColumns:
    """The statistics of files. Row i is row i of the `ManifestColumns`."""

    __slots__ = ("_fields", "record_count", "taken_from")

    def __init__(
        self,
        record_count: NDArray[np.int64],
        fields: Fields,
        taken_from: tuple[MetricColumns, Rows] | None = None,
    ) -> None:
        self.record_count = record_count
        self._fields = fields
        self.taken_from = taken_from
        """The statistics from which these were selected, and the selected rows."""

    def __len__(self) -> int:
        return len(self.record_count)

    def field(self, field_id: int) -> FieldMetrics | None:
        """Return the statistics of a column, or None if no file has any."""
        stored = self._fields.get(field_id)
        return stored.dense(len(self)) if isinstance(stored, SparseField) else stored

    def locate(self, field_id: int, row: int) -> tuple[FieldMetrics, int] | None:
        """Return the statistics of one column and the row of one file in them, or None."""
        stored = self._fields.get(field_id)
        if not isinstance(stored, SparseField):
            return None if stored is None else (stored, row)
        at = int(np.searchsorted(stored.rows, row))
        is_there = at < len(stored.rows) and stored.rows[at] == row
        return (stored.metrics, at) if is_there else None

    @property
    def field_ids(self) -> list[int]:
        return sorted(self._fields)

    def row(self, row: int) -> FileMetrics:
        """Return the statistics of one file."""
        return _Row(self, row)

    def take(self, rows: Rows) -> MetricColumns:
        """Return the statistics of some files, in their order."""
        return MetricColumns(self.record_count[rows], _Taken(self, rows), (self, rows))

    def items(self) -> Iterable[tuple[int, FieldMetrics | SparseField]]:
        """Return the columns in the form in which they are stored."""
        for field_id in self._fields:
            stored = self._fields.get(field_id)
            if stored is not None:
                yield field_id, stored

    @property
    def size_bytes(self) -> int:
        """The memory they use. The record counts belong to the `ManifestColumns`."""
        if isinstance(self._fields, FieldsOfFiles):
            return self._fields.size_bytes
        arrays: dict[int, NDArray[Any]] = {}
        size = 200
        for _, stored in self.items():
            metrics = stored
            if isinstance(stored, SparseField):
                metrics = stored.metrics
                arrays[id(stored.rows)] = stored.rows
            assert isinstance(metrics, FieldMetrics)
            arrays |= {id(array): array for array in metrics.arrays()}
            size += metrics.heap_bytes + 7 * _OBJECT_BYTES
        arrays.pop(id(self.record_count), None)
        return size + sum(own_bytes(array) for array in arrays.values())


class _Taken:
    """The columns of selected files, made on demand."""

    def __init__(self, whole: MetricColumns, rows: Rows) -> None:
        self._whole, self._rows = whole, rows
        self._columns_by_id: dict[int, FieldMetrics] = {}

    def get(self, field_id: int, /) -> FieldMetrics | None:
        if field_id not in self._columns_by_id:
            metrics = self._whole.field(field_id)
            if metrics is None:
                return None
            self._columns_by_id[field_id] = metrics.take(self._rows)
        return self._columns_by_id[field_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole.field_ids)


# --- one file --------------------------------------------------------------------------------


class _RowMap:
    """One of the statistics maps of a file: a field of `FieldMetrics`."""

    __slots__ = ("_columns", "_part", "_row")

    def __init__(self, columns: MetricColumns, row: int, part: str) -> None:
        self._columns, self._row, self._part = columns, row, part

    def get(self, field_id: int, /) -> Any:
        located = self._columns.locate(field_id, self._row)
        if located is None:
            return None
        metrics, row = located
        part: Counts | Bounds | None = getattr(metrics, self._part)
        return None if part is None else part.get(row)

    def items(self) -> Iterator[tuple[int, Any]]:
        for field_id in self._columns.field_ids:
            value = self.get(field_id)
            if value is not None:
                yield field_id, value

    def __len__(self) -> int:
        return sum(1 for _ in self.items())


class _Row:
    """The statistics of one file."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: MetricColumns, row: int) -> None:
        self._columns, self._row = columns, row

    @property
    def record_count(self) -> int:
        return int(self._columns.record_count[self._row])

    @property
    def value_counts(self) -> FieldMap[int]:
        return _RowMap(self._columns, self._row, "value_counts")

    @property
    def null_value_counts(self) -> FieldMap[int]:
        return _RowMap(self._columns, self._row, "null_value_counts")

    @property
    def nan_value_counts(self) -> FieldMap[int]:
        return _RowMap(self._columns, self._row, "nan_value_counts")

    @property
    def lower_bounds(self) -> FieldMap[bytes]:
        return _RowMap(self._columns, self._row, "lower")

    @property
    def upper_bounds(self) -> FieldMap[bytes]:
        return _RowMap(self._columns, self._row, "upper")


# --- making ----------------------------------------------------------------------------------


def make_counts(
    values: NDArray[np.int64], present: Bools | None, record_count: NDArray[np.int64]
) -> Counts:
    """Return counts in the densest form. 0 stands for a missing count."""
    if present is None and np.array_equal(values, record_count):
        return Counts(record_count, None)
    if not len(values):
        return Counts(values, present)
    least, most = int(values.min()), int(values.max())
    kind = np.promote_types(np.min_scalar_type(least), np.min_scalar_type(most))
    # numpy would convert numbers above the largest signed one to floats.
    dtype = kind if kind.kind in "ui" else np.dtype(np.int64)
    return Counts(compact(values.astype(dtype, copy=False)), present)


def metrics_of_files(files: Sequence[FileMetrics]) -> MetricColumns:
    """Return the statistics of files that are in memory. Columns are made on demand."""
    counts = np.array([file.record_count for file in files], np.int64)
    return MetricColumns(counts, FieldsOfFiles(files, counts))


class FieldsOfFiles:
    """The columns of a few files, made on demand. Measured: a cold plan of 1,000 manifests of 16
    files takes 1.7 times as long if arrays are made for all columns."""

    def __init__(self, files: Sequence[FileMetrics], record_count: NDArray[np.int64]) -> None:
        self._files, self._record_count = files, record_count
        self._columns_by_id: dict[int, FieldMetrics] = {}
        self.size_bytes = len(files) * _FILE_BYTES + _USED_COLUMNS_BYTES

    def get(self, field_id: int, /) -> FieldMetrics | None:
        if field_id not in self._columns_by_id:
            self._columns_by_id[field_id] = self._field(field_id)
        return self._columns_by_id[field_id]

    def __iter__(self) -> Iterator[int]:
        maps = (getattr(file, name) for file in self._files for name in (*BOUNDS, *COUNTS))
        ids = {field_id for by_id in maps if by_id is not None for field_id, _ in by_id.items()}
        return iter(sorted(ids))

    def _field(self, field_id: int) -> FieldMetrics:
        lower, upper = (bounds_of(self._values(name, field_id)) for name in BOUNDS)
        counts = (counts_of(self._values(name, field_id), self._record_count) for name in COUNTS)
        return FieldMetrics(lower, upper, *counts)

    def _values(self, name: str, field_id: int) -> list[Any]:
        maps = (getattr(file, name) for file in self._files)
        return [None if by_id is None else by_id.get(field_id) for by_id in maps]


def counts_of(values: Sequence[int | None], record_count: NDArray[np.int64]) -> Counts | None:
    if all(value is None for value in values):
        return None
    array = np.array([value or 0 for value in values], np.int64)
    return make_counts(array, _present(values), record_count)


def bounds_of(values: Sequence[bytes | None]) -> Bounds | None:
    if all(value is None for value in values):
        return None
    first, second, lengths, tails = words_of([value or b"" for value in values])
    return make_bounds(first, second, lengths, tails, _present(values))


def _present(values: Sequence[Any]) -> Bools | None:
    present = np.array([value is not None for value in values], bool)
    return None if present.all() else present


def words_of(
    values: Sequence[bytes],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64], dict[int, bytes]]:
    """Return the two little-endian words, the lengths, and the tails of longer bounds."""
    heads = b"".join([value[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0") for value in values])
    words = np.frombuffer(heads, "<u8").astype(np.uint64).reshape(-1, HEAD_BYTES // WORD_BYTES)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    tails = {
        int(at): values[at][HEAD_BYTES:] for at in np.flatnonzero(lengths > HEAD_BYTES).tolist()
    }
    return words[:, 0].copy(), words[:, 1].copy(), lengths, tails

"""The statistics of a manifest's files, column by column: what filters are judged by.

Beside `ManifestColumns`, of which they are the other half: counts and bounds of every column of the
table that some file has any for. Null and a missing key are the same here, as they are for whoever
asks. `column_evaluators` answers questions about all files at once; `MetricColumns.row` gives one
file as the evaluators of single files see it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

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


COUNTS: Final = ("value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")
_OBJECT_BYTES: Final = 64
"""What a small object takes beside the arrays that it holds."""
_FILE_BYTES: Final = 2_000
_ASKED_BYTES: Final = 3_000
"""About what the statistics of a file take as objects, and the columns that filters ask for."""

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """One count of one column by file."""

    values: NDArray[Any]
    """In the smallest type that fits; the record counts themselves where it equals them."""
    present: Bools | None
    """None: every row has one."""

    def get(self, row: int) -> int | None:
        if self.present is not None and not self.present[row]:
            return None
        return int(self.values[row])

    @property
    def constant(self) -> int | None:
        """The count of all rows, where they have the same."""
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
    """The statistics of one column by file; None for what no file has."""

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
        found = [array for part in self.bounds if part is not None for array in part.arrays()]
        counts = [part for part in self.counts if part is not None]
        found += [array for part in counts for array in (part.values, part.present)]
        yield from (array for array in found if array is not None)

    @property
    def heap_bytes(self) -> int:
        return sum(part.heap_bytes for part in self.bounds if part is not None)


NO_METRICS: Final = FieldMetrics()
"""Of a column that no file has statistics for."""


@dataclass(frozen=True, slots=True, eq=False)
class SparseField:
    """The statistics of a column that few files have any for."""

    rows: NDArray[np.uint32]
    """Those that have, in order; the statistics are theirs."""
    metrics: FieldMetrics

    def dense(self, total: int) -> FieldMetrics:
        return self.metrics.spread(self.rows.astype(np.int64), total)


class Fields(Protocol):
    """Where the columns of the table are looked up."""

    def get(self, field_id: int, /) -> FieldMetrics | SparseField | None: ...

    def __iter__(self) -> Iterator[int]: ...


class MetricColumns:
    """The statistics of files, which are rows here; row i is that of the `ManifestColumns`."""

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
        """Whose statistics these are a part of, and which rows of it."""

    def __len__(self) -> int:
        return len(self.record_count)

    def field(self, field_id: int) -> FieldMetrics | None:
        """The statistics of a column; None where no file has any."""
        found = self._fields.get(field_id)
        return found.dense(len(self)) if isinstance(found, SparseField) else found

    def place(self, field_id: int, row: int) -> tuple[FieldMetrics, int] | None:
        """Where the statistics of one column of one file are kept; None where it has none."""
        found = self._fields.get(field_id)
        if not isinstance(found, SparseField):
            return None if found is None else (found, row)
        at = int(np.searchsorted(found.rows, row))
        is_there = at < len(found.rows) and found.rows[at] == row
        return (found.metrics, at) if is_there else None

    @property
    def field_ids(self) -> list[int]:
        return sorted(self._fields)

    def row(self, row: int) -> FileMetrics:
        """The statistics of one file."""
        return _Row(self, row)

    def take(self, rows: Rows) -> MetricColumns:
        """Those of some files, in their order."""
        return MetricColumns(self.record_count[rows], _Taken(self, rows), (self, rows))

    def items(self) -> Iterable[tuple[int, FieldMetrics | SparseField]]:
        """As they are kept."""
        for field_id in self._fields:
            found = self._fields.get(field_id)
            if found is not None:
                yield field_id, found

    @property
    def size_bytes(self) -> int:
        """What it costs in memory. The record counts are those of the `ManifestColumns`."""
        if isinstance(self._fields, FieldsOfFiles):
            return self._fields.size_bytes
        arrays: dict[int, NDArray[Any]] = {}
        size = 200
        for _, found in self.items():
            metrics = found
            if isinstance(found, SparseField):
                metrics = found.metrics
                arrays[id(found.rows)] = found.rows
            assert isinstance(metrics, FieldMetrics)
            arrays |= {id(array): array for array in metrics.arrays()}
            size += metrics.heap_bytes + 7 * _OBJECT_BYTES
        arrays.pop(id(self.record_count), None)
        return size + sum(own_bytes(array) for array in arrays.values())


class _Taken:
    """The columns of some files, made when they are asked for."""

    def __init__(self, whole: MetricColumns, rows: Rows) -> None:
        self._whole, self._rows = whole, rows
        self._made: dict[int, FieldMetrics] = {}

    def get(self, field_id: int, /) -> FieldMetrics | None:
        if field_id not in self._made:
            found = self._whole.field(field_id)
            if found is None:
                return None
            self._made[field_id] = found.take(self._rows)
        return self._made[field_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole.field_ids)


# --- one file --------------------------------------------------------------------------------


class _RowMap(Generic[_V]):
    """One of the maps of a file."""

    __slots__ = ("_columns", "_read", "_row")

    def __init__(
        self, columns: MetricColumns, row: int, read: Callable[[FieldMetrics, int], _V | None]
    ) -> None:
        self._columns, self._row, self._read = columns, row, read

    def get(self, field_id: int, /) -> _V | None:
        found = self._columns.place(field_id, self._row)
        return None if found is None else self._read(*found)

    def items(self) -> Iterator[tuple[int, _V]]:
        for field_id in self._columns.field_ids:
            value = self.get(field_id)
            if value is not None:
                yield field_id, value

    def __len__(self) -> int:
        return sum(1 for _ in self.items())


def _lower(metrics: FieldMetrics, row: int) -> bytes | None:
    return None if metrics.lower is None else metrics.lower.get(row)


def _upper(metrics: FieldMetrics, row: int) -> bytes | None:
    return None if metrics.upper is None else metrics.upper.get(row)


def _count(number: int) -> Callable[[FieldMetrics, int], int | None]:
    def read(metrics: FieldMetrics, row: int) -> int | None:
        counts = metrics.counts[number]
        return None if counts is None else counts.get(row)

    return read


_VALUES, _NULLS, _NANS = (_count(number) for number in range(len(COUNTS)))


class _Row:
    """One file."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: MetricColumns, row: int) -> None:
        self._columns, self._row = columns, row

    @property
    def record_count(self) -> int:
        return int(self._columns.record_count[self._row])

    @property
    def value_counts(self) -> FieldMap[int]:
        return _RowMap(self._columns, self._row, _VALUES)

    @property
    def null_value_counts(self) -> FieldMap[int]:
        return _RowMap(self._columns, self._row, _NULLS)

    @property
    def nan_value_counts(self) -> FieldMap[int]:
        return _RowMap(self._columns, self._row, _NANS)

    @property
    def lower_bounds(self) -> FieldMap[bytes]:
        return _RowMap(self._columns, self._row, _lower)

    @property
    def upper_bounds(self) -> FieldMap[bytes]:
        return _RowMap(self._columns, self._row, _upper)


# --- making ----------------------------------------------------------------------------------


def make_counts(
    values: NDArray[np.int64], present: Bools | None, record_count: NDArray[np.int64]
) -> Counts:
    """Counts in the densest form; 0 where there is none."""
    if present is None and np.array_equal(values, record_count):
        return Counts(record_count, None)
    if not len(values):
        return Counts(values, present)
    least, most = int(values.min()), int(values.max())
    kind = np.promote_types(np.min_scalar_type(least), np.min_scalar_type(most))
    # Of a number above the greatest signed one numpy would make a float.
    dtype = kind if kind.kind in "ui" else np.dtype(np.int64)
    return Counts(compact(values.astype(dtype, copy=False)), present)


def metrics_of_files(files: Sequence[FileMetrics]) -> MetricColumns:
    """The statistics of files at hand, put in columns when a column is asked for."""
    counts = np.array([file.record_count for file in files], np.int64)
    return MetricColumns(counts, FieldsOfFiles(files, counts))


class FieldsOfFiles:
    """The columns of a few files, made when they are asked for: arrays for all of them would cost
    more than the files."""

    def __init__(self, files: Sequence[FileMetrics], record_count: NDArray[np.int64]) -> None:
        self._files, self._record_count = files, record_count
        self._made: dict[int, FieldMetrics] = {}
        self.size_bytes = len(files) * _FILE_BYTES + _ASKED_BYTES

    def get(self, field_id: int, /) -> FieldMetrics | None:
        if field_id not in self._made:
            self._made[field_id] = self._field(field_id)
        return self._made[field_id]

    def __iter__(self) -> Iterator[int]:
        maps = (getattr(file, name) for file in self._files for name in (*BOUNDS, *COUNTS))
        ids = {field_id for found in maps if found is not None for field_id, _ in found.items()}
        return iter(sorted(ids))

    def _field(self, field_id: int) -> FieldMetrics:
        lower, upper = (bounds_of(self._values(name, field_id)) for name in BOUNDS)
        counts = (counts_of(self._values(name, field_id), self._record_count) for name in COUNTS)
        return FieldMetrics(lower, upper, *counts)

    def _values(self, name: str, field_id: int) -> list[Any]:
        maps = (getattr(file, name) for file in self._files)
        return [None if found is None else found.get(field_id) for found in maps]


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
    """The two words, little-endian, the lengths, and what is longer by position."""
    heads = b"".join([value[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0") for value in values])
    words = np.frombuffer(heads, "<u8").astype(np.uint64).reshape(-1, HEAD_BYTES // WORD_BYTES)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    tails = {
        int(at): values[at][HEAD_BYTES:] for at in np.flatnonzero(lengths > HEAD_BYTES).tolist()
    }
    return words[:, 0].copy(), words[:, 1].copy(), lengths, tails

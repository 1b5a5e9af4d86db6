"""Reads what a file's footer says about the values of its columns, over all row groups.

The rules are those of Java's `ParquetMetrics`, except that Java takes milliseconds for
microseconds. Values are Iceberg's internal ones, of the column's type in the table. pyarrow is
imported inside functions, because client and server must start without it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

from frazil.values import temporal
from frazil.values.column_matching import MatchedColumn
from frazil.values.parquet_columns import Leaf
from frazil.values.single_value import decimal_from_unscaled
from frazil.values.types import DecimalType, Type, TypeId

FLOATING: Final = frozenset({TypeId.FLOAT, TypeId.DOUBLE})
_WITHOUT_BOUNDS: Final = frozenset({TypeId.GEOMETRY, TypeId.GEOGRAPHY})
"""The order of well-known binary is not an order of coordinates."""
_VARIABLE_LENGTH: Final = frozenset({TypeId.STRING, TypeId.BINARY})
_WRITERS_OF_UNCUT_BOUNDS: Final = ("parquet-cpp-arrow", "parquet-cpp version")
"""These writers leave out a long statistic instead of cutting it."""
_MIN_CUT_BYTES: Final = 64
"""Other writers cut statistics at this length or above, and pyarrow rarely shows that they did."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one column of a file."""

    size_in_bytes: int
    value_count: int
    """Includes nulls and NaNs."""
    null_count: int | None
    """None if the footer does not say."""
    nan_count: int | None = None
    """None if NaNs were not counted, and for columns that cannot have any."""
    lower: Any = None
    upper: Any = None
    """None if there is no value, or if the footer does not say."""
    are_values: bool = False
    """Whether the bounds are known to be values of the file, neither cut nor widened."""
    may_be_cut: bool = False
    """Whether the bounds may be prefixes of longer values; then they prove nothing."""

    @property
    def is_all_null(self) -> bool:
        return self.null_count == self.value_count


NanCounts: TypeAlias = Callable[[MatchedColumn], "Sequence[int] | None"]
"""Returns how many NaNs a column has in each row group; None if they were not counted."""


def column_statistics(
    metadata: Any,
    columns: Sequence[MatchedColumn],
    nan_counts: NanCounts,
    wants_bounds: Callable[[MatchedColumn], bool],
) -> Mapping[int, ColumnStatistics]:
    """Return the statistics by field id; `metadata` is a `pyarrow.parquet.FileMetaData`.

    `nan_counts` is called for columns that can have NaNs and are not inside a list or a map.
    """
    chunks = _chunks(metadata, [column.leaf for column in columns])
    statistics = {}
    for column, own in zip(columns, chunks, strict=True):
        nans = None
        if column.type.type_id in FLOATING and not column.is_repeated:
            nans = nan_counts(column)
        bounds = _Bounds(column, str(metadata.created_by or ""))
        if wants_bounds(column) and _has_bounds(column):
            bounds.add_all(own, nans)
        statistics[column.field_id] = bounds.statistics(own, nans)
    return statistics


# --- column chunks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chunk:
    size_in_bytes: int
    value_count: int
    null_count: int | None
    statistics: Any


def _chunks(metadata: Any, leaves: Sequence[Leaf]) -> list[list[_Chunk]]:
    chunks: list[list[_Chunk]] = [[] for _ in leaves]
    for number in range(metadata.num_row_groups):
        row_group = metadata.row_group(number)
        for own, leaf in zip(chunks, leaves, strict=True):
            own.append(_chunk(row_group.column(leaf.index), leaf))
    return chunks


def _chunk(column: Any, leaf: Leaf) -> _Chunk:
    statistics = column.statistics if column.is_stats_set else None
    nulls: int | None = None
    if leaf.logical_type == "Null":
        nulls = column.num_values
    elif not leaf.can_be_null or column.num_values == 0:
        nulls = 0
    elif statistics is not None and statistics.has_null_count:
        nulls = statistics.null_count
    return _Chunk(column.total_compressed_size, column.num_values, nulls, statistics)


def read_nan_counts(file: Any, column: MatchedColumn) -> list[int]:
    """Count the NaNs in each row group; `file` is a `pyarrow.parquet.ParquetFile`.

    A footer does not count them. Without the count no reader knows whether `x = NaN`, or a filter
    that NaN passes, may match a file. So this column alone is read, except where it is all null.
    """
    leaf = column.leaf
    (chunks,) = _chunks(file.metadata, [leaf])
    counts = []
    for number, chunk in enumerate(chunks):
        if chunk.null_count == chunk.value_count:
            counts.append(0)
            continue
        table = file.reader.read_row_group(number, column_indices=[leaf.index], use_threads=False)
        counts.append(sum(nan_count(array) for array in table.column(0).chunks))
    return counts


def nan_count(array: Any) -> int:
    """Count the NaNs of an array of floats, or of structs around a single leaf of floats."""
    import pyarrow as pa
    import pyarrow.compute as pc

    while array.type.num_fields:
        # Only one leaf was read, so that every struct around it has one field. `flatten` hides the
        # values that a field may have below a null struct.
        array = array.flatten()[0]
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return pc.sum(pc.is_nan(array)).as_py() or 0


# --- bounds -------------------------------------------------------------------------------------


def _has_bounds(column: MatchedColumn) -> bool:
    """Whether a column has bounds: as in Java, not if it is repeated or a 96-bit timestamp."""
    return not (
        column.is_repeated
        or column.leaf.physical_type == "INT96"
        or column.leaf.logical_type == "Null"
        or column.type.type_id in _WITHOUT_BOUNDS
    )


class _Bounds:
    """Collects the bounds of a column, as long as every chunk has them."""

    def __init__(self, column: MatchedColumn, created_by: str) -> None:
        self._type = column.type
        self._decode = _decoder(column.leaf, column.type)
        self._created_by = created_by
        self._lower: Any = None
        self._upper: Any = None
        self._is_exact: bool | None = None

    def add_all(self, chunks: Sequence[_Chunk], nans: Sequence[int] | None) -> None:
        for number, chunk in enumerate(chunks):
            # Without a value that is neither null nor NaN, a chunk has no bounds.
            without = (chunk.null_count or 0) + (0 if nans is None else nans[number])
            if chunk.value_count > without and not self._add(chunk):
                self._lower = self._upper = None
                return

    def _add(self, chunk: _Chunk) -> bool:
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            return False
        # pyarrow does not have these two yet. A bound that is known to be cut is not used.
        exact = [
            getattr(statistics, name, None) for name in ("is_min_value_exact", "is_max_value_exact")
        ]
        if False in exact:
            return False
        self._is_exact = all(exact) and self._is_exact is not False
        try:
            lower, upper = self._decode(statistics.min_raw), self._decode(statistics.max_raw)
        except (UnicodeDecodeError, ValueError):
            return False
        if self._type.type_id in FLOATING and (math.isnan(lower) or math.isnan(upper)):
            return False
        self._lower = lower if self._lower is None else min(self._lower, lower)
        self._upper = upper if self._upper is None else max(self._upper, upper)
        return True

    def statistics(self, chunks: Sequence[_Chunk], nans: Sequence[int] | None) -> ColumnStatistics:
        nulls = [chunk.null_count for chunk in chunks]
        lower, upper = self._lower, self._upper
        if self._type.type_id in FLOATING and lower is not None:
            # Writers may have confused the two zeros (Parquet's specification), and Iceberg orders
            # -0.0 before 0.0.
            lower, upper = (-0.0 if lower == 0 else lower), (0.0 if upper == 0 else upper)
        are_values, may_be_cut = self._trust(lower, upper)
        return ColumnStatistics(
            sum(chunk.size_in_bytes for chunk in chunks),
            sum(chunk.value_count for chunk in chunks),
            None if None in nulls else sum(count for count in nulls if count is not None),
            None if nans is None else sum(nans),
            lower,
            upper,
            are_values,
            may_be_cut,
        )

    def _trust(self, lower: Any, upper: Any) -> tuple[bool, bool]:
        if lower is None:
            return False, False
        if self._type.type_id not in _VARIABLE_LENGTH or self._is_exact:
            return True, False
        if self._created_by.startswith(_WRITERS_OF_UNCUT_BOUNDS):
            return True, False
        texts = (value.encode() if isinstance(value, str) else value for value in (lower, upper))
        return False, max(map(len, texts)) >= _MIN_CUT_BYTES


# --- values -------------------------------------------------------------------------------------

_UNITS_PER_MICRO: Final = {"milliseconds": 1_000, "microseconds": 1}


def _decoder(leaf: Leaf, type_: Type) -> Callable[[Any], Any]:
    """Return a function that makes a value of the type from a raw statistic."""
    if isinstance(type_, DecimalType):
        return partial(_decimal, type_.scale)
    if type_.type_id is TypeId.STRING:
        return bytes.decode
    if type_.type_id is TypeId.UUID:
        return lambda raw: UUID(bytes=raw)
    if type_.type_id in (TypeId.TIME, TypeId.TIMESTAMP, TypeId.TIMESTAMPTZ):
        per_unit = (
            temporal.MICROS_PER_DAY
            if leaf.logical_type == "Date"
            else _UNITS_PER_MICRO.get(leaf.unit or "", 1)
        )
        return partial(operator.mul, per_unit)
    if type_.type_id is TypeId.TIMESTAMP_NS and leaf.logical_type == "Date":
        return partial(operator.mul, temporal.NANOS_PER_DAY)
    return lambda raw: raw


def _decimal(scale: int, raw: int | bytes) -> Any:
    unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    return decimal_from_unscaled(unscaled, scale)

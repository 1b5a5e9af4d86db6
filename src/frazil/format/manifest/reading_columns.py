"""The fields of data files that readers need in addition to the manifest columns.

Format, key metadata, split offsets and sort order rarely differ between the files of a manifest.
Each is therefore stored as its distinct values and one index for each row. With these columns,
scan tasks are written without reading the manifest again. Measured: a warm plan with tasks takes
10 to 17 times as long without them (see benchmarks/manifest_paths.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroFile, open_avro
from frazil.format.avro.avro_types import Field, UnreadableAvro
from frazil.format.manifest.entry_fields import read_content_files
from frazil.format.manifest.lockstep_walk import NotInLockstep, RowsWalk
from frazil.format.manifest.manifest_columns import ManifestColumns, row_positions
from frazil.format.manifest.manifest_fields import (
    FILE_FORMAT,
    KEY_METADATA,
    SORT_ORDER_ID,
    SPLIT_OFFSETS,
    data_file_record,
)
from frazil.format.metadata.content_files import ContentFile

T = TypeVar("T")
_Positions = NDArray[np.int64]

_WANTED: Final = (FILE_FORMAT, KEY_METADATA, SPLIT_OFFSETS, SORT_ORDER_ID)
_MIN_LOCKSTEP_ROWS: Final = 32
_MAX_COMPARED_BYTES: Final = 64
"""Longer values are not compared for all rows at the same time."""
_VALUE_BYTES: Final = 100


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(Generic[T]):
    """A column with few distinct values."""

    values: tuple[T, ...]
    index: NDArray[Any]
    """The index into the values for each row. It uses no memory if there is only one value."""

    def __getitem__(self, row: int) -> T:
        return self.values[int(self.index[row])]

    @property
    def size_bytes(self) -> int:
        own = self.index.nbytes if len(self.values) > 1 else 0
        return own + _VALUE_BYTES * len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class ReadingColumns:
    """The reading columns of a manifest, row by row."""

    file_format: Distinct[str]
    key_metadata: Distinct[bytes | None]
    split_offsets: Distinct[tuple[int, ...] | None]
    sort_order_id: Distinct[int | None]

    @property
    def size_bytes(self) -> int:
        parts = (self.file_format, self.key_metadata, self.split_offsets, self.sort_order_id)
        return sum(part.size_bytes for part in parts) + 200


def decode_reading(content: bytes, columns: ManifestColumns) -> ReadingColumns:
    """Decode the reading columns of the manifest with this content. Raises UnreadableAvro."""
    file = open_avro(content, MANIFEST_LIMITS)
    if len(columns) >= _MIN_LOCKSTEP_ROWS:
        try:
            return _together(file, columns)
        except (NotInLockstep, IndexError):
            pass
    return _one_by_one(file, columns)


def _together(file: AvroFile, columns: ManifestColumns) -> ReadingColumns:
    """Decode all entries at the same time."""
    data = b"".join(block for _, block in file.blocks())
    if len(data) < int(columns.data_file_end.max()):
        raise UnreadableAvro("the manifest is not the one that the columns are of")
    walk = RowsWalk(data, len(columns))
    at = columns.data_file_at.astype(np.int64)
    by_id: dict[int, Distinct[Any]] = {}
    for field in data_file_record(file.schema.record).fields:
        start, at = at, walk.over(field.node, at)
        if int(at.max()) > walk.size:
            raise NotInLockstep
        if field.field_id in _WANTED:
            by_id[field.field_id] = _distinct(walk, data, field, start, at)
    if not np.array_equal(at, columns.data_file_end.astype(np.int64)):
        raise NotInLockstep
    missing: Distinct[None] = _constant(None, len(columns))
    return ReadingColumns(
        file_format=_each(by_id.get(FILE_FORMAT, _constant("", len(columns))), _format),
        key_metadata=_each(by_id.get(KEY_METADATA, missing), _bytes),
        split_offsets=_each(by_id.get(SPLIT_OFFSETS, missing), _offsets),
        sort_order_id=by_id.get(SORT_ORDER_ID, missing),
    )


def _distinct(
    walk: RowsWalk, data: bytes, field: Field, start: _Positions, end: _Positions
) -> Distinct[Any]:
    def value(encoded: bytes) -> Any:
        return field.node.read(encoded, 0)[0]

    length = int(end[0] - start[0])
    if length <= _MAX_COMPARED_BYTES and bool((end - start == length).all()):
        table = walk.bytes[start[:, None] + np.arange(length)]
        if bool((table == table[0]).all()):
            return _constant(value(table[0].tobytes()), len(start))
    known: dict[bytes, int] = {}
    pairs = zip(start.tolist(), end.tolist(), strict=True)
    rows = [known.setdefault(data[a:b], len(known)) for a, b in pairs]
    return Distinct(tuple(map(value, known)), _smallest(rows, len(known)))


def _one_by_one(file: AvroFile, columns: ManifestColumns) -> ReadingColumns:
    positions = row_positions(file, columns, np.arange(len(columns)))
    nothing = [()] * len(columns)
    files = list(read_content_files(file.schema, positions, nothing, metrics=False))
    return ReadingColumns(
        file_format=_of(files, lambda file: _format(file.file_format)),
        key_metadata=_of(files, lambda file: file.key_metadata),
        split_offsets=_of(files, lambda file: _offsets(file.split_offsets)),
        sort_order_id=_of(files, lambda file: file.sort_order_id),
    )


def _of(files: list[ContentFile], value: Callable[[ContentFile], T]) -> Distinct[T]:
    known: dict[T, int] = {}
    rows = [known.setdefault(value(file), len(known)) for file in files]
    return Distinct(tuple(known), _smallest(rows, len(known)))


def _constant(value: T, rows: int) -> Distinct[T]:
    return Distinct((value,), np.broadcast_to(np.uint8(0), rows))


def _each(column: Distinct[Any], change: Callable[[Any], T]) -> Distinct[T]:
    return Distinct(tuple(map(change, column.values)), column.index)


def _smallest(rows: list[int], distinct: int) -> NDArray[Any]:
    if distinct <= 1:
        return np.broadcast_to(np.uint8(0), len(rows))
    return np.array(rows, np.min_scalar_type(distinct))


def _format(value: Any) -> str:
    return (value or "").lower()


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _offsets(value: Any) -> tuple[int, ...] | None:
    return None if value is None else tuple(value)

"""Decodes the statistics of a manifest's entries into `MetricColumns`.

Files of a table usually have maps with the same columns in the same order. All entries of some
blocks are therefore decoded at the same time: the first pair of each map, then the second, and so
on. Pairs of different columns are sorted by column. Few, unusual or damaged entries are read one by
one. Measured: a cold plan of 100,000 files takes 8 to 10 times as long if all are read one by one
(see benchmarks/manifest_paths.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroFile, open_avro
from frazil.format.avro.avro_schema import optional_field
from frazil.format.avro.avro_types import (
    Array,
    Field,
    Record,
    Union,
    UnreadableAvro,
    read_bytes,
    read_long,
)
from frazil.format.manifest.constant_arrays import Rows
from frazil.format.manifest.entry_fields import MapReader, read_metrics
from frazil.format.manifest.lockstep_walk import NotInLockstep, RowsWalk, lockstep
from frazil.format.manifest.manifest_columns import ManifestColumns, columns_of_file
from frazil.format.manifest.manifest_fields import (
    COLUMN_SIZES,
    MALFORMED,
    METRICS,
    data_file_record,
)
from frazil.format.metadata.content_files import FileMetrics
from frazil.format.pruning.metric_columns import (
    BOUNDS,
    COUNTS,
    HEAD_BYTES,
    WORD_BYTES,
    Bools,
    Bounds,
    FieldMetrics,
    FieldsOfFiles,
    MetricColumns,
    SparseField,
    Words,
    make_bounds,
    make_counts,
    masked,
    words_of,
)

PARTS: Final = (*BOUNDS, *COUNTS)
"""In the order of the fields of `FieldMetrics`."""

_MAX_ENTRIES: Final = 16 << 20
_MAX_PIECES: Final = 1 << 20
_MAX_FIELDS: Final = 1 << 16
"""More than a sensible table has. Manifests beyond these limits are treated as if they had no
statistics, which excludes no file but limits the memory that an attacker can use."""
_SPARSE_FACTOR: Final = 4
"""If fewer than one file in this many has a column, it is stored for those files only."""


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Counts, or bounds as their first two little-endian words and their lengths."""

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
    """The statistics of some blocks. They are used only if all blocks could be read."""

    pieces: list[tuple[str, int, Piece]] = field(default_factory=list)
    """Part, column and files."""
    mixed: list[tuple[str, NDArray[np.int64], Piece]] = field(default_factory=list)
    """Part, columns and files, with one entry for each file."""
    tails: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    """Part, column, file and the bytes of the bound after the first 16."""
    single: dict[str, tuple[list[int], list[int], list[Any]]] = field(default_factory=dict)
    """Single entries by part: file, column and value."""

    def add_single(self, part: str, row: int, field_id: int, value: int | bytes) -> None:
        rows, ids, values = self.single.setdefault(part, ([], [], []))
        rows.append(row)
        ids.append(field_id)
        values.append(value)

    def entries(self) -> Iterator[tuple[str, NDArray[np.int64], Piece]]:
        yield from self.mixed
        for part, (rows, ids, raw) in self.single.items():
            if part in COUNTS:
                values = Values(np.array(raw, np.int64))
            else:
                first, second, lengths, tails = words_of(raw)
                values = Values(first, second, lengths)
                self.tails += [(part, ids[at], rows[at], tail) for at, tail in tails.items()]
            yield part, np.array(ids, np.int64), Piece(np.array(rows, np.int64), values)


class MetricBuilder:
    """Collects the statistics of a manifest."""

    def __init__(self, record_count: NDArray[np.int64]) -> None:
        self._record_count = record_count
        self._pieces: dict[int, dict[str, list[Piece]]] = {}
        self._mixed: dict[str, list[tuple[NDArray[np.int64], Piece]]] = {}
        self._tails: dict[tuple[str, int], dict[int, bytes]] = {}
        self._entry_count = 0
        self._piece_count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limits are exceeded, so that nothing is kept."""
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
        for part, entries in self._mixed.items():
            if not self.is_full:
                self._sort(part, entries)
        fields: dict[int, FieldMetrics | SparseField] = {}
        if not self.is_full:
            fields = {field_id: self._field(field_id) for field_id in sorted(self._pieces)}
        return MetricColumns(self._record_count, fields)

    def _sort(self, part: str, entries: list[tuple[NDArray[np.int64], Piece]]) -> None:
        """Group single entries by column."""
        ids = np.concatenate([ids for ids, _ in entries])
        order = np.argsort(ids, kind="stable")
        distinct, starts = np.unique(ids[order], return_index=True)
        if len(distinct) > _MAX_FIELDS:
            self._entry_count = _MAX_ENTRIES + 1
            return
        rows = np.concatenate([piece.indexes for _, piece in entries])[order]
        values = _joined([piece.values for _, piece in entries]).take(order)
        ends = [*starts[1:].tolist(), len(ids)]
        for field_id, start, end in zip(distinct.tolist(), starts.tolist(), ends, strict=True):
            span = slice(start, end)
            self._add_piece(part, field_id, Piece(rows[span], values.take(span)))

    # --- one column --------------------------------------------------------------------------

    def _field(self, field_id: int) -> FieldMetrics | SparseField:
        parts = self._pieces.pop(field_id)
        total = len(self._record_count)
        most = max(sum(piece.size for piece in pieces) for pieces in parts.values())
        if most * _SPARSE_FACTOR >= total:
            return self._metrics(field_id, parts, None)
        known = [piece.indexes for pieces in parts.values() for piece in pieces]
        rows = np.unique(np.concatenate(known))
        return SparseField(rows.astype(np.uint32), self._metrics(field_id, parts, rows))

    def _metrics(
        self, field_id: int, parts: dict[str, list[Piece]], rows: Rows | None
    ) -> FieldMetrics:
        """`rows` are the files that the column is stored for, or None for all."""
        metrics: dict[str, Any] = {}
        masks: list[Bools] = []
        for part, pieces in parts.items():
            counts = self._record_count if rows is None else self._record_count[rows]
            values, present = _gathered(pieces, rows, len(counts))
            present = _shared(present, masks)
            if part in COUNTS:
                metrics[part] = make_counts(values.numbers, present, counts)
            else:
                metrics[part] = self._bounds((part, field_id), values, present, rows)
        return FieldMetrics(*(metrics.get(part) for part in PARTS))

    def _bounds(
        self, key: tuple[str, int], values: Values, present: Bools | None, rows: Rows | None
    ) -> Bounds:
        tails = self._tails.pop(key, {})
        if rows is not None and tails:
            position = {row: at for at, row in enumerate(rows.tolist())}
            tails = {position[row]: tail for row, tail in tails.items()}
        assert values.lengths is not None
        return make_bounds(values.numbers, values.second, values.lengths, tails, present)


def _joined(parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    second = lengths = None
    if parts[0].lengths is not None:
        lengths = np.concatenate([part.lengths for part in parts if part.lengths is not None])
    if any(part.second is not None for part in parts):
        second = np.concatenate([_second(part) for part in parts])
    return Values(np.concatenate([part.numbers for part in parts]), second, lengths)


def _second(values: Values) -> Words:
    return np.zeros(len(values.numbers), np.uint64) if values.second is None else values.second


def _gathered(
    pieces: Sequence[Piece], rows: Rows | None, total: int
) -> tuple[Values, Bools | None]:
    """Return the values of all files, with zeros for missing ones, and which files have one. Later
    pieces win: as in Java, the last pair of a column counts."""
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
    """Return whether the pieces cover all files, one after another."""
    at = 0
    for piece in pieces:
        if not isinstance(piece.rows, slice) or piece.rows.start != at:
            return False
        at = piece.rows.stop
    return at == total


def _shared(present: Bools | None, masks: list[Bools]) -> Bools | None:
    """Return one mask for parts that the same files have."""
    if present is None:
        return None
    known = next((mask for mask in masks if np.array_equal(mask, present)), None)
    if known is None:
        masks.append(present)
    return present if known is None else known


def longer(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of bounds that do not fit into two words."""
    return np.flatnonzero(lengths > HEAD_BYTES)


_CHUNK_BYTES: Final = 8 << 20
_KEPT_BYTES: Final = 64 << 20
"""The most decompressed bytes that are kept. Writers aim at 8 MB, which is about 40 MB before
compression."""
_MIN_LOCKSTEP_ROWS: Final = 32
"""Smaller manifests are read faster one by one, and their statistics stay objects."""
_MAX_SINGLE_ROWS: Final = 16
"""If so few rows of a chunk have another pair in a map, they are read alone."""
_MAX_BLOCKS: Final = 5
"""The most blocks of a map, including the empty one at the end. Writers use one for all pairs."""
_ROWS_OF_A_PIECE: Final = 256


def decode_metrics(content: bytes, columns: ManifestColumns) -> MetricColumns:
    """Decode the statistics of all entries of the manifest with this content and these columns.
    Raises UnreadableAvro."""
    return _metrics(open_avro(content, MANIFEST_LIMITS), columns)


def decode_manifest(content: bytes) -> tuple[ManifestColumns, MetricColumns]:
    """Decode columns and statistics. Blocks are decompressed once unless they are too large to
    keep. Measured: separate decoding makes a cold plan 1.2 to 1.35 times as slow."""
    opened = open_avro(content, MANIFEST_LIMITS)
    file = _KeptFile(**{own.name: getattr(opened, own.name) for own in fields(opened)})
    columns = columns_of_file(file)
    return columns, _metrics(file, columns)


@dataclass(frozen=True)
class _KeptFile(AvroFile):
    """A file that keeps its blocks once all of them have been read."""

    kept: list[tuple[int, bytes]] = field(default_factory=list)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        return iter(self.kept) if self.kept else self._read()

    def _read(self) -> Iterator[tuple[int, bytes]]:
        blocks: list[tuple[int, bytes]] = []
        size = 0
        for count, block in AvroFile.blocks(self):
            size += len(block)
            if size <= _KEPT_BYTES:
                blocks.append((count, block))
            else:
                blocks.clear()
            yield count, block
        self.kept.extend(blocks)


def _metrics(file: AvroFile, columns: ManifestColumns) -> MetricColumns:
    if len(columns) < _MIN_LOCKSTEP_ROWS:
        return _few_metrics(file, columns)
    decoder = _Decoder(file, columns)
    for chunk in _chunks(file, columns):
        decoder.take(chunk)
    return decoder.builder.columns()


def _few_metrics(file: AvroFile, columns: ManifestColumns) -> MetricColumns:
    """Return the statistics of a small manifest. A table may have thousands of them."""
    files: list[FileMetrics] = []
    for chunk in _chunks(file, columns):
        starts = [(chunk.data, at) for at in chunk.data_file_at.tolist()]
        files += read_metrics(file.schema, starts)
    return MetricColumns(columns.record_count, FieldsOfFiles(files, columns.record_count))


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """Consecutive blocks, and the rows in them."""

    data: bytes
    rows: slice
    data_file_at: Rows
    """Where the rows' data files begin in the data."""
    data_file_end: Rows


def _chunks(file: AvroFile, columns: ManifestColumns) -> Iterator[_Chunk]:
    starts = columns.block_starts.astype(np.int64)
    at, end = columns.data_file_at.astype(np.int64), columns.data_file_end.astype(np.int64)
    first_rows = [*np.searchsorted(at, starts).tolist(), len(columns)]
    blocks: list[bytes] = []
    size, first, number, begin = 0, 0, 0, 0
    for number, (count, block) in enumerate(file.blocks(), 1):
        if number > len(starts) or begin + size != starts[number - 1]:
            raise _another_manifest()
        if count != first_rows[number] - first_rows[number - 1]:
            raise _another_manifest()
        blocks.append(block)
        size += len(block)
        if size >= _CHUNK_BYTES:
            rows = slice(first_rows[first], first_rows[number])
            yield _Chunk(b"".join(blocks), rows, at[rows] - begin, end[rows] - begin)
            blocks, first, begin, size = [], number, begin + size, 0
    if number != len(starts):
        raise _another_manifest()
    if blocks:
        rows = slice(first_rows[first], len(columns))
        yield _Chunk(b"".join(blocks), rows, at[rows] - begin, end[rows] - begin)


def _another_manifest() -> UnreadableAvro:
    return UnreadableAvro("the manifest is not the one that the columns are of")


class _Decoder:
    def __init__(self, file: AvroFile, columns: ManifestColumns) -> None:
        record = data_file_record(file.schema.record)
        self._readers: dict[int, MapReader] = {}
        for field_id in METRICS:
            map_field = optional_field(record, field_id, Array)
            if map_field is not None:
                self._readers[field_id] = MapReader(map_field)
        self._fields = _up_to_the_last(record, self._readers)
        self._in_lockstep = lockstep(file.schema.text) is not None
        self.builder = MetricBuilder(columns.record_count)

    def take(self, chunk: _Chunk) -> None:
        if self.builder.is_full or not len(chunk.data_file_at):
            return
        if self._in_lockstep and len(chunk.data_file_at) >= _MIN_LOCKSTEP_ROWS:
            try:
                self.builder.add(self._together(chunk))
                return
            except (NotInLockstep, IndexError):
                pass
        self.builder.add(self._one_by_one(chunk))

    def _together(self, chunk: _Chunk) -> Batch:
        batch = Batch()
        walk = RowsWalk(chunk.data, len(chunk.data_file_at))
        maps = _Maps(chunk, walk, batch)
        at = chunk.data_file_at
        for own in self._fields:
            part = METRICS.get(own.field_id or 0)
            if part is not None or own.field_id == COLUMN_SIZES:
                at = maps.field(own, part, at)
            else:
                at, _ = walk.fields((own,), at, {})
            if bool((at > chunk.data_file_end).any()):
                raise NotInLockstep
        return batch

    def _one_by_one(self, chunk: _Chunk) -> Batch:
        batch, data = Batch(), chunk.data
        positions = zip(chunk.data_file_at.tolist(), chunk.data_file_end.tolist(), strict=True)
        for row, (start, end) in enumerate(positions, chunk.rows.start):
            at = start
            try:
                for own in self._fields:
                    reader = self._readers.get(own.field_id or 0)
                    if reader is None:
                        at = own.node.skip(data, at)
                        continue
                    entries, at = reader.read(data, at)
                    part = METRICS[own.field_id or 0]
                    for field_id, value in (entries or {}).items():
                        batch.add_single(part, row, field_id, value)
            except MALFORMED as error:
                raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None
            if at > end:
                raise _another_manifest()
        return batch


def _up_to_the_last(record: Record, wanted: Mapping[int, MapReader]) -> tuple[Field, ...]:
    positions = [at for at, own in enumerate(record.fields) if own.field_id in wanted]
    return record.fields[: max(positions) + 1] if positions else ()


def _replaced(at: Rows, which: Rows | None, by: Rows) -> Rows:
    if which is None:
        return by
    at = at.copy()
    at[which] = by
    return at


class _Maps:
    """Walks over the maps of the rows of a chunk."""

    def __init__(self, chunk: _Chunk, walk: RowsWalk, batch: Batch) -> None:
        self._data, self._walk, self._batch = chunk.data, walk, batch
        self._base = chunk.rows.start
        self._all = chunk.rows
        size = len(walk.bytes) - WORD_BYTES + 1
        self._words = np.ndarray((size,), "<u8", walk.bytes, 0, (1,))
        """The eight bytes from each position on, as a number."""

    def field(self, own: Field, part: str | None, at: Rows) -> Rows:
        """Move over a field that is a map or null. With `part` None its pairs are skipped."""
        if not isinstance(own.node, Union):
            return self._map(part, None, at)
        some, _, at = self._walk.branch(own.node, at)
        if some is None:
            return self._map(part, None, at)
        if len(some):
            at[some] = self._map(part, some, at[some])
        return at

    def _map(self, part: str | None, rows: Rows | None, at: Rows) -> Rows:
        """Move over maps. `rows` are those of the chunk, or None for all."""
        behind, left = at, None
        for _ in range(_MAX_BLOCKS):
            counts, at = self._walk.lengths(at)
            behind = _replaced(behind, left, at)
            if not counts.any():
                return behind
            if not counts.all():
                # The other maps end here. Usually they have no pairs at all.
                some = np.flatnonzero(counts)
                at, counts = at[some], counts[some]
                rows = some if rows is None else rows[some]
                left = some if left is None else left[some]
            at = self._pairs(part, rows, at, counts)
        raise NotInLockstep

    def _pairs(self, part: str | None, rows: Rows | None, at: Rows, counts: Rows) -> Rows:
        if len(at) <= _MAX_SINGLE_ROWS:
            return self._alone(part, np.arange(len(at)) if rows is None else rows, at, counts)
        least, most = int(counts.min()), int(counts.max())
        for _ in range(least):
            at = self._pair(part, rows, at)
        if least == most:
            return at
        at = at.copy()
        left = np.flatnonzero(counts > least)
        for number in range(least, most):
            left = left[counts[left] > number]
            own = left if rows is None else rows[left]
            if len(left) <= _MAX_SINGLE_ROWS:
                at[left] = self._alone(part, own, at[left], counts[left] - number)
                return at
            at[left] = self._pair(part, own, at[left])
        return at

    def _alone(self, part: str | None, rows: Rows, at: Rows, counts: Rows) -> Rows:
        """Read the remaining pairs of a few rows, which may have far more pairs than the others."""
        ends: list[int] = []
        is_count = part is None or part in COUNTS
        read = read_long if is_count else read_bytes
        for row, position, count in zip(rows.tolist(), at.tolist(), counts.tolist(), strict=True):
            for _ in range(count):
                field_id, position = read_long(self._data, position)
                value, position = read(self._data, position)
                if part is not None:
                    self._batch.add_single(part, self._base + row, field_id, value)
            ends.append(position)
        return np.array(ends, np.int64)

    def _pair(self, part: str | None, rows: Rows | None, at: Rows) -> Rows:
        ids, at = self._ids(at)
        if part is None:
            return self._walk.over_varints(at)
        if part in COUNTS:
            numbers, at = self._walk.longs(at)
            self._add(part, ids, rows, Values(numbers))
            return at
        lengths, at = self._walk.lengths(at)
        self._add(part, ids, rows, self._bounds(at, lengths))
        self._add_tails(part, ids, rows, at, lengths)
        return at + lengths

    def _ids(self, at: Rows) -> tuple[int | NDArray[np.int64], Rows]:
        """Return the columns, as one number if they are equal."""
        first = self._walk.bytes[at]
        byte = int(first[0])
        if byte < 128 and bool((first == byte).all()):
            return (byte >> 1) ^ -(byte & 1), at + 1
        ids, at = self._walk.longs(at)
        if bool((ids == ids[0]).all()):
            return int(ids[0]), at
        return ids, at

    def _bounds(self, at: Rows, lengths: Rows) -> Values:
        most = int(lengths.max())
        first = self._words[at].astype(np.uint64, copy=False)
        if most > WORD_BYTES or bool((lengths != WORD_BYTES).any()):
            first = masked(first, lengths)
        second = None
        if most > WORD_BYTES:
            # The bytes after a short bound do not belong to it, or the data ends there.
            position = np.where(lengths > WORD_BYTES, at + WORD_BYTES, at)
            second = masked(
                self._words[position].astype(np.uint64, copy=False), lengths - WORD_BYTES
            )
        return Values(first, second, lengths)

    def _add(
        self, part: str, ids: int | NDArray[np.int64], rows: Rows | None, values: Values
    ) -> None:
        where = self._all if rows is None else rows + self._base
        if isinstance(ids, int):
            self._batch.pieces.append((part, ids, Piece(where, values)))
            return
        distinct, which = np.unique(ids, return_inverse=True)
        if len(distinct) * _ROWS_OF_A_PIECE > len(ids):
            self._batch.mixed.append((part, ids, Piece(where, values)))
            return
        indexes = Piece(where, values).indexes
        for number, field_id in enumerate(distinct.tolist()):
            own = np.flatnonzero(which == number)
            self._batch.pieces.append((part, field_id, Piece(indexes[own], values.take(own))))

    def _add_tails(
        self,
        part: str,
        ids: int | NDArray[np.int64],
        rows: Rows | None,
        at: Rows,
        lengths: NDArray[np.int64],
    ) -> None:
        for number in longer(lengths).tolist():
            row = self._base + (number if rows is None else int(rows[number]))
            field_id = ids if isinstance(ids, int) else int(ids[number])
            position = int(at[number])
            tail = self._data[position + HEAD_BYTES : position + int(lengths[number])]
            self._batch.tails.append((part, field_id, row, tail))

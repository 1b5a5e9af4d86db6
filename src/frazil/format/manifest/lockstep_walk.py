"""Walks over all entries of many blocks at the same time, field by field, with numpy.

An entry begins where the one before it ends, which is known only after walking over that one. But
the file paths of a table have a common prefix. The occurrences of that prefix are likely positions
of the paths, and from each path its entry can be walked to the end, all at the same time. The guess
is then verified: every entry must begin where the one before it ended and must reach its own path
from there, and the last entry of a block must end with the block. A block can be read in only one
way, so the result is that of a walk entry by entry. Everything else raises NotInLockstep.

Measured: without this a cold plan of 100,000 files takes 3 to 10 times as long (see
benchmarks/manifest_paths.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import AvroFile
from frazil.format.avro.avro_schema import cached_by_schema, record_schema
from frazil.format.avro.avro_types import (
    Array,
    Boolean,
    Bytes,
    Field,
    Fixed,
    Floating,
    Integer,
    Node,
    Null,
    Record,
    String,
    Union,
    read_long,
)
from frazil.format.manifest.manifest_fields import (
    DATA_FILE,
    ENTRY_NUMBERS,
    FILE_NUMBERS,
    FILE_PATH,
    FIRST_ROW_ID,
    MALFORMED,
    NONE,
    PARTITION,
    checked_data_file,
)

_Positions = NDArray[np.int64]

_PREFIX_BYTES: Final = 24
"""The length of the prefix. Shorter ones are tried if it does not occur as often as needed."""
_PADDING: Final = bytes(16)
_MIN_ARRAY_STEPS: Final = 2_000
"""The most array elements that are walked over one after another."""
_MAX_FIELDS: Final = 200
_MAX_ARRAY_BLOCKS: Final = 4
_MAX_VARINT_BYTES: Final = 10


class NotInLockstep(Exception):
    """These blocks must be walked over entry by entry."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive blocks of a file."""

    counts: Sequence[int]
    blocks: Sequence[bytes]


def chunks_of(file: AvroFile, max_bytes: int) -> Iterator[Chunk]:
    """Yield the blocks of a file in chunks. A chunk ends with the block that fills it."""
    counts: list[int] = []
    blocks: list[bytes] = []
    size = 0
    for count, block in file.blocks():
        counts.append(count)
        blocks.append(block)
        size += len(block)
        if size >= max_bytes:
            yield Chunk(counts, blocks)
            counts, blocks, size = [], [], 0
    if blocks:
        yield Chunk(counts, blocks)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """The rows of a chunk. Positions count from its beginning."""

    numbers: dict[str, _Positions]
    paths: list[bytes]
    partitions: list[bytes]
    data_file_at: _Positions
    data_file_end: _Positions
    first_row_id_at: _Positions
    """Positions within the `data_file`. NONE if the schema has no such field."""


@cached_by_schema
def lockstep(schema: str) -> Lockstep | None:
    """Return the walk for manifests with this schema, or None if the schema does not allow it."""
    record = record_schema(schema).record
    data_file = checked_data_file(record)
    fields = [field for field in record.fields if field.field_id != DATA_FILE]
    if len(fields) + len(data_file.fields) > _MAX_FIELDS:
        return None
    path = data_file.by_id(FILE_PATH)
    if path is None or not isinstance(path.node, String):
        return None
    walked = [*fields, *data_file.fields]
    ids = [field.field_id for field in walked if field.field_id is not None]
    if len(set(ids)) != len(ids) or not all(_can_walk(field.node) for field in walked):
        return None
    return Lockstep(record, data_file, path)


_FLAT: Final = (Boolean, Bytes, Fixed, Floating, Integer, Null, String)


def _can_walk(node: Node) -> bool:
    if isinstance(node, Union):
        return node.optional_of is not None and _can_walk(node.optional_of)
    if isinstance(node, Array):
        return isinstance(node.items, _FLAT) or (
            isinstance(node.items, Record)
            and all(isinstance(field.node, _FLAT) for field in node.items.fields)
        )
    if isinstance(node, Record):
        return all(
            not isinstance(field.node, Record | Array) and _can_walk(field.node)
            for field in node.fields
        )
    return isinstance(node, _FLAT)


class Lockstep:
    """The fields of a schema before and after the path."""

    def __init__(self, record: Record, data_file: Record, path: Field) -> None:
        at = next(i for i, field in enumerate(record.fields) if field.node is data_file)
        within = data_file.fields.index(path)
        self._entry_head = record.fields[:at]
        self._file_head = data_file.fields[:within]
        self._path = path
        self._file_tail = data_file.fields[within + 1 :]
        self._entry_tail = record.fields[at + 1 :]

    def rows(self, chunk: Chunk, max_bytes: int) -> ChunkRows:
        """Decode the rows of a chunk. Raises NotInLockstep."""
        data = b"".join(chunk.blocks)
        starts = self._path_starts(chunk, data)
        walk = RowsWalk(data, len(starts))
        path_at = np.array(starts, np.int64)
        try:
            return self._rows(chunk, data, walk, path_at, max_bytes)
        except IndexError:
            raise NotInLockstep from None

    def _rows(
        self, chunk: Chunk, data: bytes, walk: RowsWalk, path_at: _Positions, max_bytes: int
    ) -> ChunkRows:
        lengths = walk.lengths_before(path_at)
        path_end = path_at + lengths
        file_end, spans = walk.fields(self._file_tail, path_end, FILE_NUMBERS)
        ends, _ = walk.fields(self._entry_tail, file_end, ENTRY_NUMBERS)
        begins = _begins(chunk, ends)
        if int((ends - begins).max()) > max_bytes:
            raise NotInLockstep
        file_at, _ = walk.fields(self._entry_head, begins, ENTRY_NUMBERS)
        reached, more = walk.fields(self._file_head, file_at, FILE_NUMBERS)
        length, reached = walk.lengths(reached)
        if not np.array_equal(reached, path_at) or not np.array_equal(length, lengths):
            raise NotInLockstep
        spans |= more
        row_id_at = np.full(len(path_at), NONE, np.int64)
        if FIRST_ROW_ID in spans:
            row_id_at = spans[FIRST_ROW_ID][0] - file_at
        return ChunkRows(
            numbers=walk.numbers(),
            paths=_slices(data, path_at, path_end),
            partitions=_partitions(data, spans, len(path_at)),
            data_file_at=file_at,
            data_file_end=file_end,
            first_row_id_at=row_id_at,
        )

    def _path_starts(self, chunk: Chunk, data: bytes) -> list[int]:
        """Return where the paths probably begin."""
        try:
            at = 0
            for field in (*self._entry_head, *self._file_head):
                at = field.node.skip(data, at)
            length, at = read_long(data, at)
        except MALFORMED:
            raise NotInLockstep from None
        rows = sum(chunk.counts)
        for size in (_PREFIX_BYTES, _PREFIX_BYTES // 2, 8):
            prefix = data[at : at + max(min(size, length), 0)]
            if len(prefix) < 4:
                break
            starts = [match.start() for match in re.finditer(re.escape(prefix), data)]
            # An entry of a delete manifest may also contain the path of a data file.
            each, rest = divmod(len(starts), rows)
            if each and not rest:
                return starts[::each]
        raise NotInLockstep


def _begins(chunk: Chunk, ends: _Positions) -> _Positions:
    """Return where the entries begin if they end there. Blocks must end with their last entries."""
    sizes = np.array([len(block) for block in chunk.blocks], np.int64)
    counts = np.array(chunk.counts, np.int64)
    if int(counts.min()) < 1:
        raise NotInLockstep
    block_ends, first_after = np.cumsum(sizes), np.cumsum(counts)
    if not np.array_equal(ends[first_after - 1], block_ends):
        raise NotInLockstep
    # A block begins where the one before it ends, so this is also right for its first entry.
    begins = np.empty_like(ends)
    begins[0] = 0
    begins[1:] = ends[:-1]
    return begins


def _slices(data: bytes, starts: _Positions, ends: _Positions) -> list[bytes]:
    return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _partitions(
    data: bytes, spans: dict[int, tuple[_Positions, _Positions]], rows: int
) -> list[bytes]:
    if PARTITION not in spans:
        return [b""] * rows
    return _slices(data, *spans[PARTITION])


class RowsWalk:
    """One position for each row in the bytes of a chunk. The positions move over values."""

    def __init__(self, data: bytes, rows: int) -> None:
        self.bytes = np.frombuffer(data + _PADDING, np.uint8)
        self.size = len(data)
        self._rows = rows
        self._steps = _MIN_ARRAY_STEPS + rows // 10
        self._numbers: dict[str, _Positions] = {}

    def numbers(self) -> dict[str, _Positions]:
        known = (*ENTRY_NUMBERS.values(), *FILE_NUMBERS.values())
        for name, missing in known:
            if name not in self._numbers:
                self._numbers[name] = np.full(self._rows, missing, np.int64)
        return self._numbers

    def fields(
        self, fields: Sequence[Field], at: _Positions, wanted: dict[int, tuple[str, int]]
    ) -> tuple[_Positions, dict[int, tuple[_Positions, _Positions]]]:
        """Return the positions after these fields, and where the wanted fields are."""
        spans: dict[int, tuple[_Positions, _Positions]] = {}
        for field in fields:
            start = at
            name = wanted.get(-1 if field.field_id is None else field.field_id)
            if name is None:
                at = self.over(field.node, at)
            else:
                at, self._numbers[name[0]] = self._number(field.node, at, name[1])
            if field.field_id in (PARTITION, FIRST_ROW_ID):
                spans[field.field_id] = start, at
            if int(at.max()) > self.size:
                raise NotInLockstep
        return at, spans

    # The following methods return the positions after the values.

    def over(self, node: Node, at: _Positions) -> _Positions:
        """Move over a value of any type."""
        if isinstance(node, Integer):
            return self.over_varints(at)
        if isinstance(node, Bytes | String):
            lengths, at = self.lengths(at)
            return at + lengths
        if isinstance(node, Union):
            return self._over_optional(node, at)
        if isinstance(node, Array):
            return self._over_array(node.items, at)
        if isinstance(node, Record):
            for field in node.fields:
                at = self.over(field.node, at)
            return at
        return at + node.min_bytes

    def over_varints(self, at: _Positions) -> _Positions:
        more = self.bytes[at] > 127
        at = at + 1
        for _ in range(_MAX_VARINT_BYTES):
            if not more.any():
                return at
            at += more
            more &= self.bytes[at - 1] > 127
        raise NotInLockstep

    def _over_optional(self, node: Union, at: _Positions) -> _Positions:
        some, other, at = self.branch(node, at)
        if some is None:
            return self.over(other, at)
        if len(some):
            at[some] = self.over(other, at[some])
        return at

    def branch(self, node: Union, at: _Positions) -> tuple[_Positions | None, Node, _Positions]:
        """Return the rows that are not null, or None for all of them."""
        other = node.optional_of
        assert other is not None
        is_some = self.bytes[at] == 2 * node.branches.index(other)
        if is_some.all():
            return None, other, at + 1
        if not (is_some | (self.bytes[at] == 2 * node.branches.index(Null()))).all():
            raise NotInLockstep
        return np.flatnonzero(is_some), other, at + 1

    def _over_array(self, items: Node, at: _Positions, blocks: int = 0) -> _Positions:
        counts, at = self.lengths(at)
        most = int(counts.max())
        if most == 0:
            return at
        if blocks == _MAX_ARRAY_BLOCKS:
            raise NotInLockstep
        rows = np.flatnonzero(counts)
        behind = self._over_items(items, at[rows], counts[rows], most)
        at[rows] = self._over_array(items, behind, blocks + 1)
        return at

    def _over_items(self, items: Node, at: _Positions, counts: _Positions, most: int) -> _Positions:
        # If a few rows have far more elements than the others, reading them alone is faster.
        self._steps -= most
        if self._steps < 0:
            raise NotInLockstep
        least = int(counts.min())
        for _ in range(least):
            at = self.over(items, at)
        rows = np.arange(len(at))
        for number in range(least, most):
            rows = rows[counts[rows] > number]
            at[rows] = self.over(items, at[rows])
        return at

    # --- numbers ------------------------------------------------------------------------------

    def lengths(self, at: _Positions) -> tuple[_Positions, _Positions]:
        """Return lengths or counts, which are not negative, and the positions after them."""
        first = self.bytes[at]
        if int(first.max()) > 127:
            numbers, at = self.longs(at)
            if int(numbers.min()) < 0 or int(numbers.max()) > self.size:
                raise NotInLockstep
            return numbers, at
        if (first & 1).any():
            raise NotInLockstep
        return (first >> 1).astype(np.int64), at + 1

    def lengths_before(self, at: _Positions) -> _Positions:
        """Return the lengths that seem to end at these positions."""
        start = at - 1
        more = self.bytes[start - 1] > 127
        for _ in range(_MAX_VARINT_BYTES):
            if not more.any():
                break
            start -= more
            more &= self.bytes[start - 1] > 127
        lengths, end = self.lengths(start)
        if not np.array_equal(end, at):
            raise NotInLockstep
        return lengths

    def _number(self, node: Node, at: _Positions, missing: int) -> tuple[_Positions, _Positions]:
        """Return the positions after the numbers, and the numbers."""
        if not isinstance(node, Union):
            numbers, at = self.longs(at)
            return at, numbers
        some, _, at = self.branch(node, at)
        if some is None:
            numbers, at = self.longs(at)
            return at, numbers
        numbers = np.full(len(at), missing, np.int64)
        if len(some):
            numbers[some], at[some] = self.longs(at[some])
        return at, numbers

    def longs(self, at: _Positions) -> tuple[_Positions, _Positions]:
        byte = self.bytes[at]
        total = (byte & 127).astype(np.uint64)
        more = byte > 127
        at = at + 1
        for shift in range(7, 64, 7):
            if not more.any():
                break
            byte = np.where(more, self.bytes[at], 0)
            total |= (byte & 127).astype(np.uint64) << np.uint64(shift)
            at += more
            if shift == 63 and int(byte.max()) > 1:
                raise NotInLockstep
            more = byte > 127
        signs = -(total & np.uint64(1)).astype(np.int64)
        return (total >> np.uint64(1)).astype(np.int64) ^ signs, at

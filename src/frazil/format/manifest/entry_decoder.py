"""Decodes the entries of a manifest into arrays.

Large blocks are decoded with numpy, all entries at the same time (`lockstep_walk`). Small,
unusual and damaged blocks are read entry by entry, which also identifies any damage. Measured: a
cold plan of 100,000 files takes 3 times as long if all entries are read one by one (see
benchmarks/manifest_paths.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import AvroFile, skipper
from frazil.format.avro.avro_schema import cached_by_schema, record_schema
from frazil.format.avro.avro_types import Bytes, Field, Node, Record, String, Union, UnreadableAvro
from frazil.format.manifest.lockstep_walk import Chunk, Lockstep, NotInLockstep, chunks_of, lockstep
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

_CHUNK_BYTES: Final = 8 << 20
"""The size of the blocks that are decoded together. More would need too much memory."""
_MIN_LOCKSTEP_ROWS: Final = 100
"""Fewer rows are decoded faster one by one."""
_NUMBERS: Final = (*ENTRY_NUMBERS.values(), *FILE_NUMBERS.values())
_COLUMNS: Final = (
    *(name for name, _ in _NUMBERS),
    *("partition", "data_file_at", "data_file_end", "first_row_id_at"),
)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """Row i is entry i of the file. Positions count from the beginning of the first block, as if
    all blocks were joined."""

    status: NDArray[np.int64]
    snapshot_id: NDArray[np.int64]
    sequence_number: NDArray[np.int64]
    file_sequence_number: NDArray[np.int64]
    content: NDArray[np.int64]
    record_count: NDArray[np.int64]
    file_size_in_bytes: NDArray[np.int64]
    first_row_id: NDArray[np.int64]
    partition: NDArray[np.int64]
    data_file_at: NDArray[np.int64]
    data_file_end: NDArray[np.int64]
    first_row_id_at: NDArray[np.int64]
    """The position of this field within the `data_file`. NONE if the schema does not have it."""
    paths: Sequence[bytes]
    block_starts: Sequence[int]
    partitions: Sequence[bytes]
    """The distinct encoded partition tuples."""


def decode_rows(file: AvroFile) -> DecodedRows:
    """Decode every entry. Raises UnreadableAvro."""
    reader = _entry_reader(file.schema.text)
    together = lockstep(file.schema.text)
    rows = _Rows()
    for chunk in chunks_of(file, _CHUNK_BYTES):
        if together is not None and sum(chunk.counts) >= _MIN_LOCKSTEP_ROWS:
            try:
                rows.add_lockstep(chunk, together, file.limits.record_bytes)
                continue
            except NotInLockstep:
                pass
        rows.add_each(chunk, reader, file.limits.record_bytes)
    return rows.decoded()


class _Rows:
    """Collects arrays of each chunk and joins them at the end."""

    def __init__(self) -> None:
        self._base = 0
        self._parts: dict[str, list[NDArray[np.int64]]] = {name: [] for name in _COLUMNS}
        self._paths: list[bytes] = []
        self._partitions: dict[bytes, int] = {}
        self._block_starts: list[int] = []

    def add_lockstep(self, chunk: Chunk, together: Lockstep, max_bytes: int) -> None:
        decoded = together.rows(chunk, max_bytes)
        known = self._partitions
        indexes = [known.setdefault(partition, len(known)) for partition in decoded.partitions]
        numbers = {
            **decoded.numbers,
            "partition": np.array(indexes, np.int64),
            "data_file_at": decoded.data_file_at + self._base,
            "data_file_end": decoded.data_file_end + self._base,
            "first_row_id_at": decoded.first_row_id_at,
        }
        for name, parts in self._parts.items():
            parts.append(numbers[name])
        self._paths += decoded.paths
        for block in chunk.blocks:
            self._end_block(block)

    def add_each(self, chunk: Chunk, reader: _EntryReader, max_bytes: int) -> None:
        rows: list[list[int]] = []
        for count, block in zip(chunk.counts, chunk.blocks, strict=True):
            try:
                entries = reader.entries(block, count, max_bytes)
            except MALFORMED as error:
                raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None
            for numbers, partition, path, file_at, file_end, row_id_at in entries:
                index = self._partitions.setdefault(partition, len(self._partitions))
                numbers += index, self._base + file_at, self._base + file_end, row_id_at
                rows.append(numbers)
                self._paths.append(path)
            self._end_block(block)
        if rows:
            table = np.array(rows, np.int64)
            for number, parts in enumerate(self._parts.values()):
                parts.append(table[:, number])

    def _end_block(self, block: bytes) -> None:
        self._block_starts.append(self._base)
        self._base += len(block)

    def decoded(self) -> DecodedRows:
        arrays = {
            name: np.concatenate(parts) if parts else np.empty(0, np.int64)
            for name, parts in self._parts.items()
        }
        return DecodedRows(
            **arrays,
            paths=self._paths,
            block_starts=self._block_starts,
            partitions=tuple(self._partitions),
        )


# --- entry by entry --------------------------------------------------------------------------

_Entry = tuple[list[int], bytes, bytes, int, int, int]
"""The numbers, the encoded partition and path, where the `data_file` begins and ends, and where in
it the first row id begins."""
_Part = tuple[str, int, Node]
"""The action for a field, the column of its number, and its type."""
_Step = tuple[str, int, Callable[[bytes, int], Any]]
"""The action for a field (SKIP or another one), the column of its number, and its reader."""
_SKIP: Final = "skip"
_NUMBER: Final = "number"
_PARTITION: Final = "partition"
_PATH: Final = "path"
_ROW_ID: Final = "first row id"


@cached_by_schema
def _entry_reader(schema: str) -> _EntryReader:
    return _EntryReader(schema)


class _EntryReader:
    """Reads the entries of manifests that have one schema."""

    def __init__(self, schema: str) -> None:
        record = record_schema(schema).record
        data_file = checked_data_file(record)
        at = next(i for i, own in enumerate(record.fields) if own.field_id == DATA_FILE)
        self._head = _steps(self._entry_part(record, own) for own in record.fields[:at])
        self._file = _steps(self._file_part(data_file, own) for own in data_file.fields)
        self._tail = _steps(self._entry_part(record, own) for own in record.fields[at + 1 :])

    def _entry_part(self, record: Record, own: Field) -> _Part:
        if own.field_id in ENTRY_NUMBERS and record.by_id(own.field_id) is own:
            return _NUMBER, _COLUMNS.index(ENTRY_NUMBERS[own.field_id][0]), own.node
        return _SKIP, 0, own.node

    def _file_part(self, data_file: Record, own: Field) -> _Part:
        if own.field_id is None or data_file.by_id(own.field_id) is not own:
            return _SKIP, 0, own.node
        if own.field_id in FILE_NUMBERS:
            kind = _ROW_ID if own.field_id == FIRST_ROW_ID else _NUMBER
            return kind, _COLUMNS.index(FILE_NUMBERS[own.field_id][0]), own.node
        if own.field_id == FILE_PATH:
            return _PATH, 0, _as_bytes(own.node)
        return (_PARTITION if own.field_id == PARTITION else _SKIP), 0, own.node

    def entries(self, block: bytes, count: int, max_bytes: int) -> list[_Entry]:
        entries: list[_Entry] = []
        at = 0
        for _ in range(count):
            entry, end = self._entry(block, at)
            if end > len(block):
                raise UnreadableAvro("a record ends beyond its block")
            if end - at > max_bytes:
                raise UnreadableAvro(f"a record has more than {max_bytes} bytes")
            entries.append(entry)
            at = end
        if at != len(block):
            raise UnreadableAvro("a block has bytes after its last record")
        return entries

    def _entry(self, data: bytes, at: int) -> tuple[_Entry, int]:
        numbers = [missing for _, missing in _NUMBERS]
        partition, path, row_id_at = b"", None, NONE
        at = _read_numbers(self._head, numbers, data, at)
        file_at = at
        for kind, column, read in self._file:
            if kind is _SKIP:
                at = read(data, at)
            elif kind is _PATH:
                path, at = read(data, at)
            elif kind is _PARTITION:
                start, at = at, read(data, at)
                partition = data[start:at]
            else:
                if kind is _ROW_ID:
                    row_id_at = at - file_at
                value, at = read(data, at)
                if value is not None:
                    numbers[column] = value
        if path is None:
            raise UnreadableAvro("an entry has no file path")
        end = _read_numbers(self._tail, numbers, data, at)
        return (numbers, partition, path, file_at, at, row_id_at), end


def _steps(parts: Iterable[_Part]) -> list[_Step]:
    """Return the readers of consecutive fields. Those that are only skipped become one step."""
    steps: list[_Step] = []
    for kind, run in groupby(parts, lambda part: part[0]):
        if kind is _SKIP:
            steps.append((kind, 0, skipper([node for *_, node in run])))
        elif kind is _PARTITION:
            steps += [(kind, 0, node.skip) for *_, node in run]
        else:
            steps += [(kind, column, node.read) for _, column, node in run]
    return steps


def _read_numbers(steps: Sequence[_Step], numbers: list[int], data: bytes, at: int) -> int:
    for kind, column, read in steps:
        if kind is _SKIP:
            at = read(data, at)
            continue
        value, at = read(data, at)
        if value is not None:
            numbers[column] = value
    return at


def _as_bytes(node: Node) -> Node:
    """Return a node that reads a string without decoding it."""
    if isinstance(node, Union):
        return Union(tuple(map(_as_bytes, node.branches)))
    return Bytes() if isinstance(node, String) else node

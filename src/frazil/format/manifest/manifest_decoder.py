"""The entries of a manifest as arrays, without their metrics: the low end of `manifest_columns`.

Entries are walked over all at once where that is possible (`manifest_lockstep`), and one after
another where it is not (`manifest_walker`): small manifests, unusual ones, and broken ones, which
the walker refuses by saying what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.avro.avro_files import AvroFile
from frazil.format.avro.avro_types import UnreadableAvro
from frazil.format.manifest.lockstep_walk import Chunk, Lockstep, NotInLockstep, lockstep
from frazil.format.manifest.manifest_fields import ENTRY_NUMBERS, FILE_NUMBERS, MALFORMED
from frazil.format.manifest.manifest_walker import Walk, walker

_CHUNK_BYTES: Final = 8 << 20
"""Blocks that are walked over together: enough to be fast, small enough for the memory."""
_LOCKSTEP_ROWS: Final = 100
"""Fewer rows are faster one after another."""
_NUMBERS: Final = (
    *(name for name, _ in ENTRY_NUMBERS.values()),
    *(name for name, _ in FILE_NUMBERS.values()),
)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """Row i is entry i of the file; positions are those in its blocks put one after another."""

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
    """Where that field begins within the `data_file`; NONE where the schema does not have it."""
    paths: Sequence[bytes]
    block_starts: Sequence[int]
    """Where the blocks begin."""
    partitions: Sequence[bytes]
    """The distinct partition tuples as they are encoded."""


def decode_rows(file: AvroFile) -> DecodedRows:
    """Reads every entry. Raises UnreadableAvro."""
    walk = walker(file.schema.text)
    together = lockstep(file.schema.text)
    rows = _Rows()
    for chunk in _chunks(file):
        if together is None or sum(chunk.counts) < _LOCKSTEP_ROWS:
            rows.walk_over(chunk, walk, file.limits.record_bytes)
            continue
        try:
            rows.take(chunk, together, file.limits.record_bytes)
        except NotInLockstep:
            rows.walk_over(chunk, walk, file.limits.record_bytes)
    return rows.decoded()


def _chunks(file: AvroFile) -> Iterator[Chunk]:
    counts: list[int] = []
    blocks: list[bytes] = []
    size = 0
    for count, block in file.blocks():
        counts.append(count)
        blocks.append(block)
        size += len(block)
        if size >= _CHUNK_BYTES:
            yield Chunk(counts, blocks)
            counts, blocks, size = [], [], 0
    if blocks:
        yield Chunk(counts, blocks)


class _Rows:
    """The rows so far: arrays for each chunk, put together at the end."""

    def __init__(self) -> None:
        self._base = 0
        self._parts: dict[str, list[NDArray[np.int64]]] = {name: [] for name in _COLUMNS}
        self._paths: list[bytes] = []
        self._partitions: dict[bytes, int] = {}
        self._block_starts: list[int] = []

    def take(self, chunk: Chunk, together: Lockstep, max_bytes: int) -> None:
        found = together.rows(chunk, max_bytes)
        known = self._partitions
        indexes = [known.setdefault(partition, len(known)) for partition in found.partitions]
        numbers = {
            **found.numbers,
            "partition": np.array(indexes, np.int64),
            "data_file_at": found.data_file_at + self._base,
            "data_file_end": found.data_file_end + self._base,
            "first_row_id_at": found.first_row_id_at,
        }
        for name, parts in self._parts.items():
            parts.append(numbers[name])
        self._paths += found.paths
        for block in chunk.blocks:
            self._begin(block)

    def walk_over(self, chunk: Chunk, walk: Walk, max_bytes: int) -> None:
        rows: list[tuple[Any, ...]] = []
        for count, block in zip(chunk.counts, chunk.blocks, strict=True):
            try:
                end = walk(block, count, self._base, max_bytes, rows.append, self._partitions)
            except MALFORMED as error:
                raise UnreadableAvro(f"a record ends early or is malformed: {error}") from None
            if end != len(block):
                raise UnreadableAvro("a block has bytes after its last record")
            self._begin(block)
        if not rows:
            return
        *numbers, paths = zip(*rows, strict=True)
        for parts, column in zip(self._parts.values(), numbers, strict=True):
            parts.append(np.array(column, dtype=np.int64))
        self._paths += paths

    def _begin(self, block: bytes) -> None:
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


_COLUMNS: Final = (*_NUMBERS, "partition", "data_file_at", "data_file_end", "first_row_id_at")
"""In the order in which the walker gives them."""

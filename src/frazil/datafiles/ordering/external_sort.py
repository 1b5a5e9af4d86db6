"""Sorts more rows than memory has room for.

Rows are sorted in runs of a limited size, which are written to temporary files and then merged. The
files have no names, so nothing stays behind, however the process ends. A run is read in small
batches. Each step of a merge takes the rows of all runs up to the smallest key that ends a batch,
and sorts them in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.ordering.sort_keys import RowOrder

RUN_BYTES: Final = 128 << 20
"""How many bytes of rows are sorted at once in memory."""
_KEY_PREFIX: Final = "_frazil_key_"
_BATCH_BYTES: Final = 1 << 20
_MAX_MERGED_RUNS: Final = 32
"""More runs are merged in several steps, so that the batches of one merge are at most so many."""

Key: TypeAlias = tuple[Any, ...]


def sorted_rows(
    batches: Iterable[pa.RecordBatch], order: RowOrder, *, run_bytes: int = RUN_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all batches in order."""
    with ExitStack() as stack:
        runs = _Runs(_Keys(order), stack)
        pending: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            keyed = runs.keys.added(batch)
            if pending and size + keyed.nbytes > run_bytes:
                runs.add(pending)
                size = 0
            pending.append(keyed)
            size += keyed.nbytes
        if runs and pending:
            runs.add(pending)
        for batch in runs.merged() if runs else runs.keys.sorted(pending):
            yield runs.keys.removed(batch)


class _Keys:
    """The columns by which rows are sorted, beside the rows themselves."""

    def __init__(self, order: RowOrder) -> None:
        self._order = order
        self._descending = order.descending
        self._names = [f"{_KEY_PREFIX}{number}" for number in range(len(self._descending))]
        self._sort_keys = [
            (name, "descending" if descending else "ascending")
            for name, descending in zip(self._names, self._descending, strict=True)
        ]

    def added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, key in zip(self._names, self._order.keys(batch), strict=True):
            batch = batch.append_column(name, key)
        return batch

    def removed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.drop_columns(self._names)

    def sorted(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches in order, in small batches.

        The list is emptied, so that its rows are not in memory twice.
        """
        if not batches:
            return
        table = pa.Table.from_batches(batches).combine_chunks()
        batches.clear()
        indexes = pc.sort_indices(table.select(self._names), sort_keys=self._sort_keys)
        rows = max(1, _BATCH_BYTES * table.num_rows // max(1, table.nbytes))
        for start in range(0, table.num_rows, rows):
            yield from _one_batch(table.take(indexes.slice(start, rows)))

    def key(self, batch: pa.RecordBatch, row: int) -> Key:
        return tuple(batch.column(name)[row].as_py() for name in self._names)

    def is_less(self, one: Key, other: Key) -> bool:
        for mine, theirs, descending in zip(one, other, self._descending, strict=True):
            # Two nulls are equal. A null and a value differ in the key before.
            if mine != theirs:
                return bool((mine > theirs) if descending else (mine < theirs))
        return False

    def count_up_to(self, batch: pa.RecordBatch, key: Key) -> int:
        """Return how many rows of a sorted batch are not above a key."""
        low, high = 0, batch.num_rows
        while low < high:
            middle = (low + high) // 2
            if self.is_less(key, self.key(batch, middle)):
                high = middle
            else:
                low = middle + 1
        return low


def _one_batch(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches()


class _Runs:
    """Sorted runs in temporary files."""

    def __init__(self, keys: _Keys, stack: ExitStack) -> None:
        self.keys = keys
        self._stack = stack
        self._levels: list[list[IO[bytes]]] = []
        """Runs of rows, runs of merged runs, and so on."""

    def __bool__(self) -> bool:
        return bool(self._levels)

    def add(self, batches: list[pa.RecordBatch]) -> None:
        """Sort rows into a run of their own, and empty the list."""
        self._add(0, self._written(self.keys.sorted(batches)))

    def merged(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all runs in order."""
        return _merged([_read(run) for level in self._levels for run in level], self.keys)

    def _add(self, level: int, run: IO[bytes]) -> None:
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(run)
        if len(runs) == _MAX_MERGED_RUNS:
            merged = self._written(_merged([_read(run) for run in runs], self.keys))
            for run in runs:
                run.close()
            runs.clear()
            self._add(level + 1, merged)

    def _written(self, batches: Iterator[pa.RecordBatch]) -> IO[bytes]:
        file = self._stack.enter_context(_unnamed_file())
        first = next(batches)
        with pa.ipc.new_stream(file, first.schema, options=_ipc_options()) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        return file


def _unnamed_file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="frazil-sort-")


def _ipc_options() -> pa.ipc.IpcWriteOptions:
    has_lz4 = pa.Codec.is_available("lz4_frame")
    return pa.ipc.IpcWriteOptions(compression="lz4" if has_lz4 else None)


def _read(run: IO[bytes]) -> Iterator[pa.RecordBatch]:
    run.seek(0)
    with pa.ipc.open_stream(run) as reader:
        yield from reader


@dataclass(slots=True)
class _Head:
    """The next rows of a run."""

    rest: Iterator[pa.RecordBatch]
    batch: pa.RecordBatch
    last: Key

    def taken(self, keys: _Keys, key: Key) -> pa.RecordBatch:
        """Take the rows that are not above a key."""
        count = keys.count_up_to(self.batch, key)
        taken, self.batch = self.batch.slice(0, count), self.batch.slice(count)
        return taken

    def refilled(self, keys: _Keys) -> bool:
        """Read the next batch if there are no rows. Return whether there are any."""
        if not self.batch.num_rows:
            self.batch = next(self.rest, None)
            if self.batch is None:
                return False
            self.last = keys.key(self.batch, self.batch.num_rows - 1)
        return True


def _merged(runs: Sequence[Iterator[pa.RecordBatch]], keys: _Keys) -> Iterator[pa.RecordBatch]:
    firsts = [(run, next(run)) for run in runs]
    heads = [_Head(run, first, keys.key(first, first.num_rows - 1)) for run, first in firsts]
    while heads:
        smallest = heads[0].last
        for head in heads[1:]:
            if keys.is_less(head.last, smallest):
                smallest = head.last
        taken = [head.taken(keys, smallest) for head in heads]
        taken = [batch for batch in taken if batch.num_rows]
        if len(taken) == 1:
            yield from taken
        else:
            yield from keys.sorted(taken)
        heads = [head for head in heads if head.refilled(keys)]

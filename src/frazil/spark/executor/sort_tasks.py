"""Tasks that sort the rows of a group: one splits rows into ranges of keys, another sorts a range.

Spark moves rows between the two as opaque bytes, batches of Arrow. A row in the JVM would cost more
than the sort itself. The ranges come from a sample of the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.datafiles.ordering.external_sort import sorted_rows
from frazil.datafiles.ordering.sort_keys import RowOrder, z_columns
from frazil.datafiles.ordering.z_order_keys import sample_rows
from frazil.datafiles.writing.data_file_writer import ROW_NUMBER
from frazil.spark.executor.rewrite_tasks import GroupFiles, Numbers, decoded_shares
from frazil.spark.executor.worker_tasks import binary_column, keep_archives
from frazil.values.types import StructType, Type

SPLIT_SCHEMA: Final = "part int, rows binary"
_SPLIT: Final = pa.schema([pa.field("part", pa.int32()), pa.field("rows", pa.binary())])
_PENDING_BYTES: Final = 64 << 20
"""How many bytes of rows wait for others of their range."""
_SENT_BYTES: Final = 1 << 20
_SAMPLED_ROWS: Final = 2_000
"""How many rows of a share are sampled at least, if it has so many."""


@dataclass(frozen=True, slots=True)
class ByNumber:
    """Orders rows as they were read. It makes every order total, so that ranges can split rows with
    equal keys."""

    @property
    def descending(self) -> tuple[bool, ...]:
        return (False,)

    def keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(ROW_NUMBER)]


# --- samples --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleKeys:
    """Samples the keys of the rows of shares."""

    group: GroupFiles
    columns: StructType
    """The columns that the keys are computed from."""
    order: RowOrder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """Yield the keys of every n-th row of a share as an Arrow stream, n in its metadata."""
        for share in decoded_shares(batches):
            kept: list[pa.RecordBatch] = []
            step, skip, count = 1, 0, 0
            for batch in self.group.numbered(share, self.columns):
                chosen = keys_of(self.order, batch).take(
                    pa.array(np.arange(skip, len(batch), step))
                )
                skip = (skip - len(batch)) % step
                kept.append(chosen)
                count += len(chosen)
                while count > 2 * _SAMPLED_ROWS:
                    skip += 0 if count % 2 == 0 else step
                    every_second = pa.array(np.arange(0, count, 2))
                    thinned = pa.Table.from_batches(kept).combine_chunks().take(every_second)
                    kept = thinned.combine_chunks().to_batches()
                    step, count = 2 * step, (count + 1) // 2
            if kept:
                sample = pa.Table.from_batches(kept)
                weights = pa.array(np.full(sample.num_rows, step, np.int64))
                yield encoded(sample.append_column(WEIGHT, weights))


WEIGHT: Final = "weight"


def keys_of(order: RowOrder, batch: pa.RecordBatch) -> pa.RecordBatch:
    keys = order.keys(batch)
    return pa.RecordBatch.from_arrays(keys, names=[f"k{number}" for number in range(len(keys))])


@dataclass(frozen=True)
class SampleZValues:
    """Samples the values of the columns of a Z-order."""

    group: GroupFiles
    columns: StructType
    z_columns: tuple[tuple[Type, tuple[str, ...]], ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """Yield an Arrow stream with the rows of `sample_rows` for each share."""
        for share in decoded_shares(batches):
            names = [f"z{number}" for number in range(len(self.z_columns))]
            values = (
                pa.RecordBatch.from_arrays(z_columns(batch, self.z_columns), names=names)
                for file in share
                for batch in self.group.rows(file.task, self.columns)
            )
            yield encoded(pa.Table.from_batches(sample_rows(values)))


def encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def decoded(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


# --- ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitRows:
    """Splits the rows of shares into ranges of keys."""

    group: GroupFiles
    order: RowOrder
    limits: bytes
    """The first keys of all ranges but the first, in order, as an Arrow stream."""
    parts: tuple[int, ...]
    """The numbers by which Spark sends the ranges to tasks."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_archives()
        ranges = _Ranges(self.order, decoded(self.limits))
        pending: dict[int, list[pa.RecordBatch]] = {}
        sizes: dict[int, int] = {}
        for share in decoded_shares(batches):
            for batch in self.group.numbered(share):
                for number, rows in ranges.split(batch):
                    pending.setdefault(number, []).append(rows)
                    sizes[number] = sizes.get(number, 0) + rows.nbytes
                    if sizes[number] >= _SENT_BYTES:
                        yield self._sent(number, pending.pop(number))
                        del sizes[number]
                while sum(sizes.values()) > _PENDING_BYTES:
                    largest = max(sizes, key=lambda number: sizes[number])
                    yield self._sent(largest, pending.pop(largest))
                    del sizes[largest]
        for number, waiting in pending.items():
            yield self._sent(number, waiting)

    def _sent(self, number: int, rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        data = encoded(pa.Table.from_batches(rows).combine_chunks())
        part = pa.array([self.parts[number]], pa.int32())
        return pa.RecordBatch.from_arrays([part, binary_column([data])], schema=_SPLIT)


class _Ranges:
    """Finds the range of each row."""

    def __init__(self, order: RowOrder, limits: pa.Table) -> None:
        self._order = order
        self._limits = [
            [limits.column(name)[row] for name in limits.column_names]
            for row in range(limits.num_rows)
        ]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each range that has some."""
        keys = keys_of(self._order, batch)
        yield from self._split(batch, keys, np.arange(len(batch)), 0, len(self._limits))

    def _split(
        self, batch: pa.RecordBatch, keys: pa.RecordBatch, rows: Numbers, low: int, high: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Halve the ranges from `low` to `high` until the rows are of one range."""
        if not len(rows):
            return
        if low == high:
            yield low, batch if len(rows) == len(batch) else batch.take(pa.array(rows))
            return
        middle = (low + high) // 2
        less = self._is_less(keys, self._limits[middle])
        yield from self._split(
            batch, keys.filter(less), rows[less.to_numpy(zero_copy_only=False)], low, middle
        )
        others = pc.invert(less)
        kept = rows[others.to_numpy(zero_copy_only=False)]
        yield from self._split(batch, keys.filter(others), kept, middle + 1, high)

    def _is_less(self, keys: pa.RecordBatch, limit: Sequence[pa.Scalar]) -> pa.Array:
        """Return which rows come before the limit. A null equals a null only."""
        less: pa.Array = pa.repeat(pa.scalar(False), len(keys))
        equal: pa.Array = pa.repeat(pa.scalar(True), len(keys))
        for key, value, is_descending in zip(
            keys.columns, limit, self._order.descending, strict=True
        ):
            if not value.is_valid:
                equal = pc.and_(equal, key.is_null())
                continue
            before = (pc.greater if is_descending else pc.less)(key, value)
            less = pc.or_(less, pc.and_(equal, pc.fill_null(before, False)))
            equal = pc.and_(equal, pc.fill_null(pc.equal(key, value), False))
        return less


@dataclass(frozen=True)
class WriteSorted:
    """Sorts the rows of a range, or of shares, and writes them."""

    group: GroupFiles
    order: RowOrder
    is_split: bool
    """Whether the task's rows come from `SplitRows`."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> list[bytes]:
        """Return the files as JSON."""
        rows = _received(batches) if self.is_split else self._read(batches)
        return self.group.write_numbered(sorted_rows(rows, self.order))

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for share in decoded_shares(batches):
            yield from self.group.numbered(share)


def _received(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for data in batch.column(1):
            with pa.ipc.open_stream(data.as_buffer()) as reader:
                yield from reader

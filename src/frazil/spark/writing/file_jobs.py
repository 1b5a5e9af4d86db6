"""Work on many files that needs no rows of Spark: in threads of the driver, or as a job in tasks.

A job costs more than a small copy does, so that little work is done where the files are known
already. Both run the same code on the same bytes: what travels is immutable and small.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import pyarrow as pa

from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, arrow_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work: TypeAlias = Callable[[Sequence[bytes]], Iterable[bytes]]
"""Takes some items and gives results, which are any number; it must travel, so it is picklable."""

_SHARE_BYTES: Final = 32 << 20
"""What a task should have at least: less than that is over before it has begun."""
_MAX_SHARES: Final = 10_000
_MAX_LOCAL_ITEMS: Final = 32
MAX_LOCAL_BYTES: Final = 96 << 20
_MAX_THREADS: Final = 8
_THREAD_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Item:
    payload: bytes
    size_in_bytes: int
    """How much there is to read and write, which decides about the shares of tasks."""


def run(
    spark: SparkSession,
    work: Work,
    items: Sequence[Item],
    *,
    max_local_items: int = _MAX_LOCAL_ITEMS,
) -> list[bytes]:
    """All results, in no certain order. The first error ends it."""
    total = sum(item.size_in_bytes for item in items)
    if len(items) <= max_local_items and total <= MAX_LOCAL_BYTES:
        return run_locally(work, items)
    return _run_in_tasks(spark, work, items, total)


def run_locally(work: Work, items: Sequence[Item]) -> list[bytes]:
    """In threads: what takes long are libraries that let other threads run meanwhile."""
    if not items:
        return []
    total = sum(item.size_in_bytes for item in items)
    threads = min(_MAX_THREADS, os.cpu_count() or 1, len(items), 1 + total // _THREAD_BYTES)
    parts = shares(items, threads)
    if len(parts) == 1:
        return list(work(parts[0]))
    with ThreadPoolExecutor(threads, thread_name_prefix="frazil-files") as pool:
        return [
            one for results in pool.map(lambda part: list(work(part)), parts) for one in results
        ]


def shares(items: Sequence[Item], count: int) -> list[list[bytes]]:
    """Items dealt out so that the shares are of about one size; none is empty."""
    heap: list[tuple[int, int]] = [(0, number) for number in range(min(count, len(items)))]
    dealt: list[list[bytes]] = [[] for _ in heap]
    for item in sorted(items, key=lambda one: one.size_in_bytes, reverse=True):
        size, number = heap[0]
        dealt[number].append(item.payload)
        heapq.heapreplace(heap, (size + item.size_in_bytes, number))
    return dealt


def _run_in_tasks(
    spark: SparkSession, work: Work, items: Sequence[Item], total_bytes: int
) -> list[bytes]:
    count = min(len(items), max(1, total_bytes // _SHARE_BYTES), _MAX_SHARES)
    dealt = [msgspec.msgpack.encode(share) for share in shares(items, max(count, 2))]
    frame = spark.createDataFrame(pa.table({"share": pa.array(dealt, pa.binary())}))
    # From one partition rows are dealt out evenly: each task gets one share.
    spread = frame.coalesce(1).repartition(len(dealt))
    rows = spread.mapInArrow(arrow_task(partial(_run_share, work)), RESULT_SCHEMA).collect()
    return [bytes(row[0]) for row in rows]


def _run_share(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        for share in batch.column(0).to_pylist():
            yield from work(msgspec.msgpack.decode(share, type=list[bytes]))

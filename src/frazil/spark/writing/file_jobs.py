"""Runs work on many files without rows of Spark: in threads of the driver, or as a Spark job.

A job costs more than copying a small file, so that little work is done in the driver. Both run the
same code on the same encoded items.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from frazil.spark.executor.worker_tasks import RESULT_SCHEMA, Work, share_task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARE_BYTES: Final = 32 << 20
"""The least work of a task: starting a task for less does not pay."""
_MAX_SHARES: Final = 10_000
_MAX_LOCAL_ITEMS: Final = 32
MAX_LOCAL_BYTES: Final = 96 << 20
_MAX_THREADS: Final = 8
_THREAD_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Item:
    payload: bytes
    size_in_bytes: int
    """How much there is to read and write; it decides how items are shared out."""


def run(
    spark: SparkSession,
    work: Work,
    items: Sequence[Item],
    *,
    max_local_items: int = _MAX_LOCAL_ITEMS,
) -> list[bytes]:
    """Return all results in any order; the first error ends the work."""
    total = sum(item.size_in_bytes for item in items)
    if len(items) <= max_local_items and total <= MAX_LOCAL_BYTES:
        return run_locally(work, items)
    return _run_in_tasks(spark, work, items, total)


def run_locally(work: Work, items: Sequence[Item]) -> list[bytes]:
    """Run the work in threads; the libraries that take the time release the GIL."""
    if not items:
        return []
    total = sum(item.size_in_bytes for item in items)
    threads = min(_MAX_THREADS, os.cpu_count() or 1, len(items), 1 + total // _THREAD_BYTES)
    parts = shares(items, threads)
    if len(parts) == 1:
        return list(work(parts[0]))
    with ThreadPoolExecutor(threads, thread_name_prefix="frazil-files") as pool:
        results = pool.map(lambda part: list(work(part)), parts)
        return [result for part in results for result in part]


def shares(items: Sequence[Item], count: int) -> list[list[bytes]]:
    """Split items into shares of about equal size; no share is empty."""
    heap: list[tuple[int, int]] = [(0, number) for number in range(min(count, len(items)))]
    split: list[list[bytes]] = [[] for _ in heap]
    for item in sorted(items, key=lambda each: each.size_in_bytes, reverse=True):
        size, number = heap[0]
        split[number].append(item.payload)
        heapq.heapreplace(heap, (size + item.size_in_bytes, number))
    return split


def _run_in_tasks(
    spark: SparkSession, work: Work, items: Sequence[Item], total_bytes: int
) -> list[bytes]:
    count = min(len(items), max(1, total_bytes // _SHARE_BYTES), _MAX_SHARES)
    encoded = [msgspec.msgpack.encode(share) for share in shares(items, max(count, 2))]
    frame = spark.createDataFrame(pa.table({"share": pa.array(encoded, pa.binary())}))
    # Repartitioning a single partition deals rows out evenly: each task gets one share.
    spread = frame.coalesce(1).repartition(len(encoded))
    rows = spread.mapInArrow(share_task(work), RESULT_SCHEMA).collect()
    return [bytes(row[0]) for row in rows]

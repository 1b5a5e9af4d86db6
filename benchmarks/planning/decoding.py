"""Ways to decode all manifests of a table: in one thread, in threads, in processes.

A process returns the bytes of columns and statistics in the format of the cache folder. They
consist of arrays, so reading them back costs little more than reading their headers.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.planning.results import Step, step_of
from benchmarks.planning.trees import Tree
from frazil.format.manifest.manifest_columns import ManifestColumns
from frazil.format.pruning.cached_columns import (
    columns_from_bytes,
    columns_to_bytes,
    metrics_from_bytes,
    metrics_to_bytes,
)
from frazil.format.pruning.metric_columns import MetricColumns
from frazil.format.pruning.metric_decoder import decode_manifest

ONE_THREAD: Final = "one thread"
TWO_THREADS: Final = "two threads"
EIGHT_THREADS: Final = "eight threads"
TWO_PROCESSES: Final = "two processes that are running"
START: Final = "the start of one process"
WAYS: Final = (ONE_THREAD, TWO_THREADS, EIGHT_THREADS, TWO_PROCESSES, START)

Decoded: TypeAlias = tuple[ManifestColumns, MetricColumns]
_PROCESSES: Final = 2


def measure_decoding(tree: Tree, rounds: int) -> Iterator[Step]:
    kind = tree.kind
    paths = [path.removeprefix("file://") for path in tree.manifests]
    with _processes() as running:
        # The processes import everything they need here.
        list(running.map(_decoded_to_bytes, paths[:1] * _PROCESSES))
        ways: dict[str, Callable[[], object]] = {
            ONE_THREAD: lambda: [_decoded(path) for path in paths],
            TWO_THREADS: lambda: _in_threads(paths, 2),
            EIGHT_THREADS: lambda: _in_threads(paths, 8),
            TWO_PROCESSES: lambda: _in_processes(paths, running),
            START: _started,
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, work in ways.items():
                started = time.perf_counter()
                work()
                seconds[way].append(time.perf_counter() - started)
    for way, took in seconds.items():
        yield step_of(kind.files, kind.layout, way, took)


def _processes() -> ProcessPoolExecutor:
    # A fork of a process with threads may inherit a lock that is never released.
    return ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn"))


def _decoded(path: str) -> Decoded:
    return decode_manifest(Path(path).read_bytes())


def _in_threads(paths: Sequence[str], threads: int) -> list[Decoded]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(_decoded, paths))


def _in_processes(paths: Sequence[str], pool: ProcessPoolExecutor) -> list[Decoded]:
    answers = pool.map(_decoded_to_bytes, paths)
    return [_read_back(path, *answer) for path, answer in zip(paths, answers, strict=True)]


def _decoded_to_bytes(path: str) -> tuple[bytes, bytes]:
    columns, metrics = _decoded(path)
    return columns_to_bytes(path, columns), metrics_to_bytes(path, metrics)


def _read_back(path: str, columns_file: bytes, metrics_file: bytes) -> Decoded:
    columns = columns_from_bytes(path, columns_file)
    assert columns is not None
    metrics = metrics_from_bytes(path, metrics_file, columns.record_count)
    assert metrics is not None
    return columns, metrics


def _started() -> None:
    """Start an interpreter that imports the decoder. The first plan would have to wait for this."""
    imported = ", ".join((decode_manifest.__module__, metrics_to_bytes.__module__))
    subprocess.run([sys.executable, "-c", f"import {imported}"], check=True)

"""One run: a server, one Spark session, and every operation on every system in turn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.results import machine
from benchmarks.spark.cpu import Meter
from benchmarks.spark.operations import CATALOG, Bench, Operation
from benchmarks.spark.results import Cell, Results, Sample
from frazil.spark import connect
from scripts.java import Java, find_java
from tests.support.server import RunningServer, start_server
from tests.support.spark import add_catalog, start_spark


@dataclass(frozen=True)
class Work:
    rows: int
    rounds: int
    warm_ups: int
    only: tuple[str, ...] = ()
    """Substrings of operation names. If empty, all operations run."""


SMOKE = Work(
    rows=1_000,
    rounds=1,
    warm_ups=0,
    only=("append, flat", "MERGE 10 %, deletion", "read, one", "DELETE of one"),
)
QUICK = Work(rows=2_000_000, rounds=5, warm_ups=2)
FULL = Work(rows=5_000_000, rounds=5, warm_ups=2)

SPARK_SETTINGS = {
    "spark.driver.memory": "4g",
    # Without flags for a quick start, the JIT compiler optimizes as it does in production.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.sql.shuffle.partitions": "16",
}


def run(work: Work, folder: Path) -> Results:
    java = find_java()
    with running(java, folder) as (spark, server):
        return measure(work, spark, server, folder, java.version)


def measure(
    work: Work, spark: SparkSession, server: RunningServer, folder: Path, java: int
) -> Results:
    add_catalog(spark, CATALOG, server.url)
    with connect(spark, server.url) as ours, connect(spark, server.url, reader="own") as own:
        bench = Bench(spark, ours, own, folder, work.rows)
        meter = Meter([server.process.pid])
        cells = [
            cell for operation in _chosen(work, bench) for cell in cells_of(operation, work, meter)
        ]
        bench.close()
    about: dict[str, Any] = {**machine(), "spark": version("pyspark"), "java": java}
    return Results(about, asdict(work), cells)


def _chosen(work: Work, bench: Bench) -> Iterator[Operation]:
    for operation in bench.operations():
        if not work.only or any(part in operation.name for part in work.only):
            yield operation


def cells_of(operation: Operation, work: Work, meter: Meter) -> Sequence[Cell]:
    """Run the systems interleaved, in another order each round, so that disturbances affect all
    alike."""
    samples: dict[str, list[Sample]] = {system: [] for system in operation.work}
    order = random.Random(operation.name)
    for number in range(work.warm_ups + work.rounds):
        for system in order.sample(list(operation.work), len(operation.work)):
            sample = meter.measure(operation.work[system], operation.times)
            operation.undo()
            if number >= work.warm_ups:
                samples[system].append(sample)
            print(f"  {operation.name}: {system}: {sample.cpu_s:.2f} s CPU", flush=True)
    return [
        Cell(operation.name, system, operation.rows, measured)
        for system, measured in samples.items()
    ]


@contextmanager
def running(java: Java, folder: Path) -> Iterator[tuple[SparkSession, RunningServer]]:
    server = start_server(folder / "server")
    spark = start_spark(java, folder / "spark", **SPARK_SETTINGS)
    try:
        yield spark, server
    finally:
        spark.stop()
        server.stop()

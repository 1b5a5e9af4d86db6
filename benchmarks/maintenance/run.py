"""One run: a server, one Spark session, and every operation on every system in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import SparkSession

from benchmarks.maintenance import expiry, orphans
from benchmarks.maintenance import operations as rewrites
from benchmarks.maintenance import systems as named
from benchmarks.maintenance.operations import Bench
from benchmarks.maintenance.systems import CATALOG
from benchmarks.results import machine
from benchmarks.spark.cpu import Meter
from benchmarks.spark.operations import Operation
from benchmarks.spark.results import Results
from benchmarks.spark.run import Work, cells_of, running
from frazil.spark import connect
from scripts.java import find_java
from tests.support.server import RunningServer
from tests.support.spark import add_catalog

Part: TypeAlias = Callable[[Bench], Iterator[Operation]]
PARTS: Final[tuple[Part, ...]] = (rewrites.operations, expiry.operations, orphans.operations)
"""The functions that yield operations."""


@dataclass(frozen=True)
class MaintenanceWork(Work):
    snapshots: int = 10_000
    """How many there are before they expire."""


SMOKE: Final = MaintenanceWork(
    rows=2_000, rounds=1, warm_ups=0, only=(named.DELETES, named.EXPIRY), snapshots=25
)
QUICK: Final = MaintenanceWork(rows=2_000_000, rounds=3, warm_ups=1, snapshots=2_000)
FULL: Final = MaintenanceWork(rows=5_000_000, rounds=5, warm_ups=2)


def run(work: MaintenanceWork, folder: Path) -> Results:
    java = find_java()
    with running(java, folder) as (spark, server):
        return measure(work, spark, server, folder, java.version)


def measure(
    work: MaintenanceWork, spark: SparkSession, server: RunningServer, folder: Path, java: int
) -> Results:
    add_catalog(spark, CATALOG, server.url)
    meter = Meter([server.process.pid])
    with connect(spark, server.url) as session:
        bench = Bench(spark, session, server, folder, work.rows, work.snapshots)
        cells = [
            cell
            for part in PARTS
            for operation in part(bench)
            if not work.only or any(name in operation.name for name in work.only)
            for cell in cells_of(operation, work, meter)
        ]
    about: dict[str, Any] = {**machine(), "spark": version("pyspark"), "java": java}
    return Results(about, asdict(work), cells)

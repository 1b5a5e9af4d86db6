"""The measured operations, each on every system that supports it.

Rewrites of all systems run on the same table of the same server, which is rolled back after each.
`ON_SPARK` is a statement in the Spark session in which stock Iceberg's procedure runs too. `LOCAL`
is the command in a process of its own, so that its figures include start-up and peak memory.

To add an operation that is not a rewrite, such as `expiry` or `orphans`, write a module with a
function `operations(bench: Bench) -> Iterator[Operation]`, and add it to `PARTS` in `run`. An
`Operation` names its work for each system and how to undo it; `bench` has the session, the client,
the server's URL and a folder. Work in a process of its own returns what `run_process` returns, and
work of the server what `run_in_server` returns. Its aims go into `aims`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.maintenance.systems import (
    BINPACK,
    CATALOG,
    DELETES,
    LOCAL,
    ON_SPARK,
    SMALL,
    SORT,
    SORT_V2,
    STOCK,
    Z_ORDER,
    stock_call,
)
from benchmarks.spark.cpu import Ended
from benchmarks.spark.operations import NAMESPACE, Operation
from benchmarks.spark.rows import SCHEMA, changed, source_rows
from benchmarks.spark.run import SPARK_SETTINGS
from frazil.client.catalog_client import Client
from frazil.spark.session import Session
from tests.support.server import RunningServer

_MAX_FILES: Final = 40
_MIN_FILE_ROWS: Final = 500
_SMALL_FILES: Final = 10
_SMALL_ROWS: Final = 1_000
_DELETED_PERCENT: Final = 10
_BYTES_PER_ROW: Final = 36
_ORDER: Final = "country, id"
_Z_ORDER: Final = "zorder(user_id, price)"


class Bench:
    """The tables of a run."""

    def __init__(
        self,
        spark: SparkSession,
        session: Session,
        server: RunningServer,
        folder: Path,
        rows: int,
        snapshots: int,
    ) -> None:
        self.spark, self.session, self.server = spark, session, server
        self.client: Client = session.client
        self.folder, self.rows, self.snapshots = folder, rows, snapshots
        self.client.create_namespace(NAMESPACE)
        self._bases: dict[str, int] = {}

    def table(self, name: str, *, rows: int, files: int, version: int = 3) -> str:
        """Create a table of so many files; return its full name."""
        full_name = f"{NAMESPACE}.{name}"
        self.client.create_table(
            full_name,
            SCHEMA,
            properties={"format-version": str(version), "write.delete.mode": "merge-on-read"},
        )
        self.session.table(full_name).append(source_rows(self.spark, rows).repartition(files))
        return full_name

    def keep(self, name: str) -> None:
        """Remember the state to which `back` returns."""
        head = self.client.load_table(name).head()
        assert head is not None
        self._bases[name] = head

    def back(self, name: str) -> None:
        self.client.rollback(name, self._bases[name])


def operations(bench: Bench) -> Iterator[Operation]:
    """Yield the rewrites, which make their tables when it is their turn."""
    size = {"target-file-size-bytes": str(max(1 << 20, bench.rows * _BYTES_PER_ROW // 2))}
    files = max(1, min(_MAX_FILES, bench.rows // _MIN_FILE_ROWS))
    name = bench.table("packed", rows=bench.rows, files=files)
    bench.keep(name)
    yield _rewrite(bench, BINPACK, name, size)
    yield _rewrite(bench, SORT, name, size, _ORDER)
    yield _rewrite(bench, Z_ORDER, name, size, _Z_ORDER)
    bench.session.table(name).delete(changed(_DELETED_PERCENT))
    bench.keep(name)
    yield _rewrite(bench, DELETES, name, size)
    name = bench.table("version2", rows=bench.rows, files=files, version=2)
    bench.keep(name)
    yield _rewrite(bench, SORT_V2, name, size, _ORDER)
    name = bench.table("small", rows=_SMALL_ROWS * _SMALL_FILES, files=_SMALL_FILES)
    bench.keep(name)
    yield _small(bench, name)


def _rewrite(
    bench: Bench, operation: str, name: str, size: Mapping[str, str], order: str | None = None
) -> Operation:
    options = {**size, "rewrite-all": "true"}

    def stock() -> None:
        rewritten = bench.spark.sql(stock_call(f"{CATALOG}.system", name, options, order)).first()
        assert rewritten is not None
        assert rewritten[0] > 0

    def on_spark() -> None:
        forced = {**options, "frazil.engine": "spark"}
        result = bench.session.rewrite_data_files(name, sort_order=order, options=forced)
        assert result.rewritten_data_files_count > 0

    work = {
        STOCK: stock,
        ON_SPARK: on_spark,
        LOCAL: lambda: run_process(_command(bench, name, options, order)),
    }
    return Operation(operation, bench.rows, work, lambda: bench.back(name))


def _small(bench: Bench, name: str) -> Operation:
    options = {"rewrite-all": "true"}
    call = stock_call(f"{CATALOG}.system", name, options, None)
    settings = json.dumps(SPARK_SETTINGS)
    stock = ["-m", "benchmarks.maintenance.stock_process", bench.server.url, call, settings]
    work = {
        STOCK: lambda: run_process([*stock, str(bench.folder / "stock-process")]),
        LOCAL: lambda: run_process(_command(bench, name, options, None)),
    }
    rows = _SMALL_ROWS * _SMALL_FILES
    return Operation(SMALL, rows, work, lambda: bench.back(name))


def _command(
    bench: Bench, name: str, options: Mapping[str, str], order: str | None
) -> Sequence[str]:
    words = ["-m", "frazil", "maintain", "rewrite-data-files", name, "--uri", bench.server.url]
    words += [word for item in options.items() for word in ("--option", "=".join(item))]
    return [*words, "--engine", "local", *([] if order is None else ["--sort-order", order])]


def run_process(arguments: Sequence[str]) -> Ended:
    """Run a module of Python to its end, and return what it has used."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {said}")
    # A process whose children it cannot wait for tells itself what they have used.
    told = [line for line in said.splitlines() if line.startswith("children: ")]
    children = float(told[0].split()[1]) if told else 0.0
    return Ended(usage.ru_utime + usage.ru_stime + children, usage.ru_maxrss * 1024)


def run_in_server(bench: Bench, work: Callable[[], object]) -> Ended:
    """Run work of the server, and return its peak of memory."""
    pid = bench.server.process.pid
    # The kernel then counts the peak of the memory anew.
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    work()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return Ended(0.0, int(peak) * 1024)

"""Measures appends and scans of rows beside PyIceberg: `python -m benchmarks.client.row_speed`.

Runs in its own process, on one server. Each way to append has a table of its own; all scans read
the same table, which has one file for each append that filled it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.client.results import ROW_SPEED, Timing, timing_of
from benchmarks.commit.lanes import WorkNotDone
from benchmarks.measure import Block, Effort, interleave, repeat

APPEND_OURS: Final = "append, frazil.Client"
APPEND_STOCK: Final = "append, PyIceberg RestCatalog"
PARTITIONED_OURS: Final = "append to 16 buckets, frazil.Client"
PARTITIONED_STOCK: Final = "append to 16 buckets, PyIceberg RestCatalog"
SCAN_OURS: Final = "scan of all rows, frazil.Client"
SCAN_STOCK: Final = "scan of all rows, PyIceberg RestCatalog"
FILTER_OURS: Final = "scan of a hundredth, frazil.Client"
FILTER_STOCK: Final = "scan of a hundredth, PyIceberg RestCatalog"
STOCK_OF: Final = {
    APPEND_OURS: APPEND_STOCK,
    PARTITIONED_OURS: PARTITIONED_STOCK,
    SCAN_OURS: SCAN_STOCK,
    FILTER_OURS: FILTER_STOCK,
}

_FILES: Final = 10
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S: Final = 600
_NAMESPACE: Final = "row_speed"


def measure_rows(uri: str, rows: int, effort: Effort) -> Iterator[Timing]:
    """Measure calls with that many rows each."""
    command = [sys.executable, "-m", "benchmarks.client.row_speed", uri, str(rows)]
    done = subprocess.run(
        [*command, json.dumps(asdict(effort))],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    for what, seconds in json.loads(done.stdout).items():
        yield timing_of(ROW_SPEED, what, seconds)


# --- the process that measures ------------------------------------------------------------------


@dataclass(slots=True)
class _Lane:
    system: str
    call: Callable[[], object]
    check: Callable[[int], None] = lambda calls: None
    calls: int = 0

    def run(self, most: int, limit_s: float) -> Block:
        return Block(repeat(self._timed, most, limit_s))

    def _timed(self) -> float:
        began = time.perf_counter()
        self.call()
        self.calls += 1
        return time.perf_counter() - began

    def finish(self) -> None:
        self.check(self.calls)


def main() -> None:
    uri, rows, effort = sys.argv[1], int(sys.argv[2]), Effort(**json.loads(sys.argv[3]))
    measured = interleave(list(_lanes(uri, rows)), effort)
    print(json.dumps({what: block.seconds for what, block in measured.items()}))


def _lanes(uri: str, count: int) -> Iterator[_Lane]:
    # Only the measuring process needs these imports.
    from pyiceberg.catalog.rest import RestCatalog

    from frazil import Client

    client = Client(uri)
    stock = RestCatalog("bench", uri=uri)
    client.create_namespace(_NAMESPACE)
    rows = _rows(count)

    def table(name: str, **options: Any) -> str:
        return str(client.create_table((_NAMESPACE, name), rows.schema, **options).identifier)

    def checked(name: str) -> Callable[[int], None]:
        def check(calls: int) -> None:
            found = client.scan(name).count()
            if found != calls * count:
                raise WorkNotDone(f"{name} has {found} rows after {calls} appends of {count}")

        return check

    for ours, theirs, options in (
        (APPEND_OURS, APPEND_STOCK, {}),
        (PARTITIONED_OURS, PARTITIONED_STOCK, {"partition_by": ["bucket(16, id)"]}),
    ):
        mine, other = table(f"t{len(ours)}", **options), table(f"t{len(theirs)}", **options)
        yield _Lane(ours, _appending(client.append, mine, rows), checked(mine))
        yield _Lane(theirs, _appending(_stock_append(stock), other, rows), checked(other))
    read = table("read")
    for part in range(_FILES):
        client.append(read, rows.slice(part * count // _FILES, count // _FILES))
    found = stock.load_table(read)
    few = f"id < {count // 100}"
    yield _Lane(SCAN_OURS, lambda: client.scan(read).to_arrow())
    yield _Lane(SCAN_STOCK, lambda: stock.load_table(read).scan().to_arrow())
    yield _Lane(FILTER_OURS, lambda: client.scan(read, few).to_arrow())
    yield _Lane(FILTER_STOCK, lambda: stock.load_table(read).scan(few).to_arrow())
    if client.scan(read, few).to_arrow().num_rows != found.scan(few).to_arrow().num_rows:
        raise WorkNotDone("the two scans with a filter find different rows")


def _appending(
    append: Callable[[str, pa.Table], object], name: str, rows: pa.Table
) -> Callable[[], object]:
    return lambda: append(name, rows)


def _stock_append(catalog: Any) -> Callable[[str, pa.Table], object]:
    def append(name: str, rows: pa.Table) -> None:
        catalog.load_table(name).append(rows)

    return append


def _rows(count: int) -> pa.Table:
    """Return columns of usual types, a tenth of them null."""
    numbers = [number if number % 10 else None for number in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": pa.array([f"name {number % 1000}" for number in range(count)]),
            "amount": pa.array(
                [None if number is None else number / 7 for number in numbers], pa.float64()
            ),
            "at": pa.array(numbers, pa.timestamp("us", "UTC")),
            "note": pa.array([f"a note of some length {number:08d}" for number in range(count)]),
        }
    )


if __name__ == "__main__":
    main()

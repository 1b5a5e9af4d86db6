"""Measures reading what a commit declares from footers: `python -m benchmarks.client.footers`.

Runs in its own process. It loads the files' table from a catalog, and prints the seconds of each
way to read the footers as JSON.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.client.results import FOOTERS, Timing, timing_of
from benchmarks.commit.lanes import WorkNotDone
from benchmarks.measure import Block, Effort, interleave, repeat

ONE_BY_ONE: Final = "DataFile.from_parquet"
IN_PARALLEL: Final = "read_data_files"
STATISTICS: Final = "PyIceberg, data_file_statistics_from_parquet_metadata"
ADD_FILES: Final = "PyIceberg, a file of add_files"
FOOTER: Final = "pyarrow, the footer alone"

FILES: Final = 64
"""How many files one call of `read_data_files` reads."""
ROWS: Final = 10_000
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S: Final = 300
_NAMESPACE: Final = "footers"


def measure_footers(uri: str, folder: Path, effort: Effort) -> Iterator[Timing]:
    command = [sys.executable, "-m", "benchmarks.client.footers", uri, str(folder)]
    done = subprocess.run(
        [*command, json.dumps(asdict(effort))],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=_TIMEOUT_S,
    )
    for what, seconds in json.loads(done.stdout).items():
        yield timing_of(FOOTERS, what, seconds, FILES if what == IN_PARALLEL else 1)


# --- the process that measures ------------------------------------------------------------------


@dataclass(slots=True)
class _Lane:
    """One way to read. Its function returns how long each call took."""

    system: str
    read: Callable[[], float]

    def run(self, most: int, limit_s: float) -> Block:
        return Block(repeat(self.read, most, limit_s))

    def finish(self) -> None:
        """Do nothing: the results were checked before the measurement."""


def main() -> None:
    uri, folder, effort = sys.argv[1], Path(sys.argv[2]), Effort(**json.loads(sys.argv[3]))
    measured = interleave(_lanes(uri, _files(folder)), effort)
    print(json.dumps({what: block.seconds for what, block in measured.items()}))


def _lanes(uri: str, paths: Sequence[str]) -> list[_Lane]:
    # Only the measuring process needs these imports.
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_file_to_data_file,
        parquet_path_to_id_mapping,
    )

    from frazil import Client, DataFile, read_data_files

    client = Client(uri)
    client.create_namespace(_NAMESPACE)
    table = client.create_table((_NAMESPACE, "wide"), _schema_json())
    stock = RestCatalog("bench", uri=uri).load_table((_NAMESPACE, "wide"))
    plan = compute_statistics_plan(stock.schema(), stock.properties)
    mapping = parquet_path_to_id_mapping(stock.schema())

    def statistics(path: str) -> Any:
        return data_file_statistics_from_parquet_metadata(pq.read_metadata(path), plan, mapping)

    def add_file(path: str) -> Any:
        return parquet_file_to_data_file(stock.io, stock.metadata, path)

    _check(DataFile.from_parquet(paths[0], table), statistics(paths[0]))
    return [
        _Lane(ONE_BY_ONE, _in_turns(paths, lambda path: DataFile.from_parquet(path, table))),
        _Lane(IN_PARALLEL, _timed(lambda: read_data_files(paths, table))),
        _Lane(STATISTICS, _in_turns(paths, statistics)),
        _Lane(ADD_FILES, _in_turns(paths, add_file)),
        _Lane(FOOTER, _in_turns(paths, pq.read_metadata)),
    ]


def _check(ours: Any, theirs: Any) -> None:
    """Check that both read the same counts of values and nulls for each column."""
    for name in ("value_counts", "null_value_counts"):
        found, expected = dict(getattr(ours, name).items()), getattr(theirs, name)
        if found != expected:
            raise WorkNotDone(f"{name}: {found} is not PyIceberg's {expected}")


def _in_turns(paths: Sequence[str], read: Callable[[str], object]) -> Callable[[], float]:
    waiting = itertools.cycle(paths)
    return _timed(lambda: read(next(waiting)))


def _timed(call: Callable[[], object]) -> Callable[[], float]:
    def one() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return one


# --- twenty columns -----------------------------------------------------------------------------


def _columns() -> dict[str, tuple[str, pa.Array]]:
    """Return Iceberg's type and the values by column name. A tenth of the values are null."""
    numbers = [number if number % 10 else None for number in range(ROWS)]

    def values(kind: pa.DataType, value: Callable[[int], Any]) -> pa.Array:
        return pa.array([None if number is None else value(number) for number in numbers], kind)

    day, moment = datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    kinds = {
        "long": values(pa.int64(), lambda number: number),
        "double": values(pa.float64(), lambda number: number / 7),
        "string": values(pa.string(), lambda number: f"a value of some length {number:08d}"),
        "int": values(pa.int32(), lambda number: number),
        "timestamptz": values(
            pa.timestamp("us", tz="UTC"), lambda number: moment + datetime.timedelta(0, number)
        ),
        "date": values(pa.date32(), lambda number: day + datetime.timedelta(number // 100)),
        "decimal(18, 2)": values(pa.decimal128(18, 2), lambda number: decimal.Decimal(number)),
        "boolean": values(pa.bool_(), lambda number: number % 2 == 0),
        "float": values(pa.float32(), lambda number: number / 3),
        "binary": values(pa.binary(), lambda number: b"%08d" % number),
    }
    return {
        f"{kind.partition('(')[0]}_{copy}": (kind, array)
        for copy in ("a", "b")
        for kind, array in kinds.items()
    }


def _schema_json() -> dict[str, Any]:
    fields = [
        {"id": number, "name": name, "type": kind, "required": False}
        for number, (name, (kind, _)) in enumerate(_columns().items(), start=1)
    ]
    return {"type": "struct", "fields": fields}


def _files(folder: Path) -> list[str]:
    """Write the same file under several names and return the paths."""
    columns = _columns()
    fields = [
        pa.field(name, array.type, metadata={b"PARQUET:field_id": str(number).encode()})
        for number, (name, (_, array)) in enumerate(columns.items(), start=1)
    ]
    arrays = [array for _, array in columns.values()]
    folder.mkdir(parents=True)
    first = folder / "0.parquet"
    pq.write_table(pa.table(arrays, schema=pa.schema(fields)), first, compression="zstd")
    rest = [folder / f"{number}.parquet" for number in range(1, FILES)]
    for path in rest:
        shutil.copyfile(first, path)
    return [str(path) for path in (first, *rest)]


if __name__ == "__main__":
    main()

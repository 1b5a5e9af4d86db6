"""Measures a declared file from a request's JSON to the bytes of a manifest entry.

One append has many files: ten columns (five longs, two doubles, three strings) with sizes,
counts and bounds, paths of 120 bytes, and one partition field. Each step is timed alone, as CPU
time and the best of several rounds. The garbage collector runs as in the server.

    python -m benchmarks.declared_files [--files 100000] [--rounds 3] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.results import RESULTS, machine
from frazil.commit.snapshot.table_locations import TableLocations, check_paths
from frazil.format.declared.declared_files import DeclaredFiles
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_fields import ADDED
from frazil.format.manifest.manifest_list import DATA
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.table_builder import new_table
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.store.locations import AllowedLocations
from frazil.wire import json_bodies as wire_json
from frazil.wire.declared_content import DeclaredDataFile
from frazil.wire.file_actions import Append, check_request
from frazil.wire.rest_messages import CommitTableRequest

OUTPUT = RESULTS / "declared_files.json"
LOCATION = "s3://bucket/warehouse/table"
PLACE = "updates[0].add-data-files"
PATH_BYTES = 120
TYPES = ("long",) * 5 + ("double",) * 2 + ("string",) * 3
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": n, "name": f"column_{n}", "required": False, "type": kind}
        for n, kind in enumerate(TYPES, 1)
    ],
}
SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "name": "bucket_1", "transform": "bucket[16]"}],
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    step: str
    files: int
    cpu_s: float
    us_per_file: float


def table() -> TableMetadata:
    return new_table(
        schema=json.dumps(SCHEMA).encode(),
        spec=json.dumps(SPEC).encode(),
        order=None,
        location=LOCATION,
        properties={"format-version": "2"},
        uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1",
        now_ms=0,
    )


def declared(number: int) -> dict[str, Any]:
    """Return a file as a client declares it. No two files have the same sizes and bounds."""
    columns = list(range(1, len(TYPES) + 1))

    def bounds(offset: int) -> list[Any]:
        longs = [number * 1_000_003 * n + offset for n in range(1, 6)]
        doubles = [number / 7 + offset, number / 11 + offset]
        return [*longs, *doubles, *(f"value-{number:08}-{n}-{offset:08}" for n in range(3))]

    def column_map(values: list[Any]) -> dict[str, Any]:
        return {"keys": columns, "values": values}

    rows = 100_000 + number
    return {
        "content": "data",
        "spec-id": 0,
        "partition": [number % 16],
        "file-path": f"{LOCATION}/data/{number:08}-".ljust(PATH_BYTES - 8, "a") + ".parquet",
        "file-format": "parquet",
        "file-size-in-bytes": 64_000_000 + number,
        "record-count": rows,
        "split-offsets": [4],
        "sort-order-id": 0,
        "column-sizes": column_map([1_000_000 + number * n for n in columns]),
        "value-counts": column_map([rows] * len(columns)),
        "null-value-counts": column_map([number % (n + 1) for n in columns]),
        "lower-bounds": column_map(bounds(0)),
        "upper-bounds": column_map(bounds(99_999)),
    }


def request_body(files: int) -> bytes:
    append = {"action": "append", "add-data-files": [declared(n) for n in range(files)]}
    return json.dumps({"requirements": [], "updates": [append]}, separators=(",", ":")).encode()


class Clock:
    """Records the best CPU time of each step."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def time(self, step: str, work: Callable[[], T]) -> T:
        start = time.process_time()
        done = work()
        took = time.process_time() - start
        self.best[step] = min(took, self.best.get(step, took))
        return done


def run(body: bytes, metadata: TableMetadata, clock: Clock) -> int:
    """Run all steps once and return the number of bytes of all entries."""
    request = clock.time("decode", lambda: wire_json.decode(CommitTableRequest, body))
    clock.time("check request", lambda: check_request(request.updates))
    (update,) = request.updates
    assert isinstance(update, Append)
    clock.time("check paths", lambda: _check_paths(metadata, update.add_data_files))
    converter = DeclaredFiles(metadata)
    files = clock.time("declare", lambda: converter.data_files(update.add_data_files, PLACE))
    return clock.time("encode", lambda: _encode(metadata, files))


def _check_paths(metadata: TableMetadata, files: tuple[DeclaredDataFile, ...]) -> None:
    locations = TableLocations(AllowedLocations("s3://bucket/warehouse"))
    check_paths(metadata, [file.file_path for file in files], PLACE, locations, lambda _: None)


def _encode(metadata: TableMetadata, files: list[DataFile]) -> int:
    encoder = manifest_encoder(metadata.current_schema, metadata.default_spec, 2, DATA)
    data_file, entry = encoder.data_file, encoder.entry
    return sum(len(entry(ADDED, None, None, None, data_file(file))) for file in files)


def measure(files: int, rounds: int) -> tuple[list[Measured], int, int]:
    """Return the cost of each step, the bytes of the request and the bytes of the entries."""
    body, metadata, clock = request_body(files), table(), Clock()
    encoded = 0
    for _ in range(rounds):
        encoded = run(body, metadata, clock)
    steps = dict(clock.best) | {"all": sum(clock.best.values())}
    measured = [
        Measured(step, files, round(took, 4), round(took / files * 1e6, 2))
        for step, took in steps.items()
    ]
    return measured, len(body), encoded


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    measured, sent, encoded = measure(options.files, options.rounds)
    print(
        f"one append with {options.files:,} files of {len(TYPES)} columns: "
        f"{sent / options.files:,.0f} bytes of JSON and {encoded / options.files:,.0f} bytes of "
        "manifest for each"
    )
    for one in measured:
        print(f"{one.step:16}{one.us_per_file:8.2f} us a file")
    result = {
        "machine": machine(),
        "request_bytes": sent,
        "entry_bytes": encoded,
        "measured": [asdict(one) for one in measured],
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

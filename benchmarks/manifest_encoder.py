"""Measures encoding a manifest: our encoder next to fastavro and PyIceberg.

All encode the same files: ten columns with every metric, paths of 120 bytes, one partition
field. Each takes its own kind of values, created before the clock starts. The figures are CPU
time, the best of several runs in turns.

    python -m benchmarks.manifest_encoder [--entries 10000] [--rounds 3] [--output FILE]
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as StockDataFile
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec as StockSpec
from pyiceberg.schema import Schema as StockSchema
from pyiceberg.typedef import Record

from benchmarks.results import RESULTS, machine
from frazil.format.manifest.manifest_columns import decode_columns
from frazil.format.manifest.manifest_encoder import ManifestEncoder, manifest_encoder
from frazil.format.manifest.manifest_list import DATA, ManifestFile
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema

OUTPUT = RESULTS / "manifest_encoder.json"
COLUMNS = 10
PATH_BYTES = 120
SNAPSHOT_ID = 3051729675574597004
_WHOLE = 1 << 40
"""A target size that no manifest here reaches, so that each run writes one file."""

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": n, "name": f"column_{n}", "required": False, "type": "long"}
        for n in range(1, COLUMNS + 1)
    ],
}
SPEC = {
    "spec-id": 0,
    "fields": [{"source-id": 1, "field-id": 1000, "name": "bucket_1", "transform": "bucket[16]"}],
}


@dataclass(frozen=True, slots=True)
class Measured:
    way: str
    entries: int
    cpu_s: float
    entries_per_s: float
    file_bytes: int


def content_file(number: int) -> DataFile:
    columns = range(1, COLUMNS + 1)
    return DataFile(
        file_path=f"s3://bucket/warehouse/table/data/{number:08}-".ljust(PATH_BYTES - 8, "a")
        + ".parquet",
        file_format="PARQUET",
        partition=(number % 16,),
        record_count=100_000 + number,
        file_size_in_bytes=64_000_000 + number,
        column_sizes={n: 1_000_000 + number * n for n in columns},
        value_counts=dict.fromkeys(columns, 100_000 + number),
        null_value_counts=dict.fromkeys(columns, number % 100),
        nan_value_counts={},
        lower_bounds={n: (number * n).to_bytes(8, "little") for n in columns},
        upper_bounds={n: (number * n + 99_999).to_bytes(8, "little") for n in columns},
        split_offsets=[4],
        sort_order_id=0,
    )


def encoder() -> ManifestEncoder:
    schema = parse_schema(json.dumps(SCHEMA).encode())
    spec = parse_partition_spec(json.dumps(SPEC).encode())
    return manifest_encoder(schema, spec, 2, DATA)


def write_ours(files: list[DataFile]) -> bytes:
    writer = RollingManifestWriter(
        encoder(), new_path=lambda: "m.avro", snapshot_id=SNAPSHOT_ID, target_size_bytes=_WHOLE
    )
    for file in files:
        writer.add(file)
    (written,) = writer.finish()
    return written.file


def copy_ours(files: list[DataFile]) -> Callable[[], bytes]:
    """Return a function that copies all known entries but one, as a delete by path does."""
    content = write_ours(files)
    columns = decode_columns(content)
    listed = ManifestFile(
        *("m.avro", len(content), 0, DATA, 5, 5, SNAPSHOT_ID),
        *(len(files), 0, 0, sum(file.record_count for file in files), 0, 0, None),
        encrypted=False,
        raw=b"",
    )

    def copy() -> bytes:
        writer = RollingManifestWriter(
            encoder(), new_path=lambda: "m.avro", snapshot_id=1, target_size_bytes=_WHOLE
        )
        writer.copy_rows(content, columns, listed, {0})
        (written,) = writer.finish()
        return written.file

    return copy


def fastavro_records(files: list[DataFile]) -> list[dict[str, Any]]:
    return [
        {
            "status": 1,
            "snapshot_id": SNAPSHOT_ID,
            "sequence_number": None,
            "file_sequence_number": None,
            "data_file": {
                "content": 0,
                "file_path": file.file_path,
                "file_format": file.file_format,
                "partition": {"bucket_1": file.partition[0]},
                "record_count": file.record_count,
                "file_size_in_bytes": file.file_size_in_bytes,
                **{name: _pairs(getattr(file, name)) for name in _MAPS},
                "key_metadata": None,
                "split_offsets": file.split_offsets,
                "equality_ids": None,
                "sort_order_id": file.sort_order_id,
                "referenced_data_file": None,
            },
        }
        for file in files
    ]


_MAPS = (
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds"),
)


def _pairs(values: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def write_fastavro(records: list[dict[str, Any]], schema: Any) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate")
    return out.getvalue()


def stock_entries(files: list[DataFile]) -> list[ManifestEntry]:
    return [
        ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=SNAPSHOT_ID,
            data_file=StockDataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.file_path,
                file_format=FileFormat.PARQUET,
                partition=Record(*file.partition),
                record_count=file.record_count,
                file_size_in_bytes=file.file_size_in_bytes,
                **{name: getattr(file, name) for name in _MAPS},
                split_offsets=file.split_offsets,
                sort_order_id=file.sort_order_id,
            ),
        )
        for file in files
    ]


def write_pyiceberg(entries: list[ManifestEntry], path: Path) -> bytes:
    schema = StockSchema.model_validate(SCHEMA)
    spec = StockSpec.model_validate(SPEC)
    output = PyArrowFileIO().new_output(path.as_uri())
    with write_manifest(2, spec, schema, output, SNAPSHOT_ID, "deflate") as writer:
        for entry in entries:
            writer.add(entry)
    return path.read_bytes()


def measure(entries: int, rounds: int, folder: Path) -> list[Measured]:
    files = [content_file(number) for number in range(entries)]
    records, stock = fastavro_records(files), stock_entries(files)
    schema = fastavro.parse_schema(encoder().schema.tree)
    numbers = iter(range(1_000_000))
    ways: dict[str, Callable[[], bytes]] = {
        "frazil": lambda: write_ours(files),
        "frazil, entries copied": copy_ours(files),
        "fastavro": lambda: write_fastavro(records, schema),
        "pyiceberg": lambda: write_pyiceberg(stock, folder / f"{next(numbers)}.avro"),
    }
    best: dict[str, tuple[float, int]] = {}
    for _ in range(rounds):
        for way, write in ways.items():
            start = time.process_time()
            content = write()
            took = time.process_time() - start
            if way not in best or took < best[way][0]:
                best[way] = took, len(content)
    return [
        Measured(way, entries, took, round(entries / took, 1), size)
        for way, (took, size) in best.items()
    ]


def table(measured: list[Measured]) -> str:
    lines = [f"{'':24}{'ms':>9}{'entries/s':>12}{'bytes/entry':>13}"]
    lines += [
        f"{one.way:24}{one.cpu_s * 1_000:9.0f}{one.entries_per_s:12,.0f}"
        f"{one.file_bytes / one.entries:13.0f}"
        for one in measured
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-bench-") as scratch:
        measured = measure(options.entries, options.rounds, Path(scratch))
    print(f"a manifest of {options.entries:,} entries, {COLUMNS} columns\n{table(measured)}")
    result = {"machine": machine(), "measured": [asdict(one) for one in measured]}
    options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

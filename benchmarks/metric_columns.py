"""Measures the statistics of a manifest: decoding, memory, and filters over a million files.

Decoding is compared with the columns without statistics, both together, fastavro and, if
installed, polars. It runs on our blocks, on blocks as Java's library writes them, and on
PyIceberg's, which have one entry each. The files have ten columns with every statistic: longs,
doubles, timestamps, a date and strings of 16 bytes. Filters are evaluated over a million files
in manifests of two sizes. The figures are CPU time, the best of several runs.

    python -m benchmarks.metric_columns [--entries 50000] [--files 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
import json
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.manifest_columns import JAVA_BLOCK_ENTRIES, in_blocks, read_fastavro
from benchmarks.results import RESULTS, machine
from frazil.format.expr.expression_binding import bind
from frazil.format.manifest.manifest_columns import ManifestColumns, decode_columns
from frazil.format.manifest.manifest_encoder import manifest_encoder
from frazil.format.manifest.manifest_list import DATA
from frazil.format.manifest.manifest_writer import RollingManifestWriter
from frazil.format.metadata.content_files import DataFile
from frazil.format.metadata.partition_spec import parse_partition_spec
from frazil.format.metadata.schema import parse_schema
from frazil.format.pruning.cached_columns import metrics_from_bytes, metrics_to_bytes
from frazil.format.pruning.column_evaluators import inclusive_column_evaluator
from frazil.format.pruning.metric_columns import MetricColumns
from frazil.format.pruning.metric_decoder import decode_manifest, decode_metrics
from frazil.wire.expressions import Expression, parse_expression

OUTPUT = RESULTS / "metric_columns.json"
TYPES = [*["long"] * 3, *["double"] * 2, *["timestamp"] * 2, "date", "string", "string"]
MANIFEST_FILES = (40_000, 4_000)
"""As many files as 8 MB contain, and as many as in a table that is written often."""
SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "schema-id": 0,
            "fields": [
                {"id": n, "name": f"c{n}", "required": False, "type": kind}
                for n, kind in enumerate(TYPES, 1)
            ],
        }
    ).encode()
)
SPEC = parse_partition_spec(
    b'{"spec-id":0,"fields":[{"source-id":1,"field-id":1000,"name":"b","transform":"bucket[16]"}]}'
)
MANY = {"type": "in", "term": "c1", "values": list(range(0, 200_000, 1_000))}
FILTERS: dict[str, Any] = {
    "long =": {"type": "eq", "term": "c1", "value": 500_000_000},
    "long <": {"type": "lt", "term": "c1", "value": 500_000_000},
    "double >": {"type": "gt", "term": "c4", "value": 0.5},
    "timestamp >=": {"type": "gt-eq", "term": "c6", "value": "2024-01-01T00:00:00"},
    "date =": {"type": "eq", "term": "c8", "value": "2024-01-01"},
    "string =": {"type": "eq", "term": "c9", "value": "customer#5000000"},
    "string starts with": {"type": "starts-with", "term": "c9", "value": "customer#50"},
    "string in 100": {
        "type": "in",
        "term": "c9",
        "values": [f"customer#{n * 10_007:07}" for n in range(100)],
    },
    "long in 200": MANY,
    "long not in 200": {**MANY, "type": "not-in"},
    "long between and string >": {
        "type": "and",
        "left": {
            "type": "and",
            "left": {"type": "gt", "term": "c1", "value": 100_000_000},
            "right": {"type": "lt", "term": "c1", "value": 200_000_000},
        },
        "right": {"type": "gt", "term": "c9", "value": "customer#5000000"},
    },
    "day(timestamp) =": {
        "type": "eq",
        "term": {"type": "transform", "transform": "day", "term": "c6"},
        "value": "2024-01-01",
    },
}


@dataclass(frozen=True, slots=True)
class Decoded:
    way: str
    entries: int
    cpu_s: float
    entries_per_s: float


@dataclass(frozen=True, slots=True)
class Evaluated:
    filter: str
    files: int
    manifests: int
    cpu_ms: float
    may_match: int


def content_file(number: int, rng: Random) -> DataFile:
    lower, upper = _bounds(rng, 0), _bounds(rng, 1)
    rows = rng.randint(50_000, 150_000)
    columns = range(1, len(TYPES) + 1)
    return DataFile(
        file_path=f"s3://bucket/warehouse/table/data/{number:08}-".ljust(112, "a") + ".parquet",
        file_format="PARQUET",
        partition=(number % 16,),
        record_count=rows,
        file_size_in_bytes=64_000_000 + rng.randint(0, 1 << 20),
        column_sizes={n: 1_000_000 + rng.randint(0, 1 << 18) for n in columns},
        value_counts=dict.fromkeys(columns, rows),
        null_value_counts={n: 0 if n < 8 else number % 200 for n in columns},
        nan_value_counts={4: 0, 5: 0},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=[4],
        sort_order_id=0,
    )


def _bounds(rng: Random, above: int) -> dict[int, bytes]:
    longs = [rng.randint(0, 10**9) + above * 1_000 for _ in range(3)]
    doubles = [rng.random() + above for _ in range(2)]
    moments = [1_700_000_000_000_000 + rng.randint(0, 10**13) + above * 10**9 for _ in range(2)]
    values = [struct.pack("<q", number) for number in longs]
    values += [struct.pack("<d", number) for number in doubles]
    values += [struct.pack("<q", number) for number in moments]
    values.append(struct.pack("<i", 19_700 + rng.randint(0, 200) + above))
    values += [f"customer#{rng.randint(0, 10**7 - 1):07}".encode() for _ in range(2)]
    return dict(enumerate(values, 1))


def write(entries: int, seed: int) -> bytes:
    rng = Random(seed)
    encoder = manifest_encoder(SCHEMA, SPEC, 2, DATA)
    writer = RollingManifestWriter(
        encoder, new_path=lambda: "m.avro", snapshot_id=1, target_size_bytes=1 << 40
    )
    for number in range(entries):
        writer.add(content_file(number, rng))
    (written,) = writer.finish()
    return written.file


def measure_decoding(content: bytes, entries: int, rounds: int) -> list[Decoded]:
    blocks = {
        "our blocks": content,
        "Java's blocks": in_blocks(content, JAVA_BLOCK_ENTRIES),
        "PyIceberg's blocks": in_blocks(content, 1),
    }
    ways: dict[str, Callable[[], Any]] = {}
    for name, one in blocks.items():
        ways |= {
            f"columns, {name}": partial(decode_columns, one),
            f"statistics, {name}": partial(decode_metrics, one, decode_columns(one)),
            f"both, {name}": partial(decode_manifest, one),
            f"fastavro, {name}": partial(read_fastavro, one),
        }
        if importlib.util.find_spec("polars") is not None:
            ways[f"polars, {name}"] = partial(read_polars, one)
    columns, metrics = decode_manifest(content)
    kept = metrics_to_bytes("m.avro", metrics)
    ways["statistics, from their file"] = partial(
        metrics_from_bytes, "m.avro", kept, columns.record_count
    )
    return [
        Decoded(way, entries, took, round(entries / took, 1))
        for way, took in ((way, best_of(rounds, read)) for way, read in ways.items())
    ]


def read_polars(content: bytes) -> Any:
    polars = importlib.import_module("polars")
    return polars.read_avro(io.BytesIO(content))


def best_of(rounds: int, act: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        act()
        best = min(best, time.process_time() - start)
    return best


def bytes_per_file(columns: ManifestColumns, metrics: MetricColumns) -> dict[str, float]:
    files = len(columns)
    return {
        "path": round(len(columns.path_bytes) / files, 1),
        "columns": round((columns.size_bytes - len(columns.path_bytes)) / files, 1),
        "statistics": round(metrics.size_bytes / files, 1),
    }


def measure_filters(files: int, rounds: int) -> tuple[list[Evaluated], dict[str, float]]:
    found: list[Evaluated] = []
    memory: dict[str, float] = {}
    for size in MANIFEST_FILES:
        content = write(size, size)
        decoded = [decode_manifest(content) for _ in range(max(files // size, 1))]
        memory = memory or bytes_per_file(*decoded[0])
        manifests = [metrics for _, metrics in decoded]
        for name, value in FILTERS.items():
            expression = bind(parse_expression(value), SCHEMA)
            took = best_of(rounds, partial(matching, expression, manifests))
            number = size * len(manifests)
            found.append(
                Evaluated(
                    name,
                    number,
                    len(manifests),
                    round(took * 1_000, 2),
                    matching(expression, manifests),
                )
            )
    return found, memory


def matching(expression: Expression, manifests: Sequence[MetricColumns]) -> int:
    evaluate = inclusive_column_evaluator(expression)
    return sum(int(evaluate(metrics).sum()) for metrics in manifests)


def table(
    decoded: Sequence[Decoded], evaluated: Sequence[Evaluated], memory: dict[str, float]
) -> str:
    lines = [f"{'':34}{'entries':>10}{'ms':>9}{'entries/s':>12}"]
    lines += [
        f"{one.way:34}{one.entries:10,}{one.cpu_s * 1_000:9.0f}{one.entries_per_s:12,.0f}"
        for one in decoded
    ]
    lines.append("\nbytes a file: " + ", ".join(f"{k} {v}" for k, v in memory.items()))
    lines.append(f"\n{'':28}{'files':>12}{'manifests':>11}{'ms':>9}{'may match':>12}")
    lines += [
        f"{one.filter:28}{one.files:12,}{one.manifests:11,}{one.cpu_ms:9.2f}{one.may_match:12,}"
        for one in evaluated
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    decoded = measure_decoding(write(options.entries, 1), options.entries, options.rounds)
    evaluated, memory = measure_filters(options.files, options.rounds)
    print(table(decoded, evaluated, memory))
    result = {
        "machine": machine(),
        "decoded": [asdict(one) for one in decoded],
        "bytes_per_file": memory,
        "evaluated": [asdict(one) for one in evaluated],
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

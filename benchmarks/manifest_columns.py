"""Measures reading a manifest: our columns next to our row reader and fastavro.

Also measures getting the columns without decoding: of a manifest that was just written, and from
the cache file on disk. The files are those of `benchmarks.manifest_encoder`: ten columns with
every metric, paths of 120 bytes, one partition field. The figures are CPU time, the best of
several runs in turns.

    python -m benchmarks.manifest_columns [--entries 10000 100000] [--rounds 3] [--output FILE]
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fastavro

from benchmarks.manifest_encoder import SNAPSHOT_ID, content_file, encoder
from benchmarks.results import RESULTS, machine
from frazil.format.avro.avro_files import MANIFEST_LIMITS, AvroWriter, open_avro
from frazil.format.manifest.manifest_columns import decode_columns
from frazil.format.manifest.manifest_entries import read_manifest
from frazil.format.manifest.manifest_writer import RollingManifestWriter, WrittenManifest
from frazil.format.pruning.cached_columns import columns_from_bytes, columns_to_bytes

OUTPUT = RESULTS / "manifest_columns.json"
JAVA_BLOCK_ENTRIES = 90
"""The entries that fit into the 64,000 bytes of a block in a manifest that Java writes."""


@dataclass(frozen=True, slots=True)
class Measured:
    way: str
    entries: int
    cpu_s: float
    entries_per_s: float


def in_blocks(content: bytes, entries: int) -> bytes:
    """Return the same manifest in blocks of `entries` entries."""
    file = open_avro(content, MANIFEST_LIMITS)
    writer = AvroWriter(file.schema, file.metadata, file.codec, entries)
    record = file.schema.record
    for _, raw in file.records(lambda data, at: (None, record.skip(data, at))):
        writer.write(raw)
    return writer.finish()


def write(entries: int) -> WrittenManifest:
    writer = RollingManifestWriter(
        encoder(), new_path=lambda: "m.avro", snapshot_id=SNAPSHOT_ID, target_size_bytes=1 << 40
    )
    for number in range(entries):
        writer.add(content_file(number))
    (written,) = writer.finish()
    return written


def read_fastavro(content: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(content)))


def measure(entries: int, rounds: int) -> list[Measured]:
    written = write(entries)
    ours, kept = written.file, columns_to_bytes("m.avro", written.columns())
    java, single = in_blocks(ours, JAVA_BLOCK_ENTRIES), in_blocks(ours, 1)
    ways: dict[str, Callable[[], Any]] = {
        "columns, our blocks": lambda: decode_columns(ours),
        "columns, Java's blocks": lambda: decode_columns(java),
        "columns, PyIceberg's blocks": lambda: decode_columns(single),
        "columns, of what was written": written.columns,
        "columns, from their file": lambda: columns_from_bytes("m.avro", kept),
        "rows (read_manifest)": lambda: read_manifest(ours),
        "fastavro": lambda: read_fastavro(ours),
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for way, read in ways.items():
            start = time.process_time()
            read()
            took = time.process_time() - start
            best[way] = min(took, best.get(way, took))
    return [Measured(way, entries, took, round(entries / took, 1)) for way, took in best.items()]


def table(measured: list[Measured]) -> str:
    lines = [f"{'':30}{'entries':>10}{'ms':>9}{'entries/s':>12}"]
    lines += [
        f"{one.way:30}{one.entries:10,}{one.cpu_s * 1_000:9.0f}{one.entries_per_s:12,.0f}"
        for one in measured
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    measured = [one for entries in options.entries for one in measure(entries, options.rounds)]
    print(table(measured))
    result = {"machine": machine(), "measured": [asdict(one) for one in measured]}
    options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

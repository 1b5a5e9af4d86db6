"""Measures ways to create a durable new local file.

The local store must choose how `put_new` creates a file. With every way below the content and
the name are on disk at the end, and only one writer can create a name. They differ in their cost
and in what a crash can leave behind. Run it on the warehouse's disk:

    python benchmarks/store_put_new.py [--folder DIR] [--files 300] [--bytes 8192] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

Way = Callable[[int, str, bytes], None]
"""Creates the named file in the open folder and makes both durable."""


@dataclass(frozen=True, slots=True)
class Measured:
    way: str
    parallel: int
    files: int
    bytes_a_file: int
    p50_us: float
    p99_us: float
    wall_us_a_file: float


def exclusive(folder: int, name: str, content: bytes) -> None:
    """Use O_EXCL with the final name. A crash can leave a half-written file of that name."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        os.write(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.fsync(folder)


def temporary_then_link(folder: int, name: str, content: bytes) -> None:
    """Write under a temporary name, then call link(2), which fails if the final name exists."""
    temporary = f".{name}.{uuid.uuid4().hex}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        os.write(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink(temporary, dir_fd=folder)
    os.fsync(folder)


def unnamed_then_link(folder: int, name: str, content: bytes) -> None:
    """Use O_TMPFILE, then link the open file. A crash leaves nothing."""
    fd = os.open(".", os.O_WRONLY | os.O_TMPFILE, 0o666, dir_fd=folder)
    try:
        os.write(fd, content)
        os.fsync(fd)
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(fd)
    os.fsync(folder)


def without_fsync(folder: int, name: str, content: bytes) -> None:
    """Write a file that is not durable, as the lower limit to compare with."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


WAYS: tuple[Way, ...] = (without_fsync, exclusive, temporary_then_link, unnamed_then_link)


def measure(way: Way, folder: Path, files: int, content: bytes, parallel: int) -> Measured:
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def one(_: int) -> float:
        start = time.perf_counter()
        way(fd, f"{uuid.uuid4()}.avro", content)
        return (time.perf_counter() - start) * 1e6

    try:
        with ThreadPoolExecutor(parallel) as pool:
            start = time.perf_counter()
            took = sorted(pool.map(one, range(files)))
            wall_us = (time.perf_counter() - start) * 1e6
    finally:
        os.close(fd)
    return Measured(
        way=way.__name__,
        parallel=parallel,
        files=files,
        bytes_a_file=len(content),
        p50_us=round(statistics.median(took), 1),
        p99_us=round(took[int(len(took) * 0.99) - 1], 1),
        wall_us_a_file=round(wall_us / files, 1),
    )


def best_of_rounds(
    scratch: Path, files: int, content: bytes, parallel: int, rounds: int = 3
) -> list[Measured]:
    """Run the ways in turns and return the best round of each, so that other load on the machine
    affects all alike."""
    measured: dict[Way, list[Measured]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS:
            folder = scratch / f"{way.__name__}-{parallel}-{number}"
            measured[way].append(measure(way, folder, files, content, parallel))
    return [min(found, key=lambda row: row.wall_us_a_file) for found in measured.values()]


def table(rows: Sequence[Measured]) -> str:
    lines = [f"{'way':<22}{'parallel':>9}{'p50 µs':>10}{'p99 µs':>10}{'wall µs a file':>16}"]
    lines += [
        f"{row.way:<22}{row.parallel:>9}{row.p50_us:>10.1f}{row.p99_us:>10.1f}"
        f"{row.wall_us_a_file:>16.1f}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="a folder on that disk")
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--bytes", type=int, default=8192)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    content = os.urandom(options.bytes)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="store-put-new-") as scratch:
        rows = [
            row
            for parallel in (1, 3, 8)
            for row in best_of_rounds(Path(scratch), options.files, content, parallel)
        ]
    if not options.json:
        print(table(rows))
    print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()

"""What the machine asks for the bytes and the transaction of a commit, without any catalog."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import repeat


@dataclass(frozen=True, slots=True)
class RawCost:
    what: str
    size_bytes: int
    seconds: list[float]


def durable_file(folder: Path, size_bytes: int, most: int, limit_s: float) -> RawCost:
    """A new file of so many bytes, durable with its name; deleted again outside of the time."""
    folder.mkdir(parents=True, exist_ok=True)
    content = os.urandom(size_bytes)
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def one() -> float:
        path = folder / "raw.bin"
        started = time.perf_counter()
        with open(path, "xb", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())
        os.fsync(folder_fd)
        seconds = time.perf_counter() - started
        path.unlink()
        return seconds

    try:
        return RawCost("write and fsync a file", size_bytes, repeat(one, most, limit_s))
    finally:
        os.close(folder_fd)


def sqlite_transaction(folder: Path, most: int, limit_s: float) -> RawCost:
    """One durable transaction (WAL, FULL) that moves a pointer and inserts two rows."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE pointer (name TEXT PRIMARY KEY, location TEXT)")
        connection.execute("CREATE TABLE row (kind TEXT, content TEXT)")
        connection.execute("INSERT INTO pointer VALUES ('t', '')")
        numbers = _numbers()

        def one() -> float:
            location = f"metadata/{next(numbers):05d}.metadata.json"
            started = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE pointer SET location = ? WHERE name = 't'", (location,))
            for kind in ("commit", "event"):
                connection.execute("INSERT INTO row VALUES (?, ?)", (kind, location * 8))
            connection.execute("COMMIT")
            return time.perf_counter() - started

        return RawCost("SQLite transaction, WAL and FULL", 0, repeat(one, most, limit_s))


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number

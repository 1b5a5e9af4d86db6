"""Measures the disk writes and the transaction of a commit on this machine, without any catalog."""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Block, repeat


@dataclass(frozen=True, slots=True)
class RawCost:
    what: str
    size_bytes: int
    seconds: list[float]


def durable_file(folder: Path, size_bytes: int, most: int, limit_s: float) -> RawCost:
    """Measure a new file of this size that is durable with its name. Its deletion is not timed."""
    with file_writer(folder, size_bytes) as write:
        return RawCost("write and fsync a file", size_bytes, repeat(write, most, limit_s))


def sqlite_transaction(folder: Path, most: int, limit_s: float) -> RawCost:
    """Measure a durable transaction (WAL, FULL) that updates a pointer and inserts two rows."""
    with transaction_maker(folder) as commit:
        return RawCost("SQLite transaction, WAL and FULL", 0, repeat(commit, most, limit_s))


class RawLane:
    """Makes one durable file and one transaction, as a commit does. It takes turns with the
    catalogs, because the disk's speed changes from minute to minute."""

    system = "the disk alone: one file, one transaction"

    def __init__(self, stack: ExitStack, folder: Path, size_bytes: int) -> None:
        self._write = stack.enter_context(file_writer(folder, size_bytes))
        self._commit = stack.enter_context(transaction_maker(folder))

    def run(self, most: int, limit_s: float) -> Block:
        os.sync()
        before = time.process_time()
        seconds = repeat(lambda: self._write() + self._commit(), most, limit_s)
        return Block(seconds, time.process_time() - before)

    def finish(self) -> None:
        """Do nothing, because there is no table to check."""


@contextmanager
def file_writer(folder: Path, size_bytes: int) -> Iterator[Callable[[], float]]:
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
        yield one
    finally:
        os.close(folder_fd)


@contextmanager
def transaction_maker(folder: Path) -> Iterator[Callable[[], float]]:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE pointer (name TEXT PRIMARY KEY, location TEXT)")
        connection.execute("CREATE TABLE row (kind TEXT, content TEXT)")
        connection.execute("INSERT INTO pointer VALUES ('t', '')")
        numbers = itertools.count()

        def one() -> float:
            location = f"metadata/{next(numbers):05d}.metadata.json"
            started = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE pointer SET location = ? WHERE name = 't'", (location,))
            for kind in ("commit", "event"):
                connection.execute("INSERT INTO row VALUES (?, ?)", (kind, location * 8))
            connection.execute("COMMIT")
            return time.perf_counter() - started

        yield one

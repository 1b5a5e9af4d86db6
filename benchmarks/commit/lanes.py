"""One writer at a time, in turns: a system on tables with the same start, and the disk alone."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.commit.bursts import APPEND, DELETE_FILTER, Burst, Task
from benchmarks.commit.files import PARTITIONS
from benchmarks.commit.systems import System
from benchmarks.commit.trees import Start
from benchmarks.measure import Block, repeat
from benchmarks.raw_costs import file_writer, transaction_maker

COMMITS_A_TABLE = 20
"""The least commits to one table, or one for a hundred snapshots. They hardly change the table."""
PARTITIONS_A_TABLE = 20
"""A fifth of the tree."""
MANIFEST_BYTES, LIST_BYTES = 6_500, 4_500
"""The sizes in a commit that adds one file."""


class WorkNotDone(Exception):
    """A system answered, but its table is not what it should be."""


@dataclass(slots=True)
class _Table:
    name: str
    done: int
    numbers: Iterator[int]


class CommitLane:
    """The commits of one writer, one after another, on new tables with the same start.

    With `warm`, the first commit to a table is counted separately, because the server has
    nothing of the table in memory then.
    """

    def __init__(self, system: System, operation: str, start: Start, *, warm: bool) -> None:
        self.system = f"{system.name} at {start.snapshots} snapshots, {start.tree.files} files"
        self.owner = system
        self.operation = operation
        self.start = start
        self.warm = warm
        self.burst = Burst()
        self.first = Burst()
        self._table: _Table | None = None

    def run(self, most: int, limit_s: float) -> Block:
        table = self._current()
        remaining = self._commits_a_table() - table.done
        os.sync()
        burst = self._commit(table, min(most, remaining), limit_s)
        self.burst.add(burst)
        return Block(burst.seconds, burst.server_cpu_s, burst.client_cpu_s)

    def finish(self) -> None:
        if self._table is not None:
            self._check(self._table)

    def _current(self) -> _Table:
        if self._table is not None and self._table.done < self._commits_a_table():
            return self._table
        self.finish()
        (name,) = self.owner.new_tables(self.start, 1)
        self._table = _Table(name, 0, self._numbers())
        if self.warm:
            self.first.add(self._commit(self._table, 1, 1.0))
        return self._table

    def _numbers(self) -> Iterator[int]:
        """Return the numbers of the files or partitions. Those to delete are spread over the
        tree."""
        if self.operation == APPEND:
            return itertools.count()
        if self.operation == DELETE_FILTER:
            return iter(range(3, PARTITIONS, PARTITIONS // (PARTITIONS_A_TABLE + 2)))
        files = self.start.tree.files
        return iter(range(files // 7, files, max(1, files // (2 * COMMITS_A_TABLE))))

    def _commits_a_table(self) -> int:
        if self.operation == APPEND:
            return max(COMMITS_A_TABLE, self.start.snapshots // 100)
        return PARTITIONS_A_TABLE

    def _commit(self, table: _Table, most: int, limit_s: float) -> Burst:
        first, second = next(table.numbers), next(table.numbers)
        task = Task(
            self.operation,
            ((table.name,),),
            limit_s,
            most,
            first=first,
            step=second - first,
            tree_files=self.start.tree.files,
        )
        burst = self.owner.run(task)
        if burst.failed:
            raise WorkNotDone(f"{self.system}, {self.operation}: {burst.first_error}")
        done = len(burst.samples)
        table.done += done
        table.numbers = itertools.count(first + done * task.step, task.step)
        return burst

    def _check(self, table: _Table) -> None:
        files = self.start.tree.files
        if self.operation == APPEND:
            expected = files + table.done
        elif self.operation == DELETE_FILTER:
            expected = files - table.done * (files // PARTITIONS)
        else:
            expected = files - table.done
        found = self.owner.totals(table.name)[1]
        # DuckLake's own first file is not part of the tree.
        if found - expected not in (0, 1):
            raise WorkNotDone(f"{self.system}: {found} files after {table.done} commits")


class RawCommitLane:
    """Writes three durable files and makes one transaction, without any catalog."""

    def __init__(self, stack: ExitStack, folder: Path, metadata_bytes: int) -> None:
        self.system = f"the disk alone, {metadata_bytes} bytes of metadata"
        self.metadata_bytes = metadata_bytes
        sizes = (MANIFEST_BYTES, LIST_BYTES, metadata_bytes)
        self._files = [
            stack.enter_context(file_writer(folder / str(at), size))
            for at, size in enumerate(sizes)
        ]
        self._swap = stack.enter_context(transaction_maker(folder))
        self.seconds: list[float] = []
        self.metadata_seconds: list[float] = []

    def run(self, most: int, limit_s: float) -> Block:
        os.sync()
        before = time.process_time()
        seconds = repeat(self._one, most, limit_s)
        self.seconds += seconds
        return Block(seconds, time.process_time() - before)

    def finish(self) -> None:
        """Do nothing, because there is no table to check."""

    def _one(self) -> float:
        *small, metadata = self._files
        metadata_s = metadata()
        self.metadata_seconds.append(metadata_s)
        return sum(write() for write in small) + metadata_s + self._swap()

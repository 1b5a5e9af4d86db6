"""A task for a system and its result: commits by several writers for some seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

APPEND: Final = "append"
DELETE_PATH: Final = "delete by path"
DELETE_FILTER: Final = "delete by filter"
OPERATIONS: Final = (APPEND, DELETE_PATH, DELETE_FILTER)

Sample: TypeAlias = tuple[float, float]
"""The end of a commit, in seconds since the start of the burst, and its duration."""


@dataclass(frozen=True, slots=True)
class Task:
    operation: str
    tables: tuple[tuple[str, ...], ...]
    """For each writer, the tables that it commits to in turns."""
    seconds: float
    """No commit starts after this many seconds."""
    most: int
    """The most commits of each writer, at least one."""
    first: int = 0
    """The number of the first file that is appended or deleted."""
    step: int = 1
    """The step from one file number to the next."""
    files: int = 1
    """The files that each commit appends."""
    tree_files: int = 0
    """The files of the tree from which files or partitions are deleted."""

    @property
    def writers(self) -> int:
        return len(self.tables)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_task(found: dict[str, Any]) -> Task:
    return Task(**{**found, "tables": tuple(map(tuple, found["tables"]))})


@dataclass(slots=True)
class Burst:
    """The work of several writers."""

    samples: list[Sample] = field(default_factory=list)
    failed: int = 0
    """Commits that failed for good."""
    first_error: str | None = None
    errors: dict[str, int] = field(default_factory=dict)
    """How many commits failed for good with each kind of error."""
    retries: int = 0
    """Retries by the clients, if they count them."""
    window_s: float = 0.0
    """The time in which commits were started."""
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    written_bytes: int = 0
    """What all processes of the system wrote to disk, as the kernel counts it."""
    answer_bytes: int = 0

    def add(self, other: Burst) -> None:
        self.samples += other.samples
        self.failed += other.failed
        self.first_error = self.first_error or other.first_error
        for kind, count in other.errors.items():
            self.errors[kind] = self.errors.get(kind, 0) + count
        self.retries += other.retries
        self.window_s += other.window_s
        self.client_cpu_s += other.client_cpu_s
        self.server_cpu_s += other.server_cpu_s
        self.written_bytes += other.written_bytes
        self.answer_bytes = max(self.answer_bytes, other.answer_bytes)

    @property
    def seconds(self) -> list[float]:
        return [took for _, took in self.samples]

    def commits_per_s(self) -> float:
        """Return the rate of the commits that ended inside the window. A slow last commit that
        ends later does not count, nor does its time. If all commits ended earlier, the window
        ends with the last of them."""
        inside = sum(1 for ended, _ in self.samples if ended <= self.window_s)
        if inside == len(self.samples) and inside:
            return inside / max(ended for ended, _ in self.samples)
        return inside / self.window_s if self.window_s else 0.0


def dealt(tables: Sequence[str], writers: int) -> tuple[tuple[str, ...], ...]:
    """Assign tables to writers: one or several writers for each table, or several tables for
    each writer."""
    if writers >= len(tables):
        return tuple((tables[writer % len(tables)],) for writer in range(writers))
    return tuple(tuple(tables[writer::writers]) for writer in range(writers))


def merged(bursts: list[Burst], window_s: float) -> Burst:
    """Return the combined work of concurrent writers."""
    all_ = Burst()
    for one in bursts:
        all_.add(one)
    all_.window_s = window_s
    return all_

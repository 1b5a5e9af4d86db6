"""What is asked of a system, and what it answers: commits by some writers for some seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

APPEND: Final = "append"
DELETE_PATH: Final = "delete by path"
DELETE_FILTER: Final = "delete by filter"
OPERATIONS: Final = (APPEND, DELETE_PATH, DELETE_FILTER)

Sample: TypeAlias = tuple[float, float]
"""When a commit was done, in seconds since all began, and how long it took."""


@dataclass(frozen=True, slots=True)
class Task:
    operation: str
    tables: tuple[tuple[str, ...], ...]
    """For each writer those that it commits to, in turns."""
    seconds: float
    """No commit begins later."""
    most: int
    """For each writer; at least one."""
    first: int = 0
    """The number of the first file that is appended, or of the first that is deleted."""
    step: int = 1
    """From one number to the next."""
    files: int = 1
    """Appended by each commit."""
    tree_files: int = 0
    """Of the tree that files or partitions are deleted from."""

    @property
    def writers(self) -> int:
        return len(self.tables)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_task(found: dict[str, Any]) -> Task:
    return Task(**{**found, "tables": tuple(map(tuple, found["tables"]))})


@dataclass(slots=True)
class Burst:
    """What some writers did."""

    samples: list[Sample] = field(default_factory=list)
    failed: int = 0
    """Commits that were given up."""
    first_error: str | None = None
    errors: dict[str, int] = field(default_factory=dict)
    """How often each kind was given up with."""
    retries: int = 0
    """By the clients themselves, where they count them."""
    window_s: float = 0.0
    """For how long commits were begun."""
    client_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    written_bytes: int = 0
    """By all processes of the system, as the kernel counts what goes to the disk."""
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
        """Of those that ended inside the window: a last one that takes seconds does not count,
        and neither do its seconds. Where all that was asked for was done sooner, until then."""
        inside = sum(1 for ended, _ in self.samples if ended <= self.window_s)
        if inside == len(self.samples) and inside:
            return inside / max(ended for ended, _ in self.samples)
        return inside / self.window_s if self.window_s else 0.0


def dealt(tables: Sequence[str], writers: int) -> tuple[tuple[str, ...], ...]:
    """Tables for so many writers: each table has one or several, or each writer several tables."""
    if writers >= len(tables):
        return tuple((tables[writer % len(tables)],) for writer in range(writers))
    return tuple(tuple(tables[writer::writers]) for writer in range(writers))


def merged(bursts: list[Burst], window_s: float) -> Burst:
    """The work of several writers at once."""
    all_ = Burst()
    for one in bursts:
        all_.add(one)
    all_.window_s = window_s
    return all_

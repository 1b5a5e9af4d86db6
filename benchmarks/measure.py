"""Samples of the same work on several systems, measured in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Block:
    """Several operations in a row on one system."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    """CPU of the server's process and its children, or of the catalog's own process without a
    server."""
    client_cpu_s: float | None = None
    """CPU of the client, if it is part of the measurement."""
    answer_bytes: int = 0

    def add(self, other: Block) -> None:
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.answer_bytes = other.answer_bytes or self.answer_bytes
        if other.client_cpu_s is not None:
            self.client_cpu_s = (self.client_cpu_s or 0.0) + other.client_cpu_s


class Lane(Protocol):
    """One system at one kind of work on tables of one size."""

    @property
    def system(self) -> str: ...

    def run(self, most: int, limit_s: float) -> Block:
        """Run at least one operation and at most `most`, and start none after the limit."""
        ...

    def finish(self) -> None:
        """Check that the work was done, and raise an error if it was not."""
        ...


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure. Fast systems give more samples, and slow ones stop at a time limit."""

    warm_up_s: float
    seconds: float
    """The time for each lane."""
    least: int
    most: int
    block: int
    """The operations of a lane before the next lane's turn."""
    block_s: float


def repeat(one: Callable[[], float], most: int, limit_s: float) -> list[float]:
    """Call the function until the limit. Each call returns how long its work took."""
    until = time.perf_counter() + limit_s
    seconds = [one()]
    while len(seconds) < most and time.perf_counter() < until:
        seconds.append(one())
    return seconds


def interleave(lanes: Sequence[Lane], effort: Effort) -> dict[str, Block]:
    """Run a block of every lane in turn, so that disturbances of the machine affect all alike."""
    if effort.warm_up_s:
        for lane in lanes:
            _warm_up(lane, effort)
    measured = {lane.system: Block() for lane in lanes}
    waiting = list(lanes)
    while waiting:
        for lane in waiting:
            missing = effort.most - len(measured[lane.system].seconds)
            measured[lane.system].add(lane.run(min(effort.block, missing), effort.block_s))
        waiting = [lane for lane in waiting if not _is_enough(measured[lane.system], effort)]
        # Rotate the order, so that the same lane does not always follow the slowest one.
        waiting = waiting[1:] + waiting[:1]
    for lane in lanes:
        lane.finish()
    return measured


def _warm_up(lane: Lane, effort: Effort) -> None:
    until = time.perf_counter() + effort.warm_up_s
    while time.perf_counter() < until:
        lane.run(effort.block, effort.warm_up_s)


def _is_enough(block: Block, effort: Effort) -> bool:
    count = len(block.seconds)
    return count >= effort.most or (count >= effort.least and sum(block.seconds) >= effort.seconds)


def p50_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def p99_ms(seconds: Sequence[float]) -> float:
    """Return the 99th percentile by nearest rank. With fewer than a hundred samples it is the
    slowest."""
    return sorted(seconds)[math.ceil(len(seconds) * 0.99) - 1] * 1000

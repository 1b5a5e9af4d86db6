"""Samples of the same work on several systems, taken in turns."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Block:
    """Some operations in a row on one system."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    """Of the server's process and its children; of the catalog's own process where it has none."""
    client_cpu_s: float | None = None
    """Of a client that is part of what is measured."""
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
        """At least one operation, at most so many, none begun after the limit."""
        ...

    def finish(self) -> None:
        """Checks that the work was done; raises where it was not."""
        ...


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure. Fast systems give more samples, slow ones are not waited for."""

    warm_up_s: float
    seconds: float
    """For each lane."""
    least: int
    most: int
    block: int
    """Operations a lane does before it is the next one's turn."""
    block_s: float


def repeat(one: Callable[[], float], most: int, limit_s: float) -> list[float]:
    """Calls it until the limit; each call answers how long its work took."""
    until = time.perf_counter() + limit_s
    seconds = [one()]
    while len(seconds) < most and time.perf_counter() < until:
        seconds.append(one())
    return seconds


def interleave(lanes: Sequence[Lane], effort: Effort) -> dict[str, Block]:
    """Every lane in turn, a block at a time: what disturbs the machine hits all alike."""
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
        # Nobody is always the one behind the heaviest.
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
    """By nearest rank: of fewer than a hundred samples it is the slowest."""
    return sorted(seconds)[math.ceil(len(seconds) * 0.99) - 1] * 1000

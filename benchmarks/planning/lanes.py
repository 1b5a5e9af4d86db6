"""One system with one filter on one table, and the check that all systems find the same files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.measure import Block, Effort, interleave

Plan = Callable[[int, float], tuple[Block, int]]
"""Runs at most this many plans and starts none after this many seconds. Returns the samples and
the number of files found."""


class PlansDiffer(Exception):
    """Two systems, or two plans of one, do not find the same number of files."""


@dataclass(slots=True)
class PlanLane:
    system: str
    plan: Plan
    found: set[int] = field(default_factory=set)

    def run(self, most: int, limit_s: float) -> Block:
        block, files = self.plan(most, limit_s)
        self.found.add(files)
        return block

    def finish(self) -> None:
        if len(self.found) != 1:
            raise PlansDiffer(f"{self.system} finds {sorted(self.found)} files in turn")


def measured(lanes: Sequence[PlanLane], effort: Effort) -> tuple[dict[str, Block], int]:
    """Measure the lanes in turns. Return the samples and the number of files, which must be the
    same for all."""
    blocks = interleave(lanes, effort)
    found = {lane.system: next(iter(lane.found)) for lane in lanes}
    if len(set(found.values())) != 1:
        told = ", ".join(f"{system} {files:,}" for system, files in found.items())
        raise PlansDiffer(f"the planners do not find the same number of files: {told}")
    return blocks, next(iter(found.values()))

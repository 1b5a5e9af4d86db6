"""The measured figures of one run and their JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.commands import find_cell
from benchmarks.measure import Block, p50_ms, p99_ms
from benchmarks.results import RESULTS

LATEST: Final = RESULTS / "planning.json"

PLANS: Final = "plans"
FIRSTS: Final = "the first plan after a start"

ENGINE_WARM: Final = "frazil engine, warm"
ENGINE_FOLDER: Final = "frazil engine, cache folder"
ENGINE_COLD: Final = "frazil engine, cold"
SERVER_WARM: Final = "frazil server, warm"
SERVER_FOLDER: Final = "frazil server, cache folder"
SERVER_COLD: Final = "frazil server, cold"
PYICEBERG: Final = "PyIceberg"
JAVA: Final = "Java"
JAVA_CACHED: Final = "Java, contents cached"


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one system with one filter on one table."""

    part: str
    files: int
    layout: str
    filter: str
    system: str
    planned: int
    """The number of files found."""
    samples: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """CPU time of the planner's process for one plan."""
    answer_bytes: int
    each_ms: list[float]


@dataclass(frozen=True, slots=True)
class Step:
    """The cost of one step of a cold plan for all manifests of a table."""

    files: int
    layout: str
    step: str
    samples: int
    best_ms: float
    each_ms: list[float]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the engine's process after one plan of a table."""

    files: int
    layout: str
    path_bytes: int
    cache_bytes: int
    content_bytes: int
    """The part of the cache that contains manifests in their on-disk format."""
    resident_before_bytes: int
    resident_bytes: int
    trimmed_bytes: int
    """Resident memory after the allocator has returned freed memory to the system."""

    @property
    def bytes_a_file(self) -> float:
        """The bytes of columns and statistics for each file, without its path."""
        return (self.cache_bytes - self.content_bytes - self.path_bytes) / self.files

    @property
    def grown_bytes_a_file(self) -> float:
        """The growth of the process for each file, without paths and raw manifests."""
        grown = self.trimmed_bytes - self.resident_before_bytes
        return (grown - self.content_bytes - self.path_bytes) / self.files


@dataclass(frozen=True, slots=True)
class Results:
    machine: dict[str, Any]
    work: dict[str, Any]
    trees: list[dict[str, Any]]
    cells: list[Cell]
    steps: list[Step]
    decoding: list[Step]
    """The ways to decode all manifests."""
    memory: list[Memory]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def of(self, part: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.part == part]

    def find(self, part: str, system: str, **wanted: Any) -> Cell | None:
        return find_cell(self.of(part), system, wanted)


def read_results(path: Path) -> Results:
    found = json.loads(path.read_text())
    return Results(
        machine=found["machine"],
        work=found["work"],
        trees=found["trees"],
        cells=[Cell(**cell) for cell in found["cells"]],
        steps=[Step(**step) for step in found["steps"]],
        decoding=[Step(**step) for step in found["decoding"]],
        memory=[Memory(**one) for one in found["memory"]],
    )


def cell_of(
    part: str, system: str, block: Block, *, files: int, layout: str, filter: str, planned: int
) -> Cell:
    seconds = block.seconds
    return Cell(
        part,
        files,
        layout,
        filter,
        system,
        planned,
        len(seconds),
        round(p50_ms(seconds), 3),
        round(p99_ms(seconds), 3),
        round(block.cpu_s / len(seconds) * 1000, 3),
        block.answer_bytes,
        [round(took * 1000, 3) for took in seconds],
    )


def step_of(files: int, layout: str, step: str, seconds: Sequence[float]) -> Step:
    return Step(
        files,
        layout,
        step,
        len(seconds),
        round(min(seconds) * 1000, 3),
        [round(took * 1000, 3) for took in seconds],
    )

"""The measured figures of one run and their JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.commands import find_cell
from benchmarks.commit.bursts import Burst
from benchmarks.measure import p50_ms, p99_ms
from benchmarks.results import RESULTS

LATEST: Final = RESULTS / "commit.json"

WRITERS: Final = "writers at once"
HISTORY: Final = "length of the history"
LIVE: Final = "live files"
FIRST: Final = "the first commit to a table after it was registered"
RESTARTED: Final = "the first commit after a restart"
MANY: Final = "many files in one commit"


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one system at one kind of work."""

    part: str
    system: str
    operation: str
    writers: int
    tables: int
    snapshots: int
    """Snapshots before the first commit."""
    files: int
    """Live files before the first commit."""
    added_files: int
    """The files that each append adds."""
    samples: int
    failed: int
    first_error: str | None
    commits_per_s: float | None
    """Only if the writers ran for a time instead of a number of commits."""
    p50_ms: float | None
    p99_ms: float | None
    server_cpu_ms: float
    """Per commit, like the next two fields."""
    client_cpu_ms: float
    written_bytes: int
    answer_bytes: int
    each_ms: list[float]
    ended_ms: list[float]
    """The end of each commit, counted from the start of the first."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The cost of the disk alone: three durable files and a transaction, and the third file
    alone."""

    snapshots: int
    metadata_bytes: int
    samples: int
    commit_p50_ms: float
    commit_p99_ms: float
    metadata_p50_ms: float


@dataclass(frozen=True, slots=True)
class Memory:
    system: str
    files: int
    resident_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Results:
    machine: dict[str, Any]
    work: dict[str, Any]
    trees: list[dict[str, Any]]
    cells: list[Cell]
    raw: list[Raw]
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
        raw=[Raw(**raw) for raw in found["raw"]],
        memory=[Memory(**one) for one in found["memory"]],
    )


def cell_of(
    part: str,
    system: str,
    operation: str,
    burst: Burst,
    *,
    snapshots: int,
    files: int,
    writers: int = 1,
    tables: int = 1,
    added_files: int = 1,
    rate: bool = False,
) -> Cell:
    seconds, count = burst.seconds, max(1, len(burst.samples))
    return Cell(
        part,
        system,
        operation,
        writers,
        tables,
        snapshots,
        files,
        added_files,
        len(seconds),
        burst.failed,
        burst.first_error,
        round(burst.commits_per_s(), 2) if rate else None,
        round(p50_ms(seconds), 3) if seconds else None,
        round(p99_ms(seconds), 3) if seconds else None,
        round(burst.server_cpu_s / count * 1000, 3),
        round(burst.client_cpu_s / count * 1000, 3),
        burst.written_bytes // count,
        burst.answer_bytes,
        [round(took * 1000, 3) for took in seconds],
        [round(ended * 1000, 3) for ended, _ in burst.samples],
    )


def raw_of(
    snapshots: int, metadata_bytes: int, seconds: Sequence[float], metadata: Sequence[float]
) -> Raw:
    return Raw(
        snapshots,
        metadata_bytes,
        len(seconds),
        round(p50_ms(seconds), 3),
        round(p99_ms(seconds), 3),
        round(p50_ms(metadata), 3),
    )

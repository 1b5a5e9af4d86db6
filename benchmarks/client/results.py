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

LATEST: Final = RESULTS / "client.json"

APPENDS: Final = "appends by the length of the history"
SHARES: Final = "calls that succeed"
THIN: Final = "a declared file through the thin client"
FOOTERS: Final = "what a Parquet footer says"
IMPORTS: Final = "imports"
ROW_SPEED: Final = "rows"


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one system at one kind of work."""

    part: str
    system: str
    operation: str
    writers: int
    snapshots: int
    """Snapshots before the first commit."""
    calls: int
    succeeded: int
    retries: int
    """Client attempts beyond the first of each call."""
    errors: dict[str, int]
    """How many calls failed for good with each kind of error."""
    first_error: str | None
    commits_per_s: float
    p50_ms: float | None
    """Only successful calls count, as for all times here."""
    p99_ms: float | None
    client_cpu_ms: float
    """Per commit, like the next field."""
    server_cpu_ms: float
    each_ms: list[float]

    @property
    def percent_succeeded(self) -> int:
        """The percentage, rounded down so that 100 means that every call succeeded."""
        return 100 * self.succeeded // self.calls if self.calls else 0


@dataclass(frozen=True, slots=True)
class Timing:
    """One way to do something that needs no writers."""

    part: str
    what: str
    files: int
    """The files that one sample reads."""
    samples: int
    p50_ms: float
    p99_ms: float
    each_ms: list[float]

    @property
    def files_per_s(self) -> float:
        return self.files / self.p50_ms * 1000


@dataclass(frozen=True, slots=True)
class Results:
    machine: dict[str, Any]
    work: dict[str, Any]
    cells: list[Cell]
    timings: list[Timing]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def of(self, part: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.part == part]

    def timed(self, part: str) -> list[Timing]:
        return [timing for timing in self.timings if timing.part == part]

    def find(self, part: str, system: str, **wanted: Any) -> Cell | None:
        return find_cell(self.of(part), system, wanted)

    def timing(self, part: str, what: str) -> Timing | None:
        return next((timing for timing in self.timed(part) if timing.what == what), None)


def read_results(path: Path) -> Results:
    found = json.loads(path.read_text())
    return Results(
        machine=found["machine"],
        work=found["work"],
        cells=[Cell(**cell) for cell in found["cells"]],
        timings=[Timing(**timing) for timing in found["timings"]],
    )


def cell_of(
    part: str, system: str, operation: str, bursts: Sequence[Burst], *, writers: int, snapshots: int
) -> Cell:
    """Return the cell of one or several bursts, each on its own table."""
    total, rate = Burst(), _commits_per_s(bursts)
    for burst in bursts:
        total.add(burst)
    seconds, count = total.seconds, max(1, len(total.samples))
    return Cell(
        part,
        system,
        operation,
        writers,
        snapshots,
        len(seconds) + total.failed,
        len(seconds),
        total.retries,
        total.errors,
        total.first_error,
        round(rate, 2),
        round(p50_ms(seconds), 3) if seconds else None,
        round(p99_ms(seconds), 3) if seconds else None,
        round(total.client_cpu_s / count * 1000, 3),
        round(total.server_cpu_s / count * 1000, 3),
        [round(took * 1000, 3) for took in seconds],
    )


def _commits_per_s(bursts: Sequence[Burst]) -> float:
    """Return the rate of successful calls, up to the end of the last one. A call may take longer
    than any window in which calls are started."""
    busy = sum(map(busy_s, bursts))
    return sum(len(burst.samples) for burst in bursts) / busy if busy else 0.0


def busy_s(burst: Burst) -> float:
    return max((ended for ended, _ in burst.samples), default=burst.window_s)


def timing_of(part: str, what: str, seconds: Sequence[float], files: int = 0) -> Timing:
    return Timing(
        part,
        what,
        files,
        len(seconds),
        round(p50_ms(seconds), 4),
        round(p99_ms(seconds), 4),
        [round(took * 1000, 4) for took in seconds],
    )

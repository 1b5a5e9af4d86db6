"""The figures of one run, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.results import RESULTS

LATEST: Final = RESULTS / "spark.json"

PLAIN: Final = "plain Parquet"
STOCK: Final = "stock Iceberg"
FRAZIL: Final = "Frazil"
OWN: Final = "Frazil without the jar"
SYSTEMS: Final = (PLAIN, STOCK, FRAZIL, OWN)


@dataclass(frozen=True, slots=True)
class Sample:
    wall_s: float
    cpu_s: float
    """CPU time of the driver, the JVM, the Python workers and the catalog's server together."""
    peak_bytes: int = 0
    """The most memory of a process of its own, if the work ran in one."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One operation on one system."""

    operation: str
    system: str
    rows: int
    samples: list[Sample]

    @property
    def cpu_s(self) -> float:
        return median(sample.cpu_s for sample in self.samples)

    @property
    def wall_s(self) -> float:
        return median(sample.wall_s for sample in self.samples)

    @property
    def spread(self) -> float:
        """The largest distance of a sample's CPU time from the median, as a fraction of the
        median."""
        return max(abs(sample.cpu_s - self.cpu_s) for sample in self.samples) / self.cpu_s


@dataclass(frozen=True, slots=True)
class Results:
    machine: dict[str, Any]
    effort: dict[str, Any]
    cells: list[Cell]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def cell(self, operation: str, system: str) -> Cell | None:
        found = (
            cell for cell in self.cells if (cell.operation, cell.system) == (operation, system)
        )
        return next(found, None)

    def operations(self) -> list[str]:
        return list(dict.fromkeys(cell.operation for cell in self.cells))


def read_results(path: Path) -> Results:
    found = json.loads(path.read_text())
    cells = [
        Cell(
            cell["operation"],
            cell["system"],
            cell["rows"],
            [Sample(**sample) for sample in cell["samples"]],
        )
        for cell in found["cells"]
    ]
    return Results(found["machine"], found["effort"], cells)

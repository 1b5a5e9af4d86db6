"""The figures of one run, the values computed from them, and their JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import Block, p50_ms, p99_ms
from benchmarks.raw_costs import RawCost
from benchmarks.systems import FRAZIL, FRAZIL_GZIP

LOAD_REFS = "loadTable, snapshots=refs"
LOAD_ALL = "loadTable, snapshots=all"
LOAD_FIRST = "loadTable, snapshots=refs, the first after a start"
COMMIT = "classic commit"
APPEND = "append by PyIceberg, end to end"

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of work on one system at one history length."""

    operation: str
    snapshots: int
    system: str
    samples: int
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Server CPU for one operation, including its children."""
    client_cpu_ms: float | None
    answer_bytes: int
    each_ms: list[float]


@dataclass(frozen=True, slots=True)
class Raw:
    what: str
    size_bytes: int
    samples: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Aim:
    """A wanted ratio next to the measured one."""

    what: str
    at_most: float
    measured: float | None


@dataclass(frozen=True, slots=True)
class Results:
    machine: dict[str, Any]
    effort: dict[str, Any]
    histories: list[dict[str, Any]]
    memory: list[dict[str, Any]]
    cells: list[Cell]
    raw: list[Raw]
    aims: list[Aim]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    def cell(self, operation: str, snapshots: int, system: str) -> Cell | None:
        return find_cell(self.cells, operation, snapshots, system)

    def systems(self) -> list[str]:
        """The systems in the order in which they were measured."""
        return list(dict.fromkeys(cell.system for cell in self.cells))

    def lengths(self) -> list[int]:
        return sorted({cell.snapshots for cell in self.cells})


def read_results(path: Path) -> Results:
    found = json.loads(path.read_text())
    return Results(
        machine=found["machine"],
        effort=found["effort"],
        histories=found["histories"],
        memory=found["memory"],
        cells=[Cell(**cell) for cell in found["cells"]],
        raw=[Raw(**raw) for raw in found["raw"]],
        aims=[Aim(**aim) for aim in found["aims"]],
    )


def cell_of(operation: str, snapshots: int, system: str, block: Block) -> Cell:
    count = len(block.seconds)
    client = block.client_cpu_s
    return Cell(
        operation,
        snapshots,
        system,
        count,
        round(p50_ms(block.seconds), 3),
        round(p99_ms(block.seconds), 3),
        round(block.cpu_s / count * 1000, 3),
        None if client is None else round(client / count * 1000, 3),
        block.answer_bytes,
        [round(seconds * 1000, 3) for seconds in block.seconds],
    )


def raw_of(cost: RawCost) -> Raw:
    return Raw(
        cost.what,
        cost.size_bytes,
        len(cost.seconds),
        round(p50_ms(cost.seconds), 3),
        round(p99_ms(cost.seconds), 3),
    )


def find_cell(cells: Sequence[Cell], operation: str, snapshots: int, system: str) -> Cell | None:
    wanted = (operation, snapshots, system)
    return next(
        (cell for cell in cells if (cell.operation, cell.snapshots, cell.system) == wanted), None
    )


def aims_of(cells: Sequence[Cell]) -> list[Aim]:
    """Return the aims. Nothing is asserted: a busy machine must not make a benchmark fail."""
    return [
        _growth(cells, LOAD_REFS, FRAZIL, 2.0),
        _growth(cells, COMMIT, FRAZIL, 5.0),
        _growth(cells, COMMIT, FRAZIL_GZIP, 5.0),
    ]


def _growth(cells: Sequence[Cell], operation: str, system: str, at_most: float) -> Aim:
    lengths = sorted({cell.snapshots for cell in cells})
    short, long = lengths[0], lengths[-1]
    what = f"{system}: {operation} at {long:,} snapshots against {short:,}, p50"
    first, last = (find_cell(cells, operation, length, system) for length in (short, long))
    if first is None or last is None or short == long:
        return Aim(what, at_most, None)
    return Aim(what, at_most, round(last.p50_ms / first.p50_ms, 2))


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "pyiceberg": version("pyiceberg"),
        "load_average_at_start": [round(value, 2) for value in os.getloadavg()],
        "command": " ".join(sys.argv[1:]),
    }

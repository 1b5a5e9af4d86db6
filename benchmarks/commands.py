"""What the benchmark commands share: options, and a run that prints and saves its results."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from benchmarks.results import RESULTS

PAGE: Final = RESULTS.parent.parent / "docs" / "benchmarks.md"


class Figures(Protocol):
    def json(self) -> str: ...


class _Named(Protocol):
    @property
    def system(self) -> str: ...


F = TypeVar("F", bound=Figures)
C = TypeVar("C", bound=_Named)


def add_places(parser: argparse.ArgumentParser, latest: Path) -> None:
    """Add the options for the folder of a run, its JSON file and its publication."""
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    parser.add_argument(
        "--output", type=Path, default=latest, help="where the JSON goes (%(default)s)"
    )
    parser.add_argument(
        "--publish",
        type=Path,
        nargs="?",
        const=latest,
        metavar="JSON",
        help="measure nothing: write the figures of a run into docs/benchmarks.md",
    )


def keep(run: Callable[[], F], report: Callable[[F], str], output: Path) -> None:
    """Run the benchmark, write every figure and print the tables."""
    started = time.monotonic()
    results = run()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(results.json())
    print(report(results))
    print(f"\n{time.monotonic() - started:.0f} s. Every sample: {output}", flush=True)


def find_cell(cells: Iterable[C], system: str, wanted: dict[str, Any]) -> C | None:
    """Return the first cell of a system that has these values."""
    return next(
        (
            cell
            for cell in cells
            if cell.system == system
            and all(getattr(cell, name) == value for name, value in wanted.items())
        ),
        None,
    )

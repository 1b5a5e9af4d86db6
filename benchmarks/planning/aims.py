"""The aims next to the measured values. Nothing is asserted: a busy machine must not fail a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.commit.aims import Aim
from benchmarks.planning.files import CLUSTERED, FINE, SCATTERED
from benchmarks.planning.filters import FILTERS, NO_FILTER
from benchmarks.planning.results import ENGINE_COLD, ENGINE_WARM, PLANS, PYICEBERG, Results
from benchmarks.planning.trees import SMALL

WARM_FILES: Final = 1_000_000
WARM_MS: Final = 50
BESIDE_FILES: Final = 100_000
WARM_TIMES: Final = 100
COLD_TIMES: Final = 5
BYTES_A_FILE: Final = 300
_LAYOUTS: Final = (CLUSTERED, SCATTERED, FINE, SMALL)


def aims_of(results: Results) -> list[Aim]:
    return [*_warm(results), *_beside(results), *_memory(results)]


def _warm(results: Results) -> Iterator[Aim]:
    for name in FILTERS:
        slowest = max(_p50s(results, ENGINE_WARM, WARM_FILES, name).values(), default=None)
        what = f"warm engine, {WARM_FILES:,} files, {name}, p50 of the slowest table"
        yield Aim(what, WARM_MS, slowest, "ms")


def _beside(results: Results) -> Iterator[Aim]:
    for system, wanted in ((ENGINE_WARM, WARM_TIMES), (ENGINE_COLD, COLD_TIMES)):
        for name in FILTERS:
            if name == NO_FILTER and system == ENGINE_WARM:
                continue
            ours = _p50s(results, system, BESIDE_FILES, name)
            theirs = _p50s(results, PYICEBERG, BESIDE_FILES, name)
            ratios = [theirs[layout] / ours[layout] for layout in ours if layout in theirs]
            what = f"{system}, {BESIDE_FILES:,} files, {name}, times as fast as PyIceberg"
            yield Aim(what, wanted, min(ratios, default=None), "x", at_least=True)


def _memory(results: Results) -> Iterator[Aim]:
    most = max((one.files for one in results.memory), default=0)
    found = [one for one in results.memory if one.files == most]
    begin = f"memory at {most:,} files, bytes a file beyond its path"
    for what, measured in (
        (f"{begin}, as the cache counts", max((one.bytes_a_file for one in found), default=None)),
        (
            f"{begin}, as the process has grown",
            max((one.grown_bytes_a_file for one in found), default=None),
        ),
    ):
        yield Aim(what, BYTES_A_FILE, measured, "bytes")


def _p50s(results: Results, system: str, files: int, name: str) -> dict[str, float]:
    """Return the median times by layout, for the layouts that were measured."""
    cells = (
        (layout, results.find(PLANS, system, files=files, layout=layout, filter=name))
        for layout in _LAYOUTS
    )
    return {layout: cell.p50_ms for layout, cell in cells if cell is not None}

"""The aims for the pipeline next to the measured values. All of them are about CPU time."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.commit.aims import Aim
from benchmarks.spark import operations as named
from benchmarks.spark.results import FRAZIL, PLAIN, STOCK, Results

_CHANGES = (
    (named.OVERWRITE, 1.0),
    (named.DELETE_COW, 1.0),
    (named.DELETE_MOR, 1.0),
    (named.UPDATE_COW, 1.0),
    (named.UPDATE_MOR, 1.0),
    (named.MERGE_COW, 2.0),
    (named.MERGE_MOR, 1.5),
    (named.READ_ALL, 1.0),
    (named.READ_ONE, 1.0),
    (named.READ_ALL_DELETES, 1.0),
    (named.READ_ONE_DELETES, 1.0),
)
_ONE_ROW_S = 5.0


def aims_of(results: Results) -> list[Aim]:
    return [*_appends(results), *_changes(results), _one_row(results)]


def speed(results: Results, operation: str, peer: str, system: str = FRAZIL) -> float | None:
    """Return how many times more CPU the peer takes than the system."""
    ours, theirs = results.cell(operation, system), results.cell(operation, peer)
    if ours is None or theirs is None or not ours.cpu_s:
        return None
    return theirs.cpu_s / ours.cpu_s


def _appends(results: Results) -> Iterator[Aim]:
    for operation in (named.APPEND_FLAT, named.APPEND_BY_DAY):
        for peer in (PLAIN, STOCK):
            measured = speed(results, operation, peer)
            yield Aim(f"{operation}, against {peer}", 0.95, measured, "x", at_least=True)


def _changes(results: Results) -> Iterator[Aim]:
    for operation, wanted in _CHANGES:
        measured = speed(results, operation, STOCK)
        yield Aim(f"{operation}, against {STOCK}", wanted, measured, "x", at_least=True)


def _one_row(results: Results) -> Aim:
    cell = results.cell(named.DELETE_ONE, FRAZIL)
    measured = None if cell is None else cell.wall_s
    return Aim(f"{named.DELETE_ONE}, wall", _ONE_ROW_S, measured, "s")

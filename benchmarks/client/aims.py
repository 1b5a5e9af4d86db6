"""The aims next to the measured values. Nothing is asserted: a busy machine must not fail a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.client.imports import CLIENT_ANSWERED, IMPORT_FRAZIL
from benchmarks.client.operations import APPEND, DELETE, UPSERT
from benchmarks.client.results import APPENDS, IMPORTS, SHARES, Cell, Results
from benchmarks.client.systems import FRAZIL_CATALOG, THIN_CLIENT
from benchmarks.commit.aims import Aim

IMPORT_MS: Final = 150
_SHARES: Final = (
    (FRAZIL_CATALOG, APPEND),
    (THIN_CLIENT, APPEND),
    (FRAZIL_CATALOG, DELETE),
    (FRAZIL_CATALOG, UPSERT),
)


def aims_of(results: Results) -> list[Aim]:
    return [*_imports(results), *_retries(results), *_failures(results)]


def _imports(results: Results) -> Iterator[Aim]:
    for what in (IMPORT_FRAZIL, CLIENT_ANSWERED):
        found = results.timing(IMPORTS, what)
        p50 = None if found is None else found.p50_ms
        yield Aim(f"{what}, p50", IMPORT_MS, p50, "ms")


def _retries(results: Results) -> Iterator[Aim]:
    for system in (FRAZIL_CATALOG, THIN_CLIENT):
        cells = [
            cell
            for part in (APPENDS, SHARES)
            for cell in results.of(part)
            if cell.system == system and cell.operation == APPEND
        ]
        retries = sum(cell.retries for cell in cells) if cells else None
        yield Aim(f"{system}: retries by the client in all appends", 0, retries, "")


def _failures(results: Results) -> Iterator[Aim]:
    for system, operation in _SHARES:
        cell = results.find(SHARES, system, operation=operation)
        failed = None if cell is None else cell.calls - cell.succeeded
        yield Aim(f"{system}: {_race(cell)}{operation} calls that failed", 0, failed, "")


def _race(cell: Cell | None) -> str:
    return "" if cell is None else f"{cell.writers} writers at once, {cell.calls} "

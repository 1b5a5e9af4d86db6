"""One run of the client benchmark: with writers, and without them in processes of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.client.footers import measure_footers
from benchmarks.client.imports import measure_imports
from benchmarks.client.operations import APPEND, DECLARED, DELETE, UPSERT
from benchmarks.client.results import APPENDS, SHARES, THIN, Cell, Results, Timing, busy_s, cell_of
from benchmarks.client.row_speed import measure_rows
from benchmarks.client.rows import ROWS
from benchmarks.client.systems import (
    FRAZIL_CATALOG,
    REST_CATALOG,
    SQL_CATALOG,
    THIN_CLIENT,
    System,
    Systems,
    running_systems,
)
from benchmarks.commit.bursts import Burst, Task, dealt
from benchmarks.commit.lanes import WorkNotDone
from benchmarks.histories import History
from benchmarks.measure import Effort
from benchmarks.results import machine
from benchmarks.run import say
from tests.support.server import running_server

ALL_OF_THEM_S: Final = 600.0
"""The time limit if a run asks for a number of calls: no call starts later than this."""
_APPENDING: Final = (FRAZIL_CATALOG, THIN_CLIENT, REST_CATALOG, SQL_CATALOG)


@dataclass(frozen=True, slots=True)
class Work:
    """What to measure."""

    lengths: tuple[int, ...]
    writers: tuple[int, ...]
    cell_s: float
    """The time for each system, length and number of writers, over all its turns."""
    turn_s: float
    calls_a_turn: dict[int, int]
    """Calls of each writer in a turn, by number of writers. Each turn uses a new table."""
    turns: int
    """The most turns."""
    racers: int
    """The number of concurrent writers in the measurement of success rates."""
    calls: dict[str, int]
    """The calls of each of these writers, by operation."""
    footers: Effort
    imports: int
    """New processes for each import."""
    rows: int
    """The rows of one append or scan."""
    row_calls: Effort


QUICK = Work(
    lengths=(10, 500),
    writers=(1, 8),
    cell_s=2.0,
    turn_s=2.0,
    calls_a_turn={1: 20, 8: 10},
    turns=3,
    racers=8,
    calls={APPEND: 20, DELETE: 5, UPSERT: 5},
    footers=Effort(warm_up_s=0.3, seconds=2.0, least=5, most=1_000, block=20, block_s=0.5),
    imports=5,
    rows=100_000,
    row_calls=Effort(warm_up_s=0.5, seconds=2.0, least=3, most=100, block=3, block_s=1.0),
)
FULL = Work(
    lengths=(10, 500),
    writers=(1, 8),
    cell_s=10.0,
    turn_s=5.0,
    calls_a_turn={1: 20, 8: 10},
    turns=8,
    racers=8,
    calls={APPEND: 20, DELETE: 10, UPSERT: 10},
    footers=Effort(warm_up_s=1.0, seconds=8.0, least=20, most=4_000, block=20, block_s=0.5),
    imports=20,
    rows=100_000,
    row_calls=Effort(warm_up_s=1.0, seconds=8.0, least=10, most=400, block=5, block_s=2.0),
)
SMOKE = Work(
    lengths=(10,),
    writers=(1,),
    cell_s=0.1,
    turn_s=0.5,
    calls_a_turn={1: 2},
    turns=1,
    racers=2,
    calls={APPEND: 1, DELETE: 1, UPSERT: 1},
    footers=Effort(warm_up_s=0.0, seconds=0.0, least=2, most=2, block=1, block_s=0.1),
    imports=1,
    rows=1_000,
    row_calls=Effort(warm_up_s=0.0, seconds=0.0, least=2, most=2, block=1, block_s=0.1),
)


def run(work: Work, scratch: Path) -> Results:
    about = machine()
    timings = measure_alone(work, scratch / "alone")
    cells = measure_writers(work, scratch / "writers")
    return Results(about, asdict(work), cells, timings)


def measure_alone(work: Work, scratch: Path) -> list[Timing]:
    """Measure what needs no writers, before any are started."""
    with running_server(scratch / "frazil") as server:
        say("imports in fresh processes")
        timings = list(measure_imports(server.url, work.imports))
        say("footers")
        timings += measure_footers(server.url, scratch / "footers", work.footers)
        say("rows")
        timings += measure_rows(server.url, work.rows, work.row_calls)
    return timings


def measure_writers(work: Work, scratch: Path) -> list[Cell]:
    with running_systems(scratch) as systems:
        say("a seed table by PyIceberg")
        histories = systems.histories(work.lengths)
        cells = list(_declared(systems, histories, work))
        cells += _appends(systems, histories, work)
        cells += _shares(systems, histories[0], work)
    return cells


# --- for a time, in turns -----------------------------------------------------------------------


def _appends(systems: Systems, histories: Sequence[History], work: Work) -> Iterator[Cell]:
    chosen = [systems.named(name) for name in _APPENDING]
    for history in histories:
        for writers in work.writers:
            say(f"appends at {history.length:,} snapshots, writers: {writers}")
            yield from _in_turns(APPENDS, chosen, APPEND, history, writers, work)


def _declared(systems: Systems, histories: Sequence[History], work: Work) -> Iterator[Cell]:
    thin = systems.named(THIN_CLIENT)
    for history in histories:
        for writers in work.writers:
            say(f"declared files at {history.length:,} snapshots, writers: {writers}")
            yield from _in_turns(THIN, [thin], DECLARED, history, writers, work)


def _in_turns(
    part: str,
    systems: Sequence[System],
    operation: str,
    history: History,
    writers: int,
    work: Work,
) -> Iterator[Cell]:
    """Run every system in turn, each time on a new table, so that disturbances affect all alike."""
    bursts: dict[str, list[Burst]] = {system.name: [] for system in systems}
    for _ in range(work.turns):
        for system in systems:
            done = bursts[system.name]
            if sum(map(busy_s, done)) < work.cell_s:
                most = work.calls_a_turn[writers]
                done.append(_append(system, operation, history, writers, work.turn_s, most))
    for system in systems:
        yield cell_of(
            part,
            system.name,
            operation,
            bursts[system.name],
            writers=writers,
            snapshots=history.length,
        )


def _append(
    system: System, operation: str, history: History, writers: int, seconds: float, most: int
) -> Burst:
    table = system.place.new_table(history)
    before = system.place.counts(table)
    os.sync()
    burst = system.run(Task(operation, dealt([table], writers), seconds, most))
    after = system.place.counts(table)
    # Declared files do not exist, so their rows are taken from the summary instead of read.
    counted = "records" if operation == DECLARED else "rows"
    _check(system, operation, burst, (after[counted] - before[counted]) / ROWS)
    return burst


def _check(system: System, operation: str, burst: Burst, found: float) -> None:
    # A commit may have succeeded although the client gave up on it.
    if not len(burst.samples) <= found <= len(burst.samples) + burst.failed:
        raise WorkNotDone(
            f"{system.name}, {operation}: {len(burst.samples)} calls succeeded and {burst.failed}"
            f" did not, but the table has what {found:g} would leave"
        )


# --- a number of calls by each of several writers at once ---------------------------------------


def _shares(systems: Systems, history: History, work: Work) -> Iterator[Cell]:
    for operation, calls in work.calls.items():
        for system in systems:
            if operation in system.operations:
                burst = _race(system, operation, history, work.racers, calls)
                cell = cell_of(
                    SHARES,
                    system.name,
                    operation,
                    [burst],
                    writers=work.racers,
                    snapshots=history.length if operation == APPEND else 1,
                )
                told = f"{cell.succeeded} of {cell.calls} succeed"
                say(f"{work.racers} x {calls} {operation}, {system.name}: {told}")
                yield cell


def _race(system: System, operation: str, history: History, writers: int, calls: int) -> Burst:
    if operation == APPEND:
        return _append(system, operation, history, writers, ALL_OF_THEM_S, calls)
    table = system.place.new_buckets(writers, calls)
    before = system.place.counts(table)["rows"]
    os.sync()
    burst = system.run(Task(operation, dealt([table], writers), ALL_OF_THEM_S, calls))
    after = system.place.counts(table)["rows"]
    _check(system, operation, burst, abs(after - before))
    return burst

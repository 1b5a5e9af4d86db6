"""One run over all systems, kinds of work and history lengths."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.catalogs import HttpCatalog
from benchmarks.histories import History, commits_for, make_history
from benchmarks.lanes import AppendLane, CommitLane, LoadLane
from benchmarks.measure import Block, Effort, Lane, interleave
from benchmarks.processes import peak_memory_bytes
from benchmarks.raw_costs import RawCost, RawLane, durable_file, sqlite_transaction
from benchmarks.results import (
    APPEND,
    COMMIT,
    LOAD_ALL,
    LOAD_FIRST,
    LOAD_REFS,
    Cell,
    Results,
    aims_of,
    cell_of,
    machine,
    raw_of,
)
from benchmarks.systems import (
    FRAZIL,
    FRAZIL_GZIP,
    SQL_CATALOG,
    System,
    running_frazil,
    running_systems,
)

LENGTHS = (10, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Work:
    """What to measure."""

    lengths: tuple[int, ...]
    operations: Effort
    """The effort of each lane for loadTable and commits."""
    appends: Effort
    """The effort for work through PyIceberg, which takes seconds with long histories."""
    restarts: int
    with_java: bool


DEFAULT = Work(
    LENGTHS,
    operations=Effort(warm_up_s=1.0, seconds=4.0, least=5, most=300, block=10, block_s=1.0),
    appends=Effort(warm_up_s=0.0, seconds=4.0, least=2, most=40, block=5, block_s=1.0),
    restarts=5,
    with_java=True,
)
FULL = Work(
    LENGTHS,
    operations=Effort(warm_up_s=5.0, seconds=30.0, least=30, most=2_000, block=20, block_s=2.0),
    appends=Effort(warm_up_s=1.0, seconds=30.0, least=10, most=200, block=5, block_s=2.0),
    restarts=20,
    with_java=True,
)
SMOKE = Work(
    (10,),
    operations=Effort(warm_up_s=0.0, seconds=0.0, least=4, most=4, block=2, block_s=1.0),
    appends=Effort(warm_up_s=0.0, seconds=0.0, least=2, most=2, block=1, block_s=1.0),
    restarts=1,
    with_java=False,
)


def run(work: Work, scratch: Path) -> Results:
    about = machine()
    with running_systems(scratch, with_java=work.with_java) as systems:
        say("a seed table by PyIceberg")
        writer = _named(systems, SQL_CATALOG).client
        seed = writer.seed(max(map(commits_for, work.lengths)))
        histories = [make_history(seed, length) for length in work.lengths]
        cells = [cell for history in histories for cell in _cells(systems, history, work, scratch)]
        memory = list(_memory(systems))
        sizes = [_size(systems, history) for history in histories]
        tables = {
            history.length: _named(systems, FRAZIL).new_table(history).name for history in histories
        }
    cells += _first_loads(scratch, tables, work.restarts)
    say("raw costs")
    raw = [raw_of(cost) for cost in _raw_costs(scratch / "raw", sizes, work)]
    effort = {name: value for name, value in asdict(work).items() if name != "lengths"}
    return Results(about, effort, sizes, memory, cells, raw, aims_of(cells))


def _cells(
    systems: Sequence[System], history: History, work: Work, scratch: Path
) -> Iterator[Cell]:
    # Once a server has read the metadata, its compression on disk makes no difference.
    readers = [system for system in systems if system.name != FRAZIL_GZIP]
    tables = [(system, system.new_table(history)) for system in readers]
    for operation, snapshots in ((LOAD_REFS, "refs"), (LOAD_ALL, "all")):
        loads = [LoadLane(system, table, snapshots) for system, table in tables]
        yield from _measured(operation, history, loads, work.operations)
    size_bytes = tables[0][1].metadata_bytes
    with ExitStack() as stack:
        disk = RawLane(stack, scratch / f"raw-{history.length}", size_bytes)
        commits: list[Lane] = [disk, *(CommitLane(system, history) for system in systems)]
        yield from _measured(COMMIT, history, commits, work.operations)
    appends = [AppendLane(system, history) for system in readers]
    yield from _measured(APPEND, history, appends, work.appends)


def _measured(
    operation: str, history: History, lanes: Sequence[Lane], effort: Effort
) -> Iterator[Cell]:
    say(f"{operation} at {history.length:,} snapshots")
    for system, block in interleave(lanes, effort).items():
        yield cell_of(operation, history.length, system, block)


def _first_loads(scratch: Path, tables: dict[int, str], restarts: int) -> Iterator[Cell]:
    """Measure the first load of a table by a server that has nothing in memory."""
    say("first loads after a start")
    blocks = {length: Block() for length in tables}
    for _ in range(restarts):
        with running_frazil(scratch) as server:
            catalog = HttpCatalog(server.url, server.process.pid)
            catalog.config()
            for length, table in tables.items():
                blocks[length].add(catalog.load(table, "refs", 1, 1.0))
            catalog.close()
    for length, block in blocks.items():
        yield cell_of(LOAD_FIRST, length, FRAZIL, block)


def _memory(systems: Iterable[System]) -> Iterator[dict[str, Any]]:
    for system in systems:
        if system.name != FRAZIL_GZIP:
            yield {"system": system.name, "peak_bytes": peak_memory_bytes(system.catalog.pid)}


def _size(systems: Sequence[System], history: History) -> dict[str, Any]:
    """Return the sizes of the metadata file that Frazil writes in a commit at this length."""
    sizes: dict[str, Any] = {
        "snapshots": history.length,
        "bytes_a_snapshot": round(history.bytes_a_snapshot),
    }
    for system in systems:
        if system.name in (FRAZIL, FRAZIL_GZIP):
            lane = CommitLane(system, history)
            lane.run(1, 1.0)
            name = "gzip_metadata_bytes" if system.name == FRAZIL_GZIP else "metadata_bytes"
            sizes[name] = lane.metadata_file_bytes()
    return sizes


def _raw_costs(folder: Path, sizes: list[dict[str, Any]], work: Work) -> Iterator[RawCost]:
    most, limit_s = work.operations.most, work.operations.seconds
    for size in sizes:
        for name in ("metadata_bytes", "gzip_metadata_bytes"):
            yield durable_file(folder, size[name], most, limit_s)
    yield sqlite_transaction(folder, most, limit_s)


def _named(systems: Sequence[System], name: str) -> System:
    return next(system for system in systems if system.name == name)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def with_lengths(work: Work, lengths: Sequence[int]) -> Work:
    return replace(work, lengths=tuple(sorted(lengths)))

"""One run: concurrent writers, long histories, many live files, many files at once, memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.commit.bursts import (
    APPEND,
    OPERATIONS,
    Burst,
    Task,
    dealt,
)
from benchmarks.commit.io_counts import resident_bytes
from benchmarks.commit.lanes import CommitLane, RawCommitLane, WorkNotDone
from benchmarks.commit.results import (
    FIRST,
    HISTORY,
    LIVE,
    MANY,
    RESTARTED,
    WRITERS,
    Cell,
    Memory,
    Raw,
    Results,
    cell_of,
    raw_of,
)
from benchmarks.commit.systems import (
    DUCKLAKE,
    DUCKLAKE_INLINED,
    FRAZIL,
    FRAZIL_FULL,
    FRAZIL_GZIP,
    FRAZIL_POSTGRES,
    JAVA_HADOOP,
    JAVA_PLAIN,
    SQL_CATALOG,
    Frazil,
    System,
    named,
    running_systems,
    start_frazil,
    tree_folder,
)
from benchmarks.commit.trees import Start, Tree, make_start, make_tree
from benchmarks.measure import Effort, Lane, interleave
from benchmarks.processes import peak_memory_bytes
from benchmarks.results import machine
from benchmarks.run import say

SHORTEST, FEWEST = 10, 10
"""Snapshots and files of a table that is almost empty."""
_OURS: Final = (FRAZIL, FRAZIL_GZIP, FRAZIL_FULL, FRAZIL_POSTGRES)
_UNLIMITED: Final = 1_000_000
_MOST_FILES: Final = {SQL_CATALOG: 100_000}
"""With a million files, each PyIceberg delete takes minutes and gigabytes."""


@dataclass(frozen=True, slots=True)
class Work:
    """What to measure."""

    writers: tuple[int, ...]
    many_table_writers: tuple[int, ...]
    tables: int
    """The number of tables in the measurements with many tables."""
    peer_writers: tuple[int, ...]
    """The numbers of writers at which the other systems are measured too."""
    cell_s: float
    lengths: tuple[int, ...]
    live: tuple[int, ...]
    ours: Effort
    peers: Effort
    warm_up_s: float
    """The warm-up time of a JVM."""
    many: int
    restarts: int
    """The number of restarts, and also of commits with many files."""
    restart_operations: tuple[str, ...]
    with_java: bool
    with_postgres: bool


QUICK = Work(
    writers=(1, 4, 16, 64),
    many_table_writers=(16,),
    tables=16,
    peer_writers=(1, 16),
    cell_s=2.0,
    lengths=(SHORTEST, 1_000, 10_000),
    live=(1_000, 100_000),
    ours=Effort(warm_up_s=0.0, seconds=1.0, least=20, most=100, block=20, block_s=0.5),
    peers=Effort(warm_up_s=0.0, seconds=1.0, least=1, most=20, block=10, block_s=0.5),
    warm_up_s=5.0,
    many=100_000,
    restarts=1,
    restart_operations=OPERATIONS,
    with_java=True,
    with_postgres=True,
)
FULL = Work(
    writers=(1, 4, 16, 64),
    many_table_writers=(1, 4, 16, 64),
    tables=16,
    peer_writers=(1, 4, 16, 64),
    cell_s=5.0,
    lengths=(SHORTEST, 1_000, 10_000),
    live=(1_000, 100_000, 1_000_000),
    ours=Effort(warm_up_s=0.0, seconds=3.0, least=60, most=300, block=20, block_s=1.0),
    peers=Effort(warm_up_s=0.0, seconds=5.0, least=1, most=100, block=10, block_s=1.0),
    warm_up_s=10.0,
    many=100_000,
    restarts=3,
    restart_operations=OPERATIONS,
    with_java=True,
    with_postgres=True,
)
SMOKE = Work(
    writers=(1, 4),
    many_table_writers=(4,),
    tables=2,
    peer_writers=(4,),
    cell_s=0.3,
    lengths=(SHORTEST,),
    live=(200,),
    ours=Effort(warm_up_s=0.0, seconds=0.0, least=2, most=4, block=2, block_s=0.5),
    peers=Effort(warm_up_s=0.0, seconds=0.0, least=1, most=1, block=1, block_s=0.5),
    warm_up_s=0.0,
    many=50,
    restarts=1,
    restart_operations=(APPEND,),
    with_java=False,
    with_postgres=False,
)


def run(work: Work, scratch: Path) -> Results:
    about = machine()
    say("trees of manifests")
    trees = {files: make_tree(tree_folder(scratch), files) for files in (FEWEST, *work.live)}
    starts = {length: make_start(trees[FEWEST], length) for length in work.lengths}
    with running_systems(
        scratch, with_java=work.with_java, with_postgres=work.with_postgres
    ) as systems:
        short = starts[min(starts)]
        _warm_up(systems, short, work)
        cells, raw = _histories(systems, starts, work, scratch / "raw")
        cells += _live(systems, trees, work)
        cells += _many(systems, short, work)
        cells += _writers(systems, short, work)
        restarted, memory = _restarted(systems, trees, work, scratch)
        cells += restarted
    return Results(
        about, asdict(work), [asdict(tree) for tree in trees.values()], cells, raw, memory
    )


def _warm_up(systems: Sequence[System], start: Start, work: Work) -> None:
    """Warm up the systems: a JVM compiles its hot code first, and the others import modules."""
    for system in systems:
        seconds = work.warm_up_s if system.name in (JAVA_HADOOP, JAVA_PLAIN) else 0.0
        for operation in system.operations:
            (table,) = system.new_tables(start, 1)
            most = _UNLIMITED if operation == APPEND else 1
            task = Task(operation, ((table,),), seconds, most, tree_files=start.tree.files)
            say(f"warm-up, {system.name}, {operation}")
            system.run(task)


# --- writers at once ----------------------------------------------------------------------------


def _writers(systems: Sequence[System], start: Start, work: Work) -> Iterator[Cell]:
    for tables, counts in ((1, work.writers), (work.tables, work.many_table_writers)):
        for writers in counts:
            for system in systems:
                if system.name == FRAZIL_FULL:
                    continue
                if system.name in _OURS or writers in work.peer_writers:
                    yield _at_once(system, start, tables, writers, work.cell_s)


def _at_once(system: System, start: Start, tables: int, writers: int, seconds: float) -> Cell:
    names = system.new_tables(start, tables)
    before = [system.totals(name)[1] for name in names]
    os.sync()
    burst = system.run(Task(APPEND, dealt(names, writers), seconds, _UNLIMITED))
    added = sum(system.totals(name)[1] - was for name, was in zip(names, before, strict=True))
    # A commit may have succeeded although the client gave up on it.
    if not len(burst.samples) <= added <= len(burst.samples) + burst.failed:
        raise WorkNotDone(f"{system.name}: {len(burst.samples)} commits, {added} files")
    say(f"{writers} writers, {tables} tables, {system.name}: {burst.commits_per_s():.1f} commits/s")
    return cell_of(
        WRITERS,
        system.name,
        APPEND,
        burst,
        snapshots=start.snapshots,
        files=start.tree.files,
        writers=writers,
        tables=tables,
        rate=True,
    )


# --- one writer, in turns -----------------------------------------------------------------------


def _histories(
    systems: Sequence[System], starts: dict[int, Start], work: Work, scratch: Path
) -> tuple[list[Cell], list[Raw]]:
    say(f"an append at {', '.join(f'{length:,}' for length in starts)} snapshots")
    lanes = [
        CommitLane(system, APPEND, start, warm=system.name in _OURS)
        for system in systems
        if system.name not in (FRAZIL_POSTGRES, DUCKLAKE_INLINED)
        for start in starts.values()
    ]
    with ExitStack() as stack:
        raw = {
            length: RawCommitLane(stack, scratch / str(length), start.metadata_bytes(scratch))
            for length, start in starts.items()
        }
        _interleave([*raw.values(), *lanes], work)
    cells = [cell for lane in lanes for cell in _lane_cells(HISTORY, lane)]
    return cells, [
        raw_of(length, lane.metadata_bytes, lane.seconds, lane.metadata_seconds)
        for length, lane in raw.items()
    ]


def _live(systems: Sequence[System], trees: dict[int, Tree], work: Work) -> Iterator[Cell]:
    chosen = [
        named(systems, name)
        for name in (FRAZIL, SQL_CATALOG, JAVA_HADOOP, JAVA_PLAIN, DUCKLAKE)
        if any(system.name == name for system in systems)
    ]
    for operation in OPERATIONS:
        say(f"{operation} at {', '.join(f'{files:,}' for files in work.live)} live files")
        sizes = (FEWEST, *work.live) if operation == APPEND else work.live
        lanes = [
            CommitLane(
                system, operation, make_start(trees[files], SHORTEST), warm=system.name in _OURS
            )
            for system in chosen
            if operation in system.operations
            for files in sizes
            if operation == APPEND or files <= _MOST_FILES.get(system.name, files)
        ]
        _interleave(list(lanes), work)
        for lane in lanes:
            yield from _lane_cells(LIVE, lane, with_first=lane.start.tree.files != FEWEST)


def _interleave(lanes: Sequence[Lane], work: Work) -> None:
    """Measure Frazil and the disk alone first and the other systems after them. The others may
    take seconds for each commit, so interleaving them would make a run many times longer."""
    ours = [lane for lane in lanes if not isinstance(lane, CommitLane) or lane.warm]
    interleave(ours, work.ours)
    interleave([lane for lane in lanes if lane not in ours], work.peers)


def _lane_cells(part: str, lane: CommitLane, *, with_first: bool = True) -> Iterator[Cell]:
    for name, burst in ((part, lane.burst), (FIRST, lane.first)):
        if burst.samples and (with_first or name != FIRST):
            yield cell_of(
                name,
                lane.owner.name,
                lane.operation,
                burst,
                snapshots=lane.start.snapshots,
                files=lane.start.tree.files,
            )


# --- many files in one commit -------------------------------------------------------------------


def _many(systems: Sequence[System], start: Start, work: Work) -> Iterator[Cell]:
    for system in systems:
        if system.name in (FRAZIL, SQL_CATALOG, JAVA_HADOOP, JAVA_PLAIN):
            say(f"{work.many:,} files in one commit, {system.name}")
            burst = Burst()
            for _ in range(work.restarts):
                (table,) = system.new_tables(start, 1)
                os.sync()
                burst.add(system.run(Task(APPEND, ((table,),), 60.0, 1, files=work.many)))
                if burst.failed or system.totals(table)[1] != start.tree.files + work.many:
                    raise WorkNotDone(f"{system.name}: {burst.first_error}")
            yield cell_of(
                MANY,
                system.name,
                APPEND,
                burst,
                snapshots=start.snapshots,
                files=start.tree.files,
                added_files=work.many,
            )


# --- after a restart ----------------------------------------------------------------------------


def _restarted(
    systems: Sequence[System], trees: dict[int, Tree], work: Work, scratch: Path
) -> tuple[list[Cell], list[Memory]]:
    """Measure a restarted server's first commit to a table, and the memory that it uses
    afterward."""
    frazil = named(systems, FRAZIL)
    assert isinstance(frazil, Frazil)
    bursts: dict[tuple[str, int], Burst] = {}
    memory: list[Memory] = []
    for files, tree in trees.items():
        say(f"the first commits after a restart at {files:,} live files")
        for operation in (APPEND,) if files == FEWEST else work.restart_operations:
            burst = bursts.setdefault((operation, files), Burst())
            for _ in range(work.restarts):
                (table,) = frazil.new_tables(make_start(tree, SHORTEST), 1)
                # Write to the table before the restart, so that the server can keep what it stores
                # on disk.
                frazil.run(Task(APPEND, ((table,),), 60.0, 1))
                frazil.restart(lambda: start_frazil(scratch))
                burst.add(
                    frazil.run(Task(operation, ((table,),), 60.0, 1, first=5, tree_files=files))
                )
        for operation in (APPEND,) if files == FEWEST else OPERATIONS:
            burst = frazil.run(Task(operation, ((table,),), 1.0, 20, first=20, tree_files=files))
            if burst.failed:
                raise WorkNotDone(f"{operation} at {files} live files: {burst.first_error}")
        pid = frazil.pid
        memory.append(Memory(FRAZIL, files, resident_bytes(pid), peak_memory_bytes(pid)))
    cells = [
        cell_of(RESTARTED, FRAZIL, operation, burst, snapshots=SHORTEST, files=files)
        for (operation, files), burst in bursts.items()
    ]
    return cells, memory

"""One run: plans in turns, first plans after a start, the steps of a cold plan, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.measure import Block, Effort
from benchmarks.planning.decoding import measure_decoding
from benchmarks.planning.engine import COLD, FOLDER, WARM
from benchmarks.planning.files import CLUSTERED, FINE, SCATTERED
from benchmarks.planning.filters import (
    FILTERS,
    LONG_RANGE,
    PARTITION,
    Filter,
    filter_for,
)
from benchmarks.planning.hosts import Host, running_host
from benchmarks.planning.java_planner import JavaPlanner, running_java_planner
from benchmarks.planning.lanes import PlanLane, measured
from benchmarks.planning.pyiceberg_planner import PLAN
from benchmarks.planning.results import (
    ENGINE_COLD,
    ENGINE_FOLDER,
    ENGINE_WARM,
    FIRSTS,
    JAVA,
    JAVA_CACHED,
    PLANS,
    PYICEBERG,
    SERVER_COLD,
    SERVER_FOLDER,
    SERVER_WARM,
    Cell,
    Memory,
    Results,
    Step,
    cell_of,
)
from benchmarks.planning.server import ServerPlanner, running_server_planner
from benchmarks.planning.steps import measure_steps
from benchmarks.planning.trees import BY_PYICEBERG, SMALL, Kind, Tree, make_trees
from benchmarks.processes import JAVA_SERVER_JAR
from benchmarks.results import machine
from benchmarks.run import say
from scripts.java import Java, JavaError, find_java

_ENGINE: Final = "benchmarks.planning.engine"
_PYICEBERG: Final = "benchmarks.planning.pyiceberg_planner"
_WARM_UPS: Final = 5
_WARM_UP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Work:
    """What to measure."""

    sizes: tuple[int, ...]
    by_pyiceberg: int
    """Files of the table whose manifests PyIceberg writes."""
    small: int
    """Files of the table with small manifests."""
    effort: Effort
    layouts: tuple[str, ...] = (CLUSTERED, SCATTERED, FINE)
    filters: tuple[str, ...] = FILTERS
    slow_files: int = 1_000_000
    """From this size on, PyIceberg and the server use only a few filters, because plans take
    minutes."""
    slow_filters: tuple[str, ...] = (PARTITION, LONG_RANGE)
    firsts: int = 1
    """The number of starts of a JVM and of a server for each size."""
    step_rounds: int = 2
    with_java: bool = True


QUICK = Work(
    sizes=(10_000, 100_000),
    by_pyiceberg=10_000,
    small=100_000,
    effort=Effort(warm_up_s=0.0, seconds=0.5, least=1, most=50, block=10, block_s=0.25),
)
FULL = Work(
    sizes=(10_000, 100_000, 1_000_000),
    by_pyiceberg=10_000,
    small=100_000,
    effort=Effort(warm_up_s=0.0, seconds=5.0, least=2, most=100, block=10, block_s=1.0),
    firsts=3,
    step_rounds=3,
)
SMOKE = Work(
    sizes=(300,),
    by_pyiceberg=200,
    small=300,
    effort=Effort(warm_up_s=0.0, seconds=0.0, least=1, most=1, block=1, block_s=0.1),
    layouts=(CLUSTERED, SCATTERED),
    step_rounds=1,
    with_java=False,
)


@dataclass(slots=True)
class Planners:
    """All running planners."""

    engine: Host
    pyiceberg: Host
    server: ServerPlanner
    java: JavaPlanner | None


def run(work: Work, scratch: Path) -> Results:
    about = machine()
    folder = scratch / "trees"
    kinds = [Kind(files, layout) for files in work.sizes for layout in work.layouts]
    kinds += [Kind(work.small, SMALL), Kind(work.by_pyiceberg, BY_PYICEBERG)]
    say(f"tables of {', '.join(f'{kind.files:,}' for kind in kinds)} files")
    trees = make_trees(folder, kinds)
    told = [_told(tree) for tree in trees]
    # What does not depend on the order of the files is measured on one table for each size.
    scattered = [tree for tree in trees if tree.kind.layout in (SCATTERED, SMALL, BY_PYICEBERG)]
    memory = measure_memory(scattered, scratch)
    steps, decoding = measure_alone(scattered, work)
    cells = measure_plans(trees, work, scratch)
    return Results(about, asdict(work), told, cells, steps, decoding, memory)


def _told(tree: Tree) -> dict[str, object]:
    return {
        "files": tree.kind.files,
        "layout": tree.kind.layout,
        "manifests": len(tree.manifests),
        "manifest_bytes": tree.manifest_bytes,
    }


def _java() -> Java | None:
    if not JAVA_SERVER_JAR.exists():
        say(f"{JAVA_SERVER_JAR.name} is not there, left out. Type: make bench-planning")
        return None
    try:
        return find_java()
    except JavaError as error:
        say(f"Java's planner is left out: {error}")
        return None


# --- alone --------------------------------------------------------------------------------------


def measure_memory(trees: Sequence[Tree], scratch: Path) -> list[Memory]:
    """Measure the memory for each table in a new process."""
    found = []
    for tree in trees:
        kind = tree.kind
        say(f"memory of {kind.files:,} files, {kind.layout}")
        with running_host(_ENGINE, str(scratch)) as host:
            told = host.memory(tree.metadata_location, filter_for(LONG_RANGE, kind.files))
        found.append(Memory(kind.files, kind.layout, tree.path_bytes, **told))
    return found


def measure_alone(trees: Sequence[Tree], work: Work) -> tuple[list[Step], list[Step]]:
    """Measure the steps of a cold plan and the ways to decode."""
    steps: list[Step] = []
    decoding: list[Step] = []
    for tree in trees:
        say(f"steps of a cold plan at {tree.kind.files:,} files, {tree.kind.layout}")
        steps += measure_steps(tree, work.step_rounds)
        if tree.kind.layout == SCATTERED:
            decoding += measure_decoding(tree, work.step_rounds)
    return steps, decoding


# --- in turns -----------------------------------------------------------------------------------


def measure_plans(trees: Sequence[Tree], work: Work, scratch: Path) -> list[Cell]:
    java = _java() if work.with_java else None
    cells = _plans(trees, work, scratch, java)
    scattered = [tree for tree in trees if tree.kind.layout == SCATTERED]
    return cells + _firsts(scattered, work, scratch, java)


def _plans(trees: Sequence[Tree], work: Work, scratch: Path, java: Java | None) -> list[Cell]:
    with ExitStack() as stack:
        planners = Planners(
            stack.enter_context(running_host(_ENGINE, str(scratch / "engine-cache"))),
            stack.enter_context(running_host(_PYICEBERG)),
            stack.enter_context(running_server_planner(scratch / "server", scratch / "trees")),
            None if java is None else stack.enter_context(running_java_planner(java)),
        )
        planners.server.create_namespace()
        cells: list[Cell] = []
        for tree in trees:
            planners.server.register(tree)
            for name in work.filters:
                cells += _planned(planners, tree, filter_for(name, tree.kind.files), work)
        return cells


def _planned(planners: Planners, tree: Tree, wanted: Filter, work: Work) -> Iterator[Cell]:
    kind = tree.kind
    is_slow = kind.files >= work.slow_files and wanted.name not in work.slow_filters
    lanes = _lanes(planners, tree, wanted, with_slow=not is_slow)
    blocks, files = measured(lanes, work.effort)
    told = {system: f"{min(block.seconds) * 1000:,.1f}" for system, block in blocks.items()}
    say(f"{kind.files:,} files, {kind.layout}, {wanted.name}: {files:,} found; ms: {told}")
    for system, block in blocks.items():
        yield cell_of(
            PLANS,
            system,
            block,
            files=kind.files,
            layout=kind.layout,
            filter=wanted.name,
            planned=files,
        )


def _lanes(planners: Planners, tree: Tree, wanted: Filter, *, with_slow: bool) -> list[PlanLane]:
    table = tree.metadata_location
    engine, java = planners.engine, planners.java

    def hosted(system: str, host: Host, way: str) -> PlanLane:
        return PlanLane(system, lambda most, limit_s: host.plan(table, wanted, way, most, limit_s))

    lanes = [
        hosted(ENGINE_WARM, engine, WARM),
        hosted(ENGINE_FOLDER, engine, FOLDER),
        hosted(ENGINE_COLD, engine, COLD),
    ]
    if with_slow:
        server = planners.server
        server.plan(tree.name, wanted, 1, 0.0)
        lanes.append(
            PlanLane(
                SERVER_WARM, lambda most, limit_s: server.plan(tree.name, wanted, most, limit_s)
            )
        )
        lanes.append(hosted(PYICEBERG, planners.pyiceberg, PLAN))
    if java is not None:
        lanes += [_java_lane(java, table, wanted, cached=cached) for cached in (False, True)]
    return lanes


def _java_lane(java: JavaPlanner, table: str, wanted: Filter, *, cached: bool) -> PlanLane:
    java.plan(table, wanted, cached=cached, most=_WARM_UPS, limit_s=_WARM_UP_S)
    return PlanLane(
        JAVA_CACHED if cached else JAVA,
        lambda most, limit_s: java.plan(table, wanted, cached=cached, most=most, limit_s=limit_s),
    )


# --- after a start ------------------------------------------------------------------------------


def _firsts(trees: Sequence[Tree], work: Work, scratch: Path, java: Java | None) -> list[Cell]:
    """Measure first plans with a long range, which partitions cannot decide, so all statistics
    are read."""
    cells: list[Cell] = []
    for tree in trees:
        wanted = filter_for(LONG_RANGE, tree.kind.files)
        say(f"first plans at {tree.kind.files:,} files, {tree.kind.layout}")
        lanes = [
            _first_of_server(SERVER_COLD, tree, wanted, scratch, ""),
            _first_of_server(SERVER_FOLDER, tree, wanted, scratch, str(scratch / "kept")),
        ]
        # A server is started here only to fill the folder.
        lanes[1].plan(1, 0.0)
        if java is not None:
            lanes.append(_first_of_java(java, tree, wanted))
        effort = Effort(0.0, 0.0, work.firsts, work.firsts, 1, 0.0)
        blocks, files = measured(lanes, effort)
        cells += [
            cell_of(
                FIRSTS,
                system,
                block,
                files=tree.kind.files,
                layout=tree.kind.layout,
                filter=wanted.name,
                planned=files,
            )
            for system, block in blocks.items()
        ]
    return cells


def _first_of_server(
    system: str, tree: Tree, wanted: Filter, scratch: Path, cache_folder: str
) -> PlanLane:
    def plan(most: int, limit_s: float) -> tuple[Block, int]:
        running = running_server_planner(
            scratch / "server", scratch / "trees", cache_folder=cache_folder
        )
        with running as planner:
            planner.load(tree.name)
            return planner.plan(tree.name, wanted, 1, 0.0)

    return PlanLane(system, plan)


def _first_of_java(java: Java, tree: Tree, wanted: Filter) -> PlanLane:
    def plan(most: int, limit_s: float) -> tuple[Block, int]:
        with running_java_planner(java) as planner:
            return planner.plan(tree.metadata_location, wanted, cached=False, most=1, limit_s=0.0)

    return PlanLane(JAVA, plan)

"""Compare whole commits and plans with and without each special path through the manifest code.

The work is done in process, so that a ratio says what a user gains. Runs with and without the path
alternate. The figures are medians of the CPU time of the process.

    python -m benchmarks.manifest_paths [--quick] [--only TEXT] [--rounds N] [--output FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import manifest_paths_off as off
from benchmarks.manifest_paths_off import Switch
from benchmarks.manifest_paths_tables import Table, open_table
from benchmarks.planning.engine import request_for
from benchmarks.planning.files import CLUSTERED, SCATTERED
from benchmarks.planning.filters import LONG_RANGE, MANY_TEXTS, NO_FILTER, PARTITION, filter_for
from benchmarks.planning.trees import SMALL, Kind, make_tree
from benchmarks.results import RESULTS, machine
from frazil.format.metadata.metadata_files import decode_metadata_file
from frazil.format.metadata.table_metadata import TableMetadata
from frazil.plan.plan_answers import TaskWriter
from frazil.plan.scan_requests import resolve_scan
from frazil.plan.scan_walk import Walk
from frazil.read.manifest_cache import ManifestCache, ManifestReader
from frazil.store.local_store import LocalStore

OUTPUT: Final = RESULTS / "manifest_paths.json"
_CACHE_BYTES: Final = 4 << 30
_MAX_METADATA_BYTES: Final = 1 << 30
_FILES_OF_A_SMALL_MANIFEST: Final = 16
_APPENDS: Final = 10

Run = Callable[[], object]
Prepare = Callable[[], Run]
"""Does what is not measured and returns what is."""


@dataclass(frozen=True, slots=True)
class Sizes:
    files: int
    """Live files of a large table."""
    manifests: int
    """Manifests of a table that has many small ones."""
    batch: int
    """Files of a large append."""
    rounds: int


FULL: Final = Sizes(files=100_000, manifests=1_000, batch=10_000, rounds=7)
QUICK: Final = Sizes(files=20_000, manifests=200, batch=2_000, rounds=3)
SMOKE: Final = Sizes(files=400, manifests=16, batch=20, rounds=1)


@dataclass(frozen=True, slots=True)
class Case:
    path: str
    work: str
    make: Callable[[], Prepare]
    """Makes the table."""
    turn_off: Switch


@dataclass(frozen=True, slots=True)
class Measured:
    path: str
    work: str
    on_ms: float
    off_ms: float
    ratio: float
    """How many times as long the work takes without the path."""
    each_on_ms: tuple[float, ...]
    each_off_ms: tuple[float, ...]


# --- plans ---------------------------------------------------------------------------------------


class Plans:
    """Plans tables in process. Each table is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[tuple[int, str], TableMetadata] = {}
        self._store = LocalStore()

    def cold(self, files: int, layout: str, name: str, *, tasks: bool = False) -> Prepare:
        """Plan with empty caches."""
        metadata = self._table(files, layout)
        plan = partial(self._plan, metadata, filter_for(name, files), tasks)
        return lambda: partial(plan, ManifestCache(_CACHE_BYTES))

    def warm(self, files: int, layout: str, name: str, *, tasks: bool = False) -> Prepare:
        """Plan what was planned before."""
        metadata = self._table(files, layout)

        def prepare() -> Run:
            plan = partial(
                self._plan, metadata, filter_for(name, files), tasks, ManifestCache(_CACHE_BYTES)
            )
            plan()
            return plan

        return prepare

    def restarted(self, files: int, layout: str, name: str, *, tasks: bool = False) -> Prepare:
        """Plan with what an earlier process left in the cache folder."""
        metadata = self._table(files, layout)
        folder = self._folder / f"cache-{files}-{layout}"
        plan = partial(self._plan, metadata, filter_for(name, files), tasks)
        cache = ManifestCache(_CACHE_BYTES, folder)
        plan(cache)
        cache.close()
        return lambda: partial(plan, ManifestCache(_CACHE_BYTES, folder))

    def _table(self, files: int, layout: str) -> TableMetadata:
        if (files, layout) not in self._tables:
            with off.manifests_of(_FILES_OF_A_SMALL_MANIFEST):
                tree = make_tree(self._folder, Kind(files, layout))
            content = Path(tree.metadata_location.removeprefix("file://")).read_bytes()
            self._tables[files, layout] = decode_metadata_file(content, _MAX_METADATA_BYTES)
        return self._tables[files, layout]

    def _plan(self, metadata: TableMetadata, wanted: Any, tasks: bool, cache: ManifestCache) -> int:
        reader = ManifestReader(cache, self._store, lambda _: None)
        walk = Walk(resolve_scan(metadata, request_for(wanted)), reader)
        pieces = list(walk.data())
        if tasks:
            return len(TaskWriter(walk, reader).write(pieces).tasks)
        return sum(len(piece.rows) for piece in pieces)


def plan_cases(plans: Plans, sizes: Sizes) -> Iterator[Case]:
    files = sizes.files
    small = sizes.manifests * _FILES_OF_A_SMALL_MANIFEST

    def case(path: str, work: str, turn_off: Switch, make: Callable[[], Prepare]) -> Case:
        return Case(path, work, make, turn_off)

    def cold(name: str, *, tasks: bool = False) -> Callable[[], Prepare]:
        return lambda: plans.cold(files, CLUSTERED, name, tasks=tasks)

    def warm(layout: str, name: str, *, tasks: bool = False) -> Callable[[], Prepare]:
        return lambda: plans.warm(files, layout, name, tasks=tasks)

    def restarted(name: str, *, tasks: bool = False) -> Callable[[], Prepare]:
        return lambda: plans.restarted(files, CLUSTERED, name, tasks=tasks)

    yield case("rows in lockstep", "cold plan, partition", off.lockstep_rows, cold(PARTITION))
    yield case(
        "statistics in lockstep", "cold plan, long range", off.lockstep_statistics, cold(LONG_RANGE)
    )
    yield case(
        "columns and statistics decoded together",
        "cold plan, long range",
        off.decoded_together,
        cold(LONG_RANGE),
    )
    small_plan = "cold plan of small manifests"
    for name, work in ((LONG_RANGE, small_plan), (NO_FILTER, f"{small_plan}, {NO_FILTER}")):
        yield case(
            "skipping several fields at once",
            work,
            off.skipping_patterns,
            partial(plans.cold, small, SMALL, name),
        )
    yield case(
        "statistics of small manifests as files",
        small_plan,
        off.files_of_small_manifests,
        lambda: plans.cold(small, SMALL, LONG_RANGE),
    )
    yield case("columns on disk", "plan after a restart", off.columns_on_disk, restarted(PARTITION))
    yield case(
        "statistics on disk", "plan after a restart", off.statistics_on_disk, restarted(LONG_RANGE)
    )
    yield case(
        "statistics on disk",
        "plan with tasks after a restart",
        off.statistics_on_disk,
        restarted(LONG_RANGE, tasks=True),
    )
    yield case(
        "reading columns",
        "warm plan with tasks",
        off.reading,
        warm(CLUSTERED, LONG_RANGE, tasks=True),
    )
    yield case(
        "reading columns in lockstep",
        "cold plan with tasks",
        off.lockstep_reading,
        cold(LONG_RANGE, tasks=True),
    )
    yield case(
        "vectorized filters",
        "warm plan, long range",
        off.vectorized_filters,
        warm(CLUSTERED, LONG_RANGE),
    )
    yield case("ranked literals", "warm plan, IN", off.ranked_literals, warm(SCATTERED, MANY_TEXTS))
    yield case(
        "partition summaries cached",
        "warm plan of small manifests",
        off.cached_summaries,
        lambda: plans.warm(small, SMALL, PARTITION),
    )
    yield case(
        "constant columns",
        "warm plan, long range",
        off.constant_columns,
        warm(CLUSTERED, LONG_RANGE),
    )


# --- commits -------------------------------------------------------------------------------------


class Commits:
    """Commits to tables of catalogs in this process. Each table is made once."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self._tables: dict[tuple[int, int], Table] = {}
        self._new_files = itertools.count(10_000_000, 100_000)
        self._removed_files = itertools.count(3, 2)

    def appends(self, manifests: int, files: int, times: int) -> Prepare:
        """Append to a table of many small manifests."""
        table = self._table(manifests * 10, 10)

        def prepare() -> Run:
            bodies = [table.append(next(self._new_files), files) for _ in range(times)]
            return partial(table.commit_all, bodies)

        return prepare

    def removals(self, files: int) -> Prepare:
        """Remove one file at a time, always from the manifest of the first files."""
        table = self._table(files, files)
        table.commit(table.remove(next(self._removed_files)))

        def prepare() -> Run:
            return partial(table.commit, table.remove(next(self._removed_files)))

        return prepare

    def narrow_filters(self, files: int) -> Prepare:
        """Delete by a filter of one small partition, which no file matches, with an empty cache."""
        table = self._table(files, files)
        values = itertools.count(1)

        def prepare() -> Run:
            body = table.remove_by_filter(50, next(values))
            table.forget_manifests()
            return partial(table.commit, body)

        return prepare

    def _table(self, files: int, files_a_manifest: int) -> Table:
        key = files, files_a_manifest
        if key not in self._tables:
            folder = self._folder / f"commits-{files}-{files_a_manifest}"
            table = self._stack.enter_context(open_table(folder, files, files_a_manifest))
            table.commit(table.append(next(self._new_files), 1))
            self._tables[key] = table
        return self._tables[key]


def commit_cases(commits: Commits, sizes: Sizes) -> Iterator[Case]:
    one_file = f"{_APPENDS} appends of a file"
    batch = f"append of {sizes.batch:,} files"
    removal = "removal of a file"

    def append_one() -> Prepare:
        return commits.appends(sizes.manifests, 1, _APPENDS)

    def append_batch() -> Prepare:
        return commits.appends(sizes.manifests, sizes.batch, 1)

    def remove() -> Prepare:
        return commits.removals(sizes.files)

    yield Case("new manifests", one_file, append_one, off.new_manifests)
    yield Case("path index", one_file, append_one, off.path_index_levels)
    yield Case("blocks of the manifest list", one_file, append_one, off.list_blocks)
    yield Case("frames of counts", batch, append_batch, off.count_frames)
    yield Case("cached numbers", batch, append_batch, off.cached_numbers)
    yield Case("columns of copied entries", removal, remove, off.columns_of_copies)
    yield Case("copied blocks", removal, remove, off.copied_blocks)
    yield Case("copies within one schema", removal, remove, off.same_schema_copies)
    yield Case(
        "statistics of single rows",
        "delete by a narrow filter",
        lambda: commits.narrow_filters(sizes.files // 10),
        off.single_rows,
    )


# --- measuring -----------------------------------------------------------------------------------


def compare(case: Case, rounds: int) -> Measured:
    prepare = case.make()
    on: list[float] = []
    without: list[float] = []
    for number in range(rounds):
        # The order alternates, so that a slower second run does not count for one side.
        for times in (on, without) if number % 2 else (without, on):
            with ExitStack() as stack:
                if times is without:
                    stack.enter_context(case.turn_off())
                run = prepare()
                start = time.process_time()
                run()
                times.append(round((time.process_time() - start) * 1_000, 3))
    on_ms, off_ms = statistics.median(on), statistics.median(without)
    ratio = round(off_ms / max(on_ms, 0.001), 2)
    return Measured(case.path, case.work, on_ms, off_ms, ratio, tuple(on), tuple(without))


def measure(sizes: Sizes, only: str = "") -> Iterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="manifest-paths-") as scratch, ExitStack() as stack:
        plans = Plans(Path(scratch) / "plans")
        commits = Commits(stack, Path(scratch))
        for case in (*plan_cases(plans, sizes), *commit_cases(commits, sizes)):
            if only in f"{case.path} {case.work}":
                yield compare(case, sizes.rounds)


def row(one: Measured) -> str:
    return f"{one.path:40} {one.work:32}{one.on_ms:10.1f}{one.off_ms:10.1f}{one.ratio:8.2f}"


def write_results(measured: Sequence[Measured], sizes: Sizes, output: Path) -> None:
    result = {
        "machine": machine(),
        "sizes": asdict(sizes),
        "measured": [asdict(one) for one in measured],
    }
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="measure smaller tables")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure what has this name")
    parser.add_argument("--rounds", type=int, help="measure so often")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    if options.rounds:
        sizes = Sizes(sizes.files, sizes.manifests, sizes.batch, options.rounds)
    print(f"{'path':40} {'work':32}{'on, ms':>10}{'off, ms':>10}{'ratio':>8}")
    measured = []
    for one in measure(sizes, options.only):
        measured.append(one)
        print(row(one), flush=True)
    write_results(measured, sizes, options.output)


if __name__ == "__main__":
    main()

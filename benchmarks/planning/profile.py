"""Profiles the engine in warm plans, with a line for each function."""

from __future__ import annotations

import cProfile
import io
import pstats
import time
from pathlib import Path
from typing import Final

from benchmarks.planning.engine import WARM, EnginePlanner
from benchmarks.planning.files import CLUSTERED, FINE, SCATTERED
from benchmarks.planning.filters import FILTERS, filter_for
from benchmarks.planning.trees import Kind, make_trees

PLANS: Final = 10
LINES: Final = 25


def profile(scratch: Path, files: int) -> str:
    trees = make_trees(scratch, [Kind(files, layout) for layout in (CLUSTERED, SCATTERED, FINE)])
    told = []
    for tree in trees:
        planner = EnginePlanner(scratch)
        for name in FILTERS:
            wanted = filter_for(name, files)
            plan = planner.prepare(tree.metadata_location, wanted, WARM)
            # CPU time of this thread, so that other load on the machine does not count.
            profiler = cProfile.Profile(time.thread_time)
            profiler.enable()
            for _ in range(PLANS):
                plan()
            profiler.disable()
            told.append(f"{tree.kind.layout}, {name}, {PLANS} plans\n{_told(profiler)}")
    return "\n".join(told)


def _told(profiler: cProfile.Profile) -> str:
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(LINES)
    return text.getvalue()

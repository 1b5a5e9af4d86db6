"""Profiles the server's CPU time in a commit, with a line for each of its own functions."""

from __future__ import annotations

import pstats
import signal
import sys
from pathlib import Path
from typing import Final

from benchmarks.commit.bursts import APPEND, Task, dealt
from benchmarks.commit.systems import FRAZIL, Frazil, tables_below, tree_folder
from benchmarks.commit.trees import make_start, make_tree
from benchmarks.histories import file_url
from tests.support.server import running_server

SECONDS: Final = 4.0
_LEAST_SHARE: Final = 0.01
_COMMAND: Final = (sys.executable, "-m", "benchmarks.commit.profiled")
_HEAD: Final = "own us  with what it calls  calls  function (for a commit)"


def profile(scratch: Path, writers: int) -> str:
    start = make_start(make_tree(tree_folder(scratch), 10), 10)
    output = scratch / "profile"
    root = Path(__file__).resolve().parent.parent.parent
    environment = {"BENCH_PROFILE": str(output), "PYTHONPATH": str(root)}
    flags = ("--allow-location", file_url(scratch))
    with running_server(scratch / "frazil", *flags, env=environment, command=_COMMAND) as server:
        frazil = Frazil(FRAZIL, server, tables_below(server.warehouse, bare_paths=False))
        frazil.create_namespace()
        tables = frazil.new_tables(start, 1)
        frazil.run(Task(APPEND, (tuple(tables),), 1.0, 3))
        server.process.send_signal(signal.SIGUSR1)
        burst = frazil.run(Task(APPEND, dealt(tables, writers), SECONDS, 1_000_000, first=10))
    return _told(pstats.Stats(str(output)), len(burst.samples), writers)


def _told(stats: pstats.Stats, commits: int, writers: int) -> str:
    rows = [
        (own, cumulative, calls, _name(*function))
        for function, (_, calls, own, cumulative, _) in stats.stats.items()  # type: ignore[attr-defined]
    ]
    total = sum(own for own, *_ in rows)
    shown = sorted((row for row in rows if row[1] > _LEAST_SHARE * total), key=lambda row: -row[1])
    lines = [
        f"{own / commits * 1e6:7.0f} {cumulative / commits * 1e6:19.0f} {calls / commits:6.1f}"
        f"  {name}"
        for own, cumulative, calls, name in shown
        if name.startswith(("frazil/", "~"))
    ]
    said = f"{commits} commits by {writers} writers, {total / commits * 1000:.2f} ms of CPU each"
    return "\n".join([f"{said}, the profiler's own included", _HEAD, *lines])


def _name(path: str, line: int, function: str) -> str:
    _, inside, rest = path.rpartition("/src/frazil/")
    return f"frazil/{rest}:{line} {function}" if inside else f"{path}:{line} {function}"

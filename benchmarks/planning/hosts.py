"""Planners in Python, each in its own process: `python -m benchmarks.planning.hosts`.

The host reads a question per line and answers each with a line. Time is measured here, only
around the plan.
"""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from benchmarks.measure import Block
from benchmarks.planning.filters import Filter

ROOT = Path(__file__).resolve().parent.parent.parent
_STOP_S = 60


class Planner(Protocol):
    """What `open_planner` of a hosted module returns."""

    def prepare(self, table: str, wanted: Filter, way: str) -> Callable[[], int]:
        """Prepare one plan. The returned function only plans, and returns the number of files."""
        ...

    def memory(self, table: str, wanted: Filter) -> dict[str, int]: ...


# --- the side that asks -------------------------------------------------------------------------


class Host:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def plan(
        self, table: str, wanted: Filter, way: str, most: int, limit_s: float
    ) -> tuple[Block, int]:
        """Return the samples and the number of files, which is the same in all of them."""
        found = self._ask("plan", table, wanted, way=way, most=most, limit_s=limit_s)
        block = Block(found["seconds"], found["cpu_s"])
        return block, found["files"]

    def memory(self, table: str, wanted: Filter) -> dict[str, int]:
        answer: dict[str, int] = self._ask("memory", table, wanted)
        return answer

    def _ask(self, do: str, table: str, wanted: Filter, **arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        question = {"do": do, "table": table, "filter": asdict(wanted), **arguments}
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError("the planner's process ended: see its error")
        return json.loads(line)


@contextmanager
def running_host(module: str, *arguments: str) -> Iterator[Host]:
    """Start a host. `module` is the full name of a module with `open_planner`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.planning.hosts", module, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Host(process)
    finally:
        process.communicate(timeout=_STOP_S)  # the host ends when its input ends


# --- the host -----------------------------------------------------------------------------------


def main() -> None:
    planner: Planner = importlib.import_module(sys.argv[1]).open_planner(*sys.argv[2:])
    for line in sys.stdin:
        question = json.loads(line)
        wanted = Filter(**question.pop("filter"))
        do, table = question.pop("do"), question.pop("table")
        answer = (
            planner.memory(table, wanted)
            if do == "memory"
            else _planned(planner, table, wanted, **question)
        )
        print(json.dumps(answer), flush=True)


def _planned(
    planner: Planner, table: str, wanted: Filter, way: str, most: int, limit_s: float
) -> dict[str, Any]:
    seconds: list[float] = []
    found: set[int] = set()
    cpu_s = 0.0
    until = time.perf_counter() + limit_s
    while not seconds or (len(seconds) < most and time.perf_counter() < until):
        plan = planner.prepare(table, wanted, way)
        # Garbage of the previous sample must not count for this one.
        gc.collect()
        cpu_before, started = time.process_time(), time.perf_counter()
        files = plan()
        seconds.append(time.perf_counter() - started)
        cpu_s += time.process_time() - cpu_before
        found.add(files)
    (files,) = found
    return {"seconds": seconds, "cpu_s": cpu_s, "files": files}


if __name__ == "__main__":
    main()

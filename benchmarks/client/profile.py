"""Profiles an append through FrazilCatalog in the client, with a line for each function."""

from __future__ import annotations

import cProfile
import io
import pstats
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.client.systems import FRAZIL_CATALOG, running_systems

APPENDS: Final = 50
LINES: Final = 40
_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TIMEOUT_S: Final = 300


def profile(scratch: Path, snapshots: int) -> str:
    with running_systems(scratch) as systems:
        (history,) = systems.histories([snapshots])
        table = systems.named(FRAZIL_CATALOG).place.new_table(history)
        command = [sys.executable, "-m", "benchmarks.client.profile", systems.server.url, table]
        done = subprocess.run(
            command, cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=_TIMEOUT_S
        )
        return done.stdout


def main() -> None:
    """Profile appends in a process that does nothing else."""
    from pyiceberg.catalog import load_catalog

    from benchmarks.client.rows import small_table
    from benchmarks.histories import NAMESPACE

    uri, name = sys.argv[1:]
    catalog = load_catalog(
        "bench", **{"py-catalog-impl": "frazil.pyiceberg.FrazilCatalog", "uri": uri}
    )
    table, rows = catalog.load_table((NAMESPACE, name)), small_table()
    # The first append also imports modules and connects.
    table.append(rows)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(APPENDS):
        table.append(rows)
    profiler.disable()
    for order in ("tottime", "cumulative"):
        print(_told(profiler, order))


def _told(profiler: cProfile.Profile, order: str) -> str:
    text = io.StringIO()
    stats = pstats.Stats(profiler, stream=text)
    stats.sort_stats(order).print_stats(LINES)
    return text.getvalue()


if __name__ == "__main__":
    main()

"""Plan scans of tables by seed: python -m tests.oracle.plans 17 0-99 [--show]."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scripts.java import find_java
from tests.oracle.plans.conftest import opened_world
from tests.oracle.seeds import seeds_of
from tests.support.spark import start_spark


def main(arguments: list[str]) -> int:
    seeds = seeds_of(arguments)
    if not seeds:
        print(__doc__)
        return 2
    listed: Counter[str] = Counter()
    failed: list[int] = []
    scans = by_pyiceberg = files = 0
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(find_java(), Path(folder) / "spark")
        with opened_world(spark, Path(folder)) as world:
            started = time.monotonic()
            for seed in seeds:
                run = world.run_seed(seed)
                scans += run.scans
                by_pyiceberg += run.pyiceberg_scans
                files += run.planned_files
                if run.unlisted():
                    failed.append(seed)
                if run.unlisted() or "--show" in arguments:
                    print(run.shown(), end="\n\n")
            listed = world.listed
            seconds = time.monotonic() - started
        spark.stop()
    print(
        f"{len(seeds)} tables, {scans} scans ({by_pyiceberg} by PyIceberg too), {files} files, "
        f"{seconds / len(seeds):.2f} s each"
    )
    print(f"failed: {failed}")
    print(f"listed differences: {dict(listed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Run histories by seed: python -m tests.oracle.commits 17 0-99 [--show]."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scripts.java import find_java
from tests.oracle.commits.histories import World
from tests.oracle.commits.java_side import Java
from tests.oracle.drivers import open_driver
from tests.oracle.seeds import seeds_of
from tests.support.spark import start_spark


def main(arguments: list[str]) -> int:
    seeds = seeds_of(arguments)
    if not seeds:
        print(__doc__)
        return 2
    listed: Counter[str] = Counter()
    failed, crossed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(find_java(), Path(folder) / "spark")
        with open_driver(Path(folder)) as driver:
            world = World(Java(spark), driver)
            started = time.monotonic()
            for seed in seeds:
                history = world.run_seed(seed)
                listed += history.listed()
                crossed += history.crossed_at is not None
                if history.unlisted():
                    failed.append(seed)
                if history.unlisted() or "--show" in arguments:
                    print(history.shown(), end="\n\n")
            seconds = time.monotonic() - started
        spark.stop()
    print(f"{len(seeds)} histories, {crossed} crossed, {seconds / len(seeds):.2f} s each")
    print(f"failed: {failed}")
    print(f"listed differences: {dict(listed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

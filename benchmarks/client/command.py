"""Measures the client next to stock PyIceberg: `python -m benchmarks client`.

Prints its tables and writes every figure as JSON to benchmarks/results/. It asserts nothing, but
prints each aim next to the measured value.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.client.profile import profile
from benchmarks.client.report import publish, report
from benchmarks.client.results import LATEST, read_results
from benchmarks.client.run import FULL, QUICK, run
from benchmarks.commands import PAGE, add_places, keep


def main(arguments: Sequence[str]) -> None:
    options = parser().parse_args(arguments)
    if options.publish is not None:
        publish(read_results(options.publish), PAGE)
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="frazil-bench-") as scratch:
        if options.profile is not None:
            print(profile(Path(scratch), options.profile))
        else:
            work = FULL if options.full else QUICK
            keep(lambda: run(work, Path(scratch)), report, options.output)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks client", description=(__doc__ or "").splitlines()[0]
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="under 4 minutes (what it does)")
    effort.add_argument("--full", action="store_true", help="more of everything; 12 minutes")
    add_places(parser, LATEST)
    parser.add_argument(
        "--profile",
        type=int,
        metavar="SNAPSHOTS",
        help="measure nothing else: where FrazilCatalog's time goes in an append",
    )
    return parser

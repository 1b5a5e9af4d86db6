"""Measures scan planning next to PyIceberg and Java: `python -m benchmarks planning`.

Prints its tables and writes every figure as JSON to benchmarks/results/. It prints each aim next
to the measured value and asserts none of them. A run fails only if planners do not find the same
files.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.commands import PAGE, add_places, keep
from benchmarks.planning.profile import profile
from benchmarks.planning.report import publish, report
from benchmarks.planning.results import LATEST, read_results
from benchmarks.planning.run import FULL, QUICK, Work, run


def main(arguments: Sequence[str]) -> None:
    options = parser().parse_args(arguments)
    if options.publish is not None:
        publish(read_results(options.publish), PAGE)
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="frazil-bench-") as scratch:
        if options.profile is not None:
            print(profile(Path(scratch), options.profile))
        else:
            work = _work(options)
            keep(lambda: run(work, Path(scratch)), report, options.output)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks planning", description=(__doc__ or "").splitlines()[0]
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="about 10 minutes (what it does)")
    effort.add_argument("--full", action="store_true", help="a million files too; an hour")
    parser.add_argument("--without-java", action="store_true", help="leave Java's planner out")
    add_places(parser, LATEST)
    parser.add_argument(
        "--profile",
        type=int,
        metavar="FILES",
        help="measure nothing else: where the time of warm plans goes",
    )
    return parser


def _work(options: argparse.Namespace) -> Work:
    work = FULL if options.full else QUICK
    return replace(work, with_java=work.with_java and not options.without_java)

"""Measures commits of declared files next to other systems: `python -m benchmarks commit`.

Prints its tables and writes every figure as JSON to benchmarks/results/. It asserts nothing, but
prints each aim next to the measured value.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.commands import PAGE, add_places, keep
from benchmarks.commit.profile import profile
from benchmarks.commit.report import publish, report
from benchmarks.commit.results import LATEST, read_results
from benchmarks.commit.run import FULL, QUICK, Work, run


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
        prog="python -m benchmarks commit", description=(__doc__ or "").splitlines()[0]
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="under 6 minutes (what it does)")
    effort.add_argument(
        "--full", action="store_true", help="all writers, a million live files; half an hour"
    )
    parser.add_argument("--without-java", action="store_true", help="leave the Java client out")
    parser.add_argument("--without-postgres", action="store_true", help="leave DuckLake out")
    add_places(parser, LATEST)
    parser.add_argument(
        "--profile",
        type=int,
        metavar="WRITERS",
        help="measure nothing else: where the server's CPU goes with so many writers",
    )
    return parser


def _work(options: argparse.Namespace) -> Work:
    work = FULL if options.full else QUICK
    return replace(
        work,
        with_java=work.with_java and not options.without_java,
        with_postgres=work.with_postgres and not options.without_postgres,
    )

"""Measures maintenance next to Iceberg: `python -m benchmarks maintenance`.

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
from benchmarks.maintenance.report import publish, report
from benchmarks.results import RESULTS
from benchmarks.spark.results import read_results

LATEST = RESULTS / "maintenance.json"


def main(arguments: Sequence[str]) -> None:
    options = parser().parse_args(arguments)
    if options.publish is not None:
        publish(read_results(options.publish), PAGE)
        return
    # Only a measurement needs Spark, so import it here.
    from benchmarks.maintenance.run import FULL, QUICK, run

    work = replace(FULL if options.full else QUICK, only=tuple(options.only or ()))
    if options.rows is not None:
        work = replace(work, rows=options.rows)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="frazil-bench-") as scratch:
        keep(lambda: run(work, Path(scratch)), report, options.output)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks maintenance", description=(__doc__ or "").splitlines()[0]
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="3 rounds of 2 million rows")
    effort.add_argument("--full", action="store_true", help="5 rounds of 5 million rows")
    parser.add_argument("--rows", type=int, help="another number of rows")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="operations whose name has this in it"
    )
    add_places(parser, LATEST)
    return parser

"""Measures loadTable and a classic commit next to other catalogs: `python -m benchmarks`.

Prints its tables and writes every figure as JSON to benchmarks/results/. It asserts nothing, but
prints each aim next to the measured value. Commits of declared files, the client, scan planning,
the pipeline on Spark and maintenance have their own commands: `python -m benchmarks commit --help`,
and likewise `client`, `planning`, `spark` and `maintenance`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import store_put_new
from benchmarks.client import command as client
from benchmarks.commands import PAGE, add_places, keep
from benchmarks.commit import command as commit
from benchmarks.maintenance import command as maintenance
from benchmarks.planning import command as planning
from benchmarks.report import publish, report
from benchmarks.results import RESULTS, read_results
from benchmarks.run import DEFAULT, FULL, Work, run, with_lengths
from benchmarks.spark import command as spark

LATEST = RESULTS / "latest.json"
PARTS = ("catalogs", "store")
COMMANDS = {
    "commit": commit.main,
    "client": client.main,
    "planning": planning.main,
    "spark": spark.main,
    "maintenance": maintenance.main,
}
STORE_FILES, STORE_FILES_FULL = 100, 300
STORE_FILE_BYTES = 8192


def main(arguments: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in COMMANDS:
        COMMANDS[given[0]](given[1:])
        return
    options = parser().parse_args(given)
    if options.publish is not None:
        publish(read_results(options.publish), PAGE)
        return
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="frazil-bench-") as scratch:
        if "catalogs" in options.what:
            _catalogs(_work(options), Path(scratch) / "catalogs", options.output)
        if "store" in options.what:
            _store(Path(scratch) / "store", STORE_FILES_FULL if options.full else STORE_FILES)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "what",
        nargs="*",
        type=_part,
        metavar="{catalogs,store}",
        default=PARTS,
        help="catalogs beside each other; ways for the local store to make a file (both)",
    )
    parser.add_argument("--full", action="store_true", help="more samples, about an hour")
    parser.add_argument("--without-java", action="store_true", help="leave the Java server out")
    parser.add_argument(
        "--snapshots", type=int, nargs="+", metavar="N", help="lengths of the histories"
    )
    add_places(parser, LATEST)
    return parser


def _part(text: str) -> str:
    # argparse's `choices` would refuse the default of a list that may be empty.
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PARTS)}")
    return text


def _work(options: argparse.Namespace) -> Work:
    work = FULL if options.full else DEFAULT
    if options.snapshots:
        work = with_lengths(work, options.snapshots)
    return replace(work, with_java=work.with_java and not options.without_java)


def _catalogs(work: Work, scratch: Path, output: Path) -> None:
    keep(lambda: run(work, scratch), report, output)


def _store(scratch: Path, files: int) -> None:
    scratch.mkdir()
    content = os.urandom(STORE_FILE_BYTES)
    print(f"\nA durable new file of {STORE_FILE_BYTES} bytes, by the way it is made\n")
    for parallel in (1, 3, 8):
        rows = store_put_new.best_of_rounds(scratch, files, content, parallel)
        print(store_put_new.table(rows), flush=True)


if __name__ == "__main__":
    main()

"""The benchmarks run and report their figures; the tests do not check speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.__main__ import parser
from benchmarks.histories import Seed, make_history
from benchmarks.measure import Block, p50_ms, p99_ms
from benchmarks.processes import cpu_seconds
from benchmarks.raw_costs import RawLane
from benchmarks.report import BEGIN, END, publish, report
from benchmarks.results import (
    APPEND,
    COMMIT,
    LOAD_ALL,
    LOAD_FIRST,
    LOAD_REFS,
    Cell,
    aims_of,
    cell_of,
    read_results,
)
from benchmarks.run import SMOKE, run
from benchmarks.systems import FRAZIL, FRAZIL_GZIP, SQL_CATALOG

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "benchmarks.md"


def test_a_small_run_measures_every_operation_and_publishes_it(tmp_path: Path) -> None:
    results = run(SMOKE, tmp_path / "scratch")
    written = tmp_path / "results.json"
    written.write_text(results.json())

    found = json.loads(written.read_text())
    assert {(cell["operation"], cell["system"]) for cell in found["cells"]} == {
        *((operation, FRAZIL) for operation in (LOAD_REFS, LOAD_ALL, LOAD_FIRST, COMMIT, APPEND)),
        (COMMIT, FRAZIL_GZIP),
        (COMMIT, RawLane.system),
        *((operation, SQL_CATALOG) for operation in (LOAD_REFS, LOAD_ALL, COMMIT, APPEND)),
    }
    for cell in found["cells"]:
        assert set(cell) == {field.name for field in fields(Cell)}
        assert cell["snapshots"] == 10
        assert cell["samples"] == len(cell["each_ms"]) > 0
        assert 0 < cell["p50_ms"] <= cell["p99_ms"]
        assert cell["cpu_ms"] >= 0
    (size,) = found["histories"]
    assert size["gzip_metadata_bytes"] < size["metadata_bytes"]
    assert [raw["size_bytes"] for raw in found["raw"]] == [
        size["metadata_bytes"],
        size["gzip_metadata_bytes"],
        0,
    ]
    # A ratio compares two history lengths, and this run has only one.
    assert [aim["measured"] for aim in found["aims"]] == [None, None, None]

    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold figures\n{END}\nafter\n")
    publish(read_results(written), page)
    once = page.read_text()
    publish(read_results(written), page)
    assert page.read_text() == once
    assert once == f"before\n{BEGIN}\n\n{report(results)}\n\n{END}\nafter\n"


def test_the_command_measures_everything_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parser().parse_args([]).what == ("catalogs", "store")
    assert parser().parse_args(["store", "--full"]).what == ["store"]
    assert parser().parse_args(["--publish"]).publish.name == "latest.json"
    with pytest.raises(SystemExit):
        parser().parse_args(["everything"])
    assert "'everything' is none of catalogs, store" in capsys.readouterr().err


def test_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)


def test_aims_compare_the_longest_history_with_the_shortest() -> None:
    cells = [
        cell_of(LOAD_REFS, 10, FRAZIL, Block([0.001])),
        cell_of(LOAD_REFS, 10_000, FRAZIL, Block([0.0015])),
        cell_of(COMMIT, 10, FRAZIL, Block([0.002])),
        cell_of(COMMIT, 1_000, FRAZIL, Block([0.1])),
        cell_of(COMMIT, 10_000, FRAZIL, Block([0.012])),
    ]
    assert [(aim.at_most, aim.measured) for aim in aims_of(cells)] == [
        (2.0, 1.5),
        (5.0, 6.0),
        (5.0, None),
    ]


def test_p99_is_a_sample_and_never_between_two() -> None:
    seconds = [number / 1000 for number in range(1, 201)]
    assert p99_ms(seconds) == pytest.approx(198)
    assert p99_ms([0.003, 0.001]) == pytest.approx(3)
    assert p50_ms([0.003, 0.001, 0.002]) == pytest.approx(2)


def test_cpu_of_a_process_counts_its_own_and_its_ended_children() -> None:
    before, own_before = cpu_seconds(os.getpid()), time.process_time()
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    own = time.process_time() - own_before
    # The kernel counts the CPU time of children in hundredths of a second.
    assert cpu_seconds(os.getpid()) - before - own > 0.15


def test_histories_are_chains_of_realistic_snapshots_that_end_with_the_seed() -> None:
    head = {
        "snapshot-id": 7,
        "manifest-list": "file:///warehouse/bench/seed/metadata/snap-7-0-a.avro",
        "summary": {"operation": "append"},
    }
    history = make_history(Seed({}, head, (), 1), 300)
    assert history.length == 300
    assert history.snapshots[-1]["snapshot-id"] == 7
    assert history.snapshots[-1]["manifest-list"] == head["manifest-list"]
    assert 600 < history.bytes_a_snapshot < 900
    parents = [snapshot.get("parent-snapshot-id") for snapshot in history.snapshots]
    assert parents == [None, *(snapshot["snapshot-id"] for snapshot in history.snapshots[:-1])]
    times = [entry["timestamp-ms"] for entry in history.snapshot_log]
    assert times == sorted(times)
    assert [snapshot["sequence-number"] for snapshot in history.snapshots] == list(range(1, 301))

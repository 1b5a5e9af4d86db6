"""The maintenance benchmark runs and reports its figures; the tests do not check speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.commands import PAGE
from benchmarks.maintenance import systems as named
from benchmarks.maintenance.aims import aims_of
from benchmarks.maintenance.report import BEGIN, END, publish, report
from benchmarks.maintenance.run import SMOKE, measure
from benchmarks.results import machine
from benchmarks.spark.results import Cell, Results, Sample
from tests.conftest import SERVERS
from tests.support.server import running_server


def test_a_small_run_measures_every_system(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with running_server(tmp_path / "server") as server:
        request.node.stash.setdefault(SERVERS, []).append(server)
        results = measure(SMOKE, spark, server, tmp_path / "scratch", 17)
    assert [(cell.operation, cell.system) for cell in results.cells] == [
        *((named.DELETES, system) for system in named.SYSTEMS),
        *((named.EXPIRY, system) for system in (named.STOCK, named.LOCAL)),
    ]
    for operation in (named.DELETES, named.EXPIRY):
        local = results.cell(operation, named.LOCAL)
        assert local is not None
        assert local.samples[0].peak_bytes > 0
    assert "25 snapshots before the expiry" in report(results)


def test_the_figures_are_published_with_their_aims(tmp_path: Path) -> None:
    cells = [
        Cell(named.SMALL, named.STOCK, 10, [Sample(5.0, 12.0)]),
        Cell(named.SMALL, named.LOCAL, 10, [Sample(1.0, 1.5, 200 << 20)]),
    ]
    about = {**machine(), "spark": "4.1.4", "java": 17}
    results = Results(about, {"rows": 10, "rounds": 1, "warm_ups": 0, "snapshots": 5}, cells)
    met = {aim.what: aim for aim in aims_of(results) if aim.measured is not None}
    (aim,) = met.values()
    assert aim.measured == 8.0
    assert aim.is_met
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    publish(results, page)
    assert page.read_text() == f"before\n{BEGIN}\n\n{report(results)}\n\n{END}\nafter\n"
    assert "209.7 MB" in page.read_text()


def test_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)

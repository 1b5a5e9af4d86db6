"""The pipeline benchmark runs and reports its figures; the tests do not check speed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.commands import PAGE
from benchmarks.results import machine
from benchmarks.spark import operations as named
from benchmarks.spark.aims import aims_of
from benchmarks.spark.report import BEGIN, END, publish, report
from benchmarks.spark.results import FRAZIL, OWN, PLAIN, STOCK, Cell, Results, Sample, read_results
from benchmarks.spark.run import SMOKE, measure
from tests.conftest import SERVERS
from tests.support.server import running_server


def test_a_small_run_measures_operations_on_every_system(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with running_server(tmp_path / "server") as server:
        request.node.stash.setdefault(SERVERS, []).append(server)
        results = measure(SMOKE, spark, server, tmp_path / "scratch", 17)
    measured = {(cell.operation, cell.system) for cell in results.cells}
    for operation in results.operations():
        assert {(operation, STOCK), (operation, FRAZIL)} <= measured
    assert (named.APPEND_FLAT, PLAIN) in measured
    assert (named.MERGE_MOR, OWN) in measured
    assert len(results.operations()) == len(SMOKE.only)
    measured_aims = [aim for aim in aims_of(results) if aim.measured is not None]
    assert len(measured_aims) == 5


def _results(frazil: float, stock: float) -> Results:
    cells = [
        Cell(named.MERGE_COW, FRAZIL, 10, [Sample(1.0, frazil), Sample(1.0, frazil * 1.1)]),
        Cell(named.MERGE_COW, STOCK, 10, [Sample(2.0, stock)]),
    ]
    about = {**machine(), "spark": "4.1.4", "java": 17}
    return Results(about, {"rows": 10, "rounds": 2, "warm_ups": 0}, cells)


def test_the_figures_of_a_run_are_written_read_and_published(tmp_path: Path) -> None:
    results = _results(1.0, 3.0)
    written = tmp_path / "results.json"
    written.write_text(results.json())
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold figures\n{END}\nafter\n")
    publish(read_results(written), page)
    assert page.read_text() == f"before\n{BEGIN}\n\n{report(results)}\n\n{END}\nafter\n"


def test_aims_are_about_cpu() -> None:
    aims = {aim.what: aim for aim in aims_of(_results(1.0, 1.5))}
    missed = aims[f"{named.MERGE_COW}, against {STOCK}"]
    assert missed.is_met is False
    assert missed.measured == pytest.approx(1.5 / 1.05)
    assert aims[f"{named.READ_ONE}, against {STOCK}"].is_met is None


def test_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)

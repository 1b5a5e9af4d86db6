"""The client benchmark runs and reports its figures; the tests do not check speed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.client.aims import aims_of
from benchmarks.client.footers import ADD_FILES, FOOTER, IN_PARALLEL, ONE_BY_ONE, STATISTICS
from benchmarks.client.imports import CLIENT_ANSWERED, IMPORT_FRAZIL, IMPORT_REST
from benchmarks.client.operations import APPEND, DECLARED, DELETE, UPSERT
from benchmarks.client.report import BEGIN, END, publish, report
from benchmarks.client.results import (
    APPENDS,
    FOOTERS,
    IMPORTS,
    ROW_SPEED,
    SHARES,
    THIN,
    Cell,
    Results,
    cell_of,
    read_results,
    timing_of,
)
from benchmarks.client.row_speed import SCAN_OURS, STOCK_OF
from benchmarks.client.rows import keys_by_bucket
from benchmarks.client.run import SMOKE, measure_alone, measure_writers
from benchmarks.client.systems import (
    FRAZIL_CATALOG,
    REST_CATALOG,
    RETRYING,
    SQL_CATALOG,
    THIN_CLIENT,
)
from benchmarks.commands import PAGE
from benchmarks.commit.bursts import Burst
from benchmarks.results import machine

OURS = (FRAZIL_CATALOG, THIN_CLIENT)


def test_a_small_run_measures_writers_of_every_kind(tmp_path: Path) -> None:
    cells = measure_writers(SMOKE, tmp_path / "scratch")

    everybody = (FRAZIL_CATALOG, REST_CATALOG, SQL_CATALOG, RETRYING)
    assert {(cell.part, cell.operation, cell.system) for cell in cells} == {
        *((APPENDS, APPEND, system) for system in (*OURS, REST_CATALOG, SQL_CATALOG)),
        *((SHARES, APPEND, system) for system in (THIN_CLIENT, *everybody)),
        *((SHARES, operation, name) for operation in (DELETE, UPSERT) for name in everybody),
        (THIN, DECLARED, THIN_CLIENT),
    }
    for cell in cells:
        assert cell.calls >= cell.succeeded == len(cell.each_ms)
        assert cell.calls - cell.succeeded == sum(cell.errors.values())
        if cell.system in OURS:
            assert (cell.retries, cell.errors) == (0, {})


def test_a_small_run_measures_footers_and_imports(tmp_path: Path) -> None:
    timings = measure_alone(SMOKE, tmp_path / "scratch")

    assert {(timing.part, timing.what) for timing in timings} >= {
        *((FOOTERS, what) for what in (ONE_BY_ONE, IN_PARALLEL, STATISTICS, ADD_FILES, FOOTER)),
        *((IMPORTS, what) for what in (IMPORT_FRAZIL, CLIENT_ANSWERED, IMPORT_REST)),
        *((ROW_SPEED, what) for pair in STOCK_OF.items() for what in pair),
    }
    for timing in timings:
        assert timing.samples == len(timing.each_ms) > 0
        assert 0 < timing.p50_ms <= timing.p99_ms


def test_the_figures_of_a_run_are_written_read_and_published(tmp_path: Path) -> None:
    results = Results(
        machine(),
        asdict(SMOKE),
        [_cell(part, FRAZIL_CATALOG, Burst([(1.0, 0.5)])) for part in (APPENDS, SHARES, THIN)],
        [
            timing_of(FOOTERS, ONE_BY_ONE, [0.002], 1),
            timing_of(IMPORTS, IMPORT_FRAZIL, [0.02]),
            timing_of(ROW_SPEED, SCAN_OURS, [0.01]),
        ],
    )
    written = tmp_path / "results.json"
    written.write_text(results.json())

    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold figures\n{END}\nafter\n")
    publish(read_results(written), page)
    once = page.read_text()
    publish(read_results(written), page)
    assert page.read_text() == once
    assert once == f"before\n{BEGIN}\n\n{report(results)}\n\n{END}\nafter\n"
    assert once.count("**") == 2 * 7


def test_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)


def test_the_command_has_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["client", "--quick", "--full"])
    assert "not allowed with" in capsys.readouterr().err


def test_keys_are_found_for_every_bucket() -> None:
    assert keys_by_bucket(lambda key: key % 3, 3, 2) == [[0, 3], [1, 4], [2, 5]]
    # The search ends when the last bucket is full. Extra keys of the other buckets are dropped.
    assert keys_by_bucket(lambda key: min(key // 4, 1), 2, 1) == [[0], [4]]


def test_a_rate_counts_what_succeeded_until_the_last_of_it_was_done() -> None:
    long, short = Burst([(1.0, 1.0), (4.0, 3.0)], failed=2), Burst([(1.0, 1.0)])
    cell = _cell(SHARES, SQL_CATALOG, long, short)
    assert cell.commits_per_s == 0.6
    assert (cell.calls, cell.succeeded, cell.percent_succeeded) == (5, 3, 60)
    nothing = _cell(SHARES, SQL_CATALOG, Burst(failed=3, window_s=2.0, errors={"CommitFailed": 3}))
    assert (nothing.commits_per_s, nothing.percent_succeeded, nothing.p50_ms) == (0.0, 0, None)


def test_a_share_is_never_rounded_up_to_all() -> None:
    all_but_one = Burst([(1.0, 1.0)] * 999, failed=1)
    assert _cell(SHARES, SQL_CATALOG, all_but_one).percent_succeeded == 99


def test_aims_say_what_was_met_and_what_was_not_measured() -> None:
    retried = Burst([(1.0, 1.0)], retries=2, failed=1)
    imports = timing_of(IMPORTS, IMPORT_FRAZIL, [0.3])
    results = Results({}, {}, [_cell(SHARES, FRAZIL_CATALOG, retried)], [imports])
    aims = {aim.what: aim for aim in aims_of(results)}

    missed = aims["import frazil, p50"]
    assert (missed.measured, missed.is_met, missed.missed_by) == (300.0, False, 2.0)
    assert aims[f"{FRAZIL_CATALOG}: retries by the client in all appends"].measured == 2
    failed = aims[f"{FRAZIL_CATALOG}: 8 writers at once, 2 append calls that failed"]
    assert (failed.measured, failed.is_met) == (1, False)
    assert aims[f"{FRAZIL_CATALOG}: upsert calls that failed"].is_met is None
    assert aims[f"{THIN_CLIENT}: retries by the client in all appends"].is_met is None


def _cell(part: str, system: str, *bursts: Burst) -> Cell:
    return cell_of(part, system, APPEND, bursts, writers=8, snapshots=10)

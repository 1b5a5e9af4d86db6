"""The benchmark of commits runs and reports its figures; the tests do not check speed."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.commands import PAGE
from benchmarks.commit.aims import Aim, aims_of
from benchmarks.commit.bursts import APPEND, DELETE_FILTER, DELETE_PATH, Burst, dealt
from benchmarks.commit.files import (
    PATH_BYTES,
    binary,
    bounds,
    content_file,
    declared,
    file_path,
)
from benchmarks.commit.report import BEGIN, END, publish, report
from benchmarks.commit.results import (
    HISTORY,
    LIVE,
    MANY,
    RESTARTED,
    WRITERS,
    Cell,
    Results,
    cell_of,
    raw_of,
    read_results,
)
from benchmarks.commit.run import SMOKE, run
from benchmarks.commit.systems import DUCKLAKE, FRAZIL, FRAZIL_FULL, FRAZIL_GZIP, SQL_CATALOG


def test_a_small_run_measures_every_part_and_publishes_it(tmp_path: Path) -> None:
    results = run(SMOKE, tmp_path / "scratch")
    written = tmp_path / "results.json"
    written.write_text(results.json())

    found = json.loads(written.read_text())
    assert {(cell["part"], cell["operation"], cell["system"]) for cell in found["cells"]} >= {
        *((WRITERS, APPEND, system) for system in (FRAZIL, FRAZIL_GZIP, SQL_CATALOG)),
        *((HISTORY, APPEND, system) for system in (FRAZIL, FRAZIL_GZIP, FRAZIL_FULL, SQL_CATALOG)),
        *(
            (LIVE, operation, system)
            for operation in (APPEND, DELETE_PATH, DELETE_FILTER)
            for system in (FRAZIL, SQL_CATALOG)
        ),
        *((MANY, APPEND, system) for system in (FRAZIL, SQL_CATALOG)),
        (RESTARTED, APPEND, FRAZIL),
    }
    for cell in found["cells"]:
        assert set(cell) == {field.name for field in fields(Cell)}
        assert cell["samples"] == len(cell["each_ms"]) > 0
        assert 0 < cell["p50_ms"] <= cell["p99_ms"]
        assert cell["written_bytes"] > 0
        assert cell["system"] == SQL_CATALOG or cell["failed"] == 0
    short, long = (
        next(
            cell["answer_bytes"]
            for cell in found["cells"]
            if cell["part"] == HISTORY and cell["system"] == system
        )
        for system in (FRAZIL, FRAZIL_FULL)
    )
    assert short < long
    assert [raw["snapshots"] for raw in found["raw"]] == [10]
    assert [one["files"] for one in found["memory"]] == [10, *SMOKE.live]

    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold figures\n{END}\nafter\n")
    publish(read_results(written), page)
    once = page.read_text()
    publish(read_results(written), page)
    assert page.read_text() == once
    assert once == f"before\n{BEGIN}\n\n{report(results)}\n\n{END}\nafter\n"


def test_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)


def test_the_command_has_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["commit", "--quick", "--full"])
    assert "not allowed with" in capsys.readouterr().err


def test_tables_are_dealt_to_writers() -> None:
    assert dealt(["a"], 3) == (("a",), ("a",), ("a",))
    assert dealt(["a", "b", "c"], 2) == (("a", "c"), ("b",))
    assert dealt(["a", "b"], 4) == (("a",), ("b",), ("a",), ("b",))


def test_commits_that_end_after_the_window_do_not_count_for_the_rate() -> None:
    assert Burst([(0.5, 0.5), (1.0, 0.5), (4.0, 3.0)], window_s=2.0).commits_per_s() == 1.0
    assert Burst([(0.5, 0.5)], window_s=2.0).commits_per_s() == 2.0
    assert Burst([], window_s=2.0).commits_per_s() == 0.0


def test_a_declared_file_and_its_manifest_entry_say_the_same() -> None:
    told, entry = declared("/warehouse/t/data", 77, 5), content_file("/warehouse/t/data", 77, 5)
    assert len(entry.file_path) == PATH_BYTES
    assert told["file-path"] == entry.file_path == file_path("/warehouse/t/data", 77)
    assert told["partition"] == list(entry.partition)
    assert told["record-count"] == entry.record_count
    lower = binary(bounds(77, 5)[0])
    assert told["lower-bounds"]["keys"] == list(lower)
    assert told["lower-bounds"]["values"][1] == int.from_bytes(lower[2], "little")


def _results(*cells: Cell) -> Results:
    raw = [
        raw_of(10, 9_000, [0.001], [0.0003]),
        raw_of(10_000, 8_600_000, [0.008], [0.006]),
    ]
    return Results({}, {}, [{"files": 10}], list(cells), raw, [])


def _cell(part: str, system: str, ms: float, **about: int) -> Cell:
    burst = Burst([(ms / 1000, ms / 1000)], window_s=1.0)
    where = {"snapshots": 10, "files": 10, **about}
    return cell_of(part, system, APPEND, burst, rate=part == WRITERS, **where)


def test_aims_say_what_was_met_and_by_how_much_another_was_missed() -> None:
    ours = replace(_cell(WRITERS, FRAZIL, 50, writers=16), commits_per_s=300.0)
    lake = replace(_cell(WRITERS, DUCKLAKE, 50, writers=16), commits_per_s=100.0)
    aims = {
        aim.what: aim
        for aim in aims_of(
            _results(
                ours,
                lake,
                _cell(HISTORY, FRAZIL, 2),
                _cell(HISTORY, FRAZIL, 12, snapshots=10_000),
            )
        )
    }
    lost = aims[f"16 writers on one table: commits/s against {DUCKLAKE}"]
    assert (lost.measured, lost.is_met) == (3.0, False)
    assert lost.missed_by == pytest.approx(5 / 3)
    assert aims["16 writers on one table: p99"].is_met
    assert aims["one writer, p50 against three durable files and one swap"].measured == 2.0
    long = next(aim for aim in aims.values() if aim.what.startswith("10,000 snapshots, p50"))
    assert (long.wanted, long.measured, long.is_met) == (11.0, 12.0, False)
    assert aims["memory at 1,000,000 live files"].is_met is None
    assert Aim("failures", 0, 3, "").missed_by is None

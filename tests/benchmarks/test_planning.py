"""The scan planning benchmark runs and reports its figures; the tests do not check speed."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.commands import PAGE
from benchmarks.measure import Block, Effort
from benchmarks.planning.aims import BESIDE_FILES, WARM_FILES, aims_of
from benchmarks.planning.decoding import WAYS
from benchmarks.planning.files import (
    CLUSTERED,
    DAY,
    FINE,
    ID,
    NAME,
    SCATTERED,
    TYPES,
    bounds,
    content_file,
)
from benchmarks.planning.filters import (
    FILTERS,
    LONG_RANGE,
    MANY_TEXTS,
    MANY_VALUES,
    NO_FILTER,
    PARTITION,
    TEXT_EQUALITY,
    filter_for,
)
from benchmarks.planning.lanes import PlanLane, PlansDiffer, measured
from benchmarks.planning.report import BEGIN, END, publish, report
from benchmarks.planning.results import (
    ENGINE_COLD,
    ENGINE_FOLDER,
    ENGINE_WARM,
    FIRSTS,
    PLANS,
    PYICEBERG,
    SERVER_COLD,
    SERVER_FOLDER,
    SERVER_WARM,
    Cell,
    Memory,
    Results,
    cell_of,
    read_results,
    step_of,
)
from benchmarks.planning.run import SMOKE, measure_alone, measure_memory, measure_plans
from benchmarks.planning.steps import STEPS
from benchmarks.planning.trees import BY_PYICEBERG, SMALL, Kind, make_tree
from benchmarks.results import machine

SYSTEMS = (ENGINE_WARM, ENGINE_FOLDER, ENGINE_COLD, SERVER_WARM, PYICEBERG)
KINDS = (
    Kind(300, CLUSTERED),
    Kind(300, SCATTERED),
    Kind(300, SMALL),
    Kind(200, BY_PYICEBERG),
)
COLUMNS = {PARTITION: DAY, LONG_RANGE: ID, MANY_VALUES: ID, TEXT_EQUALITY: NAME, MANY_TEXTS: NAME}
ONCE = Effort(warm_up_s=0.0, seconds=0.0, least=1, most=1, block=1, block_s=0.0)


def test_a_small_run_plans_with_every_system(tmp_path: Path) -> None:
    trees = [make_tree(tmp_path / "trees", kind) for kind in KINDS]
    cells = measure_plans(trees, SMOKE, tmp_path)

    assert {(cell.part, cell.layout, cell.filter, cell.system) for cell in cells} == {
        *(
            (PLANS, kind.layout, name, system)
            for kind in KINDS
            for name in FILTERS
            for system in SYSTEMS
        ),
        *((FIRSTS, SCATTERED, LONG_RANGE, system) for system in (SERVER_COLD, SERVER_FOLDER)),
    }
    for cell in cells:
        assert cell.samples == len(cell.each_ms) > 0
        assert 0 < cell.p50_ms <= cell.p99_ms
        assert cell.planned > 0
        assert (cell.planned == cell.files) == (cell.filter == NO_FILTER)


def test_a_small_run_measures_steps_and_memory(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "trees", Kind(300, SCATTERED))
    (memory,) = measure_memory([tree], tmp_path)
    steps, decoding = measure_alone([tree], SMOKE)

    assert 0 < memory.bytes_a_file < 1_000
    assert memory.trimmed_bytes <= memory.resident_bytes
    assert [step.step for step in steps] == list(STEPS)
    assert [step.step for step in decoding] == list(WAYS)
    for step in (*steps, *decoding):
        assert step.samples == len(step.each_ms) > 0
        assert step.best_ms > 0


def test_the_figures_of_a_run_are_written_read_and_published(tmp_path: Path) -> None:
    cells = [_cell(ENGINE_WARM, 300, SCATTERED, 0.001), _cell(PYICEBERG, 300, SCATTERED, 1.0)]
    first = replace(cells[0], part=FIRSTS, system=SERVER_COLD)
    steps = [step_of(300, SCATTERED, one, [0.001, 0.002]) for one in (*STEPS, *WAYS)]
    trees = [{"files": 300, "layout": SCATTERED, "manifests": 1, "manifest_bytes": 60_000}]
    memory = [Memory(300, SCATTERED, 36_000, 160_000, 60_000, 10**8, 10**8 + 10**6, 10**8)]
    results = Results(
        machine(), asdict(SMOKE), trees, [*cells, first], steps[:2], steps[2:], memory
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
    assert once.count("**") == 2 * 6


@pytest.mark.parametrize("layout", [CLUSTERED, SCATTERED, FINE])
def test_filters_find_some_files_and_leave_most_out(layout: str) -> None:
    files = 1_000
    both = [bounds(number, files, layout) for number in range(files)]
    for name in (one for one in FILTERS if one != NO_FILTER):
        wanted = filter_for(name, files)
        assert wanted.json is not None
        column = COLUMNS[name]
        values = _values(dict(wanted.json))
        found = [
            number
            for number, (lower, upper) in enumerate(both)
            if any(lower[column] <= value <= upper[column] for value in values)
        ]
        assert 0 < len(found) <= files // 5, name


def _values(predicate: dict[str, object]) -> list[object]:
    """Return some values that match. For a range, these are its first and last values."""
    if predicate["type"] == "and":
        start, end = predicate["left"], predicate["right"]
        assert isinstance(start, dict)
        assert isinstance(end, dict)
        return [start["value"], end["value"] - 1]
    if predicate["type"] == "in":
        values = predicate["values"]
        assert isinstance(values, list)
        return values
    value = predicate["value"]
    if predicate["term"] == "day":
        return [(date.fromisoformat(str(value)) - date(1970, 1, 1)).days]
    return [value]


def test_every_file_has_bounds_of_all_columns() -> None:
    file = content_file("/somewhere", 7, 1_000, SCATTERED)
    for bound in (file.lower_bounds, file.upper_bounds):
        assert bound is not None
        sizes = {n: len(value) for n, value in bound.items()}
        widths = {"date": 4, "string": 16}
        assert sizes == {n: widths.get(kind, 8) for n, kind in TYPES.items()}


def test_planners_that_do_not_find_the_same_files_end_the_run() -> None:
    def lane(system: str, *counts: int) -> PlanLane:
        left = list(counts)
        return PlanLane(system, lambda most, limit_s: (Block([0.1]), left.pop()))

    blocks, files = measured([lane("one", 3), lane("another", 3)], ONCE)
    assert (set(blocks), files) == ({"one", "another"}, 3)
    with pytest.raises(PlansDiffer, match="not find the same number of files: one 3, another 4"):
        measured([lane("one", 3), lane("another", 4)], ONCE)
    with pytest.raises(PlansDiffer, match=r"one finds .* in turn"):
        measured([lane("one", 3, 4)], replace(ONCE, least=2, most=2))


def test_aims_take_the_worse_of_several_tables() -> None:
    cells = [
        _cell(ENGINE_WARM, WARM_FILES, CLUSTERED, 0.010),
        _cell(ENGINE_WARM, WARM_FILES, SCATTERED, 0.020),
        *(_cell(ENGINE_WARM, BESIDE_FILES, layout, 0.01) for layout in (CLUSTERED, SCATTERED)),
        _cell(ENGINE_COLD, BESIDE_FILES, SCATTERED, 1.0),
        _cell(PYICEBERG, BESIDE_FILES, CLUSTERED, 2.0),
        _cell(PYICEBERG, BESIDE_FILES, SCATTERED, 3.0),
    ]
    memory = [Memory(10, SCATTERED, 1_200, 5_200, 1_000, 100_000, 109_000, 106_200)]
    results = Results(machine(), asdict(SMOKE), [], cells, [], [step_of(1, "", "", [1])], memory)
    met = {aim.what: aim.measured for aim in aims_of(results) if aim.measured is not None}
    assert [round(value) for value in met.values()] == [20, 200, 3, 300, 400]


def _cell(system: str, files: int, layout: str, seconds: float) -> Cell:
    block = Block([seconds])
    return cell_of(PLANS, system, block, files=files, layout=layout, filter=LONG_RANGE, planned=10)


def test_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)


def test_the_command_has_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["planning", "--quick", "--full"])
    assert "not allowed with" in capsys.readouterr().err

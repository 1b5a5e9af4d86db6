"""The figures of a run as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.commit.report import aim_row
from benchmarks.planning.aims import aims_of
from benchmarks.planning.results import FIRSTS, PLANS, Cell, Results, Step
from benchmarks.report import bytes_text, ms_text, put_between, table

BEGIN = "<!-- planning figures: written by `python -m benchmarks planning --publish`, from here -->"
END = "<!-- planning figures: to here -->"


def report(results: Results) -> str:
    sizes = sorted({cell.files for cell in results.of(PLANS)})
    parts = [
        _about(results),
        _aims(results),
        *(_plans(results, files) for files in sizes),
        _firsts(results),
        _steps("Where the time of a cold plan goes, in one thread", results.steps),
        _steps("Ways to decode all manifests", results.decoding),
        _memory(results),
    ]
    return "\n\n".join(part for part in parts if part)


def publish(results: Results, page: Path) -> None:
    put_between(report(results), page, BEGIN, END)


def _about(results: Results) -> str:
    about = results.machine
    load = ", ".join(f"{value:g}" for value in about["load_average_at_start"])
    trees = "; ".join(
        f"{tree['files']:,} files, {tree['layout']}: {tree['manifests']} manifests of"
        f" {bytes_text(tree['manifest_bytes'])} in all"
        for tree in results.trees
    )
    return (
        f"- Machine: {about['cores']} cores, {bytes_text(about['memory_bytes'])} of memory,"
        f" {about['system']}, Python {about['python']}, PyIceberg {about['pyiceberg']};"
        f" load average at the start {load}\n"
        f"- Tables: {trees}"
    )


def _aims(results: Results) -> str:
    rows = [aim_row(aim) for aim in aims_of(results)]
    return f"**Aims**\n\n{table(['aim', 'wanted', 'measured', ''], rows)}"


def _plans(results: Results, files: int) -> str:
    """Return a table with a row for each filter and a column for each system."""
    cells = [cell for cell in results.of(PLANS) if cell.files == files]
    systems = list(dict.fromkeys(cell.system for cell in cells))
    asked = dict.fromkeys((cell.layout, cell.filter, cell.planned) for cell in cells)
    rows = [
        [layout, name, f"{planned:,}", *(_p50(cells, system, layout, name) for system in systems)]
        for layout, name, planned in asked
    ]
    head = ["table", "filter", "files found", *systems]
    return f"**A plan of {files:,} files, p50 in ms**\n\n{table(head, rows)}"


def _p50(cells: list[Cell], system: str, layout: str, name: str) -> str:
    wanted = (system, layout, name)
    found = (cell for cell in cells if (cell.system, cell.layout, cell.filter) == wanted)
    cell = next(found, None)
    return "" if cell is None else ms_text(cell.p50_ms)


def _firsts(results: Results) -> str:
    rows = [
        [
            f"{cell.files:,}",
            cell.layout,
            cell.system,
            ms_text(cell.p50_ms),
            ms_text(cell.cpu_ms),
            str(cell.samples),
        ]
        for cell in results.of(FIRSTS)
    ]
    head = ["files", "table", "system", "p50 ms", "CPU ms", "samples"]
    title = "The first plan after a start of the server or the JVM, by a long range"
    return f"**{title}**\n\n{table(head, rows)}" if rows else ""


def _steps(title: str, steps: Sequence[Step]) -> str:
    rows = [
        [
            f"{step.files:,}",
            step.layout,
            step.step,
            ms_text(step.best_ms),
            f"{step.best_ms * 1000 / step.files:.2f}",
            str(step.samples),
        ]
        for step in steps
    ]
    head = ["files", "table", "", "best ms", "µs a file", "samples"]
    return f"**{title}**\n\n{table(head, rows)}" if rows else ""


def _memory(results: Results) -> str:
    rows = [
        [
            f"{one.files:,}",
            one.layout,
            bytes_text(one.cache_bytes - one.content_bytes),
            f"{one.bytes_a_file:.0f}",
            bytes_text(one.content_bytes),
            bytes_text(one.resident_bytes - one.resident_before_bytes),
            bytes_text(one.trimmed_bytes - one.resident_before_bytes),
            f"{one.grown_bytes_a_file:.0f}",
        ]
        for one in results.memory
    ]
    head = [
        "files",
        "table",
        "columns and statistics",
        "bytes a file beyond its path",
        "manifests' own bytes",
        "the process has grown by",
        "with freed memory given back",
        "bytes a file beyond its path and the manifests",
    ]
    return f"**Memory of the engine after one plan**\n\n{table(head, rows)}" if rows else ""

"""The figures of a run as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.commit.aims import Aim, aims_of, raw_cost
from benchmarks.commit.results import (
    FIRST,
    HISTORY,
    LIVE,
    MANY,
    RESTARTED,
    WRITERS,
    Cell,
    Results,
)
from benchmarks.commit.systems import FRAZIL
from benchmarks.report import bytes_text, ms_text, put_between, table

BEGIN = "<!-- commit figures: written by `python -m benchmarks commit --publish`, from here -->"
END = "<!-- commit figures: to here -->"
_BASE = ["p50 ms", "p99 ms", "server CPU ms", "client CPU ms", "written", "samples"]


def report(results: Results) -> str:
    parts = [
        _about(results),
        _aims(results),
        _writers(results),
        _histories(results),
        _live(results),
        _first(results, FIRST),
        _first(results, RESTARTED),
        _many(results),
        _raw(results),
    ]
    return "\n\n".join(part for part in parts if part)


def publish(results: Results, page: Path) -> None:
    put_between(report(results), page, BEGIN, END)


def _about(results: Results) -> str:
    about = results.machine
    load = ", ".join(f"{value:g}" for value in about["load_average_at_start"])
    driver = results.find(WRITERS, FRAZIL, tables=1, writers=16)
    trees = ", ".join(
        f"{tree['files']:,} files are {tree['manifests']} manifests of"
        f" {bytes_text(tree['manifest_bytes'])} in all"
        for tree in results.trees
    )
    lines = [
        f"- Machine: {about['cores']} cores, {bytes_text(about['memory_bytes'])} of memory,"
        f" {about['system']}, Python {about['python']}, SQLite {about['sqlite']},"
        f" PyIceberg {about['pyiceberg']}; load average at the start {load}",
        f"- Trees: {trees}",
    ]
    if driver is not None:
        lines.append(
            f"- The senders that stand for frazil's writers cost {ms_text(driver.client_cpu_ms)} ms"
            " of CPU a commit at 16 writers"
        )
    lines += [
        f"- Memory of {one.system} after commits to a table of {one.files:,} live files:"
        f" {bytes_text(one.resident_bytes)}, at its peak {bytes_text(one.peak_bytes)}"
        for one in results.memory
    ]
    return "\n".join(lines)


# --- aims ---------------------------------------------------------------------------------------


def _aims(results: Results) -> str:
    raw = raw_cost(results)
    cost_ms = None if raw is None else raw.commit_p50_ms
    rows = [[*aim_row(aim), _in_raw_costs(aim, cost_ms)] for aim in aims_of(results)]
    head = ["aim", "wanted", "measured", "", "in raw costs"]
    return f"**Aims**\n\n{table(head, rows)}"


def aim_row(aim: Aim) -> list[str]:
    """Return the wanted value, the measured value and whether the aim is met."""
    verdict = {None: "not measured", True: "met", False: "missed"}[aim.is_met]
    if aim.missed_by is not None:
        verdict += f" by a factor of {aim.missed_by:.2f}"
    return [
        aim.what,
        f"{'at least' if aim.at_least else 'at most'} {_amount(aim.wanted, aim.unit)}",
        "" if aim.measured is None else _amount(aim.measured, aim.unit),
        verdict,
    ]


def _in_raw_costs(aim: Aim, cost_ms: float | None) -> str:
    return "" if aim.ms is None or not cost_ms else f"{aim.ms / cost_ms:.1f} x"


def _amount(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.2f}"
    return f"{number} {unit}".rstrip()


# --- what was measured --------------------------------------------------------------------------


def _writers(results: Results) -> str:
    cells = results.of(WRITERS)
    head = ["tables", "writers", "system", "commits/s", "frazil is", "gave up", *_BASE]
    rows = [
        [
            str(cell.tables),
            str(cell.writers),
            cell.system,
            f"{cell.commits_per_s:,.1f}" if cell.commits_per_s is not None else "",
            _rate(results, cell),
            _share(cell),
            *_base(cell),
        ]
        for cell in cells
    ]
    return f"**Appends by several writers at once**\n\n{table(head, rows)}" if cells else ""


def _rate(results: Results, cell: Cell) -> str:
    ours = results.find(WRITERS, FRAZIL, tables=cell.tables, writers=cell.writers)
    if ours is None or ours is cell or not cell.commits_per_s or not ours.commits_per_s:
        return ""
    return f"{ours.commits_per_s / cell.commits_per_s:.1f} x"


def _share(cell: Cell) -> str:
    tried = cell.samples + cell.failed
    return f"{100 * cell.failed / tried:.0f} %" if cell.failed else "0"


def _histories(results: Results) -> str:
    cells = results.of(HISTORY)
    if not cells:
        return ""
    shortest = min(cell.snapshots for cell in cells)
    head = ["snapshots", "system", *_BASE, "answer", f"against {shortest}", "against frazil"]
    rows = [
        [
            f"{cell.snapshots:,}",
            cell.system,
            *_base(cell),
            bytes_text(cell.answer_bytes) if cell.answer_bytes else "",
            _times(cell, results.find(HISTORY, cell.system, snapshots=shortest)),
            _times(cell, results.find(HISTORY, FRAZIL, snapshots=cell.snapshots)),
        ]
        for cell in sorted(cells, key=lambda cell: cell.snapshots)
    ]
    return f"**An append, by the length of the history**\n\n{table(head, rows)}"


def _live(results: Results) -> str:
    cells = results.of(LIVE)
    if not cells:
        return ""
    head = ["operation", "live files", "system", *_BASE, "against frazil"]
    rows = [
        [
            cell.operation,
            f"{cell.files:,}",
            cell.system,
            *_base(cell),
            _times(cell, results.find(LIVE, FRAZIL, operation=cell.operation, files=cell.files)),
        ]
        for operation in dict.fromkeys(cell.operation for cell in cells)
        for cell in sorted(cells, key=lambda cell: cell.files)
        if cell.operation == operation
    ]
    return f"**One writer, by the number of live files**\n\n{table(head, rows)}"


def _first(results: Results, part: str) -> str:
    cells = results.of(part)
    head = ["operation", "snapshots", "live files", "system", *_BASE]
    rows = [
        [cell.operation, f"{cell.snapshots:,}", f"{cell.files:,}", cell.system, *_base(cell)]
        for cell in cells
    ]
    title = part[0].upper() + part[1:]
    return f"**{title}**\n\n{table(head, rows)}" if cells else ""


def _many(results: Results) -> str:
    cells = [cell for cell in results.of(MANY) if cell.p50_ms]
    head = ["files", "system", "files/s", "files/s with sending", *_BASE]
    rows = [
        [
            f"{cell.added_files:,}",
            cell.system,
            f"{cell.added_files / (cell.p50_ms or 1) * 1000:,.0f}",
            # Frazil's time starts after the request is sent. The other systems describe their files
            # before their time starts.
            f"{cell.added_files / _middle(cell.ended_ms) * 1000:,.0f}"
            if cell.system == FRAZIL
            else "",
            *_base(cell),
        ]
        for cell in cells
    ]
    return f"**Many files in one commit**\n\n{table(head, rows)}" if cells else ""


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _raw(results: Results) -> str:
    head = [
        "snapshots",
        "metadata",
        "three files and a swap, p50 ms",
        "p99 ms",
        "metadata file, p50 ms",
        "samples",
    ]
    rows = [
        [
            f"{raw.snapshots:,}",
            bytes_text(raw.metadata_bytes),
            ms_text(raw.commit_p50_ms),
            ms_text(raw.commit_p99_ms),
            ms_text(raw.metadata_p50_ms),
            str(raw.samples),
        ]
        for raw in results.raw
    ]
    return f"**The disk alone**\n\n{table(head, rows)}" if rows else ""


def _base(cell: Cell) -> list[str]:
    return [
        "" if cell.p50_ms is None else ms_text(cell.p50_ms),
        "" if cell.p99_ms is None else ms_text(cell.p99_ms),
        ms_text(cell.server_cpu_ms),
        ms_text(cell.client_cpu_ms),
        bytes_text(cell.written_bytes),
        str(cell.samples),
    ]


def _times(cell: Cell, base: Cell | None) -> str:
    if base is None or base is cell or not base.p50_ms or cell.p50_ms is None:
        return ""
    return f"{cell.p50_ms / base.p50_ms:.2f} x"

"""The figures of a run as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

from pathlib import Path

from benchmarks.client.aims import aims_of
from benchmarks.client.operations import APPEND, DELETE, UPSERT
from benchmarks.client.results import (
    APPENDS,
    FOOTERS,
    IMPORTS,
    ROW_SPEED,
    SHARES,
    THIN,
    Cell,
    Results,
)
from benchmarks.client.row_speed import STOCK_OF
from benchmarks.client.systems import FRAZIL_CATALOG
from benchmarks.commit.report import aim_row
from benchmarks.report import bytes_text, ms_text, put_between, table

BEGIN = "<!-- client figures: written by `python -m benchmarks client --publish`, from here -->"
END = "<!-- client figures: to here -->"
_BASE = ["succeeded", "retries", "p50 ms", "p99 ms", "client CPU ms", "server CPU ms", "calls"]
_RACES = {
    APPEND: "appends",
    DELETE: "deletes in buckets of their own",
    UPSERT: "upserts in buckets of their own",
}


def report(results: Results) -> str:
    parts = [
        _about(results),
        _aims(results),
        _appends(results),
        _shares(results),
        _thin(results),
        _row_speed(results),
        _footers(results),
        _imports(results),
    ]
    return "\n\n".join(part for part in parts if part)


def publish(results: Results, page: Path) -> None:
    put_between(report(results), page, BEGIN, END)


def _about(results: Results) -> str:
    about = results.machine
    load = ", ".join(f"{value:g}" for value in about["load_average_at_start"])
    return (
        f"- Machine: {about['cores']} cores, {bytes_text(about['memory_bytes'])} of memory,"
        f" {about['system']}, Python {about['python']}, SQLite {about['sqlite']},"
        f" PyIceberg {about['pyiceberg']}; load average at the start {load}"
    )


def _aims(results: Results) -> str:
    rows = [aim_row(aim) for aim in aims_of(results)]
    return f"**Aims**\n\n{table(['aim', 'wanted', 'measured', ''], rows)}"


def _appends(results: Results) -> str:
    cells = results.of(APPENDS)
    head = ["snapshots", "writers", "system", "appends/s", f"{FRAZIL_CATALOG} is", *_BASE]
    rows = [
        [
            f"{cell.snapshots:,}",
            str(cell.writers),
            cell.system,
            f"{cell.commits_per_s:,.1f}",
            _rate(results, cell),
            *_base(cell),
        ]
        for cell in cells
    ]
    return f"**An append of a small Arrow table**\n\n{table(head, rows)}" if cells else ""


def _rate(results: Results, cell: Cell) -> str:
    ours = results.find(APPENDS, FRAZIL_CATALOG, snapshots=cell.snapshots, writers=cell.writers)
    if ours is None or ours is cell or not cell.commits_per_s or not ours.commits_per_s:
        return ""
    times = ours.commits_per_s / cell.commits_per_s
    return f"{times:.1f} x" if times >= 1 else f"{times:.2f} x"


def _shares(results: Results) -> str:
    cells = results.of(SHARES)
    head = ["work", "system", "calls/s", *_BASE, "given up with"]
    rows = [
        [
            f"{_RACES[cell.operation]}, {cell.writers} x {cell.calls // cell.writers}",
            cell.system,
            f"{cell.commits_per_s:,.1f}",
            *_base(cell),
            ", ".join(f"{kind} {count} x" for kind, count in cell.errors.items()),
        ]
        for cell in cells
    ]
    return f"**Calls that succeed, all writers at once**\n\n{table(head, rows)}" if cells else ""


def _thin(results: Results) -> str:
    cells = results.of(THIN)
    head = ["snapshots", "writers", "commits/s", *_BASE]
    rows = [
        [
            f"{cell.snapshots:,}",
            str(cell.writers),
            f"{cell.commits_per_s:,.1f}",
            *_base(cell),
        ]
        for cell in cells
    ]
    title = "`frazil.Client.append_files` of one declared file"
    return f"**{title}**\n\n{table(head, rows)}" if cells else ""


def _row_speed(results: Results) -> str:
    count = int(results.work.get("rows", 0))
    rows = []
    for timing in results.timed(ROW_SPEED):
        stock = results.timing(ROW_SPEED, STOCK_OF.get(timing.what, ""))
        rows.append(
            [
                timing.what,
                f"{count / timing.p50_ms * 1000:,.0f}",
                "" if stock is None else f"{stock.p50_ms / timing.p50_ms:.2f} x",
                ms_text(timing.p50_ms),
                ms_text(timing.p99_ms),
                str(timing.samples),
            ]
        )
    head = ["what", "rows/s", "the client is", "p50 ms", "p99 ms", "calls"]
    return f"**Calls with {count:,} rows of five columns**\n\n{table(head, rows)}" if rows else ""


def _footers(results: Results) -> str:
    rows = [
        [
            timing.what,
            str(timing.files),
            f"{timing.files_per_s:,.0f}",
            ms_text(timing.p50_ms / timing.files),
            ms_text(timing.p99_ms / timing.files),
            str(timing.samples),
        ]
        for timing in results.timed(FOOTERS)
    ]
    head = ["what", "files a call", "files/s", "p50 ms a file", "p99 ms a file", "samples"]
    return f"**The footer of a file with 20 columns**\n\n{table(head, rows)}" if rows else ""


def _imports(results: Results) -> str:
    rows = [
        [timing.what, ms_text(timing.p50_ms), ms_text(timing.p99_ms), str(timing.samples)]
        for timing in results.timed(IMPORTS)
    ]
    head = ["what", "p50 ms", "p99 ms", "samples"]
    return f"**In a fresh process**\n\n{table(head, rows)}" if rows else ""


def _base(cell: Cell) -> list[str]:
    return [
        f"{cell.percent_succeeded} %",
        f"{cell.retries:,}",
        "" if cell.p50_ms is None else ms_text(cell.p50_ms),
        "" if cell.p99_ms is None else ms_text(cell.p99_ms),
        ms_text(cell.client_cpu_ms),
        ms_text(cell.server_cpu_ms),
        f"{cell.calls:,}",
    ]

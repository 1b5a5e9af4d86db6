"""The figures of a run as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.results import (
    APPEND,
    COMMIT,
    LOAD_ALL,
    LOAD_FIRST,
    LOAD_REFS,
    Cell,
    Results,
)
from benchmarks.systems import FRAZIL

BEGIN = "<!-- figures: written by `python -m benchmarks --publish`, from here -->"
END = "<!-- figures: to here -->"

Row = Sequence[str]


def report(results: Results) -> str:
    parts = [
        _machine(results),
        *(_operation(results, name) for name in (LOAD_REFS, LOAD_ALL, COMMIT, APPEND, LOAD_FIRST)),
        _raw(results),
        _aims(results),
    ]
    return "\n\n".join(part for part in parts if part)


def publish(results: Results, page: Path) -> None:
    put_between(report(results), page, BEGIN, END)


def put_between(figures: str, page: Path, begin: str, end: str) -> None:
    """Write a report between the page's two marks."""
    text = page.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{page} must have the lines {begin} and {end} once each")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{figures}\n\n{end}{after}")


def _machine(results: Results) -> str:
    about = results.machine
    load = ", ".join(f"{value:g}" for value in about["load_average_at_start"])
    sizes = [
        f"{size['snapshots']:,} snapshots are {bytes_text(size['metadata_bytes'])} of metadata"
        f" ({bytes_text(size['gzip_metadata_bytes'])} as gzip)"
        for size in results.histories
    ]
    memory = [f"{one['system']} {bytes_text(one['peak_bytes'])}" for one in results.memory]
    return "\n".join(
        [
            f"- Machine: {about['cores']} cores, {bytes_text(about['memory_bytes'])} of memory,"
            f" {about['system']}, Python {about['python']}, SQLite {about['sqlite']},"
            f" PyIceberg {about['pyiceberg']}; load average at the start {load}",
            f"- {'; '.join(sizes)}",
            f"- Peak memory of the catalog's process: {', '.join(memory)}",
        ]
    )


def _operation(results: Results, operation: str) -> str:
    cells = [cell for cell in results.cells if cell.operation == operation]
    if not cells:
        return ""
    has_client = any(cell.client_cpu_ms is not None for cell in cells)
    head = ["snapshots", "system", "p50 ms", "p99 ms", "server CPU ms"]
    head += ["client CPU ms"] if has_client else []
    has_answer = any(cell.answer_bytes for cell in cells)
    head += ["answer"] if has_answer else []
    head += ["against the shortest", f"against {FRAZIL}", "samples"]
    rows = [_row(results, cell, has_client, has_answer) for cell in cells]
    return f"**{operation}**\n\n{table(head, rows)}"


def _row(results: Results, cell: Cell, has_client: bool, has_answer: bool) -> list[str]:
    short = results.cell(cell.operation, results.lengths()[0], cell.system)
    ours = results.cell(cell.operation, cell.snapshots, FRAZIL)
    client = "" if cell.client_cpu_ms is None else ms_text(cell.client_cpu_ms)
    return [
        f"{cell.snapshots:,}",
        cell.system,
        ms_text(cell.p50_ms),
        ms_text(cell.p99_ms),
        ms_text(cell.cpu_ms),
        *([client] if has_client else []),
        *([bytes_text(cell.answer_bytes) if cell.answer_bytes else ""] if has_answer else []),
        _times(cell, short),
        _times(cell, ours),
        str(cell.samples),
    ]


def _times(cell: Cell, base: Cell | None) -> str:
    return "" if base is None or base is cell else f"{cell.p50_ms / base.p50_ms:.2f} x"


def _raw(results: Results) -> str:
    rows = [
        [
            raw.what + (f", {bytes_text(raw.size_bytes)}" if raw.size_bytes else ""),
            ms_text(raw.p50_ms),
            ms_text(raw.p99_ms),
            str(raw.samples),
        ]
        for raw in results.raw
    ]
    return f"**The machine's own cost**\n\n{table(['what', 'p50 ms', 'p99 ms', 'samples'], rows)}"


def _aims(results: Results) -> str:
    rows = [
        [
            aim.what,
            f"{aim.at_most:g} x",
            "not measured" if aim.measured is None else f"{aim.measured:.2f} x",
        ]
        for aim in results.aims
    ]
    return f"**Aims**\n\n{table(['ratio', 'aim', 'measured'], rows)}"


def table(head: Row, rows: Sequence[Row]) -> str:
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    return "\n".join(_lines(head, rows, widths))


def _lines(head: Row, rows: Sequence[Row], widths: Sequence[int]) -> Iterator[str]:
    numeric = [all(_is_number(row[at]) for row in rows) for at in range(len(head))]

    def line(row: Row) -> str:
        cells = (
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, numeric, strict=True)
        )
        return f"| {' | '.join(cells)} |"

    yield line(head)
    rules = (
        "-" * (width - 1) + (":" if is_number else "-")
        for width, is_number in zip(widths, numeric, strict=True)
    )
    yield f"| {' | '.join(rules)} |"
    yield from map(line, rows)


def _is_number(text: str) -> bool:
    return text == "" or text[0].isdigit()


def ms_text(value: float) -> str:
    if value < 10:
        return f"{value:.2f}"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def bytes_text(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"

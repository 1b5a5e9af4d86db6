"""The figures of a run as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

from pathlib import Path

from benchmarks.commit.report import aim_row
from benchmarks.report import bytes_text, put_between, table
from benchmarks.spark.aims import aims_of, speed
from benchmarks.spark.results import FRAZIL, OWN, PLAIN, STOCK, SYSTEMS, Results

BEGIN = "<!-- Spark figures: written by `python -m benchmarks spark --publish`, from here -->"
END = "<!-- Spark figures: to here -->"


def report(results: Results) -> str:
    parts = [about(results), _aims(results), _cpu(results), _ratios(results)]
    return "\n\n".join(parts)


def publish(results: Results, page: Path) -> None:
    put_between(report(results), page, BEGIN, END)


def about(results: Results) -> str:
    """Return the machine and the effort of a run."""
    host, effort = results.machine, results.effort
    load = ", ".join(f"{value:g}" for value in host["load_average_at_start"])
    return (
        f"- Machine: {host['cores']} cores, {bytes_text(host['memory_bytes'])} of memory,"
        f" {host['system']}, Python {host['python']}, Spark {host['spark']}, Java"
        f" {host['java']}; load average at the start {load}\n"
        f"- {effort['rows']:,} rows of ten columns, median of {effort['rounds']} interleaved"
        f" rounds after {effort['warm_ups']} to warm up"
    )


def _aims(results: Results) -> str:
    rows = [aim_row(aim) for aim in aims_of(results)]
    return f"**Aims, as speed in CPU seconds**\n\n{table(['aim', 'wanted', 'measured', ''], rows)}"


def _cpu(results: Results) -> str:
    rows = [
        [operation, *(seconds_text(results, operation, system) for system in SYSTEMS)]
        for operation in results.operations()
    ]
    title = "CPU seconds ± the widest distance from the median, and wall seconds"
    return f"**{title}**\n\n{table(['operation', *SYSTEMS], rows)}"


def seconds_text(results: Results, operation: str, system: str) -> str:
    cell = results.cell(operation, system)
    if cell is None:
        return ""
    return f"{cell.cpu_s:.2f} ± {cell.spread:.0%} · {cell.wall_s:.2f}"


def _ratios(results: Results) -> str:
    pairs = ((FRAZIL, PLAIN), (FRAZIL, STOCK), (OWN, STOCK))
    rows = [
        [operation, *(ratio_text(speed(results, operation, peer, ours)) for ours, peer in pairs)]
        for operation in results.operations()
    ]
    head = ["operation", *(f"{ours} ÷ {peer}" for ours, peer in pairs)]
    return f"**Speed by CPU**\n\n{table(head, rows)}"


def ratio_text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"

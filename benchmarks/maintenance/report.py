"""The figures of a run as Markdown tables, for the terminal and the documentation."""

from __future__ import annotations

from pathlib import Path

from benchmarks.commit.report import aim_row
from benchmarks.maintenance.aims import aims_of
from benchmarks.maintenance.systems import LOCAL, ON_SPARK, STOCK, SYSTEMS
from benchmarks.report import bytes_text, put_between, table
from benchmarks.spark.aims import speed
from benchmarks.spark.report import about, ratio_text, seconds_text
from benchmarks.spark.results import Results

BEGIN = (
    "<!-- Maintenance figures: written by `python -m benchmarks maintenance --publish`,"
    " from here -->"
)
END = "<!-- Maintenance figures: to here -->"


def report(results: Results) -> str:
    return "\n\n".join([_about(results), _aims(results), _figures(results)])


def publish(results: Results, page: Path) -> None:
    put_between(report(results), page, BEGIN, END)


def _about(results: Results) -> str:
    return f"{about(results)}\n- {results.effort['snapshots']:,} snapshots before the expiry"


def _aims(results: Results) -> str:
    rows = [aim_row(aim) for aim in aims_of(results)]
    return f"**Aims, as speed in CPU seconds**\n\n{table(['aim', 'wanted', 'measured', ''], rows)}"


def _figures(results: Results) -> str:
    rows = [
        [
            operation,
            *(seconds_text(results, operation, system) for system in SYSTEMS),
            *(ratio_text(speed(results, operation, STOCK, ours)) for ours in (ON_SPARK, LOCAL)),
            _peak(results, operation),
        ]
        for operation in results.operations()
    ]
    head = ["operation", *SYSTEMS, f"{ON_SPARK} ÷ stock", f"{LOCAL} ÷ stock", "peak, local"]
    title = "CPU seconds ± the widest distance from the median, and wall seconds; speed by CPU"
    return f"**{title}**\n\n{table(head, rows)}"


def _peak(results: Results, operation: str) -> str:
    """Return the most memory of the local process."""
    cell = results.cell(operation, LOCAL)
    peaks = [] if cell is None else [sample.peak_bytes for sample in cell.samples]
    return bytes_text(max(peaks)) if any(peaks) else ""

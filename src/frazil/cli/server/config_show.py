"""`frazil config show`."""

from __future__ import annotations

import json
from typing import Any

import typer

from frazil.cli.shared.setting_options import Output
from frazil.settings import Resolved, all_settings


def show(resolved: Resolved, output: Output) -> None:
    rows = [
        {
            "name": setting.name,
            "value": setting.shown(getattr(resolved.settings, setting.name)),
            "source": resolved.sources[setting.name],
            "env": setting.env,
            "flag": setting.flag,
            "help": setting.help,
        }
        for setting in all_settings()
    ]
    if output is Output.JSON:
        answer = {
            "config-file": resolved.config_file,
            "settings": rows,
            "unknown-variables": resolved.unknown_variables,
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    _print_table(rows)
    for variable in resolved.unknown_variables:
        typer.echo(f"note: {variable} is set, but it is no setting of the server", err=True)


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "value", "source"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        # Text, not str: a value with square brackets is a value, never markup.
        cells = (row["name"], _as_text(row["value"]), row["source"])
        table.add_row(*(Text(cell) for cell in cells))
    console = Console()
    # Into a pipe a table of any width is better than lines broken where a terminal would end.
    console.print(table, width=None if console.is_terminal else 1000)


def _as_text(value: Any) -> str:
    if value is None or value in ([], {}):
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{name}:{digest}" for name, digest in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    return str(value)

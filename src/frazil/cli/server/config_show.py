"""`frazil config show`: print the settings and their sources."""

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
        typer.echo(f"note: {variable} is set, but the server has no such setting", err=True)


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("setting", "value", "source"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        # Text prevents square brackets in values from being read as markup.
        cells = (row["name"], _as_text(row["value"]), row["source"])
        table.add_row(*(Text(cell) for cell in cells))
    console = Console()
    # Programs that read a pipe need unbroken lines.
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

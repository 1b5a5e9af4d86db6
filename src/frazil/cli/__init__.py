"""The `frazil` command."""

from __future__ import annotations


def main() -> None:
    """The console script's entry."""
    from frazil.cli.app import app

    app(prog_name="frazil")

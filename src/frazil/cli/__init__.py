"""The `frazil` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of the console script."""
    from frazil.cli.app import app

    app(prog_name="frazil")

"""The `frazil` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of the console script."""
    from frazil.cli.app import app
    from frazil.cli.shared.shell_completion import prepare

    prepare()
    app(prog_name="frazil")

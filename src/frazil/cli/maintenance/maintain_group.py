"""`frazil maintain`: the group of all commands that maintain tables."""

from __future__ import annotations

from types import ModuleType
from typing import Final

import typer

from frazil.cli.maintenance import (
    autopilot_commands,
    delete_commands,
    job_commands,
    lease_commands,
    rewrite_commands,
)
from frazil.cli.shared.command_group import CommandGroup

_MODULES: Final[tuple[ModuleType, ...]] = (
    autopilot_commands,
    rewrite_commands,
    delete_commands,
    job_commands,
    lease_commands,
)
"""The modules with a `register(group)`, in the order of the help."""


def register(app: typer.Typer) -> None:
    """Add the group to the command tree."""
    group = typer.Typer(
        cls=CommandGroup, help="Maintain tables, without Spark.", no_args_is_help=True
    )
    for module in _MODULES:
        module.register(group)
    app.add_typer(group, name="maintain")

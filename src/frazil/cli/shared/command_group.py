"""The group of commands: help that is never cut, and usage errors as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import typer
from typer.core import TyperGroup

from frazil.cli.shared.setting_options import Output

# Typer has its own copy of click since 0.20, so the class has no public name for all versions.
_ClickError: Final[Any] = typer.BadParameter.__mro__[2]
_NO_LIMIT: Final = 10_000
GROUP_SETTINGS: Final = {"max_content_width": _NO_LIMIT}
"""Help takes the whole width of the terminal; click's own limit is 80 columns."""


class CommandGroup(TyperGroup):
    """Lists commands with their whole first paragraph, and prints usage errors as JSON if asked."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, " ".join((command.help or "").partition("\n\n")[0].split()))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            parsed: list[str] = super().parse_args(ctx, args)
        except _ClickError as error:
            if hasattr(error, "option_name"):
                error.message += f"; options follow the command: {ctx.command_path} COMMAND ..."
            raise
        return parsed

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        if not options.get("standalone_mode", True) or not wants_json(words):
            return super().main(args, *more, **options)
        try:
            code = super().main(args, *more, **{**options, "standalone_mode": False})
        except _ClickError as error:
            typer.echo(json.dumps({"error": {"message": error.format_message()}}), err=True)
            sys.exit(error.exit_code)
        sys.exit(code or 0)


def wants_json(arguments: Sequence[str]) -> bool:
    """Check for `--output json` without parsing, since the arguments may be wrong."""
    text = Output.JSON.value
    flags = ("--output", "-o")
    return any(pair in {(flag, text) for flag in flags} for pair in pairwise(arguments)) or any(
        argument in (f"--output={text}", f"-o{text}") for argument in arguments
    )

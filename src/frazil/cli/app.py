"""Defines the commands. A command imports its implementation only when it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

import frazil
from frazil.cli.maintenance import maintain_group, why_command
from frazil.cli.shared.catalog_command import add_commands
from frazil.cli.shared.command_group import GROUP_SETTINGS, CommandGroup
from frazil.cli.shared.setting_options import Output, OutputOption, takes_settings
from frazil.cli.spark import file_rows, sql_command
from frazil.cli.tables import (
    column_commands,
    lifecycle_commands,
    namespace_commands,
    ref_commands,
    table_commands,
    view_commands,
)
from frazil.settings import Resolved

app = typer.Typer(
    name="frazil",
    cls=CommandGroup,
    context_settings=GROUP_SETTINGS,
    help="An Apache Iceberg REST catalog.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(
    cls=CommandGroup, help="Settings of the server and of clients.", no_args_is_help=True
)
token_app = typer.Typer(cls=CommandGroup, help="Access tokens for clients.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(token_app, name="token")


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"frazil {frazil.__version__}")
        raise typer.Exit


@app.callback()
def frazil_command(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Accept the options of the program itself."""


@app.command()
@takes_settings
def serve(resolved: Resolved, output: OutputOption = Output.TEXT) -> None:
    """Run the catalog in this process until SIGTERM or Ctrl-C."""
    from frazil.cli.server.server_commands import run_server

    run_server(resolved, output)


@config_app.command("show")
@takes_settings
def config_show(resolved: Resolved, output: OutputOption = Output.TEXT) -> None:
    """Print each setting of the server and each variable of clients, with value and source."""
    from frazil.cli.server.server_commands import show_settings

    show_settings(resolved, output)


@token_app.command("new")
def token_new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the principal in logs and events.")
    ],
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The token may read and plan, but change nothing.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create a token. It is shown once; the server stores only its digest."""
    from frazil.cli.server.server_commands import new_token

    new_token(name, read_only, output)


@app.command()
@takes_settings
def doctor(
    resolved: Resolved,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Fail if this optional check does not pass."),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check this machine for everything the server needs, and print fixes."""
    from frazil.cli.server.doctor import examine

    examine(resolved, tuple(require or ()), output)


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell.")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Print the script that completes commands, options and table names in a shell."""
    from frazil.cli.shared.shell_completion import print_script

    print_script(shell, output)


table_commands.register_reads(app)
ref_commands.register(app)
table_commands.register_commit(app)
lifecycle_commands.register(app)
column_commands.register(app)
namespace_commands.register(app)
view_commands.register(app)
maintain_group.register(app)
why_command.register(app)

spark_app = typer.Typer(
    cls=CommandGroup, help="Work on tables with Spark on this machine.", no_args_is_help=True
)
add_commands(
    spark_app,
    {"load": file_rows.load, "sql": sql_command.sql, "merge": file_rows.merge},
    dry_run="Do everything except the commit: print the request, and delete the files.",
)
app.add_typer(spark_app, name="spark")

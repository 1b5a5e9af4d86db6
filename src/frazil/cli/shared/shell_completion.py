"""Completion in the shell: the script for it, and the names of namespaces, tables and views."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import typer

from frazil.cli.shared.catalog_command import CatalogChoice
from frazil.cli.shared.printing import print_json
from frazil.cli.shared.setting_options import Output

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client

VARIABLE: Final = "_FRAZIL_COMPLETE"
"""The shell sets it when it asks for completions."""
_TIMEOUT_S: Final = 2.0
"""A shell waits while names are loaded."""


def print_script(shell: str, output: Output) -> None:
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="frazil", complete_var=VARIABLE, shell=str(shell))
    if output is Output.JSON:
        print_json({"shell": str(shell), "script": script})
    else:
        typer.echo(script)


def prepare() -> None:
    """Register the shells if one asks for completions."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return namespaces, tables and views that begin so; nothing if the catalog is away."""
    from frazil.client.catalog_client import Client
    from frazil.client.catalog_config import client_arguments
    from frazil.client.send.retry_policy import RetryPolicy
    from frazil.wire.errors import FrazilError

    options = ("uri", "token", "catalog", "ca_file", "warehouse")
    chosen: dict[str, Any] = {name: ctx.params.get(name) for name in options}
    try:
        arguments = client_arguments(CatalogChoice(**chosen).properties)
        retry = RetryPolicy(num_retries=0)
        arguments["outage_timeout_s"] = 0
        with Client(**arguments, timeout_s=_TIMEOUT_S, retry=retry) as client:
            names = _names(client, incomplete)
            # A shell adds a space to a single candidate, so it must not be part of a name.
            if len(names) == 1 and names[0].endswith("."):
                names = _names(client, names[0]) or names
            return names
    except (FrazilError, ValueError):
        return []


def _names(client: Client, incomplete: str) -> list[str]:
    """Return what may follow the last dot: namespaces with a dot after them, tables and views."""
    parent = tuple(incomplete.split(".")[:-1])
    namespaces = client.list_namespaces(parent or None)
    tables = [*client.list_tables(parent), *client.list_views(parent)] if parent else []
    names = [f"{'.'.join(levels)}." for levels in namespaces] + [str(table) for table in tables]
    return [name for name in names if name.startswith(incomplete)]

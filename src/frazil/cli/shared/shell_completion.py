"""Completion in the shell: the script for it, and the names of namespaces, tables and views."""

from __future__ import annotations

import os
from collections.abc import Callable
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
_BASH_SCRIPT: Final = r"""
_frazil_completion() {
    # Bash ends words at ":" and "=", so frazil gets the line, and what Bash takes for an earlier
    # word is removed from the answers.
    local line="${COMP_LINE:0:COMP_POINT}" answer prefix
    prefix="${line##*[[:space:]]}"
    [[ $prefix == -*=* ]] && prefix="${prefix#*=}"
    prefix="${prefix%"$2"}"
    COMPREPLY=()
    while IFS=$'\t' read -r answer _; do
        [[ -n $answer ]] && COMPREPLY+=("${answer#"$prefix"}")
    done < <(_FRAZIL_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
        _TYPER_COMPLETE_ARGS="$line" "$1")
    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *. ]] && compopt -o nospace
    return 0
}

complete -o default -F _frazil_completion frazil
""".strip()
"""Replaces Typer's script, which loses words after a URL; it reads the lines for fish."""


def print_script(shell: str, output: Output) -> None:
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = _BASH_SCRIPT
    if shell != "bash":
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

    def found(client: Client) -> list[str]:
        names = _names(client, incomplete)
        # A shell adds a space to a single candidate, so it must not be part of a name.
        if len(names) == 1 and names[0].endswith("."):
            names = _names(client, names[0]) or names
        return names

    return _ask(ctx, found)


def complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return namespaces that begin so."""
    return _ask(ctx, lambda client: _starting(_namespaces(client, incomplete), incomplete))


def _ask(ctx: typer.Context, question: Callable[[Client], list[str]]) -> list[str]:
    """Ask the catalog of the options that are typed; return nothing if it does not answer."""
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
            return question(client)
    except (FrazilError, ValueError):
        return []


def _names(client: Client, incomplete: str) -> list[str]:
    """Return what may follow the last dot: namespaces with a dot after them, tables and views."""
    parent = _parent(incomplete)
    names = [f"{namespace}." for namespace in _namespaces(client, incomplete)]
    if parent:
        names += map(str, [*client.list_tables(parent), *client.list_views(parent)])
    return _starting(names, incomplete)


def _namespaces(client: Client, incomplete: str) -> list[str]:
    return [".".join(levels) for levels in client.list_namespaces(_parent(incomplete) or None)]


def _parent(incomplete: str) -> tuple[str, ...]:
    return tuple(incomplete.split(".")[:-1])


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

"""`frazil serve`, `frazil config show` and `frazil token new`: run the server and set it up."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from textwrap import indent
from typing import Any

import typer

from frazil.cli.shared.printing import print_json, print_table
from frazil.cli.shared.setting_options import FAILURE, USAGE_ERROR, Output, fail
from frazil.client.catalog_config import (
    CLIENT_VARIABLES,
    DEFAULT_URI,
    URI_VARIABLE,
    ConfigError,
    ResolvedCatalog,
    resolve_catalog,
)
from frazil.extras import install_command, missing_modules
from frazil.settings import (
    MASK,
    Resolved,
    Settings,
    SettingsError,
    Token,
    all_settings,
    all_tokens,
    database_url,
    mask_url,
    token_name,
    warehouse_location,
)

_TOKEN_BYTES = 32


# --- serve ----------------------------------------------------------------------------------------


def run_server(resolved: Resolved, output: Output) -> None:
    settings = resolved.settings
    if missing := missing_modules("server"):
        fail(f"the server needs {', '.join(missing)}. Type: {install_command('server')}", output)
    from frazil.server.listen import StartRefused
    from frazil.server.log_lines import configure_logging
    from frazil.server.uvicorn_server import serve

    configure_logging(settings.log_format)
    try:
        serve(settings, lambda url: _announce(settings, url, output))
    except SettingsError as error:
        fail(str(error), output, USAGE_ERROR)
    except StartRefused as error:
        fail(str(error), output, USAGE_ERROR if error.usage else FAILURE)


def _announce(settings: Settings, url: str, output: Output) -> None:
    from frazil.server.client_snippets import snippets

    with_token = bool(all_tokens(settings))
    clients_url = settings.public_url or url
    code = snippets(settings, clients_url, with_token)
    if output is Output.JSON:
        answer = {
            "url": clients_url,
            "listening": url,
            "warehouse": warehouse_location(settings),
            "database": database_url(settings),
            "authentication": "token" if with_token else "none",
            "exports": _exports(clients_url, with_token),
            "snippets": code,
        }
        typer.echo(json.dumps(answer))
        return
    typer.echo(
        "\n".join(
            [
                f"Frazil is ready at {clients_url}",
                *([] if url == clients_url else [f"  listening  {url}"]),
                f"  warehouse  {warehouse_location(settings)}",
                f"  database   {database_url(settings)}",
                f"  clients    {_allowed_clients(settings, with_token)}",
                "\n  frazil's commands, Python client and Spark:",
                *(f"    {line}" for line in _exports(clients_url, with_token)),
                *(f"\n  {client}:\n{indent(text, '    ')}" for client, text in code.items()),
                "\nCtrl-C or SIGTERM stops the server after it has finished running requests.",
            ]
        )
    )


def _exports(url: str, with_token: bool) -> list[str]:
    """Return what a user types in a shell so that all clients find this server."""
    token = ["export FRAZIL_TOKEN=...  # a token from `frazil token new`"] if with_token else []
    return [f"export FRAZIL_URI={url}", *token]


def _allowed_clients(settings: Settings, with_token: bool) -> str:
    if with_token:
        tokens = sorted(all_tokens(settings).items())
        names = [f"{name} (read-only)" if token.read_only else name for name, token in tokens]
        return f"with a token of {', '.join(names)}"
    return "everyone who can reach this address (no tokens are configured)"


# --- config show ----------------------------------------------------------------------------------


def show_settings(resolved: Resolved, output: Output) -> None:
    """Print the settings of the server, and what clients on this machine use."""
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
    try:
        catalog = resolve_catalog()
    except ConfigError as error:
        fail(str(error), output, USAGE_ERROR)
    client_rows = _client_rows(catalog)
    if output is Output.JSON:
        print_json(
            {
                "config-file": resolved.config_file,
                "settings": rows,
                "client": client_rows,
                "unused-variables": catalog.unused_variables,
                "unknown-variables": resolved.unknown_variables,
            }
        )
        return
    print_table(
        ("server", "value", "source"),
        [(row["name"], _as_text(row["value"]), row["source"]) for row in rows],
    )
    typer.echo()
    print_table(
        ("client", "value", "source"),
        [(row["env"], _as_text(row["value"]), row["source"]) for row in client_rows],
    )
    for variable in catalog.unused_variables:
        typer.echo(
            f"note: {variable} is set, but not used: it is for the server at "
            f"{os.environ.get(URI_VARIABLE) or DEFAULT_URI}",
            err=True,
        )
    for variable in resolved.unknown_variables:
        typer.echo(
            f"note: {variable} is set, but neither the server nor a client uses it", err=True
        )


def _client_rows(catalog: ResolvedCatalog) -> list[dict[str, str | None]]:
    rows: list[dict[str, str | None]] = []
    for each in CLIENT_VARIABLES:
        if each.property is None:
            value = os.environ.get(each.env) or None
            source = "default" if value is None else f"environment {each.env}"
        else:
            value = catalog.properties.get(each.property)
            source = catalog.sources.get(each.property, "default")
        rows.append(
            {
                "env": each.env,
                "value": MASK if each.secret and value else value and mask_url(value),
                "source": source,
                "property": each.property,
                "option": each.option,
                "help": each.help,
            }
        )
    return rows


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


# --- token new ------------------------------------------------------------------------------------


def new_token(name: str, read_only: bool, output: Output) -> None:
    try:
        token_name(name)
    except ValueError as error:
        fail(str(error), output, USAGE_ERROR)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    # A plain hash is enough, because a token has 256 random bits.
    entry = f"{name}:{Token(hashlib.sha256(token.encode()).hexdigest(), read_only)}"
    if output is Output.JSON:
        answer = {"name": name, "read-only": read_only, "token": token, "entry": entry}
        typer.echo(json.dumps(answer))
        return
    typer.echo(f"The token of {name}, shown only once; the client sends it as a bearer token:\n")
    typer.echo(f"  {token}\n")
    typer.echo("The entry for the server, in FRAZIL_TOKENS or as a line of FRAZIL_TOKENS_FILE:\n")
    typer.echo(f"  {entry}")

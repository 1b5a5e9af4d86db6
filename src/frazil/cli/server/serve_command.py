"""`frazil serve`: run the server."""

from __future__ import annotations

import json
from importlib.util import find_spec
from textwrap import indent

import typer

from frazil.cli.shared.setting_options import FAILURE, USAGE_ERROR, Output, fail
from frazil.settings import (
    Resolved,
    Settings,
    SettingsError,
    all_tokens,
    mask_url,
    warehouse_location,
)

SERVER_PACKAGES = ("uvicorn", "uvloop", "httptools", "zstandard")


def run(resolved: Resolved, output: Output) -> None:
    settings = resolved.settings
    missing = [package for package in SERVER_PACKAGES if find_spec(package) is None]
    if missing:
        fail(
            f"the server needs {', '.join(missing)}: pip install 'frazil[server]'",
            output,
        )
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
    code = snippets(settings, url, with_token)
    if output is Output.JSON:
        answer = {
            "url": url,
            "warehouse": warehouse_location(settings),
            "database": mask_url(settings.database),
            "authentication": "token" if with_token else "none",
            "snippets": code,
        }
        typer.echo(json.dumps(answer))
        return
    typer.echo(
        "\n".join(
            [
                f"Frazil is ready at {url}",
                f"  warehouse  {warehouse_location(settings)}",
                f"  database   {mask_url(settings.database)}",
                f"  clients    {_allowed_clients(settings, with_token)}",
                *(f"\n  {client}:\n{indent(text, '    ')}" for client, text in code.items()),
                "\nCtrl-C or SIGTERM stops the server after it has finished running requests.",
            ]
        )
    )


def _allowed_clients(settings: Settings, with_token: bool) -> str:
    if with_token:
        return f"with a token of {', '.join(sorted(all_tokens(settings)))}"
    return "everyone who can reach this address (no tokens are configured)"

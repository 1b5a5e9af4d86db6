"""`frazil token new`: create a token."""

from __future__ import annotations

import hashlib
import json
import secrets

import typer

from frazil.cli.shared.setting_options import USAGE_ERROR, Output, fail
from frazil.settings import token_name

_TOKEN_BYTES = 32


def new(name: str, output: Output) -> None:
    try:
        token_name(name)
    except ValueError as error:
        fail(str(error), output, USAGE_ERROR)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    entry = f"{name}:{digest(token)}"
    if output is Output.JSON:
        typer.echo(json.dumps({"name": name, "token": token, "entry": entry}))
        return
    typer.echo(f"The token of {name}, shown only once; the client sends it as a bearer token:\n")
    typer.echo(f"  {token}\n")
    typer.echo("The entry for the server, in FRAZIL_TOKENS or as a line of FRAZIL_TOKENS_FILE:\n")
    typer.echo(f"  {entry}")


def digest(token: str) -> str:
    """Return the digest of a token. A plain hash is enough, because a token has 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()

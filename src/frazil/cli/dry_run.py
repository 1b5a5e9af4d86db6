"""`--dry-run`: the very request that a command would send, kept instead of sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from frazil.cli.options import Output
from frazil.cli.render import print_json

if TYPE_CHECKING:
    from frazil.client.http import Answer, Transport

_READS: Final = frozenset({"GET", "HEAD"})


class KeptRequest(Exception):
    """The first change that a client was about to send."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"{method} {path} was not sent")
        self.method = method
        self.path = path
        self.headers = dict(headers)
        self.body = body

    def document(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "path": f"/v1/{self.path}",
            "headers": self.headers,
            "body": json.loads(self.body) if self.body else None,
        }


class ReadingTransport:
    """Reads go to the catalog; the first change is raised as KeptRequest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        if method in _READS:
            return self._transport.send(
                method, path, body=body, headers=headers or {}, query=query or {}
            )
        raise KeptRequest(method, path, headers or {}, body or b"")


def print_kept(kept: KeptRequest, output: Output) -> NoReturn:
    """Ends the command with what would have been sent."""
    document = kept.document()
    if output is Output.JSON:
        print_json(document)
    else:
        typer.echo("nothing was sent; without --dry-run this would be:", err=True)
        typer.echo(f"{document['method']} {document['path']}")
        for name, value in document["headers"].items():
            typer.echo(f"{name}: {value}")
        typer.echo()
        print_json(document["body"])
    raise typer.Exit

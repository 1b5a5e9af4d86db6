"""`--dry-run`: the very request that a command would send, kept instead of sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from frazil.cli.shared.options import Output
from frazil.cli.shared.render import print_json
from frazil.wire.errors import FrazilError

if TYPE_CHECKING:
    from frazil.client.send.http import Answer, Transport

_READS: Final = frozenset({"GET", "HEAD"})
_PLANS: Final = re.compile(r"(?:.*/)?namespaces/[^/]+/tables/[^/]+/(?:plan|plan/[^/]+|tasks)")


class KeptRequest(FrazilError):
    """The first change that a client was about to send: an error, and so a proof that nothing was
    done, after which files that were written for it are removed."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"{method} {path} was not sent")
        self.method = method
        self.path = path
        self.request_headers = dict(headers)
        self.request_body = body

    def document(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "path": f"/v1/{self.path}",
            "headers": self.request_headers,
            "body": json.loads(self.request_body) if self.request_body else None,
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
        if _changes_nothing(method, path, body):
            return self._transport.send(
                method, path, body=body, headers=headers or {}, query=query or {}
            )
        raise KeptRequest(method, path, headers or {}, body or b"")


def _changes_nothing(method: str, path: str, body: bytes | None) -> bool:
    """Reads, the planning of scans, and a table that is only thought of: its first change would
    create it."""
    if method in _READS or _PLANS.fullmatch(path) is not None:
        return True
    if method != "POST" or not path.endswith("/tables"):
        return False
    return bool(json.loads(body or b"{}").get("stage-create"))


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

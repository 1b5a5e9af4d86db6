"""What the client's commands share: which catalog, how they end, how long work is shown.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 the commit was refused because of
what others have committed (nothing was done), 4 nobody knows whether it was committed.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, Optional

import typer

from frazil.cli.shared.printing import print_json
from frazil.cli.shared.setting_options import FAILURE, USAGE_ERROR, Output, OutputOption, fail
from frazil.wire.errors import FrazilError

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.send.http_transport import Answer, HttpTransport, Transport
    from frazil.wire.errors import FrazilError


CONFLICT: Final = 3
UNKNOWN_OUTCOME: Final = 4

_OPTIONS: Final = {
    "catalog": typer.Option(
        "--catalog",
        metavar="NAME",
        help="The catalog in .pyiceberg.yaml or PYICEBERG_CATALOG__NAME__*; "
        "without it the default one.",
    ),
    "uri": typer.Option(
        "--uri",
        metavar="URL",
        help="The catalog's address. Without --catalog nothing else is taken from the "
        "configuration then.",
    ),
    "token": typer.Option("--token", metavar="TOKEN", help="The bearer token."),
    "warehouse": typer.Option("--warehouse", metavar="NAME", help="The catalog's warehouse."),
}


@dataclass(frozen=True)
class CatalogChoice:
    """Which catalog a command speaks to, and how it prints."""

    catalog: str | None = None
    uri: str | None = None
    token: str | None = None
    warehouse: str | None = None
    output: Output = Output.TEXT

    @property
    def as_json(self) -> bool:
        return self.output is Output.JSON

    @cached_property
    def properties(self) -> dict[str, str]:
        """The configured properties, with the options over them."""
        from frazil.client.catalog_config import catalog_properties

        # A token that was configured for one server is not sent to another one by chance.
        elsewhere = self.uri is not None and self.catalog is None
        configured = {} if elsewhere else catalog_properties(self.catalog)
        given = {"uri": self.uri, "token": self.token, "warehouse": self.warehouse}
        return configured | {name: value for name, value in given.items() if value is not None}

    def connect(self, *, dry_run: bool = False) -> Client:
        """A client; with `dry_run` one whose first change is raised as KeptRequest."""
        from frazil.client.catalog_client import Client
        from frazil.client.catalog_config import client_arguments

        if not dry_run:
            return Client(**client_arguments(self.properties))

        transport, arguments = self._transport()
        return Client(transport=ReadingTransport(transport), **arguments)

    def store_properties(self) -> dict[str, str]:
        """What reaches the tables' files: the catalog's own answer says where its store is, and
        its overrides go before what is configured here."""
        from frazil.client.send.catalog_calls import Calls

        transport, arguments = self._transport()
        try:
            config = Calls(transport, **arguments).config
        finally:
            transport.close()
        return config.defaults | self.properties | config.overrides

    def _transport(self) -> tuple[HttpTransport, dict[str, Any]]:
        """The connection, and the arguments that are not about it."""
        from frazil.client.catalog_config import client_arguments
        from frazil.client.send.http_transport import HttpTransport

        arguments: dict[str, Any] = {**client_arguments(self.properties)}
        about_connection = inspect.signature(HttpTransport).parameters
        connection = {name: arguments.pop(name) for name in about_connection if name in arguments}
        return HttpTransport(**connection), arguments


def takes_catalog(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options that choose a catalog, and reports its errors.

    The command takes `choice` first, then its own arguments and options by name.
    """
    _, *rest = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in rest]
    options = [
        _keyword(name, Annotated[Optional[str], option], None)  # noqa: UP045 - read by typer
        for name, option in _OPTIONS.items()
    ]
    output = _keyword("output", OutputOption, Output.TEXT)

    def with_catalog(**given: Any) -> None:
        choice = CatalogChoice(
            **{name: given.pop(name) for name in _OPTIONS}, output=given.pop("output")
        )
        with reported(choice.output, given.get("save_conflict")):
            command(choice, **given)

    parameters = [*own, *options, output]
    with_catalog.__name__ = command.__name__
    with_catalog.__doc__ = command.__doc__
    with_catalog.__annotations__ = {each.name: each.annotation for each in parameters}
    with_catalog.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_catalog


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


# --- how a command ends ---------------------------------------------------------------------------


@contextmanager
def reported(output: Output, save_conflict: str | None = None) -> Iterator[None]:
    """Every error that a user can meet ends in one message and an exit code."""
    from frazil.cli.shared.typed_names import BadName
    from frazil.client.catalog_config import ConfigError
    from frazil.wire.errors import FrazilError

    try:
        yield
    except (BadName, ConfigError) as error:
        fail(str(error), output, USAGE_ERROR)
    except KeptRequest as kept:
        print_kept(kept, output)
    except FrazilError as error:
        _end(error, output, save_conflict)


@contextmanager
def on_its_way() -> Iterator[None]:
    """Around a change: whoever interrupts it is told that it may have taken place."""
    from frazil.wire.errors import CommitStateUnknown

    try:
        yield
    except KeyboardInterrupt:
        raise CommitStateUnknown(
            "interrupted while the change was on its way: nobody knows whether it took place. "
            "Delete no file; `frazil log` shows what was committed"
        ) from None


def usage(message: str, output: Output) -> NoReturn:
    fail(message, output, USAGE_ERROR)


def _end(error: FrazilError, output: Output, save_conflict: str | None) -> NoReturn:
    from frazil.wire.errors import CommitFailed, CommitStateUnknown, ValidationError

    refused = isinstance(error, CommitFailed | ValidationError)
    if refused and save_conflict is not None:
        _save(error, save_conflict, output)
    if output is Output.JSON:
        typer.echo(json.dumps(error.body()), err=True)
    elif isinstance(error, ValidationError) and error.conflicts:
        from frazil.cli.shared.conflict_explanation import explanation

        typer.echo(f"frazil: {explanation(error.body()['error'])}", err=True)
        if save_conflict is not None:
            typer.echo(f"\nkept for `frazil explain {save_conflict}`", err=True)
    else:
        from frazil.cli.shared.printing import plain

        typer.echo(f"frazil: {plain(error.message)}", err=True)
    if refused:
        raise typer.Exit(CONFLICT)
    raise typer.Exit(UNKNOWN_OUTCOME if isinstance(error, CommitStateUnknown) else FAILURE)


def _save(error: FrazilError, path: str, output: Output) -> None:
    text = json.dumps(error.body(), indent=2)
    try:
        Path(path).write_text(f"{text}\n", encoding="utf-8")
    except OSError as problem:
        typer.echo(f"frazil: --save-conflict {path}: {problem.strerror}", err=True)


# --- long work ------------------------------------------------------------------------------------


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's stderr, told how much is done and of how much; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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

"""What commands with a catalog share: options, errors, progress bars and `--dry-run`.

Exit codes: 0 success, 1 failure, 2 wrong usage or configuration, 3 the commit was refused because
of other commits (nothing changed), 4 the outcome of the commit is unknown.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn
from urllib.parse import urlencode

import typer
from typer.core import TyperCommand

from frazil.cli.shared.conflict_explanation import explanation
from frazil.cli.shared.printing import is_dumb, plain, print_json
from frazil.cli.shared.setting_options import (
    FAILURE,
    USAGE_ERROR,
    Output,
    OutputOption,
    declared,
    fail,
    keyword,
    own_options,
)
from frazil.cli.shared.typed_names import BadName
from frazil.client.catalog_config import (
    CA_FILE_PROPERTY,
    CLIENT_VARIABLES,
    URI_VARIABLE,
    ConfigError,
    ResolvedCatalog,
    client_arguments,
    resolve_catalog,
)
from frazil.wire.errors import (
    CommitFailed,
    CommitStateUnknown,
    FrazilError,
    NotAuthorized,
    ValidationError,
)
from frazil.wire.frazil_properties import OUTAGE_TIMEOUT

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.send.http_transport import Answer, Request, Transport


CONFLICT: Final = 3
UNKNOWN_OUTCOME: Final = 4

_OPTIONS: Final = {
    each.option.removeprefix("--").replace("-", "_"): typer.Option(
        each.option, metavar=each.metavar, help=f"{each.help} [env: {each.env}]"
    )
    for each in CLIENT_VARIABLES
    if each.option
}


DRY_RUN: Final = "Print the request without sending it."
"""The help of `--dry-run`, for most commands."""
WAIT_S: Final = 5.0
"""How long a command waits for a server that is away: somebody sits in front of it."""


@dataclass(frozen=True)
class CatalogChoice:
    """The catalog of a command, and its output format."""

    uri: str | None = None
    token: str | None = None
    catalog: str | None = None
    ca_file: str | None = None
    warehouse: str | None = None
    wait: str | None = None
    output: Output = Output.TEXT
    dry_run: bool = False
    """Whether the first change of a client raises DryRunRequest."""

    @property
    def as_json(self) -> bool:
        return self.output is Output.JSON

    def fail(self, message: str) -> NoReturn:
        """Print an error message to stderr and end the command."""
        fail(message, self.output)

    def usage(self, message: str) -> NoReturn:
        """End the command because of wrong arguments."""
        fail(message, self.output, USAGE_ERROR)

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties of the catalog."""
        return dict(self.resolved.properties)

    @cached_property
    def resolved(self) -> ResolvedCatalog:
        """Return the catalog of the options, the variables and the configuration."""
        options = {
            "uri": self.uri,
            "token": self.token,
            CA_FILE_PROPERTY: self.ca_file,
            "warehouse": self.warehouse,
            OUTAGE_TIMEOUT: self.wait,
        }
        return resolve_catalog(options, catalog=self.catalog)

    def connect(self, *, wait_s: float = WAIT_S) -> Client:
        """Return a client; in a dry run its first change raises DryRunRequest.

        It waits up to `wait_s` for a server that is away, or as long as the properties say. Then
        retries take no longer either.
        """
        from frazil.client.catalog_client import Client
        from frazil.client.send.retry_policy import RetryPolicy

        properties = {OUTAGE_TIMEOUT: str(wait_s), **self.properties}
        arguments: dict[str, Any] = {**client_arguments(properties)}
        if OUTAGE_TIMEOUT in self.properties:
            total_ms = int(arguments["outage_timeout_s"] * 1000)
            arguments["retry"] = RetryPolicy(total_timeout_ms=total_ms)
        if self.dry_run:
            from frazil.client.send.http_transport import HttpTransport

            names = inspect.signature(HttpTransport).parameters
            connection = {name: arguments.pop(name) for name in names if name in arguments}
            arguments["transport"] = DryRunTransport(HttpTransport(**connection))
        return Client(properties=self.resolved.storage_properties, **arguments)


def add_commands(
    group: typer.Typer,
    commands: Mapping[str, Callable[..., None]],
    *,
    dry_run: str | None = None,
    kind: type[TyperCommand] | None = None,
) -> None:
    """Add commands by their names, with the options that choose a catalog.

    `dry_run` is the help of the option `--dry-run` of commands that change something.
    """
    for name, command in commands.items():
        group.command(name, cls=kind)(_takes_catalog(command, dry_run))


def _takes_catalog(command: Callable[..., None], dry_run: str | None) -> Callable[..., None]:
    """Add options to a command, and report its errors.

    The command takes `choice` first, then its own arguments and options by name.
    """
    options = own_options(command)
    if dry_run is not None:
        flag = Annotated[bool, typer.Option("--dry-run", help=dry_run)]
        options.append(keyword("dry_run", flag, False))
    options += [keyword(name, Annotated[str | None, option]) for name, option in _OPTIONS.items()]
    options.append(keyword("output", OutputOption, Output.TEXT))
    chosen = [*_OPTIONS, "output", *([] if dry_run is None else ["dry_run"])]

    def with_catalog(**values: Any) -> None:
        choice = CatalogChoice(**{name: values.pop(name) for name in chosen})
        with reported(choice, values.get("save_conflict")):
            command(choice, **values)

    return declared(with_catalog, command, options)


# --- errors ---------------------------------------------------------------------------------------


@contextmanager
def reported(choice: CatalogChoice, save_conflict: str | None = None) -> Iterator[None]:
    """Turn every expected error into one message and an exit code."""
    output = choice.output
    logger = logging.getLogger("frazil.client")
    level = logger.level
    if output is Output.JSON:
        # The lines about a server that is away would make the JSON on stderr unreadable.
        logger.setLevel(logging.ERROR)
    try:
        yield
    except (BadName, ConfigError) as error:
        fail(str(error), output, USAGE_ERROR)
    except DryRunRequest as dry_run:
        print_dry_run(dry_run.request, output)
    except NotAuthorized as error:
        _end(NotAuthorized(f"{error.message}{_token_hint(choice)}"), output, save_conflict)
    except FrazilError as error:
        _end(_with_address(error, choice), output, save_conflict)
    finally:
        logger.setLevel(level)


@contextmanager
def unknown_if_interrupted() -> Iterator[None]:
    """Report an unknown outcome if the user interrupts a change."""
    try:
        yield
    except KeyboardInterrupt:
        raise CommitStateUnknown(
            "interrupted while the change was being sent, so its outcome is unknown. "
            "Delete no file; `frazil log` shows what was committed"
        ) from None


def _token_hint(choice: CatalogChoice) -> str:
    """Say how to give a token, and which variables were not used for this server."""
    unused = choice.resolved.unused_variables
    if not unused:
        return "" if "token" in choice.properties else " (pass --token, or set FRAZIL_TOKEN)"
    return (
        f" ({', '.join(unused)} was not used, because the environment names another "
        f"server than {choice.properties['uri']}: pass --token, or set {URI_VARIABLE})"
    )


def _with_address(error: FrazilError, choice: CatalogChoice) -> FrazilError:
    """Say where the address of a server that is away comes from, if nobody typed it."""
    from frazil.client.send.error_answers import CatalogUnreachable

    source = choice.resolved.sources["uri"]
    if not isinstance(error, CatalogUnreachable) or source == "argument":
        return error
    fix = f"start `frazil serve`, pass --uri, or set {URI_VARIABLE}"
    hint = f"the default address: {fix}" if source == "default" else f"the address of {source}"
    return CatalogUnreachable(f"{error.message} ({hint})")


def _end(error: FrazilError, output: Output, save_conflict: str | None) -> NoReturn:
    refused = isinstance(error, CommitFailed | ValidationError)
    if refused and save_conflict is not None:
        _save(error, save_conflict)
    if output is Output.JSON:
        typer.echo(json.dumps(error.body()), err=True)
    elif isinstance(error, ValidationError) and error.conflicts:
        typer.echo(f"frazil: {explanation(error.body()['error'])}", err=True)
        if save_conflict is not None:
            typer.echo(f"\nsaved for `frazil explain {save_conflict}`", err=True)
    else:
        lines = "\n".join(plain(line) for line in error.message.splitlines())
        typer.echo(f"frazil: {lines}", err=True)
    if refused:
        raise typer.Exit(CONFLICT)
    raise typer.Exit(UNKNOWN_OUTCOME if isinstance(error, CommitStateUnknown) else FAILURE)


def _save(error: FrazilError, path: str) -> None:
    text = json.dumps(error.body(), indent=2)
    try:
        Path(path).write_text(f"{text}\n", encoding="utf-8")
    except OSError as problem:
        typer.echo(f"frazil: --save-conflict {path}: {problem.strerror}", err=True)


# --- progress -------------------------------------------------------------------------------------


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; yield a function that takes the done and total counts."""
    if not sys.stderr.isatty() or is_dumb():
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


# --- dry runs -------------------------------------------------------------------------------------


_READ_METHODS: Final = frozenset({"GET", "HEAD"})
_PLANNING_PATH: Final = re.compile(
    r"(?:.*/)?namespaces/[^/]+/tables/[^/]+/(?:plan|plan/[^/]+|tasks)"
)


class DryRunRequest(FrazilError):
    """The first change that a client would have sent.

    It is an error that proves that nothing was committed, so written files are removed.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(f"{request.method} {request.path} was not sent")
        self.request = request


class DryRunTransport:
    """Sends reads to the catalog; raises DryRunRequest for the first change."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def send(self, request: Request) -> Answer:
        if not _changes_nothing(request):
            raise DryRunRequest(request)
        return self._transport.send(request)


def _changes_nothing(request: Request) -> bool:
    """Check for reads, scan planning, and staged tables, which only their first change creates."""
    if request.method in _READ_METHODS or _PLANNING_PATH.fullmatch(request.path) is not None:
        return True
    if request.method != "POST" or not request.path.endswith("/tables"):
        return False
    return bool(json.loads(request.body or b"{}").get("stage-create"))


def print_dry_run(request: Request, output: Output) -> NoReturn:
    """Print the request that would have been sent, and end the command."""
    path = request.path if request.path.startswith("/") else f"/v1/{request.path}"
    document = {
        "method": request.method,
        "path": f"{path}?{urlencode(request.query)}" if request.query else path,
        "headers": dict(request.headers),
        "body": json.loads(request.body) if request.body else None,
    }
    if output is Output.JSON:
        print_json(document)
    else:
        typer.echo("nothing was sent; without --dry-run this request would be sent:", err=True)
        typer.echo(f"{request.method} {document['path']}")
        for name, value in request.headers.items():
            typer.echo(f"{name}: {value}")
        if document["body"] is not None:
            typer.echo()
            print_json(document["body"])
    raise typer.Exit

"""Run one change of a table or of the catalog, and print its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.shared.catalog_command import CatalogChoice, unknown_if_interrupted
from frazil.cli.shared.printing import plain, print_json
from frazil.cli.shared.typed_names import table_name

if TYPE_CHECKING:
    from frazil.client.catalog_client import Client
    from frazil.client.declare.client_table import Table
    from frazil.client.declare.table_verbs import Commit

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the request without sending it.")
]


def change_table(
    choice: CatalogChoice,
    name: str,
    change: Callable[[Table], Commit],
    done: str,
    *,
    dry_run: bool,
) -> None:
    """Change a table; `done` tells people what was changed."""
    identifier = table_name(name)
    with choice.connect(dry_run=dry_run) as client:
        table = client.load_table(identifier, snapshots="refs")
        with unknown_if_interrupted():
            commit = change(table)
    print_done(
        choice,
        f"{identifier}: {done}",
        {"table": str(identifier), "metadata-location": commit.metadata_location},
    )


def change_catalog(
    choice: CatalogChoice, change: Callable[[Client], Any], *, dry_run: bool = False
) -> Any:
    """Change something other than the metadata of a table, and return what the change returns."""
    with choice.connect(dry_run=dry_run) as client, unknown_if_interrupted():
        return change(client)


def print_done(choice: CatalogChoice, text: str, document: dict[str, Any]) -> None:
    if choice.as_json:
        print_json(document)
    else:
        typer.echo(plain(text))
